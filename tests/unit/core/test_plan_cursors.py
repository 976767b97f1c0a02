"""Cursor decisions and trims, in every combination of head, record and cursor (CURSOR, LIFE-2)."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from statebook.codec import CHAIN_START
from statebook.errors import (
    CursorConflict,
    CursorFenced,
    CursorInvalid,
    CursorRegression,
    JournalNotFound,
    JournalRegressed,
    Trimmed,
)
from statebook.keys import ThreadKey
from statebook.model import ExportCursor
from statebook.plan import Commit, Done, Refuse
from statebook.plan_cursors import plan_advance_cursor, plan_open_cursor, plan_reset_cursor, plan_trim
from statebook.records import CursorState, HeadState, JournalState

KEY = ThreadKey("u", "a", "s", "t")
OPEN = HeadState(KEY, "journal", 20, "n", 3, "cn", "w", JournalState.OPEN, 4, 10, None, "c" * 64)
DELETED = msgspec.structs.replace(
    OPEN, state=JournalState.DELETED, claim_nonce=None, writer_id=None, first_seq=1, last_seq=0, chain=CHAIN_START
)
HEADS: dict[str, HeadState | None] = {"absent": None, "deleted": DELETED, "open": OPEN}


def record(acked: int, journal_id: str = "journal", epoch: int = 2, nonce: str = "cursor-2") -> CursorState:
    return CursorState(KEY, "exp", journal_id, acked, epoch, nonce, 6)


RECORDS: dict[str, CursorState | None] = {
    "none": None,
    "foreign": record(5, "older"),
    "before the first event": record(2),
    "at the first event": record(3),
    "inside": record(7),
    "at the end": record(10),
    "ahead": record(11),
}
CURSORS = {
    "newest": ExportCursor(KEY, "exp", "journal", 7, 2, "cursor-2", 6),
    "older epoch": ExportCursor(KEY, "exp", "journal", 7, 1, "cursor-1", 5),
    "same epoch, other nonce": ExportCursor(KEY, "exp", "journal", 7, 2, "forged", 6),
    "same nonce, other epoch": ExportCursor(KEY, "exp", "journal", 7, 3, "cursor-2", 6),
    "other incarnation": ExportCursor(KEY, "exp", "older", 7, 2, "cursor-2", 6),
}


def position(acked: int) -> type[Exception] | None:
    """CURSOR-5, for the journal that holds 4 to 10."""
    return JournalRegressed if acked > 10 else Trimmed if acked < 3 else None


def open_error(head: str, stored: str) -> type[Exception] | None:
    if head != "open":
        return JournalNotFound
    state = RECORDS[stored]
    if state is None:
        return None
    return CursorInvalid if stored == "foreign" else position(state.acked_seq)


@pytest.mark.parametrize(("head", "stored"), list(product(HEADS, RECORDS)))
def test_opening_raises_the_epoch_and_repairs_nothing(head: str, stored: str) -> None:
    before = RECORDS[stored]
    decision = plan_open_cursor(HEADS[head], before, KEY, "exp", nonce="fresh")
    error = open_error(head, stored)
    if error is not None:
        assert isinstance(decision, Refuse)
        assert type(decision.error) is error
        if isinstance(decision.error, CursorInvalid):
            assert decision.error.version == 6
        return
    assert isinstance(decision, Commit)
    if before is None:  # a new cursor stands before the first event that is there
        assert decision.state == CursorState(KEY, "exp", "journal", 3, 1, "fresh", 1)
    else:
        assert decision.state == msgspec.structs.replace(before, epoch=3, nonce="fresh", version=7)


def advance_error(head: str, stored: str, cursor: str, to: int) -> type[Exception] | None:
    if head != "open":
        return JournalNotFound
    state = RECORDS[stored]
    if state is None or stored == "foreign" or cursor == "other incarnation":
        return CursorInvalid
    if cursor != "newest":
        return CursorFenced
    wrong = position(state.acked_seq)
    if wrong is not None:
        return wrong
    if to < state.acked_seq:
        return CursorRegression
    return JournalRegressed if to > 10 else None


def test_an_advance_goes_forward_by_the_newest_opener_only() -> None:
    outcomes = set()
    for head, stored, name, to in product(HEADS, RECORDS, CURSORS, range(13)):
        before = RECORDS[stored]
        decision = plan_advance_cursor(HEADS[head], before, CURSORS[name], to)
        error = advance_error(head, stored, name, to)
        case = (head, stored, name, to)
        if error is not None:
            assert isinstance(decision, Refuse), case
            assert type(decision.error) is error, case
            outcomes.add(error.__name__)
            continue
        assert before is not None
        if to == before.acked_seq:
            assert decision == Done(before.opened()), case
            outcomes.add("done")
        else:
            assert decision == Commit(msgspec.structs.replace(before, acked_seq=to, version=7)), case
            outcomes.add("commit")
    assert outcomes == {
        "JournalNotFound",
        "CursorInvalid",
        "CursorFenced",
        "JournalRegressed",
        "Trimmed",
        "CursorRegression",
        "done",
        "commit",
    }


def test_a_reset_is_conditional_on_the_version_and_opens() -> None:
    outcomes = set()
    for head, stored, to, version in product(HEADS, RECORDS, range(13), (0, 5, 6, 7)):
        before = RECORDS[stored]
        decision = plan_reset_cursor(HEADS[head], before, KEY, "exp", to, version, nonce="fresh")
        case = (head, stored, to, version)
        actual = 0 if before is None else 6
        error = JournalNotFound if head != "open" else position(to) or (CursorConflict if version != actual else None)
        if error is not None:
            assert isinstance(decision, Refuse), case
            assert type(decision.error) is error, case
            if isinstance(decision.error, CursorConflict):
                assert decision.error.current_version == actual
            outcomes.add(error.__name__)
            continue
        epoch = 1 if before is None else 3
        assert decision == Commit(CursorState(KEY, "exp", "journal", to, epoch, "fresh", actual + 1)), case
        outcomes.add("commit")
    assert outcomes == {"JournalNotFound", "JournalRegressed", "Trimmed", "CursorConflict", "commit"}


def test_a_reset_fences_the_opener_before_it() -> None:
    decision = plan_reset_cursor(OPEN, record(7), KEY, "exp", 5, 6, nonce="fresh")
    assert isinstance(decision, Commit)
    after = plan_advance_cursor(OPEN, decision.state, CURSORS["newest"], 8)
    assert isinstance(after, Refuse)
    assert isinstance(after.error, CursorFenced)
    assert after.error.current_epoch == 3


def test_a_cursor_that_skips_a_life_of_its_journal_is_repaired_by_a_reset_only() -> None:
    reborn = msgspec.structs.replace(OPEN, journal_id="reborn", epoch=9)
    for plan in (
        plan_open_cursor(reborn, record(7), KEY, "exp", nonce="fresh"),
        plan_advance_cursor(reborn, record(7), CURSORS["newest"], 8),
    ):
        assert isinstance(plan, Refuse)
        assert isinstance(plan.error, CursorInvalid)
    reset = plan_reset_cursor(reborn, record(7), KEY, "exp", 3, 6, nonce="fresh")
    assert isinstance(reset, Commit)
    assert (reset.state.journal_id, reset.state.acked_seq, reset.state.version) == ("reborn", 3, 7)


def test_a_trim_raises_the_first_seq_only_and_passes_neither_cursor_nor_checkpoint() -> None:
    outcomes = {"commit": 0, "done": 0}
    cursor_sets: dict[tuple[int, ...], tuple[CursorState, ...]] = {
        acked: tuple(msgspec.structs.replace(record(seq), exporter=f"e{seq}") for seq in acked)
        for acked in ((), (3,), (6,), (10,), (9, 5, 8))
    }
    for before, checkpoint, (acked, cursors), foreign in product(
        range(14), (None, 4, 7, 10), cursor_sets.items(), (False, True)
    ):
        head = msgspec.structs.replace(OPEN, checkpoint_seq=checkpoint)
        records = (*cursors, msgspec.structs.replace(record(1, "older"), exporter="f")) if foreign else cursors
        decision = plan_trim(head, KEY, before, iter(records), nonce="fresh")
        bounds = [before, 11, *(seq + 1 for seq in acked), *([] if checkpoint is None else [checkpoint])]
        first = min(bounds)
        if first <= 4:
            assert decision == Done(head.public())
            outcomes["done"] += 1
        else:
            assert decision == Commit(msgspec.structs.replace(head, generation=21, nonce="fresh", first_seq=first)), (
                before,
                checkpoint,
                acked,
                foreign,
            )
            outcomes["commit"] += 1
    assert min(outcomes.values()) > 50


@pytest.mark.parametrize("head", ["absent", "deleted"])
def test_there_is_nothing_to_trim_where_there_is_no_journal(head: str) -> None:
    decision = plan_trim(HEADS[head], KEY, 5, (), nonce="fresh")
    assert isinstance(decision, Refuse)
    assert isinstance(decision.error, JournalNotFound)
