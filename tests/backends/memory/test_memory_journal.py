"""The journal in memory: the table of appends, retries for ever, pages, cursors, trims, tombstones."""

from threading import Thread
from typing import Protocol

import pytest

from statebook import (
    AppendRequest,
    Batch,
    BatchConflict,
    CursorInvalid,
    HeadConflict,
    JournalRegressed,
    LimitExceeded,
    Receipt,
    ThreadJournalStore,
    ThreadKey,
    ThreadScope,
    Trimmed,
    WriterClaim,
    WriterFenced,
)

KEY = ThreadKey("u", "a", "s", "t")


class MakeBatch(Protocol):
    def __call__(self, name: str, events: int = 1, type_: str = "x", payload: bytes = b"1") -> Batch: ...


def filled(journal: ThreadJournalStore, batch: MakeBatch, batches: int, events: int = 3) -> WriterClaim:
    claim = journal.claim(KEY, "w")
    for number in range(batches):
        journal.append(claim, batch(f"b{number}", events), number * events)
    return claim


def test_a_retry_is_recognised_for_ever_whatever_its_base(journal: ThreadJournalStore, batch: MakeBatch) -> None:
    claim = filled(journal, batch, 200)
    receipt = journal.append(claim, batch("b0", 3), 17)
    assert (receipt.first_seq, receipt.last_seq, receipt.replayed) == (1, 3, True)
    journal.trim(KEY, 100)
    assert journal.append(claim, batch("b0", 3), 0).replayed
    with pytest.raises(BatchConflict):
        journal.append(claim, batch("b0", 3, payload=b"2"), 0)
    head = journal.head(KEY)
    assert head is not None
    assert head.last_seq == 600


def test_an_event_id_that_is_there_is_refused_in_the_window_and_at_the_base(
    journal: ThreadJournalStore, batch: MakeBatch
) -> None:
    claim = filled(journal, batch, 200)
    with pytest.raises(BatchConflict) as caught:
        journal.append(claim, Batch("new", batch("b199", 2).events), 600)
    assert caught.value.event_id == "b199.0"
    with pytest.raises(BatchConflict):
        journal.append(claim, Batch("new", batch("b1", 1).events), 3)
    with pytest.raises(HeadConflict):
        journal.append(claim, batch("new"), 3)
    with pytest.raises(JournalRegressed):
        journal.append(claim, batch("new"), 601)


def test_a_fenced_writer_learns_whether_its_batch_had_landed(journal: ThreadJournalStore, batch: MakeBatch) -> None:
    old = filled(journal, batch, 1)
    new = journal.claim(KEY, "w2")
    with pytest.raises(WriterFenced) as landed:
        journal.append(old, batch("b0", 3), 0)
    assert landed.value.committed is not None
    assert landed.value.committed.last_seq == 3
    with pytest.raises(WriterFenced) as lost:
        journal.append(old, batch("b1"), 3)
    assert (lost.value.committed, lost.value.current_epoch) == (None, new.epoch)
    assert journal.append(new, batch("b0", 3), 0).replayed
    with pytest.raises(WriterFenced):
        journal.append(WriterClaim(ThreadKey(None, "a", "s", "none"), "j", "w", 1, "n", 0), batch("b"), 0)


def test_a_group_answers_each_request_as_if_it_came_alone(journal: ThreadJournalStore, batch: MakeBatch) -> None:
    claim = filled(journal, batch, 1)
    other = journal.claim(ThreadKey(None, "a", "s", "t2"), "w")
    limits = journal.capabilities.limits
    outcomes = journal.append_many(
        [
            AppendRequest(claim, batch("b1"), 3),
            AppendRequest(other, batch("c1"), 0),
            AppendRequest(claim, batch("b2"), 9),
            AppendRequest(claim, batch("b3"), 4),
            AppendRequest(other, batch("c2", limits.batch_events_max + 1), 1),
            AppendRequest(claim, batch("b1"), 3),
        ]
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Receipt, Receipt, JournalRegressed, Receipt, LimitExceeded, Receipt]
    last = outcomes[-1]
    assert isinstance(last, Receipt)
    assert last.replayed
    with pytest.raises(LimitExceeded):
        journal.append_many([AppendRequest(claim, batch("b"), 0)] * (limits.group_batches_max + 1))
    with pytest.raises(ValueError, match="base_seq"):
        journal.append_many([AppendRequest(claim, batch("b9"), 5), AppendRequest(claim, batch("b10"), -1)])
    head = journal.head(KEY)
    assert head is not None
    assert head.last_seq == 5


def test_settling_moves_the_generation_and_only_then_says_no(journal: ThreadJournalStore, batch: MakeBatch) -> None:
    claim = filled(journal, batch, 1)
    before = journal.head(KEY)
    found = journal.settle(claim, "b0", 0)
    assert found is not None
    assert found.replayed
    journal.claim(KEY, "w2")
    assert journal.settle(claim, "b1", 3) is None
    after = journal.head(KEY)
    assert before is not None
    assert after is not None
    assert (after.generation, after.epoch) == (before.generation + 2, before.epoch + 1)


@pytest.mark.parametrize("events", [1, 3, 7])
def test_pages_hold_every_event_once_whatever_their_size(
    journal: ThreadJournalStore, batch: MakeBatch, events: int
) -> None:
    filled(journal, batch, 20, events)
    total = 20 * events
    for limit in (1, 2, 5, 10_000):
        seen: list[int] = []
        for _ in range(total + 1):
            page = journal.read_after(KEY, seen[-1] if seen else 0, limit)
            assert len(page.events) <= limit
            assert page.last_seq == total
            seen.extend(event.seq for event in page.events)
            assert page.has_more == (seen[-1] < total)
            if not page.has_more:
                break
        assert seen == list(range(1, total + 1))
    assert journal.read_after(KEY, total).events == ()
    with pytest.raises(JournalRegressed):
        journal.read_after(KEY, total + 1)


def test_trimming_stops_at_cursors_and_checkpoints_and_keeps_batches_whole(
    journal: ThreadJournalStore, batch: MakeBatch
) -> None:
    claim = filled(journal, batch, 10)
    cursor = journal.advance_cursor(journal.open_cursor(KEY, "e"), 20)
    assert journal.trim(KEY, 29).first_seq == 21
    with pytest.raises(Trimmed):
        journal.read_after(KEY, 19)
    assert [event.seq for event in journal.read_after(KEY, 20, 2).events] == [21, 22]
    journal.append(claim, batch("check", type_="state/checkpoint"), 30)
    journal.append(claim, batch("later"), 31)
    journal.advance_cursor(cursor, 32)
    assert journal.trim(KEY, 1_000).first_seq == 31
    assert journal.trim(KEY, 1).first_seq == 31
    report = journal.verify(KEY, deep=True)
    assert (report.findings, report.batches) == ((), 2)


def test_a_new_incarnation_has_no_receipts_and_old_cursors_are_invalid(
    journal: ThreadJournalStore, batch: MakeBatch
) -> None:
    old = filled(journal, batch, 2)
    journal.open_cursor(KEY, "e")
    assert journal.delete(KEY)
    assert not journal.delete(KEY)
    assert journal.head(KEY) is None
    assert journal.list_threads(ThreadScope("u")).threads == ()
    with pytest.raises(WriterFenced):
        journal.append(old, batch("b5"), 6)
    new = journal.claim(KEY, "w")
    assert new.epoch == old.epoch + 1
    assert new.journal_id != old.journal_id
    assert not journal.append(new, batch("b0", 3), 0).replayed
    with pytest.raises(CursorInvalid) as caught:
        journal.open_cursor(KEY, "e")
    assert caught.value.version is not None
    assert journal.reset_cursor(KEY, "e", 3, expected_version=caught.value.version).acked_seq == 3
    with pytest.raises(HeadConflict):
        journal.purge(KEY)
    journal.delete(KEY)
    assert journal.purge(KEY)
    assert not journal.purge(KEY)
    journal.claim(KEY, "w")
    assert journal.open_cursor(KEY, "e").version == 1


def test_every_id_is_a_thread_of_its_own_and_is_listed_as_it_was_given(
    journal: ThreadJournalStore, batch: MakeBatch, ids: tuple[str, ...]
) -> None:
    keys = [ThreadKey("u", "a", "s", one) for one in ids] + [ThreadKey(one, one, one, one) for one in ids if one != "u"]
    for key in keys:
        claim = journal.claim(key, key.thread_id)
        journal.append(claim, batch(key.thread_id[:100]), 0)
        journal.open_cursor(key, key.thread_id)
    listed = [key for one in {"u", *ids} for key in journal.list_threads(ThreadScope(one)).threads]
    assert sorted(key.name for key in listed) == sorted(key.name for key in keys)
    page = journal.list_threads(ThreadScope("u", "a", "s"), limit=10)
    names = [key.name for key in page.threads]
    assert names == sorted(key.name for key in keys if key.user_id == "u")[:10]
    assert page.has_more
    assert journal.list_threads(ThreadScope(None)).threads == ()
    with pytest.raises(ValueError, match="after"):
        journal.list_threads(ThreadScope("u"), after=ThreadKey(None, "a", "s", "t"))


def test_many_writers_of_one_journal_leave_no_gap_and_no_double(journal: ThreadJournalStore, batch: MakeBatch) -> None:
    claim = journal.claim(KEY, "w")

    def write(name: str) -> None:
        for number in range(50):
            for _ in range(10_000):
                head = journal.head(KEY)
                assert head is not None
                try:
                    journal.append(claim, batch(f"{name}{number}", 2), head.last_seq)
                except HeadConflict:
                    continue
                break

    threads = [Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = journal.read_after(KEY, 0, 10_000).events
    assert [event.seq for event in events] == list(range(1, 401))
    assert len({event.event_id for event in events}) == 400
    assert journal.verify(KEY, deep=True).findings == ()
