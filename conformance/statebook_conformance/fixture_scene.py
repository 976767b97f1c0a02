"""What a fixture of the format holds: written through the contract, and seen again through it (FORMAT-4).

What is seen is found by listings, so that a later release of the suite checks the fixtures of an earlier one whatever
that one wrote. What can only be done once, such as sending a batch again, is kept as what a writer holds.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from statebook.journal import ThreadJournalStore
from statebook.keys import SessionKey, StateKey, ThreadKey, ThreadScope
from statebook.model import (
    PAGE_MAX,
    Batch,
    Event,
    ExportCursor,
    JournalHead,
    KeyPage,
    Receipt,
    SlotKind,
    WriterClaim,
)
from statebook.state import AgentStateStore

USERS: Final = ("user", "Üser/..", None)
"""Whose data is looked at."""

_PLAIN: Final = ThreadKey("user", "agent", "session", "plain")
_TRIMMED: Final = ThreadKey("user", "agent", "session", "trimmed")
_DEEP: Final = ThreadKey("user", "agent", "session", "deep")
_RELEASED: Final = ThreadKey("user", "agent", "session 2", "released")
_DELETED: Final = ThreadKey("user", "agent", "session", "deleted")
_AGAIN: Final = ThreadKey("user", "agent", "session", "again")
_ODD: Final = ThreadKey(None, "É\u0301", "..", "x%" * 256)
_LARGE: Final = 66_000
_DEEP_BATCHES: Final = 70
_PAYLOADS: Final = (
    b"{}",
    b"[]",
    b'""',
    b"null",
    b"-0.0",
    b"123456789012345678901234567890",
    b'{"a":{"b":[1,2.5,"\\u0000",true]}}',
    '"é, 𝄞 and ﬀ"'.encode(),
)


class SeenEvent(msgspec.Struct, frozen=True):
    """One event, its payload as length and SHA-256."""

    seq: int
    event_id: str
    type: str
    occurred_at: int
    run_id: str | None
    turn_id: str | None
    required: bool
    schema_version: int
    bytes: int
    sha256: str


class SeenThread(msgspec.Struct, frozen=True):
    """One journal: its head and its events."""

    head: JournalHead
    events: tuple[SeenEvent, ...]


class SeenDocument(msgspec.Struct, frozen=True):
    """One live document."""

    slot: StateKey
    value: bytes
    version: int


class SeenList(msgspec.Struct, frozen=True):
    """One live list."""

    slot: StateKey
    items: tuple[bytes, ...]
    version: int


class Seen(msgspec.Struct, frozen=True):
    """All that readers find."""

    threads: tuple[SeenThread, ...]
    sessions: tuple[SessionKey, ...]
    documents: tuple[SeenDocument, ...]
    lists: tuple[SeenList, ...]


class HeldJournal(msgspec.Struct, frozen=True):
    """What the writer of a journal holds.

    Attributes:
        claim: Its claim.
        batch: A batch that it has appended.
        receipt: The receipt of that.
    """

    claim: WriterClaim
    batch: Batch
    receipt: Receipt


class DeletedSlot(msgspec.Struct, frozen=True):
    """A slot that was deleted, and the last version that was issued for it."""

    slot: StateKey
    kind: SlotKind
    version: int


class Held(msgspec.Struct, frozen=True):
    """What writers and exporters hold when the release is exchanged.

    Attributes:
        journals: Claims that still hold.
        cursors: Cursors that can still be advanced.
        deleted: For each deleted journal a claim of its last incarnation.
        lost_cursors: Cursors of deleted journals.
        slots: Slots that were deleted.
    """

    journals: tuple[HeldJournal, ...]
    cursors: tuple[ExportCursor, ...]
    deleted: tuple[WriterClaim, ...]
    lost_cursors: tuple[ExportCursor, ...]
    slots: tuple[DeletedSlot, ...]


class Expected(msgspec.Struct, frozen=True):
    """What a fixture must show."""

    seen: Seen
    held: Held


# -------------------------------------------------------------------------------------------------------------- seeing


def see(journal: ThreadJournalStore, state: AgentStateStore) -> Seen:
    """Read all that there is, through listings.

    Args:
        journal: The journal store.
        state: The state store.

    Returns:
        All of it.
    """
    threads: list[SeenThread] = []
    sessions: list[SessionKey] = []
    documents: list[SeenDocument] = []
    lists: list[SeenList] = []
    for user in USERS:
        for key in journal.list_threads(ThreadScope(user), limit=PAGE_MAX).threads:
            head = journal.head(key)
            if head is not None:
                threads.append(SeenThread(head, _events(journal, head)))
        for session in state.list_sessions(user, limit=PAGE_MAX).sessions:
            sessions.append(session)
            for slot in _keys(state, session, SlotKind.DOCUMENT).keys:
                loaded = state.load(slot)
                if loaded is not None:
                    documents.append(SeenDocument(slot, loaded.value, loaded.version))
            for slot in _keys(state, session, SlotKind.LIST).keys:
                found = state.load_list(slot)
                if found is not None:
                    lists.append(SeenList(slot, found.items, found.version))
    return Seen(tuple(threads), tuple(sessions), tuple(documents), tuple(lists))


def _keys(state: AgentStateStore, session: SessionKey, kind: SlotKind) -> KeyPage:
    return state.list_keys(session, kind=kind, limit=PAGE_MAX)


def _events(journal: ThreadJournalStore, head: JournalHead) -> tuple[SeenEvent, ...]:
    page = journal.read_after(head.key, head.first_seq - 1, PAGE_MAX)
    return tuple(
        SeenEvent(
            event.seq,
            event.event_id,
            event.type,
            event.occurred_at,
            event.run_id,
            event.turn_id,
            event.required,
            event.schema_version,
            len(event.payload),
            hashlib.sha256(event.payload).hexdigest(),
        )
        for event in page.events
    )


# ------------------------------------------------------------------------------------------------------------- writing


def write_scene(journal: ThreadJournalStore, state: AgentStateStore) -> Held:
    """Write what a fixture holds into an empty namespace.

    Args:
        journal: The journal store.
        state: The state store.

    Returns:
        What the writers hold.
    """
    plain = _write(journal, _PLAIN, [_varied(f"b{number}") for number in range(3)])
    cursor = journal.advance_cursor(journal.open_cursor(_PLAIN, "exporter"), 9)
    other = journal.open_cursor(_PLAIN, "späte 😀")
    trimmed = _write(journal, _TRIMMED, [_batch(f"b{number}", 3, checkpoint=number == 6) for number in range(12)])
    journal.open_cursor(_TRIMMED, "exporter")
    passed = journal.reset_cursor(_TRIMMED, "exporter", 30, expected_version=1)
    journal.trim(_TRIMMED, 11)
    deep = _write(journal, _DEEP, [_batch(f"b{number}", 1, size=_LARGE) for number in range(_DEEP_BATCHES)])
    odd = _write(journal, _ODD, [_batch("one", 2), _batch("two", 1, checkpoint=True)])
    for writer in ("first", "second"):
        _write(journal, _RELEASED, [_batch(writer, 2)], writer)
    released = journal.claim(_RELEASED, "third")
    journal.release(released)
    deleted, lost = _delete(journal, _DELETED)
    _delete(journal, _AGAIN)
    again = _write(journal, _AGAIN, [_batch("next", 2)])
    return Held(
        journals=(plain, trimmed, deep, odd, again),
        cursors=(cursor, other, passed),
        deleted=(deleted,),
        lost_cursors=(lost,),
        slots=_write_state(state),
    )


def _write(
    journal: ThreadJournalStore, key: ThreadKey, batches: list[Batch], writer: str = "writer, of the fixture"
) -> HeldJournal:
    claim = journal.claim(key, writer)
    base = claim.last_seq
    receipts = []
    for batch in batches:
        receipts.append(journal.append(claim, batch, base))
        base = receipts[-1].last_seq
    return HeldJournal(claim, batches[-1], receipts[-1])


def _delete(journal: ThreadJournalStore, key: ThreadKey) -> tuple[WriterClaim, ExportCursor]:
    held = _write(journal, key, [_batch("gone", 3)])
    cursor = journal.advance_cursor(journal.open_cursor(key, "exporter"), 2)
    journal.delete(key)
    return held.claim, cursor


def _write_state(state: AgentStateStore) -> tuple[DeletedSlot, ...]:
    for user in USERS:
        state.save(StateKey(user, "session", "document"), b'{"written":"once"}')
    document = StateKey("user", "session", "document")
    for number in range(5):
        state.save(document, b'{"written":%d}' % number)
    for number, value in enumerate(_PAYLOADS):
        state.save(StateKey("user", "values", f"k{number}"), value)
    state.save(StateKey("user", "values", "large"), b'"%s"' % (b"large " * 20_000))
    items = StateKey("user", "session", "list")
    for number in range(3):
        state.append_list(items, (b"%d" % number, b'"item"'), expected_length=2 * number)
    state.replace_list(StateKey("user", "session", "replaced"), _PAYLOADS)
    state.replace_list(StateKey("user", "session", "replaced"), _PAYLOADS[::-1])
    state.replace_list(StateKey("user", "session", "empty"), ())
    gone = StateKey("user", "session", "gone")
    state.save(gone, b"1")
    version = state.save(gone, b"2")
    state.delete(gone)
    listed = state.append_list(gone, (b"1", b"2"), expected_length=0)
    state.delete(gone, kind=SlotKind.LIST)
    ended = StateKey("user", "ended", "document")
    last = state.save(ended, b"1")
    state.delete_session(SessionKey("user", "ended"))
    return (
        DeletedSlot(gone, SlotKind.DOCUMENT, version),
        DeletedSlot(gone, SlotKind.LIST, listed),
        DeletedSlot(ended, SlotKind.DOCUMENT, last),
    )


def _varied(name: str) -> Batch:
    """A batch of events of all kinds of payloads and members."""
    return Batch(
        name,
        tuple(
            Event(
                event_id=f"{name}/é{number}",
                type="run/step",
                occurred_at=1_700_000_000_000 + number,
                payload=payload,
                run_id="run" if number % 2 else None,
                turn_id="turn" if number % 3 else None,
                required=number % 4 == 0,
            )
            for number, payload in enumerate(_PAYLOADS)
        ),
    )


def _batch(name: str, events: int, *, size: int = 10, checkpoint: bool = False) -> Batch:
    filling = (f"{name} " * (size // (len(name) + 1) + 1))[:size]
    return Batch(
        name,
        tuple(
            Event(
                event_id=f"{name}.{number}",
                type="state/checkpoint" if checkpoint and number == events - 1 else "run/step",
                occurred_at=1_700_000_000_000,
                payload=f'{{"text":"{filling}"}}'.encode(),
            )
            for number in range(events)
        ),
    )
