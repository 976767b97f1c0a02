"""Threads that share a store, what a store remembers, and what a forked child does with it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from honest_storage import KEY, HonestStorage, batch

from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.atomic_moves import Memory
from statebook.errors import HeadConflict
from statebook.index_tree import Shape

SHAPE = Shape(tail_bytes_max=1_500, references_max=3)


@pytest.fixture
def storage() -> HonestStorage:
    return HonestStorage()


def journals(storage: HonestStorage) -> AtomicThreadJournalStore:
    return AtomicThreadJournalStore(storage, shape=SHAPE, pause=lambda attempt: None)


def test_threads_that_share_a_claim_append_each_batch_once(storage: HonestStorage) -> None:
    stores = [journals(storage), journals(storage)]
    claim = stores[0].claim(KEY, "writer")

    def write(number: int) -> None:
        store = stores[number % 2]
        base = 0
        for count in range(25):
            receipt = None
            while receipt is None:
                try:
                    receipt = store.append(claim, batch(f"w{number}-{count}", 2), base)
                except HeadConflict as error:
                    base = error.last_seq or 0
            base = receipt.last_seq

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    ids = [e.event_id for e in stores[1].read_after(KEY, 0).events]
    assert sorted(ids) == sorted(f"w{n}-{count}.{index}" for n in range(6) for count in range(25) for index in range(2))
    assert stores[0].verify(KEY, deep=True).findings == ()


def test_the_memory_is_bounded_and_lets_no_slot_in_use_go() -> None:
    memory = Memory(slots_max=2)
    with memory.hold("a") as held:
        for name in "bcde":
            with memory.hold(name):
                pass
        assert held.users == 1
        assert len(memory._slots) <= 3
        assert memory._slots["a"] is held


def test_a_forked_child_does_not_wait_for_its_parents_locks(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    store.append(claim, batch("parent", 6), 0)
    with store._heads.memory.hold(KEY.name):
        child = os.fork()
        if child == 0:
            os._exit(0 if store.append(claim, batch("child"), 6).first_seq == 7 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
