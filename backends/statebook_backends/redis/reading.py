"""Reading a journal: its head, its newest batches, the batch behind a base, and pages of events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from statebook.codec import CHAIN_START
from statebook.errors import BackendUnavailable, JournalCorrupt
from statebook.keys import ThreadKey
from statebook.model import Receipt, RecordedEvent
from statebook.plan import check_read
from statebook.records import CursorState, HeadState, JournalState
from statebook.window import WINDOW_BATCHES
from statebook_backends.redis.batches import (
    RawBatch,
    StoredBatch,
    add_events,
    check_link,
    entries_of,
    entry_of,
    joined,
    ranged,
    window_of,
)
from statebook_backends.redis.cursors import cursors_from
from statebook_backends.redis.heads import head_from, lost_head
from statebook_backends.redis.known import JOURNALS_REMEMBERED, KnownHead
from statebook_backends.redis.layout import ThreadKeys
from statebook_backends.redis.resp import bulk, command, fields_of
from statebook_backends.redis.scripts import script

if TYPE_CHECKING:
    from statebook_backends.redis.client import Client
    from statebook_backends.redis.errors import Reply

_ENOUGH_BYTES: Final = b"16777216"
_READS_MAX: Final = 64
_GLANCE_BATCHES: Final = 16
_LARGE_BYTES: Final = 32_768


class Thread(msgspec.Struct, frozen=True):
    """Head and cursors from one moment.

    Attributes:
        known: The head, or None.
        cursors: Exporters' names and records, as they are stored.
    """

    known: KnownHead | None
    cursors: dict[bytes, bytes]

    @property
    def head(self) -> HeadState | None:
        """The head, or None."""
        return None if self.known is None else self.known.head

    def records(self, keys: ThreadKeys, key: ThreadKey) -> tuple[CursorState, ...]:
        """The cursors, verified.

        Raises:
            JournalCorrupt: One is damaged (FORMAT-1).
        """
        return cursors_from(keys, key, self.cursors)


class Anchor(msgspec.Struct, frozen=True):
    """The batch that starts right behind a base.

    Attributes:
        receipt: Its receipt.
        event_ids: The ids of its events.
    """

    receipt: Receipt
    event_ids: tuple[str, ...]


def changing(key: str, backend: str) -> BackendUnavailable:
    """The error for a journal that changes faster than it can be judged; nothing was applied."""
    return BackendUnavailable(
        "the journal changes all the time; nothing was applied, try again", key=key, backend=backend
    )


def read_thread(client: Client, keys: ThreadKeys, key: ThreadKey) -> Thread:
    """Read head and cursors.

    Raises:
        JournalCorrupt: The head is damaged, or lost: batches or cursors are there without one (FORMAT-1).
    """
    packed = keys.packed + bulk(keys.stubs) + bulk(keys.cursors)
    reply = client.read(keys.slot, script("thread", 4).call(4, packed), JournalCorrupt, keys.name)
    if not isinstance(reply, list) or len(reply) != 3:
        raise lost_head(keys.name, client.backend)
    known = head_from(keys, key, fields_of(reply[0]), client.backend)
    if known is None and reply[2] != 0:
        raise lost_head(keys.name, client.backend)
    return Thread(known, fields_of(reply[1]))


def read_newest(client: Client, keys: ThreadKeys, key: ThreadKey) -> KnownHead | None:
    """Read a head with its window, in one round trip where the newest batches are not huge (APPEND-1).

    Returns:
        The head, a tombstone too, its window loaded; or None.

    Raises:
        JournalCorrupt: Head or batches are damaged (FORMAT-1).
    """
    packed = keys.packed + bulk(keys.stubs)
    known: KnownHead | None = None
    newest: list[StoredBatch] = []
    start = b"+"
    for _ in range(_READS_MAX * 2):
        wanted = b"%d" % (WINDOW_BATCHES - len(newest))
        call = script("newest", 3).call(3, packed, start, wanted, _ENOUGH_BYTES)
        fields, sizes, text = _three(client.read(keys.slot, call, JournalCorrupt, keys.name), keys, client)
        found = head_from(keys, key, fields_of(fields), client.backend)
        if found is None:
            read_thread(client, keys, key)
            return None
        if known is not None and _batches_of(found.head) != _batches_of(known.head):
            known, newest, start = None, [], b"+"
            continue
        known = found
        more = list(entries_of(known.head, sizes, text))
        newest += more
        done = not newest or newest[-1].meta.first_seq <= 1 or len(newest) >= WINDOW_BATCHES or not more
        if known.head.state is JournalState.DELETED or done:
            if known.head.state is JournalState.OPEN:
                known.window = window_of(known.head, newest)
            return known
        start = b"(%d-0" % newest[-1].last_seq
    raise changing(keys.name, client.backend)


def _batches_of(head: HeadState) -> tuple[str, int, str]:
    """What changes in a head where its batches do, and not with a heartbeat."""
    return head.journal_id, head.first_seq, head.chain


def read_known(client: Client, keys: ThreadKeys, key: ThreadKey, journal_id: str) -> KnownHead | None:
    """Read a head with its window; the batches only where what is remembered of the journal is not its head any more.

    The batches of a window may hold gigabytes, and who settles or is answered again has mostly written them itself.

    Returns:
        The head, a tombstone too, its window loaded; or None.

    Raises:
        JournalCorrupt: Head or batches are damaged (FORMAT-1).
    """
    remembered = client.heads.get(journal_id)
    if remembered is not None and remembered.window is not None and remembered.head.key == key:
        window, now = remembered.window, read_thread(client, keys, key).known
        if now is not None and now.seal == remembered.seal and now.head.chain == window.chain:
            now.window = window
            return now
    return read_newest(client, keys, key)


def read_anchor(client: Client, keys: ThreadKeys, head: HeadState, base_seq: int) -> Anchor | None:
    """Read the batch that starts right behind a base (APPEND-1).

    Returns:
        The batch, or None where none starts there, or where it was trimmed away.

    Raises:
        JournalCorrupt: The batch is damaged (FORMAT-1).
        BackendUnavailable: The journal was replaced meanwhile.
    """
    call = script("anchor", 2).call(2, keys.packed, b"%d" % base_seq)
    journal_id, behind, before = _three(client.read(keys.slot, call, JournalCorrupt, keys.name), keys, client)
    if journal_id != head.journal_id.encode():
        raise changing(keys.name, client.backend)
    if not isinstance(behind, list) or not behind:
        return None
    batch = entry_of(head, behind[0])
    if batch.meta.first_seq != base_seq + 1:
        return None
    if base_seq == 0:
        check_link(head, CHAIN_START, batch, head.chain)
    elif isinstance(before, list) and before:
        check_link(head, entry_of(head, before[0]).meta.chain, batch, head.chain)
    return Anchor(batch.receipt(head.journal_id), batch.event_ids(head))


def read_page(
    client: Client, keys: ThreadKeys, key: ThreadKey, seq: int, limit: int
) -> tuple[HeadState | None, list[RecordedEvent]]:
    """Read and verify a page of events: a prefix of one head (READ-1 to READ-3).

    Args:
        client: The client.
        keys: The keys of the thread.
        key: The thread.
        seq: Events behind this one.
        limit: How many.

    Returns:
        The head and the events.

    Raises:
        JournalRegressed: The journal ends before `seq`.
        Trimmed: The events are gone.
        JournalCorrupt: A batch is missing or damaged (FORMAT-1).
    """
    first: HeadState | None = None
    events: list[RecordedEvent] = []
    last = seq
    for _ in range(limit + _READS_MAX):
        known, batches = _behind(client, keys, key, last, seq + limit)
        if known is None:
            read_thread(client, keys, key)
        head = None if known is None else known.head
        if first is not None and (head is None or head.journal_id != first.journal_id or last < head.first_seq - 1):
            first, events, last = None, [], seq  # replaced or trimmed between two reads of one page
            continue
        wrong = check_read(head, key, seq)
        if wrong is not None:
            raise wrong
        if head is None or head.state is JournalState.DELETED:
            return head, []
        first = first or head
        before = last
        last = add_events(head, batches, seq, limit, last, events)
        want = min(seq + limit, first.last_seq)
        if last >= want:
            return first, events[: want - seq]  # what has come since the first read is left out (READ-2)
        if last == before:
            raise JournalCorrupt(
                f"a batch is missing at seq {last + 1}",
                what="batch",
                expected=f"events up to {head.last_seq}",
                found=f"up to {last}",
                key=keys.name,
                backend=client.backend,
            )
    raise changing(keys.name, client.backend)


def _behind(
    client: Client, keys: ThreadKeys, key: ThreadKey, last: int, high: int
) -> tuple[KnownHead | None, Iterable[RawBatch]]:
    """Read batches behind a seq together with their head: up to the one that holds `high`, or as many as fit."""
    large = client.heads.large
    if keys.name in large:
        glanced = _glance(client, keys, key, last, high)
        if glanced is not None:
            return glanced
        large.discard(keys.name)
    call = script("read", 2).call(2, keys.packed, b"%d" % last, b"%d" % high, _ENOUGH_BYTES)
    fields, sizes, text = _three(client.read(keys.slot, call, JournalCorrupt, keys.name), keys, client)
    known = head_from(keys, key, fields_of(fields), client.backend)
    if known is None:
        return None, ()
    few = isinstance(sizes, bytes) and sizes.count(b"\n") < _GLANCE_BATCHES
    if few and isinstance(text, bytes) and len(text) >= _LARGE_BYTES and len(large) < JOURNALS_REMEMBERED:
        large.add(keys.name)
    return known, joined(known.head, sizes, text)


def _glance(
    client: Client, keys: ThreadKeys, key: ThreadKey, last: int, high: int
) -> tuple[KnownHead, Iterable[RawBatch]] | None:
    """Read a few large batches and their head by plain commands: a script copies what it gives several times.

    The commands are not of one moment. Batches never change; what was read before and after them says the same of
    incarnation and `first_seq`, so that they were not replaced or trimmed in between (READ-2).

    Returns:
        None where the batches are too many, or head and batches were not read so that they belong together.
    """
    names = (b"journal_id", b"state", b"first_seq")
    start, end = b"(%d-0" % last, b"(%d-0" % high
    replies = client.glance(
        keys.slot,
        command(b"HGETALL", keys.head)
        + command(b"XRANGE", keys.batches, start, end, b"COUNT", b"%d" % _GLANCE_BATCHES)
        + command(b"XRANGE", keys.batches, b"%d-0" % high, b"+", b"COUNT", b"1")
        + command(b"HMGET", keys.head, *names),
        4,
    )
    if replies is None:
        return None
    before, within, behind, after = replies
    fields = fields_of(before)
    if not isinstance(within, list) or not isinstance(behind, list) or len(within) == _GLANCE_BATCHES:
        return None
    if not fields or after != [fields.get(name) for name in names]:
        return None
    known = head_from(keys, key, fields, client.backend)
    if known is None:
        return None
    batches = list(ranged(known.head, [*within, *behind]))
    if batches and _seq_of(batches[-1][0]) > known.head.last_seq:
        return None  # one was appended meanwhile
    return known, batches


def _seq_of(name: bytes) -> int:
    seq = name.partition(b"-")[0]
    return int(seq) if seq.isdigit() else 0


def _three(reply: Reply, keys: ThreadKeys, client: Client) -> tuple[Reply, Reply, Reply]:
    if isinstance(reply, list) and len(reply) == 3:
        return reply[0], reply[1], reply[2]
    raise changing(keys.name, client.backend)
