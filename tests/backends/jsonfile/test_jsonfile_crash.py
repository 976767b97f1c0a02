"""kill -9, leftovers, forks, and changes that are seen before they are durable."""

import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from statebook.atomic import COMMIT_CONFLICT
from statebook.errors import JournalCorrupt
from statebook_backends.jsonfile.store import JsonFileAtomicJournalStorage
from statebook_backends.jsonfile.tree import Disk

WRITER = """
import sys
import statebook
store = statebook.open_atomic("file://" + sys.argv[1])
head = store.read_head(sys.argv[2])
token, number = (head.token, int(head.data[:8])) if head else (None, 0)
print("ready", flush=True)
while True:
    number += 1
    content = b"%08d" % number + b"x" * (number * 997 % 50_000)
    token = store.commit(sys.argv[2], token, content, {"blob-%d" % number: content} if number % 4 == 0 else {})
    assert isinstance(token, str)
    print(number, flush=True)
"""


def test_kill_in_a_write_loop_leaves_the_old_or_the_new_head_thirty_times(
    store: JsonFileAtomicJournalStorage, root: Path, scope: str, scope_path: Path, python: Any
) -> None:
    for round_ in range(30):
        process = python(WRITER, str(root), scope)
        assert process.stdout.readline() == "ready\n"
        for _ in range(1 + round_ % 5):
            process.stdout.readline()
        time.sleep(round_ * 0.0001)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=30)
        acknowledged = int(rest.split()[-1]) if rest.split() else 0
        head = store.read_head(scope)
        assert head is not None
        number = int(head.data[:8])
        assert head.data == b"%08d" % number + b"x" * (number * 997 % 50_000)
        assert number >= acknowledged
        if number % 4 == 0:
            assert store.read_blob(scope, f"blob-{number}") == head.data
    head = store.read_head(scope)
    assert head is not None
    assert isinstance(store.commit(scope, head.token, b"last", {"last": b"1"}), str)


def test_leftovers_of_a_crash_are_ignored_and_go_with_the_next_write(
    store: JsonFileAtomicJournalStorage, open_store: Any, scope: str, scope_path: Path
) -> None:
    token = store.commit(scope, None, b"head", {"a": b"1"})
    assert isinstance(token, str)
    left = [scope_path / "tmp-1", scope_path / "blobs" / "tmp-2"]
    for path in left:
        path.write_bytes(b"half")
    (scope_path / "blobs" / "notes.txt").write_bytes(b"not ours")
    other = open_store()
    assert other.list_scopes("", None, 10).names == (scope,)
    assert other.list_blobs(scope, None, 10).names == ("a",)
    assert all(path.exists() for path in left)
    assert isinstance(other.commit(scope, token, b"head2", {"b": b"2"}), str)
    assert not any(path.exists() for path in left)


def test_a_directory_without_a_head_is_no_scope_and_can_be_written(
    store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path
) -> None:
    (scope_path / "blobs").mkdir(parents=True)
    (scope_path / "blobs" / "b-old").write_bytes(b"of a failed commit")
    assert store.read_head(scope) is None
    assert store.list_scopes("", None, 10).names == ()
    assert store.list_blobs(scope, None, 10).names == ("old",)
    assert isinstance(store.commit(scope, None, b"head", {"old": b"of a failed commit"}), str)


def test_a_reader_that_sees_a_change_before_it_is_durable_flushes_it_itself(
    open_store: Any, scope: str, scope_path: Path
) -> None:
    flushed: list[int] = []

    def fsync(fd: int) -> None:
        flushed.append(fd)
        os.fsync(fd)

    writer, reader = open_store(), open_store(disk=Disk(fsync=fsync))
    token = writer.commit(scope, None, b"head")
    assert isinstance(token, str)
    flushed.clear()
    assert reader.read_head(scope) is not None
    assert flushed == []
    (scope_path / "pending").chmod(0o600)
    assert reader.read_head(scope) is not None
    assert len(flushed) == 1
    assert isinstance(writer.commit(scope, token, b"head2"), str)
    assert not announced(scope_path)
    flushed.clear()
    assert reader.read_head(scope) is not None
    assert flushed == []


def announced(scope_path: Path) -> bool:
    mark = scope_path / "pending"
    return mark.exists() and bool(mark.stat().st_mode & stat.S_IWUSR)


def test_an_announcement_by_a_file_that_comes_and_goes_is_understood_too(
    open_store: Any, scope: str, scope_path: Path
) -> None:
    writer, other = open_store(), open_store()
    token = other.commit(scope, writer.commit(scope, None, b"head"), b"head1")
    (scope_path / "pending").unlink()
    token = writer.commit(scope, token, b"head2")
    assert isinstance(token, str)
    assert (scope_path / "pending").exists()
    assert not announced(scope_path)
    flushed: list[int] = []
    reader = open_store(disk=Disk(fsync=flushed.append))
    flushed.clear()
    (scope_path / "pending").unlink()
    assert reader.read_head(scope).data == b"head2"
    assert flushed == []
    (scope_path / "pending").write_bytes(b"")
    assert reader.read_head(scope).data == b"head2"
    assert len(flushed) == 1


def test_a_head_that_another_store_or_hand_has_put_in_place_is_never_taken_for_the_own_one(
    open_store: Any, scope: str, scope_path: Path
) -> None:
    mine, other = open_store(), open_store()
    token = mine.commit(scope, None, b"one")
    assert isinstance(token, str)
    theirs = other.commit(scope, token, b"two")
    assert isinstance(theirs, str)
    assert mine.commit(scope, token, b"three") is COMMIT_CONFLICT
    mine_again = mine.commit(scope, theirs, b"four")
    assert isinstance(mine_again, str)
    # Written into, at the same length: neither the name nor the number of the file tells, its time does.
    content = (scope_path / "head.json").read_bytes()
    (scope_path / "head.json").write_bytes(b"X" + content[1:])
    with pytest.raises(JournalCorrupt):
        mine.commit(scope, mine_again, b"five")


def test_the_announcement_stands_from_before_the_rename_until_after_the_flush(
    open_store: Any, scope_path: Path
) -> None:
    seen: list[tuple[str, bool]] = []

    def replace(source: str, target: str, *, src_dir_fd: int | None, dst_dir_fd: int | None) -> None:
        seen.append((target, announced(scope_path)))
        os.replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def fsync(fd: int) -> None:
        seen.append(("fsync", announced(scope_path)))
        os.fsync(fd)

    store = open_store(disk=Disk(fsync=fsync, replace=replace))
    seen.clear()
    store.commit("t/_n/agent/session/thread", None, b"head")
    assert seen[-3:] == [("fsync", True), ("head.json", True), ("fsync", True)]
    assert not announced(scope_path)


FORKER = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
import statebook

store = statebook.open_atomic("file://" + sys.argv[1] + "?durability=process")
token = store.commit("t/counter", None, b"0")
stop = threading.Event()

def count(times):
    for _ in range(times):
        for _ in range(100_000):
            head = store.read_head("t/counter")
            if isinstance(store.commit("t/counter", head.token, str(int(head.data) + 1).encode()), str):
                break
        else:
            os._exit(3)

thread = threading.Thread(target=count, args=(200,))
thread.start()
children = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        count(20)
        os._exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
thread.join()
print(codes, store.read_head("t/counter").data)
"""


def test_forked_children_and_a_writing_thread_lose_no_update(root: Path, python: Any) -> None:
    process = python(FORKER, str(root))
    out, problem = process.communicate(timeout=120)
    assert out == "[0, 0, 0, 0, 0] b'300'\n", problem
