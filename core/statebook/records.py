"""What backends store and judge: head states, cursor states and frozen batches. Below the public values of `model`."""

from __future__ import annotations

from enum import Enum

import msgspec

from statebook.capabilities import Limits
from statebook.codec import digest, encode_batch
from statebook.keys import ThreadKey
from statebook.model import CHECKPOINT_TYPES, Batch, ClaimInfo, ExportCursor, JournalHead, WriterClaim


class JournalState(Enum):
    """Whether a head is a journal or the tombstone of one (LIFE-5)."""

    OPEN = "open"
    DELETED = "deleted"


class HeadState(msgspec.Struct, frozen=True, gc=False):
    """What a head says, without what a backend keeps beside it (HEAD-1).

    Attributes:
        key: The full key, compared on read.
        journal_id: Random for each incarnation.
        generation: Grows by one with each write, over deletes too.
        nonce: Fresh with each write.
        epoch: The newest epoch given out; never decreases (CLAIM-3).
        claim_nonce: The fence together with the epoch, or None where nobody holds the journal.
        writer_id: Who holds it, or None.
        state: Open, or a tombstone.
        first_seq: The first seq that is still there.
        last_seq: The last seq.
        checkpoint_seq: The last checkpoint, or None.
        chain: The chain digest behind the last batch.
    """

    key: ThreadKey
    journal_id: str
    generation: int
    nonce: str
    epoch: int
    claim_nonce: str | None
    writer_id: str | None
    state: JournalState
    first_seq: int
    last_seq: int
    checkpoint_seq: int | None
    chain: str

    @property
    def claim(self) -> ClaimInfo | None:
        """Who holds the journal, or None."""
        if self.claim_nonce is None or self.writer_id is None:
            return None
        return ClaimInfo(self.journal_id, self.writer_id, self.epoch, self.claim_nonce)

    def public(self) -> JournalHead | None:
        """What readers see: None for a tombstone."""
        if self.state is JournalState.DELETED:
            return None
        return JournalHead(
            self.key,
            self.journal_id,
            self.generation,
            self.epoch,
            self.claim,
            self.first_seq,
            self.last_seq,
            self.checkpoint_seq,
            self.chain,
            self.nonce,
        )

    def granted(self) -> WriterClaim:
        """The claim that this head has just given out.

        Raises:
            ValueError: Nobody holds it.
        """
        if self.claim_nonce is None or self.writer_id is None:
            raise ValueError("nobody holds this head")
        return WriterClaim(
            self.key,
            self.journal_id,
            self.writer_id,
            self.epoch,
            self.claim_nonce,
            self.last_seq,
            self.checkpoint_seq,
        )


class CursorState(msgspec.Struct, frozen=True, gc=False):
    """The record of one export cursor (CURSOR-1).

    Attributes:
        key: The full key of the thread, compared on read.
        exporter: The exporter's full name, compared on read.
        journal_id: The incarnation that it exports.
        acked_seq: Everything up to this seq is acknowledged.
        epoch: Grows with each opening.
        nonce: Fresh with each opening.
        version: Grows by one with each write.
    """

    key: ThreadKey
    exporter: str
    journal_id: str
    acked_seq: int
    epoch: int
    nonce: str
    version: int

    def opened(self) -> ExportCursor:
        """The cursor as its opener holds it."""
        return ExportCursor(
            self.key, self.exporter, self.journal_id, self.acked_seq, self.epoch, self.nonce, self.version
        )


class FrozenBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch as it is stored, encoded once before the first attempt (VAL-2).

    Attributes:
        batch_id: The batch.
        body: Its body.
        digest: The digest of the body, in hex.
        event_ids: The ids of its events.
        checkpoint_offset: Where its last checkpoint stands, or None (APPEND-6).
    """

    batch_id: str
    body: bytes
    digest: str
    event_ids: tuple[str, ...]
    checkpoint_offset: int | None


def freeze(batch: Batch, limits: Limits, key: ThreadKey) -> FrozenBatch:
    """Encode a batch once, and hold it against the limits before any effect (VAL-2, VAL-4).

    Args:
        batch: The batch.
        limits: The backend's limits.
        key: The thread, for errors.

    Returns:
        The frozen batch.

    Raises:
        LimitExceeded: It has too many events or bytes, or a payload is too large.
    """
    events = batch.events
    if len(events) == 1:
        event = events[0]
        event_ids: tuple[str, ...] = (event.event_id,)
        checkpoint_offset = 0 if event.type in CHECKPOINT_TYPES else None
    else:
        if len(events) > limits.batch_events_max:
            limits.check("batch_events_max", len(events), key.name)
        event_ids = tuple([event.event_id for event in events])
        checkpoint_offset = batch.checkpoint_offset
    body = encode_batch(batch)
    size = len(body)
    if size > limits.value_bytes_max:
        # No payload is larger than the body that it stands in.
        limits.check("value_bytes_max", max([len(event.payload) for event in events]), key.name)
    if size > limits.batch_bytes_max:
        limits.check("batch_bytes_max", size, key.name)
    return FrozenBatch(batch.batch_id, body, digest(body), event_ids, checkpoint_offset)
