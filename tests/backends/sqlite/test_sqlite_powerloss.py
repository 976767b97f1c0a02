"""What a loss of power leaves while a database is made."""

import errno
import os
import struct
from pathlib import Path

import pytest

from statebook import BackendUnavailable, plugins as statebook
from statebook.keys import ThreadKey

JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


def test_a_database_whose_making_was_cut_short_is_opened_and_made_anew(url: str, path: Path, key: ThreadKey) -> None:
    """The journal of the making is back, as its removal was not flushed, and the log is begun."""
    statebook.open_journal(url).close()
    log = Path(f"{path}-wal")
    held = statebook.open_journal(url)
    held.claim(key, "writer")
    begun = log.read_bytes()[:32]
    held.close()
    header = JOURNAL_MAGIC + struct.pack(">IIIII", 0, 1, 0, 512, 4096)
    Path(f"{path}-journal").write_bytes(header.ljust(512, b"\0"))
    log.write_bytes(begun)
    store = statebook.open_journal(url)
    assert store.claim(key, "writer").epoch == 1
    store.close()


def test_a_directory_that_cannot_be_flushed_is_told_at_open_and_the_next_open_works(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite drops that error by itself, so the names of its files would be taken for durable."""
    flush = os.fsync

    def failing(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(fd)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(BackendUnavailable, match="cannot be flushed"):
        statebook.open_journal(url)
    statebook.open_journal(f"{url}?synchronous=normal").close()
    monkeypatch.undo()
    statebook.open_journal(url).close()
