"""A journal store that fails as it is told, around a real one."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from statebook import (
    ANY,
    BackendUnavailable,
    Batch,
    Capabilities,
    ClaimInfo,
    CollectReport,
    EventPage,
    ExportCursor,
    JournalHead,
    OutcomeUnknown,
    Receipt,
    ThreadJournal,
    ThreadJournalStore,
    ThreadKey,
    ThreadPage,
    ThreadScope,
    VerifyReport,
    WriterClaim,
    open_journal,
)
from statebook.model import Expect


class FaultyStore(ThreadJournalStore):
    """Delegates to a store. Each call takes the next fault of its name: `lost` executes and then knows nothing,
    `unknown` does not execute and knows nothing, `refused` does not execute and says so, an exception is raised, a
    function runs before the call, None lets it through.
    """

    def __init__(self, inner: ThreadJournalStore) -> None:
        self.inner = inner
        self.faults: dict[str, deque[Any]] = {}
        self.calls: Counter[str] = Counter()

    def fail(self, name: str, *faults: Any) -> None:
        self.faults.setdefault(name, deque()).extend(faults)

    def _call(self, name: str, action: Callable[[], Any]) -> Any:
        self.calls[name] += 1
        waiting = self.faults.get(name)
        fault = waiting.popleft() if waiting else None
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

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def head(self, key: ThreadKey) -> JournalHead | None:
        found = self.inner.head(key)
        self._call("head", lambda: None)
        return found

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        claim: WriterClaim = self._call("claim", lambda: self.inner.claim(key, writer_id, replacing=replacing))
        return claim

    def heartbeat(self, claim: WriterClaim) -> None:
        self._call("heartbeat", lambda: self.inner.heartbeat(claim))

    def release(self, claim: WriterClaim) -> None:
        self._call("release", lambda: self.inner.release(claim))

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        receipt: Receipt = self._call("append", lambda: self.inner.append(claim, batch, base_seq))
        return receipt

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        receipt: Receipt | None = self._call("settle", lambda: self.inner.settle(claim, batch_id, base_seq))
        return receipt

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page: EventPage = self._call("read_after", lambda: self.inner.read_after(key, seq, limit))
        return page

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        return self.inner.open_cursor(key, exporter)

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        moved: ExportCursor = self._call("advance_cursor", lambda: self.inner.advance_cursor(cursor, to_seq))
        return moved

    def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        return self.inner.reset_cursor(key, exporter, to_seq, expected_version=expected_version)

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        return self.inner.list_threads(scope, after=after, limit=limit)

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        return self.inner.trim(key, before_seq)

    def delete(self, key: ThreadKey) -> bool:
        return self.inner.delete(key)

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        return self.inner.verify(key, deep=deep)

    def collect(self, key: ThreadKey) -> CollectReport:
        return self.inner.collect(key)

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    opened = FaultyStore(open_journal("memory://"))
    yield opened
    opened.close()


@pytest.fixture
def other_store() -> Iterator[FaultyStore]:
    opened = FaultyStore(open_journal("memory://"))
    yield opened
    opened.close()


@pytest.fixture
def key() -> ThreadKey:
    return ThreadKey("u", "a", "s", "t")


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def journal(store: FaultyStore, key: ThreadKey, slept: list[float]) -> ThreadJournal:
    ids = iter(range(1_000_000))
    return ThreadJournal(store, key, clock_ms=lambda: 1_700, new_id=lambda: f"id-{next(ids)}", sleep=slept.append)
