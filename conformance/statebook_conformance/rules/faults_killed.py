"""Level 3: writers that are killed with SIGKILL in the middle of loops of writes, and at numbered points."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from statebook.capabilities import Durability, Sharing
from statebook.errors import VersionConflict
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch, names, read_all, there, thread
from statebook_conformance.workers_faults import EXPORTER, LIST, SLOT, crash_batches, killed_batch

_KEY: Final = thread()
_KILLS: Final = 6
_AT_ONCE_S: Final = 15.0
_EVENTS: Final = 900
_TRIES: Final = 8
_WORKERS: Final = "statebook_conformance.workers_faults"


def _answers(ctx: Context, loop: str) -> Iterator[tuple[int, Sequence[Mapping[str, int]]]]:
    """Have a writer killed, round after round, and give what each was answered before it died."""
    child = ctx.spawn(f"{_WORKERS}:nursery", {"loop": loop})
    child.wait_for("ready", timeout_s=60.0)
    for number in range(_KILLS * ctx.effort):
        child.tell(
            {
                "round": number,
                "answers": ctx.random.randint(2, 12),
                "delay_us": ctx.random.choice((0, 300, 1_000, 3_000)),
            }
        )
        killed = child.wait_for("killed", timeout_s=45.0)
        answers = cast("Sequence[Mapping[str, int]]", killed["answers"])
        ctx.saw("kills", int(bool(killed["killed"])))
        ctx.saw("answers", len(answers))
        yield number, answers


def _claim_at_once(ctx: Context, journal: ThreadJournalStore, key: ThreadKey) -> WriterClaim:
    """The next writer need not wait for a dead one."""
    started = time.monotonic()
    claim = journal.claim(key, "next")
    took = time.monotonic() - started
    ctx.check(took < _AT_ONCE_S, f"a claim after a kill took {took:.1f} s: something of the dead writer is still held")
    return claim


@rule(
    "APPEND-2.killed",
    level=3,
    needs=(Durability.PROCESS, Sharing.HOST),
    hint="a batch is written in several steps, of which a reader sees the first",
    kills=("half-batch-after-kill", "acknowledged-before-it-is-stored"),
    floor={"kills": _KILLS},
)
def killed_appender(ctx: Context) -> None:
    """Kill -9 in a loop of appends: batches are whole, acknowledged ones are there, the one in doubt lands once.

    The next writer claims at once, and sends the batch that nobody had an answer for again. Cases: 26, 43.
    """
    journal = ctx.open_journal()
    stored: list[tuple[int, str]] = []
    for number, answers in _answers(ctx, "append"):
        claim = _claim_at_once(ctx, journal, _KEY)
        found = names(read_all(ctx, journal, _KEY))
        ctx.equal(found[: len(stored)], stored, f"the events of the rounds before, after kill {number}")
        acked = answers[-1]["last_seq"]
        new = [event_id for _, event_id in found[len(stored) :]]
        sent = len(answers)
        wanted = [event.event_id for at in range(1, sent + 2) for event in killed_batch(number, at).events]
        ctx.check(len(found) >= acked, f"seq {acked} was acknowledged, and the journal ends at {len(found)}")
        ctx.equal(new, wanted[: len(new)], f"the events of round {number}")
        ctx.check(len(new) % 3 == 0, f"a part of a batch is there after kill {number}: {new[-3:]}")
        landed = len(new) > 3 * sent
        receipt = journal.append(claim, killed_batch(number, sent + 1), acked)
        ctx.equal((receipt.first_seq, receipt.replayed), (acked + 1, landed), "the batch in doubt, sent again")
        ctx.saw("in doubt and there", int(landed))
        stored = names(read_all(ctx, journal, _KEY))
        ctx.equal([event_id for _, event_id in stored[len(found) - len(new) :]], wanted, "the round, after the retry")
    ctx.equal(ctx.open_journal().verify(_KEY, deep=True).findings, (), "findings at the end")


@rule(
    "STATE-3.killed",
    level=3,
    needs=(Durability.PROCESS, Sharing.HOST),
    hint="a value is overwritten in place, or removed before the new one is there",
    kills=("overwrite-in-two-steps",),
    floor={"kills": _KILLS},
)
def killed_saver(ctx: Context) -> None:
    """Kill -9 in a loop of saves and list appends: each slot is as last acknowledged, or one whole write later.

    Cases: 26.
    """
    state = ctx.open_state()
    for number, answers in _answers(ctx, "save"):
        acked = answers[-1]
        for _ in range(_TRIES):
            saved, items = state.load(SLOT), state.load_list(LIST)
            if saved is None:
                ctx.fail(f"the document is gone after kill {number}, {acked['number']} was acknowledged")
            length = 0 if items is None else len(items.items)
            found = int(saved.value) - acked["number"], length - acked["length"]
            ctx.check(found in ((0, 0), (1, 0), (0, 1)), f"document and list are {found} writes behind the last answer")
            if items is not None:
                ctx.equal(items.items, tuple(b"%d" % at for at in range(length)), f"the list after kill {number}")
            try:
                state.save(SLOT, saved.value, expected=saved.version)
                if items is not None:
                    state.replace_list(LIST, items.items, expected=items.version)
                break
            except VersionConflict:
                ctx.saw("landed late")
        else:
            ctx.fail(f"a save of a dead writer landed {_TRIES} times after kill {number}")


@rule(
    "CLAIM-3.killed",
    level=3,
    needs=(Durability.PROCESS, Sharing.HOST),
    hint="the epoch is handed out before it is stored, or a lock of the dead writer is left",
    kills=("epoch-in-the-process",),
    floor={"kills": _KILLS},
)
def killed_claimer(ctx: Context) -> None:
    """Kill -9 in a loop of claims and releases: the next claim works at once, and no epoch is given twice.

    Cases: 26.
    """
    journal = ctx.open_journal()
    for number, answers in _answers(ctx, "claim"):
        claim = _claim_at_once(ctx, journal, _KEY)
        ctx.check(
            claim.epoch > answers[-1]["epoch"],
            f"epoch {answers[-1]['epoch']} was given to a writer, and {claim.epoch} to the next after kill {number}",
        )
        acked = max(answer["last_seq"] for answer in answers)
        ctx.check(claim.last_seq in (acked, acked + 1), f"{acked} was acknowledged, the next finds {claim.last_seq}")
        journal.append(claim, make_batch(f"next-{number}"), claim.last_seq)
        ctx.equal(len(read_all(ctx, journal, _KEY)), claim.last_seq + 1, "events behind the next writer's batch")
    ctx.equal(ctx.open_journal().verify(_KEY, deep=True).findings, (), "findings at the end")


@rule(
    "LIFE-4.killed",
    level=3,
    needs=(Durability.PROCESS, Sharing.HOST),
    hint="data is removed before the head says so, or the head is only told later",
    kills=("trim-kept-in-the-process",),
    floor={"kills": _KILLS},
)
def killed_trimmer(ctx: Context) -> None:
    """Kill -9 in a loop of appends and trims: what is kept is whole, and what was trimmed stays trimmed."""
    journal = ctx.open_journal()
    for number, answers in _answers(ctx, "trim"):
        claim = _claim_at_once(ctx, journal, _KEY)
        head = there(ctx, journal, _KEY)
        acked = answers[-1]
        ctx.check(head.last_seq >= acked["last_seq"], f"{acked} was acknowledged, the head says {head.last_seq}")
        ctx.check(head.first_seq >= acked["first_seq"], f"{acked} was acknowledged, the head says {head.first_seq}")
        events = read_all(ctx, journal, _KEY, after=head.first_seq - 1)
        ctx.equal(len(events), head.last_seq - head.first_seq + 1, f"kept events after kill {number}")
        receipt = journal.append(claim, make_batch(f"next-{number}", 3), head.last_seq)
        ctx.equal(receipt.first_seq, head.last_seq + 1, "where the next writer's batch stands")
        journal.collect(_KEY)
    ctx.equal(ctx.open_journal().verify(_KEY, deep=True).findings, (), "findings at the end")


@rule(
    "CURSOR-4.killed",
    level=3,
    needs=(Durability.PROCESS, Sharing.HOST),
    hint="a cursor is moved beyond what was acknowledged, or its move is told before it is stored",
    kills=("cursor-runs-ahead",),
    floor={"kills": _KILLS},
)
def killed_exporter(ctx: Context) -> None:
    """Kill -9 in a loop of deliveries: the cursor is behind what was delivered, and not behind what was acknowledged.

    Cases: 47, 49.
    """
    journal = ctx.open_journal()
    claim = journal.claim(_KEY, "writer")
    for number in range(9):
        journal.append(claim, make_batch(f"b{number}", _EVENTS // 9), claim.last_seq + number * (_EVENTS // 9))
    before = delivered = 0
    for number, answers in _answers(ctx, "export"):
        first = answers[0]["from"]
        ctx.check(first <= delivered + 1, f"events {delivered + 1} to {first - 1} were skipped in round {number}")
        delivered = answers[-1]["delivered"]
        acked = journal.open_cursor(_KEY, EXPORTER).acked_seq
        ctx.check(acked <= delivered, f"the cursor stands at {acked}, only {delivered} was delivered")
        ctx.check(acked >= answers[-1]["acked"], f"the move to {answers[-1]['acked']} is lost: {acked}")
        ctx.check(acked >= before, f"the cursor went back from {before} to {acked}")
        before = acked


@rule(
    "ATOM-3.crash-points",
    level=3,
    part="atomic",
    needs=(Durability.PROCESS, Sharing.HOST),
    hint="a commit is answered before its head and blobs are there",
    kills=("commit-written-at-the-next-call",),
    floor={"crash points": 20},
    timeout_s=120.0,
)
def crash_points(ctx: Context) -> None:
    """Kill -9 before and behind each storage call of a journal's life: the next writer finds all that was said."""
    child = ctx.spawn(f"{_WORKERS}:crashes")
    journal = ctx.backend.journal_over(ctx.open_atomic())
    ids = [event.event_id for batch in crash_batches() for event in batch.events]
    for number in range(1, 1_000):
        crashed = child.wait_for("crashed", timeout_s=45.0)
        acked = cast("Mapping[str, int]", crashed["answer"])
        key = thread(f"crash-{number}")
        claim = _claim_at_once(ctx, journal, key)
        head = there(ctx, journal, key)
        where = f"at crash point {number}"
        ctx.check(claim.last_seq >= acked["last_seq"], f"{acked} was acknowledged, {claim.last_seq} is there {where}")
        ctx.check(claim.last_seq <= acked["last_seq"] + 3, f"more than one batch in doubt {where}")
        ctx.check(head.first_seq >= acked["first_seq"], f"{acked} was acknowledged, first_seq {head.first_seq} {where}")
        found = [event.event_id for event in read_all(ctx, journal, key, after=head.first_seq - 1)]
        ctx.equal(found, ids[head.first_seq - 1 : claim.last_seq], f"the events {where}")
        ctx.equal(claim.last_seq % 3, 0, f"events of a torn batch {where}")
        cursor = journal.open_cursor(key, EXPORTER)
        ctx.check(
            cursor.acked_seq >= acked["acked"], f"the cursor stands at {cursor.acked_seq} {where}, said was {acked}"
        )
        journal.append(claim, make_batch("next"), claim.last_seq)
        journal.collect(key)
        ctx.equal(journal.verify(key, deep=True).findings, (), f"findings {where}")
        if not crashed["killed"]:
            break
        ctx.saw("crash points")
    journal.close()
