"""System calls of a worker process, seen and made to fail by strace: what was flushed, and what a disk refuses.

A traced worker is one nursery that forks a life for each run, so that a run costs milliseconds. A life reports by
marks: writes of JSON to the null device, which strace sees in their order among all other calls, and which touch no
disk. Lives are made to fail at their n-th flush or write without a tracer of their own: strace counts calls for each
process, and fails those from `FAILS_AT` on; a life first makes so many calls of that kind that come to nothing.

A worker never meets the store of the target itself: it gets the same target moved into a fresh directory (`moved`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qsl, urlencode

import msgspec

from statebook.errors import InvalidConfiguration
from statebook.options import StoreUrl
from statebook_conformance.target import is_url

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue

FAILS_AT: Final = 256
"""At which call of a kind strace begins to refuse it, counted in each process."""

MARK: Final = b"statebook-mark "
"""How a mark begins."""

FLUSHES: Final = ("fsync", "fdatasync")
"""The calls that make data durable, each counted by itself."""

WRITES: Final = ("write", "pwrite64")
"""The calls that write, each counted by itself; marks are written by another one."""

_SEEN: Final = (
    *("openat", "open", "creat", "close", "write", "pwrite64", "writev", "pwritev", "pwritev2", "lseek"),
    *("fsync", "fdatasync", "sync", "syncfs", "msync", "ftruncate", "truncate", "fallocate"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "link", "linkat"),
    *("symlink", "symlinkat", "copy_file_range", "sendfile", "splice", "io_uring_setup"),
)
_STRING_MAX: Final = 1 << 28
_INSTALL: Final = "strace is needed to see and refuse system calls: apt-get install strace (Linux only)"
_REFUSED: Final = (
    "strace is here, and cannot trace or refuse calls: it must be 5.3 or newer, and may trace its children (in a "
    "container: --cap-add SYS_PTRACE)"
)

_LINE: Final = re.compile(r"(?P<pid>\d+) +(?P<rest>.*)", re.DOTALL)
_RESUMED: Final = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)", re.DOTALL)
_CALL: Final = re.compile(
    r"(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+|\?)(?:<(?P<path>[^>]*)>)?(?: (?P<error>E[A-Z0-9]+))?.*",
    re.DOTALL,
)
_UNFINISHED: Final = " <unfinished ...>"


class Call(msgspec.Struct, frozen=True):
    """One system call that was made and has returned.

    Attributes:
        pid: The process, or the thread, that made it.
        name: Its name.
        arguments: Its arguments as strace shows them: text and paths as hexadecimal escapes.
        result: What it returned; -1 where it failed.
        path: The path of the descriptor that it returned, where it did.
        error: The name of its error, or an empty text.
    """

    pid: int
    name: str
    arguments: str
    result: int
    path: str
    error: str


def unescape(text: str) -> bytes:
    """The bytes behind hexadecimal escapes."""
    return bytes.fromhex(text.replace("\\x", ""))


def _path(text: str | None) -> str:
    return os.fsdecode(unescape(text)) if text and text.startswith("\\x") else text or ""


def parse(lines: Iterable[str]) -> Iterator[Call]:
    """Read what strace has written with `-f -y -xx`, in the order in which calls returned.

    Args:
        lines: The lines.

    Yields:
        The calls; signals and exits are left out.
    """
    begun: dict[str, str] = {}
    for line in lines:
        match = _LINE.match(line.rstrip("\n"))
        if match is None:
            continue
        pid, rest = match["pid"], match["rest"]
        if rest.endswith(_UNFINISHED):
            begun[pid] = rest.removesuffix(_UNFINISHED)
            continue
        resumed = _RESUMED.match(rest)
        if resumed is not None:
            rest = begun.pop(pid, "") + resumed["rest"]
        call = _CALL.match(rest)
        if call is None or call["result"] == "?":
            continue
        yield Call(
            int(pid), call["name"], call["arguments"], int(call["result"]), _path(call["path"]), call["error"] or ""
        )


# ------------------------------------------------------------------------------------------------------------ the tool


@cache
def _missing() -> str:
    """What is missing to trace system calls; empty where nothing is."""
    tool = shutil.which("strace")
    if tool is None or not sys.platform.startswith("linux"):
        return _INSTALL
    tried = subprocess.run(
        [
            *(tool, "-f", "--seccomp-bpf", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=1..2"),
            *("-o", os.devnull, sys.executable, "-S", "-c", "pass"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    return "" if tried.returncode == 0 else _REFUSED


def strace(log: Path, inject: Sequence[str] = ()) -> tuple[str, ...]:
    """How strace is called: in front of a command that is to be traced, with all its children.

    Args:
        log: Where the calls are written; see `parse`.
        inject: Which calls fail; see `injecting`.

    Returns:
        The first words of the command.
    """
    return (
        *("strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", str(_STRING_MAX), "-o", str(log)),
        *("-e", f"trace={','.join(_SEEN)}", *inject, "-e", "signal=none", "-e", "quiet=all"),
    )


def needs_strace() -> None:
    """Look whether system calls can be traced here.

    Raises:
        Unavailable: strace is missing, too old, or may not trace; names what to install.
    """
    from statebook_conformance.context import Unavailable

    missing = _missing()
    if missing:
        raise Unavailable(missing)


def moved(target: str, directory: str) -> str | None:
    """The same target with its store in another directory.

    Args:
        target: A URL that names a file or directory of this machine, or `module:function` of which an argument is such
            a URL or an absolute path.
        directory: The directory.

    Returns:
        The target text; None where the target names no path of this machine.
    """
    if is_url(target):
        url = StoreUrl.parse(target)
        if url.hosts:
            return None
        # Two slashes: relative to nothing for those who take the path whole, and for those who drop the first.
        name = os.path.basename(url.path.rstrip("/")) or "store"
        return url.model_copy(update={"path": f"/{directory}/{name}"}).unredacted()
    function, mark, query = target.partition("?")
    there: list[tuple[str, str]] = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if os.path.isabs(value):
            there.append((name, f"{directory}/{os.path.basename(value.rstrip('/')) or 'store'}"))
        elif "://" in value:
            other = moved(value, directory)
            if other is None:
                return None
            there.append((name, other))
        else:
            there.append((name, value))
    text = f"{function}{mark}{urlencode(there)}"
    return text if directory in "".join(value for _, value in there) else None


def moved_target(target: str, directory: str) -> str:
    """As `moved`, for rules.

    Raises:
        NotClaimed: The target names no file or directory of this machine: what it stores lies elsewhere.
    """
    from statebook_conformance.context import NotClaimed

    try:
        there = moved(target, directory)
    except InvalidConfiguration:
        there = None
    if there is None:
        raise NotClaimed("the target names no file or directory of this machine: what is stored is a server's")
    return there


# ----------------------------------------------------------------------------------------------------------- the lives


class Life(msgspec.Struct, frozen=True):
    """One run of a worker in a process of its own.

    Attributes:
        target: The target text.
        burn: How many calls of which kind it makes first that come to nothing.
        params: What the worker is told.
    """

    target: str
    burn: dict[str, int] = {}
    params: dict[str, int] = {}


def failing_at(call: str, number: int) -> dict[str, int]:
    """What a life has to burn so that its n-th call of a kind is the first that fails.

    Args:
        call: The kind.
        number: Which one fails, from 1.

    Returns:
        For `Life.burn`.
    """
    return {call: FAILS_AT - number}


def injecting(calls: Sequence[str], error: str, count: int) -> tuple[str, ...]:
    """What strace is told so that some calls fail, from `FAILS_AT` on.

    Args:
        calls: Their names.
        error: The name of the error.
        count: How many of each fail, one after the other.

    Returns:
        Arguments for `trace`.
    """
    last = FAILS_AT + count - 1
    return tuple(word for call in calls for word in ("-e", f"inject={call}:error={error}:when={FAILS_AT}..{last}"))


def slowing(calls: Sequence[str], delay_s: float) -> tuple[str, ...]:
    """What strace is told so that one call of a kind is held up before it is made: that of number `FAILS_AT`.

    Args:
        calls: Their names.
        delay_s: How long it is held up, in seconds.

    Returns:
        Arguments for `trace`.
    """
    delay_us = round(delay_s * 1_000_000)
    return tuple(word for call in calls for word in ("-e", f"inject={call}:delay_enter={delay_us}:when={FAILS_AT}"))


class Mark(msgspec.Struct, frozen=True):
    """What a life has told, and behind how many of its calls.

    Attributes:
        at: How many of the calls of its life came before.
        fields: What it told.
    """

    at: int
    fields: dict[str, object]


class Traced(msgspec.Struct, frozen=True):
    """What was seen of one life.

    Attributes:
        calls: Its calls, marks left out.
        marks: What it told.
    """

    calls: tuple[Call, ...]
    marks: tuple[Mark, ...]


def trace(
    worker: str, namespace: str, lives: Sequence[Life], *, inject: Sequence[str] = (), timeout_s: float = 50.0
) -> tuple[Traced, ...]:
    """Run lives of a worker one after the other under strace.

    Args:
        worker: `module:function` of a function that takes a `LifeContext` (see `workers_trace`).
        namespace: The namespace that they open.
        lives: The lives.
        inject: Which calls fail; see `injecting`.
        timeout_s: How long all of them may take, in seconds.

    Returns:
        What was seen of each, in their order.

    Raises:
        Unavailable: strace is missing, or may not trace.
        ChildError: The worker failed, or took too long.
    """
    from statebook_conformance.processes import ChildError

    needs_strace()
    with tempfile.TemporaryDirectory(prefix="statebook-trace-") as directory:
        order = {
            "worker": worker,
            "namespace": namespace,
            "warm": moved(lives[0].target, directory),
            "lives": msgspec.to_builtins(lives),
        }
        log = Path(directory) / "calls"
        nursery = (sys.executable, "-m", "statebook_conformance.workers_trace")
        _run((*strace(log, inject), *nursery), order, timeout_s)
        with log.open(encoding="ascii", errors="replace") as lines:
            seen = _by_life(parse(lines))
    if len(seen) != len(lives):
        raise ChildError(f"worker {worker} ran {len(seen)} of {len(lives)} lives")
    for number, life in enumerate(seen):
        for mark in life.marks:
            if "failed" in mark.fields:
                raise ChildError(f"worker {worker} failed in life {number}: {mark.fields['failed']}")
    return seen


def _run(command: Sequence[str], order: Mapping[str, object], timeout_s: float) -> None:
    from statebook_conformance.processes import ChildError

    process = subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(json.dumps(order), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ChildError(f"a traced worker took longer than {timeout_s:g} s") from None
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0:
        raise ChildError(f"a traced worker ended with status {process.returncode}: {output[-2_000:].strip()}")


_MARKED: Final = re.compile(r'\d+<(?P<path>[^>]*)>, \[\{iov_base="(?P<text>[^"]*)"')


def _by_life(calls: Iterable[Call]) -> tuple[Traced, ...]:
    """Cut the log into lives: each begins with a mark of its number; threads of a life belong to it."""
    lives: list[tuple[list[Call], list[Mark]]] = []
    for call in calls:
        told = _told(call)
        if told is not None and "life" in told:
            lives.append(([], []))
        elif lives and told is not None:
            lives[-1][1].append(Mark(len(lives[-1][0]), told))
        elif lives:
            lives[-1][0].append(call)
    return tuple(Traced(tuple(seen), tuple(marks)) for seen, marks in lives)


def _told(call: Call) -> dict[str, object] | None:
    if call.name != "writev":
        return None
    match = _MARKED.match(call.arguments)
    if match is None or _path(match["path"]) != os.devnull:
        return None
    text = unescape(match["text"])
    return cast("dict[str, object]", json.loads(text[len(MARK) :])) if text.startswith(MARK) else None


class Marks:
    """The side of a life: tells by marks."""

    def __init__(self) -> None:
        """Open the null device."""
        self._fd = os.open(os.devnull, os.O_WRONLY)

    def __call__(self, fields: Mapping[str, JsonValue]) -> None:
        """Tell something, behind all calls that were made before."""
        os.writev(self._fd, (MARK + json.dumps(dict(fields)).encode(),))


def burn(counts: Mapping[str, int]) -> None:
    """Make calls that come to nothing: on a descriptor that is not open.

    Args:
        counts: How many of which kind; see `failing_at`.
    """
    closed = 1 << 20
    makes: dict[str, Callable[[], object]] = {
        "fsync": lambda: os.fsync(closed),
        "fdatasync": lambda: os.fdatasync(closed),
        "write": lambda: os.write(closed, b""),
        "pwrite64": lambda: os.pwrite(closed, b"", 0),
    }
    for name, count in counts.items():
        for _ in range(count):
            with suppress(OSError):
                makes[name]()
