"""Which endpoints this process is connected to: the one place of this backend with state that outlives a store.

A client takes a quarter of a second to make and a probe several requests, so stores of one endpoint share both. That is
`SHARED`, and nothing else is. It is bounded: of engines that no store uses the last few are kept.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final, Generic, TypeVar

from statebook_backends.s3.writers import ObjectEngine

T = TypeVar("T")

_IDLE_MAX: Final = 2
_REPORTS_MAX: Final = 64


class _Shared:
    """An engine, or a place for one, and how many stores use it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.engine: ObjectEngine | None = None


class _Process:
    """What belongs to one process; a forked child starts with an empty one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = Lock()
        self.engines: OrderedDict[Hashable, _Shared] = OrderedDict()


class Engines:
    """Engines by what they were made from, counted."""

    def __init__(self, idle_max: int = _IDLE_MAX) -> None:
        """Make an empty registry.

        Args:
            idle_max: How many engines without a user are kept.
        """
        self._idle_max = idle_max
        self._process = _Process()

    def enter(self, name: Hashable, make: Callable[[], ObjectEngine]) -> ObjectEngine:
        """Use an engine; `leave` it as often, in the same process.

        Args:
            name: What it is made from.
            make: Makes it where there is none.

        Returns:
            The engine.
        """
        process = self._current()
        with process.lock:
            shared = process.engines.setdefault(name, _Shared())
            process.engines.move_to_end(name)
            shared.users += 1
        try:
            with shared.lock:
                if shared.engine is None:
                    shared.engine = make()
                return shared.engine
        except BaseException:
            self.leave(name)
            raise

    def leave(self, name: Hashable) -> None:
        """Say that an engine is not used any more; harmless for one of a parent process."""
        process = self._current()
        closing: list[ObjectEngine] = []
        with process.lock:
            shared = process.engines.get(name)
            if shared is None:
                return
            shared.users -= 1
            idle = [key for key, found in process.engines.items() if found.users <= 0]
            for key in idle[: max(len(idle) - self._idle_max, 0)]:
                engine = process.engines.pop(key).engine
                if engine is not None:
                    closing.append(engine)
        for engine in closing:
            engine.close()

    def _current(self) -> _Process:
        """This process's part: locks and connections of a parent process are never touched."""
        if self._process.pid != os.getpid():
            self._process = _Process()
        return self._process


class _Slot(Generic[T]):
    """A value, or a place for one."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.found: tuple[T] | None = None


class Once(Generic[T]):
    """Values that are worked out once a name, bounded; those who come meanwhile wait. Failures are not kept."""

    def __init__(self, names_max: int = _REPORTS_MAX) -> None:
        """Make an empty one.

        Args:
            names_max: How many values are kept.
        """
        self._names_max = names_max
        self._pid = os.getpid()
        self._lock = Lock()
        self._slots: OrderedDict[Hashable, _Slot[T]] = OrderedDict()

    def get(self, name: Hashable, work: Callable[[], T]) -> T:
        """The value of a name; worked out where there is none."""
        if self._pid != os.getpid():
            # A parent's thread may have held a lock when the child was made: the values stay, the locks do not.
            known = {key: slot.found for key, slot in tuple(self._slots.items())}
            self._pid, self._lock, self._slots = os.getpid(), Lock(), OrderedDict()
            for key, found in known.items():
                self._slots[key] = _Slot()
                self._slots[key].found = found
        with self._lock:
            slot = self._slots.setdefault(name, _Slot())
            self._slots.move_to_end(name)
            while len(self._slots) > self._names_max:
                self._slots.popitem(last=False)
        with slot.lock:
            if slot.found is None:
                slot.found = (work(),)
            return slot.found[0]
