"""The value types of the contract: events, batches, receipts, heads, claims, cursors, pages, slots.

All are frozen and hold tuples and bytes, so that a value is a copy both ways (VAL-3). `Event` and `Batch` validate at
construction, before any I/O; what comes back from a store has been verified against its digest instead.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias

import msgspec

from statebook.errors import InvalidBatch, InvalidValue, StatebookError
from statebook.keys import SessionKey, StateKey, ThreadKey, check_id

EVENT_SCHEMA_VERSION: Final = 2
"""The version of the event envelope."""

FORMAT_VERSION: Final = 2
"""The version of everything that statebook stores (HEAD-1, FORMAT-1)."""

PAGE_MAX: Final = 10_000
"""The longest page of any read or listing (READ-1)."""

CHECKPOINT_TYPES: Final = frozenset({"state/checkpoint", "state/initialized"})
"""The event types that carry a complete working state and so move `checkpoint_seq` (APPEND-6)."""


class Expect(Enum):
    """Conditions that are no version and no claim."""

    ANY = "any"
    ABSENT = "absent"
    NONE = "none"


ANY: Final = Expect.ANY
"""No condition."""
ABSENT: Final = Expect.ABSENT
"""Only where the slot is absent (STATE-1)."""
NONE: Final = Expect.NONE
"""Only where nobody holds the claim (CLAIM-1)."""

ExpectedVersion: TypeAlias = int | Literal[Expect.ANY, Expect.ABSENT]


# ------------------------------------------------------------------------------------------------------ agent state


class SlotKind(Enum):
    """The two kinds of slots; each has a namespace of its own (STATE)."""

    DOCUMENT = "document"
    LIST = "list"


class StateValue(msgspec.Struct, frozen=True):
    """A document and its version, from one commit (STATE-3).

    Attributes:
        value: The bytes that were saved.
        version: A positive integer issued by the store.
    """

    value: bytes
    version: int


class ListValue(msgspec.Struct, frozen=True):
    """A list and its version, from one commit (STATE-3, STATE-7).

    Attributes:
        items: The items' bytes, in order.
        version: A positive integer issued by the store.
    """

    items: tuple[bytes, ...]
    version: int


class KeyPage(msgspec.Struct, frozen=True):
    """A page of slots, ascending by name (STATE-9).

    Attributes:
        keys: The slots; the last one is the `after` of the next page.
        has_more: Whether there are more behind it.
    """

    keys: tuple[StateKey, ...]
    has_more: bool


class SessionPage(msgspec.Struct, frozen=True):
    """A page of sessions, ascending by name (STATE-9).

    Attributes:
        sessions: The sessions; the last one is the `after` of the next page.
        has_more: Whether there are more behind it.
    """

    sessions: tuple[SessionKey, ...]
    has_more: bool


# ----------------------------------------------------------------------------------------------------------- events

_check_json = msgspec.json.Decoder(msgspec.Raw).decode


_SPACE: Final = 0x20
_LINE_FEED: Final = 0x0A
_CARRIAGE_RETURN: Final = 0x0D
_BACKSLASH: Final = 0x5C


def _check_payload(payload: object) -> None:
    if not isinstance(payload, bytes):
        raise InvalidValue(f"an event's payload is bytes, not {type(payload).__name__}; make it with encode_value(...)")
    try:
        _check_json(payload)
        if not payload.isascii():
            payload.decode()
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InvalidValue("an event's payload is not one JSON document; make it with encode_value(...)") from error
    except RecursionError as error:
        raise InvalidValue("an event's payload is nested too deeply") from error
    # Bytes are looked for by number, which is several times as fast as by bytes: every append does this.
    if payload[0] <= _SPACE or payload[-1] <= _SPACE or _LINE_FEED in payload or _CARRIAGE_RETURN in payload:
        raise InvalidValue("an event's payload has line breaks or outer white space; make it with encode_value(...)")
    if _BACKSLASH in payload and b"\\u" in payload:
        _check_escapes(payload.decode())


def _check_escapes(text: str) -> None:
    # msgspec takes "\ud800" without its other half when it only skips; the standard library shows it as a surrogate.
    import json

    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except ValueError as error:
        raise InvalidValue("an event's payload holds a lone surrogate, which is no text") from error


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as a writer hands it in. Its seq is given by the journal at commit (APPEND-2).

    Attributes:
        event_id: The receiver's key for deduplication; unique within a journal.
        type: The event type, such as `run/start`.
        occurred_at: Unix time in milliseconds, by the writer's clock. Informative: it decides nothing (CLAIM-5).
        payload: One JSON document in UTF-8, as `encode_value` makes it: no line breaks, no outer white space. Stored
            and returned byte by byte (VAL-2).
        run_id: The execution run, or None.
        turn_id: The turn, or None.
        required: Whether a reader that does not know the type must refuse to recover.
        schema_version: `EVENT_SCHEMA_VERSION`.

    Raises:
        InvalidKey: An id or the type is outside ID-1.
        InvalidValue: The payload is no JSON document, or the time is no integer in range (VAL-1).
        InvalidBatch: The schema version is another one.
    """

    event_id: str
    type: str
    occurred_at: int
    payload: bytes
    run_id: str | None = None
    turn_id: str | None = None
    required: bool = False
    schema_version: int = EVENT_SCHEMA_VERSION

    def __post_init__(self) -> None:
        check_id(self.event_id, "event_id")
        check_id(self.type, "type")
        if self.run_id is not None:
            check_id(self.run_id, "run_id")
        if self.turn_id is not None:
            check_id(self.turn_id, "turn_id")
        if self.schema_version != EVENT_SCHEMA_VERSION:
            raise InvalidBatch(f"events of schema version {self.schema_version} are not written by this release")
        if type(self.occurred_at) is not int or not 0 <= self.occurred_at < 1 << 53:
            raise InvalidValue("occurred_at must be Unix time in whole milliseconds")
        if type(self.required) is not bool:
            raise InvalidValue("required must be True or False")
        _check_payload(self.payload)


class RecordedEvent(msgspec.Struct, frozen=True, gc=False):
    """One event as it stands in a journal (READ-2).

    Attributes:
        seq: Its place: 1 for the first of the journal, contiguous, never used again (HEAD-2).
        event_id: As in `Event`.
        type: As in `Event`.
        occurred_at: As in `Event`.
        payload: The same bytes that were appended.
        run_id: As in `Event`.
        turn_id: As in `Event`.
        required: As in `Event`.
        schema_version: As in `Event`.
    """

    seq: int
    event_id: str
    type: str
    occurred_at: int
    payload: bytes
    run_id: str | None
    turn_id: str | None
    required: bool
    schema_version: int


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Events that are committed together or not at all (APPEND-2).

    Attributes:
        batch_id: The writer's name for this batch; sending the same batch again is harmless (SETTLE-1).
        events: At least one; ids distinct within the batch.

    Raises:
        InvalidKey: `batch_id` is outside ID-1.
        InvalidBatch: It is empty, or an event id stands in it twice.
    """

    batch_id: str
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        check_id(self.batch_id, "batch_id")
        events = self.events
        if type(events) is not tuple:
            raise InvalidBatch("a batch's events must be a tuple of Event")
        for event in events:
            if type(event) is not Event:
                raise InvalidBatch("a batch's events must be a tuple of Event")
        if not events:
            raise InvalidBatch(f"batch {self.batch_id!r} is empty; a batch holds at least one event")
        if len(events) > 1 and len({event.event_id for event in events}) != len(events):
            raise InvalidBatch(f"batch {self.batch_id!r} holds an event id twice")

    @property
    def checkpoint_offset(self) -> int | None:
        """Where in the batch its last checkpoint stands, counted from 0, or None (APPEND-6)."""
        events = self.events
        for offset in range(len(events) - 1, -1, -1):
            if events[offset].type in CHECKPOINT_TYPES:
                return offset
        return None


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The answer to an append that is in the journal (APPEND).

    Attributes:
        batch_id: The batch.
        journal_id: The incarnation that it is in.
        first_seq: The seq of its first event.
        last_seq: The seq of its last event: the base of the next batch.
        epoch: The epoch that it was committed under.
        digest: The SHA-256 of the batch's body, in hex (HEAD-3).
        replayed: True where the batch had been committed before this call.
    """

    batch_id: str
    journal_id: str
    first_seq: int
    last_seq: int
    epoch: int
    digest: str
    replayed: bool = False


# ------------------------------------------------------------------------------------------------- heads and claims


class ClaimInfo(msgspec.Struct, frozen=True, gc=False):
    """Who holds a journal, as an observer sees it. Good for `replacing=`, not for writing (CLAIM-1, CLAIM-5).

    Attributes:
        journal_id: The incarnation.
        writer_id: The holder.
        epoch: The holder's epoch.
        nonce: Fresh with each claim.
    """

    journal_id: str
    writer_id: str
    epoch: int
    nonce: str


class WriterClaim(msgspec.Struct, frozen=True, gc=False):
    """The right to write a journal until a newer claim is made (CLAIM-2).

    Attributes:
        key: The thread.
        journal_id: The incarnation.
        writer_id: The writer.
        epoch: Grows with each claim, over release and delete too (CLAIM-3).
        nonce: Fresh with each claim; together with the epoch it is the fence.
        last_seq: The journal's last seq when the claim was made: the base of the first batch.
        checkpoint_seq: The last checkpoint then, or None.
    """

    key: ThreadKey
    journal_id: str
    writer_id: str
    epoch: int
    nonce: str
    last_seq: int
    checkpoint_seq: int | None = None

    @property
    def info(self) -> ClaimInfo:
        """What an observer sees of this claim."""
        return ClaimInfo(self.journal_id, self.writer_id, self.epoch, self.nonce)


class JournalHead(msgspec.Struct, frozen=True, gc=False):
    """What a journal's head says to a reader (HEAD-1). Reading it changes nothing (CLAIM-7).

    Attributes:
        key: The thread.
        journal_id: Random for each incarnation.
        generation: Grows by one with each write of the head, over deletes too.
        epoch: The newest epoch given out.
        claim: Who holds the journal, or None.
        first_seq: The first seq that is still there; `last_seq + 1` where none is.
        last_seq: The last seq; 0 in an empty journal.
        checkpoint_seq: The seq of the last checkpoint, or None.
        chain: The running chain digest, in hex (HEAD-3).
        nonce: Fresh with each write of the head.
    """

    key: ThreadKey
    journal_id: str
    generation: int
    epoch: int
    claim: ClaimInfo | None
    first_seq: int
    last_seq: int
    checkpoint_seq: int | None
    chain: str
    nonce: str


class EventPage(msgspec.Struct, frozen=True, gc=False):
    """A page of events: a prefix of one head (READ-2).

    Attributes:
        events: Ascending and contiguous.
        has_more: Whether that head has events behind the last one.
        last_seq: The journal's last seq at that head; 0 where there is no journal.
    """

    events: tuple[RecordedEvent, ...]
    has_more: bool
    last_seq: int


class ThreadPage(msgspec.Struct, frozen=True):
    """A page of threads, ascending by name (LIFE-1).

    Attributes:
        threads: The threads; the last one is the `after` of the next page.
        has_more: Whether there are more behind it.
    """

    threads: tuple[ThreadKey, ...]
    has_more: bool


class AppendRequest(msgspec.Struct, frozen=True, gc=False):
    """One append of an `append_many` (APPEND-5).

    Attributes:
        claim: The writer's claim.
        batch: The batch.
        base_seq: The last seq that the writer has seen or written.
    """

    claim: WriterClaim
    batch: Batch
    base_seq: int


AppendOutcome: TypeAlias = Receipt | StatebookError


# ---------------------------------------------------------------------------------------------------------- cursors


class ExportCursor(msgspec.Struct, frozen=True, gc=False):
    """An opened export cursor (CURSOR-1).

    Attributes:
        key: The thread.
        exporter: The exporter's name.
        journal_id: The incarnation that it exports.
        acked_seq: Everything up to this seq is acknowledged.
        epoch: Grows with each opening; only the newest opener may advance (CURSOR-2).
        nonce: Fresh with each opening; together with the epoch it is the fence.
        version: Grows with each change of the record; what `reset_cursor` expects.
    """

    key: ThreadKey
    exporter: str
    journal_id: str
    acked_seq: int
    epoch: int
    nonce: str
    version: int


# ------------------------------------------------------------------------------------------------------ maintenance


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong with a stored journal (FORMAT-3).

    Attributes:
        what: What is damaged, such as `head`, `segment`, `batch`, `chain`, `cursor`.
        detail: One sentence.
        seq: The first seq concerned, or None.
    """

    what: str
    detail: str
    seq: int | None = None


class VerifyReport(msgspec.Struct, frozen=True):
    """What `verify` found (FORMAT-3).

    Attributes:
        key: The thread.
        findings: Everything that is wrong; empty where all is well.
        batches: How many batches were checked.
        events: How many events were checked.
    """

    key: ThreadKey
    findings: tuple[Finding, ...]
    batches: int
    events: int


class CollectReport(msgspec.Struct, frozen=True):
    """What a collector run did (LIFE-3).

    Attributes:
        deleted: How many unreferenced blobs were deleted.
        kept: How many unreferenced blobs were left for a later run.
    """

    deleted: int
    kept: int


# ------------------------------------------------------------------------------------------------- argument checks


def check_page(limit: int) -> None:
    """Refuse a page size outside 1 to `PAGE_MAX` (READ-1).

    Raises:
        ValueError: It is.
    """
    if type(limit) is not int or not 1 <= limit <= PAGE_MAX:
        raise ValueError(f"limit must be an integer from 1 to {PAGE_MAX}, not {limit!r}")


def check_seq(seq: int, what: str = "seq") -> None:
    """Refuse a seq that is no integer of at least 0 (READ-1).

    Raises:
        ValueError: It is not.
    """
    if type(seq) is not int or seq < 0:
        raise ValueError(f"{what} must be an integer of at least 0, not {seq!r}")
