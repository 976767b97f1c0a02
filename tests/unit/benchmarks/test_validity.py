"""The check behind every trial: planted loss, duplication, gaps and disorder are found, and a good journal passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from statebook import RecordedEvent, ThreadJournalStore, open_journal
from statebook_benchmarks.content import Batches, thread_key
from statebook_benchmarks.validity import check_journal, compare


def recorded(*ids: str, first: int = 1) -> list[RecordedEvent]:
    return [RecordedEvent(seq, name, "t", 0, b"1", None, None, False, 2) for seq, name in enumerate(ids, first)]


def whats(
    events: list[RecordedEvent], acknowledged: list[str], last_seq: int | None = None, unknown: str = ""
) -> set[str]:
    seq = len(events) if last_seq is None else last_seq
    return {finding.what for finding in compare("t", events, seq, acknowledged, frozenset(unknown))}


def test_a_journal_that_holds_what_was_acknowledged_passes() -> None:
    assert whats(recorded("a", "b", "c"), ["a", "b", "c"]) == set()


def test_a_planted_loss_is_found() -> None:
    assert whats(recorded("a", "c"), ["a", "b", "c"]) == {"loss"}
    assert whats([], ["a"]) == {"loss"}


def test_a_planted_duplication_is_found() -> None:
    assert whats(recorded("a", "b", "b", "c"), ["a", "b", "c"]) == {"duplication"}


def test_an_event_that_nobody_sent_is_found() -> None:
    assert whats(recorded("a", "x"), ["a"]) == {"unknown event"}


def test_an_event_of_unknown_outcome_may_be_there_or_not_but_not_twice() -> None:
    assert whats(recorded("a", "u"), ["a"], unknown="u") == set()
    assert whats(recorded("a"), ["a"], unknown="u") == set()
    assert whats(recorded("a", "u", "u"), ["a"], unknown="u") == {"duplication"}


def test_events_out_of_the_order_of_their_commits_are_found() -> None:
    assert whats(recorded("b", "a"), ["a", "b"]) == {"order"}


@pytest.mark.parametrize("last_seq", [1, 3])
def test_a_head_that_says_another_length_is_found(last_seq: int) -> None:
    assert whats(recorded("a", "b"), ["a", "b"], last_seq=last_seq) == {"gap"}


def test_seqs_that_do_not_begin_at_one_are_found() -> None:
    assert whats(recorded("a", "b", first=5), ["a", "b"]) == {"gap"}


@pytest.fixture
def store() -> Iterator[ThreadJournalStore]:
    with closing(open_journal("memory://validity")) as opened:
        yield opened


def test_a_real_journal_is_read_back_over_pages(store: ThreadJournalStore) -> None:
    key = thread_key("pages")
    claim = store.claim(key, "w")
    batches = Batches("pages", events=500, event_bytes=8)
    sent: list[str] = []
    for number in range(25):
        batch = batches.next()
        store.append(claim, batch, number * 500)
        sent.extend(event.event_id for event in batch.events)
    assert len(sent) == 12_500
    assert check_journal(store, key, sent) == []
    assert {finding.what for finding in check_journal(store, key, [*sent, "never"])} == {"loss"}
    assert {finding.what for finding in check_journal(store, key, sent[1:])} == {"unknown event"}
