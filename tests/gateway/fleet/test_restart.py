import pytest

from gateway.fleet.restart import CRASHES_MAX, ended, judge


def test_the_wait_doubles_up_to_the_longest_and_a_crash_loop_is_shown() -> None:
    waits, deaths = [], 0
    for _ in range(8):
        verdict = judge(1, deaths, 0.0, 1.0, 60.0)
        deaths = verdict.deaths
        waits.append(verdict.wait_s)
        assert verdict.reason.startswith("crash loop") == (deaths >= CRASHES_MAX)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_long_ready_life_ends_the_row() -> None:
    assert judge(-9, 7, 61.0, 1.0, 60.0).wait_s == 1.0


def test_exit_78_waits_until_somebody_asks() -> None:
    assert judge(78, 0, 0.0, 1.0, 60.0).wait_s is None


@pytest.mark.parametrize(
    ("status", "oom", "words"),
    [
        (0, False, "exit 0"),
        (1, False, "exit 1"),
        (78, False, "exit 78 (its snapshot or config is unusable)"),
        (127, False, "exit 127 (its program was not found)"),
        (137, False, "exit 137 (its program ended by signal 9 (SIGKILL))"),
        (255, False, "exit 255"),
        (-9, False, "signal 9 (SIGKILL)"),
        (-9, True, "signal 9 (SIGKILL), when the kernel was short of memory"),
        (-11, False, "signal 11 (SIGSEGV)"),
        (-63, False, "signal 63"),
        (None, False, "an unknown exit"),
    ],
)
def test_an_end_in_words_tells_exit_signal_and_want_of_memory_apart(
    status: int | None, oom: bool, words: str
) -> None:
    assert ended(status, oom) == words
