"""CURSOR-4 at level 2: core's exporter over the backend, with a sink that fails and exporters that die."""

from __future__ import annotations

import random
from typing import Final

from statebook.errors import BackendUnavailable, CursorFenced, OutcomeUnknown
from statebook.journal import ThreadJournalStore
from statebook.model import ExportCursor
from statebook.patience import Patience
from statebook.threads import Delivery, JournalExporter, SkippedEvent
from statebook_conformance.context import Context
from statebook_conformance.mutants.forward import ForwardJournal
from statebook_conformance.rule import rule
from statebook_conformance.scenes import fill, make_batch, names, read_all, thread

_KEY: Final = thread()
_PATIENCE: Final = Patience(resends_max=1, pause_s=0.0)


class _Died(BaseException):
    """The exporter's process is gone, in the middle of a call."""


class _Failed(Exception):
    """The sink has failed."""


class _Receiver:
    """Takes events one by one, deduplicates by event id, and fails at one of them.

    Attributes:
        taken: Event ids in the order of their first arrival.
        fails_at: The seq that fails, or None.
        dies: Whether the failure is the end of the process.
    """

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.skips: list[SkippedEvent] = []
        self.fails_at: int | None = None
        self.dies = False

    def deliver(self, delivery: Delivery) -> int:
        """Take events."""
        for event in delivery.events:
            if event.seq == self.fails_at:
                raise _Died if self.dies else _Failed
            self.taken.setdefault(event.event_id, event.seq)
        return delivery.last_seq

    def skipped(self, skipped: SkippedEvent) -> None:
        """Record a skip."""
        self.skips.append(skipped)


class _LosesReplies(ForwardJournal):
    """Loses acknowledgements and their replies, and dies behind one: what happens between an exporter and the store."""

    def __init__(self, inner: ThreadJournalStore, rng: random.Random) -> None:
        super().__init__(inner)
        self._rng = rng

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        chance = self._rng.random()
        if chance < 0.1:
            raise OutcomeUnknown("the acknowledgement did not arrive, which nobody knows")
        moved = super().advance_cursor(cursor, to_seq)
        if chance < 0.3:
            raise OutcomeUnknown("the reply to the acknowledgement was lost")
        if chance < 0.4:
            raise _Died
        return moved


def _exporter(store: ThreadJournalStore, sink: _Receiver, page: int) -> JournalExporter:
    return JournalExporter(store, _KEY, "x", sink, page=page, patience=_PATIENCE)


@rule(
    "CURSOR-4.exporter",
    level=2,
    hint="the cursor is moved by more than what was acknowledged, or stands too far when it is opened again",
    kills=("cursor-kept-by-batch", "cursor-opened-too-far"),
    floor={"failures": 20, "deaths": 10, "batches": 20},
)
def exporter(ctx: Context) -> None:
    """A sink that fails at event k, exporters that die at any point: each event arrives, in order, none is skipped.

    Cases: 47, 49.
    """
    rng = random.Random(f"{ctx.seed}:exporter")
    claim = fill(ctx.journal, _KEY, [make_batch("first", 3)])
    sink, last = _Receiver(), 3
    store = _LosesReplies(ctx.journal, rng)
    for number in range(70 * ctx.effort):
        if number % 2 == 0:
            last = ctx.journal.append(claim, make_batch(f"b{number}", rng.randint(1, 5)), last).last_seq
            ctx.saw("batches")
        sink.fails_at = rng.randint(max(1, last - 6), last) if rng.random() < 0.7 else None
        sink.dies = rng.random() < 0.4
        try:
            _exporter(store, sink, rng.randint(1, 4)).drain()
        except (_Failed, OutcomeUnknown, BackendUnavailable):
            ctx.saw("failures")
        except _Died:
            ctx.saw("deaths")
        ctx.equal(list(sink.taken.values()), list(range(1, len(sink.taken) + 1)), "seqs in the order of their arrival")
    sink.fails_at = None
    report = _exporter(ctx.journal, sink, 100).drain()
    ctx.equal((report.acked_seq, report.complete), (last, True), "where the last drain has ended")
    arrived = [(seq, event_id) for event_id, seq in sink.taken.items()]
    ctx.equal(arrived, names(read_all(ctx, ctx.journal, _KEY)), "what has arrived, each event counted once")


@rule(
    "CURSOR-2.exporters",
    level=2,
    hint="an old exporter still moves the cursor of a newer one",
    kills=("cursor-not-fenced",),
)
def two_exporters(ctx: Context) -> None:
    """An exporter that was paused is fenced by the one that took over, moves nothing, and delivers nothing more.

    Cases: 48.
    """
    fill(ctx.journal, _KEY, [make_batch("b", 9)])
    old_sink, new_sink = _Receiver(), _Receiver()
    old, new = _exporter(ctx.open_journal(), old_sink, 2), _exporter(ctx.open_journal(), new_sink, 4)
    old_sink.fails_at = 6
    ctx.raises(_Failed, old.drain, "a drain whose sink fails at event 6")
    new_sink.fails_at = 9
    ctx.raises(_Failed, new.drain, "the drain of a newer exporter whose sink fails at event 9")
    old_sink.fails_at = None
    ctx.raises(CursorFenced, old.drain, "a drain of the older exporter")
    delivered = len(old_sink.taken)
    ctx.raises(CursorFenced, old.drain, "another drain of the older exporter")
    ctx.equal(len(old_sink.taken), delivered, "how many events the older exporter's sink has, fenced")
    new_sink.fails_at = None
    skipped = new.skip(9, "the receiver can never take it")
    ctx.equal((new_sink.skips, skipped.seq), ([skipped], 9), "the record of the skip")
    ctx.equal(new.drain().delivered, 0, "how many events come after the skip")
    ctx.equal(list(new_sink.taken.values()), [5, 6, 7, 8], "what the newer exporter has delivered")
