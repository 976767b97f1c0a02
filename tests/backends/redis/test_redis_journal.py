"""What is particular to this layout: the window over trims, huge batches, groups, and late writers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from statebook.errors import BatchConflict, HeadConflict, JournalCorrupt, JournalRegressed, Trimmed
from statebook.keys import ThreadKey
from statebook.model import AppendRequest, Batch, Receipt

if TYPE_CHECKING:
    from tests.backends.redis.conftest import Stores

MakeBatch = Callable[..., Batch]


def test_batches_in_the_window_are_recognised_after_they_were_trimmed_away(
    stores: Stores, thread: ThreadKey, make_batch: MakeBatch
) -> None:
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    for index in range(80):
        journal.append(claim, make_batch(f"b{index}"), index)
    for before in (30, 50, 79):
        assert journal.trim(thread, before).first_seq == before
    medium = stores.backend().open_medium()
    assert medium is not None
    records = medium.records()
    assert sum(record.startswith("batches") and record.endswith("/body") for record in records) == 2
    assert sum(record.startswith("stubs") and record.endswith("/ids") for record in records) == 62
    medium.close()
    fresh = stores.journal()
    again = fresh.append(claim, make_batch("b20"), 20)
    assert (again.replayed, again.first_seq) == (True, 21)
    with pytest.raises(BatchConflict):
        fresh.append(claim, Batch("other", make_batch("b20").events), 80)
    with pytest.raises(HeadConflict):  # out of the window, and the place where it would be is trimmed away
        fresh.append(claim, make_batch("b5"), 5)
    assert fresh.append(claim, make_batch("b80"), 80).last_seq == 81
    assert fresh.verify(thread, deep=True).findings == ()


def test_a_batch_older_than_the_window_is_recognised_by_its_place(
    stores: Stores, thread: ThreadKey, make_batch: MakeBatch
) -> None:
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    for index in range(100):
        journal.append(claim, make_batch(f"b{index}"), index)
    assert journal.append(claim, make_batch("b3"), 3).replayed
    assert journal.append(claim, make_batch("b0"), 0).replayed
    with pytest.raises(JournalRegressed):
        journal.append(claim, make_batch("b3"), 300)
    with pytest.raises(BatchConflict):
        journal.append(claim, Batch("b3", make_batch("b4").events), 3)


def test_a_page_goes_on_over_batches_too_large_for_one_reply(
    stores: Stores, thread: ThreadKey, make_batch: MakeBatch
) -> None:
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    payload = b'"%s"' % (b"x" * 6_000_000)
    for index in range(6):
        journal.append(claim, make_batch(f"b{index}", payload=payload), index)
    page = stores.journal().read_after(thread, 0, 100)
    assert [event.seq for event in page.events] == [1, 2, 3, 4, 5, 6]
    assert all(event.payload == payload for event in page.events)
    assert stores.journal().append(claim, make_batch("b5", payload=payload), 5).replayed


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 64, 1_000])
def test_pages_cut_batches_of_any_size(stores: Stores, thread: ThreadKey, make_batch: MakeBatch, limit: int) -> None:
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    base = 0
    for index in range(40):
        base = journal.append(claim, make_batch(f"b{index}", 1 + index % 5), base).last_seq
    seen: list[int] = []
    while len(seen) < base:
        page = journal.read_after(thread, len(seen), limit)
        assert len(page.events) == min(limit, base - len(seen))
        assert page.has_more is (len(seen) + len(page.events) < base)
        seen += [event.seq for event in page.events]
    assert seen == list(range(1, base + 1))


def test_requests_of_a_group_are_judged_in_their_order(
    stores: Stores, thread: ThreadKey, make_batch: MakeBatch
) -> None:
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    journal.append(claim, make_batch("b0"), 0)
    outcomes = journal.append_many(
        [
            AppendRequest(claim, make_batch("ahead"), 2),  # the base comes only with the next request
            AppendRequest(claim, make_batch("b1"), 1),
            AppendRequest(claim, make_batch("b1"), 1),
            AppendRequest(claim, Batch("overlap", make_batch("b1").events), 2),
            AppendRequest(claim, make_batch("b2"), 2),
        ]
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [JournalRegressed, Receipt, Receipt, BatchConflict, Receipt]
    replayed = [outcome.replayed for outcome in outcomes if isinstance(outcome, Receipt)]
    assert replayed == [False, True, False]
    assert journal.read_after(thread, 0).last_seq == 3


def test_maintenance_passes_a_writer_that_never_pauses(
    stores: Stores, thread: ThreadKey, make_batch: MakeBatch
) -> None:
    """LIFE-4, CLAIM-8: trims, barriers and heartbeats from another store come through, and fence nobody."""
    journal, other = stores.journal(), stores.journal()
    claim = journal.claim(thread, "writer")
    stop, failures, base = threading.Event(), [], 0

    def maintain() -> None:
        try:
            while not stop.is_set():
                other.trim(thread, other.read_after(thread, 0, 1).last_seq // 2 or 1)
        except Exception as error:  # noqa: BLE001 - shown below
            if "trimmed" not in str(error):
                failures.append(error)

    def beat() -> None:
        try:
            while not stop.is_set():
                other.heartbeat(claim)
                assert other.settle(claim, "never", 10**9) is None
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=maintain), threading.Thread(target=beat)]
    for each in threads:
        each.start()
    for index in range(200):
        base = journal.append(claim, make_batch(f"b{index}"), base).last_seq
    stop.set()
    for each in threads:
        each.join(timeout=60)
    assert failures == []
    assert journal.verify(thread, deep=True).findings == ()


def test_pages_of_large_batches_are_of_one_moment_though_no_script_reads_them(
    stores: Stores, make_batch: MakeBatch
) -> None:
    """READ-2: beside appends, trims, deletes and new incarnations, all of which move between its plain commands."""
    writer, reader, key = stores.journal(), stores.journal(), ThreadKey("user", "agent", "session", "large")
    stop, failures, pages, seen = threading.Event(), [], 0, set[int]()

    def write() -> None:
        for incarnation in range(25):
            claim = writer.claim(key, "writer")
            payload = b'"%04d%s"' % (incarnation, b"x" * 20_000)
            for index in range(12):
                writer.append(claim, make_batch(f"{incarnation}-{index}", 2, payload=payload), 2 * index)
                if index == 8:
                    writer.trim(key, 7)
            writer.delete(key)

    def read() -> None:
        nonlocal pages
        random_ = random.Random(1)
        while not stop.is_set():
            seq = random_.randrange(20)
            try:
                events = reader.read_after(key, seq, random_.choice((1, 3, 4, 6))).events
            except (Trimmed, JournalRegressed):
                continue
            tags = {int(event.payload[1:5]) for event in events}
            assert len(tags) <= 1
            assert [event.seq for event in events] == list(range(seq + 1, seq + 1 + len(events)))
            pages += bool(events)
            seen.update(tags)

    def guarded() -> None:
        try:
            read()
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        write()
    finally:
        stop.set()
        thread.join(timeout=60)
    assert failures == []
    assert pages >= 20
    assert len(seen) >= 3


def test_a_head_without_its_key_is_damage_not_an_empty_journal(
    stores: Stores, thread: ThreadKey, make_batch: MakeBatch, tell: Callable[..., str]
) -> None:
    """Case 53."""
    from statebook_backends.redis.layout import Layout

    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    journal.append(claim, make_batch("b0"), 0)
    tell("DEL", Layout(stores.namespace).thread(thread).head.decode())
    fresh = stores.journal()
    for call in (
        lambda: fresh.head(thread),
        lambda: fresh.claim(thread, "another"),
        lambda: fresh.read_after(thread, 0),
        lambda: fresh.append(claim, make_batch("b1"), 1),
        lambda: fresh.delete(thread),
    ):
        with pytest.raises(JournalCorrupt):
            call()
    assert fresh.verify(thread).findings != ()
