"""Sequential objects for the linearizability search: a slot with store-issued versions, holding a document or a list.

A model is made from all the operations of one key. It needs them to bound what an unknown write may have done: such a
write got a version that nobody was told, so only a version that somebody observed later, or one that nobody ever
observes, comes into question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from statebook_conformance.checkers.cas import CasCall, read_calls, read_list_calls
from statebook_conformance.checkers.history import Operation

_ABSENT = 0
_HIDDEN = -(2**128)  # no answer can show it: a store that issues such a version is refused by the floor


class SlotState(NamedTuple):
    """A slot: the highest version issued so far, the live version (or absent, or hidden), and the content."""

    floor: int
    version: int
    content: tuple[str, ...]


class VersionedSlot:
    """A slot with compare-and-set, versions growing over deletes (STATE-1 to STATE-4, STATE-7).

    Every answer must be the one that the state at that moment gives: a conflict carries the version that breaks the
    condition, a load value and version of one write, a delete whether there was anything.
    """

    def __init__(self, calls: tuple[CasCall, ...]) -> None:
        """Take the calls on one slot; see `document` and `list_of_items`.

        Args:
            calls: All calls of the key.
        """
        self._calls = {call.index: call for call in calls}
        issued = {call.version for call in calls if call.version is not None}
        named = {call.observed for call in calls}
        named.update(call.expected for call in calls if call.unknown and isinstance(call.expected, int))
        self._orphans = tuple(sorted(version for version in named - issued if version is not None and version > 0))
        self._seen: dict[int, set[tuple[str, ...]]] = {}
        for call in calls:
            if call.seen_version is not None:
                self._seen.setdefault(call.seen_version, set()).add(call.seen_content)
        # A write whose version nobody ever sees matters only to what succeeds without naming a version.
        self._hidden_matter = any(call.existed or call.kind == "append" for call in calls)

    def relevant(self, operation: Operation) -> bool:
        """Tell whether the operation can have had an effect or says anything about the slot."""
        return operation.index in self._calls

    def initial(self) -> SlotState:
        """Give the slot before its first write: absent, no version issued."""
        return SlotState(0, _ABSENT, ())

    def step(self, state: SlotState, operation: Operation) -> Iterable[SlotState]:
        """Give the states that may follow the operation, none if its answer is impossible here."""
        call = self._calls[operation.index]
        if call.kind == "load":
            return self._load(state, call)
        if call.conflict:
            return () if self._accepts(state, call) else self._conflict(state, call)
        if not self._accepts(state, call):
            return ()
        if call.kind == "delete":
            return self._delete(state, call)
        return self._write(state, call)

    def _accepts(self, state: SlotState, call: CasCall) -> bool:
        if call.expected_length is not None:
            return call.expected_length == len(state.content)
        return call.accepts(None if state.version == _ABSENT else state.version)

    def _conflict(self, state: SlotState, call: CasCall) -> Iterable[SlotState]:
        current = None if state.version == _ABSENT else state.version
        length_agrees = call.current_length is None or call.current_length == len(state.content)
        return (state,) if current == call.current and length_agrees else ()

    def _load(self, state: SlotState, call: CasCall) -> Iterable[SlotState]:
        if call.absent:
            return (state,) if state.version == _ABSENT else ()
        return (state,) if (state.version, state.content) == (call.seen_version, call.seen_content) else ()

    def _delete(self, state: SlotState, call: CasCall) -> Iterable[SlotState]:
        live = state.version != _ABSENT
        if call.existed is not None and call.existed is not live:
            return ()
        return (SlotState(state.floor, _ABSENT, ()),)

    def _write(self, state: SlotState, call: CasCall) -> Iterable[SlotState]:
        content = state.content + call.content if call.kind == "append" else call.content
        if call.version is not None:
            return (SlotState(call.version, call.version, content),) if call.version > state.floor else ()
        following = [
            SlotState(version, version, content)
            for version in self._orphans
            if version > state.floor and self._seen.get(version, {content}) == {content}
        ]
        if self._hidden_matter:
            following.append(SlotState(state.floor + 1, _HIDDEN, content))
        return following


def document(operations: Iterable[Operation]) -> VersionedSlot:
    """Make the model of a slot that holds a document; `cas` says in which words its history is.

    Args:
        operations: All operations of the key.

    Returns:
        The model.

    Raises:
        HistoryError: An operation is not in those words.
    """
    return VersionedSlot(read_calls(operations))


def list_of_items(operations: Iterable[Operation]) -> VersionedSlot:
    """Make the model of a slot that holds a list (STATE-7); `cas` says in which words its history is.

    Args:
        operations: All operations of the key.

    Returns:
        The model.

    Raises:
        HistoryError: An operation is not in those words.
    """
    return VersionedSlot(read_list_calls(operations))
