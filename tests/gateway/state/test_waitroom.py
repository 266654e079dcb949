"""The waitroom: in order, by version, nobody lost."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.state.waitroom import Waitroom

KEYS = [("m", "1"), ("m", "2"), ("n", "1")]


class Patient:
    """A waiter that goes when its version has room."""

    def __init__(self, room: dict[tuple[str, str], int], gone: list[int], hall: Waitroom) -> None:
        self.room, self.gone, self.hall = room, gone, hall
        self.number, self.key = 0, KEYS[0]

    def woken(self) -> bool:
        if not self.room[self.key]:
            return False
        self.room[self.key] -= 1
        self.hall.leave(self.key, self)
        self.gone.append(self.number)
        return True

    def reviewed(self) -> None: ...


@given(st.lists(st.sampled_from(KEYS), max_size=20), st.lists(st.sampled_from(KEYS), max_size=20))
def test_those_who_wait_go_in_the_order_they_came_by_version(
    arrivals: list[tuple[str, str]], freed: list[tuple[str, str]]
) -> None:
    hall = Waitroom()
    room = dict.fromkeys(KEYS, 0)
    gone: list[int] = []
    for number, key in enumerate(arrivals):
        waiter = Patient(room, gone, hall)
        waiter.number, waiter.key = number, key
        hall.enter(key, waiter)
    for key in freed:
        room[key] += 1
        hall.wake(key)
    expected = {
        key: [n for n, came in enumerate(arrivals) if came == key][: freed.count(key)]
        for key in KEYS
    }
    assert {key: [n for n in gone if arrivals[n] == key] for key in KEYS} == expected
    assert hall.size == len(arrivals) - len(gone) == len(hall.everyone())


def test_wake_all_lets_every_version_move() -> None:
    hall = Waitroom()
    gone: list[int] = []
    room = dict.fromkeys(KEYS, 1)
    for number, key in enumerate(KEYS):
        waiter = Patient(room, gone, hall)
        waiter.number, waiter.key = number, key
        hall.enter(key, waiter)
    hall.wake_all()
    assert sorted(gone) == [0, 1, 2]
    assert hall.first(KEYS[0]) is None
