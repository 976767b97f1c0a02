"""The words of a history of one state slot with compare-and-set, read once for all its checkers.

| op | input | ok output | refused as `VersionConflict`, output |
| --- | --- | --- | --- |
| `save` | `{"value": V, "expected": "any" | "absent" | version}` | `{"version": n}` | `{"current": n or null}` |
| `load` | `{}` | `null`, or `{"value": V, "version": n}` | |
| `delete` | `{}` or `{"expected": version}` | `null`, or `{"existed": true or false}` | `{"current": n or null}` |

Any other refusal has no effect and says nothing about the slot. A delete without `existed` may have met either case.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from .fields import as_object, integer, optional_flag, optional_integer, output_object, problem, unknown_operation
from .history import JsonValue, Operation, Outcome, canonical

CONFLICT = "VersionConflict"


class Condition(enum.Enum):
    """The conditions of a save that name no version."""

    ANY = "any"
    ABSENT = "absent"


Expected: TypeAlias = Condition | int


class CasCall(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on a slot, read.

    `value` is what a save wrote and `seen_value` what a load returned, both as canonical text. `version` is what the
    store issued to an acknowledged save, `seen_version` what a load returned. `absent` is true for an answer that shows
    the slot absent before any effect. `conflict` marks a justified refusal to be checked, with `current`.
    """

    operation: Operation
    kind: str
    expected: Expected = Condition.ANY
    value: str = ""
    version: int | None = None
    seen_version: int | None = None
    seen_value: str = ""
    absent: bool = False
    conflict: bool = False
    current: int | None = None
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
    """Read the operations of one slot and leave out those that say nothing and did nothing.

    Args:
        operations: The operations of one key.

    Returns:
        The calls, in the same order.

    Raises:
        HistoryError: An operation is not in the words above.
    """
    calls = (_read(operation) for operation in operations)
    return tuple(call for call in calls if call is not None)


def _read(operation: Operation) -> CasCall | None:
    if operation.op not in ("save", "load", "delete"):
        raise unknown_operation(operation, "compare-and-set")
    if operation.outcome is Outcome.REFUSED:
        return _read_conflict(operation) if operation.error == CONFLICT else None
    if operation.op == "load":
        return None if operation.outcome is Outcome.UNKNOWN else _read_load(operation)
    expected = _expected(operation)
    if operation.op == "save":
        value = canonical(_required(operation, operation.input, "value"))
        if operation.outcome is Outcome.UNKNOWN:
            return CasCall(operation=operation, kind="save", expected=expected, value=value)
        version = integer(operation, output_object(operation), "version")
        return CasCall(operation=operation, kind="save", expected=expected, value=value, version=version)
    existed = None
    if operation.outcome is Outcome.OK and operation.output is not None:
        existed = optional_flag(operation, output_object(operation), "existed")
    return CasCall(operation=operation, kind="delete", expected=expected, existed=existed, absent=existed is False)


def _read_load(operation: Operation) -> CasCall:
    if operation.output is None:
        return CasCall(operation=operation, kind="load", absent=True)
    answer = as_object(operation, operation.output, "output")
    return CasCall(
        operation=operation,
        kind="load",
        seen_version=integer(operation, answer, "version"),
        seen_value=canonical(_required(operation, answer, "value")),
    )


def _read_conflict(operation: Operation) -> CasCall:
    if operation.op == "load":
        raise problem(operation, "a load cannot be refused with a conflict")
    answer = output_object(operation)
    _required(operation, answer, "current")
    current = optional_integer(operation, answer, "current")
    return CasCall(
        operation=operation,
        kind=operation.op,
        expected=_expected(operation),
        conflict=True,
        current=current,
        absent=current is None,
    )


def _expected(operation: Operation) -> Expected:
    expected = operation.input.get("expected", "any")
    if expected == "any":
        return Condition.ANY
    if expected == "absent" and operation.op == "save":
        return Condition.ABSENT
    if isinstance(expected, int) and not isinstance(expected, bool):
        return expected
    raise problem(operation, f"input.expected must be 'any', 'absent' or a version, found {expected!r}")


def _required(operation: Operation, fields: Mapping[str, JsonValue], name: str) -> JsonValue:
    if name not in fields:
        raise problem(operation, f"{name} is missing")
    return fields[name]
