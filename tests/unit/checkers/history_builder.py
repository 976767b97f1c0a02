"""Write small histories by hand, one line an operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statebook_conformance.checkers import Header, History, Operation, Outcome
from statebook_conformance.checkers.history import merge


def call(
    span: tuple[int, int | None],
    op: str,
    inputs: Mapping[str, Any] | None = None,
    output: Any = None,
    *,
    error: str | None = None,
    unknown: bool = False,
    process: str | None = None,
    key: str = "k",
) -> Operation:
    """One operation, called and returned at the two moments of `span`; a process of its own unless one is named."""
    outcome = Outcome.UNKNOWN if unknown or span[1] is None else Outcome.REFUSED if error else Outcome.OK
    return Operation(
        index=0,
        process=process if process is not None else f"{op}@{span}",
        op=op,
        key=key,
        input=inputs or {},
        call_ns=span[0],
        return_ns=span[1],
        outcome=outcome,
        output=output,
        error=error,
    )


def history(*operations: Operation, checker: str = "slot", params: Mapping[str, Any] | None = None) -> History:
    """A history of these operations."""
    return merge(Header(rule="TEST", seed=0, checker=checker, params=params or {}), [operations])
