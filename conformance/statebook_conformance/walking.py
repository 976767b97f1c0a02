"""Walk listings to their end, page by page, with a bound: a listing that never ends is a finding, not a hang."""

from __future__ import annotations

from typing import Final

from statebook.atomic import AtomicJournalStorage
from statebook.journal import ThreadJournalStore
from statebook.keys import SessionKey, StateKey, ThreadKey, ThreadScope
from statebook.medium import Medium
from statebook.model import SlotKind
from statebook.state import AgentStateStore
from statebook_conformance.context import RuleFailure

PAGES_MAX: Final = 10_000
"""How many pages a walk may have."""


def _endless(what: str) -> RuleFailure:
    return RuleFailure(f"listing {what} did not end after {PAGES_MAX} pages")


def all_keys(
    state: AgentStateStore, session: SessionKey, *, kind: SlotKind = SlotKind.DOCUMENT, limit: int = 1_000
) -> tuple[StateKey, ...]:
    """All slots of a session, in the order in which they are listed.

    Args:
        state: The store.
        session: The session.
        kind: Documents or lists.
        limit: The length of a page.

    Returns:
        The slots.

    Raises:
        RuleFailure: The listing does not end, or a page that is not the last is empty.
    """
    found: list[StateKey] = []
    after: StateKey | None = None
    for _ in range(PAGES_MAX):
        page = state.list_keys(session, kind=kind, after=after, limit=limit)
        found.extend(page.keys)
        if not page.has_more:
            return tuple(found)
        if not page.keys:
            raise RuleFailure("a page of list_keys is empty, but says that there is more")
        after = page.keys[-1]
    raise _endless("keys")


def all_sessions(state: AgentStateStore, user_id: str | None, *, limit: int = 1_000) -> tuple[SessionKey, ...]:
    """All sessions of a user, in the order in which they are listed.

    Args:
        state: The store.
        user_id: The user.
        limit: The length of a page.

    Returns:
        The sessions.

    Raises:
        RuleFailure: The listing does not end, or a page that is not the last is empty.
    """
    found: list[SessionKey] = []
    after: SessionKey | None = None
    for _ in range(PAGES_MAX):
        page = state.list_sessions(user_id, after=after, limit=limit)
        found.extend(page.sessions)
        if not page.has_more:
            return tuple(found)
        if not page.sessions:
            raise RuleFailure("a page of list_sessions is empty, but says that there is more")
        after = page.sessions[-1]
    raise _endless("sessions")


def all_threads(journal: ThreadJournalStore, scope: ThreadScope, *, limit: int = 1_000) -> tuple[ThreadKey, ...]:
    """All threads of a scope, in the order in which they are listed.

    Args:
        journal: The store.
        scope: The scope.
        limit: The length of a page.

    Returns:
        The threads.

    Raises:
        RuleFailure: The listing does not end, or a page that is not the last is empty.
    """
    found: list[ThreadKey] = []
    after: ThreadKey | None = None
    for _ in range(PAGES_MAX):
        page = journal.list_threads(scope, after=after, limit=limit)
        found.extend(page.threads)
        if not page.has_more:
            return tuple(found)
        if not page.threads:
            raise RuleFailure("a page of list_threads is empty, but says that there is more")
        after = page.threads[-1]
    raise _endless("threads")


def all_scopes(atomic: AtomicJournalStorage, prefix: str, *, limit: int = 1_000) -> tuple[str, ...]:
    """All scopes under a prefix, in the order in which they are listed.

    Args:
        atomic: The storage.
        prefix: The prefix.
        limit: The length of a page.

    Returns:
        The scopes.

    Raises:
        RuleFailure: The listing does not end, or a page that is not the last is empty.
    """
    found: list[str] = []
    after: str | None = None
    for _ in range(PAGES_MAX):
        page = atomic.list_scopes(prefix, after, limit)
        found.extend(page.names)
        if not page.has_more:
            return tuple(found)
        if not page.names:
            raise RuleFailure("a page of list_scopes is empty, but says that there is more")
        after = page.names[-1]
    raise _endless("scopes")


def all_blobs(atomic: AtomicJournalStorage, scope: str, *, limit: int = 1_000) -> tuple[str, ...]:
    """All blobs of a scope, in the order in which they are listed.

    Args:
        atomic: The storage.
        scope: The scope.
        limit: The length of a page.

    Returns:
        Their names.

    Raises:
        RuleFailure: The listing does not end, or a page that is not the last is empty.
    """
    found: list[str] = []
    after: str | None = None
    for _ in range(PAGES_MAX):
        page = atomic.list_blobs(scope, after, limit)
        found.extend(page.names)
        if not page.has_more:
            return tuple(found)
        if not page.names:
            raise RuleFailure("a page of list_blobs is empty, but says that there is more")
        after = page.names[-1]
    raise _endless("blobs")


def snapshot(medium: Medium) -> dict[str, bytes]:
    """The whole content of a medium.

    Args:
        medium: The medium.

    Returns:
        Its records by name.
    """
    return {record: medium.read(record) for record in medium.records()}


def written(before: dict[str, bytes], after: dict[str, bytes]) -> int:
    """How many bytes of records are new or other between two snapshots: at least what was written meanwhile.

    Args:
        before: The earlier snapshot.
        after: The later one.

    Returns:
        The bytes.
    """
    return sum(len(data) for record, data in after.items() if before.get(record) != data)
