"""AsyncAtomicJournalStorage: the contract's atomic storage for asyncio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from statebook.aio.calls import Caller
from statebook.atomic import AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities
from statebook.lanes.pool import WorkPools


class AsyncAtomicJournalStorage:
    """Any `AtomicJournalStorage`, from asyncio: the same names, parameters, answers and errors.

    Guarantees that no call blocks the event loop, and ERR-4: cancelling a waiter cancels no call that was accepted. A
    full pool is `Overloaded` at once, and the call is not made. Past the deadline a writing call is `OutcomeUnknown`
    and goes on; a reading one is `BackendUnavailable`.
    """

    def __init__(self, store: AtomicJournalStorage, pools: WorkPools, *, deadline_s: float | None = None) -> None:
        """Make a facade. No I/O.

        Args:
            store: An open storage; `close` closes it.
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
        """As `AtomicJournalStorage.capabilities`."""
        return self._store.capabilities

    def within(self, deadline_s: float | None) -> Self:
        """The same storage with another deadline.

        Args:
            deadline_s: How long a call may take from its submission, in seconds, or None.

        Returns:
            Another facade of the same storage and pools.

        Raises:
            ValueError: The deadline is not positive.
        """
        return type(self)(self._store, self._pools, deadline_s=deadline_s)

    async def read_head(self, scope: str) -> HeadRecord | None:
        """As `AtomicJournalStorage.read_head`."""
        return await self._caller.read(self._pools.calls, lambda: self._store.read_head(scope))

    async def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        """As `AtomicJournalStorage.commit`."""
        given = None if blobs is None else dict(blobs)
        return await self._caller.write(self._pools.calls, lambda: self._store.commit(scope, expected, head, given))

    async def read_blob(self, scope: str, name: str) -> bytes | None:
        """As `AtomicJournalStorage.read_blob`."""
        return await self._caller.read(self._pools.calls, lambda: self._store.read_blob(scope, name))

    async def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        """As `AtomicJournalStorage.list_blobs`."""
        return await self._caller.read(self._pools.maintenance, lambda: self._store.list_blobs(scope, after, limit))

    async def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        """As `AtomicJournalStorage.delete_blobs`."""
        given = tuple(names)
        await self._caller.write(self._pools.maintenance, lambda: self._store.delete_blobs(scope, given))

    async def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        """As `AtomicJournalStorage.list_scopes`."""
        return await self._caller.read(self._pools.maintenance, lambda: self._store.list_scopes(prefix, after, limit))

    async def delete_head(self, scope: str, expected: str) -> bool:
        """As `AtomicJournalStorage.delete_head`."""
        return await self._caller.write(self._pools.maintenance, lambda: self._store.delete_head(scope, expected))

    async def close(self) -> None:
        """As `AtomicJournalStorage.close`; the pools stay open."""
        await self._caller.read(self._pools.maintenance, self._store.close)
