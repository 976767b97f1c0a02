"""Commits: one winner a token, blobs before heads, and what failing disks mean."""

import errno
import os
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from statebook.atomic import COMMIT_CONFLICT
from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.errors import (
    BackendUnavailable,
    InvalidKey,
    JournalCorrupt,
    LimitExceeded,
    OutcomeUnknown,
    StoreClosed,
)
from statebook.keys import ThreadKey
from statebook.model import AppendRequest, Batch, Event, Receipt
from statebook_backends.jsonfile.layout import stripe
from statebook_backends.jsonfile.options import JsonFileOptions
from statebook_backends.jsonfile.store import JsonFileAtomicJournalStorage
from statebook_backends.jsonfile.tree import Disk


def committed(
    store: JsonFileAtomicJournalStorage, scope: str, expected: str | None, head: bytes, **blobs: bytes
) -> str:
    token = store.commit(scope, expected, head, blobs)
    assert isinstance(token, str)
    return token


def test_a_token_names_a_write_and_never_a_content(store: JsonFileAtomicJournalStorage, scope: str) -> None:
    tokens: list[str] = []
    token = None
    for content in (b"a", b"b", b"a", b"a"):
        token = committed(store, scope, token, content)
        tokens.append(token)
    assert store.commit(scope, tokens[0], b"c") is COMMIT_CONFLICT
    assert store.commit(scope, None, b"c") is COMMIT_CONFLICT
    head = store.read_head(scope)
    assert head is not None
    assert (head.data, head.token) == (b"a", tokens[-1])
    assert not store.delete_head(scope, tokens[0])
    assert store.delete_head(scope, tokens[-1])
    assert store.read_head(scope) is None
    assert store.commit(scope, tokens[-1], b"c") is COMMIT_CONFLICT
    assert committed(store, scope, None, b"a") not in tokens
    assert len(set(tokens)) == 4


def test_heads_and_blobs_of_any_bytes_come_back_equal(
    store: JsonFileAtomicJournalStorage, open_store: Any, scope: str
) -> None:
    contents = (b"", b"\n", b"\0\r\n\xff", os.urandom(3_000_000))
    token = None
    for number, content in enumerate(contents):
        token = committed(store, scope, token, content, **{f"blob-{number}": content})
    other = open_store()
    head = other.read_head(scope)
    assert head is not None
    assert (head.data, head.token) == (contents[-1], token)
    for number, content in enumerate(contents):
        assert other.read_blob(scope, f"blob-{number}") == content
    assert other.read_blob(scope, "none") is None


def test_blobs_are_immutable_also_empty_ones(store: JsonFileAtomicJournalStorage, scope: str) -> None:
    assert store.commit(scope, "1-no", b"h", {"a": b"1"}) is COMMIT_CONFLICT
    assert store.read_blob(scope, "a") is None
    token = committed(store, scope, None, b"h", a=b"1", empty=b"")
    for name in ("a", "empty"):
        with pytest.raises(JournalCorrupt):
            store.commit(scope, token, b"h2", {name: b"x"})
    head = store.read_head(scope)
    assert head is not None
    assert head.data == b"h"
    committed(store, scope, token, b"h2", a=b"1", empty=b"")
    assert store.list_blobs(scope, None, 10).names == ("a", "empty")
    page = store.list_blobs(scope, None, 1)
    assert (page.names, page.has_more) == (("a",), True)
    store.delete_blobs(scope, ["a", "none"])
    assert store.list_blobs(scope, None, 10).names == ("empty",)


@pytest.mark.parametrize("scope", ["", "/", "a/", "/a", "a//b", "..", "a/../b", "A", "a.b", "a\0", "é", "a/" * 400])
def test_a_scope_that_is_no_encoded_name_reaches_no_file(store: JsonFileAtomicJournalStorage, scope: str) -> None:
    with pytest.raises(InvalidKey):
        store.read_head(scope)
    with pytest.raises(InvalidKey):
        store.commit(scope, None, b"")
    with pytest.raises(InvalidKey):
        store.read_blob("a", scope or "../x")


def test_a_record_over_the_limit_is_refused_before_any_effect(
    store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path
) -> None:
    large = bytes(store.capabilities.limits.list_bytes_max + 1)
    with pytest.raises(LimitExceeded):
        store.commit(scope, None, large)
    with pytest.raises(LimitExceeded):
        store.commit(scope, None, b"", {"a": large})
    assert not scope_path.exists()


def test_of_racing_threads_and_stores_exactly_one_wins_each_token(open_store: Any, scope: str) -> None:
    stores = [open_store(), open_store()]
    token = committed(stores[0], scope, None, b"0")
    for _ in range(25):
        won: list[str] = []
        barrier = Barrier(6)

        def race(number: int, barrier: Barrier = barrier, won: list[str] = won, token: str = token) -> None:
            barrier.wait()
            made = stores[number % 2].commit(scope, token, b"h")
            if isinstance(made, str):
                won.append(made)

        threads = [Thread(target=race, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        token = won[0]


COUNTER = """
import sys
import statebook
store = statebook.open_atomic("file://" + sys.argv[1] + "?durability=process")
for _ in range(300):
    while True:
        head = store.read_head("t/counter")
        number = int(head.data) + 1 if head else 1
        if isinstance(store.commit("t/counter", head.token if head else None, str(number).encode()), str):
            print(number)
            break
"""


def test_two_processes_count_to_six_hundred_without_a_double(root: Path, python: Any) -> None:
    processes = [python(COUNTER, str(root)) for _ in range(2)]
    numbers: list[int] = []
    for process in processes:
        out, problem = process.communicate(timeout=240)
        assert process.returncode == 0, problem
        numbers.extend(map(int, out.split()))
    assert sorted(numbers) == list(range(1, 601))


def test_a_purge_leaves_no_name_behind_and_others_go_on(
    store: JsonFileAtomicJournalStorage, open_store: Any, root: Path, scope: str
) -> None:
    other, reader = open_store(), open_store()
    token = committed(store, scope, None, b"h", a=b"1")
    for each in (other, reader):
        assert each.read_head(scope) is not None
        assert each.read_blob(scope, "a") == b"1"
    other.delete_blobs(scope, ["a"])
    assert other.delete_head(scope, token)
    assert list((root / "ns.default").iterdir()) == []
    assert store.read_head(scope) is None
    again = committed(store, scope, None, b"h2", a=b"2")
    for each in (other, reader):
        head = each.read_head(scope)
        assert head is not None
        assert (head.data, head.token, each.read_blob(scope, "a")) == (b"h2", again, b"2")
    committed(other, scope, again, b"h3", b=b"3")
    assert store.read_blob(scope, "b") == b"3"


# ------------------------------------------------------------------------------------------------------ failing disks


class FailingDisk:
    """Real operations, of which one fails; on Windows' account all up to that one."""

    def __init__(
        self, fsync_at: int = 0, replace_at: int = 0, code: int = errno.EIO, winerror: int | None = None
    ) -> None:
        self.fsyncs = 0
        self.fsync_at = fsync_at
        self.replaces = 0
        self.sleeps: list[float] = []
        self._replace_at, self._code, self._winerror = replace_at, code, winerror

    def _error(self) -> OSError:
        error = OSError(self._code, os.strerror(self._code))
        if self._winerror is not None:
            error.winerror = self._winerror  # type: ignore[attr-defined]
        return error

    def fsync(self, fd: int) -> None:
        self.fsyncs += 1
        if self.fsyncs == self.fsync_at:
            raise self._error()
        os.fsync(fd)

    def replace(self, source: str, target: str, *, src_dir_fd: int | None, dst_dir_fd: int | None) -> None:
        self.replaces += 1
        fails = self.replaces == self._replace_at
        if fails if self._winerror is None else self.replaces < self._replace_at:
            raise self._error()
        os.replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def injected(self) -> Disk:
        return Disk(fsync=self.fsync, replace=self.replace, sleep=self.sleeps.append)


def test_every_failing_fsync_of_a_commit_is_unknown_and_poisons_the_handle(open_store: Any, scope: str) -> None:
    token = committed(open_store(), scope, None, b"old", first=b"1")
    seen = 0
    for number in range(1, 30):
        disk = FailingDisk()
        store = open_store(disk=disk.injected())
        disk.fsync_at = disk.fsyncs + number
        try:
            token = committed(store, scope, token, b"new", **{f"blob-{number}": b"2"})
        except OutcomeUnknown:
            seen += 1
        else:
            break
        with pytest.raises(BackendUnavailable, match="reopen"):
            store.read_head(scope)
        with pytest.raises(BackendUnavailable, match="reopen"):
            store.commit(scope, token, b"x")
        with pytest.raises(BackendUnavailable, match="reopen"):
            store.list_scopes("", None, 1)
        store.close()
        again = open_store()
        head = again.read_head(scope)
        assert head is not None
        assert head.data in (b"old", b"new")
        token = committed(again, scope, head.token, b"old")
    assert seen >= 4


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_a_rename_without_room_or_right_is_certainly_not_applied(open_store: Any, scope: str, code: int) -> None:
    token = committed(open_store(), scope, None, b"old")
    disk = FailingDisk(replace_at=1, code=code)
    store = open_store(disk=disk.injected())
    with pytest.raises(BackendUnavailable):
        store.commit(scope, token, b"new")
    head = store.read_head(scope)
    assert head is not None
    assert (head.data, head.token) == (b"old", token)
    committed(store, scope, token, b"new")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_while_a_new_file_is_flushed_is_certainly_not_applied(open_store: Any, scope: str, code: int) -> None:
    token = committed(open_store(), scope, None, b"old")
    disk = FailingDisk(code=code)
    store = open_store(disk=disk.injected())
    disk.fsync_at = disk.fsyncs + 1
    with pytest.raises(BackendUnavailable, match="make room"):
        store.commit(scope, token, b"new")
    head = store.read_head(scope)
    assert head is not None
    assert (head.data, head.token) == (b"old", token)
    committed(store, scope, token, b"new")


def test_any_other_error_of_a_rename_is_unknown(open_store: Any, scope: str) -> None:
    open_store()
    disk = FailingDisk(replace_at=1)
    store = open_store(disk=disk.injected())
    with pytest.raises(OutcomeUnknown):
        store.commit(scope, None, b"new")
    with pytest.raises(BackendUnavailable):
        store.read_head(scope)
    assert open_store().read_head(scope) is None


@pytest.mark.parametrize("winerror", [5, 32, 33])
def test_a_reader_that_has_the_file_open_on_windows_is_waited_for(open_store: Any, scope: str, winerror: int) -> None:
    open_store()
    disk = FailingDisk(replace_at=5, code=errno.EACCES, winerror=winerror)
    store = open_store(disk=disk.injected())
    committed(store, scope, None, b"new")
    assert (disk.replaces, len(disk.sleeps)) == (5, 4)


def test_a_reader_that_never_lets_go_on_windows_is_unavailable(open_store: Any, scope: str) -> None:
    open_store()
    disk = FailingDisk(replace_at=10_000, code=errno.EACCES, winerror=32)
    store = open_store(disk=disk.injected())
    with pytest.raises(BackendUnavailable):
        store.commit(scope, None, b"new")
    assert disk.replaces < 100
    assert store.read_head(scope) is None


FULL = """
import resource, sys
import statebook
store = statebook.open_atomic("file://" + sys.argv[1])
head = store.read_head(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for blobs in ({}, {"large": bytes(10_000)}):
    try:
        store.commit(sys.argv[2], head.token, bytes(10_000) if not blobs else b"small", blobs)
    except statebook.BackendUnavailable as error:
        print("refused")
print(store.read_head(sys.argv[2]) == head)
print(isinstance(store.commit(sys.argv[2], head.token, b"small"), str))
"""


def test_a_full_disk_is_unavailable_and_the_old_data_intact(
    store: JsonFileAtomicJournalStorage, root: Path, scope: str, scope_path: Path, python: Any
) -> None:
    committed(store, scope, None, b"old")
    process = python(FULL, str(root), scope)
    out, problem = process.communicate(timeout=60)
    assert out.split() == ["refused", "refused", "True", "True"], problem
    assert [path.name for path in scope_path.rglob("tmp-*")] == []


# -------------------------------------------------------------------------------------------------------------- locks


HOLDER = """
import sys
from statebook_backends.jsonfile.layout import namespace_directory, stripe
from statebook_backends.jsonfile.locks import try_lock
file = open(sys.argv[1] + "/statebook.locks/%02x" % stripe(namespace_directory("default"), sys.argv[2]), "r+b")
print(try_lock(file.fileno()), flush=True)
sys.stdin.readline()
"""


def test_a_lock_that_another_process_keeps_ends_the_wait_and_kill_frees_it(
    open_store: Any, root: Path, scope: str, python: Any
) -> None:
    store = open_store(lock_timeout_s=0.2)
    token = committed(store, scope, None, b"old")
    process = python(HOLDER, str(root), scope)
    assert process.stdout.readline() == "True\n"
    with pytest.raises(BackendUnavailable, match="lock_timeout_s"):
        store.commit(scope, token, b"new")
    head = store.read_head(scope)
    assert head is not None
    assert head.data == b"old"
    process.kill()
    process.wait()
    committed(store, scope, token, b"new")


def test_closing_twice_is_harmless_and_every_call_afterwards_says_so(
    store: JsonFileAtomicJournalStorage, scope: str
) -> None:
    store.close()
    store.close()
    for call in (
        lambda: store.read_head(scope),
        lambda: store.commit(scope, None, b""),
        lambda: store.read_blob(scope, "a"),
        lambda: store.list_blobs(scope, None, 1),
        lambda: store.delete_blobs(scope, []),
        lambda: store.list_scopes("", None, 1),
        lambda: store.delete_head(scope, "x"),
    ):
        with pytest.raises(StoreClosed):
            call()


def test_the_commits_of_a_group_wait_for_the_disk_at_once(open_store: Any) -> None:
    meets, met = Barrier(2, timeout=30), []
    waits = False

    def fsync(fd: int) -> None:
        if waits:
            met.append(meets.wait())
        os.fsync(fd)

    journals = AtomicThreadJournalStore(open_store(disk=Disk(fsync=fsync)))
    keys = [ThreadKey(None, "agent", "session", name) for name in ("a", "b")]
    assert len({stripe("default", f"t/{key.name}") for key in keys}) == 2
    claims = [journals.claim(key, "writer") for key in keys]
    batches = [Batch(f"b{n}", (Event(event_id=f"e{n}", type="x/y", occurred_at=0, payload=b"{}"),)) for n in (0, 1)]
    waits = True
    outcomes = journals.append_many(
        [AppendRequest(claim, batch, 0) for claim, batch in zip(claims, batches, strict=True)]
    )
    assert [outcome.last_seq for outcome in outcomes if isinstance(outcome, Receipt)] == [1, 1]
    assert len(met) == 4  # file and directory of each, two at a time


def test_without_flushes_a_group_starts_no_threads(root: Path) -> None:
    store = JsonFileAtomicJournalStorage(JsonFileOptions(path=str(root), durability="process"))
    assert store.commits_at_once == 1
    store.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux shows the open files")
def test_a_store_keeps_few_files_open_however_many_scopes_it_writes(open_store: Any) -> None:
    store = open_store()
    tokens: dict[str, str] = {}
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(2):
        for number in range(200):
            scope = f"t/_n/agent/session/thread{number}"
            tokens[scope] = committed(store, scope, tokens.get(scope), b"%d" % turn)
    opened = len(os.listdir("/proc/self/fd")) - before
    assert opened <= 128 + 2 * 64 + 64  # directories, heads with their marks, locks
    assert all(store.read_head(scope).data == b"1" for scope in tokens)
