"""Every row of the contract's append table, through the store, with small and with folded journals."""

from __future__ import annotations

import pytest
from honest_storage import KEY, HonestStorage, batch, event

from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.capabilities import Limits
from statebook.errors import (
    BatchConflict,
    HeadConflict,
    JournalRegressed,
    LimitExceeded,
    StatebookError,
    StoreClosed,
    WriterFenced,
)
from statebook.index_tree import SHAPE, Shape
from statebook.model import AppendRequest, Batch, WriterClaim

SMALL = Shape(tail_bytes_max=1_000, references_max=3)


class Journal:
    """A journal with 200 batches of one event, and its writer's claim."""

    def __init__(self, shape: Shape, storage: HonestStorage | None = None) -> None:
        self.storage = storage or HonestStorage()
        self.shape = shape
        self.store = self.other_store()
        self.claim = self.store.claim(KEY, "writer")
        self.receipts = [self.store.append(self.claim, batch(f"b{number}"), number) for number in range(200)]

    def other_store(self) -> AtomicThreadJournalStore:
        return AtomicThreadJournalStore(self.storage, shape=self.shape)

    def refused(self, error: type[StatebookError], claim: WriterClaim, sent: Batch, base: int) -> StatebookError:
        """Append, be refused, and leave no trace."""
        before = dict(self.storage.heads), dict(self.storage.blobs)
        with pytest.raises(error) as caught:
            self.store.append(claim, sent, base)
        assert (self.storage.heads, self.storage.blobs) == before
        return caught.value


@pytest.fixture(params=[SHAPE, SMALL], ids=["tail", "tree"])
def journal(request: pytest.FixtureRequest) -> Journal:
    return Journal(request.param)


def test_a_new_batch_at_the_head_is_committed(journal: Journal) -> None:
    receipt = journal.store.append(journal.claim, batch("new", 3), 200)
    assert (receipt.first_seq, receipt.last_seq, receipt.epoch, receipt.replayed) == (201, 203, 1, False)
    page = journal.store.read_after(KEY, 200)
    assert [(e.seq, e.event_id) for e in page.events] == [(201, "new.0"), (202, "new.1"), (203, "new.2")]


@pytest.mark.parametrize("number", [199, 150, 136])
def test_a_batch_of_the_last_64_is_recognised_whatever_its_base(journal: Journal, number: int) -> None:
    for base in (0, number, 200, 7_000):
        receipt = journal.store.append(journal.claim, batch(f"b{number}"), base)
        assert receipt.replayed
        assert (receipt.first_seq, receipt.digest) == (number + 1, journal.receipts[number].digest)


@pytest.mark.parametrize("number", [0, 1, 77, 135])
def test_an_older_batch_is_recognised_at_its_base_for_ever(journal: Journal, number: int) -> None:
    receipt = journal.store.append(journal.claim, batch(f"b{number}"), number)
    assert receipt.replayed
    assert (receipt.first_seq, receipt.digest) == (number + 1, journal.receipts[number].digest)
    assert journal.other_store().settle(journal.claim, f"b{number}", number) == receipt


@pytest.mark.parametrize("number", [0, 100, 199])
def test_the_same_batch_id_with_other_content_conflicts(journal: Journal, number: int) -> None:
    other = Batch(f"b{number}", (event(f"b{number}.0", b'{"x":2}'),))
    error = journal.refused(BatchConflict, journal.claim, other, number)
    assert isinstance(error, BatchConflict)
    assert (error.batch_id, error.event_id) == (f"b{number}", None)
    fenced = journal.claim
    journal.store.claim(KEY, "newer")
    journal.refused(BatchConflict, fenced, other, number)


@pytest.mark.parametrize("number", [0, 100, 199])
def test_a_fenced_writer_learns_that_its_batch_had_landed(journal: Journal, number: int) -> None:
    journal.other_store().claim(KEY, "newer")
    error = journal.refused(WriterFenced, journal.claim, batch(f"b{number}"), number)
    assert isinstance(error, WriterFenced)
    assert error.committed is not None
    assert error.committed.first_seq == number + 1
    assert error.current_epoch == 2


def test_the_new_owner_learns_that_the_old_ones_batch_landed(journal: Journal) -> None:
    newer = journal.other_store().claim(KEY, "newer")
    receipt = journal.store.append(newer, batch("b199"), 199)
    assert (receipt.replayed, receipt.epoch) == (True, 1)


@pytest.mark.parametrize(("number", "base"), [(199, 200), (137, 200), (0, 0), (100, 100)])
def test_an_event_id_that_is_there_already_conflicts(journal: Journal, number: int, base: int) -> None:
    sent = Batch("new", (event("fresh"), event(f"b{number}.0")))
    error = journal.refused(BatchConflict, journal.claim, sent, base)
    assert isinstance(error, BatchConflict)
    assert error.event_id == f"b{number}.0"
    journal.other_store().claim(KEY, "newer")
    journal.refused(BatchConflict, journal.claim, sent, base)


def test_a_fenced_writer_is_told_so_whatever_its_base(journal: Journal) -> None:
    journal.other_store().claim(KEY, "newer")
    for base in (0, 100, 200, 300):
        error = journal.refused(WriterFenced, journal.claim, batch("new"), base)
        assert isinstance(error, WriterFenced)
        assert error.committed is None


def test_a_stale_base_conflicts_and_says_where_the_head_is(journal: Journal) -> None:
    error = journal.refused(HeadConflict, journal.claim, batch("new"), 150)
    assert isinstance(error, HeadConflict)
    assert (error.last_seq, error.base_seq) == (200, 150)


def test_a_base_behind_the_end_is_a_regression(journal: Journal) -> None:
    error = journal.refused(JournalRegressed, journal.claim, batch("new"), 201)
    assert isinstance(error, JournalRegressed)
    assert (error.last_seq, error.seen_seq) == (200, 201)


def test_a_deleted_or_recreated_journal_fences_its_writer(journal: Journal) -> None:
    other = journal.other_store()
    other.delete(KEY)
    journal.refused(WriterFenced, journal.claim, batch("b199"), 199)
    again = other.claim(KEY, "again")
    assert (again.epoch, again.last_seq) == (2, 0)
    assert again.journal_id != journal.claim.journal_id
    journal.refused(WriterFenced, journal.claim, batch("b199"), 199)
    assert journal.store.append(again, batch("b199"), 0).first_seq == 1


def test_a_refusal_is_never_given_on_a_remembered_head() -> None:
    journal = Journal(SHAPE)
    stale = journal.store
    newer = journal.other_store().claim(KEY, "newer")
    # The other store's claim is unknown to this one: it must look before it says "fenced".
    assert stale.append(newer, batch("new"), 200).first_seq == 201
    journal.other_store().append(newer, batch("more"), 201)
    with pytest.raises(HeadConflict) as caught:
        stale.append(newer, batch("lost"), 201)
    assert caught.value.last_seq == 202
    with pytest.raises(JournalRegressed) as regressed:
        stale.append(newer, batch("lost"), 203)
    assert regressed.value.last_seq == 202


def test_too_large_batches_leave_no_trace() -> None:
    journal = Journal(SHAPE, HonestStorage(limits=Limits(batch_events_max=3, value_bytes_max=100, batch_bytes_max=900)))
    large = b'"' + b"x" * 80 + b'"'
    for sent in (batch("a", 4), batch("b", 1, b'"' + b"x" * 100 + b'"'), Batch("c" * 500, batch("c", 3, large).events)):
        journal.refused(LimitExceeded, journal.claim, sent, 200)


def test_append_many_answers_each_request_as_one_by_one() -> None:
    journal = Journal(SHAPE)
    claim = journal.claim
    outcomes = journal.store.append_many(
        [
            AppendRequest(claim, batch("b199"), 199),
            AppendRequest(claim, batch("n1"), 200),
            AppendRequest(claim, batch("n1"), 7),
            AppendRequest(claim, batch("n2"), 200),
            AppendRequest(claim, batch("n3"), 202),
        ]
    )
    assert [getattr(o, "replayed", type(o)) for o in outcomes] == [True, False, True, HeadConflict, JournalRegressed]


def test_a_checkpoint_moves_with_its_batch_only(journal: Journal) -> None:
    sent = Batch("cp", (event("cp.0"), event("cp.1", kind="state/checkpoint"), event("cp.2")))
    journal.refused(HeadConflict, journal.claim, sent, 199)
    journal.store.append(journal.claim, sent, 200)
    head = journal.store.head(KEY)
    assert head is not None
    assert head.checkpoint_seq == 202
    assert journal.other_store().claim(KEY, "next").checkpoint_seq == 202


def test_after_close_every_call_says_so_and_the_storage_is_closed_too() -> None:
    journal = Journal(SHAPE)
    journal.store.close()
    journal.store.close()
    assert journal.storage.closed >= 1
    for call in (
        lambda: journal.store.head(KEY),
        lambda: journal.store.claim(KEY, "w"),
        lambda: journal.store.append(journal.claim, batch("x"), 0),
        lambda: journal.store.settle(journal.claim, "x", 0),
        lambda: journal.store.read_after(KEY, 0),
        lambda: journal.store.collect(KEY),
        lambda: journal.store.purge(KEY),
    ):
        with pytest.raises(StoreClosed):
            call()
