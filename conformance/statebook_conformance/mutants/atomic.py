"""Mutants of the atomic storage."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.plugins import Requirement
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadAtomic, Memory, wrapping

Blobs = Mapping[str, bytes] | None
Answer = str | CommitConflict

# ------------------------------------------------------------------------------------------------------------- commits


class _NoToken(BadAtomic):
    """Replaces the head whatever its token is."""

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        found = super().read_head(scope)
        current = None if found is None else found.token
        return super().commit(scope, current if expected is not None else None, head, blobs)


class _CreateOverwrites(BadAtomic):
    """Creates without looking, as an endpoint that ignores If-None-Match does."""

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        if expected is None:
            found = super().read_head(scope)
            expected = None if found is None else found.token
        return super().commit(scope, expected, head, blobs)


class _WrittenAnyway(BadAtomic):
    """Writes the head, then says that it was a conflict."""

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        answer = super().commit(scope, expected, head, blobs)
        found = super().read_head(scope)
        if answer == COMMIT_CONFLICT and found is not None:
            super().commit(scope, found.token, head, blobs)
        return answer


class _CheckThenAct(BadAtomic):
    """Compares the token, then writes."""

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        found = super().read_head(scope)
        if (None if found is None else found.token) != expected:
            return COMMIT_CONFLICT
        time.sleep(0.0005)
        for _ in range(1_000):
            found = super().read_head(scope)
            answer = super().commit(scope, None if found is None else found.token, head, blobs)
            if answer != COMMIT_CONFLICT:
                return answer
        return COMMIT_CONFLICT


class _ByContent(BadAtomic):
    """Names a head by its bytes, as an ETag does."""

    def read_head(self, scope: str) -> HeadRecord | None:
        found = super().read_head(scope)
        return None if found is None else HeadRecord(found.data, hashlib.sha256(found.data).hexdigest())

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        real = super().read_head(scope)
        shown = None if real is None else hashlib.sha256(real.data).hexdigest()
        if shown != expected:
            return COMMIT_CONFLICT
        answer = super().commit(scope, None if real is None else real.token, head, blobs)
        return answer if isinstance(answer, CommitConflict) else hashlib.sha256(head).hexdigest()


class _Restarting(BadAtomic):
    """Numbers the heads of a scope from 1, again after the head was removed."""

    def _count(self, scope: str) -> int:
        return int(self.memory.kept.get(scope, 0))

    def read_head(self, scope: str) -> HeadRecord | None:
        found = super().read_head(scope)
        return None if found is None else HeadRecord(found.data, f"v{self._count(scope)}")

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        with self.memory.lock:
            real = super().read_head(scope)
            if (None if real is None else f"v{self._count(scope)}") != expected:
                return COMMIT_CONFLICT
            answer = super().commit(scope, None if real is None else real.token, head, blobs)
            self.memory.kept[scope] = 1 if real is None else self._count(scope) + 1
            return answer if isinstance(answer, CommitConflict) else f"v{self._count(scope)}"

    def delete_head(self, scope: str, expected: str) -> bool:
        real = super().read_head(scope)
        shown = f"v{self._count(scope)}"
        return real is not None and expected == shown and super().delete_head(scope, real.token)


COMMIT_IGNORES_TOKEN: Final = Mutant(
    "commit-ignores-token", "the head is replaced whatever token is expected", wrapping(atomic=_NoToken)
)
CREATE_OVERWRITES: Final = Mutant(
    "create-overwrites", "a create replaces a head that is there", wrapping(atomic=_CreateOverwrites)
)
COMMIT_CONFLICT_BUT_WRITTEN: Final = Mutant(
    "commit-conflict-but-written", "a commit that conflicts has written its head", wrapping(atomic=_WrittenAnyway)
)
COMMIT_CHECK_THEN_ACT: Final = Mutant(
    "commit-check-then-act", "the token is compared before the write, not in it", wrapping(atomic=_CheckThenAct)
)
COMMIT_CHECK_THEN_ACT_ON_DISK: Final = Mutant(
    "commit-check-then-act-on-disk",
    "the token is compared before the write, by processes that share only the medium",
    wrapping(atomic=_CheckThenAct),
    base="file://{directory}",
)
TOKEN_BY_CONTENT: Final = Mutant(
    "token-by-content", "the token is a digest of the head, without a nonce", wrapping(atomic=_ByContent)
)
TOKEN_RESTARTS: Final = Mutant(
    "token-restarts", "tokens are numbers that start again when the head was removed", wrapping(atomic=_Restarting)
)


# --------------------------------------------------------------------------------------------------------------- blobs


class _BlobsLost(BadAtomic):
    """Acknowledges the head and forgets the last blob."""

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        kept = dict(list((blobs or {}).items())[:-1])
        return super().commit(scope, expected, head, kept)


class _BlobsAfterHead(BadAtomic):
    """Makes the head visible first, and its blobs a little later."""

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        answer = super().commit(scope, expected, head)
        if not isinstance(answer, CommitConflict):
            time.sleep(0.001)
            for name, content in (blobs or {}).items():
                self.memory.kept[scope, name] = content
        return answer

    def read_blob(self, scope: str, name: str) -> bytes | None:
        found = self.memory.kept.get((scope, name))
        return found if found is None else bytes(found)


class _EmptyDropped(BadAtomic):
    """Writes a blob where it is true."""

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        kept = {name: content for name, content in (blobs or {}).items() if content}
        return super().commit(scope, expected, head, kept)


class _Overwriting(BadAtomic):
    """Puts blobs without a condition."""

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        answer = super().commit(scope, expected, head)
        if not isinstance(answer, CommitConflict):
            self.memory.kept.update({(scope, name): content for name, content in (blobs or {}).items()})
        return answer

    def read_blob(self, scope: str, name: str) -> bytes | None:
        found = self.memory.kept.get((scope, name))
        return found if found is None else bytes(found)


class _EmptyOverwritten(_Overwriting):
    """Takes an empty blob for one that is not there yet."""

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        given = blobs or {}
        replaced = {name for name in given if self.memory.kept.get((scope, name)) == b""}
        full = {
            name: content
            for name, content in given.items()
            if name not in replaced and (content or self.memory.kept.get((scope, name)))
        }
        answer = ForwardAtomic.commit(self, scope, expected, head, full)
        if not isinstance(answer, CommitConflict):
            self.memory.kept.update({(scope, name): content for name, content in given.items()})
        return answer


class _Cut(BadAtomic):
    """Cuts blobs at 64 KiB."""

    def read_blob(self, scope: str, name: str) -> bytes | None:
        found = super().read_blob(scope, name)
        return None if found is None else found[:65_535]


class _Missed(BadAtomic):
    """Deletes only the first name."""

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        super().delete_blobs(scope, names[:1])


class _BlobsCapped(BadAtomic):
    """Takes the driver's page of 1,000 blobs for everything."""

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        return NamePage(super().list_blobs(scope, after, limit).names[:1_000], has_more=False)


BLOBS_LOST: Final = Mutant("blobs-lost", "a commit returns without its last blob", wrapping(atomic=_BlobsLost))
BLOBS_AFTER_HEAD: Final = Mutant(
    "blobs-after-head", "the head is visible before its blobs are", wrapping(atomic=_BlobsAfterHead)
)
EMPTY_BLOB_DROPPED: Final = Mutant("empty-blob-dropped", "an empty blob is not written", wrapping(atomic=_EmptyDropped))
BLOB_OVERWRITTEN: Final = Mutant(
    "blob-overwritten", "a blob of the same name is replaced", wrapping(atomic=_Overwriting)
)
EMPTY_BLOB_OVERWRITTEN: Final = Mutant(
    "empty-blob-overwritten", "an empty blob is replaced, as if it were absent", wrapping(atomic=_EmptyOverwritten)
)
BLOBS_CUT: Final = Mutant("blobs-cut", "blobs are cut at 64 KiB", wrapping(atomic=_Cut))
BLOB_DELETES_MISSED: Final = Mutant(
    "blob-deletes-missed", "a delete of many blobs stops after the first", wrapping(atomic=_Missed)
)
BLOBS_STOP_AT_1000: Final = Mutant(
    "blobs-stop-at-1000", "a listing of blobs ends with the first page", wrapping(atomic=_BlobsCapped)
)


# --------------------------------------------------------------------------------------------------- reads and listings


class _StaleHead(BadAtomic):
    """Keeps in the client the head that it has read, until it commits itself."""

    def __init__(self, inner: AtomicJournalStorage, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._seen: dict[str, HeadRecord] = {}

    def read_head(self, scope: str) -> HeadRecord | None:
        found = self._seen.get(scope) or super().read_head(scope)
        if found is not None:
            self._seen[scope] = found
        return found

    def commit(self, scope: str, expected: str | None, head: bytes, blobs: Blobs = None) -> Answer:
        self._seen.pop(scope, None)
        return super().commit(scope, expected, head, blobs)


class _Torn(BadAtomic):
    """Reads the bytes and the token of a head by two commands."""

    def read_head(self, scope: str) -> HeadRecord | None:
        first = super().read_head(scope)
        time.sleep(0.0005)
        second = super().read_head(scope)
        return second if first is None or second is None else HeadRecord(first.data, second.token)


class _Bleeding(BadAtomic):
    """Matches the prefix without its separator."""

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        if not prefix:
            return super().list_scopes(prefix, after, limit)
        start = prefix.rstrip("/")
        found = [name for name in super().list_scopes("", after, 10_000).names if name.startswith(start)]
        return NamePage(tuple(found[:limit]), has_more=len(found) > limit)


class _Unordered(BadAtomic):
    """Walks directories: 'a/b' before 'a-'."""

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        page = super().list_scopes(prefix, after, limit)
        return page if page.has_more else NamePage(tuple(sorted(page.names, key=lambda name: name.split("/"))), False)


class _EdgeLost(BadAtomic):
    """Skips a scope at each edge."""

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        page = super().list_scopes(prefix, after, limit)
        return page if after is None else NamePage(page.names[1:], page.has_more and len(page.names) > 1)


class _Capped(BadAtomic):
    """Takes the driver's page of 1,000 scopes for everything."""

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        return NamePage(super().list_scopes(prefix, after, limit).names[:1_000], has_more=False)


class _Clamped(BadAtomic):
    """Brings a limit into its range."""

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        return super().list_scopes(prefix, after, limit if type(limit) is int and 0 < limit <= 10_000 else 1_000)


class _Reopening(ForwardAtomic):
    """Opens itself again when it is used after close()."""

    def __init__(self, backend: ForwardBackend) -> None:
        super().__init__(backend.inner.open_atomic())
        self._backend = backend
        self._closed = False

    def close(self) -> None:
        self._closed = True
        super().close()

    def read_head(self, scope: str) -> HeadRecord | None:
        if not self._closed:
            return super().read_head(scope)
        other = self._backend.inner.open_atomic()
        try:
            return other.read_head(scope)
        finally:
            other.close()


class _ReopeningBackend(ForwardBackend):
    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        del require
        return _Reopening(self)


STALE_HEAD: Final = Mutant("stale-head", "a client caches heads", wrapping(atomic=_StaleHead))
TORN_HEAD: Final = Mutant("torn-head", "bytes and token are read by two commands", wrapping(atomic=_Torn))
SCOPE_PREFIX_BLEED: Final = Mutant(
    "scope-prefix-bleed", "scopes under 'd/a/' include 'd/ab'", wrapping(atomic=_Bleeding)
)
SCOPES_UNORDERED: Final = Mutant(
    "scopes-unordered", "scopes come in the order of a directory walk", wrapping(atomic=_Unordered)
)
SCOPE_EDGE_LOST: Final = Mutant("scope-edge-lost", "the first scope of a page is skipped", wrapping(atomic=_EdgeLost))
SCOPES_STOP_AT_1000: Final = Mutant(
    "scopes-stop-at-1000", "a listing of scopes ends with the first page", wrapping(atomic=_Capped)
)
SCOPE_LIMIT_CLAMPED: Final = Mutant(
    "scope-limit-clamped", "limits out of range are brought into it", wrapping(atomic=_Clamped)
)
ATOMIC_WORKS_AFTER_CLOSE: Final = Mutant(
    "atomic-works-after-close", "a closed storage opens itself again", _ReopeningBackend
)
