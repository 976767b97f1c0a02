"""Conformance through the asyncio facade: every call of a store runs on an event loop and in the facade's pools.

`statebook conformance "statebook_conformance.through_aio:open_target?base=URL"`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Literal, TypeVar
from urllib.parse import urlencode

from statebook.aio import AsyncAgentStateStore, AsyncAtomicJournalStorage, AsyncThreadJournalStore
from statebook.atomic import AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.errors import StoreClosed
from statebook.journal import ThreadJournalStore
from statebook.keys import SessionKey, StateKey, ThreadKey, ThreadScope
from statebook.lanes import WorkPool, WorkPools
from statebook.model import (
    ANY,
    AppendOutcome,
    AppendRequest,
    Batch,
    ClaimInfo,
    CollectReport,
    EventPage,
    Expect,
    ExpectedVersion,
    ExportCursor,
    JournalHead,
    KeyPage,
    ListValue,
    Receipt,
    SessionPage,
    SlotKind,
    StateValue,
    ThreadPage,
    VerifyReport,
    WriterClaim,
)
from statebook.plugins import Requirement
from statebook.state import AgentStateStore
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardBackend, ForwardJournal, ForwardState
from statebook_conformance.target import Target, TargetBackend

T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own, and the pools of one facade."""

    def __init__(self) -> None:
        self.pools = WorkPools(calls=WorkPool("calls", workers_max=16))
        self._lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="conformance-through-aio", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[object, object, T]) -> T:
        """Run a call on the loop, and wait for it."""
        with self._lock:
            if self._closed:
                call.close()
                raise StoreClosed("the store was closed")
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        return future.result()

    def close(self, call: Coroutine[object, object, None]) -> None:
        """Run the store's close, once; calls that run get their answers before the loop stops."""
        with self._lock:
            if self._closed:
                call.close()
                return
            self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(_last(call), self._loop).result()
        finally:
            self.pools.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _last(call: Coroutine[object, object, None]) -> None:
    try:
        await call
    finally:
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)


class _Atomic(ForwardAtomic):
    """Runs every call through `AsyncAtomicJournalStorage`."""

    def __init__(self, inner: AtomicJournalStorage) -> None:
        super().__init__(inner)
        self._loop = _Loop()
        self._facade = AsyncAtomicJournalStorage(inner, self._loop.pools)

    def read_head(self, scope: str) -> HeadRecord | None:
        return self._loop.run(self._facade.read_head(scope))

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        return self._loop.run(self._facade.commit(scope, expected, head, blobs))

    def read_blob(self, scope: str, name: str) -> bytes | None:
        return self._loop.run(self._facade.read_blob(scope, name))

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        return self._loop.run(self._facade.list_blobs(scope, after, limit))

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        self._loop.run(self._facade.delete_blobs(scope, names))

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        return self._loop.run(self._facade.list_scopes(prefix, after, limit))

    def delete_head(self, scope: str, expected: str) -> bool:
        return self._loop.run(self._facade.delete_head(scope, expected))

    def close(self) -> None:
        self._loop.close(self._facade.close())


class _State(ForwardState):
    """Runs every call through `AsyncAgentStateStore`."""

    def __init__(self, inner: AgentStateStore) -> None:
        super().__init__(inner)
        self._loop = _Loop()
        self._facade = AsyncAgentStateStore(inner, self._loop.pools)

    def load(self, slot: StateKey) -> StateValue | None:
        return self._loop.run(self._facade.load(slot))

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        return self._loop.run(self._facade.save(slot, value, expected=expected))

    def load_list(self, slot: StateKey) -> ListValue | None:
        return self._loop.run(self._facade.load_list(slot))

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        return self._loop.run(self._facade.append_list(slot, items, expected_length=expected_length))

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        return self._loop.run(self._facade.replace_list(slot, items, expected=expected))

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        return self._loop.run(self._facade.delete(slot, kind=kind, expected=expected))

    def delete_session(self, session: SessionKey) -> int:
        return self._loop.run(self._facade.delete_session(session))

    def exists(self, session: SessionKey) -> bool:
        return self._loop.run(self._facade.exists(session))

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1000,
    ) -> KeyPage:
        return self._loop.run(self._facade.list_keys(session, kind=kind, after=after, limit=limit))

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1000) -> SessionPage:
        return self._loop.run(self._facade.list_sessions(user_id, after=after, limit=limit))

    def close(self) -> None:
        self._loop.close(self._facade.close())


class _Journal(ForwardJournal):
    """Runs every call through `AsyncThreadJournalStore`."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._loop = _Loop()
        self._facade = AsyncThreadJournalStore(inner, self._loop.pools)

    def head(self, key: ThreadKey) -> JournalHead | None:
        return self._loop.run(self._facade.head(key))

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        return self._loop.run(self._facade.claim(key, writer_id, replacing=replacing))

    def heartbeat(self, claim: WriterClaim) -> None:
        self._loop.run(self._facade.heartbeat(claim))

    def release(self, claim: WriterClaim) -> None:
        self._loop.run(self._facade.release(claim))

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        return self._loop.run(self._facade.append(claim, batch, base_seq))

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        return self._loop.run(self._facade.append_many(requests))

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        return self._loop.run(self._facade.settle(claim, batch_id, base_seq))

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1000) -> EventPage:
        return self._loop.run(self._facade.read_after(key, seq, limit))

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        return self._loop.run(self._facade.open_cursor(key, exporter))

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        return self._loop.run(self._facade.advance_cursor(cursor, to_seq))

    def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        return self._loop.run(self._facade.reset_cursor(key, exporter, to_seq, expected_version=expected_version))

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1000) -> ThreadPage:
        return self._loop.run(self._facade.list_threads(scope, after=after, limit=limit))

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        return self._loop.run(self._facade.trim(key, before_seq))

    def delete(self, key: ThreadKey) -> bool:
        return self._loop.run(self._facade.delete(key))

    def purge(self, key: ThreadKey) -> bool:
        return self._loop.run(self._facade.purge(key))

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        return self._loop.run(self._facade.verify(key, deep=deep))

    def collect(self, key: ThreadKey) -> CollectReport:
        return self._loop.run(self._facade.collect(key))

    def close(self) -> None:
        self._loop.close(self._facade.close())


class ThroughAio(ForwardBackend):
    """A backend whose stores are called through the asyncio facade."""

    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        """Open and wrap."""
        return _Atomic(self.inner.open_atomic(require))

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        """Open and wrap."""
        return _Journal(self.inner.open_journal(require))

    def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
        """Core's journal over a given storage, whose calls go through the facade already."""
        return self.inner.journal_over(storage)

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        """Open and wrap."""
        return _State(self.inner.open_state(require))


def open_target(namespace: str, base: str, **options: str) -> TargetBackend:
    """The target's function.

    Args:
        namespace: The namespace.
        base: The target text of the backend to be called through the facade.
        **options: More options of its URL.

    Returns:
        The backend.

    Raises:
        InvalidConfiguration: The base or an option is wrong.
    """
    target = Target(base)
    if not options:
        return ThroughAio(target.backend(namespace))
    url = base
    for name, value in options.items():
        url += ("&" if "?" in url else "?") + urlencode({name: value})
    return ThroughAio(Target(url).backend(namespace))
