"""Record operations while they run, from many threads, and through the death of the process.

A recorder takes its clock as an argument. The call time is read last before the call and the return time first after
it, so that the recorded interval encloses the real one by as little as possible. With a spill file each call and each
return is also written at once to a file, by one unbuffered write: what a killed process had under way stays known.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import msgspec

from statebook_conformance.checkers.history import (
    Header,
    History,
    HistoryError,
    JsonValue,
    Operation,
    Outcome,
    canonical,
    merge,
    operation_fields,
    parse_object,
    parse_operation,
    snapshot,
)


class PendingOperation:
    """One operation under way. Leave the `with` block with exactly one outcome.

    If the block is left by an exception before an outcome was given, the operation is recorded as unknown, with the
    exception's name, and the exception goes on.
    """

    def __init__(self, recorder: Recorder, started: Operation) -> None:
        self._recorder = recorder
        self._started = started
        self._finished = False

    @property
    def finished(self) -> bool:
        """Whether an outcome was given."""
        return self._finished

    def ok(self, output: JsonValue = None) -> None:
        """Record that the call was applied, with its answer.

        Args:
            output: The answer, as a JSON value; it is copied.

        Raises:
            HistoryError: An outcome was given before, or the answer is not JSON.
        """
        self._finish(Outcome.OK, output, None)

    def refused(self, error: str, output: JsonValue = None) -> None:
        """Record that the call was not applied and never will be.

        Args:
            error: The name of the error, such as `VersionConflict`.
            output: What the error carried, as a JSON value; it is copied.

        Raises:
            HistoryError: An outcome was given before, or the details are not JSON.
        """
        self._finish(Outcome.REFUSED, output, error)

    def unknown(self, error: str | None = None, output: JsonValue = None) -> None:
        """Record that nobody knows whether the call was or will be applied.

        Args:
            error: The name of the error, if there was one.
            output: What the error carried, as a JSON value; it is copied.

        Raises:
            HistoryError: An outcome was given before, or the details are not JSON.
        """
        self._finish(Outcome.UNKNOWN, output, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._finished:
            return
        self._finish(Outcome.UNKNOWN, None, kind.__name__ if kind is not None else "no outcome given")
        if kind is None:
            raise HistoryError(f"operation {self._started.op!r} was left without an outcome")

    def _finish(self, outcome: Outcome, output: JsonValue, error: str | None) -> None:
        return_ns = self._recorder.now()
        if self._finished:
            raise HistoryError(f"operation {self._started.op!r} was given a second outcome")
        answer = snapshot(output)
        self._finished = True
        self._recorder.complete(
            msgspec.structs.replace(self._started, return_ns=return_ns, outcome=outcome, output=answer, error=error)
        )


class Recorder:
    """Collect the operations of any number of threads of one OS process.

    Example:
        >>> from itertools import count
        >>> recorder = Recorder(clock=count().__next__)
        >>> with recorder.operation("reader", "load", "slot") as pending:
        ...     pending.ok(None)
        >>> recorder.operations()[0].outcome.value
        'ok'
    """

    def __init__(self, *, clock: Callable[[], int], spill: Path | None = None) -> None:
        """Make an empty recorder.

        Args:
            clock: Gives nanoseconds of a monotonic clock, the same one in all processes of the run.
            spill: A file that gets each call and return at once; it must not exist yet.

        Raises:
            FileExistsError: The spill file exists.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._operations: list[Operation] = []
        self._spill: int | None = None
        if spill is not None:
            self._spill = os.open(spill, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)

    def now(self) -> int:
        """Read the clock."""
        return self._clock()

    def operation(
        self, process: str, op: str, key: str, inputs: Mapping[str, JsonValue] | None = None
    ) -> PendingOperation:
        """Begin an operation; its call time is the time of this call.

        Args:
            process: The sequential client; one thread or task, one operation at a time.
            op: The name of the operation, in the words of the checker that will judge it.
            key: The object it acts on; each key is judged alone.
            inputs: The arguments, as a JSON object; they are copied.

        Returns:
            The operation under way, to be used in a `with` statement.

        Raises:
            HistoryError: The arguments are not JSON.
        """
        copied = cast("Mapping[str, JsonValue]", snapshot(inputs if inputs is not None else {}))
        with self._lock:
            index = len(self._operations)
            started = Operation(
                index=index,
                process=process,
                op=op,
                key=key,
                input=copied,
                call_ns=self._clock(),
                return_ns=None,
                outcome=Outcome.UNKNOWN,
                output=None,
                error=None,
            )
            self._operations.append(started)
            self._write("call", started)
        return PendingOperation(self, started)

    def complete(self, operation: Operation) -> None:
        """Store the finished form of an operation that `operation` began; `PendingOperation` calls it."""
        with self._lock:
            self._operations[operation.index] = operation
            self._write("return", operation)

    def operations(self) -> tuple[Operation, ...]:
        """Give all operations so far; those still under way are unknown and have no return time."""
        with self._lock:
            return tuple(self._operations)

    def history(self, header: Header) -> History:
        """Give the history so far.

        Args:
            header: What the history is of.

        Returns:
            The history, ordered by call time.

        Raises:
            HistoryError: A process has two operations under way at once.
        """
        return merge(header, [self.operations()])

    def close(self) -> None:
        """Close the spill file. Closing twice is harmless; what is recorded stays readable."""
        with self._lock:
            if self._spill is not None:
                os.close(self._spill)
                self._spill = None

    def _write(self, kind: str, operation: Operation) -> None:
        if self._spill is None:
            return
        line = canonical({"kind": kind, "operation": operation_fields(operation)})
        os.write(self._spill, line.encode("ascii") + b"\n")


def load_spill(path: Path) -> tuple[Operation, ...]:
    """Read the spill file of a recorder whose process may have been killed.

    A last line that was cut is left out, as its call had not begun or its answer had not been used. Operations
    without a return are unknown.

    Args:
        path: The spill file.

    Returns:
        The operations, in the order in which they were begun; `merge` puts several such parts together.

    Raises:
        HistoryError: A line other than a cut last one is damaged; the message names it.
        OSError: The file cannot be read.
    """
    content = path.read_bytes()
    whole, _, _ = content.rpartition(b"\n")
    operations: dict[int, Operation] = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        where = f"{path.name}: line {number}"
        record = parse_object(line, where=where)
        fields = record.get("operation")
        kind = record.get("kind")
        if kind not in ("call", "return") or not isinstance(fields, Mapping):
            raise HistoryError(f"{where}: not a spilled operation")
        operation = parse_operation(canonical(fields).encode("ascii"), where=where)
        if (kind == "return") != (operation.index in operations):
            raise HistoryError(f"{where}: {kind} of operation {operation.index} is out of place")
        operations[operation.index] = operation
    return tuple(operations.values())
