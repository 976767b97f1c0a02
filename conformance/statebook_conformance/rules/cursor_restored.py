"""CURSOR-5 over the medium: an old head under a newer cursor, and an old cursor under a newer trim."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Final

from statebook.errors import JournalRegressed, Trimmed
from statebook_conformance.context import Context
from statebook_conformance.damage import changed, medium_of, take
from statebook_conformance.rule import rule
from statebook_conformance.scenes import fill, make_batch, thread

_KEY: Final = thread()


@rule(
    "CURSOR-5.old-head",
    level=1,
    hint="a cursor ahead of the journal is moved to its end; then what is written next is skipped",
    kills=("restored-cursor-repairs-itself",),
)
def old_head(ctx: Context) -> None:
    """An older copy of a journal under a newer cursor is JournalRegressed for its exporter, and nothing moves.

    Cases: 50.
    """
    medium = medium_of(ctx)
    with closing(ctx.backend.open_journal()) as journal:
        claim = fill(journal, _KEY, [make_batch("a", 3)])
        opened = journal.open_cursor(_KEY, "x")
        old = take(medium)
        journal.append(claim, make_batch("b", 3), 3)
        grown = take(medium)
        cursor = journal.advance_cursor(opened, 6)
        now = take(medium)
    of_cursor = changed(grown, now)
    for record in sorted(now.keys() - old.keys() - of_cursor):
        if record in medium.records():
            medium.remove(record)
    for record in sorted(old.keys() - of_cursor):
        if now.get(record) != old[record]:
            medium.write(record, old[record])
    before = take(medium)
    with closing(ctx.backend.open_journal()) as journal:
        for name, call in {
            "open_cursor": partial(journal.open_cursor, _KEY, "x"),
            "advance_cursor": partial(journal.advance_cursor, cursor, 6),
        }.items():
            error = ctx.raises(JournalRegressed, call, f"{name} with a cursor ahead of the journal")
            ctx.equal((error.last_seq, error.seen_seq), (3, 6), f"last_seq and seen_seq of {name}'s error")
        ctx.check(take(medium) == before, "a refused cursor call has changed the medium")
        ctx.check(journal.verify(_KEY).findings, "verify finds nothing wrong with a cursor ahead of the journal")


@rule(
    "CURSOR-5.old-cursor",
    level=1,
    hint="a cursor before the first event is moved there, and the exporter never learns what it has missed",
    kills=("restored-cursor-repairs-itself",),
)
def old_cursor(ctx: Context) -> None:
    """An older copy of a cursor under a newer trim is Trimmed for its exporter, and nothing moves.

    Cases: 50.
    """
    medium = medium_of(ctx)
    with closing(ctx.backend.open_journal()) as journal:
        fill(journal, _KEY, [make_batch("a", 3), make_batch("b", 3)])
        cursor = journal.advance_cursor(journal.open_cursor(_KEY, "x"), 1)
        old = take(medium)
        journal.advance_cursor(cursor, 6)
        of_cursor = changed(old, take(medium))
        ctx.equal(journal.trim(_KEY, 5).first_seq, 5, "first_seq after the trim")
    for record in sorted(of_cursor):
        medium.write(record, old[record])
    before = take(medium)
    with closing(ctx.backend.open_journal()) as journal:
        for name, call in {
            "open_cursor": partial(journal.open_cursor, _KEY, "x"),
            "advance_cursor": partial(journal.advance_cursor, cursor, 2),
        }.items():
            error = ctx.raises(Trimmed, call, f"{name} with a cursor before the first event")
            ctx.equal(error.first_seq, 5, f"the first_seq of {name}'s error")
        ctx.check(take(medium) == before, "a refused cursor call has changed the medium")
