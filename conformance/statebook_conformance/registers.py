"""Clients that work on a few slots at random and record what they did: for histories that a checker judges.

Used by threads of the rule and by workers in other processes, with one monotonic clock for all.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from statebook.codec import decode_value, encode_value
from statebook.errors import BackendUnavailable, OutcomeUnknown, VersionConflict
from statebook.keys import StateKey
from statebook.model import ABSENT, ANY, ExpectedVersion, SlotKind
from statebook_conformance.checkers.recorder import PendingOperation, Recorder

if TYPE_CHECKING:
    from statebook.state import AgentStateStore
    from statebook_conformance.checkers.history import JsonValue

_PAUSE_S: Final = 0.000_5


@contextmanager
def quick_switches() -> Iterator[None]:
    """Let threads be switched often, so that short calls overlap; the interval before comes back."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.000_02)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class RegisterClient:
    """One sequential client of a few slots: loads, saves under what it has seen, creates, deletes."""

    def __init__(self, state: AgentStateStore, recorder: Recorder, name: str, seed: str) -> None:
        """Make a client.

        Args:
            state: The handle that it works on.
            recorder: Where its operations are recorded.
            name: Its name in the history; each client has its own.
            seed: The seed of its choices.
        """
        self._state = state
        self._recorder = recorder
        self._name = name
        self._random = random.Random(seed)
        self._seen: dict[str, int | None] = {}
        self._lengths: dict[str, int] = {}
        self._count = 0

    def documents(self, slots: Sequence[StateKey], steps: int) -> None:
        """Work on documents.

        Args:
            slots: The slots.
            steps: How many operations.
        """
        for _ in range(steps):
            slot = self._random.choice(slots)
            choice = self._random.random()
            if choice < 0.35:
                self._load(slot)
            elif choice < 0.9:
                self._save(slot)
            else:
                self._delete(slot, SlotKind.DOCUMENT)
            self._pause()

    def lists(self, slots: Sequence[StateKey], steps: int) -> None:
        """Work on lists.

        Args:
            slots: The slots.
            steps: How many operations.
        """
        for _ in range(steps):
            slot = self._random.choice(slots)
            choice = self._random.random()
            if choice < 0.3:
                self._load_list(slot)
            elif choice < 0.75:
                self._append(slot)
            elif choice < 0.93:
                self._replace(slot)
            else:
                self._delete(slot, SlotKind.LIST)
            self._pause()

    # --------------------------------------------------------------------------------------------------- operations

    def _pause(self) -> None:
        """Let the others in: mostly at once, so that calls overlap, sometimes for longer, so that all take part."""
        time.sleep(0 if self._random.random() < 0.7 else self._random.random() * _PAUSE_S)

    def _value(self) -> str:
        self._count += 1
        return f"{self._name}:{self._count}"

    def _expected(self, slot: StateKey) -> ExpectedVersion:
        """Mostly what it has seen last, sometimes no condition, sometimes an older guess."""
        choice = self._random.random()
        seen = self._seen.get(slot.key)
        if choice < 0.1:
            return ANY
        if choice < 0.2 or seen is None:
            return ABSENT
        return max(1, seen - 1) if choice < 0.25 else seen

    def _begin(self, op: str, slot: StateKey, inputs: Mapping[str, JsonValue]) -> PendingOperation:
        return self._recorder.operation(self._name, op, slot.key, inputs)

    def _load(self, slot: StateKey) -> None:
        with self._begin("load", slot, {}) as pending:
            try:
                found = self._state.load(slot)
            except BackendUnavailable as error:
                pending.refused(type(error).__name__)
                return
            self._seen[slot.key] = None if found is None else found.version
            pending.ok(None if found is None else {"value": _text(found.value), "version": found.version})

    def _save(self, slot: StateKey) -> None:
        expected, value = self._expected(slot), self._value()
        with self._begin("save", slot, {"value": value, "expected": _word(expected)}) as pending:
            try:
                version = self._state.save(slot, encode_value(value), expected=expected)
            except VersionConflict as conflict:
                self._conflict(slot, pending, conflict)
            except (BackendUnavailable, OutcomeUnknown) as error:
                _failed(pending, error)
            else:
                self._seen[slot.key] = version
                pending.ok({"version": version})

    def _delete(self, slot: StateKey, kind: SlotKind) -> None:
        expected = self._expected(slot)
        if expected is ABSENT:
            expected = ANY
        inputs: dict[str, JsonValue] = {} if expected is ANY else {"expected": _word(expected)}
        with self._begin("delete", slot, inputs) as pending:
            try:
                existed = self._state.delete(slot, kind=kind, expected=expected)
            except VersionConflict as conflict:
                self._conflict(slot, pending, conflict)
            except (BackendUnavailable, OutcomeUnknown) as error:
                _failed(pending, error)
            else:
                self._seen[slot.key] = None
                self._lengths[slot.key] = 0
                pending.ok({"existed": existed})

    def _load_list(self, slot: StateKey) -> None:
        with self._begin("load_list", slot, {}) as pending:
            try:
                found = self._state.load_list(slot)
            except BackendUnavailable as error:
                pending.refused(type(error).__name__)
                return
            self._seen[slot.key] = None if found is None else found.version
            self._lengths[slot.key] = 0 if found is None else len(found.items)
            items = [] if found is None else [_text(item) for item in found.items]
            pending.ok(None if found is None else {"items": items, "version": found.version})

    def _append(self, slot: StateKey) -> None:
        length, value = self._lengths.get(slot.key, 0), self._value()
        with self._begin("append_list", slot, {"items": [value], "expected_length": length}) as pending:
            try:
                version = self._state.append_list(slot, (encode_value(value),), expected_length=length)
            except VersionConflict as conflict:
                self._conflict(slot, pending, conflict)
            except (BackendUnavailable, OutcomeUnknown) as error:
                _failed(pending, error)
            else:
                self._seen[slot.key] = version
                self._lengths[slot.key] = length + 1
                pending.ok({"version": version})

    def _replace(self, slot: StateKey) -> None:
        expected = self._expected(slot)
        values: list[JsonValue] = [self._value() for _ in range(self._random.randrange(3))]
        with self._begin("replace_list", slot, {"items": values, "expected": _word(expected)}) as pending:
            try:
                items = tuple(encode_value(value) for value in values)
                version = self._state.replace_list(slot, items, expected=expected)
            except VersionConflict as conflict:
                self._conflict(slot, pending, conflict)
            except (BackendUnavailable, OutcomeUnknown) as error:
                _failed(pending, error)
            else:
                self._seen[slot.key] = version
                self._lengths[slot.key] = len(values)
                pending.ok({"version": version})

    def _conflict(self, slot: StateKey, pending: PendingOperation, conflict: VersionConflict) -> None:
        details: dict[str, JsonValue] = {"current": conflict.current_version}
        if conflict.current_length is not None:
            details["length"] = conflict.current_length
            self._lengths[slot.key] = conflict.current_length
        self._seen[slot.key] = conflict.current_version
        pending.refused("VersionConflict", details)


def _failed(pending: PendingOperation, error: BackendUnavailable | OutcomeUnknown) -> None:
    if isinstance(error, OutcomeUnknown):
        pending.unknown(type(error).__name__)
    else:
        pending.refused(type(error).__name__)


def _word(expected: ExpectedVersion) -> str | int:
    if expected is ANY:
        return "any"
    return expected if isinstance(expected, int) else "absent"


def _text(value: bytes) -> JsonValue:
    """A value as it stands in a history; a document that nobody wrote stays what it is."""
    return str(decode_value(value))
