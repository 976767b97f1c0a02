"""AtomicJournalStorage over objects: conditional writes for heads and blobs, fsspec for the rest.

A write whose reply is missing is never sent again unread: what stands there tells by its nonce whose write it is.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities, Feature
from statebook.contention import jittered_pause
from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError, StoreClosed, UnsupportedCapability
from statebook.ids import new_nonce as fresh_nonce
from statebook.model import check_page
from statebook_backends.s3.blobs import BlobMemory
from statebook_backends.s3.envelope import HeadHeader, StoredHead, Token, damaged, encode_head
from statebook_backends.s3.heads import HeadMemory, read_head
from statebook_backends.s3.names import BACKEND, Layout, is_blob_name
from statebook_backends.s3.objects import in_order
from statebook_backends.s3.writers import Found, Lost, ObjectEngine, Unsure

_TRIES_MAX: Final = 16
"""How often a write is sent that the store leaves undecided."""

_SLOW: Final = 4
"""From this pause of core's on, undecided writes wait: the store is busy with the same object."""


class EngineSource(Protocol):
    """Gives the engine of this process, and takes it back."""

    @abstractmethod
    def enter(self) -> ObjectEngine:
        """The engine."""

    @abstractmethod
    def leave(self) -> None:
        """It is not used any more."""


class _Opened:
    """What belongs to one process: connections and memory. A forked child makes its own."""

    def __init__(self, engine: ObjectEngine) -> None:
        self.pid = os.getpid()
        self.engine = engine
        self.memory = HeadMemory()
        self.blobs = BlobMemory()


class ObjectAtomicJournalStorage(AtomicJournalStorage):
    """One object for a scope's head, replaced by a conditional write (ATOM-1, ATOM-5), and one a blob."""

    def __init__(
        self,
        engines: EngineSource,
        layout: Layout,
        capabilities: Capabilities,
        *,
        ordered: bool,
        at_once: int = 1,
        new_nonce: Callable[[], str] = fresh_nonce,
        pause: Callable[[int], None] = jittered_pause,
    ) -> None:
        """Work in a namespace of a store that was probed.

        Args:
            engines: Where the engine comes from.
            layout: Where what stands.
            capabilities: What is declared; `PURGE` only where conditional removals were seen to work.
            ordered: Whether the store lists in byte order.
            at_once: How many requests it serves at once.
            new_nonce: Fresh randomness.
            pause: Waits between attempts; takes how many there were.
        """
        self._engines = engines
        self._layout = layout
        self._capabilities = capabilities
        self._ordered = ordered
        self._at_once = at_once
        self._new_nonce = new_nonce
        self._pause = pause
        self._closed = False
        self._opened: _Opened | None = _Opened(engines.enter())

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def requests_at_once(self) -> int:
        return self._at_once

    @property
    def known_blobs(self) -> BlobMemory:
        """What pages need not read again."""
        return self._open().blobs

    # ------------------------------------------------------------------------------------------------------- reading

    def read_head(self, scope: str) -> HeadRecord | None:
        path = self._layout.head(scope)
        opened = self._open()
        head = read_head(opened.engine.writer, opened.memory, path, scope)
        return None if head is None else HeadRecord(head.data, head.token.text)

    def read_blob(self, scope: str, name: str) -> bytes | None:
        found = self._open().engine.writer.read(self._layout.blob(scope, name))
        return found.data if isinstance(found, Found) else None

    # ------------------------------------------------------------------------------------------------------- writing

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        path = self._layout.head(scope)
        contents = {self._layout.blob(scope, name): content for name, content in (blobs or {}).items()}
        for record in (head, *contents.values()):
            self._capabilities.limits.check("list_bytes_max", len(record), scope)
        opened = self._open()
        basis = None if expected is None else Token.parse(expected)
        if expected is not None and basis is None:
            return COMMIT_CONFLICT
        for blob, content in contents.items():
            self._write_blob(opened, scope, blob, content)
        with opened.engine.turns.take(path) as turn:
            answer = self._write_head(opened, scope, basis, head)
            turn.lost = isinstance(answer, CommitConflict)
        return answer

    def _write_head(self, opened: _Opened, scope: str, basis: Token | None, head: bytes) -> str | CommitConflict:
        path = self._layout.head(scope)
        header, whole = encode_head(basis, self._new_nonce(), head)
        doubt: Unsure | None = None
        for attempt in range(_TRIES_MAX):
            settled: Token | CommitConflict | None
            try:
                version = opened.engine.writer.write(path, whole, None if basis is None else basis.version)
            except Unsure as error:
                doubt = error
                settled = self._settle(opened, scope, basis, header, doubt)
                if settled is None and not doubt.again:
                    raise _unknown(scope, doubt) from (doubt.__cause__ or doubt)
            else:
                if isinstance(version, Lost):
                    settled = self._settle(opened, scope, basis, header, doubt)
                else:
                    settled = Token(header.count, header.nonce, version)
                    opened.memory.keep(scope, StoredHead(header, settled, head))
            if isinstance(settled, Token):
                return settled.text
            if settled is not None:
                return settled
            self._pause(attempt + _SLOW)
        raise OutcomeUnknown(
            f"the store left the write undecided {_TRIES_MAX} times; send the call again or settle it",
            key=scope,
            backend=BACKEND,
        )

    def _settle(
        self, opened: _Opened, scope: str, basis: Token | None, ours: HeadHeader, doubt: Unsure | None
    ) -> Token | CommitConflict | None:
        """Find out by its nonce whether a write landed: an earlier attempt of it may have, sent again on its way.

        Args:
            opened: The engine.
            scope: The scope.
            basis: What the write was to replace.
            ours: Its header.
            doubt: Why an attempt's outcome is not known; None where the store has only said that its condition was
                not met.

        Returns:
            Its token, a conflict, or None where it may land later.

        Raises:
            OutcomeUnknown: It cannot be found out.
        """
        try:
            found = read_head(opened.engine.writer, opened.memory, self._layout.head(scope), scope)
        except BackendUnavailable as error:
            raise _unknown(scope, doubt or error) from (error.__cause__ or error)
        except StatebookError as error:
            if doubt is None:
                raise
            raise _unknown(scope, doubt) from error
        if found is not None and found.header.nonce == ours.nonce:
            return found.token
        if found is not None and found.header.previous == ours.nonce:
            return Token(ours.count, ours.nonce, "")
        if doubt is None:
            return COMMIT_CONFLICT
        if (None if found is None else found.header.nonce) == (None if basis is None else basis.nonce):
            return None
        if found is not None and found.header.count in (ours.count, ours.count + 1):
            return COMMIT_CONFLICT
        raise _unknown(scope, doubt) from (doubt.__cause__ or doubt)

    def _write_blob(self, opened: _Opened, scope: str, path: str, content: bytes) -> None:
        """Create a blob; where there is one, it must be the same (ATOM-3, ATOM-4).

        A blob that is not known to be there ends the commit before its head: nothing was applied, and a blob that
        lands later is a leftover that no head names.
        """
        for attempt in range(_TRIES_MAX):
            try:
                answer = opened.engine.writer.write(path, content, None)
            except Unsure as error:
                there = opened.engine.writer.read(path)
                if isinstance(there, Found) and there.data == content:
                    return
                if not error.again:
                    raise BackendUnavailable(
                        f"a blob could not be written ({error}), so the head was not; try again",
                        key=scope,
                        backend=BACKEND,
                    ) from (error.__cause__ or error)
                self._pause(attempt + _SLOW)
                continue
            if not isinstance(answer, Lost):
                return
            there = opened.engine.writer.read(path)
            if isinstance(there, Found):
                if there.data == content:
                    return
                name = path.rpartition("/")[2]
                raise damaged(scope, "blob", f"the bytes of {name}", "a blob of that name with other bytes")
        raise BackendUnavailable(
            f"the store left a blob undecided {_TRIES_MAX} times; the head was not written. Try again",
            key=scope,
            backend=BACKEND,
        )

    def delete_head(self, scope: str, expected: str) -> bool:
        path = self._layout.head(scope)
        opened = self._open()
        if Feature.PURGE not in self._capabilities.features:
            raise UnsupportedCapability(
                "this store does not honour conditions on DELETE, so tombstones stay",
                capability="feature=purge",
                key=scope,
                backend=BACKEND,
            )
        head = read_head(opened.engine.writer, opened.memory, path, scope)
        if head is None or head.token.text != expected:
            return False
        opened.memory.keep(scope, None)
        for attempt in range(_TRIES_MAX):
            try:
                return opened.engine.writer.remove(path, head.token.version)
            except Unsure as error:
                if not error.again:
                    raise _unknown(scope, error) from (error.__cause__ or error)
                self._pause(attempt + _SLOW)
        raise OutcomeUnknown("the store left the removal undecided; read again", key=scope, backend=BACKEND)

    # ------------------------------------------------------------------------------------------------------- listing

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        directory = self._layout.blobs(scope)
        return self._page(
            directory,
            None if after is None else directory + after,
            limit,
            lambda path: name if is_blob_name(name := path.removeprefix(directory)) else None,
        )

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        paths = [self._layout.blob(scope, name) for name in names]
        objects = self._open().engine.objects
        if paths:
            objects.delete(paths)

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        directory = self._layout.heads
        # Names below a prefix are greater than the prefix: where `after` is before them, all are wanted.
        start = None if after is None or after < prefix else f"{directory}{after}!head"
        return self._page(directory + prefix, start, limit, self._layout.scope)

    def _page(self, directory: str, after: str | None, limit: int, named: Callable[[str], str | None]) -> NamePage:
        """A page of what is ours in a directory; foreign objects are passed over."""
        objects = self._open().engine.objects
        names: list[str] = []
        while len(names) <= limit:
            wanted = limit + 1 - len(names)
            paths = in_order(objects, directory, after, wanted, ordered=self._ordered)
            names += [name for path in paths if (name := named(path)) is not None]
            if len(paths) < wanted:
                break
            after = paths[-1]
        return NamePage(tuple(names[:limit]), len(names) > limit)

    # ------------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if not self._closed and opened is not None and opened.pid == os.getpid():
            self._engines.leave()
        self._closed = True

    def _open(self) -> _Opened:
        opened = self._opened
        if self._closed or opened is None:
            raise StoreClosed("the store is closed", backend=BACKEND)
        if opened.pid != os.getpid():
            # A forked child: sockets and threads of the parent are not its own.
            opened = self._opened = _Opened(self._engines.enter())
        return opened


def _unknown(scope: str, doubt: Exception) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the write was perhaps applied, or will be ({doubt}); send the call again or settle it",
        key=scope,
        backend=BACKEND,
    )
