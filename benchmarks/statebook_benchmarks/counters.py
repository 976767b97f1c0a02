"""What a trial used: calls and bytes to files, processor time and memory, of this process and of the server."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

_PROC: Final = Path("/proc")


class Usage(msgspec.Struct, frozen=True):
    """A reading; the difference of two is what lay between. None where the system does not tell.

    Attributes:
        cpu_s: Processor seconds of this process, its kernel time included.
        memory_bytes: Resident memory of this process now.
        open_files: Open files of this process now.
        write_calls: Write calls so far; what goes through sockets is not counted.
        written_bytes: Bytes of these calls.
        server_cpu_s: Processor seconds of the server, where it runs on this machine under this user.
        server_memory_bytes: Resident memory of the server now.
    """

    cpu_s: float
    memory_bytes: int | None
    open_files: int | None
    write_calls: int | None
    written_bytes: int | None
    server_cpu_s: float | None
    server_memory_bytes: int | None

    def since(self, earlier: Usage) -> Usage:
        """What was used since an earlier reading; memory and files as they are now."""
        return Usage(
            cpu_s=self.cpu_s - earlier.cpu_s,
            memory_bytes=self.memory_bytes,
            open_files=self.open_files,
            write_calls=_less(self.write_calls, earlier.write_calls),
            written_bytes=_less(self.written_bytes, earlier.written_bytes),
            server_cpu_s=_less_seconds(self.server_cpu_s, earlier.server_cpu_s),
            server_memory_bytes=self.server_memory_bytes,
        )


def _less(now: int | None, then: int | None) -> int | None:
    return None if now is None or then is None else now - then


def _less_seconds(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then


class Counters:
    """Reads what this process and one server use."""

    def __init__(self, port: int | None = None) -> None:
        """Look for the server.

        Args:
            port: The port that it listens on at this machine, or None where there is no server.
        """
        self._server = None if port is None else listener(port)

    def read(self) -> Usage:
        """Take a reading."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        io = _fields(_PROC / "self" / "io")
        server = None if self._server is None else _process(self._server)
        return Usage(
            cpu_s=used.ru_utime + used.ru_stime,
            memory_bytes=_memory(_PROC / "self"),
            open_files=_open_files(),
            write_calls=io.get("syscw"),
            written_bytes=io.get("wchar"),
            server_cpu_s=None if server is None else server[0],
            server_memory_bytes=None if server is None else server[1],
        )


def _fields(file: Path) -> dict[str, int]:
    try:
        text = file.read_text(encoding="ascii")
    except OSError:
        return {}
    return {name: int(value) for name, _, value in (line.partition(": ") for line in text.splitlines())}


def _memory(process: Path) -> int | None:
    try:
        pages = int((process / "statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        if process.name != "self":
            return None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1_024
    return pages * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def _process(pid: int) -> tuple[float, int | None] | None:
    try:
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK"), _memory(_PROC / str(pid))


def listener(port: int) -> int | None:
    """The process that listens on a port of this machine, or None where it cannot be seen.

    Args:
        port: The port.

    Returns:
        Its process id.
    """
    sockets = set(_listening(port))
    if not sockets:
        return None
    for process in _PROC.glob("[0-9]*"):
        try:
            names = {os.readlink(entry) for entry in (process / "fd").iterdir()}
        except OSError:
            continue
        if sockets & names:
            return int(process.name)
    return None


def _listening(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"
