"""Mutants of identifiers: folded, cut, joined, matched as patterns, put into paths."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

from statebook.journal import ThreadJournalStore
from statebook.keys import SessionKey, StateKey, ThreadKey, ThreadScope, encode_id, is_digest_name
from statebook.model import (
    ANY,
    Batch,
    ClaimInfo,
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
    WriterClaim,
)
from statebook.plugins import Requirement, load_backend
from statebook.state import AgentStateStore
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, BadState, Memory, StateMaker, wrapping
from statebook_conformance.target import TargetBackend

# ------------------------------------------------------------------------------------------------------ state, mapped


class _Mapped(BadState):
    """Stores every slot under another key; where two keys become one, they are mixed up."""

    def __init__(self, inner: AgentStateStore, memory: Memory, change: Callable[[StateKey], StateKey]) -> None:
        super().__init__(inner, memory)
        self._change = change

    def _session(self, session: SessionKey) -> SessionKey:
        return self._change(StateKey(session.user_id, session.session_id, "key")).session

    def load(self, slot: StateKey) -> StateValue | None:
        return super().load(self._change(slot))

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        return super().save(self._change(slot), value, expected=expected)

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        return super().delete(self._change(slot), kind=kind, expected=expected)

    def delete_session(self, session: SessionKey) -> int:
        return super().delete_session(self._session(session))

    def exists(self, session: SessionKey) -> bool:
        return super().exists(self._session(session))

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        user = self._change(StateKey(user_id, "session", "key")).user_id
        return super().list_sessions(user, after=None if after is None else self._session(after), limit=limit)


def _each_id(fold: Callable[[str], str]) -> StateMaker:
    def change(slot: StateKey) -> StateKey:
        user = None if slot.user_id is None else fold(slot.user_id)
        return StateKey(user, fold(slot.session_id), fold(slot.key))

    return lambda inner, memory: _Mapped(inner, memory, change)


def _joined(slot: StateKey) -> StateKey:
    session, _, key = f"{slot.session_id}:{slot.key}".partition(":")
    return StateKey(slot.user_id, session, key) if session and key else slot


def _worded(slot: StateKey) -> StateKey:
    return StateKey("None" if slot.user_id is None else slot.user_id, slot.session_id, slot.key)


CASE_FOLDING: Final = Mutant(
    "case-folding",
    "ids are compared under a case-insensitive collation, or are file names on such a file system",
    wrapping(state=_each_id(str.lower)),
    canary=True,
)
TRAILING_SPACE_CUT: Final = Mutant(
    "trailing-space-cut",
    "a PAD SPACE collation drops spaces at the end of ids",
    wrapping(state=_each_id(lambda text: text.rstrip(" ") or text)),
)
ACCENT_FOLDING: Final = Mutant(
    "accent-folding",
    "ids are normalised, so that composed and decomposed, full and half width are one",
    wrapping(state=_each_id(lambda text: unicodedata.normalize("NFKC", text))),
)
LONG_IDS_CUT: Final = Mutant(
    "long-ids-cut",
    "ids are cut to the 255 bytes of a file name or column",
    wrapping(state=_each_id(lambda text: text.encode()[:255].decode(errors="ignore"))),
)
SEPARATOR_CONFUSION: Final = Mutant(
    "separator-confusion",
    "session and key are joined with a colon that either may hold",
    wrapping(state=lambda inner, memory: _Mapped(inner, memory, _joined)),
)
NONE_IS_A_WORD: Final = Mutant(
    "none-is-a-word",
    "the absent user is stored as the string 'None'",
    wrapping(state=lambda inner, memory: _Mapped(inner, memory, _worded)),
)


class _CutLists(BadState):
    """Cuts the keys of lists alone."""

    def load_list(self, slot: StateKey) -> ListValue | None:
        return super().load_list(_cut(slot))

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        return super().replace_list(_cut(slot), items, expected=expected)


def _cut(slot: StateKey) -> StateKey:
    return StateKey(slot.user_id, slot.session_id, slot.key.partition(":")[0] or slot.key)


LIST_KEY_CUT: Final = Mutant(
    "list-key-cut",
    "the keys of lists are cut at a colon, which separates them from the word 'list'",
    wrapping(state=_CutLists),
)


class _PatternDelete(BadState):
    """Deletes what the session id matches as a pattern."""

    def delete_session(self, session: SessionKey) -> int:
        others = super().list_sessions(session.user_id, limit=10_000).sessions
        matching = [other for other in others if fnmatchcase(other.session_id, session.session_id)]
        return sum(super(_PatternDelete, self).delete_session(other) for other in matching)


DELETE_SESSION_PATTERN: Final = Mutant(
    "delete-session-pattern",
    "the session to delete is found with LIKE, KEYS or a glob, without escapes",
    wrapping(state=_PatternDelete),
)


class _DigestListed(BadState):
    """Lists the storage name where the id was too long for it."""

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        page = super().list_sessions(user_id, after=after, limit=limit)
        return SessionPage(
            tuple(SessionKey(key.user_id, _as_name(key.session_id)) for key in page.sessions), page.has_more
        )

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        page = super().list_keys(session, kind=kind, after=after, limit=limit)
        keys = tuple(StateKey(key.user_id, key.session_id, _as_name(key.key)) for key in page.keys)
        return KeyPage(keys, page.has_more)


def _as_name(text: str) -> str:
    name = encode_id(text)
    return name if is_digest_name(name) else text


DIGEST_LISTED: Final = Mutant(
    "digest-listed",
    "long ids are stored as digests, and listed as digests too",
    wrapping(state=_DigestListed),
)


class _Cleaned(BadState):
    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        return super().list_sessions(None if user_id is None else clean(user_id), after=after, limit=limit)


def clean(text: str) -> str:
    """Make an id of anything: the mistake of some stores."""
    return text.encode(errors="ignore").replace(b"\0", b"")[:512].decode(errors="ignore") or "anonymous"


# ------------------------------------------------------------------------------------------------------------ journals


class _CleanedWriters(BadJournal):
    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        return super().claim(key, clean(writer_id), replacing=replacing)


IDS_CLEANED: Final = Mutant(
    "ids-cleaned",
    "an id that is not allowed is cleaned and used, instead of being refused",
    wrapping(state=_Cleaned, journal=_CleanedWriters),
)


class _FoldedThreads(BadJournal):
    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        return super().claim(_folded(key), writer_id, replacing=replacing)

    def head(self, key: ThreadKey) -> JournalHead | None:
        return super().head(_folded(key))


def _folded(key: ThreadKey) -> ThreadKey:
    return ThreadKey(key.user_id, key.agent_id, key.session_id, key.thread_id.casefold())


THREAD_ID_FOLDING: Final = Mutant(
    "thread-id-folding", "thread ids are compared without their case", wrapping(journal=_FoldedThreads)
)


class _PrefixScope(BadJournal):
    """Lists the threads whose names start with the scope's, without the separator behind it."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        if scope.agent_id is None or scope.session_id is not None:
            return super().list_threads(scope, after=after, limit=limit)
        prefix = scope.prefix.rstrip("/")
        found = super().list_threads(ThreadScope(scope.user_id), limit=10_000).threads
        return ThreadPage(tuple(key for key in found if key.name.startswith(prefix)), has_more=False)


THREAD_SCOPE_PREFIX: Final = Mutant(
    "thread-scope-prefix", "agent 'a' also lists the threads of agent 'ab'", wrapping(journal=_PrefixScope)
)


class _FoldedBatches(BadJournal):
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        return super().append(claim, Batch(batch.batch_id.casefold(), batch.events), base_seq)


BATCH_ID_FOLDING: Final = Mutant(
    "batch-id-folding",
    "batch ids are compared without their case: another batch is taken for a replay",
    wrapping(journal=_FoldedBatches),
)


class _FoldedExporters(BadJournal):
    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        return super().open_cursor(key, exporter.casefold())


EXPORTER_FOLDING: Final = Mutant(
    "exporter-folding", "exporters' names are compared without their case", wrapping(journal=_FoldedExporters)
)


# ---------------------------------------------------------------------------------------------------------- namespaces


class _OneNamespace(ForwardBackend):
    """Keeps all namespaces in one place."""

    def __init__(self, inner: TargetBackend) -> None:
        super().__init__(inner)
        self._place = load_backend(f"memory://one-for-all-{os.getpid()}")

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        return self._place.open_state(require)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        return self._place.open_journal(require)

    def destroy_namespace(self) -> bool:
        return self._place.destroy_namespace()


NAMESPACE_IGNORED: Final = Mutant(
    "namespace-ignored", "the namespace is taken as an option and used nowhere", _OneNamespace
)


class _Escaping(BadState):
    """Slots whose key climbs out of the directory are elsewhere."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._outside = load_backend(f"memory://outside-{os.getpid()}").open_state()

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        store = self._outside if slot.key.startswith("..") else self.inner
        return store.save(slot, value, expected=expected)

    def load(self, slot: StateKey) -> StateValue | None:
        return (self._outside if slot.key.startswith("..") else self.inner).load(slot)

    def close(self) -> None:
        self._outside.close()
        super().close()


PATH_ESCAPE: Final = Mutant(
    "path-escape",
    "an id that climbs with '..' is stored outside of the namespace's directory",
    wrapping(state=_Escaping),
    base="sqlite:///{directory}/mutant.db",
)
