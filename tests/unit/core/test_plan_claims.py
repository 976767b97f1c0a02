"""Claims, heartbeats, releases, deletes, purges and read positions, in every state of a head."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest

from statebook.codec import CHAIN_START
from statebook.errors import HeadConflict, JournalRegressed, Trimmed, WriterBusy, WriterFenced
from statebook.keys import ThreadKey
from statebook.model import ANY, NONE, ClaimInfo, WriterClaim
from statebook.plan import (
    Commit,
    Done,
    Refuse,
    check_read,
    is_current,
    plan_claim,
    plan_delete,
    plan_heartbeat,
    plan_purge,
    plan_release,
)
from statebook.records import HeadState, JournalState

KEY = ThreadKey(None, "a", "s", "t")
HELD = HeadState(KEY, "journal", 20, "n", 3, "nonce-3", "writer", JournalState.OPEN, 4, 10, 5, "c" * 64)
FREE = msgspec.structs.replace(HELD, claim_nonce=None, writer_id=None)
DELETED = msgspec.structs.replace(
    FREE, state=JournalState.DELETED, first_seq=1, last_seq=0, checkpoint_seq=None, chain=CHAIN_START
)
HEADS: dict[str, HeadState | None] = {"absent": None, "held": HELD, "free": FREE, "deleted": DELETED}
HOLDER = ClaimInfo("journal", "writer", 3, "nonce-3")
REPLACING: dict[str, Any] = {
    "any": ANY,
    "none": NONE,
    "holder": HOLDER,
    "older claim": ClaimInfo("journal", "writer", 2, "nonce-2"),
    "forged nonce": ClaimInfo("journal", "writer", 3, "forged"),
    "other writer": ClaimInfo("journal", "somebody", 3, "nonce-3"),
    "other incarnation": ClaimInfo("other", "writer", 3, "nonce-3"),
}
CLAIM = WriterClaim(KEY, "journal", "writer", 3, "nonce-3", 10, 5)
CLAIMS = {
    "current": CLAIM,
    "older": msgspec.structs.replace(CLAIM, epoch=2, nonce="nonce-2"),
    "same epoch, other nonce": msgspec.structs.replace(CLAIM, nonce="forged"),
    "same nonce, other epoch": msgspec.structs.replace(CLAIM, epoch=4),
    "other incarnation": msgspec.structs.replace(CLAIM, journal_id="other"),
}


def granted(head: str, replacing: str) -> bool:
    """CLAIM-1: anybody's, nobody's, or exactly the named one's."""
    if replacing == "any":
        return True
    if replacing == "none":
        return head != "held"
    return head == "held" and replacing == "holder"


@pytest.mark.parametrize(("head", "replacing"), list(product(HEADS, REPLACING)))
def test_a_claim_is_granted_exactly_under_its_condition(head: str, replacing: str) -> None:
    before = HEADS[head]
    decision = plan_claim(
        before,
        KEY,
        "me",
        REPLACING[replacing],
        nonce="fresh",
        claim_nonce="fresh-claim",
        journal_id="fresh-journal",
    )
    if not granted(head, replacing):
        assert isinstance(decision, Refuse)
        assert isinstance(decision.error, WriterBusy)
        assert decision.error.holder == (HOLDER if head == "held" else None)
        return
    assert isinstance(decision, Commit)
    after = decision.state
    assert (after.claim_nonce, after.writer_id, after.nonce) == ("fresh-claim", "me", "fresh")
    assert after.state is JournalState.OPEN
    assert (after.epoch, after.generation) == ((1, 1) if before is None else (4, 21))
    if head in ("held", "free"):
        assert (after.journal_id, after.first_seq, after.last_seq, after.checkpoint_seq, after.chain) == (
            "journal",
            4,
            10,
            5,
            "c" * 64,
        )
    else:
        assert (after.journal_id, after.first_seq, after.last_seq, after.checkpoint_seq, after.chain) == (
            "fresh-journal",
            1,
            0,
            None,
            CHAIN_START,
        )
    claim = after.granted()
    assert is_current(after, claim)
    assert (claim.key, claim.last_seq, claim.checkpoint_seq) == (KEY, after.last_seq, after.checkpoint_seq)
    assert claim.info == after.claim


def test_a_claim_fences_every_older_one() -> None:
    decision = plan_claim(HELD, KEY, "writer", ANY, nonce="n2", claim_nonce="nonce-4", journal_id="x")
    assert isinstance(decision, Commit)
    assert not is_current(decision.state, CLAIM)  # the same writer too


def current(head: str, claim: str) -> bool:
    return head == "held" and claim == "current"


@pytest.mark.parametrize(("head", "claim"), list(product(HEADS, CLAIMS)))
def test_the_fence_is_epoch_and_nonce_of_this_incarnation(head: str, claim: str) -> None:
    assert is_current(HEADS[head], CLAIMS[claim]) is current(head, claim)


@pytest.mark.parametrize(("head", "claim"), list(product(HEADS, CLAIMS)))
def test_a_heartbeat_changes_the_head_and_nothing_in_it(head: str, claim: str) -> None:
    decision = plan_heartbeat(HEADS[head], CLAIMS[claim], nonce="fresh")
    if current(head, claim):
        assert decision == Commit(msgspec.structs.replace(HELD, generation=21, nonce="fresh"))
    else:
        assert isinstance(decision, Refuse)
        assert isinstance(decision.error, WriterFenced)


@pytest.mark.parametrize(("head", "claim"), list(product(HEADS, CLAIMS)))
def test_a_release_clears_the_claim_keeps_the_epoch_and_can_be_repeated(head: str, claim: str) -> None:
    decision = plan_release(HEADS[head], CLAIMS[claim], nonce="fresh")
    if current(head, claim):
        assert decision == Commit(
            msgspec.structs.replace(HELD, generation=21, nonce="fresh", claim_nonce=None, writer_id=None)
        )
        assert plan_release(decision.state, CLAIM, nonce="again") == Done(None)  # type: ignore[union-attr]
    elif head == "free" and claim in ("current", "same epoch, other nonce"):
        # the head keeps no nonce of a released claim: of this epoch there was one
        assert decision == Done(None)
    else:
        assert isinstance(decision, Refuse)
        assert isinstance(decision.error, WriterFenced)


@pytest.mark.parametrize("head", HEADS)
def test_a_delete_leaves_a_tombstone_with_epoch_and_generation(head: str) -> None:
    decision = plan_delete(HEADS[head], nonce="fresh")
    if head in ("absent", "deleted"):
        assert decision == Done(False)
        return
    assert isinstance(decision, Commit)
    assert decision.state == msgspec.structs.replace(DELETED, generation=21, nonce="fresh")
    assert (decision.state.public(), decision.state.claim) == (None, None)


def test_only_a_tombstone_can_be_purged() -> None:
    assert plan_purge(None, KEY) == Done(False)
    assert plan_purge(DELETED, KEY) == Commit(None)
    for head in (HELD, FREE):
        decision = plan_purge(head, KEY)
        assert isinstance(decision, Refuse)
        assert isinstance(decision.error, HeadConflict)


def test_epoch_and_generation_never_go_back_over_a_life() -> None:
    head: HeadState | None = None
    epoch = generation = 0
    incarnations = set()
    for turn in range(30):
        kind = ("claim", "release", "claim", "delete", "heartbeat")[turn % 5]
        decision: object
        if kind == "claim":
            decision = plan_claim(head, KEY, "w", ANY, nonce=f"n{turn}", claim_nonce=f"c{turn}", journal_id=f"j{turn}")
        elif kind == "delete":
            decision = plan_delete(head, nonce=f"n{turn}")
        elif head is None or head.claim is None:
            continue
        else:
            plan = plan_release if kind == "release" else plan_heartbeat
            decision = plan(head, head.granted(), nonce=f"n{turn}")
        assert isinstance(decision, Commit)
        head = decision.state
        assert isinstance(head, HeadState)
        assert head.epoch >= epoch
        assert head.generation == generation + 1
        epoch, generation = head.epoch, head.generation
        incarnations.add(head.journal_id)
    assert epoch == 12
    assert len(incarnations) >= 6


@pytest.mark.parametrize(
    ("head", "seq", "error"),
    [
        ("absent", 0, None),
        ("absent", 1, JournalRegressed),
        ("deleted", 0, None),
        ("deleted", 1, JournalRegressed),
        ("held", 0, Trimmed),
        ("held", 2, Trimmed),
        ("held", 3, None),
        ("held", 10, None),
        ("held", 11, JournalRegressed),
        ("free", 3, None),
    ],
)
def test_a_read_position_is_judged_against_one_head(head: str, seq: int, error: type[Exception] | None) -> None:
    found = check_read(HEADS[head], KEY, seq)
    assert found is None if error is None else type(found) is error
    if isinstance(found, Trimmed):
        assert found.first_seq == 4
    if isinstance(found, JournalRegressed):
        assert (found.seen_seq, found.last_seq) == (seq, 10 if head == "held" else 0)


def test_nobody_is_granted_a_free_head() -> None:
    with pytest.raises(ValueError, match="nobody"):
        FREE.granted()
