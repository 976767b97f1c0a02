"""ThreadHistory: the conversation of a thread, complete messages only, with the seq that it is true at (J5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from statebook.codec import Json
from statebook.keys import ThreadKey
from statebook.model import CHECKPOINT_TYPES, JournalHead, RecordedEvent
from statebook.threads.checkpoint_payload import Checkpoint
from statebook.threads.codecs import JournalEventCodecRegistry
from statebook.threads.events import message_of
from statebook.threads.payload import Message


class JournalReads(Protocol):
    """What the reading services need of a journal. `ThreadJournal(store, key)` has it, and needs no claim (CLAIM-7)."""

    @property
    def key(self) -> ThreadKey:
        """The thread."""
        ...

    def head(self) -> JournalHead | None:
        """As `ThreadJournal.head`."""
        ...

    def read(self, after: int = 0, *, page: int = 1_000) -> Iterator[RecordedEvent]:
        """As `ThreadJournal.read`."""
        ...

    def read_from_checkpoint(self, *, page: int = 1_000) -> Iterator[RecordedEvent]:
        """As `ThreadJournal.read_from_checkpoint`."""
        ...


class TranscriptMessage(msgspec.Struct, frozen=True):
    """A complete message, and where it comes from.

    Attributes:
        seq: The event that completed it.
        event_id: Its id: what a receiver deduplicates by, together with `index`.
        index: 0; in a journal that begins with a state, the message's place in the state's context.
        type: Its type: `input/applied`, `model/end`, `tool/result`, or that of the checkpoint it was inherited from.
        occurred_at: When, in Unix milliseconds.
        run_id: The run, or None.
        turn_id: The turn, or None.
        message: The message, a JSON object of the framework.
    """

    seq: int
    event_id: str
    index: int
    type: str
    occurred_at: int
    run_id: str | None
    turn_id: str | None
    message: Message


class Transcript(msgspec.Struct, frozen=True):
    """A conversation.

    Attributes:
        messages: The complete messages, in order.
        as_of_seq: Everything up to this seq was read. The next transcript goes on behind it.
    """

    messages: tuple[TranscriptMessage, ...]
    as_of_seq: int


class TranscriptMessages:
    """Makes complete messages of events, one after the other: the reader that a transcript export is given.

    Every message stands complete in one event, so that no message is ever begun and open.
    """

    def __init__(self, registry: JournalEventCodecRegistry | None = None) -> None:
        """Make a reader that has seen nothing.

        Args:
            registry: The event types; None for those of statebook alone.
        """
        self._registry = registry or JournalEventCodecRegistry()

    @property
    def open_since(self) -> int | None:
        """None: no message is begun and not complete."""
        return None

    def feed(self, event: RecordedEvent, *, first: bool | None = None) -> tuple[TranscriptMessage, ...]:
        """Take an event.

        Args:
            event: The event.
            first: Whether the journal begins with it, so that a state's messages were inherited; None for where its
                seq is 1.

        Returns:
            The messages that it completes, often none.

        Raises:
            JournalCorrupt: The payload does not validate.
        """
        payload = self._registry.decode(event)
        if payload is None:
            return ()
        if event.type in CHECKPOINT_TYPES and isinstance(payload, Checkpoint):
            begins = event.seq == 1 if first is None else first
            return tuple(_made(event, index, message) for index, message in _inherited(payload)) if begins else ()
        message = message_of(payload)
        return () if message is None else (_made(event, 0, message),)


def _inherited(payload: Checkpoint) -> Iterator[tuple[int, Message]]:
    context = payload.state.get("context")
    for index, message in enumerate(context if isinstance(context, list) else []):
        if isinstance(message, dict):
            yield index, message


def _made(event: RecordedEvent, index: int, message: Message) -> TranscriptMessage:
    return TranscriptMessage(
        event.seq, event.event_id, index, event.type, event.occurred_at, event.run_id, event.turn_id, message
    )


class ThreadHistory:
    """Reads conversations. Claims, repairs and changes nothing (J4)."""

    def __init__(self, registry: JournalEventCodecRegistry | None = None) -> None:
        """Make a reader.

        Args:
            registry: The event types; None for those of statebook alone.
        """
        self._registry = registry or JournalEventCodecRegistry()

    def transcript(self, journal: JournalReads, *, after: int = 0, page: int = 1_000) -> Transcript:
        """Read the complete messages of a thread: applied inputs, completed model calls, tool results.

        Guarantees J5, READ-2: a prefix of the journal, in order; chunks and failed or unfinished model calls have no
        place in it. Where the journal begins with a state, as after a fork or a trim, its messages come first.

        Args:
            journal: The thread's journal; no claim is needed.
            after: Read only what follows this seq, as from an earlier transcript's `as_of_seq`; 0 for all.
            page: How many events are read at once, 1 to 10,000.

        Returns:
            The messages, and the seq up to which everything was read.

        Raises:
            ValueError: `after` or `page` is outside its range.
            JournalRegressed: `after` is behind the end of the journal.
            Trimmed: Events behind `after` have been trimmed away, where `after` is not 0.
            JournalCorrupt: A payload does not validate.
        """
        begin, first = after, after == 0
        if first:
            head = journal.head()
            begin = 0 if head is None else head.first_seq - 1
        reader = TranscriptMessages(self._registry)
        messages: list[TranscriptMessage] = []
        as_of_seq = begin
        for event in journal.read(begin, page=page):
            messages += reader.feed(event, first=first)
            as_of_seq, first = event.seq, False
        return Transcript(tuple(messages), as_of_seq)

    def messages(self, journal: JournalReads) -> tuple[Json, ...]:
        """The messages alone, as a model would be given them.

        Args:
            journal: The thread's journal.

        Returns:
            The messages, in order.
        """
        return tuple(made.message for made in self.transcript(journal).messages)
