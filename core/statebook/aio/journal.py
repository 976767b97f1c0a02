"""AsyncThreadJournalStore: the contract's journal store for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from statebook.aio.calls import Caller
from statebook.capabilities import Capabilities
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope
from statebook.lanes.pool import WorkPools
from statebook.model import (
    ANY,
    AppendOutcome,
    AppendRequest,
    Batch,
    ClaimInfo,
    CollectReport,
    EventPage,
    Expect,
    ExportCursor,
    JournalHead,
    Receipt,
    ThreadPage,
    VerifyReport,
    WriterClaim,
)


class AsyncThreadJournalStore:
    """Any `ThreadJournalStore`, from asyncio: the same names, parameters, answers and errors.

    Guarantees that no call blocks the event loop, and ERR-4: cancelling a waiter cancels no call that was accepted. A
    full pool is `Overloaded` at once, and the call is not made. Past the deadline a writing call is `OutcomeUnknown`,
    with the batch and base to settle, and goes on; a reading one is `BackendUnavailable`. Claims, heartbeats and
    releases have a pool of their own, and so has maintenance (LANE-5).
    """

    def __init__(self, store: ThreadJournalStore, pools: WorkPools, *, deadline_s: float | None = None) -> None:
        """Make a facade. No I/O.

        Args:
            store: An open store; `close` closes it.
            pools: Where the blocking calls run; the caller's, who closes them.
            deadline_s: How long a call may take from its submission, in seconds, or None.

        Raises:
            ValueError: The deadline is not positive.
        """
        self._store = store
        self._pools = pools
        self._caller = Caller(deadline_s)

    @property
    def capabilities(self) -> Capabilities:
        """As `ThreadJournalStore.capabilities`."""
        return self._store.capabilities

    def within(self, deadline_s: float | None) -> Self:
        """The same store with another deadline.

        Args:
            deadline_s: How long a call may take from its submission, in seconds, or None.

        Returns:
            Another facade of the same store and pools.

        Raises:
            ValueError: The deadline is not positive.
        """
        return type(self)(self._store, self._pools, deadline_s=deadline_s)

    # ------------------------------------------------------------------------------------------------------ writers

    async def head(self, key: ThreadKey) -> JournalHead | None:
        """As `ThreadJournalStore.head`."""
        return await self._caller.read(self._pools.calls, lambda: self._store.head(key))

    async def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        """As `ThreadJournalStore.claim`."""
        return await self._caller.write(
            self._pools.leases, lambda: self._store.claim(key, writer_id, replacing=replacing)
        )

    async def heartbeat(self, claim: WriterClaim) -> None:
        """As `ThreadJournalStore.heartbeat`."""
        await self._caller.write(self._pools.leases, lambda: self._store.heartbeat(claim))

    async def release(self, claim: WriterClaim) -> None:
        """As `ThreadJournalStore.release`."""
        await self._caller.write(self._pools.leases, lambda: self._store.release(claim))

    async def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        """As `ThreadJournalStore.append`. `CommitLanes` keep the order of many and commit them together."""
        return await self._caller.write(
            self._pools.calls,
            lambda: self._store.append(claim, batch, base_seq),
            batch_id=batch.batch_id,
            base_seq=base_seq,
        )

    async def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        """As `ThreadJournalStore.append_many`."""
        given = tuple(requests)
        return await self._caller.write(self._pools.calls, lambda: self._store.append_many(given))

    async def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        """As `ThreadJournalStore.settle`."""
        return await self._caller.write(
            self._pools.calls,
            lambda: self._store.settle(claim, batch_id, base_seq),
            batch_id=batch_id,
            base_seq=base_seq,
        )

    # ------------------------------------------------------------------------------------------------------ readers

    async def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        """As `ThreadJournalStore.read_after`."""
        return await self._caller.read(self._pools.calls, lambda: self._store.read_after(key, seq, limit))

    # ------------------------------------------------------------------------------------------------------ cursors

    async def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        """As `ThreadJournalStore.open_cursor`."""
        return await self._caller.write(self._pools.calls, lambda: self._store.open_cursor(key, exporter))

    async def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        """As `ThreadJournalStore.advance_cursor`."""
        return await self._caller.write(self._pools.calls, lambda: self._store.advance_cursor(cursor, to_seq))

    async def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        """As `ThreadJournalStore.reset_cursor`."""
        return await self._caller.write(
            self._pools.calls,
            lambda: self._store.reset_cursor(key, exporter, to_seq, expected_version=expected_version),
        )

    # -------------------------------------------------------------------------------------------------- maintenance

    async def list_threads(
        self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000
    ) -> ThreadPage:
        """As `ThreadJournalStore.list_threads`."""
        return await self._caller.read(
            self._pools.maintenance, lambda: self._store.list_threads(scope, after=after, limit=limit)
        )

    async def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        """As `ThreadJournalStore.trim`."""
        return await self._caller.write(self._pools.maintenance, lambda: self._store.trim(key, before_seq))

    async def delete(self, key: ThreadKey) -> bool:
        """As `ThreadJournalStore.delete`."""
        return await self._caller.write(self._pools.maintenance, lambda: self._store.delete(key))

    async def purge(self, key: ThreadKey) -> bool:
        """As `ThreadJournalStore.purge`."""
        return await self._caller.write(self._pools.maintenance, lambda: self._store.purge(key))

    async def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        """As `ThreadJournalStore.verify`."""
        return await self._caller.read(self._pools.maintenance, lambda: self._store.verify(key, deep=deep))

    async def collect(self, key: ThreadKey) -> CollectReport:
        """As `ThreadJournalStore.collect`."""
        return await self._caller.write(self._pools.maintenance, lambda: self._store.collect(key))

    async def close(self) -> None:
        """As `ThreadJournalStore.close`; the pools stay open."""
        await self._caller.read(self._pools.maintenance, self._store.close)
