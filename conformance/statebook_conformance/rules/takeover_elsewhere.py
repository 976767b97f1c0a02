"""CLAIM-2, level 2: a claim is taken over by another process, and nothing else has changed when its holder goes on."""

from __future__ import annotations

from typing import Final

from statebook.capabilities import Sharing
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch, names, read_all, there, thread

_KEY: Final = thread()
_CALLS: Final = ("append", "append_many", "heartbeat", "release")
_ROUNDS: Final = 3


@rule(
    "CLAIM-2.taken-elsewhere",
    level=2,
    needs=(Sharing.HOST,),
    hint="the claim is compared with what this process remembers of the head, and only the place in the write itself",
    kills=("fence-before-the-transaction",),
    floor={"fenced": len(_CALLS) * _ROUNDS},
)
def taken_elsewhere(ctx: Context) -> None:
    """Another process claims and appends nothing: every later call with the old claim is fenced, and leaves no trace.

    The old holder has the newest seq and all it remembers is right, but for the claim. Case: 42.
    """
    journal = ctx.open_journal()
    for number in range(_ROUNDS * ctx.effort):
        child = ctx.spawn("statebook_conformance.workers_claim:hold")
        child.wait_for("holds")
        claim = journal.claim(_KEY, f"taker {number}")
        before = names(read_all(ctx, journal, _KEY))
        for call in _CALLS:
            child.tell({"call": call})
            answered = child.wait_for("answered")
            ctx.equal(answered["answer"], "WriterFenced", f"what {call} says after a takeover by another process")
            ctx.check(answered["absent"], f"{call} names a receipt for a batch that was never written")
            ctx.saw("fenced")
            head = there(ctx, journal, _KEY)
            ctx.equal(head.last_seq, claim.last_seq, f"the last seq after a fenced {call}")
            ctx.equal(head.claim is not None and head.claim.epoch, claim.epoch, f"the epoch held after a fenced {call}")
        ctx.equal(names(read_all(ctx, journal, _KEY)), before, "the events after fenced calls")
        receipt = journal.append(claim, make_batch(f"taken {number}"), claim.last_seq)
        ctx.equal(receipt.first_seq, claim.last_seq + 1, "where the new holder's batch stands")
        child.end()
    ctx.equal(ctx.open_journal().verify(_KEY, deep=True).findings, (), "findings at the end")
