"""Coroutines that are cancelled at a chosen suspension, as a task is whose waiter gives up at just that moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

import msgspec

from statebook.lanes.pool import WorkPool

T = TypeVar("T")

PARKED_S: Final = 30.0
"""How long a call is held in its place at most, in seconds."""


class Driven(msgspec.Struct, Generic[T], frozen=True):
    """What became of a coroutine.

    Attributes:
        suspensions: How often it was suspended.
        cancelled: Whether it ended by the cancellation.
        answer: What it returned, or None.
        error: What it raised otherwise, or None.
        slow: Whether it ended only after what it waited for did.
    """

    suspensions: int
    cancelled: bool
    answer: T | None = None
    error: BaseException | None = None
    slow: bool = False


class _Stepper(Generic[T]):
    """Awaits a coroutine, and asks the task that runs it to be cancelled at one of its suspensions."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], number: int, at_it: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._number = number
        self._at_it = at_it
        self.suspensions = 0

    def __await__(self) -> Generator[Any, None, T]:
        error: BaseException | None = None
        while True:
            try:
                waits_for = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                answer: T = end.value
                return answer
            error = None
            self.suspensions += 1
            if self.suspensions == self._number:
                self._at_it()
                task = asyncio.current_task()
                if task is not None:
                    task.cancel()
            try:
                yield waits_for
            except BaseException as raised:  # noqa: BLE001 - given to the coroutine, whose it is
                error = raised


async def cancel_at(
    coroutine: Coroutine[Any, Any, T],
    number: int,
    *,
    at_it: Callable[[], None] = lambda: None,
    release: Callable[[], None] = lambda: None,
    prompt_s: float = 1.0,
    timeout_s: float = PARKED_S,
) -> Driven[T]:
    """Run a coroutine in a task of its own that is cancelled at its n-th suspension.

    Args:
        coroutine: The coroutine; not started yet.
        number: At which suspension, from 1; 0 for a task that is cancelled before its first step.
        at_it: Called at that suspension, before the cancellation.
        release: Called when the task has ended, or has not within `prompt_s`: lets go of what the call waits for.
        prompt_s: How long the task may take to end by itself, in seconds.
        timeout_s: How long it may take after the release, in seconds.

    Returns:
        What became of it.

    Raises:
        TimeoutError: It did not end.
    """
    stepper = _Stepper(coroutine, number, at_it)

    async def run() -> T:
        return await stepper

    task = asyncio.create_task(run())
    if number == 0:
        coroutine.close()
        task.cancel()
    await asyncio.wait({task}, timeout=prompt_s)
    slow = not task.done()
    release()
    await asyncio.wait({task}, timeout=timeout_s)
    if not task.done():
        task.cancel()
        raise TimeoutError(f"a coroutine that was cancelled at suspension {number} did not end in {timeout_s:g} s")
    if task.cancelled():
        return Driven(stepper.suspensions, cancelled=True, slow=slow)
    error = task.exception()
    if error is not None:
        return Driven(stepper.suspensions, cancelled=False, error=error, slow=slow)
    return Driven(stepper.suspensions, cancelled=False, answer=task.result(), slow=slow)


class ParkingPool(WorkPool):
    """A pool of one thread that holds the next call before or behind its work, until it is let go.

    Attributes:
        entered: Set when a call is held.
    """

    def __init__(self) -> None:
        """Make a pool that holds nothing yet."""
        super().__init__("parking", workers_max=1)
        self.entered = threading.Event()
        self._go = threading.Event()
        self._place: str | None = None

    def park(self, place: str) -> None:
        """Hold the next call that is handed in.

        Args:
            place: `before` or `behind` its work.
        """
        self.entered.clear()
        self._go.clear()
        self._place = place

    def let_go(self) -> None:
        """Let the held call go on; hold none that has not come yet."""
        self._place = None
        self._go.set()

    def submit(self, call: Callable[[], T], *, wait_s: float = 0.0) -> Future[T]:
        """As `WorkPool.submit`."""
        place, self._place = self._place, None
        if place is None:
            return super().submit(call, wait_s=wait_s)

        def held() -> T:
            if place == "before":
                self._hold()
            try:
                return call()
            finally:
                if place == "behind":
                    self._hold()

        return super().submit(held, wait_s=wait_s)

    def _hold(self) -> None:
        self.entered.set()
        self._go.wait(PARKED_S)
