"""LIFE, one caller at a time: trim, delete, purge. Listings are in `life_listing`, beginnings in `life_begin`."""

from __future__ import annotations

from functools import partial
from typing import Final, cast

from statebook.capabilities import Feature
from statebook.errors import (
    CursorInvalid,
    HeadConflict,
    JournalNotFound,
    JournalRegressed,
    Trimmed,
    UnsupportedCapability,
    WriterFenced,
)
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadScope
from statebook.medium import Medium
from statebook.model import CollectReport
from statebook_conformance.context import Context
from statebook_conformance.damage import medium_of, take
from statebook_conformance.rule import rule
from statebook_conformance.scenes import fill, make_batch, names, read_all, there, thread

_KEY: Final = thread()
_COLLECTS_MAX: Final = 4


def collect_all(journal: ThreadJournalStore) -> CollectReport:
    """Collect until nothing more is left for a later run, at most a few times."""
    report = journal.collect(_KEY)
    for _ in range(_COLLECTS_MAX):
        if report.kept == 0:
            break
        report = journal.collect(_KEY)
    return report


# ------------------------------------------------------------------------------------------------------------ LIFE-2


@rule(
    "LIFE-2.limits",
    level=1,
    hint="trim writes the number it was given; clamp it to active cursors, to the checkpoint and to the end",
    kills=("trim-passes-cursor", "trim-passes-checkpoint"),
)
def trim_stops(ctx: Context) -> None:
    """A trim passes neither an active cursor nor the checkpoint, and the head it returns shows where it stopped."""
    journal = ctx.journal
    claim = fill(journal, _KEY, [make_batch("a", 3), make_batch("b", 3, checkpoint=True), make_batch("c", 4)])
    slow, fast = journal.open_cursor(_KEY, "slow"), journal.open_cursor(_KEY, "fast")
    ctx.equal(journal.trim(_KEY, 10).first_seq, 1, "first_seq behind two cursors at 0")
    fast = journal.advance_cursor(fast, 9)
    slow = journal.advance_cursor(slow, 2)
    ctx.equal(ctx.open_journal().trim(_KEY, 10).first_seq, 3, "first_seq behind a cursor at 2, by another handle")
    ctx.equal(journal.advance_cursor(slow, 8).acked_seq, 8, "the slow cursor after the trim")
    trimmed = journal.trim(_KEY, 10)
    ctx.equal((trimmed.first_seq, trimmed.checkpoint_seq), (6, 6), "first_seq and checkpoint after a trim to 10")
    ctx.equal(names(read_all(ctx, journal, _KEY, after=5))[0], (6, "b.3"), "the checkpoint can be read after the trim")
    journal.append(claim, make_batch("d", 2, checkpoint=True), 10)
    ctx.equal(journal.trim(_KEY, 100).first_seq, 9, "first_seq behind a cursor at 8 with a newer checkpoint")
    ctx.equal(there(ctx, journal, _KEY).first_seq, 9, "first_seq of the head")
    journal.delete(_KEY)
    again = fill(journal, _KEY, [make_batch("e", 3)])
    ctx.equal(journal.trim(_KEY, 3).first_seq, 3, "first_seq where all cursors are of an older incarnation")
    ctx.equal(journal.trim(_KEY, 99).first_seq, 4, "first_seq of a journal without cursor and checkpoint")
    ctx.equal(journal.append(again, make_batch("f", 1), 3).first_seq, 4, "the first seq after everything was trimmed")


@rule(
    "LIFE-2.first-seq-only",
    level=1,
    hint="a trim renumbers, shortens, or fences the writer; it writes first_seq and nothing else",
    kills=("trim-renumbers", "trim-lowers-first-seq", "trim-fences-the-writer"),
)
def trim_raises_first_seq_only(ctx: Context) -> None:
    """A trim raises first_seq only: what is left keeps seq and bytes, the writer goes on, reads before are Trimmed."""
    journal = ctx.journal
    claim = fill(journal, _KEY, [make_batch("a", 4), make_batch("b", 4), make_batch("c", 4)])
    before, events = there(ctx, journal, _KEY), read_all(ctx, journal, _KEY)
    for wrong in (-1, True, cast("int", None), cast("int", "2")):
        ctx.raises(ValueError, partial(journal.trim, _KEY, wrong), f"trim to {wrong!r}")
    for number in (0, 1):
        ctx.equal(journal.trim(_KEY, number), before, f"the head after a trim to {number}")
    after = journal.trim(_KEY, 7)
    ctx.equal(after, there(ctx, journal, _KEY), "the head that trim returns, against the head that is read")
    kept = (after.first_seq, after.last_seq, after.epoch, after.claim, after.chain, after.journal_id)
    ctx.equal(
        kept, (7, 12, before.epoch, before.claim, before.chain, before.journal_id), "what a trim leaves as it was"
    )
    ctx.check(after.generation > before.generation, "a trim writes the head, so the generation grows")
    ctx.equal(read_all(ctx, journal, _KEY, after=6), events[6:], "events behind the trim, inside a batch")
    ctx.equal(journal.read_after(_KEY, 8, 2).events, events[8:10], "a page behind the trim")
    for seq in (0, 5):
        error = ctx.raises(Trimmed, partial(journal.read_after, _KEY, seq), f"a read after {seq}")
        ctx.equal(error.first_seq, 7, "the first_seq that Trimmed carries")
    ctx.raises(JournalRegressed, lambda: journal.read_after(_KEY, 13), "a read past the end")
    for number in (3, 7):
        ctx.equal(journal.trim(_KEY, number), after, f"the head after a trim to {number}, which is not further")
    receipt = journal.append(claim, make_batch("d", 1), 12)
    ctx.equal((receipt.first_seq, receipt.replayed), (13, False), "an append by the writer from before the trim")
    replay = journal.append(claim, make_batch("a", 4), 0)
    ctx.equal((replay.first_seq, replay.replayed), (1, True), "a trimmed batch sent again, within the window")
    ctx.raises(JournalNotFound, lambda: journal.trim(thread("never"), 1), "a trim without a journal")
    ctx.equal(journal.head(thread("never")), None, "the head after a refused trim")


@rule(
    "LIFE-2.shrinks",
    level=1,
    hint="a trim moves first_seq and leaves the bytes; remove whole batches below it, or let collect do so",
    kills=("trim-keeps-the-bytes",),
)
def trim_frees_the_medium(ctx: Context) -> None:
    """After a trim and a collection the medium holds nothing of the batches that are gone, and all of the others.

    Cases: 41.
    """
    medium, journal = medium_of(ctx), ctx.journal
    fill(journal, _KEY, [make_batch(f"b{number:02}", 2, size=9_000) for number in range(20)])
    events = read_all(ctx, journal, _KEY)
    full = take(medium)
    ctx.check(_holds(medium, b"b00.1"), "the medium does not hold what was appended as text")
    first = journal.trim(_KEY, 37).first_seq
    collect_all(journal)
    ctx.equal(first, 37, "first_seq after the trim")
    left = take(medium)
    sizes = sum(map(len, full.values())), sum(map(len, left.values()))
    ctx.check(sizes[1] < sizes[0] // 2, f"the medium held {sizes[0]} bytes before the trim and {sizes[1]} after it")
    for number in range(10):
        ctx.check(not _holds(medium, b"b%02d.1 b%02d.1" % (number, number)), f"batch {number} is left in the medium")
    journal.close()
    ctx.equal(read_all(ctx, ctx.open_journal(), _KEY, after=36), events[36:], "events behind the trim")


def _holds(medium: Medium, text: bytes) -> bool:
    return any(text in medium.read(record) for record in medium.records())


# ------------------------------------------------------------------------------------------------------------ LIFE-5


@rule(
    "LIFE-5.recreate",
    level=1,
    hint="delete removes the row, so that epoch and generation start again, or keeps receipts that swallow new batches",
    kills=("delete-resets-epoch", "delete-keeps-receipts", "delete-fences-nobody"),
)
def delete_and_recreate(ctx: Context) -> None:
    """A deleted journal is gone, its writer fenced; the next incarnation has a new id, a higher epoch, no receipts.

    Cases: 5, 58.
    """
    journal, other = ctx.open_journal(), ctx.open_journal()
    old = fill(journal, _KEY, [make_batch("b1", 3), make_batch("b2", 2)])
    before = there(ctx, journal, _KEY)
    ctx.equal(other.delete(_KEY), True, "delete of a journal that is there")
    for store in (journal, other):
        ctx.equal(store.head(_KEY), None, "the head of a deleted journal")
        ctx.equal(store.read_after(_KEY, 0).events, (), "a read of a deleted journal")
        ctx.raises(JournalRegressed, partial(store.read_after, _KEY, 1), "a read after 1 of a deleted journal")
        ctx.equal(store.list_threads(ThreadScope("user")).threads, (), "the listing after the delete")
        ctx.equal(store.delete(_KEY), False, "delete of a deleted journal")
    for name, call in {
        "append": lambda: journal.append(old, make_batch("b3"), 5),
        "replay": lambda: journal.append(old, make_batch("b2", 2), 3),
        "heartbeat": lambda: journal.heartbeat(old),
        "release": lambda: journal.release(old),
        "settle": lambda: journal.settle(old, "b2", 3),
    }.items():
        gone = ctx.raises(WriterFenced, call, f"{name} through the claim of a deleted journal")
        ctx.equal(gone.committed, None, f"what {name} on a deleted journal says was committed")
    new = other.claim(_KEY, "writer")
    ctx.check(new.journal_id != before.journal_id, "the next incarnation has the journal_id of the deleted one")
    ctx.check(new.epoch > before.epoch, f"the epoch went from {before.epoch} to {new.epoch} over a delete")
    now = there(ctx, journal, _KEY)
    ctx.check(now.generation > before.generation + 1, f"generation {before.generation}, then {now.generation}")
    ctx.equal((now.first_seq, now.last_seq, now.checkpoint_seq), (1, 0, None), "a new incarnation is empty")
    receipt = other.append(new, make_batch("b1", 3), 0)
    ctx.equal((receipt.first_seq, receipt.replayed, receipt.journal_id), (1, False, new.journal_id), "b1 again, anew")
    for batch, base in ((make_batch("b2", 2), 3), (make_batch("b1", 3), 0)):
        fenced = ctx.raises(
            WriterFenced,
            partial(journal.append, old, batch, base),
            "an append through the claim of the incarnation before",
        )
        ctx.equal((fenced.committed, fenced.current_epoch), (None, new.epoch), "what WriterFenced carries")
    ctx.equal(names(read_all(ctx, other, _KEY)), [(1, "b1.1"), (2, "b1.2"), (3, "b1.3")], "the new incarnation")
    ctx.equal(journal.delete(thread("never")), False, "delete of a journal that never was")


def _purge_refuses(ctx: Context) -> None:
    journal = ctx.journal
    fill(journal, _KEY, [make_batch("b", 2)])
    before = there(ctx, journal, _KEY)
    ctx.raises(UnsupportedCapability, lambda: journal.purge(_KEY), "purge of an open journal where it is not declared")
    ctx.equal(there(ctx, journal, _KEY), before, "the head after a refused purge")
    journal.delete(_KEY)
    ctx.raises(UnsupportedCapability, lambda: journal.purge(_KEY), "purge of a tombstone where it is not declared")
    ctx.check(journal.claim(_KEY, "writer").epoch > before.epoch, "a refused purge has removed the tombstone")


@rule(
    "LIFE-5.purge",
    level=1,
    needs=(Feature.PURGE,),
    probe=_purge_refuses,
    hint="purge does not look whether the journal is open, or leaves cursors and the tombstone behind",
    kills=("purge-of-an-open-journal", "purge-does-nothing"),
)
def purge(ctx: Context) -> None:
    """A purge removes the tombstone and all cursors; an open journal is refused and unchanged."""
    journal = ctx.journal
    ctx.equal(journal.purge(_KEY), False, "purge where there is nothing")
    old = fill(journal, _KEY, [make_batch("b", 2)])
    fill(journal, thread("other"), [make_batch("o", 2)])
    cursor = journal.advance_cursor(journal.open_cursor(_KEY, "x"), 1)
    before = there(ctx, journal, _KEY)
    ctx.raises(HeadConflict, lambda: journal.purge(_KEY), "purge of an open journal")
    ctx.equal(there(ctx, journal, _KEY), before, "the head after a refused purge")
    ctx.equal(names(read_all(ctx, journal, _KEY)), [(1, "b.1"), (2, "b.2")], "the events after a refused purge")
    journal.delete(_KEY)
    ctx.equal((journal.purge(_KEY), journal.purge(_KEY)), (True, False), "purge of a tombstone, and again")
    ctx.equal(journal.head(_KEY), None, "the head after the purge")
    new = ctx.open_journal().claim(_KEY, "writer")
    ctx.equal(new.epoch, 1, "the epoch of the first claim after a purge")
    ctx.check((new.journal_id, new.nonce) != (old.journal_id, old.nonce), "identity and nonce came back after a purge")
    ctx.raises(WriterFenced, lambda: journal.append(old, make_batch("c"), 0), "an append through the purged claim")
    ctx.raises(CursorInvalid, lambda: journal.advance_cursor(cursor, 1), "an advance of a purged cursor")
    ctx.equal(journal.open_cursor(_KEY, "x").version, 1, "the version of a cursor opened after the purge")
    ctx.equal(names(read_all(ctx, journal, thread("other"))), [(1, "o.1"), (2, "o.2")], "another journal")


@rule(
    "LIFE-5.no-leftover",
    level=1,
    hint="delete misses some names, such as cursors, blobs or index entries, and reports success ",
    kills=("journal-delete-leaves-orphans",),
)
def nothing_is_left(ctx: Context) -> None:
    """After a delete the medium holds none of the journal's events, and after a purge nothing of it at all.

    Cases: 20.
    """
    medium, journal = medium_of(ctx), ctx.journal
    fill(journal, thread("other"), [make_batch("o", 2)])
    empty = medium.records()
    odd = thread("{x}*?%/..")
    for key in (_KEY, odd):
        fill(journal, key, [make_batch(f"b{number}", 2, size=9_000) for number in range(10)])
        journal.open_cursor(key, "{x}")
        journal.trim(key, 9)
    for key in (_KEY, odd):
        ctx.equal(journal.delete(key), True, f"delete of {key.thread_id!r}")
        journal.collect(key)
        journal.collect(key)
    ctx.check(len(medium.records()) > len(empty), "a delete has left no tombstone: the epoch would start again")
    for record in medium.records():
        ctx.check(b"b3.1 b3.1" not in medium.read(record), f"events of a deleted journal are left in {record}")
    if ctx.claims(Feature.PURGE):
        ctx.equal([journal.purge(key) for key in (_KEY, odd)], [True, True], "purge")
        ctx.equal(sorted(set(medium.records()) - set(empty)), [], "records that are left after the purge")
    ctx.equal(names(read_all(ctx, journal, thread("other"))), [(1, "o.1"), (2, "o.2")], "another journal")
    ctx.equal(journal.verify(thread("other"), deep=True).findings, (), "findings in another journal")
