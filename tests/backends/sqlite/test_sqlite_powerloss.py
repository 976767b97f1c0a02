"""What a loss of power leaves while a database is made."""

import struct
from pathlib import Path

from statebook import plugins as statebook
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
