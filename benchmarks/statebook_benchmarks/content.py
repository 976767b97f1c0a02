"""What is written: payloads of an exact size, and batches made of them. The same bytes for every contender."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from statebook import Batch, Event, ThreadKey
from statebook.codec import encode_batch

OCCURRED_AT: Final = 1_700_000_000_000
"""The time of every event: informative, and so a constant."""

EVENT_BYTES: Final = 600
"""The payload of one event in the figures."""


def payload_of(size: int) -> bytes:
    """A JSON document of exactly so many bytes: a string without escapes.

    Raises:
        ValueError: `size` is below 2: no string is shorter than its quotes.
    """
    if size < 2:
        raise ValueError("a payload has at least 2 bytes")
    words = b"the quick brown fox jumps over the lazy dog and settles what is unknown "
    return b'"' + (words * (size // len(words) + 1))[: size - 2] + b'"'


def thread_key(name: str) -> ThreadKey:
    """The key of one thread of a benchmark."""
    return ThreadKey("bench", "agent", "session", name)


class Batches:
    """An endless supply of batches with fresh ids."""

    def __init__(self, name: str, *, events: int, event_bytes: int, checkpoint: bool = False) -> None:
        """Make a supply.

        Args:
            name: Distinct for each thread: ids begin with it.
            events: Events a batch.
            event_bytes: Bytes of each payload.
            checkpoint: Whether the last event of each batch is a checkpoint.
        """
        self._name = name
        self._events = events
        self._payload = payload_of(event_bytes)
        self._types = ["message/text"] * events
        if checkpoint:
            self._types[-1] = "state/checkpoint"
        self._numbers: Iterator[int] = count()

    @property
    def events(self) -> int:
        """Events a batch."""
        return self._events

    def next(self) -> Batch:
        """Build the next batch, as an application does: its cost belongs to what is measured."""
        batch_id = f"{self._name}-{next(self._numbers):012d}"
        payload = self._payload
        return Batch(
            batch_id,
            tuple(
                [
                    Event(event_id=f"{batch_id}.{place}", type=kind, occurred_at=OCCURRED_AT, payload=payload)
                    for place, kind in enumerate(self._types)
                ]
            ),
        )

    def body(self) -> bytes:
        """The stored bytes of the next batch, ready made: what the raw engine is given."""
        return encode_batch(self.next())
