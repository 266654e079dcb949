"""After the way to READY no request compiles anything, however long it is: counted, not timed."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from backends.engines import runtime
from backends.engines.base import Generation, Sampling
from backends.engines.families import FAMILIES
from backends.engines.llm.engine import LlmEngine
from backends.facts import Loaded
from backends.loading import Loading
from backends.settings import Settings
from tests.backends.rig import rig
from tests.tiny import write_tiny_snapshot

pytestmark = pytest.mark.mindspore

TOKENS = 4


async def test_no_request_compiles_a_graph_after_the_way_to_ready(tmp_path: Path) -> None:
    snapshot = write_tiny_snapshot(tmp_path)
    settings = Settings(
        model=snapshot.manifest.model,
        version=snapshot.manifest.version,
        root=tmp_path,
        instance_id="tiny-0",
        cache_root=tmp_path / "cache",
        warmup_rounds=1,
    )
    facts = rig().facts
    facts._measure = lambda: replace(rig().facts.memory(), total_bytes=0)  # not what this is about
    load = Loading(settings, FAMILIES, facts, Random(7))
    before = runtime.compiled()
    with ExitStack() as held:
        await load.run(held)
        loaded = facts.loaded
        assert isinstance(loaded, Loaded)
        promised = runtime.compiled()
        assert promised > before
        try:
            for length in (1, 31, 32, 33, 100, loaded.max_seq_len - TOKENS):
                drawn = Sampling(temperature=0.9, top_p=0.8, seed=length, presence_penalty=1.0)
                ids = tuple(n % loaded.executor.vocab for n in range(length))
                asked = Generation("long", ids, TOKENS, drawn, frozenset(), logprobs=2)
                assert len([token async for token in loaded.executor.submit(asked)]) == TOKENS
            assert runtime.compiled() == promised
            # The count does see one: a shape that nobody promised.
            engine = loaded.executor._engine
            assert isinstance(engine, LlmEngine)
            engine._call(np.zeros((1, 7), np.int32), [0], [0], [6], engine.max_seq_len)
            assert runtime.compiled() == promised + 1
        finally:
            await loaded.executor.close()
