"""Which named stores this process has: the one place of this backend with state that outlives a store.

`memory://name` is one store for all who open it within the process, one after the other too, so its data must be held
by something that no caller owns. That is `SHARED`, and nothing else is.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Final
from weakref import WeakSet

from statebook_backends.memory.store import MemoryData


class Registry:
    """Named stores by name and namespace. A store stays while it holds anything or somebody has it open."""

    def __init__(self) -> None:
        """Make an empty registry."""
        self._lock = Lock()
        self._named: dict[tuple[str, str], MemoryData] = {}
        self._handles: dict[tuple[str, str], int] = {}
        self._all: WeakSet[MemoryData] = WeakSet()
        self._held: list[MemoryData] = []

    def enter(self, name: str | None, namespace: str) -> MemoryData:
        """Open a store; `leave` it as often.

        Args:
            name: The name, or None for a private store.
            namespace: The namespace.

        Returns:
            The data: the same for the same name and namespace.
        """
        with self._lock:
            if name is None:
                data = MemoryData()
            else:
                data = self._named.setdefault((name, namespace), MemoryData())
                self._handles[name, namespace] = self._handles.get((name, namespace), 0) + 1
            self._all.add(data)
            return data

    def leave(self, name: str | None, namespace: str) -> None:
        """Say that a store that was entered is closed. What a named store holds stays."""
        if name is None:
            return
        with self._lock:
            self._handles[name, namespace] -= 1
            self._drop_unused(name, namespace)

    def forget(self, name: str, namespace: str) -> None:
        """Empty a named store, for those who have it open too."""
        with self._lock:
            data = self._named.get((name, namespace))
            if data is not None:
                with data.lock:
                    data.wipe()
                self._drop_unused(name, namespace)

    def _drop_unused(self, name: str, namespace: str) -> None:
        if self._handles.get((name, namespace), 0) == 0 and self._named[name, namespace].empty:
            del self._named[name, namespace]
            self._handles.pop((name, namespace), None)

    def before_fork(self) -> None:
        """Take every lock, so that a child inherits no half-made change and no lock of another thread."""
        self._lock.acquire()
        self._held = list(self._all)
        for data in self._held:
            data.lock.acquire()

    def after_fork(self) -> None:
        """Give every lock back, in the parent and in the child: the child's stores are copies of its own."""
        for data in self._held:
            data.lock.release()
        self._held = []
        self._lock.release()


SHARED: Final = Registry()
"""The named stores of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=SHARED.before_fork, after_in_parent=SHARED.after_fork, after_in_child=SHARED.after_fork)
