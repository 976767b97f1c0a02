"""Mutants of slots: conditions, versions, freshness, what a failed or stale save leaves behind."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final, cast

from statebook.errors import VersionConflict
from statebook.keys import SessionKey, StateKey
from statebook.model import (
    ABSENT,
    ANY,
    ExpectedVersion,
    ListValue,
    SessionPage,
    SlotKind,
    StateValue,
)
from statebook.state import AgentStateStore
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadState, Memory, wrapping

# ---------------------------------------------------------------------------------------------------------- conditions


class _NoCondition(BadState):
    """Saves whatever was expected."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        del expected
        return super().save(slot, value)

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        del expected
        return super().replace_list(slot, items)


class _WrittenAnyway(BadState):
    """Raises the conflict, and writes."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        try:
            return super().save(slot, value, expected=expected)
        except VersionConflict:
            super().save(slot, value)
            raise


class _AbsentIsAny(BadState):
    """Creates over what is there."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        return super().save(slot, value, expected=ANY if expected is ABSENT else expected)


class _TrueIsOne(BadState):
    """Takes True for version 1."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        return super().save(slot, value, expected=1 if expected is cast("object", True) else expected)


class _FalsyIsAny(BadState):
    """Tests the condition for truth."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        return super().save(slot, value, expected=expected or ANY)


class _StaleResurrects(BadState):
    """Turns an update of a missing row into an insert."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        try:
            return super().save(slot, value, expected=expected)
        except VersionConflict as error:
            if error.current_version is None and isinstance(expected, int):
                return super().save(slot, value, expected=ABSENT)
            raise


CAS_IGNORES_CONDITION: Final = Mutant(
    "cas-ignores-condition",
    "the expected version is taken and not compared: last writer wins",
    wrapping(state=_NoCondition),
    canary=True,
)
CONFLICT_BUT_WRITTEN: Final = Mutant(
    "conflict-but-written",
    "the value is written before the conflict is raised",
    wrapping(state=_WrittenAnyway),
    canary=True,
)
ABSENT_MEANS_ANY: Final = Mutant("absent-means-any", "a create replaces what is there", wrapping(state=_AbsentIsAny))
TRUE_IS_VERSION_ONE: Final = Mutant(
    "true-is-version-one", "True is an int, so it is version 1", wrapping(state=_TrueIsOne)
)
ZERO_MEANS_ANY: Final = Mutant(
    "zero-means-any", "the condition is tested for truth: 0, False and None mean anything", wrapping(state=_FalsyIsAny)
)
STALE_SAVE_RESURRECTS: Final = Mutant(
    "stale-save-resurrects",
    "a save based on a deleted version brings the session back",
    wrapping(state=_StaleResurrects),
)


# ------------------------------------------------------------------------------------------------------------ versions


class _Restarting(BadState):
    """Counts versions in the row that delete removes: shown version = real version - offset of this life."""

    def _offset(self, slot: StateKey) -> int:
        return int(self.memory.kept.get(slot, 0))

    def load(self, slot: StateKey) -> StateValue | None:
        found = super().load(slot)
        return None if found is None else StateValue(found.value, found.version - self._offset(slot))

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        with self.memory.lock:
            live = super().load(slot) is not None
            real = expected + self._offset(slot) if type(expected) is int else expected
            version = super().save(slot, value, expected=real)
            if not live:
                self.memory.kept[slot] = version - 1
            return version - self._offset(slot)

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        offset = self._offset(slot) if kind is SlotKind.DOCUMENT else 0
        return super().delete(slot, kind=kind, expected=expected + offset if type(expected) is int else expected)


class _ByValue(BadState):
    """Makes the version from the value, as an ETag is."""

    @staticmethod
    def _version(value: bytes) -> int:
        return zlib.crc32(value) + 1

    def load(self, slot: StateKey) -> StateValue | None:
        found = super().load(slot)
        return None if found is None else StateValue(found.value, self._version(found.value))

    def _real(self, slot: StateKey, expected: ExpectedVersion) -> ExpectedVersion:
        if type(expected) is not int:
            return expected
        found = super().load(slot)
        same = found is not None and self._version(found.value) == expected
        return found.version if found is not None and same else 1 << 40

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        super().save(slot, value, expected=self._real(slot, expected))
        return self._version(value)

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        real = self._real(slot, expected) if kind is SlotKind.DOCUMENT else expected
        return super().delete(slot, kind=kind, expected=real)


VERSION_REUSED_AFTER_DELETE: Final = Mutant(
    "version-reused-after-delete",
    "versions start again at 1 when the slot is created again",
    wrapping(state=_Restarting),
    canary=True,
)
VERSION_BY_VALUE: Final = Mutant(
    "version-by-value", "the version is a digest of the value: A, B, A is one version twice", wrapping(state=_ByValue)
)


# --------------------------------------------------------------------------------------------------- absence, freshness


class _KindsMixed(BadState):
    """Deletes the list with the document of the same key."""

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        deleted = super().delete(slot, kind=kind, expected=expected)
        if kind is SlotKind.DOCUMENT:
            super().delete(slot, kind=SlotKind.LIST)
        return deleted


class _AbsentIsEmpty(BadState):
    """Shows an absent list as an empty one."""

    def load_list(self, slot: StateKey) -> ListValue | None:
        return super().load_list(slot) or ListValue((), 1)


class _Caching(BadState):
    """Keeps in the client what it has loaded, until it writes itself."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._seen: dict[StateKey, StateValue | None] = {}

    def load(self, slot: StateKey) -> StateValue | None:
        if slot not in self._seen:
            self._seen[slot] = super().load(slot)
        return self._seen[slot]

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        version = super().save(slot, value, expected=expected)
        self._seen[slot] = StateValue(value, version)
        return version

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        self._seen.pop(slot, None)
        return super().delete(slot, kind=kind, expected=expected)

    def delete_session(self, session: SessionKey) -> int:
        self._seen.clear()
        return super().delete_session(session)


class _CachedListing(BadState):
    """Keeps the first page of a listing in the client, until it writes itself."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._pages: dict[str | None, SessionPage] = {}

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        if after is not None or limit != 1_000:
            return super().list_sessions(user_id, after=after, limit=limit)
        if user_id not in self._pages:
            self._pages[user_id] = super().list_sessions(user_id)
        return self._pages[user_id]

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        self._pages.clear()
        return super().save(slot, value, expected=expected)


class _Phantom(BadState):
    """Notes the session before it judges the condition."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        self.memory.kept[slot.session] = True
        return super().save(slot, value, expected=expected)

    def exists(self, session: SessionKey) -> bool:
        return super().exists(session) or session in self.memory.kept

    def delete_session(self, session: SessionKey) -> int:
        self.memory.kept.pop(session, None)
        return super().delete_session(session)


KINDS_MIXED: Final = Mutant(
    "kinds-mixed", "a document and a list of one key are deleted together", wrapping(state=_KindsMixed)
)
ABSENT_IS_EMPTY: Final = Mutant(
    "absent-is-empty", "an absent list is shown as an empty one", wrapping(state=_AbsentIsEmpty)
)
STALE_READ: Final = Mutant(
    "stale-read", "a client cache shows what was loaded before", wrapping(state=_Caching), canary=True
)
STALE_LISTING: Final = Mutant(
    "stale-listing", "a client caches the listing that it has seen", wrapping(state=_CachedListing)
)
PHANTOM_SESSION: Final = Mutant(
    "phantom-session", "a save that failed leaves its session behind", wrapping(state=_Phantom)
)
