"""Reading and exporting through the handle: pages, checkpoints, cursors (READ, CURSOR)."""

from __future__ import annotations

from typing import Any

import pytest

from statebook import (
    CursorFenced,
    CursorRegression,
    JournalNotFound,
    JournalRegressed,
    OutcomeUnknown,
    ThreadJournal,
    ThreadKey,
    Trimmed,
)


def write(journal: ThreadJournal, count: int, type_: str = "x") -> None:
    for number in range(count):
        journal.append(journal.event(type_, number))


def seqs(events: Any) -> list[int]:
    return [event.seq for event in events]


@pytest.mark.parametrize("page", [1, 2, 3, 6, 7, 8, 10_000])
@pytest.mark.parametrize("after", [0, 1, 6, 7])
def test_reading_in_pages_gives_each_event_once(journal: ThreadJournal, after: int, page: int) -> None:
    journal.claim("w")
    write(journal, 7)
    assert seqs(journal.read(after, page=page)) == list(range(after + 1, 8))


def test_an_iteration_ends_at_the_end_it_found_and_blocks_no_writer(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    write(journal, 5)
    seen = []
    for event in journal.read(page=2):
        seen.append(event.seq)
        write(journal, 3)  # a writer that never stops
    assert seen == [1, 2, 3, 4, 5]
    assert store.calls["read_after"] == 3
    assert journal.last_seq == 20


@pytest.mark.parametrize(("after", "page"), [(-1, 1), (0, 0), (0, 10_001), (True, 1), (0, None), ("0", 1)])
def test_a_wrong_position_or_page_is_refused_at_the_call(journal: ThreadJournal, after: Any, page: Any) -> None:
    with pytest.raises(ValueError, match="must be an integer"):
        journal.read(after, page=page)


def test_a_position_behind_the_end_or_in_a_trimmed_part_is_an_error(journal: ThreadJournal) -> None:
    journal.claim("w")
    write(journal, 5)
    with pytest.raises(JournalRegressed):
        list(journal.read(6))
    assert journal.trim(4).first_seq == 4
    with pytest.raises(Trimmed):
        list(journal.read(0))
    assert seqs(journal.read(3)) == [4, 5]
    assert journal.read_after(3, 1).has_more


def test_reading_from_the_checkpoint_costs_what_follows(journal: ThreadJournal, store: Any) -> None:
    assert list(journal.read_from_checkpoint()) == []
    journal.claim("w")
    write(journal, 3)
    assert seqs(journal.read_from_checkpoint(page=2)) == [1, 2, 3]
    write(journal, 50)
    journal.append(journal.event("state/checkpoint", {"n": 53}))
    write(journal, 2)
    store.calls.clear()
    events = list(journal.read_from_checkpoint(page=10))
    assert (seqs(events), events[0].type) == ([54, 55, 56], "state/checkpoint")
    assert store.calls["read_after"] == 1


def test_reading_from_the_start_of_what_is_left_where_there_is_no_checkpoint(journal: ThreadJournal) -> None:
    journal.claim("w")
    write(journal, 5)
    journal.trim(3)
    assert seqs(journal.read_from_checkpoint(page=1)) == [3, 4, 5]


def test_a_trim_that_overtakes_the_reader_sends_it_to_the_newer_checkpoint(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    write(journal, 1, "state/checkpoint")

    def overtake() -> None:
        write(journal, 1, "state/checkpoint")
        journal.trim(journal.last_seq)

    store.fail("head", overtake, overtake)
    assert seqs(journal.read_from_checkpoint()) == [3]
    store.fail("head", *[overtake] * 8)
    with pytest.raises(Trimmed):
        journal.read_from_checkpoint()
    with pytest.raises(ValueError, match="limit"):
        journal.read_from_checkpoint(page=0)


def test_a_cursor_gives_what_is_pending_and_moves_only_by_acknowledgement(journal: ThreadJournal) -> None:
    with pytest.raises(JournalNotFound):
        journal.cursor("exp")
    journal.claim("w")
    write(journal, 5)
    cursor = journal.cursor("exp")
    assert (cursor.exporter, cursor.acked_seq, cursor.key) == ("exp", 0, journal.key)
    assert seqs(cursor.pending(page=2)) == [1, 2, 3, 4, 5]
    assert seqs(cursor.pending()) == [1, 2, 3, 4, 5]  # nothing moved
    cursor.ack(3)
    cursor.ack(3)
    assert seqs(cursor.pending()) == [4, 5]
    with pytest.raises(CursorRegression):
        cursor.ack(2)
    with pytest.raises(JournalRegressed):
        cursor.ack(6)
    assert cursor.acked_seq == 3
    assert journal.cursor("exp").acked_seq == 3


def test_a_newer_opener_fences_the_older(journal: ThreadJournal) -> None:
    journal.claim("w")
    write(journal, 5)
    older = journal.cursor("exp")
    older.ack(2)
    newer = journal.cursor("exp")
    other = journal.cursor("other")
    with pytest.raises(CursorFenced):
        older.ack(4)
    newer.ack(5)
    assert (newer.acked_seq, older.acked_seq, other.acked_seq) == (5, 2, 0)
    assert newer.opened.epoch == older.opened.epoch + 1


@pytest.mark.parametrize("faults", [("lost",), ("unknown",), ("refused", "lost", "lost", "unknown")])
def test_an_acknowledgement_whose_reply_was_lost_is_sent_again(
    journal: ThreadJournal, store: Any, slept: list[float], faults: tuple[str, ...]
) -> None:
    journal.claim("w")
    write(journal, 5)
    cursor = journal.cursor("exp")
    store.fail("advance_cursor", *faults)
    cursor.ack(4)
    assert cursor.acked_seq == 4
    assert len(slept) == len(faults)
    cursor.ack(5)
    assert journal.cursor("exp").acked_seq == 5


def test_acknowledging_is_bounded_and_can_be_repeated(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    write(journal, 5)
    cursor = journal.cursor("exp")
    store.fail("advance_cursor", *["lost"] * 4, "refused")
    with pytest.raises(OutcomeUnknown):
        cursor.ack(4)
    assert store.calls["advance_cursor"] == 5
    assert cursor.acked_seq == 0
    cursor.ack(4)
    assert cursor.acked_seq == 4


def test_a_trim_stops_before_what_is_not_exported(journal: ThreadJournal) -> None:
    journal.claim("w")
    write(journal, 5)
    journal.cursor("exp").ack(2)
    assert journal.trim(5).first_seq == 3
    assert seqs(journal.cursor("exp").pending()) == [3, 4, 5]


def test_upkeep_goes_to_this_thread_only(journal: ThreadJournal, store: Any) -> None:
    journal.claim("w")
    write(journal, 2)
    other = ThreadJournal(store, ThreadKey("u", "a", "s", "other"))
    assert other.head() is None
    report = journal.verify(deep=True)
    assert (report.findings, report.events, report.key) == ((), 2, journal.key)
    assert journal.collect().deleted == 0
