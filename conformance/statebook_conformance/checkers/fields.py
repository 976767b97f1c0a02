"""Read the fields of an operation with their types, or say exactly which one is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from statebook_conformance.checkers.history import HistoryError, JsonValue, Operation


def problem(operation: Operation, message: str) -> HistoryError:
    """Make the error for an operation that a checker cannot read."""
    return HistoryError(f"line {operation.index + 2}: operation {operation.index} ({operation.op}): {message}")


def unknown_operation(operation: Operation, checker: str) -> HistoryError:
    """Make the error for an operation that a checker does not know: silence would be a pass that nobody earned."""
    return problem(operation, f"the {checker} checker knows no such operation")


def output_object(operation: Operation) -> Mapping[str, JsonValue]:
    """Give the output, which must be an object.

    Raises:
        HistoryError: It is anything else.
    """
    return as_object(operation, operation.output, "output")


def as_object(operation: Operation, value: JsonValue, name: str) -> Mapping[str, JsonValue]:
    """Give a value that must be an object.

    Raises:
        HistoryError: It is anything else.
    """
    if not isinstance(value, Mapping):
        raise problem(operation, f"{name} must be an object")
    return value


def required(operation: Operation, fields: Mapping[str, JsonValue], name: str) -> JsonValue:
    """Give a field that must be there, `null` included.

    Raises:
        HistoryError: It is missing.
    """
    if name not in fields:
        raise problem(operation, f"{name} is missing")
    return fields[name]


def integer(operation: Operation, fields: Mapping[str, JsonValue], name: str) -> int:
    """Give a field that must be an integer.

    Raises:
        HistoryError: It is missing or anything else.
    """
    return as_integer(operation, fields.get(name), name)


def as_integer(operation: Operation, value: JsonValue, name: str) -> int:
    """Give a value that must be an integer.

    Raises:
        HistoryError: It is anything else.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise problem(operation, f"{name} must be an integer")
    return value


def optional_integer(operation: Operation, fields: Mapping[str, JsonValue], name: str) -> int | None:
    """Give a field that is an integer, or null or missing.

    Raises:
        HistoryError: It is anything else.
    """
    return as_optional_integer(operation, fields.get(name), name)


def as_optional_integer(operation: Operation, value: JsonValue, name: str) -> int | None:
    """Give a value that must be an integer or null.

    Raises:
        HistoryError: It is anything else.
    """
    return None if value is None else as_integer(operation, value, name)


def text(operation: Operation, fields: Mapping[str, JsonValue], name: str) -> str:
    """Give a field that must be a string.

    Raises:
        HistoryError: It is missing or anything else.
    """
    return as_text(operation, fields.get(name), name)


def as_text(operation: Operation, value: JsonValue, name: str) -> str:
    """Give a value that must be a string.

    Raises:
        HistoryError: It is anything else.
    """
    if not isinstance(value, str):
        raise problem(operation, f"{name} must be a string")
    return value


def optional_flag(operation: Operation, fields: Mapping[str, JsonValue], name: str) -> bool | None:
    """Give a field that is true or false, or null or missing.

    Raises:
        HistoryError: It is anything else.
    """
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise problem(operation, f"{name} must be true or false")
    return value


def array(operation: Operation, fields: Mapping[str, JsonValue], name: str) -> tuple[JsonValue, ...]:
    """Give a field that must be an array.

    Raises:
        HistoryError: It is missing or anything else.
    """
    return as_array(operation, fields.get(name), name)


def as_array(operation: Operation, value: JsonValue, name: str) -> tuple[JsonValue, ...]:
    """Give a value that must be an array.

    Raises:
        HistoryError: It is anything else.
    """
    if not isinstance(value, (list, tuple)):
        raise problem(operation, f"{name} must be an array")
    return tuple(value)
