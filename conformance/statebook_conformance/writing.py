"""What rules about journals write: threads, events, batches, and a writer that keeps its base."""

from __future__ import annotations

import msgspec

from statebook.codec import chain_next
from statebook.errors import StatebookError
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import PAGE_MAX, Batch, Event, JournalHead, Receipt, RecordedEvent, WriterClaim
from statebook_conformance.context import Context

CHECKPOINT = "state/checkpoint"
"""An event type that moves `checkpoint_seq`."""


def thread(name: str = "thread", *, user: str | None = "user", session: str = "session") -> ThreadKey:
    """A thread of one user and session."""
    return ThreadKey(user, "agent", session, name)


def event(event_id: str, payload: bytes = b"{}", *, kind: str = "model/response", at: int = 1_000) -> Event:
    """An event."""
    return Event(event_id=event_id, type=kind, occurred_at=at, payload=payload)


def batch(batch_id: str, count: int = 1, *, payload: bytes = b"{}", checkpoint: int | None = None) -> Batch:
    """A batch whose events are called after it.

    Args:
        batch_id: The batch's id.
        count: How many events.
        payload: The payload of each.
        checkpoint: Which of them is a checkpoint, counted from 0.

    Returns:
        The batch.
    """
    return Batch(
        batch_id,
        tuple(
            event(f"{batch_id}.{place}", payload, kind=CHECKPOINT if place == checkpoint else "model/response")
            for place in range(count)
        ),
    )


def head_of(ctx: Context, journal: ThreadJournalStore, key: ThreadKey) -> JournalHead:
    """The head of a journal that must be there.

    Raises:
        RuleFailure: There is none.
    """
    head = journal.head(key)
    if head is None:
        ctx.fail("head() is None though the journal was claimed and not deleted")
    return head


def read_all(
    ctx: Context, journal: ThreadJournalStore, key: ThreadKey, after: int = 0, limit: int = PAGE_MAX
) -> tuple[RecordedEvent, ...]:
    """Read a journal to its end, page by page.

    Args:
        ctx: The context.
        journal: The store.
        key: The thread.
        after: The seq to begin behind.
        limit: The page size.

    Returns:
        The events.

    Raises:
        RuleFailure: A page that says there is more is empty.
    """
    events: list[RecordedEvent] = []
    more = True
    while more:
        page = journal.read_after(key, events[-1].seq if events else after, limit)
        ctx.check(page.events or not page.has_more, "a page without events says that there is more")
        events += page.events
        more = page.has_more
    return tuple(events)


def as_read(batches: tuple[Batch, ...], first_seq: int = 1) -> tuple[RecordedEvent, ...]:
    """How the events of batches must come back when they stand behind each other."""
    events = [event for batch in batches for event in batch.events]
    return tuple(
        RecordedEvent(
            seq, e.event_id, e.type, e.occurred_at, e.payload, e.run_id, e.turn_id, e.required, e.schema_version
        )
        for seq, e in enumerate(events, first_seq)
    )


def same_events(ctx: Context, found: tuple[RecordedEvent, ...], expected: tuple[RecordedEvent, ...], what: str) -> None:
    """Check that events are exactly the expected ones; the fact names the first difference only.

    Raises:
        RuleFailure: They are not.
    """
    if found == expected:
        ctx.check(True, what)
        return
    place = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        ctx.fail(f"{what}: {len(expected)} events were expected, {len(found)} found")
    ctx.equal(found[place], expected[place], f"{what}: event {place}")


def same_head(ctx: Context, journal: ThreadJournalStore, before: JournalHead | None, key: ThreadKey, what: str) -> None:
    """Check that a call has written nothing at all: the head is the very same.

    Raises:
        RuleFailure: It is another one.
    """
    ctx.equal(journal.head(key), before, f"the head after {what}")


def chained(chain: str, receipt: Receipt) -> str:
    """The chain digest behind a batch by the contract's formula (HEAD-3)."""
    return chain_next(chain, receipt.digest, receipt.first_seq, receipt.last_seq, receipt.epoch)


def forged(claim: WriterClaim, *, epoch: int | None = None, nonce: str | None = None) -> WriterClaim:
    """A claim that nobody was given."""
    return msgspec.structs.replace(
        claim, epoch=claim.epoch if epoch is None else epoch, nonce=claim.nonce if nonce is None else nonce
    )


def answer_of(journal: ThreadJournalStore, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt | StatebookError:
    """The answer of an append, a refusal too."""
    try:
        return journal.append(claim, batch, base_seq)
    except StatebookError as error:
        return error


class Writer:
    """A writer that keeps its claim, its base and what it has written.

    Attributes:
        journal: The store.
        key: The thread.
        claim: The claim.
        base: The last seq that it knows.
        batches: What it has appended, in order.
        receipts: Their receipts.
    """

    def __init__(self, journal: ThreadJournalStore, key: ThreadKey, name: str = "writer") -> None:
        """Claim a journal."""
        self.journal = journal
        self.key = key
        self.claim = journal.claim(key, name)
        self.base = self.claim.last_seq
        self.batches: list[Batch] = []
        self.receipts: list[Receipt] = []

    def append(self, new: Batch) -> Receipt:
        """Append a batch behind what is there."""
        receipt = self.journal.append(self.claim, new, self.base)
        self.base = receipt.last_seq
        self.batches.append(new)
        self.receipts.append(receipt)
        return receipt

    def fill(self, count: int, *, events: int = 1, prefix: str = "b", payload: bytes = b"{}") -> None:
        """Append batches that are called after a prefix and the number of batches so far."""
        for _ in range(count):
            self.append(batch(f"{prefix}{len(self.batches)}", events, payload=payload))
