"""Clocks of a process that are moved by hand: the wall clock jumps, the monotonic clock stands still.

For a process of its own: everything in it sees these clocks. They are put where Python code finds its clocks: in the
modules `time` and `datetime`, in every module that has imported a clock by name, and in the default arguments of
functions. Code that is not Python asks the system and sees the true time.
"""

from __future__ import annotations

import datetime as dt
import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Final, Self, cast

YEAR_S: Final = 365.25 * 24 * 3_600
"""A year, in seconds."""


class MovedClock:
    """A wall clock that jumps and a monotonic clock that can stand still, both moved by hand.

    Attributes:
        ahead_s: How far the wall clock is ahead of the true one, in seconds.
        reads: How often the clocks were asked.
    """

    def __init__(self, wall_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = time.monotonic_ns):
        """Begin with the true time.

        Args:
            wall_ns: The true wall clock, in nanoseconds.
            steady_ns: The true monotonic clock, in nanoseconds.
        """
        self.ahead_s = 0.0
        self.reads = 0
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._behind_ns = 0
        self._stands_at: int | None = None

    def jump(self, seconds: float) -> None:
        """Move the wall clock, as an operator or a time server does.

        Args:
            seconds: How far, forward or back.
        """
        self.ahead_s += seconds

    def stand_still(self) -> None:
        """Stop the monotonic clock, as a machine does that is suspended."""
        if self._stands_at is None:
            self._stands_at = self.monotonic_ns()

    def go_on(self) -> None:
        """Let the monotonic clock go on from where it stands."""
        if self._stands_at is not None:
            self._behind_ns = self._steady_ns() - self._stands_at
            self._stands_at = None

    def time_ns(self) -> int:
        """As `time.time_ns`."""
        self.reads += 1
        return self._wall_ns() + round(self.ahead_s * 1_000_000_000)

    def time(self) -> float:
        """As `time.time`."""
        return self.time_ns() / 1_000_000_000

    def monotonic_ns(self) -> int:
        """As `time.monotonic_ns`; it never goes back."""
        self.reads += 1
        return self._steady_ns() - self._behind_ns if self._stands_at is None else self._stands_at

    def monotonic(self) -> float:
        """As `time.monotonic`."""
        return self.monotonic_ns() / 1_000_000_000


class _AnyDatetime(type):
    """Makes every datetime an instance of the moved class, as it was made by the true one or not."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _DATETIME)


_DATETIME: Final = dt.datetime


def _moved_datetime(clock: MovedClock) -> type[dt.datetime]:
    class MovedDatetime(dt.datetime, metaclass=_AnyDatetime):
        """A datetime whose present is that of the moved clock."""

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Self:
            return cls.fromtimestamp(clock.time(), tz)

        @classmethod
        def utcnow(cls) -> Self:
            return cls.fromtimestamp(clock.time(), dt.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Self:
            return cls.fromtimestamp(clock.time())

    return MovedDatetime


@contextmanager
def injected(clock: MovedClock) -> Iterator[MovedClock]:
    """Give the whole process the clocks of `clock`.

    Args:
        clock: The clock.

    Yields:
        The clock; the true ones are back at the end.
    """
    moved: dict[object, object] = {
        time.time: clock.time,
        time.time_ns: clock.time_ns,
        time.monotonic: clock.monotonic,
        time.monotonic_ns: clock.monotonic_ns,
        dt.datetime: _moved_datetime(clock),
    }
    undo = _replace(moved)
    try:
        yield clock
    finally:
        for step in reversed(undo):
            step()


def _replace(moved: Mapping[object, object]) -> list[Callable[[], None]]:
    """Replace objects in modules and default arguments; how to undo it."""
    by_id = {id(old): new for old, new in moved.items()}
    own = id(vars(sys.modules[__name__]))
    undo: list[Callable[[], None]] = []
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict) and id(names) != own:
            _replace_in(names, by_id, undo)
    for entry in gc.get_objects():
        if isinstance(entry, FunctionType) and entry.__module__ != __name__:
            _replace_defaults(entry, by_id, undo)
    return undo


def _replace_in(names: dict[str, object], by_id: Mapping[int, object], undo: list[Callable[[], None]]) -> None:
    for name, value in list(names.items()):
        if id(value) in by_id:
            names[name] = by_id[id(value)]
            undo.append(lambda names=names, name=name, value=value: names.__setitem__(name, value))  # type: ignore[misc]


def _replace_defaults(function: FunctionType, by_id: Mapping[int, object], undo: list[Callable[[], None]]) -> None:
    defaults = function.__defaults__
    if defaults and any(id(value) in by_id for value in defaults):
        function.__defaults__ = tuple(by_id.get(id(value), value) for value in defaults)
        undo.append(lambda: setattr(function, "__defaults__", defaults))
    if function.__kwdefaults__:
        _replace_in(cast("dict[str, object]", function.__kwdefaults__), by_id, undo)
