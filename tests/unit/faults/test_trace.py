"""System calls are seen in their order and refused where wanted; a disk without power holds what was flushed."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from statebook_conformance.context import NotClaimed, Unavailable
from statebook_conformance.faults import trace as traces
from statebook_conformance.faults.powerloss import PowerLoss, put_there
from statebook_conformance.faults.trace import FAILS_AT, Call, Life, failing_at, injecting, moved, parse, strace
from statebook_conformance.processes import ChildError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


def run(program: str, root: Path, *inject: str) -> tuple[tuple[Call, ...], str]:
    """Run a program under strace; its calls, and what it printed. `root` is its directory, `open`, `flush` help it."""
    traces.needs_strace()
    helpers = """
import os, sys
root = sys.argv[1]
def opened(name, flags=0): return os.open(f"{root}/{name}", flags | os.O_RDWR | os.O_CREAT)
def flush(path=""): fd = os.open(f"{root}/{path}", os.O_RDONLY); os.fsync(fd); os.close(fd)
"""
    log = root.parent / "log"
    command = [*strace(log, inject), sys.executable, "-c", helpers + textwrap.dedent(program), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    with log.open(encoding="ascii") as lines:
        return tuple(parse(lines)), done.stdout


def after(program: str, root: Path) -> PowerLoss:
    """The model of the disk behind a program, checked against what the real directory holds."""
    disk = PowerLoss(str(root))
    calls, _ = run(program, root)
    for call in calls:
        disk.apply(call)
    disk_now = disk.scattered(_Everything())
    real = {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))
    }
    assert dict(disk_now) == real, "with everything written the model holds what the directory holds"
    assert not disk.unseen
    return disk


class _Everything(random.Random):
    def random(self) -> float:
        return 0.0


# ------------------------------------------------------------------------------------------------------------ the model


@pytest.mark.parametrize(
    ("program", "flushed"),
    [
        ("os.write(opened('a'), b'x')", {}),
        ("fd = opened('a'); os.write(fd, b'x'); os.fsync(fd)", {}),
        ("os.write(opened('a'), b'x'); flush()", {"a": b""}),
        ("fd = opened('a'); os.write(fd, b'x'); os.fsync(fd); flush()", {"a": b"x"}),
        ("fd = opened('a'); os.write(fd, b'x'); os.fdatasync(fd); flush(); os.write(fd, b'y')", {"a": b"x"}),
        ("os.mkdir(root + '/d'); fd = opened('d/a'); os.write(fd, b'x'); os.fsync(fd); flush('d')", {}),
        (
            "os.mkdir(root + '/d'); fd = opened('d/a'); os.write(fd, b'x'); os.fsync(fd); flush('d'); flush()",
            {"d": None, "d/a": b"x"},
        ),
        ("fd = opened('a', os.O_SYNC); os.write(fd, b'x'); flush()", {"a": b"x"}),
        ("os.write(opened('a'), b'x'); os.sync()", {"a": b"x"}),
    ],
)
def test_content_is_left_where_file_and_names_were_flushed(
    program: str, flushed: Mapping[str, bytes | None], root: Path
) -> None:
    assert dict(after(program, root).flushed()) == flushed


RENAMED = "for name in 'ab': fd = opened(name); os.write(fd, name.encode()); os.fsync(fd)\nflush()\n"


@pytest.mark.parametrize(
    ("program", "flushed"),
    [
        ("os.rename(root + '/b', root + '/a')", {"a": b"a", "b": b"b"}),
        ("os.rename(root + '/b', root + '/a'); flush()", {"a": b"b"}),
        ("os.unlink(root + '/a')", {"a": b"a", "b": b"b"}),
        ("os.unlink(root + '/a'); flush()", {"b": b"b"}),
        ("os.truncate(root + '/a', 0)", {"a": b"a", "b": b"b"}),
        ("os.truncate(root + '/a', 3); flush('a')", {"a": b"a\0\0", "b": b"b"}),
        ("os.link(root + '/a', root + '/c'); flush()", {"a": b"a", "b": b"b", "c": b"a"}),
        ("os.mkdir(root + '/d'); os.rename(root + '/a', root + '/d/a'); flush()", {"d": None, "b": b"b"}),
        ("os.unlink(root + '/a'); fd = opened('a'); flush()", {"a": b"", "b": b"b"}),
    ],
)
def test_a_changed_name_is_changed_on_the_disk_when_its_directory_was_flushed(
    program: str, flushed: Mapping[str, bytes | None], root: Path
) -> None:
    assert dict(after(RENAMED + program, root).flushed()) == flushed


def test_places_of_writes_are_followed_through_seeks_appends_and_vectors(root: Path) -> None:
    program = """
    fd = opened('a'); os.write(fd, b'0123'); os.lseek(fd, 1, os.SEEK_SET); os.write(fd, b'x'); os.pwrite(fd, b'yy', 6)
    os.writev(fd, [b'v', b'', b'w']); os.pwritev(fd, [b'(', b')'], 10)
    more = opened('a', os.O_APPEND); os.write(more, b'"end\\0'); os.ftruncate(fd, 40); os.posix_fallocate(fd, 0, 50)
    one = opened('ü > 1'); os.write(one, b'>, "'); os.rename(root + '/ü > 1', root + '/two'); os.write(one, b'!')
    os.unlink(root + '/two'); os.write(one, b'gone')
    """
    disk = after(program, root)
    assert disk.flushed() == {}


def test_of_what_was_not_flushed_any_part_may_be_there(root: Path) -> None:
    disk = after("fd = opened('a'); flush(); [os.pwrite(fd, b'x', at) for at in range(3)]", root)
    seen = {disk.scattered(random.Random(seed))["a"] for seed in range(60)}
    assert {b"", b"x", b"\0\0x", b"xxx"} <= seen
    assert len(seen) == 8


def test_writes_that_no_call_shows_are_noted(root: Path) -> None:
    program = """
    import mmap
    fd = opened('a'); os.write(fd, b'x' * 4096); there = mmap.mmap(fd, 4096); there[0] = 65; there.flush()
    os.copy_file_range(fd, opened('b'), 100)
    """
    disk = PowerLoss(str(root))
    for call in run(program, root)[0]:
        disk.apply(call)
    assert disk.unseen == {"msync", "copy_file_range"}


def test_a_tree_is_put_in_the_place_of_all_that_was_there(root: Path) -> None:
    (root / "old" / "deep").mkdir(parents=True)
    (root / "link").symlink_to(root.parent)
    put_there({"d": None, "d/a": b"x", "b": b""}, str(root))
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["b", "d", "d/a"]
    assert (root / "d" / "a").read_bytes() == b"x"


# ------------------------------------------------------------------------------------------------------------ the calls


def test_the_nth_call_of_a_process_is_refused_and_those_behind_it_are_not(root: Path) -> None:
    program = f"""
    for child in range(2):
        if os.fork() == 0:
            fd = opened('a')
            for _ in range({FAILS_AT} - 3):
                try: os.fsync(1 << 20)
                except OSError: pass
            for number in range(1, 6):
                try: os.fsync(fd)
                except OSError as error: print(child, number, error.errno, flush=True)
            os._exit(0)
        os.wait()
    """
    calls, printed = run(program, root, *injecting(("fsync", "fdatasync"), "EIO", 2))
    assert printed == "0 3 5\n0 4 5\n1 3 5\n1 4 5\n"
    assert [call.error for call in calls if call.name == "fsync" and call.error != "EBADF"].count("EIO") == 4
    assert failing_at("fsync", 3) == {"fsync": FAILS_AT - 3}


def test_calls_that_threads_interleave_are_put_together_in_the_order_in_which_they_returned() -> None:
    lines = [
        "7 fsync(3<\\x2f\\x61> <unfinished ...>\n",
        '8 write(4<\\x2f\\x62>, "\\x78", 1) = 1\n',
        "--- not a call ---\n",
        "7 <... fsync resumed>) = -1 EIO (Input/output error) (INJECTED)\n",
        "8 exit_group(0) = ?\n",
        '8 openat(AT_FDCWD<\\x2f>, "\\x61", O_RDONLY) = 5<\\x2f\\x61>\n',
        "8 +++ exited with 0 +++\n",
    ]
    assert [(call.pid, call.name, call.result, call.error, call.path) for call in parse(lines)] == [
        (8, "write", 1, "", ""),
        (7, "fsync", -1, "EIO", ""),
        (8, "openat", 5, "", "/a"),
    ]


# -------------------------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("file:///var/root?durability=host", "file:////there/root?durability=host"),
        ("file://", "file:////there/store"),
        ("sqlite:///relative.db", "sqlite:////there/relative.db"),
        ("sqlite:////absolute/file.db", "sqlite:////there/file.db"),
        ("redis://127.0.0.1:6379/0", None),
        ("module:function", None),
        ("module:function?url=redis%3A%2F%2Fhost%2F0", None),
        ("module:function?a=b&base=file%3A%2F%2F%2Fx", "module:function?a=b&base=file%3A%2F%2F%2F%2Fthere%2Fx"),
        ("module:function?path=%2Fvar%2Fx", "module:function?path=%2Fthere%2Fx"),
    ],
)
def test_a_target_is_moved_where_it_names_a_path(target: str, expected: str | None) -> None:
    assert moved(target, "/there") == expected
    if expected is None:
        with pytest.raises(NotClaimed):
            traces.moved_target(target, "/there")
    else:
        assert traces.moved_target(target, "/there") == expected


def test_a_worker_that_fails_is_told_with_its_life(tmp_path: Path) -> None:
    target = f"file://{tmp_path}/root"
    with pytest.raises(ChildError, match="no_such_worker"):
        traces.trace("statebook_conformance.workers_trace:no_such_worker", "namespace", [Life(target)])
    nowhere = Life(f"sqlite:///{tmp_path}/nowhere/store.db")
    with pytest.raises(ChildError, match="in life 1: InvalidConfiguration: "):
        traces.trace("statebook_conformance.workers_trace:whole_life", "namespace", [Life(target), nowhere])


@pytest.mark.parametrize(
    ("tool", "remedy"),
    [
        (None, "apt-get install strace"),
        ("#!/bin/sh\necho 'ptrace: Operation not permitted' >&2\nexit 1\n", "SYS_PTRACE"),
    ],
)
def test_where_nothing_can_be_traced_the_rules_are_unavailable_and_say_what_it_takes(
    tool: str | None, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tool is not None:
        (tmp_path / "strace").write_text(tool)
        (tmp_path / "strace").chmod(0o755)
    traces._missing.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        with pytest.raises(Unavailable, match=remedy):
            traces.needs_strace()
    finally:
        traces._missing.cache_clear()
