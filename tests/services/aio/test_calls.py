"""How answers of other threads come into an event loop: all of them, to those who still wait, with one wake-up."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

from statebook import BackendUnavailable, OutcomeUnknown
from statebook.aio.calls import outcome_of

MANY = 64


def running() -> Future[int]:
    future: Future[int] = Future()
    future.set_running_or_notify_cancel()
    return future


def in_a_thread(call: Any) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_answers_that_come_together_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[object] = []

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def counted(call: Any, *args: Any, **named: Any) -> Any:
            woken.append(call)
            return wake(call, *args, **named)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        futures = [running() for _ in range(MANY)]
        waiters = [asyncio.ensure_future(outcome_of(future, None, OutcomeUnknown)) for future in futures]
        await asyncio.sleep(0)
        # The loop does not run while this joins: all answers are there before it looks.
        in_a_thread(lambda: [future.set_result(number) for number, future in enumerate(futures)])
        return await asyncio.gather(*waiters)

    assert asyncio.run(main()) == list(range(MANY))
    assert len(woken) == 1


def test_an_error_goes_to_its_waiter_and_the_others_get_their_answers() -> None:
    async def main() -> list[Any]:
        futures = [running() for _ in range(3)]
        waiters = [asyncio.ensure_future(outcome_of(future, None, OutcomeUnknown)) for future in futures]
        await asyncio.sleep(0)
        waiters[0].cancel()

        def answer() -> None:
            futures[0].set_result(0)
            futures[1].set_exception(BackendUnavailable("gone"))
            futures[2].set_result(2)

        in_a_thread(answer)
        return await asyncio.gather(*waiters, return_exceptions=True)

    cancelled, failed, answered = asyncio.run(main())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(failed, BackendUnavailable)
    assert answered == 2


def test_an_answer_that_is_there_already_is_taken() -> None:
    async def main() -> int:
        future = running()
        future.set_result(7)
        return await outcome_of(future, 5.0, OutcomeUnknown)

    assert asyncio.run(main()) == 7


def test_each_loop_has_its_own_answers_and_one_that_was_closed_harms_nobody() -> None:
    late = running()

    async def gives_up() -> None:
        with pytest.raises(BackendUnavailable, match="late"):
            await outcome_of(late, 0.01, lambda: BackendUnavailable("late"))

    async def waits(future: Future[int]) -> int:
        return await outcome_of(future, None, OutcomeUnknown)

    asyncio.run(gives_up())
    in_a_thread(lambda: late.set_result(1))

    answers: list[int] = []

    def loop_of(number: int) -> None:
        future = running()
        threading.Timer(0.05, future.set_result, (number,)).start()
        answers.append(asyncio.run(waits(future)))

    threads = [threading.Thread(target=loop_of, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [0, 1, 2, 3]


def test_a_loop_that_is_over_is_not_kept() -> None:
    async def waits() -> weakref.ref[asyncio.AbstractEventLoop]:
        future = running()
        threading.Timer(0.01, future.set_result, (1,)).start()
        await outcome_of(future, None, OutcomeUnknown)
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(waits())
    gc.collect()
    assert loop() is None


def test_a_loop_that_ends_before_it_has_its_answers_is_not_kept() -> None:
    async def gives_up(future: Future[int]) -> weakref.ref[asyncio.AbstractEventLoop]:
        waiter = asyncio.ensure_future(outcome_of(future, None, OutcomeUnknown))
        await asyncio.sleep(0)
        waiter.cancel()
        return weakref.ref(asyncio.get_running_loop())

    def answered_late() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop, future = asyncio.new_event_loop(), running()
        kept = loop.run_until_complete(gives_up(future))
        future.set_result(1)  # it has stopped, and is not closed yet
        loop.close()
        return kept

    loops = [answered_late() for _ in range(20)]
    gc.collect()
    assert [kept for kept in loops if kept() is not None] == []


class Chained(Future[int]):
    """An answer behind which the next one comes as soon as it is taken."""

    def __init__(self, following: Future[int] | None) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self._following = following

    def result(self, timeout: float | None = None) -> int:
        if self._following is not None:
            self._following.set_result(1)
        return super().result(timeout)


def test_a_stream_of_answers_leaves_the_loop_to_others() -> None:
    async def main() -> tuple[int, int]:
        futures: list[Future[int]] = []
        for _ in range(100):
            futures.append(Chained(futures[-1] if futures else None))
        waiters = [asyncio.ensure_future(outcome_of(future, None, OutcomeUnknown)) for future in futures]
        await asyncio.sleep(0)
        futures[-1].set_result(1)
        beats = 0
        while not all(waiter.done() for waiter in waiters):
            beats += 1
            await asyncio.sleep(0)
        return sum(await asyncio.gather(*waiters)), beats

    got, beats = asyncio.run(main())
    assert got == 100
    assert beats >= 100  # each answer came while the one before it was delivered, and waited for its own turn
