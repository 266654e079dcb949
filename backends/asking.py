"""One request the way all requests go: what has not answered once is not READY.

Floor 3, I/O.
"""

import asyncio
from typing import Final

from backends.engines.base import Generation, Sampling
from backends.errors import EngineFailed, LoadFailed
from backends.facts import Loaded, LoadedGraph
from backends.tensors import not_numbers, zeros

VERIFY_TEXT: Final = "Hello"
VERIFY_TOKENS: Final = 4  # a prefill, and decodes that read what it wrote
VERIFY_S: Final = 120.0  # an engine that hangs must not be INITIALIZING for ever


async def ask(loaded: Loaded | LoadedGraph) -> None:
    """Raises: LoadFailed unless it is answered."""
    try:
        async with asyncio.timeout(VERIFY_S):
            if isinstance(loaded, LoadedGraph):
                await _run_zeros(loaded)
            else:
                await _generate(loaded)
    except TimeoutError as exc:
        raise LoadFailed(f"verification: no answer within {VERIFY_S:g} s") from exc
    except EngineFailed as exc:
        raise LoadFailed(f"verification: {exc}") from exc


async def _generate(loaded: Loaded) -> None:
    generation = Generation(
        request_id="verification",
        prompt_ids=tuple(loaded.text.encode(VERIFY_TEXT, special=True)),
        max_tokens=VERIFY_TOKENS,
        sampling=Sampling(),
        stop_ids=frozenset(),
    )
    detokenizer = loaded.text.detokenizer()
    count = 0
    async for token in loaded.executor.submit(generation):
        detokenizer.push(token.id)
        count += 1
    if not count:
        raise LoadFailed("verification: the answer was empty")


async def _run_zeros(loaded: LoadedGraph) -> None:
    outputs = await loaded.executor.infer(zeros(loaded.signature, 1))
    bad = not_numbers(outputs)
    if bad:
        raise LoadFailed(f"verification: zeros in, no finite numbers out in {', '.join(bad)}")
