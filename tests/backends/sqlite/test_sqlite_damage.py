"""Rows that were changed or lost: an error that says so, and nothing is written, emptied or skipped (FORMAT-1)."""

from collections.abc import Callable
from typing import Any

import pytest

from statebook import (
    AgentStateStore,
    DataError,
    JournalCorrupt,
    SlotKind,
    StateCorrupt,
    StateKey,
    ThreadJournalStore,
    ThreadKey,
    UnsupportedFormat,
    WriterClaim,
)
from statebook.plugins import load_backend, open_journal

Raw = Callable[..., list[Any]]
SLOT = StateKey("u", "s", "k")


@pytest.fixture
def claim(journal: ThreadJournalStore, key: ThreadKey, batch: Any) -> WriterClaim:
    claim = journal.claim(key, "w")
    last = 0
    for number in range(10):
        last = journal.append(claim, batch(f"b{number}", 2), last).last_seq
    return claim


@pytest.mark.parametrize(
    "change",
    [
        "generation = generation + 1",
        "nonce = 'x'",
        "last_seq = last_seq - 2",
        "last_seq = last_seq + 1",
        "first_seq = 3",
        "epoch = 7",
        "claim_nonce = 'x'",
        "claim_nonce = NULL",
        "writer_id = 'x'",
        "chain = 'x'",
        "checkpoint_seq = 1",
        "state = 'deleted'",
        "journal_id = 'x'",
        "user_id = 'x'",
        "thread_id = 'x'",
        "seal = 'x'",
    ],
)
def test_a_head_that_was_changed_by_hand_is_refused_by_readers_and_writers(
    journal: ThreadJournalStore, key: ThreadKey, claim: WriterClaim, batch: Any, raw: Raw, change: str
) -> None:
    raw(f"UPDATE journal SET {change}")
    rows = raw("SELECT * FROM journal"), raw("SELECT * FROM batch")
    for call in (
        lambda: journal.head(key),
        lambda: journal.read_after(key, 0),
        lambda: journal.claim(key, "other"),
        lambda: journal.heartbeat(claim),
        lambda: journal.trim(key, 3),
        lambda: journal.delete(key),
    ):
        with pytest.raises(JournalCorrupt) as caught:
            call()
        assert caught.value.what == "head"
        assert caught.value.expected != caught.value.found
    assert journal.verify(key).findings[0].what == "head"
    assert (raw("SELECT * FROM journal"), raw("SELECT * FROM batch")) == rows


@pytest.mark.parametrize("change", ["last_seq = last_seq + 1", "epoch = 7", "nonce = 'x'", "seal = 'x'"])
def test_an_append_to_a_head_that_was_changed_by_hand_writes_nothing(
    journal: ThreadJournalStore, claim: WriterClaim, batch: Any, raw: Raw, change: str
) -> None:
    raw(f"UPDATE journal SET {change}")
    before = raw("SELECT * FROM batch")
    with pytest.raises(JournalCorrupt):
        journal.append(claim, batch("new"), 20)
    assert raw("SELECT * FROM batch") == before


def test_a_head_of_another_format_is_refused_by_its_version(
    journal: ThreadJournalStore, key: ThreadKey, claim: WriterClaim, raw: Raw
) -> None:
    raw("UPDATE journal SET format = 3")
    with pytest.raises(UnsupportedFormat):
        journal.head(key)


def test_batches_without_their_head_are_damage_and_no_empty_journal(
    journal: ThreadJournalStore, key: ThreadKey, claim: WriterClaim, batch: Any, raw: Raw
) -> None:
    raw("DELETE FROM journal")
    for call in (
        lambda: journal.head(key),
        lambda: journal.read_after(key, 0),
        lambda: journal.claim(key, "other"),
        lambda: journal.append(claim, batch("new"), 20),
    ):
        with pytest.raises(JournalCorrupt):
            call()
    assert raw("SELECT count(*) FROM batch") == [(10,)]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM batch WHERE last_seq = 10",
        "DELETE FROM batch WHERE last_seq = 20",
        "DELETE FROM batch",
        "UPDATE batch SET last_seq = 9 WHERE last_seq = 10",
        "UPDATE batch SET last_seq = 11, first_seq = 10 WHERE last_seq = 10",
        "UPDATE batch SET first_seq = 10 WHERE last_seq = 10",
        "UPDATE batch SET digest = 'x' WHERE last_seq = 10",
        "UPDATE batch SET body = CAST(replace(CAST(body AS TEXT), '\"x\"', '\"y\"') AS BLOB) WHERE last_seq = 10",
        "UPDATE batch SET body = x'' WHERE last_seq = 10",
        "UPDATE batch SET batch_id = 'x' WHERE last_seq = 10",
        "UPDATE batch SET (digest, body) = (SELECT digest, body FROM batch WHERE last_seq = 4) WHERE last_seq = 10",
        "UPDATE batch SET chain = 'x' WHERE last_seq = 20",
    ],
)
def test_a_batch_that_was_changed_or_lost_is_met_by_every_page_over_it(
    journal: ThreadJournalStore, key: ThreadKey, claim: WriterClaim, raw: Raw, change: str
) -> None:
    raw(change)
    with pytest.raises(JournalCorrupt):
        journal.read_after(key, 0)
    with pytest.raises(JournalCorrupt):
        journal.read_after(key, 8, 100)
    if "20" not in change and change != "DELETE FROM batch":
        assert [event.seq for event in journal.read_after(key, 0, 8).events] == list(range(1, 9))
    assert journal.verify(key, deep=True).findings != ()


@pytest.mark.parametrize("change", ["epoch = 7 WHERE last_seq = 10", "chain = 'x' WHERE last_seq = 10"])
def test_a_link_of_the_chain_that_was_changed_is_found_by_a_deep_check(
    journal: ThreadJournalStore, key: ThreadKey, claim: WriterClaim, raw: Raw, change: str
) -> None:
    raw(f"UPDATE batch SET {change}")
    assert "chain" in {finding.what for finding in journal.verify(key, deep=True).findings}


def test_a_writer_that_opens_a_damaged_journal_anew_appends_nothing(
    journal: ThreadJournalStore, url: str, key: ThreadKey, claim: WriterClaim, batch: Any, raw: Raw
) -> None:
    raw("DELETE FROM batch WHERE last_seq = 20")
    journal.close()
    store = open_journal(url)
    with pytest.raises(JournalCorrupt):
        store.append(claim, batch("new"), 20)
    assert raw("SELECT count(*) FROM batch") == [(9,)]
    store.close()


def test_a_row_in_the_place_of_the_next_batch_is_damage(
    journal: ThreadJournalStore, claim: WriterClaim, batch: Any, raw: Raw
) -> None:
    raw("INSERT INTO batch SELECT jid, 21, 21, 'stray', epoch, digest, chain, body FROM batch WHERE last_seq = 20")
    with pytest.raises(JournalCorrupt):
        journal.append(claim, batch("new"), 20)
    head = journal.head(claim.key)
    assert head is not None
    assert head.last_seq == 20


def test_a_cursor_that_was_changed_by_hand_is_refused(
    journal: ThreadJournalStore, key: ThreadKey, claim: WriterClaim, raw: Raw
) -> None:
    cursor = journal.open_cursor(key, "x")
    raw("UPDATE cursor SET acked_seq = 5")
    for call in (
        lambda: journal.open_cursor(key, "x"),
        lambda: journal.advance_cursor(cursor, 6),
        lambda: journal.trim(key, 3),
    ):
        with pytest.raises(JournalCorrupt) as caught:
            call()
        assert caught.value.what == "cursor"
    assert [finding.what for finding in journal.verify(key).findings] == ["cursor"]


@pytest.mark.parametrize(
    "change",
    [
        "value = CAST('2' AS BLOB)",
        "value = NULL",
        "version = 9",
        "digest = 'x'",
        "seal = 'x'",
        "key = 'x'",
        "format = 3",
    ],
)
def test_a_document_that_was_changed_by_hand_is_refused_and_kept(state: AgentStateStore, raw: Raw, change: str) -> None:
    state.save(SLOT, b"1")
    raw(f"UPDATE slot SET {change}")
    before = raw("SELECT * FROM slot")
    for call in (lambda: state.load(SLOT), lambda: state.save(SLOT, b"3"), lambda: state.delete(SLOT)):
        with pytest.raises((StateCorrupt, UnsupportedFormat)):
            call()
    assert raw("SELECT * FROM slot") == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chunk SET body = CAST('9' AS BLOB) WHERE first = 1",
        "UPDATE chunk SET sizes = '[2]' WHERE first = 1",
        "UPDATE chunk SET first = 7 WHERE first = 1",
        "DELETE FROM chunk WHERE first = 1",
        "DELETE FROM chunk WHERE first = 2",
        "DELETE FROM slot",
        "UPDATE slot SET length = 2",
    ],
)
def test_a_list_that_was_changed_by_hand_is_refused(state: AgentStateStore, raw: Raw, change: str) -> None:
    for number in range(3):
        state.append_list(SLOT, [b"%d" % number], expected_length=number)
    raw(change)
    with pytest.raises(StateCorrupt):
        state.load_list(SLOT)


def test_listings_refuse_a_slot_that_was_changed_by_hand(state: AgentStateStore, raw: Raw) -> None:
    state.save(SLOT, b"1")
    raw("UPDATE slot SET key = 'other'")
    for call in (
        lambda: state.exists(SLOT.session),
        lambda: state.list_keys(SLOT.session),
        lambda: state.list_sessions("u"),
        lambda: state.delete_session(SLOT.session),
    ):
        with pytest.raises(StateCorrupt):
            call()


def test_text_that_is_no_text_is_damage(
    journal: ThreadJournalStore, key: ThreadKey, claim: WriterClaim, raw: Raw
) -> None:
    raw("UPDATE journal SET writer_id = CAST(x'ff' AS TEXT)")
    with pytest.raises(JournalCorrupt):
        journal.head(key)


def test_a_table_that_was_dropped_is_damage(
    journal: ThreadJournalStore, key: ThreadKey, claim: WriterClaim, raw: Raw
) -> None:
    raw("DROP TABLE batch")
    with pytest.raises(JournalCorrupt):
        journal.read_after(key, 0)


def test_every_record_that_the_medium_shows_is_read_written_and_brought_back(
    journal: ThreadJournalStore, state: AgentStateStore, url: str, key: ThreadKey, claim: WriterClaim
) -> None:
    journal.open_cursor(key, "x")
    state.append_list(SLOT, [b"1"], expected_length=0)
    state.save(SLOT, b"1")
    medium = load_backend(url).open_medium()
    assert medium is not None
    records = medium.records()
    whole = {record: medium.read(record) for record in records}
    assert {record.partition("/")[0] for record in records} == {"thread", "journal", "batch", "cursor", "slot", "chunk"}
    for record in records:
        medium.remove(record)
        medium.write(record, whole[record])
    assert {record: medium.read(record) for record in medium.records()} == whole
    assert journal.verify(key, deep=True).findings == ()
    with pytest.raises(ValueError, match="cannot hold"):
        medium.write(next(record for record in records if record.endswith("/last_seq")), b"x")
    body = next(record for record in records if record.endswith("/body") and record.startswith("batch/"))
    medium.write(body, whole[body].replace(b"1", b"2", 1))
    with pytest.raises(DataError):
        journal.read_after(key, 0)
    with pytest.raises(KeyError):
        medium.read("batch/999/body")
    with pytest.raises(KeyError):
        medium.read("sqlite_master/1/sql")
    medium.close()


def test_deleting_and_purging_leave_no_record(
    journal: ThreadJournalStore, url: str, key: ThreadKey, claim: WriterClaim
) -> None:
    journal.open_cursor(key, "x")
    assert journal.delete(key)
    medium = load_backend(url).open_medium()
    assert medium is not None
    assert not [record for record in medium.records() if record.startswith("batch/")]
    assert journal.purge(key)
    assert medium.records() == ()
    medium.close()


def test_one_kind_of_slot_is_no_other(state: AgentStateStore) -> None:
    state.save(SLOT, b"1")
    assert state.load_list(SLOT) is None
    assert state.delete(SLOT, kind=SlotKind.LIST) is False
