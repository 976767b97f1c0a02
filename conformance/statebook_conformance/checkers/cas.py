"""The words of a history of one state slot with compare-and-set, read once for all its checkers.

A document:

| op | input | ok output | refused as `VersionConflict`, output |
| --- | --- | --- | --- |
| `save` | `{"value": V, "expected": "any" | "absent" | version}` | `{"version": n}` | `{"current": n or null}` |
| `load` | `{}` | `null`, or `{"value": V, "version": n}` | |
| `delete` | `{}` or `{"expected": version}` | `null`, or `{"existed": true or false}` | `{"current": n or null}` |

A list:

| op | input | ok output | refused as `VersionConflict`, output |
| --- | --- | --- | --- |
| `replace_list` | `{"items": [...], "expected": ...}` | `{"version": n}` | `{"current": n or null}` |
| `append_list` | `{"items": [...], "expected_length": n}` | `{"version": n}` | `{"current": n or null, "length": n}` |
| `load_list` | `{}` | `null`, or `{"items": [...], "version": n}` | |
| `delete` | as above | | |

Any other refusal has no effect and says nothing about the slot. A delete without `existed` may have met either case.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from statebook_conformance.checkers.fields import (
    array,
    as_object,
    as_optional_integer,
    integer,
    optional_flag,
    optional_integer,
    output_object,
    problem,
    required,
    unknown_operation,
)
from statebook_conformance.checkers.history import JsonValue, Operation, Outcome, canonical

CONFLICT = "VersionConflict"


class Condition(enum.Enum):
    """The conditions of a save that name no version."""

    ANY = "any"
    ABSENT = "absent"


Expected: TypeAlias = Condition | int


class CasCall(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on a slot, read.

    `kind` is `save` (also for `replace_list`), `append`, `load` or `delete`. Contents are tuples of canonical
    texts: one for a document, one an item for a list. `content` is what the call wrote, or for `append`
    added; `seen_content` what a load returned. `version` is what the store issued to an acknowledged write,
    `seen_version` what a load returned.
    `absent` is true for an answer that shows the slot absent before any effect. `conflict` marks a refusal that must be
    justified, by the `current` version or by `current_length`.
    """

    operation: Operation
    kind: str
    expected: Expected = Condition.ANY
    expected_length: int | None = None
    content: tuple[str, ...] = ()
    version: int | None = None
    seen_version: int | None = None
    seen_content: tuple[str, ...] = ()
    absent: bool = False
    conflict: bool = False
    current: int | None = None
    current_length: int | None = None
    existed: bool | None = None

    @property
    def index(self) -> int:
        """The index of the operation."""
        return self.operation.index

    @property
    def called(self) -> int:
        """When it was called."""
        return self.operation.call_ns

    @property
    def deadline(self) -> float:
        """The last instant at which it can have taken effect."""
        return self.operation.effect_deadline()

    @property
    def unknown(self) -> bool:
        """Whether its outcome is unknown."""
        return self.operation.outcome is Outcome.UNKNOWN

    @property
    def observed(self) -> int | None:
        """The live version that its answer shows, apart from one that it wrote itself."""
        if self.conflict:
            return self.current
        if self.seen_version is not None:
            return self.seen_version
        if not self.unknown and isinstance(self.expected, int):
            return self.expected
        return None

    def accepts(self, live: int | None) -> bool:
        """Tell whether the condition holds where `live` is the current version, `None` for an absent slot."""
        if self.expected is Condition.ANY:
            return True
        if self.expected is Condition.ABSENT:
            return live is None
        return live == self.expected


def read_calls(operations: Iterable[Operation]) -> tuple[CasCall, ...]:
    """Read the operations of one document and leave out those that say nothing and did nothing.

    Args:
        operations: The operations of one key.

    Returns:
        The calls, in the same order.

    Raises:
        HistoryError: An operation is not in the words for a document.
    """
    calls = (_read(operation, _DOCUMENT_KINDS) for operation in operations)
    return tuple(call for call in calls if call is not None)


def read_list_calls(operations: Iterable[Operation]) -> tuple[CasCall, ...]:
    """Read the operations of one list and leave out those that say nothing and did nothing.

    Args:
        operations: The operations of one key.

    Returns:
        The calls, in the same order.

    Raises:
        HistoryError: An operation is not in the words for a list.
    """
    calls = (_read(operation, _LIST_KINDS) for operation in operations)
    return tuple(call for call in calls if call is not None)


_DOCUMENT_KINDS: Final = MappingProxyType({"save": "save", "load": "load", "delete": "delete"})
_LIST_KINDS: Final = MappingProxyType(
    {"replace_list": "save", "append_list": "append", "load_list": "load", "delete": "delete"}
)


def _read(operation: Operation, kinds: Mapping[str, str]) -> CasCall | None:
    kind = kinds.get(operation.op)
    if kind is None:
        raise unknown_operation(operation, "compare-and-set")
    if operation.outcome is Outcome.REFUSED:
        return _read_conflict(operation, kind) if operation.error == CONFLICT else None
    if kind == "load":
        return None if operation.outcome is Outcome.UNKNOWN else _read_load(operation)
    if kind == "delete":
        return _read_delete(operation)
    version = None
    if operation.outcome is Outcome.OK:
        version = integer(operation, output_object(operation), "version")
    return CasCall(
        operation=operation,
        kind=kind,
        expected=_expected(operation),
        expected_length=_expected_length(operation, kind),
        content=_content(operation, operation.input),
        version=version,
    )


def _read_load(operation: Operation) -> CasCall:
    if operation.output is None:
        return CasCall(operation=operation, kind="load", absent=True)
    answer = as_object(operation, operation.output, "output")
    version = integer(operation, answer, "version")
    return CasCall(operation=operation, kind="load", seen_version=version, seen_content=_content(operation, answer))


def _read_delete(operation: Operation) -> CasCall:
    existed = None
    if operation.outcome is Outcome.OK and operation.output is not None:
        existed = optional_flag(operation, output_object(operation), "existed")
    return CasCall(
        operation=operation, kind="delete", expected=_expected(operation), existed=existed, absent=existed is False
    )


def _read_conflict(operation: Operation, kind: str) -> CasCall:
    if kind == "load":
        raise problem(operation, "a load cannot be refused with a conflict")
    answer = output_object(operation)
    current = as_optional_integer(operation, required(operation, answer, "current"), "current")
    return CasCall(
        operation=operation,
        kind=kind,
        expected=_expected(operation),
        expected_length=_expected_length(operation, kind),
        conflict=True,
        current=current,
        current_length=optional_integer(operation, answer, "length"),
        absent=current is None,
    )


def _content(operation: Operation, fields: Mapping[str, JsonValue]) -> tuple[str, ...]:
    if operation.op.endswith("_list"):
        return tuple(canonical(item) for item in array(operation, fields, "items"))
    return (canonical(required(operation, fields, "value")),)


def _expected_length(operation: Operation, kind: str) -> int | None:
    return integer(operation, operation.input, "expected_length") if kind == "append" else None


def _expected(operation: Operation) -> Expected:
    expected = operation.input.get("expected", "any")
    if expected == "any":
        return Condition.ANY
    if expected == "absent" and operation.op != "delete":
        return Condition.ABSENT
    if isinstance(expected, int) and not isinstance(expected, bool):
        return expected
    raise problem(operation, f"input.expected must be 'any', 'absent' or a version, found {expected!r}")
