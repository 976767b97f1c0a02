"""What may be opened, and what is refused with nothing changed (ATOM-7, ERR-6)."""

import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statebook import (
    BackendUnavailable,
    Durability,
    Feature,
    InvalidConfiguration,
    Sharing,
    StoreClosed,
    ThreadKey,
    UnsupportedFormat,
)
from statebook.plugins import load_backend, open_atomic, open_journal, open_state
from statebook_backends.sqlite.errors import DriverError
from statebook_backends.sqlite.options import SqliteOptions
from statebook_backends.sqlite.store import FileSettings, open_reader, open_writer


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///relative.db", "relative.db"),
        ("sqlite:////absolute/file.db", "/absolute/file.db"),
        ("sqlite:///with%20space%3F.db", "with space?.db"),
    ],
)
def test_the_path_is_what_follows_the_third_slash(url: str, path: str) -> None:
    options = load_backend(url).options
    assert isinstance(options, SqliteOptions)
    assert options.path == path


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://host/file.db", "three slashes"),
        ("sqlite://user:secret@/file.db", "three slashes"),
        ("sqlite:///file.db?path=other", "URL itself"),
        ("sqlite:///file.db?synchronous=off", "'full', 'normal' or 'extra'"),
        ("sqlite:///file.db?busy_timeout_ms=-1", "greater than or equal to 0"),
        ("sqlite:///file.db?timeout=1", "busy_timeout_ms"),
    ],
)
def test_a_wrong_url_names_the_remedy_and_no_secret(url: str, remedy: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load_backend(url)
    assert remedy in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "path" not in str(caught.value).partition("it takes")[2]


def test_a_missing_directory_and_a_directory_in_the_place_of_the_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="create it"):
        open_journal(f"sqlite:///{tmp_path}/missing/store.db")
    with pytest.raises(InvalidConfiguration, match="no regular file"):
        open_journal(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"this is a text and no database\n" * 100, b"SQLite format 3", b"x"])
def test_a_file_that_is_no_database_is_refused_and_kept(path: Path, url: str, content: bytes) -> None:
    path.write_bytes(content)
    for opening in (open_journal, open_state, open_atomic):
        with pytest.raises(InvalidConfiguration, match="not an SQLite database"):
            opening(url)
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_of_another_application_is_refused_and_its_bytes_are_kept(path: Path, url: str, mode: str) -> None:
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA journal_mode = {mode}")
    other.execute("CREATE TABLE notes (text)")
    other.execute("INSERT INTO notes VALUES ('mine')")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(InvalidConfiguration, match="another application"):
        open_state(url)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_log_of_another_applications_database_is_not_checkpointed(path: Path, url: str) -> None:
    other = sqlite3.connect(path)
    other.execute("PRAGMA journal_mode = wal")
    other.execute("CREATE TABLE notes (text)")
    other.commit()
    log = path.with_name(path.name + "-wal")
    before = path.read_bytes(), log.read_bytes()
    with pytest.raises(InvalidConfiguration, match="another application"):
        open_state(url)
    assert (path.read_bytes(), log.read_bytes()) == before
    other.close()


def test_a_database_of_another_format_is_refused_by_its_version(
    path: Path, url: str, raw: Callable[..., list[Any]]
) -> None:
    open_journal(url).close()
    raw("PRAGMA user_version = 3")
    with pytest.raises(UnsupportedFormat, match="format 3"):
        open_journal(url)
    assert raw("PRAGMA user_version") == [(3,)]


def test_the_file_says_whose_it_is_and_how_it_is_kept(url: str, raw: Callable[..., list[Any]]) -> None:
    open_journal(url).close()
    assert raw("PRAGMA application_id") == [(0x53544244,)]
    assert raw("PRAGMA user_version") == [(2,)]
    assert raw("PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize(("synchronous", "number"), [("full", 2), ("normal", 1), ("extra", 3)])
def test_the_writer_syncs_as_the_option_says(path: Path, synchronous: str, number: int) -> None:
    connection = open_writer(FileSettings(str(path), synchronous, 5_000))
    assert connection.execute("PRAGMA synchronous").fetchone() == (number,)
    assert connection.isolation_level is None
    connection.close()


def test_readers_cannot_write(path: Path) -> None:
    settings = FileSettings(str(path), "full", 5_000)
    open_writer(settings).close()
    reader = open_reader(settings)
    with pytest.raises(DriverError, match="readonly"):
        reader.execute("DELETE FROM journal")
    reader.close()


def test_full_declares_the_host_and_normal_the_process(url: str) -> None:
    store = open_journal(url, require=[Durability.HOST, Sharing.HOST, Feature.PURGE, Feature.RECEIPTS_KEPT])
    assert store.capabilities.durability_setting == "synchronous=FULL, journal_mode=WAL"
    assert dict(store.capabilities.server)["sqlite"] == sqlite3.sqlite_version
    store.close()
    store = open_journal(f"{url}?synchronous=normal")
    assert store.capabilities.durability is Durability.PROCESS
    store.close()


def test_a_closed_store_refuses_every_call_and_another_one_goes_on(url: str, key: ThreadKey) -> None:
    first, second = open_journal(url), open_journal(url)
    first.close()
    first.close()
    for call in (lambda: first.head(key), lambda: first.claim(key, "w"), lambda: first.read_after(key, 0)):
        with pytest.raises(StoreClosed):
            call()
    assert second.claim(key, "w").epoch == 1
    second.close()


def _open_files(path: Path) -> int:
    found = 0
    for entry in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{entry}").startswith(str(path))
        except FileNotFoundError:
            continue
    return found


def test_stores_of_one_process_share_one_writer_and_leave_no_file_open(path: Path, url: str) -> None:
    stores: list[Any] = [open_journal(url), open_state(url), open_atomic(url), open_journal(f"{url}?namespace=other")]
    one = _open_files(path)
    stores += [open_state(url) for _ in range(8)]
    assert _open_files(path) == one
    for store in stores:
        store.close()
    assert _open_files(path) == 0
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_link_to_the_file_opens_the_same_store(path: Path, url: str, key: ThreadKey) -> None:
    store = open_journal(url)
    store.claim(key, "w")
    link = path.with_name("link.db")
    link.symlink_to(path)
    other = open_journal(f"sqlite:///{link}")
    head = other.head(key)
    assert head is not None
    assert head.epoch == 1
    other.close()
    store.close()


def test_a_new_file_in_the_place_of_an_open_one_is_a_store_of_its_own(path: Path, url: str, key: ThreadKey) -> None:
    old = open_journal(url)
    old.claim(key, "w")
    path.rename(path.with_name("moved.db"))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).rename(path.with_name("moved.db" + suffix))
    new = open_journal(url)
    assert new.head(key) is None
    with pytest.raises(BackendUnavailable, match="moved"):
        old.head(key)
    new.close()
    old.close()


def test_a_file_that_cannot_be_written_is_refused(path: Path, url: str) -> None:
    open_journal(url).close()
    path.chmod(stat.S_IRUSR)
    try:
        if os.access(path, os.W_OK):
            # The superuser may write everything.
            store = open_journal(url)
            assert store.capabilities.backend == "sqlite"
            store.close()
        else:
            with pytest.raises(InvalidConfiguration, match="permissions"):
                open_journal(url)
    finally:
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_destroying_a_namespace_leaves_the_others_and_no_row_of_its_own(
    url: str, key: ThreadKey, raw: Callable[..., list[Any]]
) -> None:
    from statebook import StateKey

    for namespace in ("one", "two"):
        where = f"{url}?namespace={namespace}"
        journal, state, atomic = open_journal(where), open_state(where), open_atomic(where)
        journal.claim(key, "w")
        journal.open_cursor(key, "x")
        state.save(StateKey("u", "s", "k"), b"1")
        state.append_list(StateKey("u", "s", "k"), [b"1"], expected_length=0)
        atomic.commit("t/a", None, b"head", {"blob": b"1"})
        for store in (journal, state, atomic):
            store.close()
    assert load_backend(f"{url}?namespace=one").destroy_namespace() is True
    tables = ["thread", "journal", "slot", "atomic_head", "atomic_blob"]
    assert {row[0] for table in tables for row in raw(f"SELECT namespace FROM {table}")} == {"two"}
    assert [raw(f"SELECT count(*) FROM {table}") for table in ("cursor", "chunk")] == [[(1,)], [(1,)]]
