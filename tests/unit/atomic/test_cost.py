"""What calls cost, counted: nothing grows with a journal but by its logarithm (HEAD-5, HEAD-6, READ-4)."""

from __future__ import annotations

import hashlib

import pytest
from honest_storage import KEY, HonestStorage, event

from statebook.atomic_head import decode_head
from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.atomic_reader import thread_scope
from statebook.atomic_state import AtomicAgentStateStore
from statebook.index_tree import Shape
from statebook.keys import StateKey
from statebook.model import Batch

LENGTHS = (100, 1_000, 10_000, 100_000)
PAYLOAD = b'"' + b"x" * 300 + b'"'


class Counted:
    """A journal that grows, with the cost of each stretch."""

    def __init__(self) -> None:
        self.storage = HonestStorage()
        self.store = AtomicThreadJournalStore(self.storage)
        self.claim = self.store.claim(KEY, "writer")
        self.length = 0

    def grow(self, length: int) -> tuple[dict[str, int], float]:
        """Append batches of one event up to a length, and count calls, and bytes an append."""
        self.storage.calls.clear()
        self.storage.bytes_written = 0
        start = self.length
        append = self.store.append
        for number in range(start, length):
            append(self.claim, Batch(f"b{number}", (event(f"e{number}", PAYLOAD),)), number)
        self.length = length
        return dict(self.storage.calls), self.storage.bytes_written / (length - start)

    def turn(self) -> int:
        """How many appends lie between two segments."""
        turns = []
        for _ in range(2):
            start = self.length
            while "put" not in self.grow(self.length + 1)[0]:
                pass
            turns.append(self.length - start)
        return turns[-1]

    def index(self) -> tuple[int, int]:
        """How many levels the index has, and how many bytes of the head it takes."""
        head = decode_head(self.storage.heads[thread_scope(KEY)][0], KEY, KEY.name)
        assert head.tail_bytes <= 64 * 1024
        assert all(len(row) <= 64 for row in head.levels)
        return len(head.levels), len(head.levels_raw)

    def cost(self, read: str, seq: int, limit: int) -> int:
        """The calls of a read through a store that remembers nothing."""
        self.storage.calls.clear()
        page = AtomicThreadJournalStore(self.storage).read_after(KEY, seq, limit)
        assert len(page.events) == min(limit, self.length - seq)
        return self.storage.calls[read]


def test_an_append_that_fits_the_tail_is_one_commit_and_no_read() -> None:
    journal = Counted()
    journal.grow(10)
    calls, _ = journal.grow(80)
    assert calls == {"commit": 70}


def test_calls_and_bytes_of_an_append_and_the_cost_of_a_read_do_not_grow_with_the_journal() -> None:
    journal = Counted()
    journal.grow(LENGTHS[0])
    turn = journal.turn()
    total: dict[int, float] = {}
    content: dict[int, float] = {}
    for length in LENGTHS:
        journal.grow(max(length, journal.length + 1))
        calls, total[length] = journal.grow(journal.length + 4 * turn)
        assert set(calls) == {"commit", "put"}
        assert calls["commit"] == 4 * turn
        assert calls["put"] <= 6
        levels, index_bytes = journal.index()
        assert levels <= 2
        content[length] = total[length] - index_bytes
        for seq in (0, length // 3, length - 10):
            assert journal.cost("read_head", seq, 10) == 1
            assert journal.cost("read_blob", seq, 10) <= 4
        assert journal.cost("read_blob", length // 2, min(10_000, length // 4)) <= 4 + 10_000 // turn
        journal.storage.calls.clear()
        journal.claim = AtomicThreadJournalStore(journal.storage).claim(KEY, "writer")
        assert journal.storage.calls == {"read_head": 1, "commit": 1}
        journal.grow(journal.length + 2)
    # The tail and the receipts are the cost; the index is a saw-tooth of at most 64 references a level.
    assert max(content.values()) <= 1.05 * min(content.values()), content
    assert max(total.values()) <= 1.10 * min(total.values()), total


@pytest.mark.parametrize(("payload", "bounds"), [(300, (28, 32)), (6_000, (50, 64))])
def test_a_tail_of_small_batches_can_be_bounded_more_tightly(payload: int, bounds: tuple[int, int]) -> None:
    storage = HonestStorage()
    store = AtomicThreadJournalStore(storage, shape=Shape(small_tail_bytes_max=32 * 1024))
    claim = store.claim(KEY, "writer")
    longest = 0
    for number in range(200):
        store.append(claim, Batch(f"b{number}", (event(f"e{number}", b'"' + b"x" * payload + b'"'),)), number)
        longest = max(longest, decode_head(storage.heads[thread_scope(KEY)][0], KEY, KEY.name).tail_bytes)
    assert bounds[0] * 1024 < longest <= bounds[1] * 1024
    assert len(AtomicThreadJournalStore(storage).read_after(KEY, 0).events) == 200


def test_resuming_from_the_last_checkpoint_reads_what_follows() -> None:
    journal = Counted()
    journal.grow(3_000)
    journal.store.append(journal.claim, Batch("cp", (event("cp", b"{}", "state/checkpoint"),)), 3_000)
    journal.length = 3_001
    head = AtomicThreadJournalStore(journal.storage).head(KEY)
    assert head is not None
    assert head.checkpoint_seq == 3_001
    assert journal.cost("read_blob", 3_000, 100) <= 1


@pytest.mark.parametrize("length", [100, 1_000, 5_000])
def test_appending_to_a_list_costs_what_is_appended(length: int) -> None:
    storage = HonestStorage()
    store = AtomicAgentStateStore(storage)
    slot = StateKey(None, "session", "messages")
    item = b'"' + hashlib.sha256(b"").hexdigest().encode() * 4 + b'"'
    store.replace_list(slot, [item] * length)
    storage.calls.clear()
    storage.bytes_written = 0
    for number in range(400):
        store.append_list(slot, [item], expected_length=length + number)
    assert storage.calls["commit"] == storage.calls["read_head"] == 400
    assert storage.calls["read_blob"] == storage.calls["list_blobs"] == 0
    assert storage.bytes_written / 400 < 64 * 1024
    loaded = store.load_list(slot)
    assert loaded is not None
    assert loaded.items == (item,) * (length + 400)
