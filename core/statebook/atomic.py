"""AtomicJournalStorage: six calls from which a backend gets the state store and the journal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from statebook.capabilities import Capabilities
from statebook.errors import UnsupportedCapability


class HeadRecord(msgspec.Struct, frozen=True):
    """A head as it is stored.

    Attributes:
        data: The bytes that were committed.
        token: The name of that write (ATOM-2). Opaque: equal or not, nothing else.
    """

    data: bytes
    token: str


class NamePage(msgspec.Struct, frozen=True):
    """A page of names, ascending by code point.

    Attributes:
        names: The names; the last one is the `after` of the next page.
        has_more: Whether there are more behind it.
    """

    names: tuple[str, ...]
    has_more: bool


class CommitConflict(msgspec.Struct, frozen=True):
    """The closed answer of a commit whose expected token is not the current one: normal at this level (ATOM-1)."""


COMMIT_CONFLICT = CommitConflict()
"""The one value of `CommitConflict`."""


class KnownBlobs(Protocol):
    """Blobs that a storage remembers, by the digests that were verified.

    Pages do not ask the storage for the same blob again.
    """

    def get(self, sha256: str) -> bytes | None:
        """The blob of a digest, or None."""
        ...

    def keep(self, sha256: str, blob: bytes) -> None:
        """Remember a blob that was verified."""
        ...


class AtomicJournalStorage(ABC):
    """One head and immutable blobs a scope, with an atomic conditional replacement of the head.

    A scope is one thread, one state slot or one cursor. Its name is text of `[a-z0-9_/-]`, at most 640 characters, made
    by core's encoder (ID-4): safe as part of a path where every `/`-separated part is a component, and safe in any
    case-insensitive medium. Blob names are text of `[a-z0-9-]`, at most 64 characters. Heads and blobs are opaque
    bytes.

    Every call blocks, is safe from many threads, and is applied, not applied, or `OutcomeUnknown` (ERR-2).
    """

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this store declares (DUR)."""

    @property
    def requests_at_once(self) -> int:
        """How many calls on different scopes, or reads, this storage serves at once in about the time of one.

        A hint, no promise: so many threads hand in the commits of a group and read the blobs of a page. 1, as here,
        where calls wait for each other in this process.
        """
        return 1

    @property
    def commits_at_once(self) -> int:
        """The same of commits alone: more where they wait for a disk, and reads for nothing."""
        return self.requests_at_once

    @property
    def known_blobs(self) -> KnownBlobs | None:
        """The blobs that pages need not read again: for a storage to which each read is a request. None, as here."""
        return None

    @abstractmethod
    def read_head(self, scope: str) -> HeadRecord | None:
        """Read the head of a scope.

        Guarantees ATOM-5: linearizable with `commit`; no cache, no replica; wholly old or wholly new.

        Args:
            scope: The scope.

        Returns:
            The head and its token, or None where there is none.

        Raises:
            BackendUnavailable: The backend did not answer.
            StoreClosed: The store is closed.
        """

    @abstractmethod
    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        """Replace the head iff its token equals `expected`.

        Guarantees ATOM-1: at most one commit succeeds a token. ATOM-2: the new token never repeats. ATOM-3: when the
        head is visible, its blobs are readable and as durable as declared; blobs of a failed commit may stay behind.
        ATOM-4: a blob that exists with the same bytes is left, with other bytes the commit fails.

        Args:
            scope: The scope.
            expected: The token of the head to replace, or None where there must be no head.
            head: The new head.
            blobs: New blobs, written before the head.

        Returns:
            The token of the new head, or `COMMIT_CONFLICT` where the token is another one: nothing changed.

        Raises:
            JournalCorrupt: A blob of that name has other content; the head was not replaced.
            LimitExceeded: Head or blobs are too large; nothing changed.
            BackendUnavailable: Certainly not applied.
            OutcomeUnknown: Perhaps applied, or will be.
            StoreClosed: The store is closed.
        """

    @abstractmethod
    def read_blob(self, scope: str, name: str) -> bytes | None:
        """Read a blob.

        Args:
            scope: The scope.
            name: The blob's name.

        Returns:
            Its bytes, or None where there is no such blob.

        Raises:
            BackendUnavailable: The backend did not answer.
            StoreClosed: The store is closed.
        """

    @abstractmethod
    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        """List the blobs of a scope, ascending. For maintenance only (ATOM-6).

        Args:
            scope: The scope.
            after: Only names greater than this one.
            limit: 1 to 10,000.

        Returns:
            A page.

        Raises:
            ValueError: The limit is outside its range.
            BackendUnavailable: The backend did not answer.
            StoreClosed: The store is closed.
        """

    @abstractmethod
    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        """Delete blobs; absent ones are no error.

        Args:
            scope: The scope.
            names: The blobs.

        Raises:
            BackendUnavailable: Certainly nothing was deleted.
            OutcomeUnknown: Some may have been deleted; calling again is harmless.
            StoreClosed: The store is closed.
        """

    @abstractmethod
    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        """List the scopes that have a head and whose name starts with a prefix, ascending (ATOM-6).

        Args:
            prefix: The start of the names; ends with `/`, or is empty.
            after: Only names greater than this one.
            limit: 1 to 10,000.

        Returns:
            A page.

        Raises:
            ValueError: The limit is outside its range.
            BackendUnavailable: The backend did not answer.
            StoreClosed: The store is closed.
        """

    def delete_head(self, scope: str, expected: str) -> bool:
        """Remove a head iff its token equals `expected`. Optional: needed for `purge` only (`Feature.PURGE`).

        Args:
            scope: The scope.
            expected: The token of the head to remove.

        Returns:
            True where it was removed, False where the token is another one or there is no head.

        Raises:
            UnsupportedCapability: This storage does not offer it; nothing changed.
            BackendUnavailable: Certainly not applied.
            OutcomeUnknown: Perhaps applied.
            StoreClosed: The store is closed.
        """
        raise UnsupportedCapability(
            "this backend cannot remove heads, so tombstones stay",
            capability="feature=purge",
            key=scope,
            backend=self.capabilities.backend,
        )

    @abstractmethod
    def close(self) -> None:
        """Close the store; a second call is harmless, any other call afterwards is `StoreClosed` (ERR-5)."""
