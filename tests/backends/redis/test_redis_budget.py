"""Work as counters of the server: round trips and bytes, not times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from statebook.keys import StateKey, ThreadKey
from statebook.model import AppendRequest, Batch, Receipt
from statebook_backends.redis.layout import Layout

if TYPE_CHECKING:
    from tests.backends.redis.conftest import Stores

Count = Callable[[str, str], int]

_ASKING = 6
"""How many reads of the server the test's own questions cost: each a connection, which is read and then ended."""


def _round_trips(count: Count) -> int:
    return count("stats", "total_reads_processed")


def test_an_append_is_one_script_in_one_round_trip(
    stores: Stores, thread: ThreadKey, count: Count, make_batch: Callable[..., Batch]
) -> None:
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    batches = [make_batch(f"b{index}") for index in range(201)]
    journal.append(claim, batches[200], 0)
    trips, calls = _round_trips(count), count("commandstats", "cmdstat_evalsha")
    for index in range(200):
        journal.append(claim, batches[index], index + 1)
    assert _round_trips(count) - trips <= 200 + _ASKING
    assert count("commandstats", "cmdstat_evalsha") - calls == 200


def test_a_heartbeat_and_a_save_are_one_round_trip_each(stores: Stores, thread: ThreadKey, count: Count) -> None:
    journal, state = stores.journal(), stores.state()
    claim = journal.claim(thread, "writer")
    slot = StateKey("user", "session", "key")
    version = state.save(slot, b"0")
    trips = _round_trips(count)
    for _ in range(50):
        journal.heartbeat(claim)
        version = state.save(slot, b"1", expected=version)
    assert _round_trips(count) - trips <= 100 + _ASKING


def test_a_group_of_many_threads_is_a_few_round_trips(
    stores: Stores, count: Count, make_batch: Callable[..., Batch]
) -> None:
    journal = stores.journal()
    claims = [journal.claim(ThreadKey("u", "a", "s", f"t{index}"), "writer") for index in range(64)]
    requests = [
        AppendRequest(claim, make_batch(f"{step}"), step) for step in range(2) for claim in claims
    ]  # two of each thread, in order
    calls, trips = count("commandstats", "cmdstat_evalsha"), _round_trips(count)
    outcomes = journal.append_many(requests)
    # the server reads a long group in pieces of 16 KiB
    assert _round_trips(count) - trips <= sum(1_600 for _ in requests) // 16_384 + _ASKING
    assert count("commandstats", "cmdstat_evalsha") - calls == 128
    assert all(isinstance(outcome, Receipt) for outcome in outcomes)
    assert journal.read_after(claims[5].key, 0).last_seq == 2


def test_a_page_costs_one_round_trip_however_long_the_journal_is(
    stores: Stores, thread: ThreadKey, count: Count, make_batch: Callable[..., Batch]
) -> None:
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    for start in range(0, 3_000, 500):
        requests = [AppendRequest(claim, make_batch(f"b{index}"), index) for index in range(start, start + 500)]
        assert all(isinstance(outcome, Receipt) for outcome in journal.append_many(requests))
    trips = _round_trips(count)
    for seq in (0, 100, 1_500, 2_900):
        assert len(journal.read_after(thread, seq, 100).events) == 100
    assert _round_trips(count) - trips <= 4 + _ASKING


def test_pages_of_a_few_large_batches_are_read_without_a_script(
    stores: Stores, thread: ThreadKey, count: Count, make_batch: Callable[..., Batch]
) -> None:
    """A script copies what it gives several times: 0.7 ms of the server for a page of 130 KB, plain commands 0.1."""
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    for index in range(20):
        journal.append(claim, make_batch(f"b{index}", 100, payload=b'"%s"' % (b"x" * 500)), 100 * index)
    assert len(journal.read_after(thread, 50, 100).events) == 100
    trips, calls = _round_trips(count), count("commandstats", "cmdstat_evalsha")
    for seq in (0, 50, 100, 1_150, 1_900):
        page = journal.read_after(thread, seq, 100)
        assert [event.seq for event in page.events] == list(range(seq + 1, seq + 101))
        assert page.has_more is (seq < 1_900)
    assert count("commandstats", "cmdstat_evalsha") == calls
    assert _round_trips(count) - trips <= 5 + _ASKING


def test_storage_is_linear_in_what_was_appended(
    stores: Stores, thread: ThreadKey, make_batch: Callable[..., Batch], tell: Callable[..., str]
) -> None:
    """Case 41: no snapshot, no receipt and no index grows with the journal times itself; the head does not grow."""
    journal, keys = stores.journal(), Layout(stores.namespace).thread(thread)
    claim = journal.claim(thread, "writer")
    sizes, heads, base = [], set[str](), 0
    for length in (200, 400, 800):
        while base < length:
            payload = b'"%s"' % (b"x" * 500)
            base = journal.append(claim, make_batch(f"b{base:04}", payload=payload), base).last_seq
        sizes.append(int(tell("MEMORY", "USAGE", keys.batches.decode(), "SAMPLES", "0").strip()[1:]))
        heads.add(tell("MEMORY", "USAGE", keys.head.decode()))
    assert sizes[2] - sizes[1] <= 2.2 * (sizes[1] - sizes[0])
    assert sizes[2] <= 800 * 1_200
    assert len(heads) == 1
