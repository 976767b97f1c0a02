"""Reading, listing, trimming, collecting, deleting and purging journals over the atomic primitive."""

from __future__ import annotations

import pytest
from honest_storage import KEY, HonestStorage, batch, event

from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.atomic_reader import thread_scope
from statebook.capabilities import Feature
from statebook.codec import decode_value, digest
from statebook.errors import (
    CursorFenced,
    CursorInvalid,
    CursorRegression,
    HeadConflict,
    JournalNotFound,
    JournalRegressed,
    Trimmed,
    UnsupportedCapability,
    WriterBusy,
    WriterFenced,
)
from statebook.index_tree import Shape, name_generation
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import NONE, Batch, CollectReport, WriterClaim

SHAPE = Shape(tail_bytes_max=1_500, references_max=3)
SCOPE = thread_scope(KEY)


@pytest.fixture
def storage() -> HonestStorage:
    return HonestStorage()


@pytest.fixture
def store(storage: HonestStorage) -> AtomicThreadJournalStore:
    return journals(storage)


def journals(storage: HonestStorage) -> AtomicThreadJournalStore:
    return AtomicThreadJournalStore(storage, shape=SHAPE, pause=lambda attempt: None)


def filled(store: AtomicThreadJournalStore, batches: int, key: ThreadKey = KEY) -> WriterClaim:
    claim = store.claim(key, "writer")
    base = claim.last_seq
    for number in range(batches):
        base = store.append(claim, batch(f"b{base}-{number}", number % 3 + 1), base).last_seq
    return claim


def in_the_middle(storage: HonestStorage, call: str, act: object, nth: int = 1) -> None:
    """Do something beside the caller, before its nth call of a kind."""
    left = [nth]

    def before(name: str) -> None:
        if name == call:
            left[0] -= 1
            if left[0] == 0:
                storage.before_call = lambda name: None
                act()  # type: ignore[operator]

    storage.before_call = before


# ---------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("limit", [1, 2, 7, 50, 10_000])
def test_pages_of_any_size_give_every_event_once_and_in_order(store: AtomicThreadJournalStore, limit: int) -> None:
    filled(store, 120)
    head = store.head(KEY)
    assert head is not None
    seqs: list[int] = []
    more = True
    while more:
        page = store.read_after(KEY, len(seqs), limit)
        assert len(page.events) <= limit
        assert page.last_seq == head.last_seq
        seqs += [e.seq for e in page.events]
        more = page.has_more
    assert seqs == list(range(1, head.last_seq + 1))
    assert store.read_after(KEY, head.last_seq, limit).events == ()


def test_payloads_come_back_byte_for_byte_from_tail_and_segment(store: AtomicThreadJournalStore) -> None:
    claim = store.claim(KEY, "writer")
    payloads = [
        b"1.50",
        b'{"b": 1,"a":"\\u0000"}',
        '"é👩‍👩‍👧"'.encode(),
        b"[1,2.0,-0.0,1e400]",
        b'"' + b"x" * 5_000 + b'"',
    ]
    for number, payload in enumerate(payloads * 3):
        store.append(claim, Batch(f"b{number}", (event(f"e{number}", payload),)), number)
    assert [e.payload for e in store.read_after(KEY, 0).events] == payloads * 3


def test_what_is_stored_can_be_read_without_this_library(
    storage: HonestStorage, store: AtomicThreadJournalStore
) -> None:
    filled(store, 60)
    header, head, *tail = storage.heads[SCOPE][0].decode().splitlines()
    assert decode_value(header.encode())["kind"] == "journal-head"  # type: ignore[index,call-overload]
    assert decode_value(head.encode())["head"]["key"]["thread_id"] == "thread"  # type: ignore[index,call-overload]
    for (_, name), blob in storage.blobs.items():
        assert name_generation(name) is not None
        assert all(decode_value(line.encode()) for line in blob.decode().splitlines())
    line = decode_value(tail[-1].encode())
    assert digest(tail[-1].partition('"body":')[2][:-1].encode()) == line["digest"]  # type: ignore[index,call-overload]


def test_reading_positions_outside_of_the_journal_are_refused(store: AtomicThreadJournalStore) -> None:
    assert store.read_after(KEY, 0).events == ()
    with pytest.raises(JournalRegressed):
        store.read_after(KEY, 1)
    filled(store, 3)
    with pytest.raises(JournalRegressed):
        store.read_after(KEY, 7)
    for wrong in (-1, True, "0", None):
        with pytest.raises(ValueError, match="seq"):
            store.read_after(KEY, wrong)  # type: ignore[arg-type]
    for wrong in (0, -1, 10_001, None):
        with pytest.raises(ValueError, match="limit"):
            store.read_after(KEY, 0, wrong)  # type: ignore[arg-type]


def test_a_reader_whose_blobs_are_trimmed_away_reads_again(
    storage: HonestStorage, store: AtomicThreadJournalStore
) -> None:
    filled(store, 120)

    def trim_and_collect() -> None:
        beside = journals(storage)
        beside.trim(KEY, 100)
        assert beside.collect(KEY).deleted > 0

    in_the_middle(storage, "read_blob", trim_and_collect)
    with pytest.raises(Trimmed) as caught:
        store.read_after(KEY, 0)
    assert caught.value.first_seq == 100
    in_the_middle(storage, "read_blob", lambda: journals(storage).delete(KEY))
    with pytest.raises(JournalRegressed):
        store.read_after(KEY, 150)


# --------------------------------------------------------------------------------------------------------- claiming


def test_claims_are_conditional_on_who_holds_the_journal(store: AtomicThreadJournalStore) -> None:
    first = store.claim(KEY, "one", replacing=NONE)
    with pytest.raises(WriterBusy) as caught:
        store.claim(KEY, "two", replacing=NONE)
    assert caught.value.holder == first.info
    second = store.claim(KEY, "two", replacing=first.info)
    assert second.epoch == 2
    with pytest.raises(WriterBusy):
        store.claim(KEY, "three", replacing=first.info)
    with pytest.raises(WriterFenced):
        store.heartbeat(first)
    store.release(second)
    store.release(second)
    assert store.claim(KEY, "four", replacing=NONE).epoch == 3
    with pytest.raises(WriterFenced):
        store.release(second)


def test_a_heartbeat_changes_the_head_and_nothing_in_it(store: AtomicThreadJournalStore) -> None:
    claim = filled(store, 5)
    before = store.head(KEY)
    store.heartbeat(claim)
    after = store.head(KEY)
    assert before is not None
    assert after is not None
    assert after.nonce != before.nonce
    assert (after.generation, after.epoch, after.chain) == (before.generation + 1, before.epoch, before.chain)


# -------------------------------------------------------------------------------------------- trimming and collecting


@pytest.mark.parametrize("first_seq", [2, 50, 119, 200, 239, 240])
def test_a_trim_removes_what_lies_before_it_and_nothing_else(
    storage: HonestStorage, store: AtomicThreadJournalStore, first_seq: int
) -> None:
    filled(store, 120)
    everything = store.read_after(KEY, 0, 10_000).events
    head = store.trim(KEY, first_seq)
    assert (head.first_seq, head.epoch) == (first_seq, 1)
    blobs = len(storage.blobs)
    report = store.collect(KEY)
    assert (report.kept, len(storage.blobs)) == (0, blobs - report.deleted)
    assert store.collect(KEY) == CollectReport(0, 0)
    assert store.read_after(KEY, first_seq - 1, 10_000).events == everything[first_seq - 1 :]
    assert store.verify(KEY, deep=True).findings == ()
    with pytest.raises(Trimmed):
        store.read_after(KEY, first_seq - 2)


def test_storage_shrinks_with_trims_and_the_journal_goes_on(
    storage: HonestStorage, store: AtomicThreadJournalStore
) -> None:
    claim = filled(store, 30)
    for _ in range(10):
        head = store.head(KEY)
        assert head is not None
        base = head.last_seq
        for number in range(30):
            base = store.append(claim, batch(f"b{base}-{number}"), base).last_seq
        store.trim(KEY, base - 20)
        store.collect(KEY)
        assert len(storage.blobs) < 30
        assert store.verify(KEY, deep=True).findings == ()
    assert store.trim(KEY, 1).first_seq == base - 20


def test_a_trim_passes_neither_cursor_nor_checkpoint(store: AtomicThreadJournalStore) -> None:
    claim = filled(store, 50)
    cursor = store.advance_cursor(store.open_cursor(KEY, "exporter"), 30)
    assert store.trim(KEY, 80).first_seq == 31
    store.advance_cursor(cursor, 70)
    head = store.head(KEY)
    assert head is not None
    sent = Batch("cp", (event("cp", kind="state/checkpoint"), event("after")))
    store.append(claim, sent, head.last_seq)
    assert store.trim(KEY, 10_000).first_seq == 71
    store.advance_cursor(store.open_cursor(KEY, "exporter"), head.last_seq + 2)
    assert store.trim(KEY, 10_000).first_seq == head.last_seq + 1


@pytest.mark.parametrize("call", ["read_head", "commit", "list_scopes"])
@pytest.mark.parametrize("nth", range(1, 7))
@pytest.mark.parametrize("outer", ["trim", "open", "reset"])
def test_a_trim_and_a_cursor_that_meet_anywhere_do_not_pass_each_other(
    storage: HonestStorage, store: AtomicThreadJournalStore, outer: str, call: str, nth: int
) -> None:
    filled(store, 20)
    beside = journals(storage)
    version = 0
    if outer == "reset":
        cursor = store.open_cursor(KEY, "exporter")
        version = store.advance_cursor(cursor, 15).version
    acts = {
        "trim": lambda: store.trim(KEY, 5),
        "open": lambda: store.open_cursor(KEY, "exporter"),
        "reset": lambda: store.reset_cursor(KEY, "exporter", 0, expected_version=version),
    }
    in_the_middle(
        storage, call, lambda: beside.open_cursor(KEY, "exporter") if outer == "trim" else beside.trim(KEY, 5), nth
    )
    refused = False
    try:
        acts[outer]()
    except Trimmed:
        refused = True
        assert outer == "reset"
    storage.before_call = lambda name: None
    head = store.head(KEY)
    assert head is not None
    if outer == "reset" and head.first_seq == 5 and not refused:
        # The trim was over before the reset was written: its owner is told at the next call.
        with pytest.raises(Trimmed):
            store.open_cursor(KEY, "exporter")
    else:
        assert store.open_cursor(KEY, "exporter").acked_seq >= head.first_seq - 1


def test_a_trim_that_has_read_the_cursors_is_stopped_by_one_that_is_put_back(
    storage: HonestStorage, store: AtomicThreadJournalStore
) -> None:
    filled(store, 20)
    cursor = store.advance_cursor(store.open_cursor(KEY, "exporter"), 15)
    beside = journals(storage)
    # The second commit of a trim is the one that raises first_seq, after the cursors were read.
    in_the_middle(
        storage, "commit", lambda: beside.reset_cursor(KEY, "exporter", 0, expected_version=cursor.version), 2
    )
    assert store.trim(KEY, 10).first_seq == 1
    assert store.open_cursor(KEY, "exporter").acked_seq == 0


def test_the_collector_deletes_nothing_where_its_barrier_is_lost(
    storage: HonestStorage, store: AtomicThreadJournalStore
) -> None:
    """Case 56: a collector that has lost its race stops."""
    filled(store, 60)
    store.trim(KEY, 50)
    before = dict(storage.blobs)
    in_the_middle(storage, "commit", lambda: journals(storage).claim(KEY, "other"))
    report = store.collect(KEY)
    assert report.deleted == 0
    assert report.kept > 0
    for fault in ("before", "after", "delayed"):
        storage.faults.append(fault)
        assert store.collect(KEY) == report
    assert storage.blobs == before
    storage.blobs[SCOPE, "not-ours"] = b""
    assert store.collect(KEY) == CollectReport(report.kept, 1)


# ------------------------------------------------------------------------------------------- deleting and purging


def test_a_deleted_journal_is_gone_and_its_epoch_goes_on(
    storage: HonestStorage, store: AtomicThreadJournalStore
) -> None:
    old = filled(store, 60)
    cursor = store.open_cursor(KEY, "exporter")
    assert store.delete(KEY) is True
    assert store.delete(KEY) is False
    assert store.head(KEY) is None
    assert store.read_after(KEY, 0).events == ()
    assert store.list_threads(ThreadScope("user")).threads == ()
    assert storage.blobs == {}
    with pytest.raises(JournalNotFound):
        store.open_cursor(KEY, "exporter")
    new = filled(store, 60)
    assert (new.epoch, new.last_seq) == (old.epoch + 1, 0)
    with pytest.raises(CursorInvalid) as caught:
        store.open_cursor(KEY, "exporter")
    assert caught.value.version == cursor.version
    with pytest.raises(CursorInvalid):
        store.advance_cursor(cursor, 1)
    assert store.reset_cursor(KEY, "exporter", 5, expected_version=cursor.version).acked_seq == 5
    assert store.verify(KEY, deep=True).findings == ()


def test_purge_leaves_nothing_and_refuses_an_open_journal(
    storage: HonestStorage, store: AtomicThreadJournalStore
) -> None:
    filled(store, 60)
    store.open_cursor(KEY, "exporter")
    with pytest.raises(HeadConflict):
        store.purge(KEY)
    store.delete(KEY)
    assert store.purge(KEY) is True
    assert (storage.heads, storage.blobs) == ({}, {})
    assert store.purge(KEY) is False
    assert store.claim(KEY, "writer").epoch == 1


def test_a_purge_that_meets_a_new_incarnation_takes_nothing_of_it(
    storage: HonestStorage, store: AtomicThreadJournalStore
) -> None:
    def reborn() -> None:
        beside = journals(storage)
        filled(beside, 60)
        beside.open_cursor(KEY, "new")

    for call, nth in (("read_head", 2), ("commit", 1), ("list_blobs", 1), ("delete_head", 1)):
        filled(store, 30)
        store.open_cursor(KEY, "old")
        store.delete(KEY)
        in_the_middle(storage, call, reborn, nth)
        with pytest.raises(HeadConflict):
            store.purge(KEY)
        assert store.verify(KEY, deep=True).findings == ()
        head = store.head(KEY)
        assert head is not None
        assert head.last_seq == 120
        assert store.open_cursor(KEY, "new").acked_seq == 0
        store.delete(KEY)
        assert store.purge(KEY)


def test_without_the_feature_purge_is_refused() -> None:
    store = journals(HonestStorage(features=frozenset()))
    assert store.capabilities.features == {Feature.COLLECT}
    with pytest.raises(UnsupportedCapability):
        store.purge(KEY)
    assert journals(HonestStorage()).capabilities.features == {Feature.COLLECT, Feature.PURGE}


# ---------------------------------------------------------------------------------------------------------- cursors


def test_only_the_newest_opener_moves_a_cursor_and_only_forward(store: AtomicThreadJournalStore) -> None:
    filled(store, 10)
    old = store.open_cursor(KEY, "exporter")
    new = store.open_cursor(KEY, "exporter")
    with pytest.raises(CursorFenced):
        store.advance_cursor(old, 1)
    moved = store.advance_cursor(new, 4)
    assert store.advance_cursor(new, 4) == moved
    with pytest.raises(CursorRegression):
        store.advance_cursor(moved, 3)
    with pytest.raises(JournalRegressed):
        store.advance_cursor(moved, 10_000)
    assert store.open_cursor(KEY, "another").acked_seq == 0


def test_exporters_do_not_touch_the_head(storage: HonestStorage, store: AtomicThreadJournalStore) -> None:
    filled(store, 10)
    head = storage.heads[SCOPE]
    cursor = store.open_cursor(KEY, "exporter")
    store.reset_cursor(KEY, "exporter", 1, expected_version=store.advance_cursor(cursor, 3).version)
    assert storage.heads[SCOPE] == head


# ---------------------------------------------------------------------------------------------------------- listing


def test_listing_is_complete_over_pages_with_many_tombstones_between(storage: HonestStorage) -> None:
    storage = HonestStorage(page_max=7)
    store = journals(storage)
    names = [
        "a",
        "A",
        "a-b",
        "a/b",
        "..",
        "\u00e9",
        "e\u0301",
        "x" * 500,
        "%",
        "_",
        "*",
        *[f"t{number}" for number in range(60)],
    ]
    live = []
    for number, name in enumerate(names):
        key = ThreadKey(None, "agent", "session", name)
        store.claim(key, "writer")
        if number % 5:
            store.delete(key)
        else:
            live.append(key)
    store.claim(ThreadKey("None", "agent", "session", "a"), "writer")
    store.claim(ThreadKey(None, "agent2", "session", "a"), "writer")
    live.sort(key=lambda key: key.name)
    for limit in (1, 3, len(live), 10_000):
        got: list[ThreadKey] = []
        after = None
        more = True
        while more:
            page = store.list_threads(ThreadScope(None, "agent"), after=after, limit=limit)
            assert len(page.threads) <= limit
            got += page.threads
            after, more = page.threads[-1], page.has_more
        assert got == live


def test_listing_starts_behind_a_thread_that_need_not_exist(store: AtomicThreadJournalStore) -> None:
    for name in ("a", "c"):
        store.claim(ThreadKey("user", "agent", "session", name), "writer")
    after = ThreadKey("user", "agent", "session", "b")
    assert [key.thread_id for key in store.list_threads(ThreadScope("user"), after=after).threads] == ["c"]
    with pytest.raises(ValueError, match="outside"):
        store.list_threads(ThreadScope("other"), after=after)
