"""Stores that hand every call on to another store: what a mutant changes one call of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from statebook.atomic import AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities
from statebook.format_fixtures import FormatFixtures
from statebook.journal import ThreadJournalStore
from statebook.keys import SessionKey, StateKey, ThreadKey, ThreadScope
from statebook.medium import Medium
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
from statebook_conformance.target import TargetBackend


class ForwardAtomic(AtomicJournalStorage):
    """Hands every call on."""

    def __init__(self, inner: AtomicJournalStorage) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def read_head(self, scope: str) -> HeadRecord | None:
        return self.inner.read_head(scope)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        return self.inner.commit(scope, expected, head, blobs)

    def read_blob(self, scope: str, name: str) -> bytes | None:
        return self.inner.read_blob(scope, name)

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        return self.inner.list_blobs(scope, after, limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        self.inner.delete_blobs(scope, names)

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        return self.inner.list_scopes(prefix, after, limit)

    def delete_head(self, scope: str, expected: str) -> bool:
        return self.inner.delete_head(scope, expected)

    def close(self) -> None:
        self.inner.close()


class ForwardState(AgentStateStore):
    """Hands every call on."""

    def __init__(self, inner: AgentStateStore) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def load(self, slot: StateKey) -> StateValue | None:
        return self.inner.load(slot)

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        return self.inner.save(slot, value, expected=expected)

    def load_list(self, slot: StateKey) -> ListValue | None:
        return self.inner.load_list(slot)

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        return self.inner.append_list(slot, items, expected_length=expected_length)

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        return self.inner.replace_list(slot, items, expected=expected)

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        return self.inner.delete(slot, kind=kind, expected=expected)

    def delete_session(self, session: SessionKey) -> int:
        return self.inner.delete_session(session)

    def exists(self, session: SessionKey) -> bool:
        return self.inner.exists(session)

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        return self.inner.list_keys(session, kind=kind, after=after, limit=limit)

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        return self.inner.list_sessions(user_id, after=after, limit=limit)

    def close(self) -> None:
        self.inner.close()


class ForwardJournal(ThreadJournalStore):
    """Hands every call on."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def head(self, key: ThreadKey) -> JournalHead | None:
        return self.inner.head(key)

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        return self.inner.claim(key, writer_id, replacing=replacing)

    def heartbeat(self, claim: WriterClaim) -> None:
        self.inner.heartbeat(claim)

    def release(self, claim: WriterClaim) -> None:
        self.inner.release(claim)

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        return self.inner.append(claim, batch, base_seq)

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        return self.inner.append_many(requests)

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        return self.inner.settle(claim, batch_id, base_seq)

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        return self.inner.read_after(key, seq, limit)

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        return self.inner.open_cursor(key, exporter)

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        return self.inner.advance_cursor(cursor, to_seq)

    def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        return self.inner.reset_cursor(key, exporter, to_seq, expected_version=expected_version)

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        return self.inner.list_threads(scope, after=after, limit=limit)

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        return self.inner.trim(key, before_seq)

    def delete(self, key: ThreadKey) -> bool:
        return self.inner.delete(key)

    def purge(self, key: ThreadKey) -> bool:
        return self.inner.purge(key)

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        return self.inner.verify(key, deep=deep)

    def collect(self, key: ThreadKey) -> CollectReport:
        return self.inner.collect(key)

    def close(self) -> None:
        self.inner.close()


class ForwardBackend:
    """A backend whose stores a mutant wraps or opens otherwise; by itself it changes nothing."""

    def __init__(self, inner: TargetBackend) -> None:
        self.inner = inner

    @property
    def scheme(self) -> str:
        """The inner backend's name."""
        return self.inner.scheme

    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        """Open and wrap."""
        return self.inner.open_atomic(require)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        """Open and wrap."""
        return self.inner.open_journal(require)

    def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
        """Core's journal over a given storage."""
        return self.inner.journal_over(storage)

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        """Open and wrap."""
        return self.inner.open_state(require)

    def open_medium(self) -> Medium | None:
        """The inner medium."""
        return self.inner.open_medium()

    def open_fixtures(self) -> FormatFixtures | None:
        """The inner backend's fixtures."""
        return self.inner.open_fixtures()

    def destroy_namespace(self) -> bool:
        """Clean as the inner backend does."""
        return self.inner.destroy_namespace()
