"""How worker processes are started: forked from a server that has imported everything, else as fresh interpreters."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Protocol, cast

_COMMAND: Final = (sys.executable, "-m", "statebook_conformance.child")
_TEST_TOOLS: Final = frozenset({"pytest", "_pytest", "xdist", "execnet", "hypothesis", "tests", "conftest"})
_START_S: Final = 60.0
_POLL_S: Final = 0.002
_STAND_S: Final = 10.0


class Process(Protocol):
    """A worker process, however it was started."""

    pid: int
    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]

    def running(self) -> bool:
        """Whether it still runs."""
        ...

    def signal(self, number: int) -> None:
        """Send it a signal; harmless where it is gone."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait until it is gone.

        Raises:
            TimeoutError: It is still there.
        """
        ...


def wait_until_stopped(pid: int) -> None:
    """Wait until every thread of a process stands still after SIGSTOP.

    Raises:
        TimeoutError: One still runs.
    """
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.is_dir():  # no /proc: only for children of this very process
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        return
    deadline = time.monotonic() + _STAND_S
    while time.monotonic() < deadline:
        states = [stat.read_text().rpartition(")")[2].split()[0] for stat in tasks.glob("*/stat")]
        if all(state in "Tt" for state in states):
            return
        time.sleep(_POLL_S)
    raise TimeoutError(f"process {pid} did not stop within {_STAND_S:g} s")


class FreshProcess:
    """A worker in an interpreter of its own."""

    def __init__(self, command: Sequence[str] = _COMMAND) -> None:
        """Start it.

        Args:
            command: What is run; a tracer may stand before the worker's own words.
        """
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=_environment(),
        )
        self.pid = self._process.pid
        self.stdin = cast("IO[str]", self._process.stdin)
        self.stdout = cast("IO[str]", self._process.stdout)
        self.stderr = cast("IO[str]", self._process.stderr)

    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send it a signal; harmless where it is gone."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> None:
        """Wait until it is gone.

        Raises:
            TimeoutError: It is still there.
        """
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"process {self.pid} is still there after {timeout_s:g} s") from error


class _ForkedProcess:
    """A worker that was forked from the server. Its descriptor stays valid even where its id is used again."""

    def __init__(self, server: ForkServer) -> None:
        ends = [os.pipe() for _ in range(3)]
        theirs = (ends[0][0], ends[1][1], ends[2][1])
        try:
            self.pid = int(cast("int", server.ask({"start": True}, theirs)["pid"]))
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._server = server
        self._descriptor = os.pidfd_open(self.pid)
        self._gone = False
        self._lock = threading.Lock()
        self.stdin: IO[str] = open(ends[0][1], "w", encoding="utf-8")  # noqa: SIM115 - closed by the owner
        self.stdout: IO[str] = open(ends[1][0], encoding="utf-8")  # noqa: SIM115
        self.stderr: IO[str] = open(ends[2][0], encoding="utf-8")  # noqa: SIM115

    def running(self) -> bool:
        """Whether it still runs."""
        try:
            self.wait(0.0)
        except TimeoutError:
            return True
        return False

    def signal(self, number: int) -> None:
        """Send it a signal; harmless where it is gone."""
        with self._lock:
            if not self._gone:
                signal.pidfd_send_signal(self._descriptor, number)

    def wait(self, timeout_s: float) -> None:
        """Wait until it is gone, and have the server reap it.

        Raises:
            TimeoutError: It is still there.
        """
        with self._lock:
            if self._gone:
                return
            poller = select.poll()
            poller.register(self._descriptor, select.POLLIN)
            if not poller.poll(timeout_s * 1_000):
                raise TimeoutError(f"process {self.pid} is still there after {timeout_s:g} s")
            self._server.ask({"gone": self.pid})
            os.close(self._descriptor)
            self._gone = True


class ForkServer:
    """The server's other end. Safe from many threads."""

    def __init__(self) -> None:
        """Start it and have it import what this process has imported, but for test tools.

        Raises:
            OSError: It does not start here, or would not be safe to fork from.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line, self._lock = ours, threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "statebook_conformance.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=_environment(),
            )
        self._line.settimeout(_START_S)
        self._warm: set[str] = set()
        if self.ask({"modules": _imported()}).get("threads") != 1:
            self.close()
            raise OSError("the fork server has more than one thread")

    def warm_up(self, target: str, namespace: str) -> None:
        """Have it open a target once, before the first worker that needs it.

        Args:
            target: The target's text.
            namespace: The worker's namespace.

        Raises:
            OSError: The server is gone.
        """
        if target not in self._warm:
            self._warm.add(target)
            self.ask({"target": target, "namespace": namespace})

    def ask(self, order: Mapping[str, object], descriptors: Sequence[int] = ()) -> dict[str, object]:
        """Send an order, and give the answer.

        Raises:
            OSError: The server is gone.
        """
        with self._lock:
            socket.send_fds(self._line, [json.dumps(order).encode()], list(descriptors))
            answer = self._line.recv(1 << 16)
        if not answer:
            raise OSError("the fork server is gone")
        return cast("dict[str, object]", json.loads(answer))

    def close(self) -> None:
        """End it; its workers live on."""
        self._line.close()
        self._process.wait(timeout=_START_S)


class _Spawner:
    """The fork server of this process, made when the first worker is wanted and anew where the environment changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ForkServer | None = None
        self._for: tuple[object, ...] = ()
        self._owner = 0
        self._refused = not (hasattr(os, "pidfd_open") and hasattr(socket, "send_fds") and hasattr(os, "fork"))

    def start(self, target: str | None, namespace: str) -> Process:
        """Start a worker."""
        with self._lock:
            server = None if self._refused else self._current()
            if server is not None:
                try:
                    if target is not None:
                        server.warm_up(target, namespace)
                    return _ForkedProcess(server)
                except OSError:
                    self._refused = True
        return FreshProcess()

    def _current(self) -> ForkServer | None:
        packages = frozenset(name.partition(".")[0] for name in _imported())
        now = (tuple(sys.path), tuple(sorted(os.environ.items())), os.getcwd(), packages)
        if self._server is not None and self._owner == os.getpid() and self._for == now:
            return self._server
        self._end()
        try:
            self._server, self._for, self._owner = ForkServer(), now, os.getpid()
        except OSError:
            self._server, self._refused = None, True
        return self._server

    def _end(self) -> None:
        if self._server is not None and self._owner == os.getpid():
            self._server.close()
        self._server = None

    def close(self) -> None:
        """End the server."""
        with self._lock:
            self._end()


_SPAWNER: Final = _Spawner()
atexit.register(_SPAWNER.close)


def start_process(target: str | None = None, namespace: str = "default") -> Process:
    """Start a worker that waits for its order: forked where this machine can, else in a fresh interpreter.

    Args:
        target: A store URL that the worker will open: the server it is forked from has opened it once. None: nothing.
        namespace: Its namespace.

    Returns:
        The process.
    """
    return _SPAWNER.start(target, namespace)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


def _imported() -> list[str]:
    """What a worker will want: the modules of this process that are neither Python's own nor a test tool's."""
    skipped = _TEST_TOOLS | set(sys.stdlib_module_names)
    chosen = [name for name in tuple(sys.modules) if name.partition(".")[0] not in skipped and name[0] != "_"]
    return ["statebook_conformance.child", *sorted(chosen)]
