"""What a workload is, and the writer of one thread that remembers what was acknowledged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

import msgspec

from statebook import (
    AppendRequest,
    Batch,
    Event,
    OutcomeUnknown,
    Receipt,
    StatebookError,
    ThreadJournal,
    ThreadJournalStore,
)
from statebook.plugins import Backend
from statebook_benchmarks.content import OCCURRED_AT, Batches, payload_of, thread_key
from statebook_benchmarks.histogram import Histogram
from statebook_benchmarks.load import Outcome
from statebook_benchmarks.results import Parameters
from statebook_benchmarks.validity import Finding, check_journal

PRELOAD_EVENTS: Final = 100
"""Events a batch of what a journal holds before the trial."""


class Site(msgspec.Struct, frozen=True):
    """Where a workload works.

    Attributes:
        backend: The backend, with the namespace of this run.
        parameters: What was asked for.
        name: Distinct for each trial: ids begin with it.
    """

    backend: Backend
    parameters: Parameters
    name: str


class Workload(ABC):
    """Prepares, operates from many lanes, and checks. A thread is operated by one lane at a time."""

    events_per_op: int = 0

    @abstractmethod
    def prepare(self) -> None:
        """Make what must be there before the trial."""

    @abstractmethod
    def __call__(self, thread: int) -> Outcome:
        """Do one operation for one thread.

        Raises:
            StatebookError: It failed; counted by its class.
        """

    def settle_down(self) -> None:  # noqa: B027 - most have nothing that runs beside
        """End what runs beside the operations, before the check."""

    def extra(self) -> tuple[tuple[str, Histogram], ...]:
        """Further times that it measured, by name."""
        return ()

    @abstractmethod
    def check(self) -> list[Finding]:
        """Read back, and say what is wrong."""

    @abstractmethod
    def close(self) -> None:
        """Close what it opened."""


class IdLog:
    """Ids in their order, a few bytes each: what a long run notes must not pass for a leak of the store."""

    def __init__(self) -> None:
        """Begin without any."""
        self._lines = bytearray()

    def extend(self, ids: Iterable[str]) -> None:
        """Note ids; none has a line break."""
        for each in ids:
            self._lines += each.encode() + b"\n"

    def all(self) -> list[str]:
        """All of them."""
        return self._lines.decode().splitlines()


class ThreadWriter:
    """The writer of one thread: claims, appends, claims again after a failure, remembers what was acknowledged."""

    def __init__(self, store: ThreadJournalStore, name: str, parameters: Parameters) -> None:
        self.store = store
        self.journal = ThreadJournal(store, thread_key(name))
        self.batches = Batches(name, events=parameters.batch_events, event_bytes=parameters.event_bytes)
        self._name = name
        self._acknowledged = IdLog()
        self.unknown: list[str] = []

    def claim(self, writer_id: str = "bench") -> None:
        """Become the journal's writer."""
        self.journal.claim(writer_id)

    def preload(self, length: int, event_bytes: int, *, checkpoint_behind: int | None = None) -> None:
        """Fill the journal to a length, in groups of large batches.

        Args:
            length: Events.
            event_bytes: Bytes of each payload.
            checkpoint_behind: How many events stand from a checkpoint to the end, itself included; None for none.
        """
        claim = self.journal.held
        if claim is None:
            raise ValueError("claim before preloading")
        payload = payload_of(event_bytes)
        group = min(64, self.store.capabilities.limits.group_batches_max)
        base, requests = claim.last_seq, list[AppendRequest]()
        checkpoint = None if checkpoint_behind is None else length - checkpoint_behind
        while base < length:
            count = min(PRELOAD_EVENTS, length - base)
            events = tuple(
                Event(
                    event_id=f"{self._name}-p{number}",
                    type="state/checkpoint" if number == checkpoint else "message/text",
                    occurred_at=OCCURRED_AT,
                    payload=payload,
                )
                for number in range(base, base + count)
            )
            requests.append(AppendRequest(claim, Batch(f"{self._name}-p{base}", events), base))
            base += count
            if len(requests) == group or base >= length:
                self._commit(requests)
                requests.clear()
        self.journal.claim("bench")

    def _commit(self, requests: list[AppendRequest]) -> None:
        for request, outcome in zip(requests, self.store.append_many(requests), strict=True):
            if not isinstance(outcome, Receipt):
                raise outcome
            self.acknowledge(request.batch)

    def append(self, batch: Batch) -> None:
        """Append, and remember.

        Raises:
            StatebookError: It failed; the next call claims again first.
        """
        if self.journal.held is None:
            self.journal.claim("bench")
        try:
            self.journal.append_batch(batch)
        except StatebookError as error:
            self.failed(batch, error)
            self.journal.claim("bench")
            raise
        self.acknowledge(batch)

    @property
    def acknowledged(self) -> list[str]:
        """The ids of the events that are in the journal, in the order of their commits."""
        return self._acknowledged.all()

    def note(self, event_ids: Iterable[str]) -> None:
        """Remember that events are in the journal."""
        self._acknowledged.extend(event_ids)

    def acknowledge(self, batch: Batch) -> None:
        """Remember that a batch is in the journal."""
        self.note(event.event_id for event in batch.events)

    def failed(self, batch: Batch, error: StatebookError) -> None:
        """Remember that a batch may be in the journal, where its outcome stayed unknown."""
        if isinstance(error, OutcomeUnknown):
            self.unknown.extend(event.event_id for event in batch.events)

    def check(self) -> list[Finding]:
        """Read the journal back."""
        return check_journal(self.store, self.journal.key, self.acknowledged, self.unknown)
