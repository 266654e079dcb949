"""Logits of one step -> the id of the next token, and how likely the model held it.

Floor 1, pure.
Flow: logits > bias and penalties > temperature > top_k > top_p > [draw].
Every request has a Sampler of its own, with a random source of its own, so that what a seed gives
does not depend on which other requests share the batch.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from backends.engines.base import Sampling, Scores

# Most vocabularies' nucleus lies in far fewer ids than this; when it does not, all ids are sorted.
# Measured for 49,152 ids: 0.4 ms where sorting them all takes 4.
CANDIDATES: Final = 1024
SEED_MASK: Final = 2**64 - 1  # seeds in requests may be negative; the generator's may not
BAN: Final = -100.0  # OpenAI: a bias of -100 bans a token
# What a ban adds instead: no model's logits differ by as much, so a banned token is drawn only when
# all are banned. Finite, so that even then there is a distribution.
BANNED: Final = -1e9


class Sampler:
    """Draws the tokens of one request, in order."""

    __slots__ = ("_drawn", "_offsets", "_random", "_sampling")

    def __init__(self, sampling: Sampling, fallback_seed: int) -> None:
        """`fallback_seed` is used when the request names none."""
        seed = fallback_seed if sampling.seed is None else sampling.seed
        self._sampling = sampling
        self._random = np.random.Generator(np.random.PCG64(seed & SEED_MASK))
        self._drawn: set[int] = set()
        self._offsets: NDArray[np.float64] | None = None  # bias and penalties of each id so far

    def draw(self, logits: NDArray[np.float32]) -> int:
        """The next id. Shape: logits [vocab], finite."""
        sampling = self._sampling
        if not (sampling.logit_bias or sampling.frequency_penalty or sampling.presence_penalty):
            return self._pick(logits)
        if self._offsets is None:
            self._offsets = _biases(sampling, len(logits))
        id_ = self._pick(logits + self._offsets)
        # OpenAI: logit[id] - times drawn * frequency_penalty - (drawn at all) * presence_penalty
        self._offsets[id_] -= sampling.frequency_penalty
        if id_ not in self._drawn:
            self._drawn.add(id_)
            self._offsets[id_] -= sampling.presence_penalty
        return id_

    def _pick(self, logits: NDArray[np.floating[Any]]) -> int:
        if self._sampling.temperature <= 0:
            return int(np.argmax(logits))  # the first of equals, hence the lowest id
        ids, weights = distribution(logits, self._sampling)
        ends = np.cumsum(weights)
        # side="right": a weight of zero has no width, so it is never drawn. The product is below
        # the end, also rounded: the random number is at most 1 - 2**-53, and one weight is 1.
        place = int(np.searchsorted(ends, self._random.random() * ends[-1], side="right"))
        return place if ids is None else int(ids[place])


def score(logits: NDArray[np.float32], id_: int, count: int) -> Scores:
    """Logarithms of the probabilities of `id_` and of the `count` likeliest ids."""
    centred = logits.astype(np.float64) - float(np.max(logits))
    logprobs = centred - np.log(np.exp(centred).sum())
    ids = _highest(logprobs, min(count, len(logprobs))) if count else ()
    return Scores(float(logprobs[id_]), tuple((int(each), float(logprobs[each])) for each in ids))


def distribution(
    logits: NDArray[np.floating[Any]], sampling: Sampling
) -> tuple[NDArray[np.intp] | None, NDArray[np.float64]]:
    """Ids that may be drawn and their weights, which need not sum to 1.

    Shape: ids None means 0, 1, ...; else most probable first, equals by id.
    """
    with np.errstate(over="ignore"):  # by a tiny temperature: minus infinity weighs nothing
        scaled = (logits.astype(np.float64) - float(np.max(logits))) / sampling.temperature
    weights = np.exp(scaled)
    k = sampling.top_k if 0 < sampling.top_k < len(logits) else len(logits)
    if k == len(logits) and sampling.top_p >= 1:
        return None, weights
    if k < len(logits):
        ids = _highest(weights, k)
        kept = weights[ids]
        if sampling.top_p >= 1:  # all of them: rounding must not drop an unlikely one
            return ids, kept
        return _nucleus(ids, kept, sampling.top_p * float(kept.sum()))
    wanted = sampling.top_p * float(weights.sum())
    ids = _highest(weights, min(CANDIDATES, len(weights)))
    if float(weights[ids].sum()) < wanted:
        ids = _highest(weights, len(weights))
    return _nucleus(ids, weights[ids], wanted)


def _biases(sampling: Sampling, vocab: int) -> NDArray[np.float64]:
    """What is added to each id's logit before anything was drawn."""
    biases = np.zeros(vocab)
    for id_, bias in sampling.logit_bias:
        biases[id_] = BANNED if bias == BAN else bias
    return biases


def _nucleus(
    ids: NDArray[np.intp], weights: NDArray[np.float64], wanted: float
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The shortest head of `ids` whose weights reach `wanted`; at least one."""
    size = int(np.searchsorted(np.cumsum(weights), wanted, side="left")) + 1
    return ids[:size], weights[:size]


def _highest(weights: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """Ids of the `k` highest weights, highest first, equals by id."""
    if k == len(weights):
        return np.argsort(-weights, kind="stable")
    least = np.partition(weights, len(weights) - k)[len(weights) - k]
    candidates = np.flatnonzero(weights >= least)  # more than k when several equal the least
    return candidates[np.argsort(-weights[candidates], kind="stable")][:k]
