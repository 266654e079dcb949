"""What a slot keeps for later prompts: never wrong, whoever had the slot and however it was left.

The scripted engine answers otherwise when a position that it reads is not of the ids before it.
"""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from backends.batching import Decode, Prefill
from backends.engines.base import Sampling
from backends.slots import Outcome, Slots
from tests.backends.fakes import ScriptedEngine, answer
from tests.backends.test_slots import request, run

LENGTH = 24
CHUNKS = ((1,), (2,), (5,), (1, 4), (2, 3, 8))
SHARED = (1, 2, 3, 4, 5, 6)


def finish(slots: Slots) -> list[Outcome]:
    outcomes = []
    while not slots.is_idle():
        outcomes += run(slots, 1)
    return outcomes


def reused(outcomes: list[Outcome]) -> dict[int, int]:
    return dict(outcome.reused for outcome in outcomes if outcome.reused is not None)


class Histories(RuleBasedStateMachine):
    """Differential: any history of joins, leaves, steps and faults against one answer at a time.

    Prompts are of two ids or go on where an earlier one ended, so most of them share a beginning.
    """

    @initialize(slots=st.integers(1, 3), chunks=st.sampled_from(CHUNKS), keeps=st.booleans())
    def begin(self, slots: int, chunks: tuple[int, ...], keeps: bool) -> None:
        self.engine = ScriptedEngine(slots, LENGTH, chunks)
        self.slots = Slots(self.engine, Random(1), keeps)
        self.keeps = keeps
        self.wanted: dict[int, list[int]] = {}
        self.got: dict[int, list[int]] = {}
        self.said: list[tuple[int, ...]] = [(1,)]
        self.computed = self.asked = self.saved = 0

    @rule(data=st.data(), length=st.integers(1, 6))
    def add(self, data: st.DataObject, length: int) -> None:
        prompt = data.draw(st.sampled_from(self.said)) if data.draw(st.booleans()) else ()
        prompt += tuple(data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=9)))
        prompt = prompt[: LENGTH - 1]
        number = len(self.got) + 1
        self.slots.add(request(number, *prompt, max_tokens=length))
        self.wanted[number] = answer(prompt, min(length, LENGTH - len(prompt)))
        self.got[number] = []
        self.said.append((*prompt, *self.wanted[number]))

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        going = [n for n in self.wanted if len(self.got[n]) < len(self.wanted[n])]
        if going:
            leaver = data.draw(st.sampled_from(going))
            assert self.slots.drop(leaver)
            self.wanted[leaver] = self.got[leaver]

    @rule()
    def step(self) -> None:
        self.slots.admit()
        step = self.slots.plan()
        if step is not None:
            self.take(self.slots.run(step))

    @rule()
    def steps(self) -> None:
        for _ in range(9):
            self.step()

    @rule()
    def break_a_step(self) -> None:
        self.slots.admit()
        step = self.slots.plan()
        if step is None:
            return
        self.engine.faults = lambda step: (_ for _ in ()).throw(RuntimeError("broken"))
        try:
            self.slots.run(step)
        except RuntimeError:
            self.take(self.slots.fail(step, "broken"))
        self.engine.faults = lambda step: None

    @rule(data=st.data())
    def give_no_numbers(self, data: st.DataObject) -> None:
        self.engine.blank = {data.draw(st.integers(0, self.engine.slots - 1))}
        self.step()
        self.engine.blank = set()

    def take(self, outcome: Outcome) -> None:
        for number, token in outcome.tokens:
            self.got[number].append(token.id)
        for number, _ in outcome.failed:
            self.wanted[number] = self.got[number]
        if outcome.reused is not None:
            self.saved += outcome.reused[1]
            assert outcome.reused[1] == 0 or self.keeps

    @invariant()
    def what_came_is_what_was_to_come(self) -> None:
        for number, ids in getattr(self, "got", {}).items():
            assert ids == self.wanted[number][: len(ids)]

    def teardown(self) -> None:
        if not hasattr(self, "slots"):
            return
        for outcome in finish(self.slots):
            self.take(outcome)
        assert self.got == self.wanted
        assert self.slots.active() == 0


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_conversation_computes_only_what_is_new_of_each_turn() -> None:
    engine = ScriptedEngine(slots=3, max_seq_len=64, chunks=(8,))
    slots = Slots(engine, Random(1))
    prompt: tuple[int, ...] = SHARED
    for turn in range(4):
        slots.add(request(turn, *prompt, max_tokens=5))
        outcomes = finish(slots)
        # All but the last token of the answer: that one was drawn, but never fed.
        assert reused(outcomes)[turn] == (len(prompt) - 3 if turn else 0)
        assert sum(outcome.prompt_tokens for outcome in outcomes) == (3 if turn else len(prompt))
        prompt = (*prompt, *answer(prompt, 5), 7, 8)
    assert {call[1] for call in engine.calls if call[0] == "prefill"} == {0}
    assert not any(outcome.failed for outcome in outcomes)


def test_conversations_in_turns_each_find_their_own_slot() -> None:
    slots = Slots(ScriptedEngine(slots=3, max_seq_len=64), Random(1))
    talks: list[tuple[int, ...]] = [(talk, *SHARED) for talk in (11, 12, 13)]
    number = 0
    for turn in range(3):
        for i in (2, 0, 1) if turn == 1 else range(3):
            number += 1
            slots.add(request(number, *talks[i], max_tokens=3))
            assert (reused(finish(slots))[number] > 0) == (turn > 0)
            talks[i] = (*talks[i], *answer(talks[i], 3), 9)


def test_a_prompt_that_is_kept_whole_is_computed_for_its_last_id() -> None:
    engine = ScriptedEngine(slots=1)
    slots = Slots(engine, Random(1))
    for number in (1, 2):
        slots.add(request(number, *SHARED, max_tokens=1))
    assert reused(finish(slots)) == {1: 0, 2: 5}
    assert engine.calls[-1] == ("prefill", 0, (6,), 5)


def test_answers_to_one_prompt_that_queue_find_it_in_the_slot_of_the_first() -> None:
    slots = Slots(ScriptedEngine(slots=2), Random(1))
    for number in (1, 2, 3, 4):
        slots.add(request(number, *SHARED, max_tokens=3))
    assert reused(finish(slots)) == {1: 0, 2: 0, 3: 5, 4: 5}


def test_of_a_prompt_left_halfway_what_was_computed_is_kept() -> None:
    slots = Slots(ScriptedEngine(slots=1, chunks=(2,)), Random(1))
    slots.add(request(1, *SHARED))
    run(slots, 2)
    assert slots.drop(1)
    slots.add(request(2, *SHARED, 7))
    assert reused(finish(slots)) == {2: 4}


def test_a_decode_is_no_longer_for_what_free_slots_keep() -> None:
    """Its window follows the highest position: a long prefix must not slow others' streams."""
    engine = ScriptedEngine(slots=2, max_seq_len=64)
    slots = Slots(engine, Random(1))
    slots.add(request(1, *range(40), max_tokens=1))
    finish(slots)
    slots.add(request(2, 50, max_tokens=3))
    finish(slots)
    assert [call[2] for call in engine.calls if call[0] == "decode"] == [(0, 1), (0, 2)]


def test_nothing_is_reused_of_a_slot_whose_logits_were_not_numbers() -> None:
    engine = ScriptedEngine(slots=1, chunks=(2,))
    slots = Slots(engine, Random(1))
    for number, steps_before in ((1, 0), (2, 1), (3, 4)):  # first chunk, second, a decode
        slots.add(request(number, *SHARED))
        run(slots, steps_before)
        engine.blank = {0}
        [outcome] = run(slots, 1)
        assert [failed for failed, _ in outcome.failed] == [number]
        engine.blank = set()
        slots.add(request(10 + number, *SHARED, max_tokens=1))
        assert reused(finish(slots)) == {10 + number: 0}
        slots.add(request(20 + number, 9, max_tokens=1))  # of another beginning
        finish(slots)


def test_a_broken_decode_leaves_nothing_to_trust_in_the_slots_that_it_was_not_for() -> None:
    engine = ScriptedEngine(slots=3, chunks=(2,))
    slots = Slots(engine, Random(1))
    slots.add(request(1, *SHARED, max_tokens=1))
    finish(slots)  # kept in slot 0
    slots.add(request(2, 9, max_tokens=9))
    slots.add(request(3, 7, 8, 9, 10, max_tokens=2))
    run(slots, 3)  # 2 streams, 3 is halfway
    step = slots.plan()
    assert isinstance(step, Decode)
    assert slots.fail(step, "broken").failed == ((2, "broken"),)
    engine.calls.clear()
    slots.add(request(4, *SHARED, max_tokens=1))
    assert reused(finish(slots)) == {3: 0, 4: 0}
    assert engine.calls[0] == ("prefill", 2, (7, 8), 0)  # from its beginning


def test_a_broken_prefill_takes_only_its_own_slot_along() -> None:
    engine = ScriptedEngine(slots=2)
    slots = Slots(engine, Random(1))
    slots.add(request(1, *SHARED, max_tokens=1))
    finish(slots)
    slots.add(request(2, 9))
    slots.admit()
    slots.fail(Prefill(1, 1), "broken")
    slots.add(request(3, *SHARED, 7, max_tokens=1))
    assert reused(finish(slots)) == {3: 6}


def test_switched_off_nothing_is_kept() -> None:
    slots = Slots(ScriptedEngine(slots=1), Random(1), keeps=False)
    for number in (1, 2):
        slots.add(request(number, *SHARED))
    assert reused(finish(slots)) == {1: 0, 2: 0}


@given(st.integers(0, 2**32), st.integers(1, 4))
@settings(max_examples=20)
def test_a_seed_draws_the_same_with_and_without_reuse(seed: int, turns: int) -> None:
    def drawn(keeps: bool) -> list[int]:
        slots = Slots(ScriptedEngine(slots=2), Random(1), keeps)
        hot = Sampling(temperature=50.0, seed=seed)
        for number in range(turns):
            asked = request(number, *SHARED)
            slots.add(replace(asked, generation=replace(asked.generation, sampling=hot)))
        return [token.id for outcome in finish(slots) for _, token in outcome.tokens]

    assert drawn(keeps=True) == drawn(keeps=False)
