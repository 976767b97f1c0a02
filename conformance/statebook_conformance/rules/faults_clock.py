"""Level 3: wall clocks that jump by years, a monotonic clock that stands still."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, cast

from statebook.capabilities import Sharing
from statebook.errors import WriterBusy
from statebook.journal import ThreadJournalStore
from statebook.model import NONE, WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.faults.clock import YEAR_S
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch, names, read_all, thread
from statebook_conformance.workers_clock import FOREIGN, KEPT, SLOT

_OFF_MAX_S: Final = 300.0
_WORKERS: Final = "statebook_conformance.workers_clock"
_HOUR_S: Final = 3_600.0
_AHEAD_S: Final = (
    *(0.0, 10 * YEAR_S, -10 * YEAR_S, 0.0, 2.0, -2.0, 0.0, _HOUR_S + 1, -_HOUR_S - 1, 0.0),
    *(90 * 24 * _HOUR_S, -90 * 24 * _HOUR_S, 0.001, 0.0),
)


class _Observer:
    """The rule's own process, whose clocks are true: it holds a journal, and meets the worker's."""

    def __init__(self, ctx: Context, journal: ThreadJournalStore) -> None:
        self.ctx, self.journal = ctx, journal
        self.claim: WriterClaim = journal.claim(thread(FOREIGN), "rule")
        self.base = 0

    def look(self, answers: Mapping[str, object], where: str) -> None:
        """The worker's claim holds here too, its events are there, and the own claim still writes."""
        error = self.ctx.raises(
            WriterBusy,
            lambda: self.journal.claim(thread(), "observer", replacing=NONE),
            f"{where}: a claim of the worker's journal by a process with a true clock",
        )
        holder = None if error.holder is None else error.holder.writer_id
        self.ctx.equal(holder, "writer", f"{where}: who holds the worker's journal")
        first = cast("int", answers["first_seq"])
        found = [list(pair) for pair in names(read_all(self.ctx, self.journal, thread(), after=first - 1))]
        self.ctx.equal(found, answers["events"], f"{where}: the events, read with a true clock")
        self.base = self.journal.append(self.claim, make_batch(f"f{self.base}"), self.base).last_seq


def _check(ctx: Context, number: int, before: Mapping[str, object], now: Mapping[str, object], where: str) -> None:
    """What the worker was answered is what it would have been answered by any clock."""
    last = 2 * (number + 1)
    ctx.equal(now["last_seq"], last, f"{where}: the last seq of an append")
    ctx.equal(now["acked"], last - 1, f"{where}: where the cursor stands")
    first = cast("int", now["first_seq"])
    ctx.check(max(1, last - KEPT - 2) <= first <= max(1, last - KEPT), f"{where}: first_seq is {first} after a trim")
    wanted = [[seq, f"b{(seq - 1) // 2}.{(seq - 1) % 2 + 1}"] for seq in range(first, last + 1)]
    ctx.equal(now["events"], wanted, f"{where}: the kept events")
    ctx.equal(now["loaded"], [number, now["version"]], f"{where}: the document and its version")
    for what in ("version", "list_version"):
        old, new = cast("int", before.get(what, 0)), cast("int", now[what])
        ctx.check(new > old, f"{where}: {what} {new} was issued after {old}")
    ctx.equal(now["epoch"], 1 + (number + 1) // 3, f"{where}: the epoch of the writer's claim")
    ctx.equal(now["mine"], "writer", f"{where}: who kept a second claim out of the writer's journal")
    ctx.equal(now["foreign"], "rule", f"{where}: who kept a claim out of the journal that another holds")
    off_s = abs(cast("float", now["wall_s"]) - time.time() - cast("float", now["ahead_s"]))
    ctx.check(off_s < _OFF_MAX_S, f"{where}: the worker's wall clock was not moved")
    ctx.equal(now["monotonic"], True, f"{where}: whether the injected monotonic clock is one")


@rule(
    "CLAIM-5.clock-jumps",
    level=3,
    hint="a claim, lock or version is made or judged by a clock, or events are put in the order of their times",
    kills=("lease-of-an-hour", "version-by-wall-clock", "events-by-time"),
    floor={"jumps": 20, "answered": 8, "stood still": 2, "jumps of years": 3},
)
def clock_jumps(ctx: Context) -> None:
    """Wall clocks jump by ten years in both directions, the monotonic clock stands still: no answer is another one.

    A process claims, appends, saves, exports, trims and deletes; between its calls its clocks are moved. Claims hold,
    versions and epochs grow by what was written, events keep their order. A process with true clocks sees the same,
    where the store is shared by processes. A server of the network may refuse requests whose times are far from its
    own, which applies nothing. Clocks that are asked for by other code than Python's are not moved.

    Cases: 6.
    """
    shared = ctx.claims(Sharing.HOST)
    observer = _Observer(ctx, ctx.journal) if shared else None
    child = ctx.spawn(f"{_WORKERS}:work_through_jumps", {"shared": int(shared)})
    child.wait_for("ready", timeout_s=60.0)
    before: Mapping[str, object] = {}
    answered = 0
    ahead_s = 0.0
    for place, wanted_s in enumerate((*_AHEAD_S, *ctx.random.choices(_AHEAD_S, k=10 * ctx.effort), 0.0)):
        still = place % 4 == 3
        jump_s, ahead_s = wanted_s - ahead_s, wanted_s
        child.tell({"number": answered, "jump_s": jump_s, "still": still})
        now = child.wait_for("worked")
        where = f"after a jump of {jump_s:g} s, {wanted_s:g} s ahead"
        ctx.saw("jumps")
        ctx.saw("jumps of years", int(abs(jump_s) > YEAR_S))
        if "refused" in now:
            may = ctx.claims(Sharing.NETWORK) and abs(wanted_s) > _OFF_MAX_S
            ctx.check(may, f"{where}: a call was refused: {now['refused']}")
            ctx.saw("refused by a server that looks at the times of requests")
            continue
        ctx.saw("stood still", int(still))
        ctx.saw("answered")
        _check(ctx, answered, before, now, where)
        if observer is not None:
            observer.look(now, where)
        answered += 1
        before = now
    child.tell({})
    ctx.equal(child.result(), answered - 1, "the last order that the worker has obeyed")
    if observer is not None:
        state = ctx.open_state()
        saved = state.load(SLOT)
        ctx.equal(saved is None, answered % 3 == 0, "whether the document is deleted at the end")
        ctx.equal(ctx.open_journal().verify(thread(), deep=True).findings, (), "findings at the end")
