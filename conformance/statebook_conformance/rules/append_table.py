"""Level 1: every row of the table of append, generated from the combinations of its columns (APPEND-1)."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from statebook.capabilities import Feature
from statebook.errors import BatchConflict, HeadConflict, JournalRegressed, StatebookError, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.model import AppendRequest, Batch, Receipt, WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.writing import answer_of, batch, event, head_of, read_all, same_head, thread

_BATCHES: Final = 70
_FAR: Final = 2
_NEAR: Final = 40
_EVENTS: Final = 2


class Known(Enum):
    """The first two columns: whether the batch is in the chain, and with which content."""

    SAME = "sent again"
    OTHER = "sent again with other content"
    OVERLAP = "new, but with an event id that is there"
    NEW = "new"


class Held(Enum):
    """The third column, with the ways in which a claim can be fenced."""

    CURRENT = "current"
    FENCED = "fenced by a newer claim"
    RELEASED = "released"
    GONE = "of a deleted incarnation"


class Row(msgspec.Struct, frozen=True):
    """One combination.

    Attributes:
        known: The batch.
        held: The claim.
        place: The batch of the chain that it is about.
        base: The base.
    """

    known: Known
    held: Held
    place: int
    base: int

    def __str__(self) -> str:
        """The combination in words."""
        return f"batch {self.place} {self.known.value}, base {self.base}, claim {self.held.value}"

    def batch(self) -> Batch:
        """What is sent."""
        there = batch(f"b{self.place}", _EVENTS)
        if self.known is Known.SAME:
            return there
        if self.known is Known.OTHER:
            return Batch(there.batch_id, (*there.events[:-1], event(there.events[-1].event_id, b"[0]")))
        if self.known is Known.OVERLAP:
            return Batch(f"overlap {self.place}", (event(f"fresh {self.place}"), there.events[-1]))
        return batch(f"new {self.place} {self.base} {self.held.value}", _EVENTS)


def expected(row: Row, last_seq: int) -> type[StatebookError | Receipt]:
    """The answer that the table of the contract gives: the first row that matches."""
    if row.held is Held.GONE:
        return WriterFenced
    if row.known in (Known.OTHER, Known.OVERLAP):
        return BatchConflict
    if row.held is not Held.CURRENT:
        return WriterFenced
    if row.known is Known.SAME:
        return Receipt
    if last_seq > row.base:
        return HeadConflict
    return JournalRegressed if last_seq < row.base else Receipt


def rows(held: Held, *, receipts_kept: bool) -> list[Row]:
    """All combinations for one kind of claim; the ones that commit come last."""
    last = _BATCHES * _EVENTS
    bases = (0, _NEAR * _EVENTS, last - 1, last, last + 5)
    made = []
    for known in (Known.SAME, Known.OTHER, Known.OVERLAP):
        for place in (_NEAR, _BATCHES - 1):
            made += [Row(known, held, place, base) for base in (place * _EVENTS, *bases)]
        far = bases if receipts_kept and known is not Known.OVERLAP else ()
        made += [Row(known, held, _FAR, base) for base in (_FAR * _EVENTS, *far)]
    made += [Row(Known.NEW, held, 0, base) for base in (0, 1, last - 1, last + 1, last + 1_000, last)]
    return made


def _prepare(ctx: Context, journal: ThreadJournalStore, held: Held) -> tuple[WriterClaim, dict[str, Receipt]]:
    """A journal with a claim in the wanted condition, and the receipts of its batches."""
    key = thread(held.value)
    claim = journal.claim(key, "writer")
    requests = [AppendRequest(claim, batch(f"b{n}", _EVENTS), n * _EVENTS) for n in range(_BATCHES)]
    receipts = {}
    for outcome in journal.append_many(requests):
        if not isinstance(outcome, Receipt):
            ctx.fail(f"a batch was refused while the journal was made: {outcome!r}")
        receipts[outcome.batch_id] = outcome
    if held is Held.FENCED:
        journal.claim(key, "newer")
    elif held is Held.RELEASED:
        journal.release(claim)
    elif held is Held.GONE:
        journal.delete(key)
        newer = journal.claim(key, "newer")
        journal.append_many([AppendRequest(newer, batch(f"b{n}", _EVENTS), n * _EVENTS) for n in range(_BATCHES)])
    return claim, receipts


def _check(
    ctx: Context, journal: ThreadJournalStore, claim: WriterClaim, row: Row, receipts: dict[str, Receipt]
) -> None:
    """Send one combination and compare the answer, what it carries, and the journal afterwards."""
    before = head_of(ctx, journal, claim.key)
    sent = row.batch()
    wanted = expected(row, before.last_seq)
    answer = answer_of(journal, claim, sent, row.base)
    ctx.check(type(answer) is wanted, f"{row}: expected {wanted.__name__}, got {answer!r}")
    original = receipts.get(sent.batch_id)
    replay = None if original is None else msgspec.structs.replace(original, replayed=True)
    if isinstance(answer, WriterFenced):
        known = row.known is Known.SAME and row.held is not Held.GONE
        ctx.equal(answer.committed, replay if known else None, f"{row}: the receipt in WriterFenced")
        ctx.equal(answer.current_epoch, before.epoch, f"{row}: the epoch in WriterFenced")
    elif isinstance(answer, BatchConflict):
        ctx.equal(answer.batch_id, sent.batch_id, f"{row}: the batch id in BatchConflict")
        if row.known is Known.OVERLAP:
            ctx.equal(answer.event_id, sent.events[-1].event_id, f"{row}: the event id in BatchConflict")
    elif isinstance(answer, HeadConflict):
        ctx.equal((answer.last_seq, answer.base_seq), (before.last_seq, row.base), f"{row}: seqs in HeadConflict")
    elif isinstance(answer, JournalRegressed):
        ctx.equal((answer.last_seq, answer.seen_seq), (before.last_seq, row.base), f"{row}: seqs in JournalRegressed")
    elif row.known is Known.SAME:
        ctx.equal(answer, replay, f"{row}: the receipt")
    elif isinstance(answer, Receipt):
        ctx.equal((answer.first_seq, answer.replayed), (row.base + 1, False), f"{row}: the new receipt")
        ctx.equal(head_of(ctx, journal, claim.key).last_seq, row.base + _EVENTS, f"{row}: the last seq")
        return
    same_head(ctx, journal, before, claim.key, str(row))


def _run(ctx: Context, held: Held) -> None:
    kept = Feature.RECEIPTS_KEPT in ctx.capabilities.features
    claim, receipts = _prepare(ctx, ctx.journal, held)
    other = ctx.open_journal()
    for row in rows(held, receipts_kept=kept):
        for journal in (ctx.journal, other) if row.place == _FAR else (ctx.journal,):
            _check(ctx, journal, claim, row, receipts)
    ids = [e.event_id for e in read_all(ctx, ctx.journal, claim.key)]
    commits = [row for row in rows(held, receipts_kept=kept) if row.known is Known.NEW and row.held is Held.CURRENT]
    there = [batch(f"b{n}", _EVENTS) for n in range(_BATCHES)] + [row.batch() for row in commits[-1:]]
    ctx.equal(ids, [e.event_id for each in there for e in each.events], "what the journal holds at the end")


_HINT: Final = "the columns are looked at in another order, or against two different heads"


@rule(
    "APPEND-1.table-current",
    level=1,
    hint=_HINT,
    kills=(
        "other-content-accepted",
        "retry-appended-again",
        "base-ahead-accepted",
        "head-conflict-but-written",
        "overlap-accepted",
        "window-without-anchor",
    ),
)
def table_current(ctx: Context) -> None:
    """The table of append, claim current: retry, other content, overlap or new, on any base, near and far back.

    Cases: 10, 51.
    """
    _run(ctx, Held.CURRENT)


@rule("APPEND-1.table-fenced", level=1, hint=_HINT, kills=("epoch-check-left-out", "fenced-receipt-lost"))
def table_fenced(ctx: Context) -> None:
    """The table of append, claim fenced: the receipt where the batch had landed, else nothing is written, ever.

    Cases: 4, 42.
    """
    _run(ctx, Held.FENCED)


@rule("APPEND-1.table-released", level=1, hint=_HINT, kills=("released-may-write",))
def table_released(ctx: Context) -> None:
    """The table of append, claim given back: it is fenced like any other that is not current."""
    _run(ctx, Held.RELEASED)


@rule("APPEND-1.table-gone", level=1, hint=_HINT, kills=("incarnation-ignored",))
def table_gone(ctx: Context) -> None:
    """The table of append, claim of a deleted incarnation: fenced, whatever the new one holds of the same names.

    Cases: 58.
    """
    _run(ctx, Held.GONE)
