"""What a call costs, counted and never timed: Python calls, memory, system calls, round trips, bytes.

Counts are the same on a fast and a slow machine. Round trips and bytes are those of Python's sockets; system calls and
bytes of files are those that Linux keeps of this process, and are 0 elsewhere.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import ClassVar, Final, Self, TypeVar
from weakref import WeakSet

import msgspec

T = TypeVar("T")

_IO: Final = "/proc/self/io"
_SENDS: Final = ("send", "sendall", "sendmsg")
_RECEIVES: Final = ("recv", "recv_into", "recvmsg")
_SYNCS: Final = (os.fsync, os.fdatasync) if hasattr(os, "fdatasync") else (os.fsync,)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What was done in a call or some calls.

    Attributes:
        calls: Calls of Python functions and of C functions from Python, in this thread and in those that were started
            under the meter.
        memory: How many bytes more than before were allocated at the worst moment.
        reads: System calls that read files.
        writes: System calls that wrote files.
        bytes_read: What they read.
        bytes_written: What they wrote.
        round_trips: How often a connection waited for an answer to something that it had sent.
        bytes_sent: What went over connections.
        bytes_received: What came over them.
        connections: How many connections sent something for the first time.
        syncs: Calls of `os.fsync` and `os.fdatasync`; not those of libraries in C.
    """

    calls: int = 0
    memory: int = 0
    reads: int = 0
    writes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    round_trips: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    connections: int = 0
    syncs: int = 0

    @property
    def bytes_moved(self) -> int:
        """All bytes that went to or came from files and connections."""
        return self.bytes_read + self.bytes_written + self.bytes_sent + self.bytes_received

    def times(self, count: int) -> Work:
        """As much, so many times; of memory as much once."""
        return sum((self for _ in range(count - 1)), self)

    def __add__(self, other: Work) -> Work:
        """Both, one after the other; of memory the larger one."""
        return Work(
            **{
                name: max(getattr(self, name), getattr(other, name))
                if name == "memory"
                else getattr(self, name) + getattr(other, name)
                for name in COUNTERS
            }
        )


COUNTERS: Final = Work.__struct_fields__
"""The names of all counters."""


class _Wire:
    """What sockets did, since the beginning."""

    def __init__(self) -> None:
        self.sent = self.received = self.round_trips = self.connections = 0
        self._known: WeakSet[socket.socket] = WeakSet()
        self._waiting: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()

    def seen(self) -> tuple[int, int, int, int]:
        """Round trips, bytes sent, bytes received, connections."""
        return self.round_trips, self.sent, self.received, self.connections

    def send(self, client: socket.socket, size: int) -> None:
        with self._lock:
            self.sent += size
            self._waiting.add(client)
            if client not in self._known:
                self._known.add(client)
                self.connections += 1

    def receive(self, client: socket.socket, size: int) -> None:
        with self._lock:
            self.received += size
            if size and client in self._waiting:
                self._waiting.discard(client)
                self.round_trips += 1


def _size(data: object) -> int:
    return memoryview(data).nbytes if isinstance(data, bytes | bytearray | memoryview) else 0


def _counted(name: str, wire: _Wire) -> Callable[..., object]:
    """A method of sockets that also counts what goes through it."""
    real: Callable[..., object] = getattr(socket.socket, name)

    def call(client: socket.socket, *arguments: object, **named: object) -> object:
        if name in _SENDS:
            parts = arguments[0] if name == "sendmsg" else (arguments[0],)
            wire.send(client, sum(_size(part) for part in parts) if isinstance(parts, tuple | list) else 0)
            return real(client, *arguments, **named)
        answer = real(client, *arguments, **named)
        if name == "recv_into":
            wire.receive(client, answer if isinstance(answer, int) else 0)
        else:
            wire.receive(client, _size(answer[0] if isinstance(answer, tuple) else answer))
        return answer

    return call


class Meter:
    """Counts work between entering and leaving. One at a time in a process.

    Stores that are opened inside are counted wholly; of a store that was opened before, the work of threads that it had
    started then is not.
    """

    _active: ClassVar[Meter | None] = None

    def __init__(self) -> None:
        """Prepare a meter; counts nothing yet."""
        self._wire = _Wire()
        self._calls = self._syncs = 0
        self._counting = False

    def __enter__(self) -> Self:
        """Begin to watch.

        Raises:
            RuntimeError: Another meter is active.
        """
        if Meter._active is not None:
            raise RuntimeError("another meter is active in this process")
        Meter._active = self
        for name in (*_SENDS, *_RECEIVES):
            setattr(socket.socket, name, _counted(name, self._wire))
        threading.setprofile(self._profile)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End to watch."""
        Meter._active = None
        threading.setprofile(None)
        for name in (*_SENDS, *_RECEIVES):
            if name in vars(socket.socket):
                delattr(socket.socket, name)

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if self._counting and event in ("call", "c_call"):
            self._calls += 1
            if event == "c_call" and argument in _SYNCS:
                self._syncs += 1

    def measure(self, call: Callable[[], T]) -> tuple[T, Work]:
        """Make a call and count its work.

        Args:
            call: The call.

        Returns:
            Its answer, and the work.
        """
        with self._counted():
            tracemalloc.reset_peak()
            memory, _ = tracemalloc.get_traced_memory()
            before = self._seen()
            answer = call()
            after = self._seen()
            peak = tracemalloc.get_traced_memory()[1] - memory
        calls, *rest = (b - a for a, b in zip(before, after, strict=True))
        names = COUNTERS[COUNTERS.index("memory") + 1 :]
        return answer, Work(calls=calls, memory=max(0, peak), **dict(zip(names, rest, strict=True)))

    def _seen(self) -> tuple[int, ...]:
        return (self._calls, *_files(), *self._wire.seen(), self._syncs)

    def work_of(self, *calls: Callable[[], object]) -> Work:
        """The work of calls, one after the other."""
        total = Work()
        for call in calls:
            total += self.measure(call)[1]
        return total

    @contextmanager
    def _counted(self) -> Iterator[None]:
        profiler = sys.getprofile()
        traced = tracemalloc.is_tracing()
        if not traced:
            tracemalloc.start()
        self._counting = True
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(profiler)
            self._counting = False
            if not traced:
                tracemalloc.stop()


def _files() -> tuple[int, int, int, int]:
    """System calls and bytes of files of this process: reads, writes, bytes read, bytes written."""
    try:
        with open(_IO, encoding="ascii") as file:
            found = dict(line.split(": ") for line in file.read().splitlines())
    except FileNotFoundError:
        return 0, 0, 0, 0
    return int(found["syscr"]), int(found["syscw"]), int(found["rchar"]), int(found["wchar"])


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """How much more work the same call may be on a long journal than on a short one.

    Attributes:
        factor: By how much each counter may be multiplied.
        more: What may be added to each counter: a level of an index, a page of a tree.
    """

    factor: float
    more: Work

    def exceeded(self, short: Work, long: Work) -> tuple[str, ...]:
        """What is beyond it.

        Args:
            short: The work on the short journal.
            long: The work on the long one.

        Returns:
            A sentence for each counter that is beyond it.
        """
        return tuple(
            f"{name.replace('_', ' ')}: {getattr(short, name)} on the short one, {getattr(long, name)} on the long one"
            for name in COUNTERS
            if getattr(long, name) > getattr(short, name) * self.factor + getattr(self.more, name)
        )
