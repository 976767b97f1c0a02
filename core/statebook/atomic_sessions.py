"""Lists slots and sessions over atomic storage: ordered, complete, in bounded memory (STATE-9).

Slots are listed by the names of their scopes, sessions by their own names. The two orders differ where one session's
name is another's with `-` and more behind it: `a-b/` sorts before `a/`, but `a` before `a-b`. So whoever walks the
scopes of a user page by page asks for those shorter names at the end of each page, and then has all up to there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from statebook.atomic import AtomicJournalStorage
from statebook.atomic_slots import SlotRecords, StoredSlot, slot_root
from statebook.keys import SessionKey, StateKey, encode_id
from statebook.model import SlotKind

_PAGE: Final = 1_000


class SlotListing:
    """Lists what is live. Tombstones are skipped, so each candidate's record is read."""

    def __init__(self, storage: AtomicJournalStorage, records: SlotRecords) -> None:
        """List a storage.

        Args:
            storage: The storage.
            records: Reads the records.
        """
        self._storage = storage
        self._records = records

    def live(self, kind: SlotKind, session: str, after: StateKey | None = None) -> Iterator[StoredSlot]:
        """The live slots of a session, ascending.

        Args:
            kind: The kind.
            session: The session's name.
            after: Only slots behind this one.

        Yields:
            Their records.
        """
        root = slot_root(kind)
        for scope in self._scopes(f"{root}{session}/", None if after is None else root + after.name):
            record = self._records.read_scope(kind, scope)
            if record is not None and not record.deleted:
                yield record

    def sessions(self, user_id: str | None, after: SessionKey | None) -> Iterator[SessionKey]:
        """The sessions of a user that have a live slot of either kind, ascending.

        Args:
            user_id: The user.
            after: Only sessions behind this one.

        Yields:
            The sessions.
        """
        user = encode_id(user_id) + "/"
        start = None if after is None else after.name
        names = heapq.merge(*[self._session_names(kind, user, start) for kind in SlotKind])
        previous: str | None = None
        for name in names:
            if name != previous:
                record = self.any_live(name)
                if record is not None:
                    yield record.key.session
            previous = name

    def any_live(self, session: str) -> StoredSlot | None:
        """One live slot of a session, or None where there is none (STATE-6)."""
        for kind in SlotKind:
            record = next(self.live(kind, session), None)
            if record is not None:
                return record
        return None

    def _session_names(self, kind: SlotKind, user: str, after: str | None) -> Iterator[str]:
        """The names of the sessions that have a record of a kind, ascending by their own names."""
        root = slot_root(kind)
        # Names that continue `after` with a dash sort before its scopes, but behind it by name.
        position = None if after is None else f"{root}{after}-"
        low = "" if after is None else after
        more = True
        while more:
            page = self._storage.list_scopes(root + user, position, _PAGE)
            more = page.has_more and bool(page.names)
            position = page.names[-1] if page.names else None
            found = {scope.removeprefix(root).rpartition("/")[0] for scope in page.names}
            if more and position is not None:
                last = position.removeprefix(root).rpartition("/")[0]
                found |= {name for name in _shorter(last, user) if name > low and self._has_records(root + name)}
            fresh = sorted(name for name in found if name > low)
            yield from fresh
            low = fresh[-1] if fresh else low

    def _has_records(self, session_scope: str) -> bool:
        return bool(self._storage.list_scopes(session_scope + "/", None, 1).names)

    def _scopes(self, prefix: str, after: str | None) -> Iterator[str]:
        more = True
        while more:
            page = self._storage.list_scopes(prefix, after, _PAGE)
            yield from page.names
            more = page.has_more and bool(page.names)
            after = page.names[-1] if page.names else None


def _shorter(name: str, user: str) -> Iterator[str]:
    """The names of other sessions that this one continues with a dash."""
    start = len(user)
    while (start := name.find("-", start + 1)) >= 0:
        yield name[:start]
