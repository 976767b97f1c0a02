"""A state store in dictionaries: what the real one must answer to the same calls of one caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from statebook.errors import VersionConflict
from statebook.keys import SessionKey, StateKey
from statebook.model import ABSENT, ANY, ExpectedVersion, ListValue, SlotKind, StateValue
from statebook_conformance.context import RuleFailure

if TYPE_CHECKING:
    from statebook.state import AgentStateStore


class StateModel:
    """What a state store must answer: slots in dictionaries, versions that only grow.

    Versions are the store's own: the model checks that each is greater than every one before, and learns it.

    Attributes:
        steps: What was done, in words.
    """

    def __init__(self, state: AgentStateStore, own: str) -> None:
        """Start with no session of one's own.

        Args:
            state: The store.
            own: How the session ids start that this model knows of; others are of earlier programs.
        """
        self._state = state
        self._own = own
        self.steps: list[str] = []
        self._live: dict[tuple[SlotKind, StateKey], tuple[tuple[bytes, ...], int]] = {}
        self._issued: dict[tuple[SlotKind, StateKey], list[int]] = {}

    def expected(self, kind: SlotKind, slot: StateKey, choice: int) -> ExpectedVersion:
        """A condition: none, absence, the live version, or an older or never issued one."""
        versions = self._issued.get((kind, slot), [])
        if choice < 3:
            return ANY
        if choice < 5:
            return ABSENT
        if choice < 9 and versions:
            return versions[-1]
        return versions[choice % len(versions)] if versions else 1_000_000 + choice

    def put(self, kind: SlotKind, slot: StateKey, items: tuple[bytes, ...], expected: ExpectedVersion) -> None:
        """Save a document, or replace a list."""
        if kind is SlotKind.DOCUMENT:
            self._write(kind, slot, items, expected, lambda: self._state.save(slot, items[0], expected=expected))
        else:
            self._write(kind, slot, items, expected, lambda: self._state.replace_list(slot, items, expected=expected))

    def append(self, slot: StateKey, items: tuple[bytes, ...], length: int) -> None:
        """Append to a list, expecting a length."""
        held = self._live.get((SlotKind.LIST, slot), ((), 0))[0]
        good = len(held) == length
        self._apply(
            SlotKind.LIST,
            slot,
            good,
            (*held, *items),
            lambda: self._state.append_list(slot, items, expected_length=length),
            f"append_list({slot.name}, {items}, expected_length={length})",
        )

    def delete(self, kind: SlotKind, slot: StateKey, expected: ExpectedVersion) -> None:
        """Delete a slot."""
        live = self._live.get((kind, slot))
        what = f"delete({slot.name}, {kind.value}, expected={_shown(expected)})"
        self.steps.append(what)
        good = expected is ANY or (live is not None and live[1] == expected)
        try:
            answer = self._state.delete(slot, kind=kind, expected=expected)
        except VersionConflict as conflict:
            self._conflicts(good, live, conflict, what)
            return
        self._is(answer, live is not None, what)
        if not good:
            _fail(f"{what} did not conflict")
        self._live.pop((kind, slot), None)
        self._glance(kind, slot)

    def delete_session(self, session: SessionKey) -> None:
        """Delete a session."""
        self.steps.append(f"delete_session({session.name})")
        gone = [entry for entry in self._live if entry[1].session == session]
        self._is(self._state.delete_session(session), len(gone), f"delete_session({session.name})")
        for entry in gone:
            del self._live[entry]

    def check(self, slot: StateKey) -> None:
        """Compare a slot, its session and its user."""
        self.steps.append(f"look at {slot.name}")
        document, items = self._live.get((SlotKind.DOCUMENT, slot)), self._live.get((SlotKind.LIST, slot))
        found, whole = self._state.load(slot), self._state.load_list(slot)
        self._is(found, None if document is None else StateValue(document[0][0], document[1]), f"load({slot.name})")
        self._is(whole, None if items is None else ListValue(*items), f"load_list({slot.name})")
        session = slot.session
        for kind in SlotKind:
            keys = [key for held, key in self._live if held is kind and key.session == session]
            shown = self._state.list_keys(session, kind=kind).keys
            expected = tuple(sorted(keys, key=lambda key: key.name))
            self._is(shown, expected, f"list_keys({session.name}, {kind.value})")
        sessions = {key.session for _, key in self._live}
        self._is(self._state.exists(session), session in sessions, f"exists({session.name})")
        mine = sorted((key for key in sessions if key.user_id == slot.user_id), key=lambda key: key.name)
        listed = self._state.list_sessions(slot.user_id, limit=10_000).sessions
        own = tuple(key for key in listed if key.session_id.startswith(self._own))
        self._is(own, tuple(mine), f"list_sessions({slot.user_id!r})")

    def clean(self) -> None:
        """Delete what this program has left."""
        for session in {key.session for _, key in self._live}:
            self._state.delete_session(session)

    # ------------------------------------------------------------------------------------------------------ judging

    def _write(
        self,
        kind: SlotKind,
        slot: StateKey,
        items: tuple[bytes, ...],
        expected: ExpectedVersion,
        call: Callable[[], int],
    ) -> None:
        live = self._live.get((kind, slot))
        version = None if live is None else live[1]
        good = expected is ANY or (expected is ABSENT and version is None) or expected == version
        self._apply(
            kind, slot, good, items, call, f"save({slot.name}, {kind.value}, {items}, expected={_shown(expected)})"
        )

    def _apply(
        self,
        kind: SlotKind,
        slot: StateKey,
        good: object,
        items: tuple[bytes, ...],
        call: Callable[[], int],
        what: str,
    ) -> None:
        self.steps.append(what)
        live = self._live.get((kind, slot))
        try:
            version = call()
        except VersionConflict as conflict:
            self._conflicts(good, live, conflict, what)
            self._glance(kind, slot)
            return
        if not good:
            _fail(f"{what} did not conflict")
        issued = self._issued.setdefault((kind, slot), [])
        if issued and version <= issued[-1]:
            _fail(f"{what} gave version {version} after {issued[-1]}")
        issued.append(version)
        self._live[kind, slot] = (items, version)
        self._glance(kind, slot)

    def _glance(self, kind: SlotKind, slot: StateKey) -> None:
        """Compare what was just touched."""
        live = self._live.get((kind, slot))
        if kind is SlotKind.DOCUMENT:
            document = None if live is None else StateValue(live[0][0], live[1])
            self._is(self._state.load(slot), document, f"load({slot.name})")
        else:
            self._is(self._state.load_list(slot), None if live is None else ListValue(*live), f"load_list({slot.name})")
        there = any(key.session == slot.session for _, key in self._live)
        self._is(self._state.exists(slot.session), there, f"exists({slot.session.name})")

    def _conflicts(
        self, good: object, live: tuple[tuple[bytes, ...], int] | None, conflict: VersionConflict, what: str
    ) -> None:
        if good:
            _fail(f"{what} conflicts, though the slot is as expected")
        self._is(conflict.current_version, None if live is None else live[1], f"current version of {what}")

    def _is(self, found: object, expected: object, what: str) -> None:
        if found != expected or type(found) is not type(expected):
            _fail(f"{what} gave {found!r:.200}, the model says {expected!r:.200}")


def _fail(fact: str) -> None:
    raise RuleFailure(fact)


def _shown(expected: ExpectedVersion) -> str:
    return str(expected) if isinstance(expected, int) else expected.name
