"""One typed asyncio facade over any store and over commit lanes: the same names, parameters, answers and errors.

The contract blocks; here its calls run in bounded pools of threads. Awaiting is shielded: cancelling a waiter cancels
no call that was accepted.
"""

from __future__ import annotations

from statebook.aio.atomic import AsyncAtomicJournalStorage
from statebook.aio.journal import AsyncThreadJournalStore
from statebook.aio.lane import AsyncCommitLane
from statebook.aio.state import AsyncAgentStateStore

__all__ = ["AsyncAgentStateStore", "AsyncAtomicJournalStorage", "AsyncCommitLane", "AsyncThreadJournalStore"]
