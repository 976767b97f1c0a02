"""ThreadJournal: one claim, one base, one order; nothing follows a failure (APPEND-4, CLAIM-4, SETTLE)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from statebook import (
    NONE,
    BackendUnavailable,
    Batch,
    BatchConflict,
    Event,
    HeadConflict,
    InvalidBatch,
    InvalidKey,
    InvalidValue,
    JournalCorrupt,
    LimitExceeded,
    OutcomeUnknown,
    Patience,
    ThreadJournal,
    ThreadKey,
    WriterBusy,
    WriterFenced,
)


def types(journal: ThreadJournal) -> list[str]:
    return [event.type for event in journal.read()]


def test_a_handle_numbers_batches_from_its_claim_and_receipts(journal: ThreadJournal) -> None:
    claim = journal.claim("w")
    assert (claim.last_seq, journal.last_seq, journal.held) == (0, 0, claim)
    first = journal.append(journal.event("a", 1))
    second = journal.append(journal.event("b", 2), journal.event("c", 3))
    assert [(r.first_seq, r.last_seq, r.replayed) for r in (first, second)] == [(1, 1, False), (2, 3, False)]
    assert journal.last_seq == 3
    assert types(journal) == ["a", "b", "c"]


def test_a_second_handle_goes_on_where_the_first_ended(journal: ThreadJournal, store: Any, key: ThreadKey) -> None:
    journal.claim("w")
    journal.append(journal.event("a", 1))
    other = ThreadJournal(store, key)
    assert other.claim("w2").last_seq == 1
    assert other.append(other.event("b", 2)).first_seq == 2


def test_events_are_built_from_plain_values(journal: ThreadJournal) -> None:
    event = journal.event("run/start", {"é": [1, None]}, required=True, run_id="r", turn_id="t")
    assert event == Event(
        event_id="id-0",
        type="run/start",
        occurred_at=1_700,
        payload='{"é":[1,null]}'.encode(),
        run_id="r",
        turn_id="t",
        required=True,
    )
    own = journal.event("x", None, event_id="mine", occurred_at=5)
    assert (own.event_id, own.occurred_at, own.payload) == ("mine", 5, b"null")


def test_what_is_wrong_is_refused_before_it_is_handed_in(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    with pytest.raises(InvalidValue):
        journal.event("x", float("nan"))
    with pytest.raises(InvalidKey):
        journal.event("", 1)
    with pytest.raises(InvalidBatch):
        journal.append()
    event = journal.event("x", 1)
    with pytest.raises(InvalidBatch):
        journal.append(event, event)
    assert store.calls["append"] == 0
    assert journal.append(event).last_seq == 1  # the handle goes on


def test_without_a_claim_nothing_is_written(journal: ThreadJournal, store: Any) -> None:
    for call in (lambda: journal.append(journal.event("x", 1)), journal.heartbeat):
        with pytest.raises(WriterFenced, match=r"claim\(writer_id\)"):
            call()
    journal.release()
    assert not store.calls
    assert journal.head() is None
    assert list(journal.read()) == []


def test_a_lost_reply_is_sent_again_and_stands_there_once(journal: ThreadJournal, store: Any, slept: Any) -> None:
    journal.claim("w")
    store.fail("append", "lost", "lost")
    receipt = journal.append(journal.event("a", 1))
    assert (receipt.replayed, receipt.last_seq, store.calls["append"], store.calls["settle"]) == (True, 1, 3, 0)
    assert slept == [0.05, 0.1]
    journal.append(journal.event("b", 2))
    assert types(journal) == ["a", "b"]


@pytest.mark.parametrize("faults", [("unknown",), ("refused",), ("unknown", "refused", "unknown", "refused")])
def test_what_did_not_arrive_is_sent_again(journal: ThreadJournal, store: Any, faults: tuple[str, ...]) -> None:
    journal.claim("w")
    store.fail("append", *faults)
    receipt = journal.append(journal.event("a", 1))
    assert (receipt.replayed, store.calls["append"]) == (False, len(faults) + 1)
    assert types(journal) == ["a"]


def test_what_stays_unknown_and_landed_is_settled_to_its_receipt(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    store.fail("append", *["lost"] * 5)
    receipt = journal.append(journal.event("a", 1))
    assert (receipt.last_seq, receipt.replayed) == (1, True)
    assert (store.calls["append"], store.calls["settle"]) == (5, 1)
    assert journal.append(journal.event("b", 2)).last_seq == 2  # the outcome is known: the handle goes on


def test_what_stays_unknown_and_did_not_land_is_settled_to_a_failure(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    store.fail("append", *["unknown"] * 5)
    with pytest.raises(BackendUnavailable, match="never will be") as caught:
        journal.append(journal.event("a", 1))
    assert isinstance(caught.value.__cause__, OutcomeUnknown)
    assert journal.unsettled is None
    with pytest.raises(WriterFenced, match="stopped after BackendUnavailable"):
        journal.append(journal.event("b", 2))
    assert types(journal) == []
    journal.claim("w")
    journal.append(journal.event("c", 3))
    assert types(journal) == ["c"]


def test_sending_and_settling_are_bounded_and_the_pauses_grow(
    journal: ThreadJournal, store: Any, slept: list[float]
) -> None:
    journal.claim("w")
    store.fail("append", *["lost"] * 5)
    store.fail("settle", *["unknown", "refused"] * 2, "unknown")
    with pytest.raises(OutcomeUnknown) as caught:
        journal.append(journal.event("a", 1), batch_id="mine")
    assert (caught.value.batch_id, caught.value.base_seq) == ("mine", 0)
    assert (store.calls["append"], store.calls["settle"]) == (5, 5)
    assert slept == [0.05, 0.1, 0.2, 0.4] * 2
    assert journal.unsettled == ("mine", 0)
    with pytest.raises(WriterFenced):
        journal.append(journal.event("b", 2))
    receipt = journal.settle()
    assert receipt is not None
    assert (receipt.batch_id, receipt.last_seq) == ("mine", 1)
    assert journal.unsettled is None
    with pytest.raises(WriterFenced):  # others were refused meanwhile: the order is lost until a new claim
        journal.append(journal.event("b", 2))
    assert journal.claim("w").last_seq == 1


def test_what_is_unsettled_can_be_settled_after_a_new_claim_too(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    store.fail("append", *["lost"] * 5)
    store.fail("settle", *["unknown"] * 5)
    with pytest.raises(OutcomeUnknown):
        journal.append(journal.event("a", 1), batch_id="mine")
    journal.claim("w")
    receipt = journal.settle()
    assert receipt is not None
    assert receipt.batch_id == "mine"
    with pytest.raises(ValueError, match="unsettled"):
        journal.settle()


def test_a_refusal_that_lasts_is_reported_after_bounded_attempts(store: Any, key: ThreadKey) -> None:
    slept: list[float] = []
    patience = Patience(resends_max=2, pause_s=1.0, pause_max_s=1.5)
    journal = ThreadJournal(store, key, sleep=slept.append, patience=patience)
    journal.claim("w")
    store.fail("append", *["refused"] * 3)
    with pytest.raises(BackendUnavailable, match="append refused"):
        journal.append(journal.event("a", 1))
    assert (store.calls["append"], store.calls["settle"], slept) == (3, 0, [1.0, 1.5])
    assert journal.unsettled is None
    with pytest.raises(WriterFenced):
        journal.append(journal.event("a", 1))


def test_patience_has_no_negative_numbers() -> None:
    for wrong in ({"resends_max": -1}, {"pause_s": -1.0}, {"pause_max_s": -0.1}):
        with pytest.raises(ValueError, match="negative"):
            Patience(**wrong)  # type: ignore[arg-type]
    assert list(Patience(resends_max=0).pauses()) == [0.0]


def test_a_fenced_handle_stays_fenced_until_it_claims_and_never_asks_the_store(
    journal: ThreadJournal, store: Any, key: ThreadKey
) -> None:
    journal.claim("w")
    journal.append(journal.event("a", 1))
    usurper = ThreadJournal(store, key)
    usurper.claim("w2")
    with pytest.raises(WriterFenced) as caught:
        journal.append(journal.event("b", 2))
    assert (caught.value.committed, caught.value.current_epoch) == (None, 2)
    calls = store.calls["append"]
    for _ in range(3):
        with pytest.raises(WriterFenced, match="stopped after WriterFenced"):
            journal.append(journal.event("b", 2))
    assert store.calls["append"] == calls
    usurper.append(usurper.event("c", 3))
    assert journal.last_seq == 1  # it reloads nothing by itself
    assert journal.claim("w").last_seq == 2
    journal.append(journal.event("d", 4))
    assert types(journal) == ["a", "c", "d"]


def test_a_fenced_handle_learns_that_its_batch_had_landed(journal: ThreadJournal, store: Any, key: ThreadKey) -> None:
    journal.claim("w")
    store.fail("append", "lost", lambda: ThreadJournal(store.inner, key).claim("w2"))
    with pytest.raises(WriterFenced) as caught:
        journal.append(journal.event("a", 1))
    assert caught.value.committed is not None
    assert caught.value.committed.last_seq == 1
    assert journal.unsettled is None


def test_a_new_owner_learns_that_the_old_ones_batch_landed(journal: ThreadJournal, store: Any, key: ThreadKey) -> None:
    journal.claim("w")
    batch = Batch("mine", (journal.event("a", 1),))
    journal.append_batch(batch)
    journal.append(journal.event("b", 2))
    other = ThreadJournal(store, key)
    other.claim("w2")
    receipt = other.append_batch(batch)
    assert (receipt.replayed, receipt.last_seq, other.last_seq) == (True, 1, 2)
    assert other.append(other.event("c", 3)).first_seq == 3
    with pytest.raises(BatchConflict):
        other.append(other.event("d", 4), batch_id="mine")


def test_a_journal_that_moved_on_is_a_conflict_and_the_end_of_the_handle(journal: ThreadJournal, store: Any) -> None:
    claim = journal.claim("w")
    store.inner.append(claim, Batch("beside", (journal.event("x", 0),)), 0)
    with pytest.raises(HeadConflict) as caught:
        journal.append(journal.event("a", 1))
    assert (caught.value.last_seq, caught.value.base_seq) == (1, 0)
    assert journal.last_seq == 0
    with pytest.raises(WriterFenced, match="stopped after HeadConflict"):
        journal.append(journal.event("a", 1))
    assert types(journal) == ["x"]


def test_nothing_follows_a_batch_that_was_too_large(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    journal_events = [journal.event("x", n) for n in range(store.capabilities.limits.batch_events_max + 1)]
    with pytest.raises(LimitExceeded):
        journal.append(*journal_events)
    assert journal.unsettled is None
    with pytest.raises(WriterFenced, match="stopped after LimitExceeded"):
        journal.append(journal.event("x", 1))
    assert types(journal) == []


def test_damage_after_an_unknown_attempt_leaves_it_unsettled(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    store.fail("append", "lost", JournalCorrupt("broken", what="head"))
    with pytest.raises(JournalCorrupt):
        journal.append(journal.event("a", 1), batch_id="mine")
    assert journal.unsettled == ("mine", 0)
    assert journal.settle() is not None


def test_an_interrupt_stops_the_handle_with_its_batch_unsettled(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    store.fail("append", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        journal.append(journal.event("a", 1), batch_id="mine")
    with pytest.raises(WriterFenced, match="interrupted"):
        journal.append(journal.event("b", 2))
    assert journal.unsettled == ("mine", 0)
    assert journal.settle() is None
    journal.claim("w")
    assert journal.append(journal.event("b", 2)).last_seq == 1  # no lock was left


def test_many_threads_share_a_handle_and_every_batch_is_there_once(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    store.fail("append", *["lost", None, "unknown", None, "refused", None] * 20)

    def append(number: int) -> int:
        return journal.append(journal.event("x", number, event_id=f"e{number}"), batch_id=f"b{number}").last_seq

    with ThreadPoolExecutor(8) as pool:
        seqs = list(pool.map(append, range(120)))
    assert sorted(seqs) == list(range(1, 121))
    events = {event.seq: event.event_id for event in journal.read()}
    assert events == {seq: f"e{number}" for number, seq in enumerate(seqs)}


def test_after_a_failure_no_waiting_thread_commits(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    store.fail("append", None, None, JournalCorrupt("broken"))

    def append(number: int) -> bool:
        try:
            journal.append(journal.event("x", number))
        except (JournalCorrupt, WriterFenced):
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(append, range(50)))
    assert sum(results) == 2
    assert len(list(journal.read())) == 2
    assert store.calls["append"] == 3


def test_a_claim_that_is_refused_leaves_the_one_before(journal: ThreadJournal, store: Any) -> None:
    claim = journal.claim("w")
    with pytest.raises(WriterBusy) as caught:
        journal.claim("w2", replacing=NONE)
    assert caught.value.holder == claim.info
    assert journal.append(journal.event("a", 1)).last_seq == 1
    assert journal.claim("w2", replacing=claim.info).epoch == claim.epoch + 1


def test_the_claim_is_released_at_the_end_of_a_with_block(journal: ThreadJournal) -> None:
    with journal as same:
        assert same is journal
        journal.claim("w")
        journal.append(journal.event("a", 1))
    head = journal.head()
    assert head is not None
    assert (head.claim, head.epoch, journal.held) == (None, 1, None)
    with pytest.raises(WriterFenced):
        journal.append(journal.event("b", 2))


def test_a_with_block_ends_quietly_when_the_claim_is_over(journal: ThreadJournal, store: Any, key: ThreadKey) -> None:
    with journal:
        journal.claim("w")
        ThreadJournal(store, key).claim("w2")
    head = journal.head()
    assert head is not None
    assert head.claim is not None
    assert head.claim.writer_id == "w2"


def test_an_error_of_the_body_wins_over_one_of_the_release(journal: ThreadJournal, store: Any) -> None:
    def body() -> None:
        with journal:
            journal.claim("w")
            store.fail("release", BackendUnavailable("down"))
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        body()


def test_a_release_that_fails_is_reported(journal: ThreadJournal, store: Any) -> None:
    def body() -> None:
        with journal:
            journal.claim("w")
            store.fail("release", BackendUnavailable("down"))

    with pytest.raises(BackendUnavailable):
        body()
    journal.release()
    assert journal.held is None


def test_a_lost_release_is_sent_again_within_bounds(journal: ThreadJournal, store: Any, key: ThreadKey) -> None:
    journal.claim("w")
    store.fail("release", "lost")
    journal.release()
    assert (journal.held, store.calls["release"]) == (None, 2)
    journal.claim("w")
    store.fail("release", "lost", lambda: store.inner.claim(key, "w2"))
    journal.release()  # ours had landed, and somebody claimed since
    assert journal.held is None
    journal.claim("w")
    store.fail("release", *["unknown"] * 5)
    with pytest.raises(OutcomeUnknown):
        journal.release()
    assert journal.held is not None


def test_a_heartbeat_shows_the_writer_alive_and_finds_out_that_it_is_not(
    journal: ThreadJournal, store: Any, key: ThreadKey
) -> None:
    journal.claim("w")
    before = journal.head()
    journal.heartbeat()
    after = journal.head()
    assert before is not None
    assert after is not None
    assert (before.generation + 1, before.epoch, before.claim) == (after.generation, after.epoch, after.claim)
    assert journal.append(journal.event("a", 1)).last_seq == 1
    store.inner.claim(key, "w2")
    with pytest.raises(WriterFenced):
        journal.heartbeat()
    calls = store.calls["append"]
    with pytest.raises(WriterFenced, match="stopped after"):
        journal.append(journal.event("b", 2))
    assert store.calls["append"] == calls
