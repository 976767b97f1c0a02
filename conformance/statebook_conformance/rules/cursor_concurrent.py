"""CURSOR at level 2: exporters that race for one cursor, and many exporters beside a writer."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from statebook.capabilities import Sharing
from statebook_conformance.checkers.evidence import overlapping_pairs
from statebook_conformance.checkers.history import Operation, merge
from statebook_conformance.context import Context
from statebook_conformance.exporters import Exporter, race
from statebook_conformance.journal_clients import fine_switching, undump
from statebook_conformance.rule import rule
from statebook_conformance.scenes import fill, make_batch, names, read_all, there, thread

_KEY: Final = thread()
_RACERS: Final = 3
_ROUNDS: Final = 40
_STEPS_MAX: Final = 20_000
_WORKERS: Final = "statebook_conformance.workers_cursor"


def _judge(ctx: Context, parts: list[tuple[Operation, ...]]) -> None:
    history = merge(ctx.header("cursor"), parts)
    ctx.saw("overlapping operations", sum(overlapping_pairs(group) for group in history.by_key().values()))
    ctx.saw("fenced", sum(operation.error == "CursorFenced" for operation in history.operations))
    ctx.saw("advances", sum(operation.op == "advance" and operation.error is None for operation in history.operations))
    ctx.judge(history)


@rule(
    "CURSOR-2.racing",
    level=2,
    hint="epoch and position are checked before the write instead of in the same step as the write",
    kills=("cursor-not-fenced", "cursor-fenced-in-memory", "cursor-fence-checked-first"),
    floor={"fenced": 5, "advances": 10, "overlapping operations": 5},
)
def racing_openers(ctx: Context) -> None:
    """Exporters that open one cursor over and over: only the newest opener advances, and the cursor never goes back.

    Cases: 48.
    """
    claim = fill(ctx.journal, _KEY, [make_batch("b", 300)])
    recorder = ctx.recorder()
    racers = [Exporter(ctx.open_journal(), _KEY, "x", recorder, f"exporter {n}") for n in range(_RACERS)]
    rounds = _ROUNDS * ctx.effort
    with fine_switching():
        ctx.threads([partial(race, racer, random.Random(f"{ctx.seed}:{n}"), rounds) for n, racer in enumerate(racers)])
    last = ctx.open_journal().open_cursor(_KEY, "x")
    ctx.check(last.acked_seq <= 300, f"the cursor stands at {last.acked_seq} of 300")
    ctx.equal(there(ctx, ctx.journal, _KEY).claim, claim.info, "who holds the journal after the race")
    _judge(ctx, [recorder.operations()])


@rule(
    "CURSOR-2.racing-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="the fence is known to one process only",
    kills=("cursor-fenced-in-memory",),
    floor={"fenced": 5, "advances": 10},
)
def racing_processes(ctx: Context) -> None:
    """Exporters in several processes open one cursor over and over: only the newest opener advances.

    Cases: 48.
    """
    fill(ctx.journal, _KEY, [make_batch("b", 300)])
    children = [
        ctx.spawn(f"{_WORKERS}:race_for_cursor", {"name": f"process {n}", "seed": ctx.seed, "rounds": 40 * ctx.effort})
        for n in range(_RACERS)
    ]
    for child in children:
        child.wait_for("ready")
    for child in children:
        child.tell({"go": True})
    _judge(ctx, [undump(child.result()) for child in children])


@rule(
    "CURSOR-1.beside-a-writer",
    level=2,
    hint="exporters take the writer's lock or its head, or stand still at a page's edge",
    kills=("cursor-moved-before-the-acknowledgement", "cursor-moves-the-head"),
    floor={"advances": 40, "reopened": 4},
)
def beside_a_writer(ctx: Context) -> None:
    """Many exporters beside a writer: each delivers every event, in order, across failures of its sink.

    Cases: 47.
    """
    journal, rounds = ctx.open_journal(), 40 * ctx.effort
    claim = journal.claim(_KEY, "writer")
    recorder = ctx.recorder()
    written = threading.Event()
    exporters = [Exporter(journal if not n else ctx.open_journal(), _KEY, f"e{n}", recorder, f"p{n}") for n in range(4)]

    def write() -> None:
        try:
            base = 0
            for number in range(rounds):
                base = journal.append(claim, make_batch(f"b{number}", 1 + number % 3), base).last_seq
        finally:
            written.set()

    def export(exporter: Exporter, rng: random.Random) -> None:
        exporter.open()
        for _ in range(_STEPS_MAX):
            if written.is_set() and exporter.cursor is not None and exporter.cursor.acked_seq == _end(ctx):
                break
            if rng.random() < 0.05:
                exporter.open()
                ctx.saw("reopened")
            took = exporter.deliver(7, take=rng.choice((0, 2, 7)))
            if took is not None:
                ctx.check(exporter.acknowledge(took), "an exporter was fenced, and nobody else has opened its cursor")
            else:
                written.wait(0.001)

    calls: list[Callable[[], None]] = [write]
    calls += [partial(export, each, random.Random(f"{ctx.seed}:{n}")) for n, each in enumerate(exporters)]
    ctx.threads(calls)
    events = [event_id for _, event_id in names(read_all(ctx, journal, _KEY))]
    for exporter in exporters:
        seen = list(dict.fromkeys(exporter.delivered))
        ctx.equal(seen, events, "what an exporter has delivered, each event counted once")
    generation = there(ctx, journal, _KEY).generation
    ctx.equal(generation, 1 + rounds, "the head's generation after one claim and these appends, beside exporters")
    _judge(ctx, [recorder.operations()])


def _end(ctx: Context) -> int:
    return there(ctx, ctx.journal, _KEY).last_seq
