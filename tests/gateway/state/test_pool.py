"""The pool of idle connections, against a plain list."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.state.pool import IDLE_MAX, Pool, Pooled

SLOTS = st.integers(0, 2)
IDLE_NS = 100


class PoolAgainstAList(RuleBasedStateMachine):
    """The model: (slot, connection, since) in order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool()
        self.pool.idle_ns = IDLE_NS
        self.now = 0
        self.made: list[Pooled] = []
        self.idle: list[tuple[int, Pooled, int]] = []

    @rule(slot=SLOTS)
    def a_connection_comes_back(self, slot: int) -> None:
        self.made.append(Pooled())
        assert self.pool.checkin(slot, self.made[-1], self.now)
        self.idle.append((slot, self.made[-1], self.now))

    @rule(slot=SLOTS)
    def the_last_used_one_that_is_young_is_taken(self, slot: int) -> None:
        mine = [entry for entry in self.idle if entry[0] == slot]
        young = mine and self.now - mine[-1][2] < IDLE_NS
        taken = self.pool.checkout(slot, self.now)
        assert taken == (mine[-1][1] if young else None)
        if young:
            self.idle.remove(mine[-1])

    @precondition(lambda self: self.made)
    @rule(slot=SLOTS, number=st.integers(0, 20))
    def a_connection_ends(self, slot: int, number: int) -> None:
        ending = self.made[number % len(self.made)]
        self.pool.drop(slot, ending)
        self.idle = [entry for entry in self.idle if entry[:2] != (slot, ending)]

    @rule(step=st.integers(1, 60))
    def time_passes_and_the_old_ones_are_given_up(self, step: int) -> None:
        self.now += step
        due = {entry[1] for entry in self.idle if self.now - entry[2] >= IDLE_NS}
        assert set(self.pool.expired(self.now)) == due
        self.idle = [entry for entry in self.idle if entry[1] not in due]

    @rule(kept=st.sets(SLOTS))
    def a_table_without_a_slot_gives_up_its_connections(self, kept: set[int]) -> None:
        gone = {entry[1] for entry in self.idle if entry[0] not in kept}
        assert set(self.pool.retain(kept)) == gone
        self.idle = [entry for entry in self.idle if entry[0] in kept]

    @invariant()
    def the_size_is_what_is_idle(self) -> None:
        assert self.pool.size == len(self.idle)


TestPool = PoolAgainstAList.TestCase
TestPool.settings = settings(max_examples=30, deadline=None)


def test_a_pool_does_not_grow_without_bound() -> None:
    pool = Pool()
    kept = [pool.checkin(1, Pooled(), 0) for _ in range(IDLE_MAX + 1)]
    assert kept == [True] * IDLE_MAX + [False]
