"""A small, honest AtomicJournalStorage in memory, with counters and with faults on demand."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities, Durability, Feature, Limits, Sharing
from statebook.errors import BackendUnavailable, JournalCorrupt, OutcomeUnknown
from statebook.keys import ThreadKey
from statebook.model import Batch, Event

FEATURES = frozenset({Feature.PURGE})

KEY = ThreadKey("user", "agent", "session", "thread")


class HonestStorage(AtomicJournalStorage):
    """Dictionaries under a lock.

    `content_tokens` names a write by the hash of its bytes, as an object store does. `faults` are used up by commits,
    in order: "before" is lost on the way there, "after" on the way back, "delayed" lands when `land` is called,
    "unavailable" is refused, None goes through.
    """

    def __init__(
        self,
        *,
        content_tokens: bool = False,
        features: frozenset[Feature] = FEATURES,
        limits: Limits | None = None,
        page_max: int = 10_000,
    ) -> None:
        self.heads: dict[str, tuple[bytes, str]] = {}
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.calls: Counter[str] = Counter()
        self.bytes_written = 0
        self.faults: list[str | None] = []
        self.delayed: list[tuple[str, str | None, bytes]] = []
        self.before_call: Callable[[str], None] = lambda call: None
        self.closed = 0
        self._content_tokens = content_tokens
        self._features = features
        self._limits = limits or Limits()
        self._page_max = page_max
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            backend="honest",
            durability=Durability.NONE,
            durability_setting="dictionaries",
            sharing=Sharing.PROCESS,
            features=self._features,
            limits=self._limits,
        )

    def _count(self, call: str) -> None:
        self.before_call(call)
        self.calls[call] += 1

    def token(self, scope: str) -> str | None:
        found = self.heads.get(scope)
        return None if found is None else found[1]

    def apply(self, scope: str, expected: str | None, head: bytes) -> str | None:
        """Replace the head iff its token is the expected one."""
        with self._lock:
            if self.token(scope) != expected:
                return None
            token = hashlib.md5(head).hexdigest() if self._content_tokens else f"w{next(self._numbers)}"
            self.heads[scope] = (head, token)
            self.bytes_written += len(head)
            return token

    def put(self, scope: str, name: str, blob: bytes) -> None:
        with self._lock:
            if self.blobs.setdefault((scope, name), blob) != blob:
                raise JournalCorrupt("a blob of that name has other content", what="blob", found=name, key=scope)
            self.bytes_written += len(blob)

    def land(self) -> None:
        """Let every delayed commit arrive now."""
        while self.delayed:
            self.apply(*self.delayed.pop(0))

    def read_head(self, scope: str) -> HeadRecord | None:
        self._count("read_head")
        found = self.heads.get(scope)
        return None if found is None else HeadRecord(*found)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        self._count("commit")
        fault = self.faults.pop(0) if self.faults else None
        if fault == "unavailable":
            raise BackendUnavailable("refused")
        if fault != "before":
            for name, blob in (blobs or {}).items():
                self.calls["put"] += 1
                self.put(scope, name, blob)
        if fault == "delayed":
            self.delayed.append((scope, expected, head))
        token = None if fault in ("before", "delayed") else self.apply(scope, expected, head)
        if fault is not None:
            raise OutcomeUnknown(f"lost {fault}")
        return COMMIT_CONFLICT if token is None else token

    def read_blob(self, scope: str, name: str) -> bytes | None:
        self._count("read_blob")
        return self.blobs.get((scope, name))

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        self._count("list_blobs")
        with self._lock:
            return self._page([name for place, name in self.blobs if place == scope], after, limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        self._count("delete_blobs")
        with self._lock:
            for name in names:
                self.blobs.pop((scope, name), None)

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        self._count("list_scopes")
        with self._lock:
            return self._page([scope for scope in self.heads if scope.startswith(prefix)], after, limit)

    def delete_head(self, scope: str, expected: str) -> bool:
        self._count("delete_head")
        with self._lock:
            if self.token(scope) != expected:
                return False
            del self.heads[scope]
            return True

    def close(self) -> None:
        self.closed += 1

    def _page(self, names: list[str], after: str | None, limit: int) -> NamePage:
        found = sorted(name for name in names if after is None or name > after)
        limit = min(limit, self._page_max)
        return NamePage(tuple(found[:limit]), len(found) > limit)


def event(event_id: str, payload: bytes = b'{"x":1}', kind: str = "run/start") -> Event:
    return Event(event_id=event_id, type=kind, occurred_at=1, payload=payload)


def batch(batch_id: str, count: int = 1, payload: bytes = b'{"x":1}') -> Batch:
    return Batch(batch_id, tuple(event(f"{batch_id}.{index}", payload) for index in range(count)))
