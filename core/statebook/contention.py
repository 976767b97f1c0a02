"""Who gives way where calls race for one record, and how long a call that loses goes on.

A conditional write that loses its race says nothing but that somebody else was first, so it is tried again: for a time,
not for a number of attempts, because a number is used up at once where the others are quick. Who waits is decided by
what the call is for. An append waits for nobody: its competitors are upkeep (heartbeats, barriers, trims), and of two
appends one is refused. Upkeep gives way: the longer it loses the longer it pauses, and after it has won it leaves the
record alone for a while, so that a loop of heartbeats leaves room for a writer however fast it spins (CLAIM-8).
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Final

TRIES_MIN: Final = 16
"""How often a call tries to commit at least, however slow the storage is."""

PATIENCE_S: Final = 10.0
"""How long a call tries to commit before it gives up as `BackendUnavailable`, in seconds."""

FREE_TRIES: Final = 4
"""How many attempts may be lost before there are pauses: behind one, what the lost attempt has met is old."""

_PAUSE_S_MAX: Final = 0.05
_REST_FACTOR: Final = 3.0
_REST_S_MAX: Final = 0.05
_REST_WAIT_S_MAX: Final = 1.0
_RECORDS_MAX: Final = 1_024


def jittered_pause(attempt: int) -> None:
    """Wait a little and at random, longer with each attempt, at most 50 ms; the first attempts do not wait.

    Args:
        attempt: How many attempts have been lost, from 0.
    """
    if attempt >= FREE_TRIES:
        time.sleep(random.uniform(0, min(_PAUSE_S_MAX, 0.001 * 2 ** min(attempt - FREE_TRIES, 10))))


class Contention:
    """Bounds the attempts of calls by time. Safe from many threads; keeps nothing of a call."""

    def __init__(
        self,
        *,
        patience_s: float = PATIENCE_S,
        pause: Callable[[int], None] = jittered_pause,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Decide how patient calls are.

        Args:
            patience_s: How long a call goes on from its first lost attempt, in seconds, at least 0.
            pause: Waits between lost attempts; takes how many have been lost, from 0.
            clock: A monotonic clock, in seconds.

        Raises:
            ValueError: `patience_s` is negative.
        """
        if patience_s < 0:
            raise ValueError(f"patience_s cannot be negative, as {patience_s} is")
        self._patience_s = patience_s
        self._pause = pause
        self._clock = clock

    def attempts(self, *, eager: bool = False) -> Iterator[int]:
        """Yield before each attempt how many have been lost, and pause in between; end when patience does.

        Guarantees that a call makes at least `TRIES_MIN` attempts. Whatever was read before a pause is old after it:
        an attempt has to begin with a look, or with a remembered record whose mismatch brings the newer one.

        Args:
            eager: Whether the call goes on at once where it has lost, as an append does.

        Yields:
            0, 1, 2 and so on.
        """
        yield 0
        end = self._clock() + self._patience_s
        for lost in itertools.count(1):
            if lost >= TRIES_MIN and self._clock() >= end:
                return
            if not eager:
                self._pause(lost - 1)
            yield lost


class Rests:
    """After upkeep has written a record, the upkeep of this process leaves it alone for thrice as long as that took.

    Guarantees CLAIM-8 where heartbeats or barriers are made in a loop: two thirds of the time are left to a writer.
    One that is made now and then never waits. Bounded; safe from many threads, and across a fork.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Begin with no rests.

        Args:
            clock: A monotonic clock, in seconds.
            sleep: Waits, in seconds.
        """
        self._clock = clock
        self._sleep = sleep
        self._rests: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()
        self._pid = os.getpid()

    def wait(self, name: str) -> float:
        """Wait until upkeep may write a record again; of several that wait one may go at a time.

        Args:
            name: The record's name.

        Returns:
            When it may go, on the clock: what `wrote` is to be given.
        """
        if self._pid != os.getpid():  # the lock is as the fork has met it
            self._rests, self._lock, self._pid = OrderedDict(), Lock(), os.getpid()
        begun = now = self._clock()
        while now - begun < _REST_WAIT_S_MAX:
            with self._lock:
                until, rest = self._rests.get(name, (now, 0.0))
                if now >= until:
                    if rest:
                        self._rests[name] = (now + rest, rest)
                    return now
            self._sleep(until - now)
            now = self._clock()
        return now

    def wrote(self, name: str, since: float) -> None:
        """Say that upkeep has written a record.

        Args:
            name: The record's name.
            since: When it began, on the clock.
        """
        now = self._clock()
        rest = min(_REST_S_MAX, _REST_FACTOR * max(0.0, now - since))
        with self._lock:
            self._rests[name] = (now + rest, rest)
            self._rests.move_to_end(name)
            if len(self._rests) > _RECORDS_MAX:
                self._rests.popitem(last=False)
