"""DUR: what was acknowledged is there after a close, in another process, and after kill -9 of its writer."""

from __future__ import annotations

from typing import Final, cast

from statebook.capabilities import Durability, Sharing
from statebook.keys import StateKey
from statebook_conformance.context import Context
from statebook_conformance.processes import Child, ChildError
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch, names, read_all, there, thread

_KEY: Final = thread()
_SLOT, _LIST = StateKey("user", "session", "document"), StateKey("user", "session", "list")
_KILLS: Final = 10
_WORKERS: Final = "statebook_conformance.workers_durability"


@rule(
    "DUR-1.reopen",
    level=1,
    needs=(Durability.PROCESS,),
    hint="a write is acknowledged from a buffer that close() does not flush",
    kills=("lost-at-close",),
)
def reopen(ctx: Context) -> None:
    """What was acknowledged before close() is there after it, to the byte, and so are claim, cursor and versions."""
    journal, state = ctx.open_journal(), ctx.open_state()
    claim = journal.claim(_KEY, "writer")
    for number in range(5):
        journal.append(claim, make_batch(f"b{number}", 2, size=20_000 * (number % 2)), number * 2)
    cursor = journal.advance_cursor(journal.open_cursor(_KEY, "x"), 7)
    version = state.save(_SLOT, b'{"a":1}')
    for number in range(4):
        state.append_list(_LIST, (b"%d" % number,), expected_length=number)
    events = names(read_all(ctx, journal, _KEY))
    head = there(ctx, journal, _KEY)
    receipt = journal.append(claim, make_batch("last", 1), 10)
    journal.close()
    state.close()
    journal, state = ctx.open_journal(), ctx.open_state()
    now = there(ctx, journal, _KEY)
    ctx.equal((now.last_seq, now.claim, now.epoch), (11, head.claim, head.epoch), "the head after close and reopen")
    ctx.equal(names(read_all(ctx, journal, _KEY)), [*events, (11, "last.1")], "the events after close and reopen")
    again = journal.append(claim, make_batch("last", 1), 10)
    ctx.equal((again.digest, again.replayed), (receipt.digest, True), "the last batch again after reopen")
    saved = state.load(_SLOT)
    ctx.equal(None if saved is None else (saved.value, saved.version), (b'{"a":1}', version), "the document")
    items = state.load_list(_LIST)
    ctx.equal(None if items is None else items.items, (b"0", b"1", b"2", b"3"), "the list")
    ctx.equal(journal.append(claim, make_batch("c"), 11).first_seq, 12, "an append through the claim from before")
    ctx.equal(journal.advance_cursor(cursor, 8).acked_seq, 8, "an advance of the cursor from before")


@rule(
    "DUR-1.another-process",
    level=1,
    needs=(Durability.PROCESS, Sharing.HOST),
    hint="a write is acknowledged before it has left the process",
    kills=("acknowledged-before-it-is-stored",),
)
def another_process(ctx: Context) -> None:
    """What a process has acknowledged and never closed is there for the others after it was killed.

    Cases: 26.
    """
    child = ctx.spawn(f"{_WORKERS}:write_and_wait", {"batches": 5})
    acked = cast("int", child.wait_for("written")["last_seq"])
    child.kill()
    journal, state = ctx.open_journal(), ctx.open_state()
    found = names(read_all(ctx, journal, _KEY))
    ctx.equal(found, [(number, f"b{number}.1") for number in range(1, acked + 1)], "the events of a killed process")
    saved = state.load(_SLOT)
    ctx.equal(None if saved is None else saved.value, b'"saved"', "the document of a killed process")
    claim = journal.claim(_KEY, "next")
    ctx.equal(journal.append(claim, make_batch("c"), acked).first_seq, acked + 1, "an append by the next writer")


def _last_acked(child: Child, acked: int) -> int:
    """The newest acknowledgement that a killed process had sent."""
    while True:
        try:
            acked = cast("int", child.wait_for("acked")["last_seq"])
        except ChildError:
            return acked


@rule(
    "DUR-1.killed-writer",
    level=2,
    needs=(Durability.PROCESS, Sharing.HOST),
    hint="batches are acknowledged from a buffer, or a torn write is read as the end or as part of the next record",
    kills=("acknowledged-before-it-is-stored",),
    floor={"kills": _KILLS, "acknowledged events": 60},
    timeout_s=90.0,
)
def killed_writer(ctx: Context) -> None:
    """Kill -9 in a write loop, ten times: all that was acknowledged is there, and at most one batch more.

    Cases: 26.
    """
    children = [ctx.spawn(f"{_WORKERS}:write_for_ever", {"round": number}) for number in range(_KILLS)]
    journal = ctx.open_journal()
    stored: list[tuple[int, str]] = []
    for number, child in enumerate(children):
        child.wait_for("ready", timeout_s=60.0)
        child.tell({"go": True})
        acked = 0
        for _ in range(ctx.random.randint(3, 25)):
            acked = cast("int", child.wait_for("acked")["last_seq"])
        child.kill()
        acked = _last_acked(child, acked)
        at_once = names(read_all(ctx, journal, _KEY))
        # What the dead writer had sent whole may still be on its way to a server; behind a claim it is decided.
        journal.claim(_KEY, f"after {number}")
        found = names(read_all(ctx, journal, _KEY))
        ctx.equal(found[: len(at_once)], at_once, f"the events that were there at once after kill {number}")
        ctx.check(len(at_once) >= acked, f"seq {acked} was acknowledged, and the journal ended at {len(at_once)}")
        ctx.equal(found[: len(stored)], stored, f"the events of the rounds before, after kill {number}")
        new = found[len(stored) :]
        batches = {event_id.partition(".")[0] for seq, event_id in new if seq > acked}
        ctx.check(len(batches) <= 1, f"{len(batches)} batches behind what was acknowledged: {sorted(batches)}")
        ctx.equal(len(new) % 3, 0, "events of a torn batch")
        wanted = [f"r{number}-{1 + at // 3}.{1 + at % 3}" for at in range(len(new))]
        ctx.equal([event_id for _, event_id in new], wanted, f"the events of round {number}")
        ctx.equal(journal.verify(_KEY).findings, (), f"findings after kill {number}")
        ctx.saw("kills")
        ctx.saw("acknowledged events", acked - len(stored))
        stored = found
    ctx.equal(ctx.open_journal().verify(_KEY, deep=True).findings, (), "findings at the end")
