"""What type checkers see of the public API. Checked, never run: a wrong type here is an error of the package."""

from collections.abc import Iterator
from typing import Literal, assert_type

import statebook
from statebook import (
    ABSENT,
    ANY,
    NONE,
    AgentStateStore,
    AtomicJournalStorage,
    Batch,
    Capabilities,
    ClaimInfo,
    DocumentValue,
    Event,
    EventPage,
    HeadConflict,
    Initialized,
    JournalHead,
    Json,
    LimitExceeded,
    OutcomeUnknown,
    Receipt,
    RecordedEvent,
    Retry,
    SalvageReport,
    SessionKey,
    SlotKind,
    StatebookError,
    StateDocument,
    StateKey,
    StateValue,
    ThreadCursor,
    ThreadJournal,
    ThreadJournalStore,
    ThreadKey,
    ThreadPage,
    ThreadScope,
    WriterBusy,
    WriterClaim,
    WriterFenced,
)
from statebook.model import AppendOutcome, AppendRequest, Expect


def opening() -> None:
    assert_type(statebook.open_state("memory://"), AgentStateStore)
    assert_type(statebook.open_journal("memory://"), ThreadJournalStore)
    assert_type(statebook.open_atomic("memory://"), AtomicJournalStorage)
    assert_type(statebook.open_journal("memory://", require=statebook.DISTRIBUTED), ThreadJournalStore)
    assert_type(statebook.installed_backends(), tuple[str, ...])
    assert_type(statebook.StoreUrl.parse("memory://"), statebook.StoreUrl)


def constants() -> None:
    assert_type(ANY, Literal[Expect.ANY])
    assert_type(NONE, Literal[Expect.NONE])
    assert_type(ABSENT, Literal[Expect.ABSENT])


def stores(state: AgentStateStore, journals: ThreadJournalStore, slot: StateKey, key: ThreadKey) -> None:
    assert_type(state.load(slot), StateValue | None)
    assert_type(state.save(slot, b"{}", expected=ABSENT), int)
    assert_type(state.save(slot, b"{}", expected=3), int)
    assert_type(state.delete(slot, kind=SlotKind.LIST), bool)
    assert_type(state.capabilities, Capabilities)
    assert_type(slot.session, SessionKey)
    claim = assert_type(journals.claim(key, "w", replacing=NONE), WriterClaim)
    assert_type(journals.claim(key, "w", replacing=claim.info), WriterClaim)
    event = Event(event_id="e", type="x", occurred_at=0, payload=b"{}")
    batch = Batch("b", (event,))
    assert_type(journals.append(claim, batch, 0), Receipt)
    assert_type(journals.append_many([AppendRequest(claim, batch, 0)]), tuple[AppendOutcome, ...])
    assert_type(journals.settle(claim, "b", 0), Receipt | None)
    assert_type(journals.read_after(key, 0).events, tuple[RecordedEvent, ...])
    assert_type(journals.list_threads(ThreadScope("u")), ThreadPage)


def refused_by_type_checkers(state: AgentStateStore, journal: ThreadJournal, slot: StateKey) -> None:
    state.save(slot, b"{}", expected=NONE)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state.save(slot, "text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    journal.claim("w", replacing=ABSENT)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    journal.event("x", b"bytes", required=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    journal.event("x", {1, 2})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ThreadKey("u", None, "s", "t")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def handles(store: ThreadJournalStore, key: ThreadKey) -> None:
    with ThreadJournal(store, key) as journal:
        assert_type(journal, ThreadJournal)
        assert_type(journal.claim("w"), WriterClaim)
        assert_type(journal.held, WriterClaim | None)
        assert_type(journal.last_seq, int)
        event = assert_type(journal.event("run/start", {"a": [1, 2.5, "x", None, True, {}]}), Event)
        assert_type(journal.append(event, event), Receipt)
        assert_type(journal.append_batch(Batch("b", (event,))), Receipt)
        assert_type(journal.unsettled, tuple[str, int] | None)
        assert_type(journal.settle(), Receipt | None)
        assert_type(journal.head(), JournalHead | None)
        assert_type(journal.read(after=3), Iterator[RecordedEvent])
        assert_type(journal.read_from_checkpoint(), Iterator[RecordedEvent])
        assert_type(journal.read_after(0), EventPage)
        cursor = assert_type(journal.cursor("exporter"), ThreadCursor)
        assert_type(cursor.pending(), Iterator[RecordedEvent])
        assert_type(cursor.acked_seq, int)


def documents(store: AgentStateStore, slot: StateKey) -> None:
    document = StateDocument(store, slot)
    assert_type(document.load(), DocumentValue | None)
    assert_type(document.save({"a": [1]}, expected=ANY), int)
    saved = assert_type(document.update(lambda value: [value]), DocumentValue)
    assert_type(saved.version, int)


def values() -> None:
    nested: dict[str, list[int]] = {"a": [1]}
    assert_type(statebook.encode_value(nested), bytes)
    decoded: Json = statebook.decode_value(b"{}")
    assert_type(statebook.encode_value(decoded), bytes)


def provisioning(store: ThreadJournalStore, one: ThreadKey, other: ThreadKey) -> None:
    assert_type(statebook.initialize(store, one, "w", {"a": 1}, provenance={}), Initialized)
    assert_type(statebook.fork(store, one, other, "w"), Initialized)
    assert_type(statebook.salvage(store, one, store, other, "w"), SalvageReport)


def errors(error: StatebookError) -> None:
    assert_type(error.retry, Retry)
    assert_type(error.key, str | None)
    if isinstance(error, WriterFenced):
        assert_type(error.committed, Receipt | None)
    elif isinstance(error, WriterBusy):
        assert_type(error.holder, ClaimInfo | None)
    elif isinstance(error, HeadConflict):
        assert_type(error.last_seq, int | None)
    elif isinstance(error, OutcomeUnknown):
        assert_type(error.batch_id, str | None)
    elif isinstance(error, LimitExceeded):
        assert_type(error.maximum, int | None)
