"""Metrics are what the status says, read at the moment of the scrape."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from backends.metrics import exposition
from sluicegate.v1.states import Phase, State
from tests.backends.fakes import Gate, ScriptedEngine
from tests.backends.rig import Rig, ready_rig, rig
from tests.backends.test_executor import generation


def scrape(made: Rig) -> dict[tuple[str, str], float]:
    """Value by sample name and its label that is not model, version or instance."""
    found = {}
    for family in text_string_to_metric_families(exposition(made.facts).decode()):
        assert family.documentation
        for sample in family.samples:
            labels = dict(sample.labels)
            whose = [labels.pop(name) for name in ("model", "version", "instance")]
            assert whose == ["m", "1", "m-1-0"]
            found[sample.name, "".join(labels.values())] = sample.value
    return found


async def test_counts_are_those_of_their_owners() -> None:
    async with ready_rig() as made:
        made.gate.admit(made.life.standing, "r-1")
        made.gate.rejected_total = 4
        seen, readings = scrape(made), made.facts.readings()
    assert seen["sluicegate_instance_in_flight", ""] == 1
    assert seen["sluicegate_instance_rejected_total", ""] == 4
    assert seen["sluicegate_instance_slots", ""] == made.engine.slots
    assert seen["sluicegate_instance_served_total", ""] == readings.served_total
    for kind, count in (
        ("prompt", readings.prompt_tokens_total),
        ("reused", readings.reused_tokens_total),
        ("completion", readings.completion_tokens_total),
    ):
        assert seen["sluicegate_instance_tokens_total", kind] == count
    assert seen["sluicegate_instance_prompts_total", ""] == readings.prompts_total
    assert seen["sluicegate_instance_prefix_hits_total", ""] == readings.prefix_hits_total
    assert seen["sluicegate_instance_memory_bytes", "used"] == readings.memory_bytes
    assert seen["sluicegate_instance_memory_bytes", "total"] == 1000


def test_exactly_one_state_is_1() -> None:
    made = rig()
    made.life.fail("broken", 0.0)
    seen = scrape(made)
    states = {state.name: seen["sluicegate_instance_state", state.name] for state in State}
    assert states == dict.fromkeys(states, 0.0) | {"ERROR": 1.0}


def test_load_times_are_in_seconds_by_phase() -> None:
    made = rig()
    made.life.begin(0.0)
    made.life.progress(Phase.LOADING_MODEL, 0.0, "", 0.0)
    made.life.progress(Phase.COMPILING, 0.0, "", 2.0)
    made.life.progress(Phase.WARMING_UP, 0.0, "", 9.0)
    made.life.progress(Phase.WARMING_UP, 0.5, "", 9.0)
    seen = scrape(made)
    assert seen["sluicegate_instance_load_seconds", "load"] == 2.0
    assert seen["sluicegate_instance_load_seconds", "compile"] == 7.0
    assert seen["sluicegate_instance_progress_ratio", ""] == 0.8


async def test_the_times_of_a_generation_are_seen_once_each() -> None:
    async with ready_rig() as made:
        before = scrape(made)
        for prompt in ((1, 2, 3), (1, 2, 3, 4)):
            stream = made.executor.submit(generation(*prompt, max_tokens=5))
            assert len([token async for token in stream]) == 5
        seen = scrape(made)
    for name, of in (
        ("queue_wait_seconds", 2),
        ("time_to_first_token_seconds", 2),
        ("time_per_output_token_seconds", 2),
        ("request_duration_seconds", 2),
    ):
        sample = f"sluicegate_instance_{name}"
        assert seen[f"{sample}_count", ""] - before[f"{sample}_count", ""] == of
        assert seen[f"{sample}_bucket", "+Inf"] == seen[f"{sample}_count", ""]
        assert seen[f"{sample}_sum", ""] >= before[f"{sample}_sum", ""]
    assert seen["sluicegate_instance_tokens_per_second", "completion"] > 0
    assert seen["sluicegate_instance_tokens_per_second", "prompt"] > 0


async def test_the_cache_is_held_while_a_generation_runs_and_kept_when_it_has_ended() -> None:
    steps = Gate()
    async with ready_rig(ScriptedEngine(slots=2, gate=steps), steps) as made:
        room = 2 * made.engine.max_seq_len
        stream = made.executor.submit(generation(1, 2, 3, max_tokens=2))
        await asyncio.to_thread(steps.await_arrivals, 1)
        steps.let(1)
        await anext(stream)
        assert scrape(made)["sluicegate_instance_kv_cache_ratio", "held"] == 3 / room
        steps.open()
        await anext(stream)
        seen = scrape(made)
    assert seen["sluicegate_instance_kv_cache_ratio", "held"] == 0
    # The last token was drawn and never computed.
    assert seen["sluicegate_instance_kv_cache_ratio", "kept"] == 4 / room
