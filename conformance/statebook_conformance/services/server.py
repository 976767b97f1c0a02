"""One server process: a foreground child with its own directory and log, ended by its process id."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

_PORTS: Final = range(20_000, 32_000)
_POLL_S: Final = 0.02


class ServiceUnavailable(Exception):
    """A server cannot be had here.

    Attributes:
        install: What to install, one line.
    """

    def __init__(self, message: str, *, install: str) -> None:
        """Keep what is missing and how to get it."""
        super().__init__(f"{message}; {install}")
        self.install = install


class ServerFailed(Exception):
    """A server did not start, or did not answer in time; the end of its log is in the message."""


_GIVEN: Final[set[int]] = set()
"""The ports that this process has given out."""
_GIVEN_MAX: Final = 4_000
_given_lock: Final = Lock()


def free_port(*, also_free: int = 0) -> int:
    """Find a port of 127.0.0.1 that nobody listens on, below the range from which outgoing connections are given.

    None is given twice in one process: a server listens only some time after it was told its ports.

    Args:
        also_free: A distance at which a second port must be free too, such as the bus port of a cluster node.

    Returns:
        The port.

    Raises:
        ServerFailed: None was found.
    """
    for port in random.SystemRandom().sample(_PORTS, 500):
        wanted = {port, port + also_free}
        with _given_lock:
            if _GIVEN.isdisjoint(wanted) and all(map(_bindable, wanted)):
                if len(_GIVEN) > _GIVEN_MAX:
                    _GIVEN.clear()
                _GIVEN.update(wanted)
                return port
    raise ServerFailed("no free port was found on 127.0.0.1")


def _bindable(port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def find_binary(name: str, *, install: str, folders: Sequence[Path] = ()) -> Path:
    """Find a server's binary on the path, in the usual system folders, or in given ones.

    Args:
        name: Its name.
        install: What to install where it is missing.
        folders: Further folders to look in, first.

    Returns:
        Its path.

    Raises:
        ServiceUnavailable: It is not there.
    """
    search = os.pathsep.join([*map(str, folders), os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(name, path=search)
    if found is None:
        raise ServiceUnavailable(f"there is no {name} here", install=install)
    return Path(found)


class Server:
    """One process of a server.

    Attributes:
        name: What it is called in messages.
        directory: Its data and its log.
        port: The port that it listens on.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        directory: Path,
        port: int,
        ready: Callable[[], bool],
        ready_within_s: float = 30.0,
        environment: Mapping[str, str] | None = None,
        stop_signal: int = signal.SIGTERM,
        stop_within_s: float = 20.0,
    ) -> None:
        """Describe a server; `start` starts it.

        Args:
            name: What it is called in messages.
            command: How it is started in the foreground.
            directory: Its data and its log; must exist.
            port: The port that it listens on.
            ready: Says whether it answers; errors of connections count as no.
            ready_within_s: How long to wait for that, in seconds.
            environment: Additional environment variables.
            stop_signal: With which it is asked to end.
            stop_within_s: How long it may take to end before it is killed, in seconds.
        """
        self.name = name
        self.directory = directory
        self.port = port
        self._command = list(command)
        self._ready = ready
        self._ready_within_s = ready_within_s
        self._environment = dict(environment or {})
        self._stop_signal = stop_signal
        self._stop_within_s = stop_within_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            ServerFailed: It does not run.
        """
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"{self.name} does not run{self.log_end()}")
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers; where it runs, only wait.

        Raises:
            ServerFailed: It ended or did not answer in time.
        """
        if self._process is not None and self._process.poll() is None:
            self.wait_ready()
            return
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it answers.

        Raises:
            ServerFailed: It ended or did not answer in time.
        """
        deadline = time.monotonic() + self._ready_within_s
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ServerFailed(f"{self.name} ended while it started{self.log_end()}")
            if self._answers():
                return
            time.sleep(_POLL_S)
        raise ServerFailed(f"{self.name} did not answer within {self._ready_within_s:g} s{self.log_end()}")

    def _answers(self) -> bool:
        try:
            return self._ready()
        except (OSError, EOFError):
            return False

    def stop(self) -> None:
        """Ask it to end, and kill it where it does not in time. Harmless where it does not run."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(self._stop_signal)
        try:
            process.wait(timeout=self._stop_within_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone. Harmless where it does not run."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.kill()
        process.wait(timeout=30)

    def restart(self) -> None:
        """Stop it and start it again on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop the process with SIGSTOP: connections stay, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def log_end(self, size: int = 2_000) -> str:
        """The end of its log, for messages; empty where there is none."""
        path = self.directory / "server.log"
        if not path.exists():
            return ""
        text = path.read_bytes()[-size:].decode(errors="replace").strip()
        return f". The end of {path}:\n{text}" if text else ""


def listens(port: int) -> bool:
    """Tell whether something takes connections on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
