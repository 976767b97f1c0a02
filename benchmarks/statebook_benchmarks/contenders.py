"""What takes turns in the figures: statebook through its calls, and the raw engine beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Barrier, Thread
from typing import Final

from statebook import AppendRequest, Batch, Receipt, StatebookError, ThreadJournalStore, ThreadKey, WriterClaim
from statebook.aio import AsyncCommitLane
from statebook.lanes import CommitLanes
from statebook_benchmarks.content import EVENT_BYTES, Batches
from statebook_benchmarks.interleave import Contender, Spent, Watch
from statebook_benchmarks.raw import RawLane
from statebook_benchmarks.validity import Finding, check_journal

GROUP: Final = 64
"""Threads of one group."""
GROUP_EVENTS: Final = 8
"""Events of each batch of a group."""
WRITERS: Final = 16
"""Independent writers of one process."""
TASKS: Final = 64
"""Asyncio tasks in flight."""
READ_LENGTH: Final = 10_000
"""Events of the journal that is read."""
READ_PAGE: Final = 100
"""Events of a page that is read."""


class JournalWriter:
    """One thread's writer: claim, base, and what the journal must hold."""

    def __init__(self, claim: WriterClaim, batches: Batches) -> None:
        self.claim = claim
        self.base = claim.last_seq
        self.batches = batches
        self._sent: list[str] = []

    @property
    def key(self) -> ThreadKey:
        """The thread."""
        return self.claim.key

    def append(self, store: ThreadJournalStore) -> None:
        """Append the next batch."""
        batch = self.batches.next()
        self.committed(batch, store.append(self.claim, batch, self.base))

    def request(self) -> AppendRequest:
        """The next batch as a request of a group."""
        return AppendRequest(self.claim, self.batches.next(), self.base)

    def committed(self, batch: Batch, outcome: Receipt | StatebookError) -> None:
        """Remember what was acknowledged; an error is raised."""
        if not isinstance(outcome, Receipt):
            raise outcome
        self.base = outcome.last_seq
        self._sent.append(batch.batch_id)

    def check(self, store: ThreadJournalStore) -> list[Finding]:
        """Read the journal back."""
        events = self.batches.events
        return check_journal(store, self.key, [f"{batch}.{n}" for batch in self._sent for n in range(events)])


class StoreAppends:
    """Appends of one writer, one event a commit."""

    name = "statebook"

    def __init__(self, store: ThreadJournalStore, writer: JournalWriter) -> None:
        self._store = store
        self._writer = writer

    def run(self, operations: int) -> Spent:
        """As `Contender.run`."""
        store, append = self._store, self._writer.append
        watch = Watch()
        for _ in range(operations):
            append(store)
        return watch.spent()


class StoreGroups:
    """`append_many` over many threads."""

    name = "statebook"

    def __init__(self, store: ThreadJournalStore, writers: Sequence[JournalWriter]) -> None:
        self._store = store
        self._writers = writers

    def run(self, operations: int) -> Spent:
        """As `Contender.run`."""
        watch = Watch()
        for _ in range(operations):
            requests = [writer.request() for writer in self._writers]
            for writer, request, outcome in zip(
                self._writers, requests, self._store.append_many(requests), strict=True
            ):
                writer.committed(request.batch, outcome)
        return watch.spent()


class StoreReads:
    """Reads of a page, or of everything."""

    name = "statebook"

    def __init__(self, store: ThreadJournalStore, key: ThreadKey, *, whole: bool = False, border: int = 1) -> None:
        """Read one journal.

        Args:
            store: The store.
            key: The journal, of at least `READ_LENGTH` events.
            whole: Read everything.
            border: Pages begin behind a multiple of this many events.
        """
        self._store = store
        self._key = key
        self._whole = whole
        self._border = border
        self._at = 0

    def run(self, operations: int) -> Spent:
        """As `Contender.run`."""
        read = self._load if self._whole else self._page
        watch = Watch()
        for _ in range(operations):
            read()
        return watch.spent()

    def _page(self) -> None:
        self._at = (self._at + 3_301) % (READ_LENGTH - READ_PAGE)
        place = self._at - self._at % self._border
        if len(self._store.read_after(self._key, place, READ_PAGE).events) != READ_PAGE:
            raise RuntimeError("a page is shorter than the journal")

    def _load(self) -> None:
        if len(self._store.read_after(self._key, 0, READ_LENGTH).events) != READ_LENGTH:
            raise RuntimeError("the journal is shorter than what was written")


class Together:
    """Many writers at once, each in a thread; seconds an operation are those of all together."""

    def __init__(self, writers: Sequence[Contender], name: str = "statebook") -> None:
        self.name = name
        self._writers = writers

    def run(self, operations: int) -> Spent:
        """As `Contender.run`."""
        each = max(1, operations // len(self._writers))
        barrier = Barrier(len(self._writers) + 1)
        failed: list[BaseException] = []

        def write(writer: Contender) -> None:
            barrier.wait()
            try:
                writer.run(each)
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        threads = [Thread(target=write, args=(writer,), daemon=True) for writer in self._writers]
        for thread in threads:
            thread.start()
        barrier.wait()
        watch = Watch()
        for thread in threads:
            thread.join()
        spent = watch.spent()
        if failed:
            raise failed[0]
        return spent.each(each * len(self._writers) / operations)


class RawAppends:
    """Appends of one writer to the raw engine."""

    name = "raw"

    def __init__(self, lane: RawLane, thread: int, name: str) -> None:
        self._lane = lane
        self._thread = thread
        self._batches = Batches(name, events=1, event_bytes=EVENT_BYTES)

    def run(self, operations: int) -> Spent:
        """As `Contender.run`."""
        append, thread = self._lane.append, self._thread
        bodies = [self._batches.body() for _ in range(operations)]
        watch = Watch()
        for body in bodies:
            append(thread, body)
        return watch.spent()


class RawGroups:
    """Groups over many threads to the raw engine."""

    name = "raw"

    def __init__(self, lane: RawLane) -> None:
        self._lane = lane
        self._batches = Batches("group", events=GROUP_EVENTS, event_bytes=EVENT_BYTES)

    def run(self, operations: int) -> Spent:
        """As `Contender.run`."""
        groups = [[self._batches.body() for _ in range(GROUP)] for _ in range(operations)]
        watch = Watch()
        for bodies in groups:
            self._lane.append_group(bodies)
        return watch.spent()


class AsyncTasks:
    """Asyncio tasks over commit lanes, each with one append in flight: events a second of all together."""

    name = "statebook"

    def __init__(self, store: ThreadJournalStore, writers: Sequence[JournalWriter]) -> None:
        self._lanes = CommitLanes(store)
        self._writers = writers
        self._loop = asyncio.new_event_loop()
        self._open = [AsyncCommitLane(self._lanes.open(writer.claim)) for writer in writers]

    def run(self, operations: int) -> Spent:
        """As `Contender.run`."""
        each = max(1, operations // len(self._writers))
        watch = Watch()
        self._loop.run_until_complete(self._all(each))
        return watch.spent().each(each * len(self._writers) / operations)

    async def _all(self, each: int) -> None:
        pairs = zip(self._open, self._writers, strict=True)
        await asyncio.gather(*(self._task(lane, writer, each) for lane, writer in pairs))

    @staticmethod
    async def _task(lane: AsyncCommitLane, writer: JournalWriter, each: int) -> None:
        for _ in range(each):
            batch = writer.batches.next()
            writer.committed(batch, await lane.submit(batch))

    def close(self) -> None:
        """End lanes and loop."""
        self._lanes.close()
        self._loop.close()
