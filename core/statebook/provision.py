"""Begin a journal: with a first state, with another journal's checkpoint, or with what can be read of a damaged one."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, cast

import msgspec

from statebook.codec import Json, decode_value, encode_batch, encode_value
from statebook.errors import DataError, HeadConflict, InvalidValue, JournalNotFound, Trimmed, WriterBusy
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import NONE, Batch, Event, Finding, JournalHead, RecordedEvent, check_page
from statebook.patience import PATIENCE, Patience
from statebook.thread import ThreadJournal, wall_clock_ms

INITIALIZED: Final = "state/initialized"
"""The type of the event that an initialised journal begins with. It is a checkpoint (APPEND-6)."""

_BATCH_OVERHEAD_BYTES: Final = 4_096


class Initialized(msgspec.Struct, frozen=True):
    """What `initialize` and `fork` did, or found done (LIFE-6).

    Attributes:
        key: The target.
        journal_id: Its incarnation.
        event_id: The id of its first event; the same initialisation has the same one.
        replayed: True where this initialisation had been made before this call.
    """

    key: ThreadKey
    journal_id: str
    event_id: str
    replayed: bool


class SalvageReport(msgspec.Struct, frozen=True):
    """What `salvage` copied, and what it could not read (FORMAT-3).

    Attributes:
        source: The damaged journal, unchanged.
        target: The copy.
        first_seq: The first seq of the source that was copied; 0 where nothing was.
        last_seq: The last seq of the source that was copied; 0 where nothing was.
        source_last_seq: The last seq of the source by its head, or None where the head cannot be read.
        findings: Where reading ended, and everything that `verify` found.
    """

    source: ThreadKey
    target: ThreadKey
    first_seq: int
    last_seq: int
    source_last_seq: int | None
    findings: tuple[Finding, ...]

    @property
    def complete(self) -> bool:
        """Whether all events that the source's head names were copied."""
        return self.last_seq == self.source_last_seq


# -------------------------------------------------------------------------------------------------------- initialise


def initialize(
    store: ThreadJournalStore,
    key: ThreadKey,
    writer_id: str,
    state: Mapping[str, Json],
    *,
    provenance: Mapping[str, Json],
    clock_ms: Callable[[], int] = wall_clock_ms,
    sleep: Callable[[float], None] = time.sleep,
    patience: Patience = PATIENCE,
) -> Initialized:
    """Begin a journal with a state: one `state/initialized` event, in a target that is empty and free.

    Guarantees LIFE-6: the same initialisation again, by content, is recognised and writes nothing. The claim is
    released at the end.

    Args:
        store: An open store.
        key: The target.
        writer_id: Who initialises.
        state: The payload of a checkpoint, without `provenance`.
        provenance: Where the state comes from: the payload's member `provenance`.
        clock_ms: Unix time in milliseconds, for the event. No part of what is recognised.
        sleep: Waits so many seconds before a call is sent again.
        patience: How often and how patiently.

    Returns:
        What was done, or found done.

    Raises:
        HeadConflict: The target holds something else.
        WriterBusy: Another writer holds the target.
        InvalidValue: The state or its provenance is no such value, or the state has a member `provenance`.
        LimitExceeded: It is too large.
        BackendUnavailable: Nothing was initialised.
        OutcomeUnknown: It may have been; initialise again.
    """
    if "provenance" in state:
        raise InvalidValue("a state to be initialised has no member 'provenance' of its own; give it as an argument")
    payload = encode_value({**state, "provenance": dict(provenance)})
    event_id = _event_id(key, payload)
    found = _recognised(store, key, event_id)
    if found is not None:
        return found
    with ThreadJournal(store, key, clock_ms=clock_ms, sleep=sleep, patience=patience) as journal:
        if _claim_target(journal, writer_id) == 0:
            event = Event(event_id=event_id, type=INITIALIZED, occurred_at=clock_ms(), payload=payload)
            receipt = journal.append(event, batch_id=event_id)
            return Initialized(key, receipt.journal_id, event_id, receipt.replayed)
    found = _recognised(store, key, event_id)  # somebody was faster: with the same, or with something else
    if found is None:
        raise _not_empty(key, store.head(key))
    return found


def _event_id(key: ThreadKey, payload: bytes) -> str:
    """An id that names the content and the target, whatever the order of members."""
    content = json.dumps([key.name, json.loads(payload)], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return f"init-{hashlib.sha256(content.encode()).hexdigest()}"


def _recognised(store: ThreadJournalStore, key: ThreadKey, event_id: str) -> Initialized | None:
    """Find an earlier, equal initialisation; refuse a target with other content."""
    head = store.head(key)
    if head is None or head.last_seq == 0:
        return None
    try:
        events = store.read_after(key, 0, 1).events
    except Trimmed:
        events = ()
    if not events or events[0].event_id != event_id:
        raise _not_empty(key, head)
    return Initialized(key, head.journal_id, event_id, replayed=True)


def _claim_target(journal: ThreadJournal, writer_id: str) -> int:
    """Claim a free target, or take over one's own claim, as after a crash; give its last seq."""
    try:
        return journal.claim(writer_id, replacing=NONE).last_seq
    except WriterBusy as busy:
        if busy.holder is None or busy.holder.writer_id != writer_id:
            raise
        return journal.claim(writer_id, replacing=busy.holder).last_seq


def _not_empty(key: ThreadKey, head: JournalHead | None) -> HeadConflict:
    last_seq = 0 if head is None else head.last_seq
    return HeadConflict(
        f"the target is not empty, it is at seq {last_seq}; choose another or delete it first",
        last_seq=last_seq,
        base_seq=0,
        key=key.name,
    )


# -------------------------------------------------------------------------------------------------------------- fork


def _as_it_is(state: Mapping[str, Json]) -> Mapping[str, Json]:
    return state


def fork(
    store: ThreadJournalStore,
    source: ThreadKey,
    target: ThreadKey,
    writer_id: str,
    *,
    target_store: ThreadJournalStore | None = None,
    rewrite: Callable[[Mapping[str, Json]], Mapping[str, Json]] = _as_it_is,
    clock_ms: Callable[[], int] = wall_clock_ms,
    sleep: Callable[[float], None] = time.sleep,
    patience: Patience = PATIENCE,
) -> Initialized:
    """Begin a journal with the last checkpoint of another one, which stays as it is.

    Guarantees LIFE-6: the source is free and ends with its checkpoint, the target is empty; the identity is the
    target's; receipts and cursors are not inherited; the same fork again is recognised. The provenance names the
    source's ids, its `journal_id` and `as_of_seq`.

    Args:
        store: The open store of the source.
        source: The thread to fork.
        target: The new thread.
        writer_id: Who forks.
        target_store: The open store of the target, of any backend; None for the source's.
        rewrite: Replaces the identity inside the checkpoint's payload, where it has any. Must be deterministic.
        clock_ms: Unix time in milliseconds, for the event.
        sleep: Waits so many seconds before a call is sent again.
        patience: How often and how patiently.

    Returns:
        What was done, or found done.

    Raises:
        JournalNotFound: There is no source.
        WriterBusy: A writer holds the source, or another one the target.
        HeadConflict: The source does not end with a checkpoint, or the target holds something else.
        InvalidValue: The checkpoint's payload is no JSON object.
        LimitExceeded: It is too large for the target.
        BackendUnavailable: Nothing was forked.
        OutcomeUnknown: It may have been; fork again.
    """
    head = store.head(source)
    if head is None:
        raise JournalNotFound("there is no journal to fork", key=source.name)
    if head.claim is not None:
        raise WriterBusy(
            f"writer {head.claim.writer_id!r} holds the source; fork it when it is released",
            holder=head.claim,
            key=source.name,
        )
    if head.checkpoint_seq is None or head.checkpoint_seq != head.last_seq:
        raise HeadConflict(
            "the source does not end with a checkpoint; write one first",
            last_seq=head.last_seq,
            base_seq=head.checkpoint_seq,
            key=source.name,
        )
    events = store.read_after(source, head.checkpoint_seq - 1, 1).events
    again = store.head(source)
    if not events or again is None or again.journal_id != head.journal_id:
        raise JournalNotFound("the source was deleted meanwhile", key=source.name)
    payload = decode_value(events[0].payload)
    if not isinstance(payload, dict):
        raise InvalidValue("the source's checkpoint is no JSON object", key=source.name)
    state = {name: value for name, value in cast("dict[str, Json]", payload).items() if name != "provenance"}
    return initialize(
        store if target_store is None else target_store,
        target,
        writer_id,
        rewrite(state),
        provenance=_origin(source, head),
        clock_ms=clock_ms,
        sleep=sleep,
        patience=patience,
    )


def _origin(source: ThreadKey, head: JournalHead) -> Mapping[str, Json]:
    return {
        "kind": "fork",
        "user_id": source.user_id,
        "agent_id": source.agent_id,
        "session_id": source.session_id,
        "thread_id": source.thread_id,
        "journal_id": head.journal_id,
        "as_of_seq": head.last_seq,
    }


# ----------------------------------------------------------------------------------------------------------- salvage


def salvage(
    store: ThreadJournalStore,
    source: ThreadKey,
    target_store: ThreadJournalStore,
    target: ThreadKey,
    writer_id: str,
    *,
    page: int = 1_000,
    sleep: Callable[[float], None] = time.sleep,
    patience: Patience = PATIENCE,
) -> SalvageReport:
    """Copy what can be read of a damaged journal, from its first event to the first damage, into a new, empty one.

    Guarantees FORMAT-3: the source is never written. Events keep their ids, times and bytes; they are numbered again
    from 1, and batches are as large as the pages. Reading goes page by page.

    Args:
        store: The open store of the source.
        source: The damaged journal.
        target_store: The open store of the target, of any backend.
        target: The new thread.
        writer_id: Who salvages.
        page: How many events are read and written at once at most, 1 to 10,000.
        sleep: Waits so many seconds before a call is sent again.
        patience: How often and how patiently.

    Returns:
        What was copied, and what could not be read.

    Raises:
        ValueError: Source and target are the same, or `page` is outside its range.
        JournalNotFound: There is no source.
        HeadConflict: The target is not empty.
        WriterBusy: A writer holds the target.
        LimitExceeded: An event is too large for the target; what was copied before it stays there.
        OutcomeUnknown: The copy may be incomplete; delete the target and salvage again.
    """
    check_page(page)
    if store is target_store and source == target:
        raise ValueError("salvage writes to another key, never to the damaged one")
    try:
        head = store.head(source)
    except DataError as error:
        findings = (_finding(error, None), *store.verify(source, deep=True).findings)
        return SalvageReport(source, target, 0, 0, None, findings)
    if head is None:
        raise JournalNotFound("there is no journal to salvage", key=source.name)
    damage: list[Finding] = []
    last_seq = 0
    with ThreadJournal(target_store, target, sleep=sleep, patience=patience) as copy:
        if _claim_target(copy, writer_id) != 0:
            raise _not_empty(target, copy.head())
        for events in _readable(store, source, head, page, damage):
            for part in _fitting(events, target_store):
                copy.append(*part)
            last_seq = events[-1].seq
    first_seq = head.first_seq if last_seq else 0
    findings = (*damage, *store.verify(source, deep=True).findings)
    return SalvageReport(source, target, first_seq, last_seq, head.last_seq, findings)


def _finding(error: DataError | Trimmed, seq: int | None) -> Finding:
    what = error.what if isinstance(error, DataError) else None
    return Finding(what or "journal", f"reading ended here: {error.message}", seq)


def _readable(
    store: ThreadJournalStore, source: ThreadKey, head: JournalHead, page: int, damage: list[Finding]
) -> Iterator[tuple[RecordedEvent, ...]]:
    """Yield pages up to the first damage; pages get smaller towards it, so that the last good event is reached."""
    after, limit = head.first_seq - 1, page
    while after < head.last_seq:
        try:
            events = store.read_after(source, after, min(limit, head.last_seq - after)).events
        except (DataError, Trimmed) as error:
            if limit == 1 or isinstance(error, Trimmed):
                damage.append(_finding(error, after + 1))
                return
            limit = max(1, limit // 2)
            continue
        if not events:
            return
        yield events
        after = events[-1].seq


def _fitting(events: tuple[RecordedEvent, ...], store: ThreadJournalStore) -> Iterator[tuple[Event, ...]]:
    """Cut a page into batches that are within the target's limits."""
    limits = store.capabilities.limits
    room = limits.batch_bytes_max - _BATCH_OVERHEAD_BYTES
    part: list[Event] = []
    size = 0
    for recorded in events:
        event = Event(
            event_id=recorded.event_id,
            type=recorded.type,
            occurred_at=recorded.occurred_at,
            payload=recorded.payload,
            run_id=recorded.run_id,
            turn_id=recorded.turn_id,
            required=recorded.required,
            schema_version=recorded.schema_version,
        )
        bytes_ = len(encode_batch(Batch("x", (event,))))
        if part and (len(part) >= limits.batch_events_max or size + bytes_ > room):
            yield tuple(part)
            part, size = [], 0
        part.append(event)
        size += bytes_
    yield tuple(part)
