"""Level 3: a storage that loses answers under core's journal, old copies of records, and a full disk."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Final, cast

from statebook.capabilities import Durability, Sharing
from statebook.errors import (
    BackendUnavailable,
    CursorFenced,
    DataError,
    OutcomeUnknown,
    StatebookError,
    WriterFenced,
)
from statebook.journal import ThreadJournalStore
from statebook.model import Batch, WriterClaim
from statebook_conformance.context import Context, NotClaimed
from statebook_conformance.damage import Snapshot, medium_of, restore, take
from statebook_conformance.faults.disk import stale_records
from statebook_conformance.faults.store import Fault, FaultLine, FaultyAtomic, drawn
from statebook_conformance.rule import rule
from statebook_conformance.scenes import fill, make_batch, names, read_all, thread
from statebook_conformance.workers_faults import full_batch

_KEY: Final = thread()
_FAULTS: Final = (
    *(Fault.TIMES_OUT_AFTER, Fault.TIMES_OUT_BEFORE, Fault.UNAVAILABLE),
    *(Fault.LATE, Fault.LATE, Fault.SLOW, Fault.CONFLICT),
)
_BATCHES: Final = 120
_TRIES: Final = 60
_COPIES_MAX: Final = 24
_FULL_BATCHES: Final = 8
_WORKERS: Final = "statebook_conformance.workers_faults"


# ---------------------------------------------------------------------------------------------------- lost answers


class _Writer:
    """Appends behind a fault line, and keeps account of what it was told."""

    def __init__(self, ctx: Context, journal: ThreadJournalStore, line: FaultLine) -> None:
        self.ctx, self.journal, self.line = ctx, journal, line
        self.acked: list[tuple[int, str]] = []
        self.refused: set[str] = set()
        self.claim = self._claim()

    def _claim(self) -> WriterClaim:
        for _ in range(_TRIES):
            try:
                return self.journal.claim(_KEY, "writer")
            except (BackendUnavailable, OutcomeUnknown):
                self.ctx.saw("claims in doubt")
        return self.ctx.fail(f"no claim succeeds in {_TRIES} attempts")

    @property
    def base(self) -> int:
        """The last seq that was acknowledged."""
        return len(self.acked)

    def send(self, batch: Batch) -> None:
        """Send a batch until its outcome is known."""
        base, doubt = self.base, False
        for _ in range(_TRIES):
            try:
                last_seq = self.journal.append(self.claim, batch, base).last_seq
            except BackendUnavailable:
                self.ctx.saw("refused")
                if not doubt and self.ctx.random.random() < 0.5:
                    self.refused.add(batch.batch_id)
                    return
                continue
            except OutcomeUnknown as error:
                self.ctx.equal((error.batch_id, error.base_seq), (batch.batch_id, base), "what an unknown append names")
                self.ctx.saw("unknown")
                doubt = True  # a later refusal says nothing about this attempt
                if self.ctx.random.random() < 0.5:
                    continue
                settled = self._settle(batch, base)
                if settled is None:
                    self.refused.add(batch.batch_id)
                    return
                last_seq = settled
            self.ctx.equal(last_seq, base + len(batch.events), f"the receipt of {batch.batch_id}")
            self.acked += [(base + at, event.event_id) for at, event in enumerate(batch.events, 1)]
            return
        self.ctx.fail(f"batch {batch.batch_id} has no outcome after {_TRIES} attempts")

    def _settle(self, batch: Batch, base: int) -> int | None:
        for _ in range(_TRIES):
            if self.line.late and self.ctx.random.random() < 0.5:
                self.line.land()
            try:
                receipt = self.journal.settle(self.claim, batch.batch_id, base)
            except (BackendUnavailable, OutcomeUnknown):
                continue
            self.ctx.saw("settled")
            return None if receipt is None else receipt.last_seq
        return self.ctx.fail(f"batch {batch.batch_id} is not settled after {_TRIES} attempts")


@rule(
    "SETTLE-2.faulty-storage",
    level=3,
    part="atomic",
    hint="an unknown outcome is reported as a refusal, or settled by a read while the request is still on its way",
    kills=("unknown-reported-as-unavailable",),
    floor={"unknown": 15, "refused": 4, "settled": 4, "late": 5},
)
def faulty_storage(ctx: Context) -> None:
    """Over a storage that loses and delays answers: acknowledged is kept, refused is absent, unknown settles, once.

    Cases: 43, 44, 54.
    """
    line = FaultLine(drawn(ctx.random, _FAULTS, rate=0.5), slow_s=0.002)
    with closing(ctx.backend.journal_over(FaultyAtomic(ctx.backend.open_atomic(), line))) as journal:
        writer = _Writer(ctx, journal, line)
        for number in range(_BATCHES * ctx.effort):
            size = ctx.random.choice((0, 0, 3_000, 15_000))
            writer.send(make_batch(f"b{number}", ctx.random.randint(1, 3), size=size))
            if line.late and ctx.random.random() < 0.3:
                line.land(ctx.random.randrange(line.late))
    while line.late:
        line.land()
    ctx.saw("late", line.counts[Fault.LATE])
    with closing(ctx.backend.journal_over(ctx.backend.open_atomic())) as journal:
        found = names(read_all(ctx, journal, _KEY))
        there = {event_id.partition(".")[0] for _, event_id in found} & writer.refused
        ctx.check(not there, f"refused or settled as absent, and there all the same: {sorted(there)}")
        ctx.equal(found, writer.acked, "the events, against what was acknowledged")
        ctx.equal(journal.verify(_KEY, deep=True).findings, (), "findings at the end")


# ------------------------------------------------------------------------------------------------------ old copies


@rule(
    "READ-3.old-copies",
    level=3,
    hint="a journal that is shorter than what its users have seen goes on from there",
    kills=("old-copy-accepted",),
    floor={"old copies": 1, "refused": 1},
)
def old_copies(ctx: Context) -> None:
    """An old copy of any one record is refused by those who had seen more, or changes nothing of what they see.

    Reader, writer and exporter each go on where they were: nothing is skipped, given twice or written over. Cases: 50,
    52.
    """
    medium = medium_of(ctx)
    with closing(ctx.backend.open_journal()) as journal:
        claim = fill(journal, _KEY, [make_batch("a", 3), make_batch("b", 3, size=30_000)])
        cursor = journal.advance_cursor(journal.open_cursor(_KEY, "x"), 3)
        old = take(medium)
        journal.append(claim, make_batch("c", 3, size=30_000), 6)
        journal.append(claim, make_batch("d", 3), 9)
        cursor = journal.advance_cursor(cursor, 9)
        whole = names(read_all(ctx, journal, _KEY))
    now = take(medium)
    for record in stale_records(old, now)[:_COPIES_MAX]:
        for who in ("reader", "writer", "exporter"):
            restore(medium, now)
            try:
                medium.write(record, old[record])
            except ValueError:
                continue
            ctx.saw("old copies")
            with closing(ctx.backend.open_journal()) as journal:
                call = {
                    "reader": partial(_read_on, ctx, journal, whole),
                    "writer": partial(_write_on, ctx, journal, whole, claim),
                    "exporter": partial(_export_on, ctx, journal, whole),
                }[who]
                try:
                    call()
                except (DataError, WriterFenced, CursorFenced):
                    ctx.saw("refused")
                    continue
    _put_back(ctx, now)


def _put_back(ctx: Context, now: Snapshot) -> None:
    """With the present records in place all is well again."""
    medium = medium_of(ctx)
    restore(medium, now)
    with closing(ctx.backend.open_journal()) as journal:
        ctx.equal(journal.verify(_KEY, deep=True).findings, (), "findings with the present records")


def _read_on(ctx: Context, journal: ThreadJournalStore, whole: list[tuple[int, str]]) -> None:
    ctx.equal(names(journal.read_after(_KEY, 7, 100).events), whole[7:], "what a reader gets behind seq 7")
    ctx.equal(journal.read_after(_KEY, 12, 100).events, (), "what a reader gets behind the end that it knows")


def _write_on(ctx: Context, journal: ThreadJournalStore, whole: list[tuple[int, str]], claim: WriterClaim) -> None:
    receipt = journal.append(claim, make_batch("e"), len(whole))
    ctx.equal(receipt.first_seq, len(whole) + 1, "where a writer's batch stands that was sent behind seq 12")
    ctx.equal(names(read_all(ctx, journal, _KEY)), [*whole, (13, "e.1")], "the events behind that batch")


def _export_on(ctx: Context, journal: ThreadJournalStore, whole: list[tuple[int, str]]) -> None:
    opened = journal.open_cursor(_KEY, "x")
    ctx.check(opened.acked_seq <= 9, f"the cursor stands at {opened.acked_seq}, acknowledged was 9")
    events = names(journal.read_after(_KEY, opened.acked_seq, 100).events)
    ctx.equal(events, whole[opened.acked_seq :], "what an exporter gets behind its cursor")
    ctx.equal(journal.advance_cursor(opened, 12).acked_seq, 12, "the exporter's cursor after it went on")


# ------------------------------------------------------------------------------------------------------- full disk


@rule(
    "ERR-2.full-disk",
    level=3,
    needs=(Durability.PROCESS, Sharing.HOST),
    hint="an error of a write or fsync is dropped, or leaves half a record that hides the acknowledged ones",
    kills=("full-disk-swallowed",),
)
def full_disk(ctx: Context) -> None:
    """A writer whose files cannot grow is told so, and all that was acknowledged before stays; with space it goes on.

    Where no file of the writing process grows, as behind a server, the rule is not claimed.
    """
    limits = ctx.capabilities.limits
    count = _FULL_BATCHES
    while count > 1 and len(full_batch(count - 1).events[0].payload) * 5 > min(
        limits.value_bytes_max, limits.batch_bytes_max
    ):
        count -= 1
    child = ctx.spawn(f"{_WORKERS}:fill_disk", {"batches": count})
    full = child.wait_for("full")
    acked, stored = cast("int", full["last_seq"]), cast("int", full["batches"])
    wanted = [event.event_id for number in range(stored) for event in full_batch(number).events]
    with closing(ctx.backend.open_journal()) as journal:
        found = [event.event_id for event in read_all(ctx, journal, _KEY)]
        ctx.equal(found[:acked], wanted, "what was acknowledged before the disk was full")
        rest = found[acked:]
        ctx.check(len(rest) in (0, 4), f"{len(rest)} events of a batch of 4 are there behind seq {acked}")
        if full["error"] != OutcomeUnknown.__name__:
            ctx.equal(rest, [], f"events of the batch that was refused with {full['error'] or 'nothing'}")
        ctx.equal(journal.verify(_KEY, deep=True).findings, (), "findings while the disk is full")
    ctx.saw(f"refused with {full['error'] or 'nothing'}")
    if not full["error"]:
        raise NotClaimed("no file of the writing process grows: the store writes elsewhere")
    child.tell({"space": True})
    after = child.wait_for("after")
    ctx.equal(after["last_seq"], acked + 4, "the last seq of the refused batch, sent again when there is space")
    with closing(ctx.backend.open_journal()) as journal:
        found = [event.event_id for event in read_all(ctx, journal, _KEY)]
        ctx.equal(found, [*wanted, *(event.event_id for event in full_batch(stored).events)], "the events at the end")
        try:
            journal.collect(_KEY)
        except StatebookError as error:
            ctx.fail(f"collect after a full disk: {type(error).__name__}: {error}")
        ctx.equal(journal.verify(_KEY, deep=True).findings, (), "findings at the end")
