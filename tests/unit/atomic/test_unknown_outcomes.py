"""What a call answers when the storage does not know whether a commit was applied (ERR-2, SETTLE, CLAIM-6)."""

from __future__ import annotations

import pytest
from honest_storage import KEY, HonestStorage, batch

from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.atomic_state import AtomicAgentStateStore
from statebook.errors import BackendUnavailable, OutcomeUnknown, WriterFenced
from statebook.index_tree import Shape
from statebook.keys import StateKey
from statebook.model import NONE, SlotKind

SLOT = StateKey("user", "session", "key")


def journals(storage: HonestStorage) -> AtomicThreadJournalStore:
    return AtomicThreadJournalStore(storage, pause=lambda attempt: None, shape=Shape(700, 3))


@pytest.fixture(params=[False, True], ids=["counted-tokens", "content-tokens"])
def storage(request: pytest.FixtureRequest) -> HonestStorage:
    return HonestStorage(content_tokens=request.param)


@pytest.mark.parametrize("faults", [["after"], ["before"], ["delayed"], ["before", "after"], ["delayed", "before"]])
def test_a_claim_settles_itself_by_its_nonce(storage: HonestStorage, faults: list[str]) -> None:
    store = journals(storage)
    storage.faults += faults
    claim = store.claim(KEY, "writer", replacing=NONE)
    assert claim.epoch == 1
    storage.land()
    assert store.append(claim, batch("a"), 0).first_seq == 1


def test_a_claim_that_cannot_be_settled_is_unknown_and_fences_nobody_twice(storage: HonestStorage) -> None:
    store = journals(storage)
    first = store.claim(KEY, "writer")
    storage.faults += ["delayed"] * 10
    with pytest.raises(OutcomeUnknown):
        store.claim(KEY, "other")
    storage.faults.clear()
    assert store.append(first, batch("a"), 0).first_seq == 1
    storage.land()
    assert store.append(first, batch("b"), 1).first_seq == 2


def test_an_append_whose_answer_was_lost_is_acknowledged(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    for base in range(10):
        storage.faults.append("after")
        receipt = store.append(claim, batch(f"b{base}"), base)
        assert (receipt.first_seq, receipt.replayed) == (base + 1, False)
    assert store.verify(KEY, deep=True).findings == ()


def test_an_append_that_may_land_later_is_unknown_and_comes_once(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    storage.faults.append("delayed")
    with pytest.raises(OutcomeUnknown) as caught:
        store.append(claim, batch("a", 2), 0)
    assert (caught.value.batch_id, caught.value.base_seq) == ("a", 0)
    storage.land()
    assert store.append(claim, batch("a", 2), 0).replayed
    assert store.append(claim, batch("b"), 2).first_seq == 3


def test_sending_again_before_the_late_one_lands_stores_the_batch_once(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    storage.faults.append("delayed")
    with pytest.raises(OutcomeUnknown):
        store.append(claim, batch("a"), 0)
    assert not store.append(claim, batch("a"), 0).replayed
    storage.land()
    assert [e.event_id for e in store.read_after(KEY, 0).events] == ["a.0"]


def test_settle_says_none_only_after_a_commit_that_ends_the_late_one(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    storage.faults.append("delayed")
    with pytest.raises(OutcomeUnknown):
        store.append(claim, batch("a"), 0)
    commits = storage.calls["commit"]
    assert store.settle(claim, "a", 0) is None
    assert storage.calls["commit"] == commits + 1
    storage.land()
    assert store.read_after(KEY, 0).events == ()
    assert store.append(claim, batch("b"), 0).first_seq == 1


def test_settle_of_a_landed_batch_gives_its_receipt_also_to_a_fenced_writer(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    storage.faults.append("delayed")
    with pytest.raises(OutcomeUnknown):
        store.append(claim, batch("a"), 0)
    storage.land()
    store.claim(KEY, "newer")
    receipt = store.settle(claim, "a", 0)
    assert receipt is not None
    assert receipt.first_seq == 1
    assert store.settle(claim, "never", 1) is None


def test_a_settle_whose_barrier_is_unknown_is_unknown(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    storage.faults.append("before")
    with pytest.raises(OutcomeUnknown) as caught:
        store.settle(claim, "a", 0)
    assert caught.value.batch_id == "a"
    storage.faults.append("after")
    assert store.settle(claim, "a", 0) is None


def test_an_unknown_append_is_decided_where_the_head_has_moved_on(storage: HonestStorage) -> None:
    store, other = journals(storage), journals(storage)
    claim = store.claim(KEY, "writer")

    def takeover(call: str) -> None:
        if call == "read_head":
            storage.before_call = lambda call: None
            other.claim(KEY, "newer")

    store.heartbeat(claim)  # the append then starts from a remembered head, and its first read is the one that settles
    storage.faults.append("delayed")
    storage.before_call = takeover
    with pytest.raises(WriterFenced) as caught:
        store.append(claim, batch("a"), 0)
    assert caught.value.committed is None
    storage.land()
    assert other.read_after(KEY, 0).events == ()


def test_a_refused_append_is_not_applied_and_the_next_call_works(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    storage.faults.append("unavailable")
    with pytest.raises(BackendUnavailable):
        store.append(claim, batch("a"), 0)
    assert store.append(claim, batch("b"), 0).first_seq == 1


def test_blobs_of_an_unknown_attempt_are_left_to_the_collector(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    big = batch("big", 1, b'"' + b"x" * 900 + b'"')
    storage.faults.append("delayed")
    with pytest.raises(OutcomeUnknown):
        store.append(claim, big, 0)
    left = set(storage.blobs)
    assert len(left) == 1
    store.append(claim, big, 0)
    store.trim(KEY, 0)
    assert left < set(storage.blobs)
    assert store.collect(KEY).deleted == 1
    assert left.isdisjoint(storage.blobs)
    storage.land()
    assert store.verify(KEY, deep=True).findings == ()


@pytest.mark.parametrize("fault", ["before", "delayed"])
def test_other_calls_are_unknown_where_nothing_proves_them(storage: HonestStorage, fault: str) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    store.append(claim, batch("a", 5), 0)
    cursor = store.advance_cursor(store.open_cursor(KEY, "exporter"), 1)
    for call in (
        lambda: store.heartbeat(claim),
        lambda: store.advance_cursor(cursor, 2),
        lambda: store.reset_cursor(KEY, "exporter", 2, expected_version=2),
        lambda: store.trim(KEY, 2),
        lambda: store.release(claim),
        lambda: store.delete(KEY),
    ):
        storage.faults.append(fault)
        with pytest.raises(OutcomeUnknown):
            call()


def test_other_calls_know_their_own_write_by_its_nonce(storage: HonestStorage) -> None:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    store.append(claim, batch("a", 5), 0)

    def lost_answer() -> None:
        storage.faults.append("after")

    lost_answer()
    store.heartbeat(claim)
    lost_answer()
    cursor = store.open_cursor(KEY, "exporter")
    lost_answer()
    assert store.advance_cursor(cursor, 3).acked_seq == 3
    lost_answer()
    assert store.reset_cursor(KEY, "exporter", 4, expected_version=2).version == 3
    lost_answer()
    assert store.trim(KEY, 3).first_seq == 3
    lost_answer()
    store.release(claim)
    lost_answer()
    assert store.delete(KEY) is True
    assert not storage.faults


def test_state_calls_know_their_own_write_by_its_nonce(storage: HonestStorage) -> None:
    store = AtomicAgentStateStore(storage, pause=lambda attempt: None)
    storage.faults += ["after"] * 5
    assert store.save(SLOT, b"1") == 1
    assert store.save(SLOT, b"2", expected=1) == 2
    assert store.append_list(SLOT, [b"1"], expected_length=0) == 1
    assert store.replace_list(SLOT, [b"2"]) == 2
    assert store.delete(SLOT, kind=SlotKind.LIST) is True
    assert not storage.faults


@pytest.mark.parametrize("fault", ["before", "delayed"])
def test_state_calls_are_unknown_where_nothing_proves_them(storage: HonestStorage, fault: str) -> None:
    store = AtomicAgentStateStore(storage, pause=lambda attempt: None)
    store.save(SLOT, b"1")
    store.append_list(SLOT, [b"1"], expected_length=0)
    for call in (
        lambda: store.save(SLOT, b"2", expected=1),
        lambda: store.save(StateKey("user", "session", "new"), b"2"),
        lambda: store.append_list(SLOT, [b"2"], expected_length=1),
        lambda: store.replace_list(SLOT, [], expected=1),
        lambda: store.delete(SLOT),
    ):
        storage.faults.append(fault)
        with pytest.raises(OutcomeUnknown):
            call()
    storage.land()


def test_contention_is_unavailable_for_the_owner_and_fencing_for_everybody_else() -> None:
    storage = HonestStorage()
    store = AtomicThreadJournalStore(storage, pause=lambda attempt: None, patience_s=0.05, shape=Shape(700, 3))
    other = journals(storage)
    claim = store.claim(KEY, "writer")

    def hammer(call: str) -> None:
        if call == "commit":
            storage.before_call = lambda call: None
            other.settle(claim, "nothing", 0)
            storage.before_call = hammer

    storage.before_call = hammer
    with pytest.raises(BackendUnavailable, match="too much contention"):
        store.append(claim, batch("a"), 0)

    def usurp(call: str) -> None:
        if call == "commit":
            storage.before_call = lambda call: None
            other.claim(KEY, "newer")

    storage.before_call = usurp
    with pytest.raises(WriterFenced):
        store.append(claim, batch("a"), 0)
