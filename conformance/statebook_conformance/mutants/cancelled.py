"""Mutants of asyncio stores: right as long as nobody gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from statebook.aio import AsyncAgentStateStore, AsyncThreadJournalStore
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.lanes.pool import WorkPools
from statebook.model import Batch, EventPage, Receipt, WriterClaim
from statebook.state import AgentStateStore
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.target import TargetBackend

JournalFacade = Callable[[ThreadJournalStore, WorkPools], AsyncThreadJournalStore]


class _OwnFacades(ForwardBackend):
    """A backend that brings asyncio stores of its own."""

    def __init__(self, inner: TargetBackend, journal: JournalFacade) -> None:
        super().__init__(inner)
        self._journal = journal

    def journal_facade(self, store: ThreadJournalStore, pools: WorkPools) -> AsyncThreadJournalStore:
        return self._journal(store, pools)

    def state_facade(self, store: AgentStateStore, pools: WorkPools) -> AsyncAgentStateStore:
        return AsyncAgentStateStore(store, pools)


class _LockLeft(AsyncThreadJournalStore):
    """Takes turns with a lock that only an answer gives back."""

    def __init__(self, store: ThreadJournalStore, pools: WorkPools) -> None:
        super().__init__(store, pools)
        self._turn = asyncio.Lock()

    async def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        await self._turn.acquire()
        receipt = await super().append(claim, batch, base_seq)
        self._turn.release()
        return receipt


class _HalfWay(AsyncThreadJournalStore):
    """Writes a batch in two awaits."""

    async def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        if len(batch.events) < 2:
            return await super().append(claim, batch, base_seq)
        first = await super().append(claim, Batch(f"{batch.batch_id}-first", batch.events[:1]), base_seq)
        rest = await super().append(claim, Batch(batch.batch_id, batch.events[1:]), first.last_seq)
        return msgspec.structs.replace(rest, first_seq=first.first_seq)


class _SharedRead(AsyncThreadJournalStore):
    """Lets all who read one page wait for one future, which the first of them who gives up cancels."""

    def __init__(self, store: ThreadJournalStore, pools: WorkPools) -> None:
        super().__init__(store, pools)
        self._reads: dict[tuple[ThreadKey, int, int], asyncio.Future[EventPage]] = {}

    async def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = key, seq, limit
        read = self._reads.get(page)
        if read is None or read.done():
            read = self._reads[page] = asyncio.ensure_future(super().read_after(key, seq, limit))
        return await read


LOCK_LEFT: Final = Mutant(
    "lock-left-after-cancellation",
    "a lock is taken before an await and given back behind it, without a finally",
    lambda inner: _OwnFacades(inner, _LockLeft),
)
HALF_WAY: Final = Mutant(
    "cancelled-half-way",
    "a write is made in two awaits, and the second is never made where the waiter gives up between them",
    lambda inner: _OwnFacades(inner, _HalfWay),
)
SHARED_READ: Final = Mutant(
    "cancelled-with-its-neighbour",
    "waiters share one future, and the one that gives up cancels it for all",
    lambda inner: _OwnFacades(inner, _SharedRead),
)
