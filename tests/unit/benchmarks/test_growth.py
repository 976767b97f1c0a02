"""What an append costs does not grow with its journal: calls and bytes, counted at 1e2 to 1e5 batches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

from statebook import (
    AppendRequest,
    AtomicJournalStorage,
    AtomicThreadJournalStore,
    HeadRecord,
    Receipt,
    ThreadJournalStore,
    open_atomic,
    open_journal,
)
from statebook_benchmarks.content import Batches, thread_key
from statebook_benchmarks.counters import Counters

LENGTHS = (100, 1_000, 10_000, 100_000)
CALLS_STRETCH = 200
# As long as it takes the index of a head to fill a level and empty it again; pages of a b-tree need no less.
BYTES_STRETCH = 4_000
KEY = thread_key("growing")
BATCHES = Batches("growing", events=1, event_bytes=600)


def calls_of(append: Callable[[], object]) -> float:
    """Python and C calls an append, over a stretch, so that what happens once in many appends has its share."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        for _ in range(CALLS_STRETCH):
            append()
    finally:
        sys.setprofile(previous)
    return calls / CALLS_STRETCH


def bytes_of(append: Callable[[], object], stretch: int) -> float:
    """Bytes handed to write an append, over a stretch; 0 where the system does not count them."""
    counters = Counters()
    before = counters.read()
    for _ in range(stretch):
        append()
    return (counters.read().since(before).written_bytes or 0) / stretch


class Growing:
    """A journal that grows in groups, and is appended to one by one where it is measured."""

    def __init__(self, store: ThreadJournalStore) -> None:
        self._store = store
        self._claim = store.claim(KEY, "w")
        self.length = self._claim.last_seq

    def grow(self, length: int) -> None:
        group = self._store.capabilities.limits.group_batches_max
        while self.length < length:
            count = min(group, length - self.length)
            requests = [AppendRequest(self._claim, BATCHES.next(), self.length + n) for n in range(count)]
            outcomes = self._store.append_many(requests)
            assert all(isinstance(outcome, Receipt) for outcome in outcomes)
            self.length += count

    def append(self) -> None:
        self._store.append(self._claim, BATCHES.next(), self.length)
        self.length += 1


def within(costs: dict[int, float], factor: float) -> bool:
    return max(costs.values()) <= factor * min(costs.values())


def test_calls_of_an_append_to_memory_are_flat() -> None:
    calls = {}
    with closing(open_journal("memory://growing")) as store:
        journal = Growing(store)
        for length in LENGTHS:
            journal.grow(length)
            calls[length] = calls_of(journal.append)
    assert within(calls, 1.10), calls


def test_calls_and_bytes_of_an_append_to_sqlite_are_flat(tmp_path: Path) -> None:
    calls, written = {}, {}
    with closing(open_journal(f"sqlite:///{tmp_path}/x.db?synchronous=normal")) as store:
        journal = Growing(store)
        for length in LENGTHS:
            journal.grow(length)
            calls[length] = calls_of(journal.append)
            written[length] = bytes_of(journal.append, BYTES_STRETCH)
    assert within(calls, 1.10), calls
    # Whole pages are written: a level more in a b-tree is a page more, which is the logarithm.
    assert within(written, 1.25), written
    assert within({length: written[length] for length in LENGTHS[1:]}, 1.10), written


def copied(storage: AtomicJournalStorage, scope: str, to: AtomicJournalStorage) -> None:
    """Copy one scope, head and blobs, as they are."""
    head = storage.read_head(scope)
    assert isinstance(head, HeadRecord)
    blobs: dict[str, bytes] = {}
    after: str | None = None
    while True:
        page = storage.list_blobs(scope, after, 10_000)
        for name in page.names:
            blob = storage.read_blob(scope, name)
            assert blob is not None
            blobs[name] = blob
        if not page.has_more:
            break
        after = page.names[-1]
    to.commit(scope, None, head.data, blobs)


def test_calls_and_bytes_of_an_append_to_a_file_are_flat(tmp_path: Path) -> None:
    calls, written = {}, {}
    with closing(open_atomic("memory://growing-file")) as grown:
        journal = Growing(AtomicThreadJournalStore(grown))
        for length in LENGTHS:
            journal.grow(length)
            url = f"file://{tmp_path.resolve()}/{length}?durability=process"
            with closing(open_atomic(url)) as files:
                copied(grown, f"t/{KEY.name}", files)
            with closing(open_journal(url)) as store:
                on_disk = Growing(store)
                calls[length] = calls_of(on_disk.append)
                written[length] = bytes_of(on_disk.append, BYTES_STRETCH)
    assert within(calls, 1.10), calls
    # The tail, the receipts and the mean of the index, a saw-tooth of at most 64 references a level: some 2 KB for each
    # level, beside 31 KB of the rest. A slope of 0.02 on logarithmic scales.
    assert within(written, 1.15), written
