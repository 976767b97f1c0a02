"""ThreadTranscriptExport: a sink that makes complete messages of events, and hands on only those (J16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from statebook.keys import ThreadKey
from statebook.model import RecordedEvent
from statebook.threads.exporting import Delivery, SkippedEvent

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
M_contra = TypeVar("M_contra", contravariant=True)


class TranscriptReader(Protocol[M_co]):
    """Makes messages of events, one after the other, from a place where no message is begun."""

    def feed(self, event: RecordedEvent) -> Sequence[M_co]:
        """Take the next event.

        Args:
            event: The event behind the last one.

        Returns:
            The messages that it completes, in order; often none.
        """
        ...

    @property
    def open_since(self) -> int | None:
        """The seq of the first event of a message that is begun and not complete, or None where there is none."""
        ...


class TranscriptSink(Protocol[M_contra]):
    """Where complete messages go. It deduplicates by message: whatever is not acknowledged comes again."""

    def deliver(self, key: ThreadKey, messages: Sequence[M_contra], as_of_seq: int) -> None:
        """Take messages durably.

        Args:
            key: The thread.
            messages: Complete messages, in order; at least one.
            as_of_seq: The seq up to which every complete message has been handed over.
        """
        ...

    def skipped(self, skipped: SkippedEvent) -> None:
        """Record that an event is left out on purpose.

        Args:
            skipped: The record.
        """
        ...


class ThreadTranscriptExport(Generic[M]):
    """The `JournalExportSink` for transcripts: give it to a `JournalExporter` of the thread.

    Guarantees CURSOR-4 for messages: complete ones only, in order, at least once. The cursor never enters a message
    that is not complete, so that after a restart the message is made anew from its first event.
    """

    def __init__(self, new_reader: Callable[[], TranscriptReader[M]], sink: TranscriptSink[M]) -> None:
        """Take a reader's maker and a sink. No I/O.

        Args:
            new_reader: Makes a reader that has seen nothing.
            sink: Where complete messages go.
        """
        self._new_reader = new_reader
        self._sink = sink
        self._reader = new_reader()
        self._at: tuple[str, int] | None = None

    def deliver(self, delivery: Delivery) -> int:
        """Feed events, and hand on the messages that they complete.

        Args:
            delivery: The events.

        Returns:
            The seq before the first message that is not complete; the last seq where there is none.
        """
        if self._at != (delivery.journal_id, delivery.events[0].seq - 1):
            self._reader = self._new_reader()
        self._at = None
        messages: list[M] = []
        for event in delivery.events:
            messages += self._reader.feed(event)
        begun = self._reader.open_since
        acked = delivery.last_seq if begun is None else begun - 1
        if messages:
            self._sink.deliver(delivery.key, messages, acked)
        self._at = (delivery.journal_id, delivery.last_seq)
        return acked

    def skipped(self, skipped: SkippedEvent) -> None:
        """Have the sink record a skip; what was begun is forgotten.

        Args:
            skipped: The record.
        """
        self._at = None
        self._sink.skipped(skipped)
