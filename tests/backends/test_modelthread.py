"""Jobs on the one thread that owns a graph."""

import asyncio
import threading

import pytest

from backends.modelthread import ModelThread, attempt, sentence


async def test_jobs_run_one_after_another_on_a_thread_of_their_own() -> None:
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()
    seen: list[int] = []
    answers = [thread.call(lambda i=i: seen.append(i) or threading.get_ident()) for i in range(3)]  # type: ignore[misc,func-returns-value]
    idents = {await answer for answer in answers}
    assert seen == [0, 1, 2]
    assert idents == {thread.ident}
    thread.end()
    assert not thread.is_alive()


async def test_what_a_job_raises_comes_out_of_its_future_and_the_next_one_runs() -> None:
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()

    def fails() -> None:
        raise RuntimeError("no kernel")

    failed, fine = thread.call(fails), thread.call(lambda: 7)
    with pytest.raises(RuntimeError, match="no kernel"):
        await failed
    assert await fine == 7
    thread.end()


async def test_an_answer_that_nobody_waits_for_any_more_is_dropped() -> None:
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()
    held = threading.Event()
    left = thread.call(held.wait)
    left.cancel()
    held.set()
    assert await thread.call(lambda: 7) == 7
    thread.end()


def test_an_attempt_is_a_value_or_the_exception() -> None:
    assert attempt(lambda: 7) == 7
    failure = attempt(lambda: 1 // 0)
    assert isinstance(failure, ZeroDivisionError)
    assert sentence(failure) == "ZeroDivisionError: integer division or modulo by zero"
