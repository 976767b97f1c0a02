"""What tests of services share: a journal store that fails as it is told, around a real one."""

from __future__ import annotations

import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from statebook import (
    AppendRequest,
    BackendUnavailable,
    Batch,
    Event,
    EventPage,
    ExportCursor,
    OutcomeUnknown,
    Receipt,
    StatebookError,
    ThreadJournalStore,
    ThreadKey,
    WriterClaim,
    open_journal,
)
from statebook.model import AppendOutcome
from statebook_conformance.mutants.forward import ForwardJournal


class FaultyJournal(ForwardJournal):
    """Each call takes the next fault of its name: `lost` executes and then knows nothing, `unknown` does not execute
    and knows nothing, `refused` does not execute and says so, an exception is raised, a function runs before the call,
    None lets it through. A dict is for `append_many`: it appends one by one, with a fault for each place.
    """

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self.faults: dict[str, deque[Any]] = {}
        self.calls: Counter[str] = Counter()
        self.groups: list[list[str]] = []
        self.together: Counter[ThreadKey] = Counter()
        self.overlaps = 0
        self._lock = threading.Lock()

    def fail(self, name: str, *faults: Any) -> None:
        self.faults.setdefault(name, deque()).extend(faults)

    def call(self, name: str, action: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls[name] += 1
            waiting = self.faults.get(name)
            fault = waiting.popleft() if waiting else None
        return self.act(name, fault, action)

    @staticmethod
    def act(name: str, fault: Any, action: Callable[[], Any]) -> Any:
        if fault == "unknown":
            raise OutcomeUnknown(f"{name} timed out")
        if fault == "refused":
            raise BackendUnavailable(f"{name} refused")
        if isinstance(fault, BaseException):
            raise fault
        if callable(fault):
            fault()
        result = action()
        if fault == "lost":
            raise OutcomeUnknown(f"the reply to {name} was lost")
        return result

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        keys = {request.claim.key for request in requests}
        with self._lock:
            self.groups.append([request.batch.batch_id for request in requests])
            self.overlaps += any(self.together[key] for key in keys)
            self.together.update(keys)
            each = self.faults.get("append_many")
            places = each.popleft() if each and isinstance(each[0], dict) else None
        try:
            if places is not None:
                return tuple(self._one(request, places.get(place)) for place, request in enumerate(requests))
            outcomes: tuple[AppendOutcome, ...] = self.call("append_many", lambda: self.inner.append_many(requests))
            return outcomes
        finally:
            with self._lock:
                self.together.subtract(keys)

    def _one(self, request: AppendRequest, fault: Any) -> AppendOutcome:
        try:
            receipt: Receipt = self.act(
                "append", fault, lambda: self.inner.append(request.claim, request.batch, request.base_seq)
            )
        except StatebookError as error:
            return error
        return receipt

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        receipt: Receipt | None = self.call("settle", lambda: self.inner.settle(claim, batch_id, base_seq))
        return receipt

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page: EventPage = self.call("read_after", lambda: self.inner.read_after(key, seq, limit))
        return page

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        cursor: ExportCursor = self.call("open_cursor", lambda: self.inner.open_cursor(key, exporter))
        return cursor

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        moved: ExportCursor = self.call("advance_cursor", lambda: self.inner.advance_cursor(cursor, to_seq))
        return moved

    def ids(self, key: ThreadKey) -> list[str]:
        """The event ids of a journal, in order."""
        return [event.event_id for event in self.inner.read_after(key, 0, 10_000).events]


def thread_key(name: str = "main") -> ThreadKey:
    return ThreadKey("user", "agent", "session", name)


def make_batch(batch_id: str, count: int = 1, *, size: int = 0) -> Batch:
    payload = b'"' + b"x" * size + b'"'
    return Batch(
        batch_id,
        tuple(
            Event(event_id=f"{batch_id}.{place}", type="model/chunk", occurred_at=1, payload=payload)
            for place in range(count)
        ),
    )


@pytest.fixture
def key() -> ThreadKey:
    return thread_key()


@pytest.fixture(name="thread_key")
def thread_key_() -> Callable[..., ThreadKey]:
    return thread_key


@pytest.fixture(name="make_batch")
def make_batch_() -> Callable[..., Batch]:
    return make_batch


@pytest.fixture
def new_faulty() -> Iterator[Callable[[], FaultyJournal]]:
    opened: list[FaultyJournal] = []

    def make() -> FaultyJournal:
        opened.append(FaultyJournal(open_journal(f"memory://{uuid.uuid4().hex}")))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def faulty(new_faulty: Callable[[], FaultyJournal]) -> FaultyJournal:
    """A store on memory that fails as it is told."""
    return new_faulty()


@pytest.fixture(params=["memory", "sqlite"])
def faulty_real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultyJournal]:
    """A store of each embedded kind that fails as it is told."""
    url = f"memory://{uuid.uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/journal.db"
    with_faults = FaultyJournal(open_journal(url))
    yield with_faults
    with_faults.close()
