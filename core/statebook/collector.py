"""Deletes what failed commits left behind, without a clock (LIFE-3), and what is left of a deleted journal (LIFE-5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from statebook.atomic import AtomicJournalStorage, CommitConflict
from statebook.atomic_cursors import CursorRecords
from statebook.atomic_head import StoredHead
from statebook.atomic_moves import JournalHeads
from statebook.atomic_reader import JournalReader, thread_scope
from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError
from statebook.index_tree import name_generation
from statebook.keys import ThreadKey
from statebook.model import PAGE_MAX, CollectReport
from statebook.plan import Done, Refuse, plan_purge, touched

_DELETE_CHUNK: Final = 1_000


def listed_blobs(storage: AtomicJournalStorage, scope: str) -> Iterator[str]:
    """The names of all blobs of a scope, page by page (ATOM-6)."""
    after: str | None = None
    more = True
    while more:
        page = storage.list_blobs(scope, after, PAGE_MAX)
        yield from page.names
        more = page.has_more and bool(page.names)
        after = page.names[-1] if page.names else None


def delete_all(storage: AtomicJournalStorage, scope: str, names: Sequence[str]) -> None:
    """Delete blobs in chunks of a bounded size."""
    for start in range(0, len(names), _DELETE_CHUNK):
        storage.delete_blobs(scope, names[start : start + _DELETE_CHUNK])


def built_before(names: Sequence[str], generation: int) -> list[str]:
    """Those blobs that were built on a head before this generation; names that are not ours are never among them."""
    return [name for name in names if (built := name_generation(name)) is not None and built < generation]


class Collector:
    """Collects and purges journals."""

    def __init__(
        self,
        storage: AtomicJournalStorage,
        heads: JournalHeads,
        cursors: CursorRecords,
        new_nonce: Callable[[], str],
    ) -> None:
        """Work over a storage.

        Args:
            storage: The storage.
            heads: Reads heads.
            cursors: Reads cursor records.
            new_nonce: Fresh randomness.
        """
        self._storage = storage
        self._heads = heads
        self._cursors = cursors
        self._new_nonce = new_nonce

    def collect(self, key: ThreadKey) -> CollectReport:
        """Delete unreferenced blobs (LIFE-3).

        List the blobs; read the head; candidates are listed and unreferenced; commit the head again as a barrier of
        generation g; delete the candidates that were built before g. A writer that was about to refer to one of them
        was built on an older head, and the barrier has ended it.
        """
        scope = thread_scope(key)
        listed = list(listed_blobs(self._storage, scope))
        if not listed:
            return CollectReport(0, 0)

        def unreferenced(head: StoredHead | None, token: str | None) -> tuple[StoredHead | None, str | None, list[str]]:
            if head is None:
                return None, None, listed
            names = frozenset(JournalReader(self._storage, key).tree.names(head.levels, head.state.first_seq))
            return head, token, [name for name in listed if name not in names]

        head, token, candidates = self._heads.consistently(key, unreferenced)
        if not candidates:
            return CollectReport(0, 0)
        if head is None or token is None or not self._barrier(key, head, token):
            return CollectReport(0, len(candidates))
        doomed = built_before(candidates, head.state.generation + 1)
        delete_all(self._storage, scope, doomed)
        return CollectReport(len(doomed), len(candidates) - len(doomed))

    def _barrier(self, key: ThreadKey, head: StoredHead, token: str) -> bool:
        """Commit the head that was read once more; False where that failed or is not known: then nothing may go."""
        again = head.moved(touched(head.state, self._new_nonce()))
        try:
            return not isinstance(self._storage.commit(thread_scope(key), token, again.encode()), CommitConflict)
        except OutcomeUnknown:
            return False

    def purge(self, key: ThreadKey) -> bool:
        """Remove a tombstone, its cursors and its blobs (LIFE-5).

        The tombstone is committed once more between reading the cursor records and removing them, so that none of them
        can be a new incarnation's; it goes last, so that a purge that was cut short is done again.
        """
        scope = thread_scope(key)
        head, token = self._heads.read(key)
        decision = plan_purge(None if head is None else head.state, key)
        if isinstance(decision, Refuse):
            raise decision.error
        if isinstance(decision, Done) or head is None or token is None:
            return False
        cursors = self._cursors.tokens(key)
        barrier = head.moved(touched(head.state, self._new_nonce()))
        committed = self._storage.commit(scope, token, barrier.encode())
        if isinstance(committed, CommitConflict):
            return self._purged_meanwhile(key)
        for cursor_scope, cursor_token in cursors:
            self._storage.delete_head(cursor_scope, cursor_token)
        delete_all(
            self._storage, scope, built_before(list(listed_blobs(self._storage, scope)), barrier.state.generation)
        )
        try:
            removed = self._storage.delete_head(scope, committed)
        except OutcomeUnknown:
            if self._heads.read(key)[0] is not None:
                raise
            return True
        return removed or self._purged_meanwhile(key)

    def _purged_meanwhile(self, key: ThreadKey) -> bool:
        """Answer a purge that met somebody else: gone, open again, or in somebody else's hands."""
        head, _ = self._heads.read(key)
        decision = plan_purge(None if head is None else head.state, key)
        if isinstance(decision, Refuse):
            raise decision.error
        if isinstance(decision, Done):
            return False
        raise BackendUnavailable("somebody else is purging the journal; try again", key=key.name)

    def sweep(self, key: ThreadKey, tombstone: StoredHead) -> None:
        """Delete the blobs of a journal that has just been deleted; its tombstone is the barrier.

        What cannot be deleted now is left to the collector: the delete itself has been committed.
        """
        scope = thread_scope(key)
        with suppress(StatebookError):
            delete_all(
                self._storage, scope, built_before(list(listed_blobs(self._storage, scope)), tombstone.state.generation)
            )
