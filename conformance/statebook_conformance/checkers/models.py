"""Sequential objects for the linearizability search: a register with store-issued versions, and a list.

A model is made from all the operations of one key. It needs them to bound what an unknown save may have done: such a
save got a version that nobody was told, so only a version that somebody observed later, or one that nobody ever
observes, comes into question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .cas import CONFLICT, CasCall, read_calls
from .fields import array, optional_integer, output_object, problem, unknown_operation
from .history import Operation, Outcome, canonical

_ABSENT = 0
_HIDDEN = -(2**128)  # no answer can show it: a store that issues such a version is refused by the floor


class RegisterState(NamedTuple):
    """A slot: the highest version issued so far, the live version (or absent, or hidden), and the value."""

    floor: int
    version: int
    value: str


class CasRegister:
    """A slot with compare-and-set and versions that grow for its whole life, deletes included (STATE-1 to STATE-4)."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        """Read the operations of one slot; `cas` says in which words.

        Args:
            operations: All operations of the key.

        Raises:
            HistoryError: An operation is not in those words.
        """
        calls = read_calls(operations)
        self._calls = {call.index: call for call in calls}
        issued = {call.version for call in calls if call.version is not None}
        named = {call.observed for call in calls}
        named.update(call.expected for call in calls if call.unknown and isinstance(call.expected, int))
        self._orphans = tuple(sorted(version for version in named - issued if version is not None and version > 0))
        self._orphan_values: dict[int, set[str]] = {}
        for call in calls:
            if call.seen_version is not None:
                self._orphan_values.setdefault(call.seen_version, set()).add(call.seen_value)
        # A save that nobody ever observes matters only to a delete that says the slot existed.
        self._hidden_matter = any(call.existed for call in calls)

    def relevant(self, operation: Operation) -> bool:
        """Tell whether the operation can have had an effect or says anything about the slot."""
        return operation.index in self._calls

    def initial(self) -> RegisterState:
        """Give the slot before its first save: absent, no version issued."""
        return RegisterState(0, _ABSENT, "")

    def step(self, state: RegisterState, operation: Operation) -> Iterable[RegisterState]:
        """Give the states that may follow the operation, none if its answer is impossible here."""
        call = self._calls[operation.index]
        if call.conflict:
            return self._conflict(state, call)
        if call.kind == "load":
            return self._load(state, call)
        if not call.accepts(None if state.version == _ABSENT else state.version):
            return ()
        if call.kind == "delete":
            return self._delete(state, call)
        return self._save(state, call)

    def _conflict(self, state: RegisterState, call: CasCall) -> Iterable[RegisterState]:
        current = None if state.version == _ABSENT else state.version
        return (state,) if current == call.current and not call.accepts(current) else ()

    def _load(self, state: RegisterState, call: CasCall) -> Iterable[RegisterState]:
        if call.absent:
            return (state,) if state.version == _ABSENT else ()
        return (state,) if (state.version, state.value) == (call.seen_version, call.seen_value) else ()

    def _delete(self, state: RegisterState, call: CasCall) -> Iterable[RegisterState]:
        live = state.version != _ABSENT
        if call.existed is not None and call.existed is not live:
            return ()
        return (RegisterState(state.floor, _ABSENT, ""),)

    def _save(self, state: RegisterState, call: CasCall) -> Iterable[RegisterState]:
        if call.version is not None:
            if call.version <= state.floor:
                return ()
            return (RegisterState(call.version, call.version, call.value),)
        following = [
            RegisterState(version, version, call.value)
            for version in self._orphans
            if version > state.floor and self._orphan_values.get(version, {call.value}) == {call.value}
        ]
        if self._hidden_matter:
            following.append(RegisterState(state.floor + 1, _HIDDEN, ""))
        return following


class ListSlot:
    """A list of one slot: append on a condition on its length, replace, load, delete (STATE-7).

    | op | input | ok output | refused as `VersionConflict`, output |
    | --- | --- | --- | --- |
    | `append_list` | `{"items": [...], "expected_length": n or null}` | `null` or `{"length": n}` | `{"current": n}` |
    | `replace_list` | `{"items": [...]}` | `null` or `{"length": n}` | |
    | `load_list` | `{}` | `{"items": [...]}`, empty if absent | |
    | `delete` | `{}` | `null` | |
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        """Read the operations of one list.

        Args:
            operations: All operations of the key.

        Raises:
            HistoryError: An operation is not in the words above.
        """
        self._given: dict[int, tuple[str, ...]] = {}
        self._length: dict[int, int | None] = {}
        self._expected: dict[int, int | None] = {}
        for operation in operations:
            self._read(operation)

    def relevant(self, operation: Operation) -> bool:
        """Tell whether the operation can have had an effect or says anything about the list."""
        if operation.outcome is Outcome.REFUSED:
            return operation.error == CONFLICT
        return operation.op != "load_list" or operation.outcome is Outcome.OK

    def initial(self) -> tuple[str, ...]:
        """Give the list before its first change: empty."""
        return ()

    def step(self, state: tuple[str, ...], operation: Operation) -> Iterable[tuple[str, ...]]:
        """Give the states that may follow the operation, none if its answer is impossible here."""
        index = operation.index
        items = self._given[index]
        if operation.op == "load_list":
            return (state,) if state == items else ()
        if operation.op == "delete":
            return ((),)
        expected, length = self._expected[index], self._length[index]
        matches = expected is None or expected == len(state)
        if operation.outcome is Outcome.REFUSED:
            return (state,) if not matches and length == len(state) else ()
        if not matches:
            return ()
        following = items if operation.op == "replace_list" else state + items
        return (following,) if length is None or length == len(following) else ()

    def _read(self, operation: Operation) -> None:
        if operation.op not in ("append_list", "replace_list", "load_list", "delete"):
            raise unknown_operation(operation, "list")
        index = operation.index
        self._given[index] = ()
        self._length[index] = self._expected[index] = None
        if operation.op in ("append_list", "replace_list"):
            self._given[index] = tuple(canonical(item) for item in array(operation, operation.input, "items"))
        if operation.op == "append_list":
            self._expected[index] = optional_integer(operation, operation.input, "expected_length")
        if operation.outcome is Outcome.REFUSED and operation.error == CONFLICT:
            if operation.op != "append_list":
                raise problem(operation, "only append_list can be refused with a conflict")
            self._length[index] = optional_integer(operation, output_object(operation), "current")
        if operation.outcome is Outcome.OK:
            self._read_answer(operation)

    def _read_answer(self, operation: Operation) -> None:
        if operation.op == "load_list":
            items = array(operation, output_object(operation), "items")
            self._given[operation.index] = tuple(canonical(item) for item in items)
        elif operation.op != "delete" and isinstance(operation.output, Mapping):
            self._length[operation.index] = optional_integer(operation, operation.output, "length")
