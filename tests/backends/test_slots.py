"""The batch without its thread: what each step is given, and what it gives."""

from random import Random

from backends.batching import Decode, Prefill
from backends.engines.base import Finish, Generation, Sampling, Token
from backends.slots import NOTHING, Outcome, Request, Slots
from tests.backends.fakes import ScriptedEngine, answer


def request(number: int, *prompt: int, max_tokens: int = 4) -> Request:
    generation = Generation(f"r{number}", prompt, max_tokens, Sampling(), frozenset())
    return Request(number, generation, submitted_ns=0)


def run(slots: Slots, steps: int) -> list[Outcome]:
    """So many steps, each planned anew."""
    outcomes = []
    for _ in range(steps):
        slots.admit()
        step = slots.plan()
        assert step is not None
        outcomes.append(slots.run(step))
    return outcomes


def test_a_long_prompt_is_prefilled_between_the_decodes_of_its_neighbour() -> None:
    engine = ScriptedEngine(slots=2, chunks=(2,))
    slots = Slots(engine, Random(1))
    slots.add(request(1, 9, max_tokens=9))
    run(slots, 1)
    slots.add(request(2, 1, 2, 3, 4, 5))
    run(slots, 6)
    assert [call[0] for call in engine.calls] == ["prefill"] + ["decode", "prefill"] * 3


def test_a_slot_not_whole_yet_is_given_its_first_id_again_while_others_decode() -> None:
    engine = ScriptedEngine(slots=2, chunks=(2,))
    slots = Slots(engine, Random(1))
    slots.add(request(1, 9, max_tokens=9))
    slots.add(request(2, 1, 2, 3, 4, 5))
    run(slots, 5)
    first, second = (call for call in engine.calls if call[0] == "decode")
    assert first == ("decode", (answer([9], 1)[0], 1), (1, 0))
    assert second == ("decode", (answer([9], 2)[1], 1), (2, 0))


def test_the_last_token_says_why_it_is_the_last() -> None:
    slots = Slots(ScriptedEngine(slots=1), Random(1))
    slots.add(request(1, 5, max_tokens=1))
    [outcome] = run(slots, 1)
    assert outcome == Outcome(((1, Token(answer([5], 1)[0], Finish.LENGTH)),), (), 1, (1, 0))


def test_a_step_that_broke_frees_the_slots_it_was_for() -> None:
    slots = Slots(ScriptedEngine(slots=3), Random(1))
    for number in (1, 2, 3):
        slots.add(request(number, number))
    run(slots, 4)  # prefill, decode, prefill, decode: two of them decode
    assert slots.plan() == Prefill(2, 1)
    assert slots.fail(Prefill(2, 1), "broken").failed == ((3, "broken"),)
    assert slots.fail(Decode((0, 1)), "broken").failed == ((1, "broken"), (2, "broken"))
    assert slots.active() == 0
    assert slots.faults == [1, 1, 1]


def test_clearing_names_all_that_were_held_or_waited() -> None:
    slots = Slots(ScriptedEngine(slots=1), Random(1))
    for number in (1, 2, 3):
        slots.add(request(number, number))
    run(slots, 1)
    assert slots.clear() == (1, 2, 3)
    assert slots.is_idle()


def test_dropping_what_is_not_there_says_so() -> None:
    assert not Slots(ScriptedEngine(), Random(1)).drop(7)


def test_generations_without_a_seed_draw_theirs_from_the_given_source() -> None:
    def drawn(seed: int) -> list[int]:
        slots = Slots(ScriptedEngine(slots=1), Random(seed))
        hot = Sampling(temperature=100.0)
        slots.add(Request(1, Generation("r", (1,), 6, hot, frozenset()), 0))
        return [token.id for outcome in run(slots, 6) for _, token in outcome.tokens]

    assert drawn(1) == drawn(1) != drawn(2)


def test_nothing_is_an_outcome_without_anything() -> None:
    assert (NOTHING.tokens, NOTHING.failed, NOTHING.prompt_tokens) == ((), (), 0)
