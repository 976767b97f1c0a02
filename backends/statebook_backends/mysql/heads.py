"""Heads as rows: reading with verification, writing with a seal, and what is remembered between writes (HEAD-1)."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from statebook.codec import digest
from statebook.errors import JournalCorrupt, UnsupportedFormat
from statebook.keys import ThreadKey
from statebook.model import FORMAT_VERSION
from statebook.records import HeadState, JournalState
from statebook.window import Window
from statebook_backends.mysql.sql import Row

if TYPE_CHECKING:
    from statebook_backends.mysql.transactions import Transaction

JOURNALS_REMEMBERED: Final = 1_024
"""How many heads are remembered at most."""

EVENTS_REMEMBERED: Final = 1_000_000
"""How many event ids are remembered at most, of all journals together."""

SELECT_HEAD: Final = (
    "SELECT jid, user_id, agent_id, session_id, thread_id, format, journal_id, state, epoch, claim_nonce, writer_id, "
    "first_seq, generation, nonce, last_seq, checkpoint_seq, chain, seal FROM ~journal WHERE namespace = ? AND name = ?"
)
LOCK_HEAD: Final = SELECT_HEAD + " FOR UPDATE"
"""The same, and nobody else writes or locks it until the transaction ends."""
SHARE_HEAD: Final = SELECT_HEAD + " LOCK IN SHARE MODE"
"""The same, and nobody else writes it until the transaction ends."""
PACKED_HEAD: Final = (
    "CONCAT_WS(' ', jid, COALESCE(HEX(user_id), '-'), HEX(agent_id), HEX(session_id), HEX(thread_id), format, "
    "journal_id, state, epoch, COALESCE(HEX(claim_nonce), '-'), COALESCE(HEX(writer_id), '-'), first_seq, generation, "
    "nonce, last_seq, COALESCE(checkpoint_seq, '-'), chain, seal)"
)
"""The columns of a head in one; see `unpacked`."""
IS_LOST: Final = (
    "SELECT EXISTS (SELECT 1 FROM ~thread WHERE namespace = ? AND name = ?) "
    "AND NOT EXISTS (SELECT 1 FROM ~journal WHERE namespace = ? AND name = ?)"
)
"""Whether a thread has a number and no head, in one snapshot."""

_INSERT: Final = (
    "INSERT INTO ~journal (namespace, name, jid, user_id, agent_id, session_id, thread_id, format, journal_id, state, "
    "epoch, claim_nonce, writer_id, first_seq, generation, nonce, last_seq, checkpoint_seq, chain, seal) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = (
    "UPDATE ~journal SET journal_id = ?, state = ?, epoch = ?, claim_nonce = ?, writer_id = ?, first_seq = ?, "
    "generation = ?, nonce = ?, last_seq = ?, checkpoint_seq = ?, chain = ?, seal = ? WHERE jid = ?"
)
_NUMBER: Final = "INSERT INTO ~thread (namespace, name) VALUES (?, ?)"

_HeadRow: TypeAlias = tuple[
    *tuple[int, str | None, str, str, str, int, str, str, int, str | None],
    *tuple[str | None, int, int, str, int, int | None, str, str],
]

_encode = msgspec.json.Encoder().encode


class KnownHead:
    """A head as it stands in its row.

    Attributes:
        namespace: The namespace of the row.
        jid: The row.
        fixed: The part of what is sealed that appends do not change.
        head: The head.
        seal: The seal.
        window: The window of this head, where it has been loaded.
    """

    __slots__ = ("fixed", "head", "jid", "namespace", "seal", "window")

    def __init__(self, namespace: bytes, jid: int, fixed: bytes, head: HeadState, seal: str) -> None:
        self.namespace = namespace
        self.jid = jid
        self.fixed = fixed
        self.head = head
        self.seal = seal
        self.window: Window | None = None


class HeadCache:
    """The heads and windows of the journals that were written last. Safe from many threads.

    A remembered head is never believed: a write that is based on it is conditional on the row (CLAIM-2). What it holds
    is changed under the lock of the group commit only; other writers put new entries in the place of old ones. Bounded
    by journals and, whenever one is taken up, by event ids.
    """

    def __init__(self) -> None:
        self._heads: OrderedDict[str, KnownHead] = OrderedDict()
        self._lock = Lock()

    def get(self, journal_id: str) -> KnownHead | None:
        """The head of an incarnation as it was written last by this process, or None."""
        return self._heads.get(journal_id)

    def put(self, known: KnownHead) -> None:
        """Remember a head in the place of an older one; its window too, and that of the older one if it still holds."""
        with self._lock:
            heads = self._heads
            before = heads.pop(known.head.journal_id, None)
            if known.window is None and before is not None and before.window is not None:
                known.window = before.window if before.window.chain == known.head.chain else None
            heads[known.head.journal_id] = known
            more = known.window is not None and (before is None or known.window is not before.window)
            if not more and len(heads) <= JOURNALS_REMEMBERED:
                return
            held = sum([0 if each.window is None else each.window.event_count for each in heads.values()])
            while len(heads) > 1 and (len(heads) > JOURNALS_REMEMBERED or held > EVENTS_REMEMBERED):
                _, gone = heads.popitem(last=False)
                held -= 0 if gone.window is None else gone.window.event_count

    def drop(self, journal_id: str) -> None:
        """Forget a journal."""
        with self._lock:
            self._heads.pop(journal_id, None)


class Numbers:
    """The numbers of threads by their names, bounded. Believed only where the head says the same."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def get(self, name: bytes) -> int | None:
        """The number of a thread as it was read last by this process, or None."""
        return self._numbers.get(name)

    def keep(self, name: bytes, jid: int) -> None:
        """Remember the number of a thread."""
        if name not in self._numbers and len(self._numbers) >= JOURNALS_REMEMBERED:
            self._numbers.clear()
        self._numbers[name] = jid


# ------------------------------------------------------------------------------------------------------------ sealing


def seal_head(fixed: bytes, head: HeadState) -> str:
    """The seal of a head: a digest over all of its row's other columns."""
    changing = f"{head.generation} {head.nonce} {head.last_seq} {head.checkpoint_seq} {head.chain}"
    return digest(fixed + changing.encode("ascii", "replace"))


def _fixed(namespace: bytes, jid: int, head: HeadState) -> bytes:
    key = head.key
    return _encode(
        (
            namespace.decode(),
            jid,
            key.user_id,
            key.agent_id,
            key.session_id,
            key.thread_id,
            FORMAT_VERSION,
            head.journal_id,
            head.state.value,
            head.epoch,
            head.claim_nonce,
            head.writer_id,
            head.first_seq,
        )
    )


# ---------------------------------------------------------------------------------------------------------------- rows


def lost_head(tx: Transaction, namespace: bytes, key: ThreadKey) -> JournalCorrupt | None:
    """Tell a journal whose head was lost from one that was never written, where there is no head row (FORMAT-1)."""
    name = key.name.encode()
    if tx.ask(IS_LOST, namespace, name, namespace, name)[0][0] == 1:
        return missing_head(key)
    return None


def missing_head(key: ThreadKey) -> JournalCorrupt:
    """The error for a journal whose head was lost."""
    return _damaged(key, "the head of a journal that was there", "none")


def read_head(tx: Transaction, namespace: bytes, key: ThreadKey, query: str = LOCK_HEAD) -> KnownHead | None:
    """Read and verify a head inside a transaction; a tombstone too.

    Args:
        tx: The transaction.
        namespace: The namespace.
        key: The thread.
        query: With which lock it is read.

    Returns:
        The head, or None where there is no row.

    Raises:
        JournalCorrupt: The row does not match its seal or its key, or was lost (FORMAT-1).
        UnsupportedFormat: It is of another format version.
    """
    rows = tx.ask(query, namespace, key.name.encode())
    if rows:
        return head_of(rows[0], namespace, key)
    lost = lost_head(tx, namespace, key)
    if lost is not None:
        raise lost
    return None


def head_of(columns: Row, namespace: bytes, key: ThreadKey) -> KnownHead:
    """Verify a head's row.

    Args:
        columns: The row of one of the queries above.
        namespace: The namespace.
        key: The thread that was asked for.

    Returns:
        The head.

    Raises:
        JournalCorrupt: The row does not match its seal or its key (FORMAT-1).
        UnsupportedFormat: It is of another format version.
    """
    row = cast("_HeadRow", columns)
    if row[5] != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the head has format {row[5]}; this release reads format {FORMAT_VERSION}. Use a release that knows it",
            what="head",
            expected=str(FORMAT_VERSION),
            found=repr(row[5]),
            key=key.name,
            backend="mysql",
        )
    fixed = _encode((namespace.decode(), *row[:12]))
    try:
        head = HeadState(
            key,
            row[6],
            row[12],
            row[13],
            row[8],
            row[9],
            row[10],
            JournalState(row[7]),
            row[11],
            row[14],
            row[15],
            row[16],
        )
        seal = seal_head(fixed, head)
    except ValueError as error:
        raise _damaged(key, "open or deleted", repr(row[7])) from error
    if seal != row[17]:
        raise _damaged(key, str(row[17]), seal)
    if row[1:5] != (key.user_id, key.agent_id, key.session_id, key.thread_id):
        raise _damaged(key, repr(msgspec.structs.astuple(key)), repr(row[1:5]))
    return KnownHead(namespace, row[0], fixed, head, seal)


def unpacked(packed: str, key: ThreadKey) -> Row:
    """The columns that `PACKED_HEAD` has packed, for `head_of`.

    Raises:
        JournalCorrupt: They are not as many, or not of their kinds (FORMAT-1).
    """
    words = packed.split(" ")
    try:
        jid, user_id, agent_id, session_id, thread_id, version, journal_id, state, epoch, claim_nonce, *others = words
        writer_id, first_seq, generation, nonce, last_seq, checkpoint_seq, chain, seal = others
        return (
            *(int(jid), _text(user_id), _text(agent_id), _text(session_id), _text(thread_id), int(version)),
            *(journal_id, state, int(epoch), _text(claim_nonce), _text(writer_id), int(first_seq), int(generation)),
            *(nonce, int(last_seq), None if checkpoint_seq == "-" else int(checkpoint_seq), chain, seal),
        )
    except ValueError as error:
        raise _damaged(key, "18 words", repr(packed[:200])) from error


def _text(word: str) -> str | None:
    return None if word == "-" else bytes.fromhex(word).decode()


def _damaged(key: ThreadKey, expected: str, found: str) -> JournalCorrupt:
    return JournalCorrupt(
        "the head is damaged or was changed by hand; nothing is written to this journal",
        what="head",
        expected=expected,
        found=found,
        key=key.name,
        backend="mysql",
    )


def write_head(tx: Transaction, namespace: bytes, before: KnownHead | None, head: HeadState) -> KnownHead:
    """Write a head that was decided in this transaction.

    Args:
        tx: The transaction; it holds the lock of the head's row, where there is one.
        namespace: The namespace.
        before: What was read, or None where there is no row.
        head: The new head.

    Returns:
        The head as it stands in its row once the transaction is committed.
    """
    key = head.key
    jid = before.jid if before is not None else tx.insert(_NUMBER, namespace, key.name.encode())
    fixed = _fixed(namespace, jid, head)
    seal = seal_head(fixed, head)
    changing = (
        head.journal_id,
        head.state.value,
        head.epoch,
        head.claim_nonce,
        head.writer_id,
        head.first_seq,
        head.generation,
        head.nonce,
        head.last_seq,
        head.checkpoint_seq,
        head.chain,
        seal,
    )
    if before is None:
        ids = (key.user_id, key.agent_id, key.session_id, key.thread_id, FORMAT_VERSION)
        tx.change(_INSERT, namespace, key.name.encode(), jid, *ids, *changing)
    else:
        tx.change(_UPDATE, *changing, jid)
    return KnownHead(namespace, jid, fixed, head, seal)
