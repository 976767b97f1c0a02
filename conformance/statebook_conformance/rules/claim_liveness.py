"""Level 2: a writer that is not fenced comes through, however fast upkeep moves the head beside it (CLAIM-8)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from statebook.capabilities import Sharing
from statebook.journal import ThreadJournalStore
from statebook.model import Receipt, WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.journal_clients import JournalClient, fine_switching, judge, make
from statebook_conformance.rule import rule
from statebook_conformance.writing import thread

_APPENDS: Final = 30
_APPENDS_MAX: Final = 5_000
_BESIDE_S: Final = 1.5
"""How long a writer goes on beside other processes, which have to get their turns in that time."""
_BEATS_MAX: Final = 20_000
_HANDLES: Final = 4
_BEATING_EACH: Final = 4
_PROCESSES: Final = 4
_WORKERS: Final = "statebook_conformance.workers_liveness"


@rule(
    "CLAIM-8.beside-heartbeats",
    level=2,
    hint="an append that loses its compare-and-set tries a few times only, or pauses before it uses the head it met",
    kills=("gives-up-when-beaten",),
    floor={"appends": _APPENDS, "heartbeats": 64, "barriers": 16},
)
def beside_heartbeats(ctx: Context) -> None:
    """Beside sixteen threads that do nothing but beat and settle, every append through the current claim is committed.

    So is every heartbeat and every settlement: upkeep gives way, but it is not refused.
    """
    recorder = ctx.recorder()
    writer = JournalClient(ctx.journal, recorder, "writer", thread())
    claim = writer.held()
    done = threading.Event()

    def write() -> None:
        try:
            base = claim.last_seq
            for number in range(_APPENDS * ctx.effort):
                answer = writer.append(claim, make(f"b{number}"), base)
                if not isinstance(answer, Receipt):
                    ctx.fail(f"beside heartbeats, an append through the current claim was answered {answer!r}")
                base = answer.last_seq
                ctx.saw("appends")
        finally:
            done.set()

    handles = [ctx.open_journal() for _ in range(_HANDLES)]
    calls: list[Callable[[], None]] = [write]
    for place in range(_HANDLES * _BEATING_EACH):
        handle = handles[place % _HANDLES]
        calls.append(partial(_settle if place % 8 == 7 else _beat, ctx, handle, claim, done))
    with fine_switching():
        ctx.threads(calls)
    writer.final(ctx)
    head = ctx.journal.head(thread())
    ctx.check(head is not None and head.claim == claim.info, "the claim is not the writer's any more")
    judge(ctx, recorder)


@rule(
    "CLAIM-8.beside-heartbeats-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="a lock or a compare-and-set goes to whoever asks again first, and a loop in another process always does",
    kills=("gives-up-when-beaten",),
    floor={"appends": _APPENDS, "heartbeats": 20},
)
def beside_heartbeats_processes(ctx: Context) -> None:
    """The same beside processes that do nothing but beat: every append through the current claim is committed."""
    recorder = ctx.recorder()
    writer = JournalClient(ctx.journal, recorder, "writer", thread())
    claim = writer.held()
    children = [ctx.spawn(f"{_WORKERS}:beat") for _ in range(_PROCESSES)]
    for child in children:
        child.wait_for("beating")
    base, until = claim.last_seq, time.monotonic() + _BESIDE_S * ctx.effort
    for number in range(_APPENDS_MAX):
        if number >= _APPENDS * ctx.effort and time.monotonic() > until:
            break
        answer = writer.append(claim, make(f"b{number}"), base)
        if not isinstance(answer, Receipt):
            ctx.fail(f"beside heartbeats of processes, an append through the current claim was answered {answer!r}")
        base = answer.last_seq
        ctx.saw("appends")
    for child in children:
        child.tell({"stop": True})
    ctx.saw("heartbeats", sum(beats for beats in (child.result() for child in children) if isinstance(beats, int)))
    writer.final(ctx)
    judge(ctx, recorder)


def _beat(ctx: Context, handle: ThreadJournalStore, claim: WriterClaim, done: threading.Event) -> None:
    """Beat as often as can be, at least once, until the writer is done."""
    for _ in range(_BEATS_MAX):
        handle.heartbeat(claim)
        ctx.saw("heartbeats")
        if done.is_set() and ctx.evidence["heartbeats"] >= 64:
            return


def _settle(ctx: Context, handle: ThreadJournalStore, claim: WriterClaim, done: threading.Event) -> None:
    """Settle a batch that was never sent, at least once, until the writer is done."""
    for _ in range(_BEATS_MAX):
        ctx.equal(handle.settle(claim, "never", 10**9), None, "what became of a batch that was never sent")
        ctx.saw("barriers")
        if done.is_set() and ctx.evidence["barriers"] >= 16:
            return
