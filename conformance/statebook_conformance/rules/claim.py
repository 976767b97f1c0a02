"""Level 1: writers, claims and fences, one caller at a time (CLAIM)."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import msgspec

from statebook.errors import InvalidKey, WriterBusy, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import NONE, WriterClaim
from statebook_conformance.adversary import Adversary, Fate, once, scripted
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.writing import Writer, batch, forged, head_of, read_all, same_head, thread

_SILENCE_S: Final = 0.06


def _fenced_everywhere(ctx: Context, journal: ThreadJournalStore, claim: WriterClaim, base: int, who: str) -> None:
    """Check that a claim is refused by every call that writes, and that nothing was written."""
    before = journal.head(claim.key)
    new = batch(f"of {who} at {base}")
    error = ctx.raises(WriterFenced, lambda: journal.append(claim, new, base), f"an append of {who}")
    ctx.equal(error.committed, None, f"what the fence of {who} says was committed")
    ctx.equal(error.current_epoch, None if before is None else before.epoch, f"the epoch in the error of {who}")
    ctx.raises(WriterFenced, lambda: journal.heartbeat(claim), f"a heartbeat of {who}")
    ctx.raises(WriterFenced, lambda: journal.release(claim), f"a release of {who}")
    same_head(ctx, journal, before, claim.key, f"refused calls of {who}")


@rule(
    "CLAIM-1.creates",
    level=1,
    hint="a second claim of the same writer returns the claim that is there: two processes of one name then both write",
    kills=("claim-reentrant",),
)
def creates(ctx: Context) -> None:
    """The first claim creates the journal; each claim raises the epoch, has a fresh nonce, fences the one before."""
    journal, key = ctx.journal, thread()
    ctx.equal(journal.list_threads(ThreadScope("user")).threads, (), "threads before the first claim")
    first = journal.claim(key, "writer")
    ctx.equal(journal.list_threads(ThreadScope("user")).threads, (key,), "threads after the first claim")
    ctx.check(first.epoch >= 1, f"the first epoch is {first.epoch}")
    ctx.equal((first.key, first.writer_id), (key, "writer"), "key and writer of the claim")
    ctx.equal((first.last_seq, first.checkpoint_seq), (0, None), "what the first claim knows of the journal")
    receipt = journal.append(first, batch("b1", 3, checkpoint=1), 0)
    claims = [first]
    for name in ("writer", "writer", "other"):
        claim = ctx.open_journal().claim(key, name)
        ctx.equal(claim.epoch, claims[-1].epoch + 1, f"the epoch of a further claim by {name}")
        ctx.equal(claim.journal_id, first.journal_id, "the journal's identity after another claim")
        ctx.equal((claim.last_seq, claim.checkpoint_seq), (receipt.last_seq, 2), "what a later claim knows")
        _fenced_everywhere(ctx, journal, claims[-1], 3, f"claim {claims[-1].epoch}")
        claims.append(claim)
    ctx.equal(len({claim.nonce for claim in claims}), len(claims), "how many different nonces the claims have")
    ctx.equal(journal.append(claims[-1], batch("b2"), 3).last_seq, 4, "the newest claim's append")
    ctx.raises(InvalidKey, lambda: journal.claim(key, ""), "a claim by nobody")


@rule(
    "CLAIM-1.replacing",
    level=1,
    hint="the condition is checked before the write and not with it, or a refused claim has written all the same",
    kills=("none-takes-over", "replacing-ignored", "busy-but-claimed"),
)
def replacing(ctx: Context) -> None:
    """`NONE` claims only a free journal, a claim only where exactly that one holds it; else WriterBusy and no trace."""
    journal, key = ctx.journal, thread()
    first = journal.claim(key, "first", replacing=NONE)
    before = head_of(ctx, journal, key)
    error = ctx.raises(WriterBusy, lambda: journal.claim(key, "second", replacing=NONE), "claiming a held journal")
    ctx.equal(error.holder, first.info, "the holder that WriterBusy names")
    wrong = {
        "another epoch": msgspec.structs.replace(first.info, epoch=first.epoch + 1),
        "another nonce": msgspec.structs.replace(first.info, nonce="0" * 32),
        "another journal": msgspec.structs.replace(first.info, journal_id="0" * 32),
    }
    for what, info in wrong.items():
        error = ctx.raises(
            WriterBusy, partial(journal.claim, key, "second", replacing=info), f"replacing a claim of {what}"
        )
        ctx.equal(error.holder, first.info, f"the holder after replacing a claim of {what}")
    same_head(ctx, journal, before, key, "refused claims")
    journal.append(first, batch("b1"), 0)
    second = journal.claim(key, "second", replacing=first.info)
    ctx.equal(second.epoch, first.epoch + 1, "the epoch of the claim that replaced")
    ctx.raises(WriterBusy, lambda: journal.claim(key, "third", replacing=first.info), "replacing a claim that is gone")
    journal.release(second)
    error = ctx.raises(
        WriterBusy, lambda: journal.claim(key, "third", replacing=second.info), "replacing a free journal"
    )
    ctx.equal(error.holder, None, "the holder of a free journal")
    third = journal.claim(key, "third", replacing=NONE)
    ctx.equal(third.epoch, second.epoch + 1, "the epoch after a release")
    ctx.equal(journal.append(third, batch("b2"), 1).last_seq, 2, "the append of the last claim")
    journal.delete(key)
    error = ctx.raises(WriterBusy, lambda: journal.claim(key, "x", replacing=third.info), "replacing a deleted claim")
    ctx.equal((error.holder, journal.head(key)), (None, None), "holder and head of a deleted journal")
    ctx.equal(journal.claim(key, "fourth", replacing=NONE).last_seq, 0, "the last seq of a new incarnation")


@rule(
    "CLAIM-2.pair",
    level=1,
    hint="only the epoch is compared: after a failover of the engine two writers may have the same",
    kills=("fence-by-epoch-only",),
)
def pair(ctx: Context) -> None:
    """The fence is epoch and nonce of this very incarnation: a claim that differs in one of them writes nothing.

    Cases: 4.
    """
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    writer.fill(2)
    claim = writer.claim
    _fenced_everywhere(ctx, journal, forged(claim, nonce="0" * 32), 2, "a claim with another nonce")
    _fenced_everywhere(ctx, journal, forged(claim, epoch=claim.epoch + 1), 2, "a claim with a newer epoch")
    _fenced_everywhere(ctx, journal, forged(claim, epoch=claim.epoch - 1), 2, "a claim with an older epoch")
    other = msgspec.structs.replace(claim, journal_id="f" * 32)
    _fenced_everywhere(ctx, journal, other, 2, "a claim of another incarnation")
    never = msgspec.structs.replace(claim, key=thread("never written"))
    _fenced_everywhere(ctx, journal, never, 2, "a claim on a journal that was never written")
    writer.fill(1)
    ctx.equal(head_of(ctx, journal, key).last_seq, 3, "the last seq of the true writer")


@rule(
    "CLAIM-2.paused",
    level=2,
    hint="the fence is read first and the head is written afterwards, in two steps",
    kills=("fence-checked-before-write", "epoch-check-left-out"),
)
def paused(ctx: Context) -> None:
    """A writer that is stopped just before its commit, and goes on after a takeover, writes nothing and is told so.

    Meanwhile the other claims, appends or not, trims and collects; core's journal over the backend's storage.
    Cases: 42, 57.
    """
    storage = ctx.open_atomic()
    payload = b'"' + b"x" * 40_000 + b'"'
    for appends in (0, 1, 3):
        for big in (False, True):
            key = thread(f"{appends} {big}")
            adversary = Adversary(storage)
            other = ctx.backend.journal_over(adversary.client())
            first = Writer(other, key, "first")
            first.fill(2, payload=payload if big else b"{}")

            def take_over(other: ThreadJournalStore = other, key: ThreadKey = key, appends: int = appends) -> None:
                second = Writer(other, key, "second")
                second.fill(appends, prefix="second", payload=payload)
                other.trim(key, 2)
                other.collect(key)

            stopped = ctx.backend.journal_over(adversary.client(gate=once("commit", take_over)))
            new = batch("zombie", 2, payload=payload if big else b"{}")
            error = ctx.raises(
                WriterFenced,
                partial(stopped.append, first.claim, new, 2),
                "the commit of a stopped writer",
            )
            ctx.equal(error.committed, None, "what its fence says was committed")
            ctx.saw("takeovers while paused")
            ids = [event.event_id for event in read_all(ctx, other, key, after=1)]
            ctx.equal(ids, ["b1.0"] + [f"second{place}.0" for place in range(appends)], "what the journal holds")
            ctx.equal(other.verify(key, deep=True).findings, (), "findings of a deep verification")
            ctx.raises(WriterFenced, partial(stopped.heartbeat, first.claim), "its next heartbeat")


@rule(
    "CLAIM-3",
    level=1,
    hint="releasing or deleting removes the record that held the epoch",
    kills=("epoch-reused-after-release", "epoch-reused-after-delete"),
)
def never_decreases(ctx: Context) -> None:
    """The epoch only grows: over releases, deletes, new incarnations and other handles; an old claim never fits again.

    Cases: 5.
    """
    key = thread()
    claims: list[WriterClaim] = []
    for turn in range(6):
        journal = ctx.open_journal()
        claim = journal.claim(key, "writer")
        ctx.check(
            not claims or claim.epoch > claims[-1].epoch,
            f"epoch {claim.epoch} was given after {claims[-1].epoch if claims else 0}",
        )
        claims.append(claim)
        journal.append(claim, batch(f"b{turn}"), claim.last_seq)
        if turn % 2:
            ctx.check(journal.delete(key), "delete() says that there was no journal")
        else:
            journal.release(claim)
            head = head_of(ctx, journal, key)
            ctx.equal((head.epoch, head.claim), (claim.epoch, None), "epoch and claim after a release")
            journal.release(claim)
    last = ctx.journal.claim(key, "last")
    ctx.check(last.epoch > claims[-1].epoch, "the last epoch is not the highest")
    for claim in claims:
        _fenced_everywhere(ctx, ctx.journal, claim, last.last_seq, f"the old claim of epoch {claim.epoch}")
    ctx.journal.append(last, batch("end"), last.last_seq)


@rule(
    "CLAIM-4",
    level=1,
    hint="a handle that meets a newer head reads it and goes on by itself, or looks at the fence when it claims only",
    kills=("reload-and-continue", "fence-at-claim-only", "epoch-check-left-out"),
)
def stays_fenced(ctx: Context) -> None:
    """A fenced writer stays fenced, whatever it reads and whatever the new one does, until it claims again.

    Cases: 4, 57.
    """
    journal, key = ctx.open_journal(), thread()
    old = Writer(journal, key, "old")
    old.fill(2)
    new = Writer(ctx.open_journal(), key, "new")
    for step in range(4):
        head = head_of(ctx, journal, key)
        read_all(ctx, journal, key)
        for base in {head.last_seq, old.base}:
            _fenced_everywhere(ctx, journal, old.claim, base, f"the fenced writer in step {step}")
        if step == 0:
            new.fill(1, prefix="new", events=2)
        elif step == 1:
            new.journal.heartbeat(new.claim)
        else:
            new.journal.release(new.claim)
    ids = [event.event_id for event in read_all(ctx, journal, key)]
    ctx.equal(ids, ["b0.0", "b1.0", "new0.0", "new0.1"], "what the journal holds")
    again = Writer(journal, key, "old")
    ctx.equal((again.base, again.append(batch("again")).last_seq), (4, 5), "base and append after claiming again")


@rule(
    "CLAIM-5.heartbeat",
    level=1,
    hint="a heartbeat is kept beside the head or not at all, and not compared with the claim",
    kills=("heartbeat-changes-nothing", "fenced-heartbeat-accepted"),
)
def heartbeat(ctx: Context) -> None:
    """A heartbeat changes generation and nonce of the head, so that an observer sees it, and nothing else."""
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    writer.fill(1)
    observer = ctx.open_journal()
    seen = head_of(ctx, observer, key)
    for _ in range(3):
        journal.heartbeat(writer.claim)
        head = head_of(ctx, observer, key)
        ctx.check(head.generation > seen.generation, "the observer does not see a heartbeat in the generation")
        ctx.check(head.nonce != seen.nonce, "the observer does not see a heartbeat in the nonce")
        expected = msgspec.structs.replace(seen, generation=head.generation, nonce=head.nonce)
        ctx.equal(head, expected, "the head after a heartbeat")
        seen = head
    writer.fill(1)
    claim = seen.claim
    ctx.equal(claim, writer.claim.info, "the claim that an observer sees")
    taker = observer.claim(key, "observer", replacing=writer.claim.info)
    ctx.raises(WriterFenced, lambda: journal.heartbeat(writer.claim), "a heartbeat after a takeover")
    ctx.equal(head_of(ctx, journal, key).claim, taker.info, "the claim after the refused heartbeat")


@rule(
    "CLAIM-5.no-clock",
    level=1,
    hint="a claim carries an expiry that is compared with a clock",
    kills=("lease-by-wall-clock",),
)
def no_clock(ctx: Context) -> None:
    """A claim does not run out: a writer that was silent still writes, and its journal is not free.

    The short silence proves nothing about long ones; it is there to meet leases that somebody has made short.
    """
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    time.sleep(_SILENCE_S)
    other = ctx.open_journal()
    error = ctx.raises(
        WriterBusy, lambda: other.claim(key, "other", replacing=NONE), "claiming a silent writer's journal"
    )
    ctx.equal(error.holder, writer.claim.info, "the holder after a silence")
    time.sleep(_SILENCE_S)
    ctx.equal(writer.append(batch("b1")).last_seq, 1, "the append of a writer that was silent")
    journal.heartbeat(writer.claim)


@rule(
    "CLAIM-6",
    level=1,
    hint="a lost reply is taken for a refusal, so that the claimant meets itself as the holder",
    kills=("unknown-taken-as-unavailable",),
)
def lost_reply(ctx: Context) -> None:
    """A claim whose reply was lost is settled by its nonce: it is returned, valid, and raised the epoch once."""
    for name, fates in {
        "applied": (Fate.AFTER,),
        "not applied": (Fate.BEFORE,),
        "late": (Fate.LATE,),
        "twice": (Fate.BEFORE, Fate.AFTER),
    }.items():
        key = thread(name)
        adversary = Adversary(ctx.open_atomic())
        fair = ctx.backend.journal_over(adversary.client())
        before = fair.claim(key, "before")
        fair.release(before)
        lossy = ctx.backend.journal_over(adversary.client(fate=scripted(*fates)))
        claim = lossy.claim(key, "claimant", replacing=NONE)
        ctx.check(adversary.lost == len(fates), f"{name}: the adversary kept no answer")
        ctx.equal(claim.epoch, before.epoch + 1, f"{name}: the epoch")
        while adversary.late:
            adversary.land()
        head = head_of(ctx, fair, key)
        ctx.equal((head.claim, head.epoch), (claim.info, claim.epoch), f"{name}: claim and epoch in the head")
        ctx.equal(lossy.append(claim, batch("b1"), 0).last_seq, 1, f"{name}: the append of the claimant")


@rule(
    "CLAIM-7",
    level=1,
    hint="opening or reading creates a record, or touches the head to see whether it may",
    kills=("read-bumps-generation", "read-creates"),
)
def reads_change_nothing(ctx: Context) -> None:
    """Reading claims, repairs, creates and bumps nothing: the head stays the very same, an absent journal absent."""
    journal, key, absent = ctx.journal, thread(), thread("absent")
    writer = Writer(journal, key)
    writer.fill(3, events=2)
    reader = ctx.open_journal()
    before = head_of(ctx, journal, key)
    scope = ThreadScope("user")
    for store in (reader, journal):
        store.head(key)
        store.read_after(key, 0, 3)
        store.read_after(key, 6)
        store.list_threads(scope)
        store.verify(key)
        store.verify(key, deep=True)
        same_head(ctx, journal, before, key, "reads")
        ctx.equal(store.head(absent), None, "the head of a journal that was never written")
        ctx.equal(store.read_after(absent, 0).events, (), "the events of a journal that was never written")
        ctx.equal(store.verify(absent, deep=True).findings, (), "findings where there is no journal")
        ctx.equal(store.list_threads(scope).threads, (key,), "threads after reading one that is not there")
    ctx.equal(journal.claim(absent, "writer").last_seq, 0, "the last seq of the journal that was only read")
    ctx.equal(writer.append(batch("more")).last_seq, 7, "the append after all the reads")


@rule(
    "CLAIM-8",
    level=1,
    hint="trim, collect, settle or a cursor claims the journal in order to write its head",
    kills=("trim-fences-writer",),
)
def maintenance(ctx: Context) -> None:
    """Maintenance moves the generation and never the epoch: the writer beside it goes on unfenced."""
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    writer.fill(4, events=2)
    other = ctx.open_journal()
    cursor = other.open_cursor(key, "exporter")
    steps = (
        ("open_cursor", lambda: other.open_cursor(key, "second")),
        ("advance_cursor", lambda: other.advance_cursor(cursor, 4)),
        ("reset_cursor", lambda: other.reset_cursor(key, "third", 4, expected_version=0)),
        ("trim", lambda: other.trim(key, 3)),
        ("collect", lambda: other.collect(key)),
        ("settle", lambda: other.settle(writer.claim, "never", writer.base)),
        ("verify", lambda: other.verify(key, deep=True)),
    )
    for name, step in steps:
        step()
        head = head_of(ctx, other, key)
        ctx.equal((head.epoch, head.claim), (writer.claim.epoch, writer.claim.info), f"epoch and claim after {name}")
        writer.fill(1, prefix=name)
        journal.heartbeat(writer.claim)
    ctx.equal(head_of(ctx, journal, key).last_seq, 8 + len(steps), "the last seq at the end")
