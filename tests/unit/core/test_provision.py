"""Journals that begin with a state, a fork or a rescue (LIFE-6, FORMAT-3)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from statebook import (
    HeadConflict,
    Initialized,
    InvalidValue,
    JournalCorrupt,
    JournalNotFound,
    LimitExceeded,
    OutcomeUnknown,
    ThreadJournal,
    ThreadJournalStore,
    ThreadKey,
    WriterBusy,
    fork,
    initialize,
    salvage,
)
from statebook.capabilities import Capabilities
from statebook.provision import INITIALIZED

TARGET = ThreadKey("u2", "a", "s2", "t2")
WHY = {"from": "import", "n": 1}


def begin(store: ThreadJournalStore, key: ThreadKey, **changes: Any) -> Initialized:
    arguments: dict[str, Any] = {"state": {"messages": []}, "provenance": WHY, **changes}
    state = arguments.pop("state")
    return initialize(store, key, "w", state, sleep=lambda _: None, **arguments)


def checkpointed(store: ThreadJournalStore, key: ThreadKey, payload: Any = None) -> None:
    with ThreadJournal(store, key) as journal:
        journal.claim("w")
        journal.append(journal.event("run/start", 1))
        journal.append(journal.event("state/checkpoint", {"messages": ["hi"]} if payload is None else payload))


def test_an_initialised_journal_begins_with_its_state_and_is_free(store: Any, key: ThreadKey) -> None:
    made = begin(store, key, clock_ms=lambda: 42)
    head = store.head(key)
    assert (head.last_seq, head.checkpoint_seq, head.claim) == (1, 1, None)
    (event,) = store.read_after(key, 0).events
    assert (event.type, event.occurred_at, event.event_id) == (INITIALIZED, 42, made.event_id)
    assert json.loads(event.payload) == {"messages": [], "provenance": WHY}
    assert made == Initialized(key, head.journal_id, event.event_id, replayed=False)


def test_the_same_initialisation_again_writes_nothing(store: Any, key: ThreadKey) -> None:
    first = begin(store, key, state={"a": 1, "b": 2}, clock_ms=lambda: 1)
    generation = store.head(key).generation
    again = begin(store, key, state={"b": 2, "a": 1}, clock_ms=lambda: 2)
    assert again == Initialized(key, first.journal_id, first.event_id, replayed=True)
    assert store.head(key).generation == generation
    with ThreadJournal(store, key) as journal:
        journal.claim("somebody")
        journal.append(journal.event("x", 1))
        assert begin(store, key, state={"a": 1, "b": 2}).replayed  # also when the journal went on, under a writer


@pytest.mark.parametrize("changes", [{"state": {"messages": [1]}}, {"provenance": {"n": 2}}])
def test_another_initialisation_is_refused(store: Any, key: ThreadKey, changes: dict[str, Any]) -> None:
    begin(store, key)
    with pytest.raises(HeadConflict, match="not empty"):
        begin(store, key, **changes)
    assert store.head(key).last_seq == 1


def test_a_target_with_events_is_refused_and_stays_as_it_is(store: Any, key: ThreadKey) -> None:
    checkpointed(store, key)
    before = store.head(key)
    with pytest.raises(HeadConflict) as caught:
        begin(store, key)
    assert caught.value.last_seq == 2
    assert store.head(key) == before


def test_a_trimmed_target_is_not_empty(store: Any, key: ThreadKey) -> None:
    begin(store, key)
    with ThreadJournal(store, key) as journal:
        journal.claim("w")
        journal.append(journal.event("state/checkpoint", {}))
        assert journal.trim(2).first_seq == 2
    with pytest.raises(HeadConflict):
        begin(store, key)


def test_a_target_under_another_writer_is_busy_and_ones_own_is_taken_over(store: Any, key: ThreadKey) -> None:
    store.claim(key, "somebody")
    with pytest.raises(WriterBusy) as caught:
        begin(store, key)
    assert caught.value.holder is not None
    assert caught.value.holder.writer_id == "somebody"
    assert store.head(key).last_seq == 0
    store.claim(key, "w")  # as after a crash in the midst of an initialisation
    assert not begin(store, key).replayed


def test_two_equal_initialisations_at_once_are_one(store: Any, key: ThreadKey) -> None:
    def run(_: int) -> Initialized | None:
        try:
            return begin(store, key)
        except WriterBusy:
            return None

    with ThreadPoolExecutor(8) as pool:
        results = [result for result in pool.map(run, range(16)) if result is not None]
    assert sum(not result.replayed for result in results) <= 1
    assert store.head(key).last_seq == 1
    assert begin(store, key).replayed


def test_an_unknown_initialisation_can_be_made_again(store: Any, key: ThreadKey) -> None:
    store.fail("append", *["lost"] * 5)
    store.fail("settle", *["unknown"] * 5)
    with pytest.raises(OutcomeUnknown):
        begin(store, key)
    assert begin(store, key).replayed
    assert store.head(key).last_seq == 1


def test_a_state_has_no_provenance_of_its_own(store: Any, key: ThreadKey) -> None:
    with pytest.raises(InvalidValue, match="provenance"):
        begin(store, key, state={"provenance": 1})
    with pytest.raises(InvalidValue):
        begin(store, key, state={"x": (1,)})
    assert store.head(key) is None


def test_a_fork_takes_the_checkpoint_and_leaves_receipts_cursors_and_source_alone(store: Any, key: ThreadKey) -> None:
    checkpointed(store, key)
    store.open_cursor(key, "exp")
    source = store.head(key)
    made = fork(store, key, TARGET, "w")
    assert store.head(key) == source
    head = store.head(TARGET)
    assert (head.last_seq, head.checkpoint_seq, head.claim) == (1, 1, None)
    assert head.journal_id == made.journal_id != source.journal_id
    (event,) = store.read_after(TARGET, 0).events
    assert json.loads(event.payload) == {
        "messages": ["hi"],
        "provenance": {
            "kind": "fork",
            "user_id": "u",
            "agent_id": "a",
            "session_id": "s",
            "thread_id": "t",
            "journal_id": source.journal_id,
            "as_of_seq": 2,
        },
    }
    assert store.open_cursor(TARGET, "exp").acked_seq == 0


def test_the_same_fork_again_is_recognised_and_a_later_one_is_not(store: Any, key: ThreadKey) -> None:
    checkpointed(store, key)
    assert not fork(store, key, TARGET, "w").replayed
    assert fork(store, key, TARGET, "w").replayed
    with ThreadJournal(store, key) as journal:
        journal.claim("w")
        journal.append(journal.event("state/checkpoint", {"messages": ["later"]}))
    with pytest.raises(HeadConflict):
        fork(store, key, TARGET, "w")


def test_a_fork_goes_to_another_store_and_can_be_forked_itself(
    store: Any, other_store: ThreadJournalStore, key: ThreadKey
) -> None:
    checkpointed(store, key)
    fork(store, key, TARGET, "w", target_store=other_store, rewrite=lambda state: {**state, "session_id": "s2"})
    assert store.head(TARGET) is None
    third = ThreadKey(None, "a", "s3", "t3")
    fork(other_store, TARGET, third, "w")
    payload = json.loads(other_store.read_after(third, 0).events[0].payload)
    assert (payload["messages"], payload["session_id"]) == (["hi"], "s2")
    assert payload["provenance"]["session_id"] == "s2"  # the parent's, not the grandparent's


def test_a_source_must_be_there_free_and_end_with_a_checkpoint(store: Any, key: ThreadKey) -> None:
    with pytest.raises(JournalNotFound):
        fork(store, key, TARGET, "w")
    journal = ThreadJournal(store, key)
    claim = journal.claim("w")
    journal.append(journal.event("x", 1))
    with pytest.raises(WriterBusy) as caught:
        fork(store, key, TARGET, "w")
    assert caught.value.holder == claim.info
    journal.release()
    with pytest.raises(HeadConflict, match="checkpoint"):
        fork(store, key, TARGET, "w")
    with journal:
        journal.claim("w")
        journal.append(journal.event("state/checkpoint", {}), journal.event("x", 1))
    with pytest.raises(HeadConflict, match="checkpoint"):
        fork(store, key, TARGET, "w")
    assert store.head(TARGET) is None


def test_a_checkpoint_that_is_no_object_is_refused(store: Any, key: ThreadKey) -> None:
    checkpointed(store, key, payload=[1])
    with pytest.raises(InvalidValue, match="object"):
        fork(store, key, TARGET, "w")


def test_a_source_that_is_deleted_meanwhile_is_not_found(store: Any, key: ThreadKey) -> None:
    checkpointed(store, key)

    def recreate() -> None:
        store.inner.delete(key)
        checkpointed(store.inner, key)

    store.fail("read_after", recreate)
    with pytest.raises(JournalNotFound, match="meanwhile"):
        fork(store, key, TARGET, "w")
    assert store.head(TARGET) is None


class DamagedStore:
    """A view of a store in which the events from a seq on are damaged."""

    def __init__(self, inner: Any, first_bad: int, head_bad: bool = False) -> None:
        self.inner, self.first_bad, self.head_bad, self.reads = inner, first_bad, head_bad, 0

    def __getattr__(self, name: str) -> Any:
        assert name in ("verify", "capabilities"), f"salvage must not {name} the source"
        return getattr(self.inner, name)

    def head(self, key: ThreadKey) -> Any:
        if self.head_bad:
            raise JournalCorrupt("the head is damaged", what="head")
        return self.inner.head(key)

    def read_after(self, key: ThreadKey, seq: int, limit: int) -> Any:
        self.reads += 1
        page = self.inner.read_after(key, seq, limit)
        if any(event.seq >= self.first_bad for event in page.events):
            raise JournalCorrupt("a segment is damaged", what="segment")
        return page


def written(store: Any, key: ThreadKey, count: int) -> None:
    with ThreadJournal(store, key) as journal:
        journal.claim("w")
        for number in range(count):
            journal.append(journal.event("x", {"n": number}, run_id="r" if number % 2 else None))


@pytest.mark.parametrize("first_bad", [1, 2, 50, 99, 100, 101])
@pytest.mark.parametrize("page", [1, 7, 64, 1_000])
def test_a_rescue_copies_everything_up_to_the_damage(
    store: Any, other_store: Any, key: ThreadKey, first_bad: int, page: int
) -> None:
    written(store, key, 100)
    before = store.head(key)
    damaged: Any = DamagedStore(store.inner, first_bad)
    report = salvage(damaged, key, other_store, TARGET, "w", page=page)
    copied = first_bad - 1
    assert (report.first_seq, report.last_seq, report.source_last_seq) == (min(copied, 1), copied, 100)
    assert report.complete == (first_bad == 101)
    assert [finding.seq for finding in report.findings] == ([] if report.complete else [first_bad])
    given, got = store.read_after(key, 0).events, other_store.read_after(TARGET, 0).events
    assert got == given[:copied]
    assert store.head(key) == before
    assert other_store.head(TARGET).claim is None
    assert damaged.reads <= 2 * (100 // page + 12) + 100 // page


def test_a_rescue_of_a_trimmed_journal_begins_where_it_begins(store: Any, key: ThreadKey) -> None:
    written(store, key, 10)
    store.trim(key, 5)
    report = salvage(store, key, store, TARGET, "w", page=4)
    assert (report.first_seq, report.last_seq, report.complete) == (5, 10, True)
    assert [event.seq for event in store.read_after(TARGET, 0).events] == [1, 2, 3, 4, 5, 6]


def test_a_damaged_head_leaves_the_target_untouched(store: Any, other_store: Any, key: ThreadKey) -> None:
    written(store, key, 3)
    damaged: Any = DamagedStore(store.inner, 1, head_bad=True)
    report = salvage(damaged, key, other_store, TARGET, "w")
    assert (report.last_seq, report.source_last_seq, report.complete) == (0, None, False)
    assert report.findings[0].what == "head"
    assert other_store.head(TARGET) is None


class SmallStore:
    """A view of a store with small limits."""

    def __init__(self, inner: Any, **limits: int) -> None:
        self.inner, self.limits = inner, limits
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def capabilities(self) -> Capabilities:
        import msgspec

        found: Capabilities = self.inner.capabilities
        return msgspec.structs.replace(found, limits=msgspec.structs.replace(found.limits, **self.limits))

    def append(self, claim: Any, batch: Any, base_seq: int) -> Any:
        from statebook.codec import encode_batch

        self.capabilities.limits.check("batch_events_max", len(batch.events))
        self.capabilities.limits.check("batch_bytes_max", len(encode_batch(batch)))
        self.sizes.append(len(batch.events))
        return self.inner.append(claim, batch, base_seq)


def test_a_rescue_keeps_the_limits_of_the_target(store: Any, other_store: Any, key: ThreadKey) -> None:
    written(store, key, 100)
    small: Any = SmallStore(other_store, batch_events_max=7)
    assert salvage(store, key, small, TARGET, "w").complete
    assert (max(small.sizes), sum(small.sizes)) == (7, 100)
    tight: Any = SmallStore(other_store, batch_bytes_max=4_096 + 1_000)
    assert salvage(store, key, tight, ThreadKey(None, "a", "b", "c"), "w").complete
    assert sum(tight.sizes) == 100
    assert len(tight.sizes) > 10


def test_an_event_too_large_for_the_target_is_an_error(store: Any, other_store: Any, key: ThreadKey) -> None:
    written(store, key, 2)
    tiny: Any = SmallStore(other_store, batch_bytes_max=10)
    with pytest.raises(LimitExceeded):
        salvage(store, key, tiny, TARGET, "w")


def test_a_rescue_needs_a_source_and_a_target_that_is_another_and_empty(store: Any, key: ThreadKey) -> None:
    with pytest.raises(JournalNotFound):
        salvage(store, key, store, TARGET, "w")
    written(store, key, 2)
    with pytest.raises(ValueError, match="another key"):
        salvage(store, key, store, key, "w")
    with pytest.raises(ValueError, match="limit"):
        salvage(store, key, store, TARGET, "w", page=0)
    written(store, TARGET, 1)
    with pytest.raises(HeadConflict):
        salvage(store, key, store, TARGET, "w")
    assert store.head(TARGET).last_seq == 1
