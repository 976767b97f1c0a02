"""CURSOR, one caller at a time: own records, forward only, never past the end, and errors instead of guesses."""

from __future__ import annotations

from functools import partial
from typing import Final, cast

from statebook.errors import (
    CursorConflict,
    CursorFenced,
    CursorInvalid,
    CursorRegression,
    InvalidKey,
    JournalNotFound,
    JournalRegressed,
    Trimmed,
)
from statebook.keys import ThreadScope
from statebook_conformance.context import Context
from statebook_conformance.identifiers import refused_ids, telling_ids
from statebook_conformance.rule import rule
from statebook_conformance.scenes import fill, make_batch, names, read_all, there, thread

_KEY: Final = thread()
_NO_SEQS: Final = (-1, True, cast("int", "4"), cast("int", 4.0), cast("int", None))


def _stands(ctx: Context, exporter: str) -> int:
    """Where a cursor stands, seen through a fresh handle. Opens it: its earlier opener is fenced."""
    return ctx.open_journal().open_cursor(_KEY, exporter).acked_seq


@rule(
    "CURSOR-1",
    level=1,
    hint="cursors live in the head or in one record for all exporters, or their names pass a collation",
    kills=("cursor-moves-the-head", "cursor-names-fold-case"),
)
def own_record(ctx: Context) -> None:
    """Each exporter has a cursor of its own, whatever its name; moving one moves neither the head nor another one."""
    journal = ctx.journal
    fill(journal, _KEY, [make_batch("b", 50)])
    before = there(ctx, journal, _KEY)
    exporters = telling_ids()
    cursors = {name: journal.open_cursor(_KEY, name) for name in exporters}
    for place, name in enumerate(exporters, 1):
        cursor = cursors[name]
        ctx.equal((cursor.key, cursor.exporter, cursor.acked_seq), (_KEY, name, 0), f"a new cursor of {name[:20]!r}")
        ctx.equal(cursor.journal_id, before.journal_id, "the incarnation that a new cursor exports")
        ctx.equal(journal.advance_cursor(cursor, place).acked_seq, place, f"the cursor of {name[:20]!r} after advance")
    ctx.equal(there(ctx, journal, _KEY), before, "the head after cursors were opened and moved")
    for place, name in enumerate(exporters, 1):
        ctx.equal(_stands(ctx, name), place, f"the cursor of {name[:20]!r} seen by another handle")
    for name, why in refused_ids()[:6]:
        ctx.raises(InvalidKey, partial(journal.open_cursor, _KEY, name), f"open_cursor with an id that is {why}")


@rule(
    "CURSOR-2",
    level=1,
    hint="the cursor's epoch is kept by the handle, or only looked at when a cursor is opened",
    kills=("cursor-not-fenced", "cursor-fenced-in-memory"),
)
def newest_opener(ctx: Context) -> None:
    """Opening raises the epoch; only the newest opener may advance, whichever handle it came through.

    Cases: 48.
    """
    old, new = ctx.open_journal(), ctx.open_journal()
    fill(old, _KEY, [make_batch("b", 9)])
    first = old.advance_cursor(old.open_cursor(_KEY, "x"), 2)
    second = new.open_cursor(_KEY, "x")
    ctx.check(second.epoch > first.epoch, f"the epoch went from {first.epoch} to {second.epoch} with a new opener")
    ctx.check(second.nonce != first.nonce, "the second opener has the nonce of the first")
    ctx.equal(second.acked_seq, 2, "where the second opener finds the cursor")
    for to_seq in (2, 3, 9):
        error = ctx.raises(
            CursorFenced, partial(old.advance_cursor, first, to_seq), f"the old opener's advance to {to_seq}"
        )
        ctx.equal(error.current_epoch, second.epoch, "the epoch that CursorFenced carries")
    second = new.advance_cursor(second, 5)
    ctx.raises(CursorFenced, lambda: new.advance_cursor(first, 7), "the old cursor through the new handle")
    third = new.open_cursor(_KEY, "x")
    ctx.equal((third.acked_seq, third.epoch > second.epoch), (5, True), "the third opener's place and epoch")
    ctx.raises(CursorFenced, lambda: new.advance_cursor(second, 6), "the second opener after the third, one handle")
    ctx.equal(old.advance_cursor(third, 6).acked_seq, 6, "the third cursor through another handle")


@rule(
    "CURSOR-3.forward",
    level=1,
    hint="the position is written as it is given; compare it with acked_seq and last_seq in the same step",
    kills=("cursor-goes-back", "cursor-passes-the-end"),
)
def forward_only(ctx: Context) -> None:
    """An advance goes from acked_seq to last_seq: CursorRegression before that, JournalRegressed behind it."""
    journal = ctx.journal
    claim = fill(journal, _KEY, [make_batch("b", 5)])
    cursor = journal.advance_cursor(journal.open_cursor(_KEY, "x"), 3)
    ctx.equal(cursor.acked_seq, 3, "the cursor after advance to 3")
    for to_seq in (0, 2):
        ctx.raises(CursorRegression, partial(journal.advance_cursor, cursor, to_seq), f"from 3 back to {to_seq}")
    for to_seq in (6, 1 << 40):
        error = ctx.raises(
            JournalRegressed, partial(journal.advance_cursor, cursor, to_seq), f"to {to_seq} of a journal of 5"
        )
        ctx.equal((error.last_seq, error.seen_seq), (5, to_seq), "last_seq and seen_seq of the error")
    for wrong in _NO_SEQS:
        ctx.raises(ValueError, partial(journal.advance_cursor, cursor, wrong), f"advance to {wrong!r}")
    ctx.equal(journal.advance_cursor(cursor, 5).acked_seq, 5, "the cursor at the end")
    journal.append(claim, make_batch("c", 1), 5)
    ctx.equal(journal.advance_cursor(cursor, 6).acked_seq, 6, "the cursor after the journal has grown")
    ctx.equal(_stands(ctx, "x"), 6, "the cursor seen by another handle")


@rule(
    "CURSOR-3.retry",
    level=1,
    hint="an advance is conditional on the version of the record instead of on epoch and nonce",
    kills=("cursor-advances-by-version",),
)
def retry_is_harmless(ctx: Context) -> None:
    """An advance may be sent again, and with the cursor as it was opened: it stays where it is, and goes on."""
    journal = ctx.journal
    fill(journal, _KEY, [make_batch("b", 6)])
    opened = journal.open_cursor(_KEY, "x")
    moved = journal.advance_cursor(opened, 4)
    for cursor in (opened, moved, opened):
        again = journal.advance_cursor(cursor, 4)
        ctx.equal((again.acked_seq, again.epoch, again.nonce), (4, opened.epoch, opened.nonce), "the advance again")
    ctx.equal(journal.advance_cursor(opened, 5).acked_seq, 5, "a further advance with the cursor as it was opened")
    ctx.raises(CursorRegression, lambda: journal.advance_cursor(opened, 4), "a late advance to where it was before")
    ctx.equal(_stands(ctx, "x"), 5, "the cursor seen by another handle")


@rule(
    "CURSOR-3.reset",
    level=1,
    hint="a reset is a plain write; it is conditional on the version of the record, and an opening as well",
    kills=("cursor-reset-unconditional", "cursor-reset-fences-nobody"),
)
def reset_is_conditional(ctx: Context) -> None:
    """A reset is explicit: forward or back, conditional on the record's version, and it fences the earlier opener."""
    journal, other = ctx.open_journal(), ctx.open_journal()
    fill(journal, _KEY, [make_batch("b", 6)])
    wrong = ctx.raises(
        CursorConflict,
        lambda: journal.reset_cursor(_KEY, "x", 3, expected_version=4),
        "a reset that expects version 4 of a cursor that was never opened",
    )
    ctx.equal(wrong.current_version, 0, "the version of a cursor that was never opened")
    made = journal.reset_cursor(_KEY, "x", 3, expected_version=0)
    ctx.equal(made.acked_seq, 3, "a cursor that a reset made")
    moved = journal.advance_cursor(made, 5)
    for version in (0, made.version, moved.version + 1):
        conflict = ctx.raises(
            CursorConflict,
            partial(other.reset_cursor, _KEY, "x", 1, expected_version=version),
            f"a reset that expects version {version} of a record at {moved.version}",
        )
        ctx.equal(conflict.current_version, moved.version, "the version that CursorConflict carries")
    regressed = ctx.raises(
        JournalRegressed,
        lambda: other.reset_cursor(_KEY, "x", 7, expected_version=moved.version),
        "a reset past the end",
    )
    ctx.equal(regressed.last_seq, 6, "the last_seq that the error carries")
    ctx.equal(journal.advance_cursor(moved, 5).version, moved.version, "the version after refused resets")
    back = other.reset_cursor(_KEY, "x", 1, expected_version=moved.version)
    ctx.equal((back.acked_seq, back.version > moved.version), (1, True), "a reset back, on purpose")
    ctx.raises(CursorFenced, lambda: journal.advance_cursor(moved, 6), "an advance by the opener before the reset")
    ctx.equal(other.advance_cursor(back, 2).acked_seq, 2, "an advance by the one who has reset")
    for bad in _NO_SEQS:
        ctx.raises(ValueError, partial(journal.reset_cursor, _KEY, "x", bad, expected_version=1), f"to {bad!r}")
        ctx.raises(ValueError, partial(journal.reset_cursor, _KEY, "x", 1, expected_version=bad), f"version {bad!r}")
    ctx.equal(_stands(ctx, "x"), 2, "the cursor seen by another handle")


@rule(
    "CURSOR-4",
    level=1,
    hint="the position is kept by batch, or moved when events are read instead of when they are acknowledged",
    kills=("cursor-kept-by-batch", "cursor-moved-before-the-acknowledgement"),
)
def middle_of_a_batch(ctx: Context) -> None:
    """A crash after event 2 of 5 of one batch: the next opener stands at 2, and what follows is read from 3.

    Cases: 47, 49.
    """
    journal = ctx.open_journal()
    fill(journal, _KEY, [make_batch("b", 5), make_batch("c", 2)])
    cursor = journal.open_cursor(_KEY, "x")
    delivered = journal.read_after(_KEY, cursor.acked_seq, 5).events[:2]
    ctx.equal(names(delivered), [(1, "b.1"), (2, "b.2")], "what is delivered first")
    journal.advance_cursor(cursor, delivered[-1].seq)
    journal.close()
    again = ctx.open_journal()
    cursor = again.open_cursor(_KEY, "x")
    ctx.equal(cursor.acked_seq, 2, "the cursor after the crash")
    pending = again.read_after(_KEY, cursor.acked_seq, 100).events
    ctx.equal(names(pending), [(3, "b.3"), (4, "b.4"), (5, "b.5"), (6, "c.1"), (7, "c.2")], "what is delivered later")
    ctx.equal(_stands(ctx, "x"), 2, "the cursor after an opener that acknowledged nothing")


@rule(
    "CURSOR-5.incarnation",
    level=1,
    hint="the cursor's record is keyed by exporter alone; it belongs to one journal_id",
    kills=("cursor-survives-delete", "cursor-repairs-itself"),
)
def another_incarnation(ctx: Context) -> None:
    """A cursor of a deleted journal is CursorInvalid on the next incarnation, until it is reset on purpose.

    Cases: 58.
    """
    journal, other = ctx.open_journal(), ctx.open_journal()
    fill(journal, _KEY, [make_batch("b", 5)])
    old = journal.advance_cursor(journal.open_cursor(_KEY, "x"), 3)
    journal.delete(_KEY)
    ctx.raises(JournalNotFound, lambda: journal.advance_cursor(old, 4), "an advance on a deleted journal")
    fill(other, _KEY, [make_batch("c", 5)])
    for store in (journal, other, ctx.open_journal()):
        invalid = ctx.raises(CursorInvalid, partial(store.open_cursor, _KEY, "x"), "open on the new incarnation")
        ctx.equal(invalid.version, old.version, "the version that CursorInvalid carries")
        ctx.raises(CursorInvalid, partial(store.advance_cursor, old, 4), "an advance with the old cursor")
    fresh = other.open_cursor(_KEY, "y")
    ctx.equal((fresh.acked_seq, fresh.journal_id != old.journal_id), (0, True), "another exporter's new cursor")
    repaired = journal.reset_cursor(_KEY, "x", 1, expected_version=old.version)
    ctx.equal(repaired.acked_seq, 1, "the cursor after a reset on purpose")
    ctx.equal(other.advance_cursor(repaired, 2).acked_seq, 2, "an advance after the reset")
    ctx.equal(_stands(ctx, "x"), 2, "the cursor seen by another handle")


@rule(
    "CURSOR-5.gone",
    level=1,
    hint="opening a cursor creates a record, or the journal itself, without a look at the head",
    kills=("cursor-creates-the-journal",),
)
def no_journal(ctx: Context) -> None:
    """Without a journal every cursor call is JournalNotFound, and nothing comes to be, before and after a delete."""
    journal = ctx.journal
    fill(journal, _KEY, [make_batch("b", 3)])
    cursor = journal.open_cursor(_KEY, "x")
    journal.delete(_KEY)
    for key in (_KEY, thread("never")):
        ctx.raises(JournalNotFound, partial(journal.open_cursor, key, "new"), "open_cursor without a journal")
        ctx.raises(
            JournalNotFound,
            partial(journal.reset_cursor, key, "new", 0, expected_version=0),
            "reset_cursor without a journal",
        )
        ctx.equal(journal.head(key), None, "the head after refused cursor calls")
    ctx.raises(JournalNotFound, lambda: journal.advance_cursor(cursor, 1), "advance_cursor without a journal")
    listed = journal.list_threads(ThreadScope("user")).threads
    ctx.equal(listed, (), "the threads that are listed after refused cursor calls")
    fill(journal, _KEY, [make_batch("c", 3)])
    ctx.equal(journal.open_cursor(_KEY, "new").version, 1, "the version of a cursor that no refused call has made")


@rule(
    "CURSOR-5.trimmed",
    level=1,
    hint="a new cursor starts at 0 whatever was trimmed; it stands before the first event that is there",
    kills=("cursor-ignores-the-trim",),
)
def below_a_trim(ctx: Context) -> None:
    """A new cursor of a trimmed journal stands at first_seq - 1, and a reset to before that is Trimmed.

    Cases: 50.
    """
    journal = ctx.journal
    fill(journal, _KEY, [make_batch("b", 3), make_batch("c", 3)])
    ctx.equal(journal.trim(_KEY, 4).first_seq, 4, "first_seq after the trim")
    cursor = journal.open_cursor(_KEY, "x")
    ctx.equal(cursor.acked_seq, 3, "where a new cursor of a trimmed journal stands")
    ctx.equal(names(read_all(ctx, journal, _KEY, after=cursor.acked_seq))[0], (4, "c.1"), "the first pending event")
    for to_seq in (0, 2):
        error = ctx.raises(
            Trimmed,
            partial(journal.reset_cursor, _KEY, "x", to_seq, expected_version=cursor.version),
            f"a reset to {to_seq} of a journal that begins at 4",
        )
        ctx.equal(error.first_seq, 4, "the first_seq that Trimmed carries")
    ctx.equal(journal.advance_cursor(cursor, 3).version, cursor.version, "the version after refused resets")
