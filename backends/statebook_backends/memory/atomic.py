"""AtomicJournalStorage in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities
from statebook.errors import JournalCorrupt
from statebook.ids import new_nonce
from statebook.model import check_page
from statebook_backends.memory.options import MemoryOptions
from statebook_backends.memory.registry import SHARED
from statebook_backends.memory.store import CAPABILITIES, MemoryData, closed

_LIMITS: Final = CAPABILITIES.limits


class MemoryAtomicJournalStorage(AtomicJournalStorage):
    """Heads and blobs in dictionaries; the whole commit under the lock (ATOM-1, ATOM-5)."""

    def __init__(self, options: MemoryOptions, *, new_nonce: Callable[[], str] = new_nonce) -> None:
        """Open the storage.

        Args:
            options: Name and namespace.
            new_nonce: Where tokens come from.
        """
        self._options = options
        self._new_nonce = new_nonce
        self._data: MemoryData | None = SHARED.enter(options.name, options.namespace)

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def read_head(self, scope: str) -> HeadRecord | None:
        data = self._open()
        with data.lock:
            return data.heads.get(scope)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        data = self._open()
        new = {} if blobs is None else dict(blobs)
        for record in (head, *new.values()):
            _LIMITS.check("list_bytes_max", len(record), scope)
        with data.lock:
            current = data.heads.get(scope)
            if (None if current is None else current.token) != expected:
                return COMMIT_CONFLICT
            held = data.blobs.get(scope, {})
            for name, content in new.items():
                if held.get(name, content) != content:
                    raise JournalCorrupt(
                        f"blob {name!r} is there with other content; blobs are never replaced",
                        what="blob",
                        key=scope,
                        backend=CAPABILITIES.backend,
                    )
            if new:
                data.blobs[scope] = held | new
            token = self._new_nonce()
            data.heads[scope] = HeadRecord(bytes(head), token)
            data.scopes.add(scope, scope)
            return token

    def read_blob(self, scope: str, name: str) -> bytes | None:
        data = self._open()
        with data.lock:
            return data.blobs.get(scope, {}).get(name)

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        data = self._open()
        with data.lock:
            names = sorted(name for name in data.blobs.get(scope, {}) if after is None or name > after)
        return NamePage(tuple(names[:limit]), len(names) > limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        data = self._open()
        with data.lock:
            held = data.blobs.get(scope, {})
            for name in names:
                held.pop(name, None)
            if not held:
                data.blobs.pop(scope, None)

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        data = self._open()
        with data.lock:
            names, has_more = data.scopes.page(prefix, after, limit)
        return NamePage(names, has_more)

    def delete_head(self, scope: str, expected: str) -> bool:
        data = self._open()
        with data.lock:
            current = data.heads.get(scope)
            if current is None or current.token != expected:
                return False
            del data.heads[scope]
            data.scopes.discard(scope)
            return True

    def close(self) -> None:
        data, self._data = self._data, None
        if data is not None:
            SHARED.leave(self._options.name, self._options.namespace)

    def _open(self) -> MemoryData:
        data = self._data
        if data is None:
            raise closed()
        return data
