"""AsyncAgentStateStore: the contract's state store for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from statebook.aio.calls import Caller
from statebook.capabilities import Capabilities
from statebook.keys import SessionKey, StateKey
from statebook.lanes.pool import WorkPools
from statebook.model import ANY, ExpectedVersion, KeyPage, ListValue, SessionPage, SlotKind, StateValue
from statebook.state import AgentStateStore


class AsyncAgentStateStore:
    """Any `AgentStateStore`, from asyncio: the same names, parameters, answers and errors.

    Guarantees that no call blocks the event loop, and ERR-4: cancelling a waiter cancels no call that was accepted. A
    full pool is `Overloaded` at once, and the call is not made. Past the deadline a writing call is `OutcomeUnknown`
    and goes on; a reading one is `BackendUnavailable`.
    """

    def __init__(self, store: AgentStateStore, pools: WorkPools, *, deadline_s: float | None = None) -> None:
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
        """As `AgentStateStore.capabilities`."""
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

    async def load(self, slot: StateKey) -> StateValue | None:
        """As `AgentStateStore.load`."""
        return await self._caller.read(self._pools.calls, lambda: self._store.load(slot))

    async def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        """As `AgentStateStore.save`."""
        return await self._caller.write(self._pools.calls, lambda: self._store.save(slot, value, expected=expected))

    async def load_list(self, slot: StateKey) -> ListValue | None:
        """As `AgentStateStore.load_list`."""
        return await self._caller.read(self._pools.calls, lambda: self._store.load_list(slot))

    async def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        """As `AgentStateStore.append_list`."""
        given = _frozen(items)
        return await self._caller.write(
            self._pools.calls, lambda: self._store.append_list(slot, given, expected_length=expected_length)
        )

    async def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        """As `AgentStateStore.replace_list`."""
        given = _frozen(items)
        return await self._caller.write(
            self._pools.calls, lambda: self._store.replace_list(slot, given, expected=expected)
        )

    async def delete(
        self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY
    ) -> bool:
        """As `AgentStateStore.delete`."""
        return await self._caller.write(
            self._pools.calls, lambda: self._store.delete(slot, kind=kind, expected=expected)
        )

    async def delete_session(self, session: SessionKey) -> int:
        """As `AgentStateStore.delete_session`."""
        return await self._caller.write(self._pools.maintenance, lambda: self._store.delete_session(session))

    async def exists(self, session: SessionKey) -> bool:
        """As `AgentStateStore.exists`."""
        return await self._caller.read(self._pools.calls, lambda: self._store.exists(session))

    async def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        """As `AgentStateStore.list_keys`."""
        return await self._caller.read(
            self._pools.maintenance, lambda: self._store.list_keys(session, kind=kind, after=after, limit=limit)
        )

    async def list_sessions(
        self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000
    ) -> SessionPage:
        """As `AgentStateStore.list_sessions`."""
        return await self._caller.read(
            self._pools.maintenance, lambda: self._store.list_sessions(user_id, after=after, limit=limit)
        )

    async def close(self) -> None:
        """As `AgentStateStore.close`; the pools stay open."""
        await self._caller.read(self._pools.maintenance, self._store.close)


def _frozen(items: Sequence[bytes]) -> Sequence[bytes]:
    """A copy, so that the caller's list may change while the call waits (VAL-3)."""
    return list(items) if isinstance(items, list) else items
