"""Start calls together in threads, and wait for all of them with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class HungError(Exception):
    """A call did not come back in time; its thread is left behind as a daemon."""


class _Runner(threading.Thread, Generic[T]):
    def __init__(self, call: Callable[[], T], barrier: threading.Barrier | None) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._barrier = barrier
        self.result: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            if self._barrier is not None:
                self._barrier.wait()
            self.result.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self.error = error


def run_together(calls: Sequence[Callable[[], T]], *, timeout_s: float) -> list[T]:
    """Run calls in one thread each, started together.

    Args:
        calls: The calls.
        timeout_s: How long they may take together, in seconds.

    Returns:
        Their results, in order.

    Raises:
        HungError: One of them did not come back in time.
        BaseException: The first error that one of them raised.
    """
    barrier = threading.Barrier(len(calls)) if len(calls) > 1 else None
    runners = [_Runner(call, barrier) for call in calls]
    for runner in runners:
        runner.start()
    deadline = time.monotonic() + timeout_s
    for runner in runners:
        runner.join(max(0.0, deadline - time.monotonic()))
    for runner in runners:
        if runner.error is not None:
            raise runner.error
    hung = sum(runner.is_alive() for runner in runners)
    if hung:
        raise HungError(f"{hung} of {len(runners)} calls did not come back within {timeout_s:g} s")
    return [runner.result[0] for runner in runners]
