"""Ready sinks: a file of JSON lines, and a function."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from statebook.errors import BackendUnavailable, InvalidConfiguration, JournalCorrupt
from statebook.model import RecordedEvent
from statebook.threads.exporting import Delivery, SkippedEvent

_BLOCK: Final = 64 * 1024


class CallableSink:
    """Hands each event to a function, in order. What it has returned for is acknowledged with its delivery.

    Guarantees CURSOR-4: an error of the function moves nothing, so that the events of that delivery come again; the
    function deduplicates by event id.
    """

    def __init__(
        self, call: Callable[[RecordedEvent], object], *, on_skip: Callable[[SkippedEvent], object] | None = None
    ) -> None:
        """Take functions.

        Args:
            call: Takes an event.
            on_skip: Records a skip. Without it nothing can be skipped.
        """
        self._call = call
        self._on_skip = on_skip

    def deliver(self, delivery: Delivery) -> int:
        """Hand the events over, one by one.

        Args:
            delivery: The events.

        Returns:
            The last seq.
        """
        for event in delivery.events:
            self._call(event)
        return delivery.last_seq

    def skipped(self, skipped: SkippedEvent) -> None:
        """Hand the record over.

        Args:
            skipped: The record.

        Raises:
            InvalidConfiguration: There is no `on_skip`, so that the skip would not be recorded.
        """
        if self._on_skip is None:
            raise InvalidConfiguration("a skip must be recorded; give CallableSink an on_skip", option="on_skip")
        self._on_skip(skipped)


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    journal_id: str
    seq: int
    event_id: str
    type: str
    user_id: str | None
    agent_id: str
    session_id: str
    thread_id: str
    occurred_at: int | None = None
    run_id: str | None = None
    turn_id: str | None = None
    required: bool = False
    payload: msgspec.Raw | None = None
    skipped: str | None = None
    skipped_at: int | None = None


class _Place(msgspec.Struct, frozen=True):
    """Where a line stands in its journal."""

    journal_id: str
    seq: int
    event_id: str
    skipped: str | None = None


class JsonLinesSink:
    """Appends each event as one line of JSON to a file: one file, one thread.

    Guarantees CURSOR-4 at the receiver: each event stands in the file once and in order, whatever was delivered again.
    Every delivery looks at the file's last line first, drops what is there already, and cuts what a crash has left
    half written, which was never acknowledged. A skip is a line with `skipped`. Holds nothing open between deliveries;
    several processes may share the file. Where one of them is writing, another's delivery is `BackendUnavailable`.
    """

    def __init__(self, path: Path | str, *, durable: bool = True) -> None:
        """Name the file. No I/O; it is made by the first delivery.

        Args:
            path: The file.
            durable: Whether a delivery is acknowledged only when it survives a loss of power.
        """
        self._path = Path(path)
        self._durable = durable

    def deliver(self, delivery: Delivery) -> int:
        """Append what is not there yet.

        Args:
            delivery: The events.

        Returns:
            The last seq.

        Raises:
            BackendUnavailable: The file cannot be written now; what was written is recognised next time.
            JournalCorrupt: The last line is no line of an export, or another event stands in this one's place.
        """
        key = delivery.key
        lines = [
            _Line(
                journal_id=delivery.journal_id,
                seq=event.seq,
                event_id=event.event_id,
                type=event.type,
                user_id=key.user_id,
                agent_id=key.agent_id,
                session_id=key.session_id,
                thread_id=key.thread_id,
                occurred_at=event.occurred_at,
                run_id=event.run_id,
                turn_id=event.turn_id,
                required=event.required,
                payload=msgspec.Raw(event.payload),
            )
            for event in delivery.events
        ]
        self._append(lines)
        return delivery.last_seq

    def skipped(self, skipped: SkippedEvent) -> None:
        """Append the record of a skip.

        Args:
            skipped: The record.

        Raises:
            BackendUnavailable: The file cannot be written now.
            JournalCorrupt: The last line is no line of an export.
        """
        key = skipped.key
        line = _Line(
            journal_id=skipped.journal_id,
            seq=skipped.seq,
            event_id=skipped.event_id,
            type=skipped.type,
            user_id=key.user_id,
            agent_id=key.agent_id,
            session_id=key.session_id,
            thread_id=key.thread_id,
            skipped=skipped.reason,
            skipped_at=skipped.skipped_at,
        )
        self._append([line])

    def _append(self, lines: list[_Line]) -> None:
        try:
            with self._opened() as file:
                last = self._last(file)
                data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines if not _is_there(line, last))
                while data:
                    data = data[os.write(file, data) :]
                if self._durable:
                    os.fsync(file)
        except OSError as error:
            raise BackendUnavailable(f"the export file cannot be written: {error.strerror}") from error

    @contextmanager
    def _opened(self) -> Iterator[int]:
        there = self._path.exists()
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not there and self._durable:
                directory = os.open(self._path.parent, os.O_RDONLY)
                try:
                    os.fsync(directory)
                finally:
                    os.close(directory)
            yield file
        finally:
            os.close(file)

    @staticmethod
    def _last(file: int) -> list[_Place]:
        """The last whole lines, at most three; what is behind them is cut."""
        size = os.fstat(file).st_size
        tail = b""
        start = size
        while start > 0 and tail.count(b"\n") < 4:
            step = min(_BLOCK, start)
            start -= step
            tail = os.pread(file, step, start) + tail
        whole, newline, torn = tail.rpartition(b"\n")
        if torn:
            os.ftruncate(file, size - len(torn))
        if not newline:
            return []
        lines = whole.split(b"\n")
        try:
            return [msgspec.json.decode(line, type=_Place) for line in lines[max(len(lines) - 3, 0) :]]
        except msgspec.DecodeError as error:
            raise JournalCorrupt(
                "the end of the export file holds no lines of an export; nothing was written", what="export file"
            ) from error


def _is_there(line: _Line, last: list[_Place]) -> bool:
    """Tell whether a line stands in the file: its place was passed, or a line of its kind stands in it."""
    if not last or last[-1].journal_id != line.journal_id or line.seq > last[-1].seq:
        return False
    if line.seq < last[-1].seq:
        return True
    same = [place for place in last if place.journal_id == line.journal_id and place.seq == line.seq]
    for place in same:
        if place.event_id != line.event_id:
            raise JournalCorrupt(
                "another event stands in this one's place in the export file; nothing was written",
                what="export file",
                expected=line.event_id,
                found=place.event_id,
            )
    return any((place.skipped is None) == (line.skipped is None) for place in same)
