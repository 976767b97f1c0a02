"""Every combination of the append table, against an oracle that is the table itself (APPEND)."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest

from statebook.capabilities import Limits
from statebook.codec import CHAIN_START, chain_next
from statebook.errors import BatchConflict, HeadConflict, JournalRegressed, Trimmed, WriterFenced
from statebook.keys import ThreadKey
from statebook.model import Batch, Event, Receipt, WriterClaim
from statebook.plan import Commit, Done, Refuse, admits, extended, plan_append, plan_settle, receipt_of
from statebook.records import FrozenBatch, HeadState, JournalState, freeze

KEY = ThreadKey("u", "a", "s", "t")
BASE = 10
CLAIM = WriterClaim(KEY, "journal", "writer", 3, "claim-nonce", BASE)
CHAIN = "c" * 64


def event(number: int, type_: str = "x/y") -> Event:
    return Event(event_id=f"e{number}", type=type_, occurred_at=0, payload=b"{}")


def frozen(*types: str) -> FrozenBatch:
    batch = Batch("batch", tuple(event(number, type_) for number, type_ in enumerate(types)))
    return freeze(batch, Limits(), KEY)


BATCH = frozen("x/y", "x/y", "x/y")
SAME = Receipt("batch", "journal", 11, 13, 2, BATCH.digest)
OTHER = msgspec.structs.replace(SAME, digest="0" * 64)
OPEN = HeadState(KEY, "journal", 20, "n", 3, "claim-nonce", "writer", JournalState.OPEN, 4, BASE, 5, CHAIN)
HOLDERS: dict[str, dict[str, Any]] = {
    "current": {},
    "newer claim": {"epoch": 4, "claim_nonce": "newer", "writer_id": "other"},
    "released": {"claim_nonce": None, "writer_id": None},
    "released and epoch moved": {"epoch": 4, "claim_nonce": None, "writer_id": None},
    "same epoch, other nonce": {"claim_nonce": "forged"},
    "same nonce, other epoch": {"epoch": 4},
    "other incarnation": {"journal_id": "other"},
    "other incarnation, same fence": {"journal_id": "other", "epoch": 3, "claim_nonce": "claim-nonce"},
    "tombstone": {"state": JournalState.DELETED, "claim_nonce": None, "writer_id": None, "last_seq": 0, "first_seq": 1},
}
GONE = ("absent", "other incarnation", "other incarnation, same fence", "tombstone")


def head_for(holder: str, base_against_head: str) -> HeadState | None:
    if holder == "absent":
        return None
    last = {"behind": BASE + 2, "equal": BASE, "ahead": BASE - 3}[base_against_head]
    return msgspec.structs.replace(OPEN, **{"last_seq": last, **HOLDERS[holder]})


def expected(placed: Receipt | None, overlap: str | None, holder: str, base: str) -> str:
    """The table of the contract, row by row. What is gone holds no batch, so nothing is in its chain."""
    if holder not in GONE:
        if placed is OTHER:
            return "BatchConflict"
        if placed is SAME:
            return "receipt" if holder == "current" else "WriterFenced(receipt)"
        if overlap is not None:
            return "BatchConflict(overlap)"
    if holder != "current":
        return "WriterFenced(None)"
    return {"behind": "HeadConflict", "ahead": "JournalRegressed", "equal": "commit"}[base]


def answer(decision: object) -> str:
    if isinstance(decision, Commit):
        return "commit"
    if isinstance(decision, Done):
        assert decision.answer == msgspec.structs.replace(SAME, replayed=True)
        return "receipt"
    assert isinstance(decision, Refuse)
    error = decision.error
    assert error.key == KEY.name
    if isinstance(error, WriterFenced):
        assert error.committed in (None, msgspec.structs.replace(SAME, replayed=True))
        return "WriterFenced(None)" if error.committed is None else "WriterFenced(receipt)"
    if isinstance(error, BatchConflict):
        assert error.batch_id == "batch"
        return "BatchConflict" if error.event_id is None else "BatchConflict(overlap)"
    return type(error).__name__


CASES = list(product((None, SAME, OTHER), (None, "e1"), ("absent", *HOLDERS), ("behind", "equal", "ahead")))


def test_every_combination_gets_the_answer_of_the_table() -> None:
    seen: dict[str, int] = {}
    for placed, overlap, holder, base in CASES:
        head = head_for(holder, base)
        decision = plan_append(head, CLAIM, BATCH, BASE, placed=placed, overlap=overlap, nonce="fresh")
        wanted = expected(placed, overlap, holder, base)
        assert answer(decision) == wanted, (placed, overlap, holder, base)
        seen[wanted] = seen.get(wanted, 0) + 1
    assert len(CASES) == 180
    assert set(seen) == {
        "BatchConflict",
        "BatchConflict(overlap)",
        "WriterFenced(None)",
        "WriterFenced(receipt)",
        "receipt",
        "HeadConflict",
        "JournalRegressed",
        "commit",
    }
    assert seen["commit"] == 1  # of all combinations exactly one writes


def test_what_is_admitted_without_asking_further_is_what_the_table_commits() -> None:
    admitted = 0
    for holder, base in product(HOLDERS, ("behind", "equal", "ahead")):
        head = head_for(holder, base)
        assert head is not None
        decision = plan_append(head, CLAIM, BATCH, BASE, placed=None, overlap=None, nonce="fresh")
        assert admits(head, CLAIM, BASE) == isinstance(decision, Commit), (holder, base)
        if isinstance(decision, Commit):
            admitted += 1
            assert extended(head, BATCH, "fresh") == decision.state
    assert admitted == 1


def test_a_commit_changes_what_it_must_and_nothing_else() -> None:
    decision = plan_append(OPEN, CLAIM, BATCH, BASE, placed=None, overlap=None, nonce="fresh")
    assert isinstance(decision, Commit)
    assert decision.state == msgspec.structs.replace(
        OPEN,
        generation=21,
        nonce="fresh",
        last_seq=13,
        chain=chain_next(CHAIN, BATCH.digest, 11, 13, 3),
    )
    assert receipt_of(decision.state, BATCH) == Receipt("batch", "journal", 11, 13, 3, BATCH.digest, False)


@pytest.mark.parametrize(
    ("types", "checkpoint"),
    [
        (("x/y",), 5),
        (("state/checkpoint",), 11),
        (("x/y", "state/checkpoint", "x/y"), 12),
        (("state/initialized", "state/checkpoint"), 12),
        (("state/restored", "x/state/checkpoint"), 5),
    ],
)
def test_a_checkpoint_moves_in_the_same_commit(types: tuple[str, ...], checkpoint: int) -> None:
    decision = plan_append(OPEN, CLAIM, frozen(*types), BASE, placed=None, overlap=None, nonce="fresh")
    assert isinstance(decision, Commit)
    assert decision.state.checkpoint_seq == checkpoint


def test_refusals_carry_what_the_caller_needs() -> None:
    def refused(holder: str, base: str) -> Any:
        decision = plan_append(head_for(holder, base), CLAIM, BATCH, BASE, placed=None, overlap=None, nonce="fresh")
        assert isinstance(decision, Refuse)
        return decision.error

    conflict = refused("current", "behind")
    assert isinstance(conflict, HeadConflict)
    assert (conflict.last_seq, conflict.base_seq) == (12, 10)
    regressed = refused("current", "ahead")
    assert isinstance(regressed, JournalRegressed)
    assert (regressed.last_seq, regressed.seen_seq) == (7, 10)
    assert refused("newer claim", "equal").current_epoch == 4
    assert refused("absent", "equal").current_epoch is None


def test_decisions_do_not_change_what_they_judge() -> None:
    before = msgspec.structs.asdict(OPEN)
    plan_append(OPEN, CLAIM, BATCH, BASE, placed=None, overlap=None, nonce="fresh")
    plan_append(OPEN, CLAIM, BATCH, BASE, placed=SAME, overlap=None, nonce="fresh")
    assert msgspec.structs.asdict(OPEN) == before
    assert SAME.replayed is False


SETTLE_CASES = list(product((None, SAME), ("absent", *HOLDERS), ("behind", "equal", "ahead"), (2, 3, BASE)))


def test_a_settlement_answers_or_makes_a_barrier_for_fenced_writers_too() -> None:
    counts = {"receipt": 0, "barrier": 0, "trimmed": 0, "fenced": 0}
    for placed, holder, base_against_head, base in SETTLE_CASES:
        head = head_for(holder, base_against_head)
        decision = plan_settle(head, CLAIM, base, placed=placed, nonce="fresh")
        case = (placed, holder, base_against_head, base)
        if holder in GONE:
            assert isinstance(decision, Refuse), case
            assert isinstance(decision.error, WriterFenced), case
            counts["fenced"] += 1
        elif placed is not None:
            assert decision == Done(msgspec.structs.replace(placed, replayed=True)), case
            counts["receipt"] += 1
        elif base == 2:  # the batch would begin at 3, and the journal begins at 4
            assert isinstance(decision, Refuse), case
            assert isinstance(decision.error, Trimmed), case
            counts["trimmed"] += 1
        else:
            assert head is not None
            assert decision == Commit(msgspec.structs.replace(head, generation=head.generation + 1, nonce="fresh")), (
                case
            )
            counts["barrier"] += 1
    assert all(counts.values())


def test_a_first_batch_begins_the_chain() -> None:
    empty = msgspec.structs.replace(OPEN, first_seq=1, last_seq=0, checkpoint_seq=None, chain=CHAIN_START)
    decision = plan_append(empty, CLAIM, BATCH, 0, placed=None, overlap=None, nonce="fresh")
    assert isinstance(decision, Commit)
    assert decision.state.chain == chain_next(CHAIN_START, BATCH.digest, 1, 3, 3)
    assert decision.state.checkpoint_seq is None
