"""A journal as the contract describes it, in plain Python: the oracle of random histories. Knows no backend.

It is written from the contract and shares no decision with core. Journals here are short: every batch is among the last
64, so that it is recognised whatever its base (APPEND-1).
"""

from __future__ import annotations

from typing import Final

import msgspec

from statebook.model import Batch

CHECKPOINTS: Final = ("state/checkpoint", "state/initialized")


class Held(msgspec.Struct, frozen=True):
    """A claim that was given out.

    Attributes:
        incarnation: Of which incarnation of the journal.
        epoch: Its epoch.
    """

    incarnation: int
    epoch: int


class Placed(msgspec.Struct, frozen=True):
    """A batch in the journal.

    Attributes:
        batch: The batch.
        first: The seq of its first event.
        epoch: The epoch that it was committed under.
    """

    batch: Batch
    first: int
    epoch: int

    @property
    def last(self) -> int:
        """The seq of its last event."""
        return self.first + len(self.batch.events) - 1


class JournalModel:
    """One journal.

    Attributes:
        incarnation: How many journals there have been of this thread; 0 before the first claim.
        alive: Whether there is a journal now.
        epoch: The newest epoch.
        holder: The claim that holds the journal, or None.
        placed: The batches of this incarnation, trimmed ones too.
        first: The first seq that is left.
        checkpoint: The last checkpoint, or None.
    """

    def __init__(self) -> None:
        """A thread that was never written."""
        self.incarnation = 0
        self.alive = False
        self.epoch = 0
        self.holder: Held | None = None
        self._empty()

    def _empty(self) -> None:
        self.placed: list[Placed] = []
        self.first = 1
        self.checkpoint: int | None = None

    @property
    def last(self) -> int:
        """The last seq."""
        return self.placed[-1].last if self.placed else 0

    def events(self, after: int) -> list[tuple[int, str, bytes]]:
        """Seq, id and payload of the events behind a seq."""
        return [
            (entry.first + offset, event.event_id, event.payload)
            for entry in self.placed
            for offset, event in enumerate(entry.batch.events)
            if entry.first + offset > max(after, self.first - 1)
        ]

    def find(self, batch_id: str) -> Placed | None:
        """Where a batch is."""
        return next((entry for entry in self.placed if entry.batch.batch_id == batch_id), None)

    def is_gone(self, claim: Held) -> bool:
        """Whether the journal of a claim is not there any more."""
        return not self.alive or claim.incarnation != self.incarnation

    # -------------------------------------------------------------------------------- what a call must answer, in words

    def claim(self, replacing: Held | str) -> Held | str:
        """Claim: `any`, `none`, or a claim to replace. The new claim, or the error."""
        if replacing == "none" and self.holder is not None:
            return "WriterBusy"
        if isinstance(replacing, Held) and replacing != self.holder:
            return "WriterBusy"
        if not self.alive:
            self.alive = True
            self.incarnation += 1
            self._empty()
        self.epoch += 1
        self.holder = Held(self.incarnation, self.epoch)
        return self.holder

    def heartbeat(self, claim: Held) -> str:
        """Heartbeat: `ok` or the error."""
        return "ok" if self.holder == claim else "WriterFenced"

    def release(self, claim: Held) -> str:
        """Release: `ok`, `harmless` where it was given back already, or the error."""
        if self.holder == claim:
            self.holder = None
            return "ok"
        again = not self.is_gone(claim) and self.holder is None and claim.epoch == self.epoch
        return "harmless" if again else "WriterFenced"

    def append(self, claim: Held, batch: Batch, base: int) -> tuple[str, Placed | None]:
        """Append: `committed`, `replayed` or the error; and the batch's place, where the answer carries it."""
        if self.is_gone(claim):
            return "WriterFenced", None
        known = self.find(batch.batch_id)
        if known is not None:
            if known.batch != batch:
                return "BatchConflict", None
            return ("replayed" if self.holder == claim else "WriterFenced"), known
        there = {event_id for _, event_id, _ in self.events(0)}
        if any(event.event_id in there for event in batch.events):
            return "BatchConflict", None
        if self.holder != claim:
            return "WriterFenced", None
        if self.last != base:
            return ("HeadConflict" if self.last > base else "JournalRegressed"), None
        entry = Placed(batch, self.last + 1, self.epoch)
        self.placed.append(entry)
        for offset, event in enumerate(batch.events):
            if event.type in CHECKPOINTS:
                self.checkpoint = entry.first + offset
        return "committed", entry

    def settle(self, claim: Held, batch_id: str, base: int) -> tuple[str, Placed | None]:
        """Settle: `there` with the place, `absent`, or the error."""
        if self.is_gone(claim):
            return "WriterFenced", None
        known = self.find(batch_id)
        if known is not None:
            return "there", known
        return ("Trimmed" if base + 1 < self.first else "absent"), None

    def read(self, after: int) -> str:
        """Read: `ok` or the error."""
        if after > (self.last if self.alive else 0):
            return "JournalRegressed"
        return "Trimmed" if self.alive and after < self.first - 1 else "ok"

    def trim(self, before: int) -> str:
        """Trim: `moved`, `stays` or the error."""
        if not self.alive:
            return "JournalNotFound"
        first = min(before, self.last + 1)
        if self.checkpoint is not None:
            first = min(first, self.checkpoint)
        if first <= self.first:
            return "stays"
        self.first = first
        return "moved"

    def delete(self) -> bool:
        """Delete: whether there was a journal."""
        was = self.alive
        self.alive = False
        self.holder = None
        self._empty()
        return was
