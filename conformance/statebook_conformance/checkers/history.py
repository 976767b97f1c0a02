"""The history of a concurrent run: who called what, when, and what came back.

A history is the only thing a checker sees. It is written as JSON lines, so that it can be attached to a report and
judged again without the backend that produced it. The first line is the header (format, rule, seed, checker and its
parameters); each further line is one operation with its call and return times of one monotonic clock.

The notion of a history of calls and returns, and of the real-time order between operations (one returned before the
other was called), is that of Herlihy and Wing, "Linearizability: a correctness condition for concurrent objects"
(1990). Outcomes that the caller could not learn are kept as such, as in Jepsen's `info` operations.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import msgspec

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
"""What JSON can say. Values inside a history are copies; treat them as frozen."""

FORMAT_NAME = "statebook-history"
FORMAT_VERSION = 1

_HEADER_FIELDS = frozenset({"format", "version", "rule", "seed", "checker", "params", "operations"})
_OPERATION_FIELDS = frozenset(
    {"index", "process", "op", "key", "input", "call_ns", "return_ns", "outcome", "output", "error"}
)


class HistoryError(ValueError):
    """A history that cannot be judged: malformed, cut short, or not in the words the checker knows.

    It is a fault of the file or of the rule that recorded it, never a verdict about a backend.
    """


class Outcome(enum.StrEnum):
    """What the caller learnt (ERR-2): applied, not applied and never will be, or neither is known."""

    OK = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of one sequential client.

    `return_ns` is `None` only for an `unknown` operation whose client never got the call back (it was killed). An
    `unknown` operation may take effect at any time after its call, also after `return_ns`, or never.
    """

    index: int
    process: str
    op: str
    key: str
    input: Mapping[str, JsonValue]
    call_ns: int
    return_ns: int | None
    outcome: Outcome
    output: JsonValue = None
    error: str | None = None

    def precedes(self, other: Operation) -> bool:
        """Tell whether this operation's answer was in before the other was called; equal times count as overlapping."""
        return self.return_ns is not None and self.return_ns < other.call_ns

    def effect_deadline(self) -> float:
        """Give the last instant at which the operation can have taken effect: infinity for an unknown one."""
        if self.outcome is Outcome.UNKNOWN or self.return_ns is None:
            return float("inf")
        return self.return_ns


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader needs to judge the history again: which rule, which seed, which checker with which parameters."""

    rule: str
    seed: int
    checker: str
    params: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A header and the operations, ordered by call time, `operations[i].index == i`."""

    header: Header
    operations: tuple[Operation, ...]

    def lines(self) -> Iterator[str]:
        """Yield the canonical lines, header first, without line ends: sorted keys, no spaces, ASCII only."""
        header = self.header
        yield canonical(
            {
                "format": FORMAT_NAME,
                "version": FORMAT_VERSION,
                "rule": header.rule,
                "seed": header.seed,
                "checker": header.checker,
                "params": header.params,
                "operations": len(self.operations),
            }
        )
        for operation in self.operations:
            yield canonical(operation_fields(operation))

    def digest(self) -> str:
        """Give the SHA-256 of the canonical lines, in hexadecimal: equal histories have equal digests."""
        digest = hashlib.sha256()
        for line in self.lines():
            digest.update(line.encode("ascii") + b"\n")
        return digest.hexdigest()

    def dump(self, path: Path) -> None:
        """Write the history to `path`, replacing what was there.

        Args:
            path: The file to write.

        Raises:
            OSError: The file cannot be written.
        """
        with path.open("w", encoding="ascii", newline="\n") as file:
            for line in self.lines():
                file.write(line + "\n")

    def by_key(self) -> dict[str, tuple[Operation, ...]]:
        """Split the operations by key, in order of first use: each object is judged alone (locality)."""
        groups: dict[str, list[Operation]] = {}
        for operation in self.operations:
            groups.setdefault(operation.key, []).append(operation)
        return {key: tuple(operations) for key, operations in groups.items()}


def load(path: Path) -> History:
    """Read a history that `History.dump` wrote.

    Args:
        path: The file to read.

    Returns:
        The history, equal to the one that was written.

    Raises:
        HistoryError: The file is no history of this format, or damaged; the message names the line.
        OSError: The file cannot be read.
    """
    lines = path.read_bytes().splitlines()
    if not lines:
        raise HistoryError(f"{path.name}: line 1: the file is empty, a header is expected")
    header, count = _parse_header(path.name, lines[0])
    operations: list[Operation] = []
    for number, line in enumerate(lines[1:], start=2):
        operation = parse_operation(line, where=f"{path.name}: line {number}")
        if operation.index != number - 2:
            raise HistoryError(f"{path.name}: line {number}: index {operation.index}, expected {number - 2}")
        operations.append(operation)
    if len(operations) != count:
        raise HistoryError(
            f"{path.name}: line {len(lines)}: the header announces {count} operations, the file has {len(operations)}"
        )
    history = History(header=header, operations=tuple(operations))
    validate(history)
    return history


def merge(header: Header, parts: Iterable[Iterable[Operation]]) -> History:
    """Put the operations of several recorders into one history, ordered by call time and numbered anew.

    All parts must have been timed by one clock, such as CLOCK_MONOTONIC of one machine.

    Args:
        header: The header of the new history.
        parts: The operations of each recorder, in any order.

    Returns:
        One history.

    Raises:
        HistoryError: An operation is malformed, or one process has two operations under way at once (two recorders
            used one process name, or their clocks differ).
    """
    operations = sorted(
        (operation for part in parts for operation in part),
        key=lambda operation: (operation.call_ns, operation.process, operation.index),
    )
    numbered = tuple(msgspec.structs.replace(operation, index=i) for i, operation in enumerate(operations))
    history = History(header=header, operations=numbered)
    validate(history)
    return history


def validate(history: History) -> None:
    """Check what every checker relies on: numbering, call order, times, and sequential processes.

    Args:
        history: The history to check.

    Raises:
        HistoryError: Naming the operation and its line.
    """
    busy_until: dict[str, float] = {}
    last_call = None
    for position, operation in enumerate(history.operations):
        where = f"line {position + 2}: operation {operation.index}"
        if operation.index != position:
            raise HistoryError(f"{where}: index {operation.index}, expected {position}")
        if last_call is not None and operation.call_ns < last_call:
            raise HistoryError(f"{where}: operations must be ordered by call time")
        last_call = operation.call_ns
        if operation.return_ns is None and operation.outcome is not Outcome.UNKNOWN:
            raise HistoryError(f"{where}: outcome {operation.outcome.value} without a return time")
        if operation.return_ns is not None and operation.return_ns < operation.call_ns:
            raise HistoryError(f"{where}: it returned before it was called")
        if operation.call_ns < busy_until.get(operation.process, float("-inf")):
            raise HistoryError(f"{where}: process {operation.process!r} has another operation under way")
        busy_until[operation.process] = float("inf") if operation.return_ns is None else operation.return_ns


def canonical(value: JsonValue) -> str:
    """Give the one canonical JSON text of a value: sorted keys, no spaces, ASCII only.

    Args:
        value: Any JSON value.

    Returns:
        The text; equal values have equal texts.

    Raises:
        HistoryError: The value is not JSON (NaN, an infinity, bytes, a key that is no string).
    """
    _refuse_odd_keys(value)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise HistoryError(f"not a JSON value: {error}") from error


def snapshot(value: JsonValue) -> JsonValue:
    """Copy a value through JSON, so that what the caller changes later does not change the history."""
    return cast("JsonValue", json.loads(canonical(value)))


def operation_fields(operation: Operation) -> dict[str, JsonValue]:
    """Give the fields of an operation as they stand in its line."""
    return {
        "index": operation.index,
        "process": operation.process,
        "op": operation.op,
        "key": operation.key,
        "input": operation.input,
        "call_ns": operation.call_ns,
        "return_ns": operation.return_ns,
        "outcome": operation.outcome.value,
        "output": operation.output,
        "error": operation.error,
    }


def parse_object(line: bytes, *, where: str) -> Mapping[str, JsonValue]:
    """Parse one line that must hold one JSON object.

    Args:
        line: The line, without its end.
        where: How to name the line in an error.

    Returns:
        The object.

    Raises:
        HistoryError: The line is anything else.
    """
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise HistoryError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise HistoryError(f"{where}: an object is expected, found {type(value).__name__}")
    return cast("dict[str, JsonValue]", value)


def parse_operation(line: bytes, *, where: str) -> Operation:
    """Parse one operation line.

    Args:
        line: The line, without its end.
        where: How to name the line in an error.

    Returns:
        The operation.

    Raises:
        HistoryError: A field is missing, unknown or of the wrong type.
    """
    fields = parse_object(line, where=where)
    _expect_fields(fields, _OPERATION_FIELDS, where)
    inputs = fields["input"]
    if not isinstance(inputs, Mapping):
        raise HistoryError(f"{where}: field 'input' must be an object")
    outcome = fields["outcome"]
    if outcome not in tuple(Outcome):
        raise HistoryError(f"{where}: field 'outcome' must be ok, refused or unknown, found {outcome!r}")
    return Operation(
        index=_integer(fields, "index", where),
        process=_text(fields, "process", where),
        op=_text(fields, "op", where),
        key=_text(fields, "key", where),
        input=inputs,
        call_ns=_integer(fields, "call_ns", where),
        return_ns=None if fields["return_ns"] is None else _integer(fields, "return_ns", where),
        outcome=Outcome(outcome),
        output=fields["output"],
        error=None if fields["error"] is None else _text(fields, "error", where),
    )


def _parse_header(name: str, line: bytes) -> tuple[Header, int]:
    where = f"{name}: line 1"
    fields = parse_object(line, where=where)
    if fields.get("format") != FORMAT_NAME:
        raise HistoryError(f"{where}: not a history: field 'format' must be {FORMAT_NAME!r}")
    if fields.get("version") != FORMAT_VERSION:
        found = fields.get("version")
        raise HistoryError(f"{where}: format version {found!r} is not known, this reader knows {FORMAT_VERSION}")
    _expect_fields(fields, _HEADER_FIELDS, where)
    params = fields["params"]
    if not isinstance(params, Mapping):
        raise HistoryError(f"{where}: field 'params' must be an object")
    header = Header(
        rule=_text(fields, "rule", where),
        seed=_integer(fields, "seed", where),
        checker=_text(fields, "checker", where),
        params=params,
    )
    return header, _integer(fields, "operations", where)


def _expect_fields(fields: Mapping[str, JsonValue], expected: frozenset[str], where: str) -> None:
    missing = sorted(expected - fields.keys())
    if missing:
        raise HistoryError(f"{where}: field {missing[0]!r} is missing")
    unknown = sorted(fields.keys() - expected)
    if unknown:
        raise HistoryError(f"{where}: field {unknown[0]!r} is not known")


def _integer(fields: Mapping[str, JsonValue], name: str, where: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise HistoryError(f"{where}: field {name!r} must be an integer")
    return value


def _text(fields: Mapping[str, JsonValue], name: str, where: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise HistoryError(f"{where}: field {name!r} must be a string")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _refuse_odd_keys(value: JsonValue) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise HistoryError(f"not a JSON value: the key {key!r} is no string")
            _refuse_odd_keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _refuse_odd_keys(item)
