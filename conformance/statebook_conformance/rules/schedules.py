"""Core's journal over the backend's atomic storage, in adversarial schedules (CLAIM-2, SETTLE-2, LIFE-3, LIFE-4)."""

from __future__ import annotations

import time
from typing import Final

from statebook.errors import JournalCorrupt
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook_conformance.adversary_world import World
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.writing import head_of, read_all, thread

SCHEDULES: Final = 60
"""How many schedules are played; their seeds are always the same, so that a failure comes back."""

_STEPS: Final = 350
_SECONDS: Final = 6.0
_SCHEDULES_MIN: Final = 4


@rule(
    "SETTLE-2.schedules",
    level=2,
    hint="a conditional write that is no single atomic step, or a token that comes back; see the named promise",
    kills=(
        "epoch-check-left-out",
        "unknown-taken-for-failure",
        "collector-without-barrier",
        "settle-by-read",
        "no-nonce",
        "window-without-anchor",
        "blob-name-used-again",
        "reload-and-continue",
    ),
    floor={"unknown outcomes": 30, "late landings": 1, "takeovers": 20, "collector runs": 10},
    timeout_s=180.0,
)
def schedules(ctx: Context) -> None:
    """In any order of steps, with lost and late requests: acknowledged is there once, in order; refused never is.

    Two writers, a reader, a trimmer and a collector run core's journal over the backend's atomic storage. Exactly one
    of them takes a step at a time, and a seed says which; a quarter of the commits lose their answer, are lost, or land
    late; clients are stopped for long, mostly where it hurts. The history is judged at the end: every receipt holds,
    every refusal and every settlement holds for ever, no batch of an old epoch stands behind one of a newer, no blob is
    missing.
    Cases: 42, 44, 46.
    """
    started = time.monotonic()
    storage = ctx.open_atomic()
    for seed in range(SCHEDULES * ctx.effort):
        if seed >= _SCHEDULES_MIN and time.monotonic() - started > _SECONDS * ctx.effort:
            return
        key = thread(f"schedule-{seed}")
        world = World(storage, ctx.backend.journal_over, key, seed=seed, steps=_STEPS, fault_rate=0.25)
        try:
            world.run()
            _look(ctx, world, ctx.backend.journal_over(world.adversary.client()), key)
        except JournalCorrupt as error:
            ctx.fail(f"schedule {seed}: the journal is damaged: {error}")
        ctx.saw("unknown outcomes", world.adversary.lost)
        ctx.saw("late landings", world.adversary.landed)
        ctx.saw("takeovers", world.takeovers)
        ctx.saw("collector runs", world.collected)
        ctx.saw("blobs collected", len(world.adversary.deleted))
        ctx.saw("pauses", world.scheduler.pauses)


def _look(ctx: Context, world: World, journal: ThreadJournalStore, key: ThreadKey) -> None:
    """Read everything at the end, and have the whole history judged."""
    first_seq = head_of(ctx, journal, key).first_seq
    with world.recorder.operation("reader", "final", "journal") as pending:
        events = read_all(ctx, journal, key, first_seq - 1)
        pending.ok({"first_seq": first_seq, "events": [[event.seq, event.event_id] for event in events]})
    report = journal.verify(key, deep=True)
    ctx.equal(report.findings, (), "findings of a deep verification at the end")
    ctx.judge(world.recorder.history(ctx.header("journal")))
