"""A coroutine is cancelled at the suspension that was chosen, as its task would be; a parked call stays where it is."""

from __future__ import annotations

import asyncio
import threading

import pytest

from statebook_conformance.faults.awaits import ParkingPool, cancel_at


async def three(log: list[int]) -> str:
    for number in range(1, 4):
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            log.append(-number)
            raise
        log.append(number)
    return "done"


@pytest.mark.parametrize(
    ("number", "log", "suspensions"),
    [(0, [], 0), (1, [-1], 1), (2, [1, -2], 2), (3, [1, 2, -3], 3), (4, [1, 2, 3], 3)],
)
def test_the_chosen_await_is_the_one_that_is_cancelled(number: int, log: list[int], suspensions: int) -> None:
    seen: list[int] = []
    moments: list[int] = []
    driven = asyncio.run(cancel_at(three(seen), number, at_it=lambda: moments.append(len(seen))))
    assert seen == log
    assert (driven.suspensions, driven.cancelled) == (suspensions, number < 4)
    assert driven.answer == (None if driven.cancelled else "done")
    assert moments == ([number - 1] if 0 < number < 4 else [])


def test_the_future_that_is_awaited_is_cancelled_as_by_a_task() -> None:
    async def scene() -> bool:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def wait() -> None:
            await future

        assert (await cancel_at(wait(), 1)).cancelled
        return future.cancelled()

    assert asyncio.run(scene())


def test_a_coroutine_that_answers_all_the_same_or_fails_is_told_so() -> None:
    async def stubborn() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return 1
        return 2

    async def bad() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("in its cleaning up")

    answered = asyncio.run(cancel_at(stubborn(), 1))
    assert (answered.cancelled, answered.answer) == (False, 1)
    failed = asyncio.run(cancel_at(bad(), 1))
    assert isinstance(failed.error, ValueError)


def test_a_coroutine_that_waits_for_its_work_is_let_go_and_said_to_be_slow() -> None:
    async def scene() -> bool:
        done = asyncio.Event()

        async def careful() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await done.wait()
                raise

        driven = await cancel_at(careful(), 1, release=done.set, prompt_s=0.01)
        assert driven.cancelled
        return driven.slow

    assert asyncio.run(scene())


def test_one_that_does_not_end_is_an_error() -> None:
    async def scene() -> None:
        over = asyncio.Event()

        async def deaf() -> None:
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    continue

        with pytest.raises(TimeoutError, match="cancelled at suspension 1"):
            await cancel_at(deaf(), 1, prompt_s=0.01, timeout_s=0.01)
        over.set()

    asyncio.run(scene())


@pytest.mark.parametrize("place", ["before", "behind"])
def test_a_call_is_held_in_its_place_and_only_the_next_one(place: str) -> None:
    ran = threading.Event()
    with ParkingPool() as pool:
        pool.park(place)
        held = pool.submit(ran.set)
        other = pool.submit(lambda: "other")
        assert pool.entered.wait(10)
        assert ran.is_set() is (place == "behind")
        assert not held.done()
        assert not other.done()
        pool.let_go()
        held.result(10)
        assert other.result(10) == "other"
    assert ran.is_set()


def test_a_park_that_was_let_go_holds_nothing() -> None:
    with ParkingPool() as pool:
        pool.park("before")
        pool.let_go()
        assert pool.submit(lambda: 1).result(10) == 1
        assert not pool.entered.is_set()
