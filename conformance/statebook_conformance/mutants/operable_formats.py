"""Mutants of released formats: later releases that no longer know what an earlier one has stored (FORMAT-4)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final, Literal

from statebook.atomic import AtomicJournalStorage, CommitConflict, HeadRecord
from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.errors import WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import ANY, Batch, ClaimInfo, Expect, ExportCursor, Receipt, WriterClaim
from statebook_conformance.mutants.core_copy import CoreBackend, wrapped_core
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardBackend, ForwardJournal
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.target import TargetBackend

FILES: Final = "file://{directory}"
_DIGEST: Final = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_OLD: Final = b'{"statebook":2,'
_NEW: Final = b'{"statebook":3,'


def _salted(data: bytes) -> bytes:
    """The record with its digest made in another way."""
    return _DIGEST.sub(lambda m: b'"sha256":"%b"' % hashlib.sha256(b"2" + m[1]).hexdigest().encode(), data, count=1)


class _OtherDigest(ForwardAtomic):
    """Makes the digest of each record in a new way, and judges what is stored by that."""

    def read_head(self, scope: str) -> HeadRecord | None:
        found = self.inner.read_head(scope)
        if found is None:
            return None
        line, _, body = found.data.partition(b"\n")
        true = _DIGEST.sub(b'"sha256":"%b"' % hashlib.sha256(body).hexdigest().encode(), line, count=1) + b"\n" + body
        return HeadRecord(true if _salted(true) == found.data else _salted(found.data), found.token)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        return self.inner.commit(scope, expected, _salted(head), blobs)


class _OldIsEmpty(ForwardAtomic):
    """Writes a new format, and takes a record of the old one for none."""

    def read_head(self, scope: str) -> HeadRecord | None:
        found = self.inner.read_head(scope)
        if found is None or not found.data.startswith(_NEW):
            return None
        return HeadRecord(_OLD + found.data.removeprefix(_NEW), found.token)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        before = self.inner.read_head(scope) if expected is None else None
        token = expected if before is None else before.token
        return self.inner.commit(scope, token, _NEW + head.removeprefix(_OLD), blobs)


def _over(change: Callable[[AtomicJournalStorage], AtomicJournalStorage]) -> Callable[[TargetBackend], ForwardBackend]:
    """Core's journal in which records are made and read otherwise; the storage below is as it was."""
    return lambda inner: CoreBackend(inner, lambda storage: AtomicThreadJournalStore(change(storage)))


class _ForgetsClaims(ForwardJournal):
    """Knows the claims that it gave out itself."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._given: set[str] = set()

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        claim = self.inner.claim(key, writer_id, replacing=replacing)
        self._given.add(claim.nonce)
        return claim

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        if claim.nonce not in self._given:
            raise WriterFenced("this claim is of another release", key=claim.key.name)
        return self.inner.append(claim, batch, base_seq)


class _CursorStartsAgain(ForwardJournal):
    """Keeps cursors in a new form, and does not look for those in the old one."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._known: set[tuple[ThreadKey, str]] = set()

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        cursor = self.inner.open_cursor(key, exporter)
        if (key, exporter) in self._known:
            return cursor
        self._known.add((key, exporter))
        head = self.inner.head(key)
        first = 1 if head is None else head.first_seq
        return self.inner.reset_cursor(key, exporter, first - 1, expected_version=cursor.version)


DIGEST_CHANGED: Final = Mutant(
    "digest-changed-silently",
    "a release makes digests in a new way under the old format version, and finds all older data damaged",
    _over(_OtherDigest),
    base=FILES,
)
OLD_IS_EMPTY: Final = Mutant(
    "old-format-taken-for-empty",
    "a release writes a new format, and takes data of the old one for data that is not there",
    _over(_OldIsEmpty),
    base=FILES,
)
CLAIMS_FORGOTTEN: Final = Mutant(
    "old-claims-forgotten",
    "a release does not know the claims that an earlier one gave out, and fences the writers that hold them",
    wrapped_core(_ForgetsClaims),
    base=FILES,
)
CURSOR_STARTS_AGAIN: Final = Mutant(
    "old-cursor-starts-again",
    "a release does not find the cursors of an earlier one, and begins them anew",
    wrapped_core(_CursorStartsAgain),
    base=FILES,
)
