"""Heads as rows: reading with verification, writing with a seal, and what is remembered between writes (HEAD-1)."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from statebook.errors import JournalCorrupt, UnsupportedFormat
from statebook.keys import ThreadKey
from statebook.model import FORMAT_VERSION
from statebook.records import HeadState, JournalState
from statebook.window import Window

if TYPE_CHECKING:
    from sqlite3 import Cursor

JOURNALS_REMEMBERED: Final = 1_024
"""How many heads are remembered at most."""

EVENTS_REMEMBERED: Final = 1_000_000
"""How many event ids are remembered at most, of all journals together."""

_SELECT: Final = (
    "SELECT jid, user_id, agent_id, session_id, thread_id, format, journal_id, state, epoch, claim_nonce, writer_id, "
    "first_seq, generation, nonce, last_seq, checkpoint_seq, chain, seal FROM journal WHERE namespace = ? AND name = ?"
)
_INSERT: Final = (
    "INSERT INTO journal (namespace, name, jid, user_id, agent_id, session_id, thread_id, format, journal_id, state, "
    "epoch, claim_nonce, writer_id, first_seq, generation, nonce, last_seq, checkpoint_seq, chain, seal) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = (
    "UPDATE journal SET journal_id = ?, state = ?, epoch = ?, claim_nonce = ?, writer_id = ?, first_seq = ?, "
    "generation = ?, nonce = ?, last_seq = ?, checkpoint_seq = ?, chain = ?, seal = ? WHERE jid = ?"
)
_LOST: Final = "SELECT 1 FROM thread WHERE namespace = ? AND name = ?"
_NEXT_JID: Final = (
    "SELECT max(coalesce((SELECT max(jid) FROM thread), 0), coalesce((SELECT max(jid) FROM journal), 0), "
    "coalesce((SELECT max(jid) FROM batch), 0)) + 1"
)
_NAME_JID: Final = "INSERT INTO thread (jid, namespace, name) VALUES (?, ?, ?)"

_encode = msgspec.json.Encoder().encode


class Sealing(Protocol):
    """What is needed of a hash object."""

    def copy(self) -> Sealing:
        """A hash that has seen the same."""
        ...

    def update(self, data: bytes, /) -> None:
        """Show it more."""
        ...

    def hexdigest(self) -> str:
        """The digest of all that it has seen."""
        ...


class KnownHead:
    """A head as it stands in its row.

    Attributes:
        namespace: The namespace of the row.
        jid: The row.
        head: The head.
        seal: The seal.
        sealing: A hash that has seen the part of what is sealed that appends do not change.
        window: The window of this head, where it has been loaded.
    """

    __slots__ = ("head", "jid", "namespace", "seal", "sealing", "window")

    def __init__(self, namespace: str, jid: int, sealing: Sealing, head: HeadState, seal: str) -> None:
        self.namespace = namespace
        self.jid = jid
        self.sealing = sealing
        self.head = head
        self.seal = seal
        self.window: Window | None = None


class HeadCache:
    """The heads and windows of the journals that were written last. Used under the writer's lock only.

    A remembered head is never believed: a write that is based on it is conditional on the row (CLAIM-2). Bounded by
    journals and, whenever one is taken up, by event ids.
    """

    def __init__(self) -> None:
        self._heads: OrderedDict[str, KnownHead] = OrderedDict()

    def get(self, journal_id: str) -> KnownHead | None:
        """The head of an incarnation as it was written last by this process, or None."""
        return self._heads.get(journal_id)

    def put(self, known: KnownHead) -> None:
        """Remember a head in the place of an older one; its window too, and that of the older one if it still holds."""
        heads = self._heads
        before = heads.pop(known.head.journal_id, None)
        if known.window is None and before is not None and before.window is not None:
            known.window = before.window if before.window.chain == known.head.chain else None
        heads[known.head.journal_id] = known
        if known.window is None and len(heads) <= JOURNALS_REMEMBERED:
            return
        held = sum([0 if each.window is None else each.window.event_count for each in heads.values()])
        while len(heads) > 1 and (len(heads) > JOURNALS_REMEMBERED or held > EVENTS_REMEMBERED):
            _, gone = heads.popitem(last=False)
            held -= 0 if gone.window is None else gone.window.event_count

    def drop(self, journal_id: str) -> None:
        """Forget a journal."""
        self._heads.pop(journal_id, None)

    def clear(self) -> None:
        """Forget everything, as after a rollback."""
        self._heads.clear()


# ------------------------------------------------------------------------------------------------------------ sealing


def seal_head(sealing: Sealing, head: HeadState) -> str:
    """The seal of a head: a digest over all of its row's other columns.

    Args:
        sealing: A hash that has seen what appends do not change; it stays as it is.
        head: The head.

    Returns:
        The seal.
    """
    changing = f"{head.generation} {head.nonce} {head.last_seq} {head.checkpoint_seq} {head.chain}"
    hashed = sealing.copy()
    hashed.update(changing.encode())
    return hashed.hexdigest()


def _sealing(namespace: str, jid: int, head: HeadState) -> Sealing:
    key = head.key
    fixed = _encode(
        (
            namespace,
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
    return hashlib.sha256(fixed)


# ---------------------------------------------------------------------------------------------------------------- rows


class HeadsRead:
    """The rows of heads that a store's readers verified last: the same row again is the same head (FORMAT-1).

    Safe from many threads, which only ever look at what is remembered.
    """

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[ThreadKey, tuple[tuple[object, ...], KnownHead]] = {}

    def get(self, key: ThreadKey, row: tuple[object, ...]) -> KnownHead | None:
        """The head of a row that was verified as it is, or None."""
        found = self._heads.get(key)
        return found[1] if found is not None and found[0] == row else None

    def put(self, key: ThreadKey, row: tuple[object, ...], known: KnownHead) -> None:
        """Remember a row that was verified."""
        if len(self._heads) >= JOURNALS_REMEMBERED:
            self._heads.clear()
        self._heads[key] = (row, known)


def read_head(cursor: Cursor, namespace: str, key: ThreadKey, remembered: HeadsRead | None = None) -> KnownHead | None:
    """Read and verify a head, a tombstone too.

    Args:
        cursor: Inside a transaction.
        namespace: The namespace.
        key: The thread.
        remembered: What was verified before, for readers: they change nothing of what they are given.

    Returns:
        The head, or None where there is no row.

    Raises:
        JournalCorrupt: The row does not match its seal or its key (FORMAT-1).
        UnsupportedFormat: It is of another format version.
    """
    name = key.name
    row = cursor.execute(_SELECT, (namespace, name)).fetchone()
    if row is None:
        if cursor.execute(_LOST, (namespace, name)).fetchone() is not None:
            raise _damaged(key, "the head of a journal that was there", "none")
        return None
    if remembered is not None:
        seen = remembered.get(key, row)
        if seen is not None:
            return seen
    if row[5] != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the head has format {row[5]}; this release reads format {FORMAT_VERSION}. Use a release that knows it",
            what="head",
            expected=str(FORMAT_VERSION),
            found=repr(row[5]),
            key=key.name,
            backend="sqlite",
        )
    sealing = hashlib.sha256(_encode((namespace, *row[:12])))
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
        seal = seal_head(sealing, head)
    except ValueError as error:
        raise _damaged(key, "open or deleted", repr(row[7])) from error
    if seal != row[17]:
        raise _damaged(key, str(row[17]), seal)
    if row[1:5] != (key.user_id, key.agent_id, key.session_id, key.thread_id):
        raise _damaged(key, repr(msgspec.structs.astuple(key)), repr(row[1:5]))
    known = KnownHead(namespace, row[0], sealing, head, seal)
    if remembered is not None:
        remembered.put(key, row, known)
    return known


def _damaged(key: ThreadKey, expected: str, found: str) -> JournalCorrupt:
    return JournalCorrupt(
        "the head is damaged or was changed by hand; nothing is written to this journal",
        what="head",
        expected=expected,
        found=found,
        key=key.name,
        backend="sqlite",
    )


def write_head(cursor: Cursor, namespace: str, before: KnownHead | None, head: HeadState) -> KnownHead:
    """Write a head that was decided in this transaction.

    Args:
        cursor: Inside a transaction that holds the write lock.
        namespace: The namespace.
        before: What was read, or None where there is no row.
        head: The new head.

    Returns:
        The head as it stands in its row now.
    """
    jid = before.jid if before is not None else _new_row(cursor, namespace, head.key)
    sealing = _sealing(namespace, jid, head)
    seal = seal_head(sealing, head)
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
        key = head.key
        ids = (namespace, key.name, jid, key.user_id, key.agent_id, key.session_id, key.thread_id, FORMAT_VERSION)
        cursor.execute(_INSERT, ids + changing)
    else:
        cursor.execute(_UPDATE, (*changing, jid))
    return KnownHead(namespace, jid, sealing, head, seal)


def _new_row(cursor: Cursor, namespace: str, key: ThreadKey) -> int:
    """Give a thread its number."""
    jid: int = cursor.execute(_NEXT_JID).fetchone()[0]
    cursor.execute(_NAME_JID, (jid, namespace, key.name))
    return jid
