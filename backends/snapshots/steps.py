"""How long work tells how far it is, whoever shows it.

Floor 0, pure.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

OnBytes = Callable[[int], None]  # called with the bytes done since the last call

# One step of the work: what is done, over how many bytes.
Steps = Callable[[str, int], AbstractContextManager[OnBytes]]


@contextmanager
def silent(what: str, total_bytes: int) -> Iterator[OnBytes]:
    """A step that nobody watches."""
    yield lambda count: None
