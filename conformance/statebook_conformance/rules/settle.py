"""Level 1: unknown outcomes and how they are settled (SETTLE)."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from statebook.capabilities import Feature
from statebook.errors import InvalidKey, OutcomeUnknown, StatebookError, Trimmed, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.model import Batch, Receipt, WriterClaim
from statebook_conformance.adversary import Adversary, Fate, scripted
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.writing import Writer, as_read, batch, head_of, read_all, same_events, same_head, thread

_BIG: Final = b'"' + b"x" * 70_000 + b'"'
_SENDS_MAX: Final = 8


def _send(journal: ThreadJournalStore, claim: WriterClaim, new: Batch, base: int) -> Receipt:
    """Send a batch until its outcome is known; the adversary's faults end."""
    for _ in range(_SENDS_MAX):
        try:
            return journal.append(claim, new, base)
        except OutcomeUnknown:
            continue
    return journal.append(claim, new, base)


@rule(
    "SETTLE-1",
    level=1,
    hint="a lost reply is taken for a failure, or the retry is stored a second time",
    kills=("unknown-taken-as-unavailable", "unknown-taken-for-failure"),
    floor={"unknown outcomes": 8},
)
def send_again(ctx: Context) -> None:
    """After OutcomeUnknown the same batch may be sent again, and again: it is there once, with one receipt.

    Core's journal over the backend's storage; the first requests are lost, applied without an answer, or late.
    Cases: 10, 44.
    """
    scripts = (
        (Fate.AFTER,),
        (Fate.BEFORE,),
        (Fate.LATE,),
        (Fate.BEFORE, Fate.AFTER),
        (Fate.LATE, Fate.LATE, Fate.AFTER),
        (Fate.LATE, Fate.BEFORE, Fate.LATE),
    )
    for place, fates in enumerate(scripts):
        for payload in (b"{}", _BIG):
            adversary = Adversary(ctx.open_atomic())
            key = thread(f"{place} {len(payload)}")
            fair = Writer(ctx.backend.journal_over(adversary.client()), key)
            fair.fill(2)
            lossy = ctx.backend.journal_over(adversary.client(fate=scripted(*fates)))
            new = batch("lost", 2, payload=payload)
            receipt = _send(lossy, fair.claim, new, 2)
            names = " ".join(fate.value for fate in fates)
            ctx.equal((receipt.first_seq, receipt.last_seq), (3, 4), f"seqs of a batch after {names}")
            while adversary.late:
                adversary.land()
            again = lossy.append(fair.claim, new, 2)
            ctx.equal(msgspec.structs.replace(again, replayed=receipt.replayed), receipt, f"the receipt after {names}")
            whole = as_read((*fair.batches, new))
            same_events(ctx, read_all(ctx, fair.journal, key), whole, f"what is there after {names}")
            ctx.equal(fair.journal.verify(key, deep=True).findings, (), f"findings after {names}")
            ctx.saw("unknown outcomes", adversary.lost)


@rule(
    "SETTLE-2.answers",
    level=1,
    hint="settle looks only at the newest batches, or asks for a claim that is still current",
    kills=("settle-forgets", "settle-needs-claim", "window-without-anchor"),
)
def answers(ctx: Context) -> None:
    """Settle gives the receipt of what is there, near or far back, to a fenced claim too; and refuses what is gone."""
    key = thread()
    writer = Writer(ctx.journal, key)
    writer.fill(80, events=2)
    fenced = writer.claim
    other = ctx.open_journal()
    other.claim(key, "newer")
    kept = Feature.RECEIPTS_KEPT in ctx.capabilities.features
    before = head_of(ctx, other, key)
    for journal in (ctx.journal, other):
        for place in (0, 5, 16, 40, 79):
            original = writer.receipts[place]
            own = original.first_seq - 1
            for base in (own, 160) if place >= 16 or kept else (own,):
                receipt = journal.settle(fenced, original.batch_id, base)
                expected = msgspec.structs.replace(original, replayed=True)
                ctx.equal(receipt, expected, f"batch {place} settled on base {base}")
    same_head(ctx, other, before, key, "settlements of batches that are there")
    ctx.raises(InvalidKey, lambda: other.settle(fenced, "", 0), "settling a batch without a name")
    for base in (-1, True):
        ctx.raises(ValueError, partial(other.settle, fenced, "b", base), f"settling on base {base!r}")
    other.trim(key, 101)
    ctx.raises(Trimmed, lambda: other.settle(fenced, "never", 50), "settling where everything has been trimmed away")
    ctx.equal(other.settle(fenced, "never", 100), None, "what was never sent, at the first place that is left")
    other.delete(key)
    ctx.raises(WriterFenced, lambda: other.settle(fenced, "b0", 0), "settling in a deleted journal")
    other.claim(key, "next")
    ctx.raises(WriterFenced, lambda: other.settle(fenced, "b0", 0), "settling in another incarnation")


@rule(
    "SETTLE-2.barrier",
    level=1,
    hint="absent is concluded from a read: the request may still be on its way",
    kills=("settle-by-read", "settle-reads-only"),
)
def barrier(ctx: Context) -> None:
    """None comes only after a commit of the head: the generation has moved, epoch and claim have not.

    Cases: 44.
    """
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    writer.fill(2)
    for place in range(3):
        for store in (journal, ctx.open_journal()):
            before = head_of(ctx, journal, key)
            ctx.equal(store.settle(writer.claim, f"never {place}", writer.base), None, "what was never sent")
            after = head_of(ctx, journal, key)
            ctx.check(after.generation > before.generation, "settle said None without a commit of the head")
            expected = msgspec.structs.replace(before, generation=after.generation, nonce=after.nonce)
            ctx.check(after.nonce != before.nonce, "the barrier did not change the nonce")
            ctx.equal(after, expected, "the head after a settlement")
        writer.append(batch(f"never {place}"))
        ctx.check(
            journal.settle(writer.claim, f"never {place}", writer.base - 1) is not None,
            "a batch that was sent after its settlement is said to be absent",
        )


@rule(
    "SETTLE-2.late",
    level=1,
    hint="the late request is not conditional on the head that it was built on, or settle wrote none",
    kills=("settle-by-read", "no-nonce"),
    floor={"late requests": 8},
)
def late(ctx: Context) -> None:
    """A request that is still on its way when its batch is settled as absent never lands; one that lands is a receipt.

    Core's journal over the backend's storage.
    Cases: 44, 46.
    """
    for place, payload in enumerate((b"{}", _BIG)):
        for takeover in (False, True):
            for settler_is_other in (False, True):
                adversary = Adversary(ctx.open_atomic())
                key = thread(f"{place} {takeover} {settler_is_other}")
                fair = Writer(ctx.backend.journal_over(adversary.client()), key)
                fair.fill(2)
                lossy = ctx.backend.journal_over(adversary.client(fate=scripted(Fate.LATE)))
                new = batch("late", 2, payload=payload)
                error = ctx.raises(OutcomeUnknown, partial(lossy.append, fair.claim, new, 2), "a late append")
                ctx.equal((error.batch_id, error.base_seq), ("late", 2), "what OutcomeUnknown carries to settle with")
                ctx.saw("late requests", len(adversary.late))
                if takeover:
                    fair.journal.claim(key, "newer")
                settler = fair.journal if settler_is_other else lossy
                ctx.equal(settler.settle(fair.claim, "late", 2), None, "the settlement of a request on its way")
                landed = adversary.land()
                ctx.check(not landed, "a request landed after its batch was settled as absent")
                ctx.equal(head_of(ctx, fair.journal, key).last_seq, 2, "the last seq after it arrived")
                ctx.equal(settler.settle(fair.claim, "late", 2), None, "the settlement once more")
    adversary = Adversary(ctx.open_atomic())
    key = thread("landed")
    fair = Writer(ctx.backend.journal_over(adversary.client()), key)
    lossy = ctx.backend.journal_over(adversary.client(fate=scripted(Fate.LATE)))
    ctx.raises(OutcomeUnknown, partial(lossy.append, fair.claim, batch("late"), 0), "a late append")
    ctx.check(adversary.land(), "a late request did not land though nothing had happened meanwhile")
    receipt = lossy.settle(fair.claim, "late", 0)
    ctx.check(receipt is not None and receipt.last_seq == 1, f"a request that had landed is settled as {receipt}")


@rule(
    "SETTLE-3.writers",
    level=1,
    hint="the client tidies up after a write that it takes for failed: the head may refer to it",
    kills=("deletes-after-unknown",),
)
def deletes_nothing(ctx: Context) -> None:
    """What an attempt of unknown outcome wrote is deleted by no writer; only the collector may, behind its barrier.

    Cases: 43.
    """
    for fate in (Fate.AFTER, Fate.LATE, Fate.BEFORE):
        adversary = Adversary(ctx.open_atomic())
        key = thread(fate.value)
        fair = Writer(ctx.backend.journal_over(adversary.client()), key)
        lossy = ctx.backend.journal_over(adversary.client(fate=scripted(fate)))
        new = batch("lost", payload=_BIG)
        outcome: Receipt | StatebookError
        try:
            outcome = lossy.append(fair.claim, new, 0)
        except OutcomeUnknown as error:
            outcome = error
        ctx.equal(adversary.deleted, [], f"blobs that the writer deleted after {fate.value}: {outcome!r}")
        while adversary.late:
            adversary.land()
        _send(lossy, fair.claim, new, 0)
        ctx.equal(adversary.deleted, [], f"blobs that writers deleted after {fate.value} and a retry")
        fair.journal.collect(key)
        same_events(ctx, read_all(ctx, fair.journal, key), as_read((new,)), f"what is there after {fate.value}")
        ctx.equal(fair.journal.verify(key, deep=True).findings, (), f"findings after {fate.value}")
