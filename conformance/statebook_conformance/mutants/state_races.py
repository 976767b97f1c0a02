"""Mutants of races: conditions compared before the write, torn reads, conflicts that are none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Lock
from typing import Final

from statebook.errors import VersionConflict
from statebook.keys import SessionKey, StateKey
from statebook.model import ABSENT, ANY, ExpectedVersion, KeyPage, ListValue, SlotKind, StateValue
from statebook.state import AgentStateStore
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadState, Memory, wrapping

_GAP_S: Final = 0.000_5


def _conflict(slot: StateKey, version: int | None, length: int | None = None) -> VersionConflict:
    return VersionConflict("conflict", current_version=version, current_length=length, key=slot.name)


class _CheckThenAct(BadState):
    """Compares the version, then writes."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        found = super().load(slot)
        version = None if found is None else found.version
        if (isinstance(expected, int) and version != expected) or (expected is ABSENT and found is not None):
            raise _conflict(slot, version)
        time.sleep(_GAP_S)
        return super().save(slot, value)


class _CreateCheckThenAct(BadState):
    """Looks whether the slot is there, then writes."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        if expected is not ABSENT:
            return super().save(slot, value, expected=expected)
        found = super().load(slot)
        if found is not None:
            raise _conflict(slot, found.version)
        time.sleep(_GAP_S)
        return super().save(slot, value)


class _AppendCheckThenAct(BadState):
    """Reads the list, extends it and writes it back."""

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        found = super().load_list(slot)
        held = () if found is None else found.items
        if len(held) != expected_length:
            raise _conflict(slot, None if found is None else found.version, len(held))
        time.sleep(_GAP_S)
        return super().replace_list(slot, (*held, *items))


class _StaleRace(BadState):
    """Sees that its version is there, and writes it whether or not it was deleted since."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        if not isinstance(expected, int):
            return super().save(slot, value, expected=expected)
        found = super().load(slot)
        if found is None or found.version != expected:
            raise _conflict(slot, None if found is None else found.version)
        time.sleep(_GAP_S)
        try:
            return super().save(slot, value, expected=expected)
        except VersionConflict:
            return super().save(slot, value)


class _Spurious(BadState):
    """Reports a conflict now and then where there was none."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._lock = Lock()
        self._count = 0

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        with self._lock:
            self._count += 1
            spurious = self._count % 9 == 0
        if spurious and isinstance(expected, int):
            raise _conflict(slot, expected)
        return super().save(slot, value, expected=expected)


class _OwnSuccess(BadState):
    """Sends a save again whose reply was late, and reports a conflict with itself."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._lock = Lock()
        self._count = 0

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        version = super().save(slot, value, expected=expected)
        with self._lock:
            self._count += 1
            twice = self._count % 9 == 0
        return super().save(slot, value, expected=expected) if twice else version


class _LostWrite(BadState):
    """Acknowledges a save now and then, and does not do it."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._lock = Lock()
        self._count = 0

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        with self._lock:
            self._count += 1
            lost = self._count % 11 == 0
        if lost and isinstance(expected, int):
            return expected + 1
        return super().save(slot, value, expected=expected)


class _TornVersion(BadState):
    """Reads the value and its version by two commands."""

    def load(self, slot: StateKey) -> StateValue | None:
        first = super().load(slot)
        time.sleep(_GAP_S)
        second = super().load(slot)
        return second if first is None or second is None else StateValue(first.value, second.version)


class _TornValue(BadState):
    """Reads the two halves of a value by two commands."""

    def load(self, slot: StateKey) -> StateValue | None:
        first = super().load(slot)
        time.sleep(_GAP_S)
        second = super().load(slot)
        if first is None or second is None:
            return second
        half = len(second.value) // 2
        return StateValue(first.value[:half] + second.value[half:], second.version)


class _TornList(BadState):
    """Reads the items of a list in two halves."""

    def load_list(self, slot: StateKey) -> ListValue | None:
        first = super().load_list(slot)
        time.sleep(_GAP_S)
        second = super().load_list(slot)
        if first is None or second is None:
            return second
        half = len(second.items) // 2
        return ListValue(first.items[:half] + second.items[half:], second.version)


class _ListingLocks(BadState):
    """Holds a lock from a page that is not the last until the listing is read to its end."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        memory.kept.setdefault("lock", Lock())

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        lock = self.memory.kept["lock"]
        if after is None:
            lock.acquire()
        page = super().list_keys(session, kind=kind, after=after, limit=limit)
        if not page.has_more:
            lock.release()
        return page

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        with self.memory.kept["lock"]:
            return super().save(slot, value, expected=expected)


CAS_CHECK_THEN_ACT: Final = Mutant(
    "cas-check-then-act", "the version is compared before the write, not in it", wrapping(state=_CheckThenAct)
)
CAS_CHECK_THEN_ACT_ON_DISK: Final = Mutant(
    "cas-check-then-act-on-disk",
    "the version is compared before the write, by processes that share only the medium",
    wrapping(state=_CheckThenAct),
    base="sqlite:///{directory}/mutant.db",
)
CREATE_CHECK_THEN_ACT: Final = Mutant(
    "create-check-then-act", "absence is looked for before the insert", wrapping(state=_CreateCheckThenAct)
)
APPEND_CHECK_THEN_ACT: Final = Mutant(
    "append-check-then-act", "a list is read, extended and written back", wrapping(state=_AppendCheckThenAct)
)
STALE_SAVE_RACE: Final = Mutant(
    "stale-save-race", "a save that was overtaken by a delete brings the slot back", wrapping(state=_StaleRace)
)
SPURIOUS_CONFLICT: Final = Mutant(
    "spurious-conflict", "a conflict is reported where the version was the expected one", wrapping(state=_Spurious)
)
OWN_SUCCESS_IS_CONFLICT: Final = Mutant(
    "own-success-is-conflict",
    "the driver sends a save again and turns its own success into a conflict",
    wrapping(state=_OwnSuccess),
)
LOST_WRITE: Final = Mutant("lost-write", "a save is acknowledged and not done", wrapping(state=_LostWrite))
TORN_VALUE_VERSION: Final = Mutant(
    "torn-value-version", "value and version are read by two commands", wrapping(state=_TornVersion)
)
TORN_VALUE: Final = Mutant("torn-value", "a value is read while it is written", wrapping(state=_TornValue))
TORN_LIST: Final = Mutant("torn-list", "a list is read while it is replaced", wrapping(state=_TornList))
LISTING_BLOCKS_WRITERS: Final = Mutant(
    "listing-blocks-writers", "a listing holds a lock between its pages", wrapping(state=_ListingLocks)
)
