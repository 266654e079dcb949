"""What the instance needs of a model's tokenizer.

Floor 0, pure.
"""

from collections.abc import Sequence
from typing import Protocol


class PushesText(Protocol):
    """Ids of one answer -> its text; never splits a UTF-8 sequence."""

    def push(self, token_id: int, /) -> str: ...
    def flush(self) -> str: ...


class HoldsBack(Protocol):
    """Finds stop strings in one answer; holds back only what may be the beginning of one."""

    def push(self, text: str, /) -> tuple[str, bool]: ...
    def flush(self) -> str: ...


class Text(Protocol):
    """A tokenizer with its chat template."""

    @property
    def stop_ids(self) -> frozenset[int]: ...
    def encode(self, text: str, special: bool) -> list[int]: ...

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Raises: RequestInvalid when the template refuses."""

    def detokenizer(self) -> PushesText: ...

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text, as UTF-8; special ones by their name, unknown ones empty.

        It may be a part of a character.
        """
