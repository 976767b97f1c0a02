"""The state store over AtomicJournalStorage: what a backend gets that supplies only the atomic primitive.

A slot is one scope with one record: `atomic_slots` has its form and the commit loop, `atomic_sessions` the listings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from statebook.atomic import AtomicJournalStorage
from statebook.atomic_sessions import SlotListing
from statebook.atomic_slots import SlotRecords, SlotWrite, StoredSlot, list_items, slot_root, with_items
from statebook.capabilities import Capabilities
from statebook.codec import check_bytes
from statebook.collector import built_before, delete_all, listed_blobs
from statebook.contention import PATIENCE_S, Contention, jittered_pause
from statebook.errors import BackendUnavailable, StatebookError, StateCorrupt, StoreClosed, VersionConflict
from statebook.ids import new_nonce as fresh_nonce
from statebook.index_tree import SHAPE, BlobMissing, Shape, lost
from statebook.keys import SessionKey, StateKey, check_id
from statebook.model import (
    ABSENT,
    ANY,
    ExpectedVersion,
    KeyPage,
    ListValue,
    SessionPage,
    SlotKind,
    StateValue,
    check_page,
)
from statebook.plan import Done
from statebook.state import AgentStateStore


class _Replaced(msgspec.Struct, frozen=True):
    """A record, the one that has taken its place, and the blobs that this one brought."""

    record: StoredSlot | None
    by: StoredSlot
    written: frozenset[str]


class AtomicAgentStateStore(AgentStateStore):
    """Agent state over an atomic storage. The store owns the storage: closing the one closes the other."""

    def __init__(
        self,
        storage: AtomicJournalStorage,
        *,
        new_nonce: Callable[[], str] = fresh_nonce,
        pause: Callable[[int], None] = jittered_pause,
        patience_s: float = PATIENCE_S,
        shape: Shape = SHAPE,
    ) -> None:
        """Keep slots in a storage.

        Args:
            storage: The storage; closed with this store.
            new_nonce: Fresh randomness, at least 16 characters of `[0-9a-f]`.
            pause: Waits between lost attempts; takes how many have been lost.
            patience_s: How long a call tries again, in seconds, before it gives up as `BackendUnavailable`.
            shape: The bounds of a list's record. Lists of other bounds are read all the same.
        """
        self._storage = storage
        self._new_nonce = new_nonce
        self._contention = Contention(patience_s=patience_s, pause=pause)
        self._shape = shape
        self._closed = False
        self._capabilities = replace(storage.capabilities, features=frozenset())
        self._records = SlotRecords(storage, self._contention)
        self._listing = SlotListing(storage, self._records)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    # ----------------------------------------------------------------------------------------------------- documents

    def load(self, slot: StateKey) -> StateValue | None:
        self._check_open()
        record, _ = self._records.read(SlotKind.DOCUMENT, slot)
        return None if record is None or record.deleted else StateValue(record.body, record.version)

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        check_bytes(value, "a value")
        self._capabilities.limits.check("value_bytes_max", len(value), slot.name)
        self._check_open()

        def judge(current: StoredSlot | None) -> SlotWrite[int]:
            self._require(slot, SlotKind.DOCUMENT, current, expected)
            record = self._next(slot, current, body=value)
            return SlotWrite(record, record.version)

        return self._records.move(SlotKind.DOCUMENT, slot, judge)

    # --------------------------------------------------------------------------------------------------------- lists

    def load_list(self, slot: StateKey) -> ListValue | None:
        self._check_open()
        missing: BlobMissing | None = None
        for _ in self._contention.attempts():
            record, _ = self._records.read(SlotKind.LIST, slot)
            if record is None or record.deleted:
                return None
            try:
                return ListValue(list_items(self._storage, record), record.version)
            except BlobMissing as error:
                # Taken away by a replacement beside us, or lost: the newer record tells (LIFE-4).
                if missing is not None and missing.reference.name == error.reference.name:
                    raise lost(error, StateCorrupt, slot.name) from error
                missing = error
        raise BackendUnavailable("the list is replaced faster than it can be read", key=slot.name)

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        if type(expected_length) is not int or expected_length < 0:
            raise ValueError(f"expected_length must be an integer of at least 0, not {expected_length!r}")
        size = self._check_items(slot, items)
        self._check_open()

        def judge(current: StoredSlot | None) -> SlotWrite[int]:
            live = _live(current)
            if (live.length if live else 0) != expected_length:
                raise self._conflict(slot, SlotKind.LIST, live, f"length {expected_length}")
            had = live.bytes if live else 0
            self._capabilities.limits.check("list_bytes_max", had + size, slot.name)
            record = self._next(slot, current, size=had + size)
            if live:
                record = replace(record, body=live.body, length=live.length, levels=live.levels)
            record, blobs = with_items(record, items, self._new_nonce, self._shape)
            return SlotWrite(record, record.version, blobs)

        return self._records.move(SlotKind.LIST, slot, judge)

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        size = self._check_items(slot, items)
        self._capabilities.limits.check("list_bytes_max", size, slot.name)
        self._check_open()

        def judge(current: StoredSlot | None) -> SlotWrite[_Replaced]:
            self._require(slot, SlotKind.LIST, current, expected)
            record = self._next(slot, current, size=size)
            record, blobs = with_items(record, items, self._new_nonce, self._shape)
            return SlotWrite(record, _Replaced(current, record, frozenset(blobs)), blobs)

        replaced = self._records.move(SlotKind.LIST, slot, judge)
        self._sweep(replaced)
        return replaced.by.version

    # ------------------------------------------------------------------------------------------------------ deleting

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        if expected is ABSENT:
            raise ValueError("expected must be ANY or a positive version: an absent slot cannot be deleted")
        _check_expected(expected)
        self._check_open()

        def judge(current: StoredSlot | None) -> SlotWrite[_Replaced | None] | Done[_Replaced | None]:
            self._require(slot, kind, current, expected)
            live = _live(current)
            if live is None:
                return Done(None)
            record = replace(self._next(slot, live), version=live.version, deleted=True)
            return SlotWrite(record, _Replaced(live, record, frozenset()))

        replaced = self._records.move(kind, slot, judge)
        if replaced is not None and kind is SlotKind.LIST:
            self._sweep(replaced)
        return replaced is not None

    def delete_session(self, session: SessionKey) -> int:
        self._check_open()
        return sum(
            self.delete(record.key, kind=kind) for kind in SlotKind for record in self._listing.live(kind, session.name)
        )

    # ------------------------------------------------------------------------------------------------------- listing

    def exists(self, session: SessionKey) -> bool:
        self._check_open()
        return self._listing.any_live(session.name) is not None

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        check_page(limit)
        if after is not None and after.session != session:
            raise ValueError("after must be a slot of the session that is listed")
        self._check_open()
        found: list[StateKey] = []
        for record in self._listing.live(kind, session.name, after):
            found.append(record.key)
            if len(found) > limit:
                break
        return KeyPage(tuple(found[:limit]), len(found) > limit)

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        if user_id is not None:
            check_id(user_id, "user_id")
        check_page(limit)
        if after is not None and after.user_id != user_id:
            raise ValueError("after must be a session of the user whose sessions are listed")
        self._check_open()
        found: list[SessionKey] = []
        for session in self._listing.sessions(user_id, after):
            found.append(session)
            if len(found) > limit:
                break
        return SessionPage(tuple(found[:limit]), len(found) > limit)

    def close(self) -> None:
        self._closed = True
        self._storage.close()

    # ------------------------------------------------------------------------------------------------------- inside

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", backend=self._capabilities.backend)

    def _check_items(self, slot: StateKey, items: Sequence[bytes]) -> int:
        size = 0
        for item in items:
            check_bytes(item, "an item")
            self._capabilities.limits.check("value_bytes_max", len(item), slot.name)
            size += len(item)
        return size

    def _require(self, slot: StateKey, kind: SlotKind, current: StoredSlot | None, expected: ExpectedVersion) -> None:
        """Raise the conflict where a slot is not as expected (STATE-1)."""
        live = _live(current)
        if expected is ANY or (live.version if live else None) == (None if expected is ABSENT else expected):
            return
        wanted = "absence" if expected is ABSENT else f"version {expected}"
        raise self._conflict(slot, kind, live, wanted)

    def _conflict(self, slot: StateKey, kind: SlotKind, live: StoredSlot | None, wanted: str) -> VersionConflict:
        found = "is absent" if live is None else f"has version {live.version}"
        length = (live.length if live else 0) if kind is SlotKind.LIST else None
        items = f" and {length} items" if live is not None and length is not None else ""
        return VersionConflict(
            f"the {kind.value} {found}{items}, but {wanted} was expected; load it and decide again",
            current_version=None if live is None else live.version,
            current_length=length,
            key=slot.name,
            backend=self._capabilities.backend,
        )

    def _next(self, slot: StateKey, current: StoredSlot | None, *, body: bytes = b"", size: int = 0) -> StoredSlot:
        """An empty record that follows another one."""
        version, generation = (current.version, current.generation) if current else (0, 0)
        return StoredSlot(slot, version + 1, generation + 1, self._new_nonce(), body=body, bytes=size)

    def _sweep(self, replaced: _Replaced) -> None:
        """Delete what a replaced or deleted list has left behind: its segments, and those of commits that failed.

        The commit of this generation is the barrier: nothing that was built on an older record can be committed any
        more (LIFE-3). What cannot be deleted now stays for the next replacement; the list itself has been committed.
        """
        if replaced.record is None or not replaced.record.levels:
            return
        scope = slot_root(SlotKind.LIST) + replaced.by.key.name
        with suppress(StatebookError):
            doomed = built_before(list(listed_blobs(self._storage, scope)), replaced.by.generation)
            delete_all(self._storage, scope, [name for name in doomed if name not in replaced.written])


def _live(current: StoredSlot | None) -> StoredSlot | None:
    return None if current is None or current.deleted else current


def _check_expected(expected: ExpectedVersion) -> None:
    if expected is not ANY and expected is not ABSENT and (type(expected) is not int or expected < 1):
        raise ValueError(f"expected must be ANY, ABSENT or a positive version, not {expected!r}")
