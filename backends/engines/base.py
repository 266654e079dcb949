"""What the executor needs of an engine that generates tokens, and what it says of each request.

Floor 0, pure.
An engine is synchronous and knows slots, ids and positions only; text, HTTP and fairness are not
its business. All of its methods are called on one thread: the one that owns the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sluicegate.v1.states import Phase

# Phase, share of it that is done (0..1), what is going on in words.
Report = Callable[[Phase, float, str], None]


class Finish(Enum):
    """Why a generation ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. Temperature 0 is greedy: highest logit, lowest id on a tie."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    seed: int | None = None
    frequency_penalty: float = 0.0  # off a token's logit for each time that it was drawn
    presence_penalty: float = 0.0  # off it once it was drawn at all
    logit_bias: tuple[tuple[int, float], ...] = ()  # ids, each once, and what is added; -100: never


@dataclass(frozen=True, slots=True)
class Generation:
    """One request as the executor sees it."""

    request_id: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop_ids: frozenset[int]
    logprobs: int | None = None  # that many of the likeliest beside the drawn one's; None: none


@dataclass(frozen=True, slots=True)
class Scores:
    """How likely the model held a token, and what it held likeliest in its place.

    Natural logarithms of its own probabilities: before bias, penalties and temperature.
    """

    drawn: float
    likeliest: tuple[tuple[int, float], ...]  # ids and theirs, likeliest first, equals by id


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token; the last one of a generation says why it is the last."""

    id: int
    finish: Finish | None
    scores: Scores | None = None


class Engine(Protocol):
    """A loaded model with a fixed number of slots, each holding one sequence's KV cache."""

    slots: int
    max_seq_len: int  # prompt and completion together
    chunks: tuple[int, ...]  # prompt ids that a `prefill` computes, ascending; fewer cost the same
    vocab: int  # ids are 0 to vocab - 1; known once `load` has returned

    def load(self, report: Report) -> None:
        """Weights in memory, cache allocated, every promised shape compiled and run once.

        Raises: SnapshotInvalid (naming the file), DependencyMissing (saying how to install it).
        """

    def prefill(self, slot: int, ids: Sequence[int], start: int) -> NDArray[np.float32]:
        """Logits after the last of `ids`, which go to positions start.. of the slot.

        It writes to these positions of the slot and to no other.
        Shape: [vocab]; 1 <= len(ids) <= chunks[-1]; start + len(ids) <= max_seq_len.
        """

    def decode(self, ids: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        """Logits for one step of every slot at once.

        It writes to the one position of each slot and to no other. A slot that the step is not for
        is given the id that is at position 0 of it already; its row means nothing.
        Shape: ids and positions [slots], result [slots, vocab].
        """

    def clear(self, slot: int) -> None:
        """Zeros in all of the slot's cache. Values there that are not numbers would spoil whatever
        the slot is used for next: a position that is not seen still counts, 0 times."""

    def memory_bytes(self) -> int:
        """Device memory that this engine holds now (resident set on CPU)."""

    def close(self) -> None:
        """Release the device; nothing may be called after it."""
