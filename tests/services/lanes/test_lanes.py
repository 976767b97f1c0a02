"""Commit lanes: LANE-1 to LANE-5."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import Any

import pytest

from statebook import (
    BackendUnavailable,
    BatchConflict,
    HeadConflict,
    LimitExceeded,
    OutcomeUnknown,
    Overloaded,
    Patience,
    Receipt,
    StoreClosed,
    WriterFenced,
)
from statebook.lanes import CommitLanes, LaneBounds

QUICK = Patience(resends_max=2, pause_s=0.001, pause_max_s=0.002)
WAIT = 20.0


class Gate:
    """Stops the store's next commit until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(WAIT)


def lanes_of(store: Any, **bounds: Any) -> CommitLanes:
    return CommitLanes(store, patience=QUICK, bounds=LaneBounds(**bounds))


def error_of(future: Future[Any]) -> BaseException | None:
    return future.exception(WAIT)


def test_batches_commit_in_the_order_in_which_they_are_handed_in(faulty_real: Any, key: Any, make_batch: Any) -> None:
    with lanes_of(faulty_real) as lanes:
        lane = lanes.open(faulty_real.claim(key, "w"))
        receipts = [lane.submit(make_batch(f"b{n}", 1 + n % 3)) for n in range(40)]
        last = lane.flush().result(WAIT)
    assert last == receipts[-1].result(WAIT)
    assert [receipt.result().first_seq for receipt in receipts] == sorted(r.result().first_seq for r in receipts)
    assert faulty_real.ids(key) == [f"b{n}.{place}" for n in range(40) for place in range(1 + n % 3)]
    assert faulty_real.overlaps == 0


def test_groups_form_while_a_commit_is_in_flight(faulty_real: Any, thread_key: Any, make_batch: Any) -> None:
    gate = Gate()
    faulty_real.fail("append_many", gate)
    with lanes_of(faulty_real) as lanes:
        handles = [lanes.open(faulty_real.claim(thread_key(f"t{n}"), "w")) for n in range(5)]
        first = handles[0].submit(make_batch("first"))
        assert gate.reached.wait(WAIT)
        rest = [handle.submit(make_batch(f"b{n}-{m}")) for n, handle in enumerate(handles) for m in range(3)]
        gate.opened.set()
        assert first.result(WAIT).first_seq == 1
        wait(rest, WAIT)
        figures = lanes.figures()
        own = handles[1].figures()
    assert len(faulty_real.groups) == 2
    assert sorted(faulty_real.groups[1]) == sorted(f"b{n}-{m}" for n in range(5) for m in range(3))
    assert (figures.accepted, figures.committed, figures.groups, figures.group_batches_max) == (16, 16, 2, 15)
    assert (own.groups, own.group_batches_max, own.queued_batches, own.queued_bytes) == (1, 3, 0, 0)
    assert figures.latency.count == 16
    assert figures.latency.max_s > 0
    assert figures.commit.count == 2


def test_a_store_without_group_commit_serves_lanes_side_by_side(faulty: Any, thread_key: Any, make_batch: Any) -> None:
    import msgspec

    from statebook import Capabilities

    class OneByOne(type(faulty)):  # type: ignore[misc]
        @property
        def capabilities(self) -> Capabilities:
            return msgspec.structs.replace(self.inner.capabilities, features=frozenset())

    store = OneByOne(faulty.inner)
    gates = [Gate(), Gate()]
    store.fail("append_many", *gates)
    with lanes_of(store) as lanes:
        futures = [lanes.open(store.claim(thread_key(name), "w")).submit(make_batch(name)) for name in ("a", "b")]
        assert all(gate.reached.wait(WAIT) for gate in gates)
        for gate in gates:
            gate.opened.set()
        wait(futures, WAIT)
    assert sorted(store.groups) == [["a"], ["b"]]


def test_lanes_take_turns_in_a_bounded_group(faulty: Any, thread_key: Any, make_batch: Any) -> None:
    gate = Gate()
    faulty.fail("append_many", gate)
    with lanes_of(faulty, group_batches_max=4) as lanes:
        hog, quiet = (lanes.open(faulty.claim(thread_key(name), "w")) for name in ("hog", "quiet"))
        hog.submit(make_batch("h"))
        assert gate.reached.wait(WAIT)
        futures = [hog.submit(make_batch(f"h{n}")) for n in range(20)]
        futures.append(quiet.submit(make_batch("q")))
        gate.opened.set()
        wait(futures, WAIT)
    assert "q" in faulty.groups[1]
    assert max(map(len, faulty.groups)) == 4


def test_a_group_is_bounded_by_bytes_and_a_larger_batch_goes_alone(faulty: Any, key: Any, make_batch: Any) -> None:
    gate = Gate()
    faulty.fail("append_many", gate)
    with lanes_of(faulty, group_bytes_max=3_000) as lanes:
        lane = lanes.open(faulty.claim(key, "w"))
        lane.submit(make_batch("first"))
        assert gate.reached.wait(WAIT)
        sizes = (1_000, 1_000, 1_000, 9_000, 1_000)
        futures = [lane.submit(make_batch(f"b{n}", size=size)) for n, size in enumerate(sizes)]
        gate.opened.set()
        wait(futures, WAIT)
    assert faulty.groups == [["first"], ["b0", "b1"], ["b2"], ["b3"], ["b4"]]


@pytest.mark.parametrize(
    "bounds", [{"lane_batches_max": 3}, {"lane_bytes_max": 900}, {"queue_batches_max": 3}, {"queue_bytes_max": 900}]
)
def test_a_full_queue_refuses_at_once_and_drops_nothing(
    faulty: Any, key: Any, make_batch: Any, bounds: dict[str, int]
) -> None:
    gate = Gate()
    faulty.fail("append_many", gate)
    with lanes_of(faulty, **bounds) as lanes:
        lane = lanes.open(faulty.claim(key, "w"))
        accepted = [lane.submit(make_batch(f"b{n}")) for n in range(3)]
        with pytest.raises(Overloaded):
            lane.submit(make_batch("one too many"))
        with pytest.raises(Overloaded):
            lane.submit(make_batch("patient"), wait_s=0.01)
        assert lane.figures().refused == 2
        asked = threading.Event()
        lanes.when_space(asked.set)
        gate.opened.set()
        accepted.append(lane.submit(make_batch("waits"), wait_s=WAIT))
        wait(accepted, WAIT)
        assert asked.wait(WAIT)
    ids = faulty.ids(key)
    assert ids == ["b0.0", "b1.0", "b2.0", "waits.0"]


def test_what_never_fits_is_refused_for_its_size_and_the_lane_goes_on(faulty: Any, key: Any, make_batch: Any) -> None:
    with lanes_of(faulty, lane_bytes_max=2_000) as lanes:
        lane = lanes.open(faulty.claim(key, "w"))
        with pytest.raises(LimitExceeded):
            lane.submit(make_batch("b", size=4_000), wait_s=WAIT)
        with pytest.raises(LimitExceeded):
            lane.submit(make_batch("b", 10_001))
        assert lane.submit(make_batch("b")).result(WAIT).first_seq == 1


def test_flush_waits_for_the_prefix_and_its_waiters_share_the_outcome(faulty: Any, key: Any, make_batch: Any) -> None:
    gates = [Gate(), Gate()]
    faulty.fail("append_many", *gates)
    with lanes_of(faulty) as lanes:
        lane = lanes.open(faulty.claim(key, "w"))
        assert lane.flush().result(WAIT) is None
        first = lane.submit(make_batch("first"))
        assert gates[0].reached.wait(WAIT)
        waiters = [lane.flush() for _ in range(5)]
        second = lane.submit(make_batch("second"))
        assert not any(waiter.cancel() for waiter in waiters)
        gates[0].opened.set()
        assert {waiter.result(WAIT).batch_id for waiter in waiters} == {"first"}  # type: ignore[union-attr]
        assert not second.done()
        gates[1].opened.set()
        assert lane.flush().result(WAIT) == second.result(WAIT)
        assert first.result().last_seq == 1


@pytest.mark.parametrize("fault", ["lost", "unknown", "refused", {0: "lost"}, {1: "lost"}, {1: "unknown"}])
def test_an_unknown_outcome_is_settled_before_later_batches_go(
    faulty_real: Any, key: Any, make_batch: Any, fault: Any
) -> None:
    gate = Gate()
    faulty_real.fail("append_many", gate, fault)
    with lanes_of(faulty_real) as lanes:
        lane = lanes.open(faulty_real.claim(key, "w"))
        lane.submit(make_batch("first"))
        assert gate.reached.wait(WAIT)
        futures = [lane.submit(make_batch(f"b{n}")) for n in range(3)]
        gate.opened.set()
        assert [future.result(WAIT).first_seq for future in futures] == [2, 3, 4]
        assert lane.error is None
    assert faulty_real.ids(key) == ["first.0", "b0.0", "b1.0", "b2.0"]
    assert faulty_real.overlaps == 0
    assert lane.figures().resent == 1


def test_where_sending_again_goes_on_failing_the_store_is_asked(faulty: Any, key: Any, make_batch: Any) -> None:
    faulty.fail("append_many", "lost", "unknown", "unknown")
    faulty.fail("settle", "unknown")
    with lanes_of(faulty) as lanes:
        lane = lanes.open(faulty.claim(key, "w"))
        assert lane.submit(make_batch("b0")).result(WAIT).first_seq == 1
        assert lane.submit(make_batch("b1")).result(WAIT).first_seq == 2
        assert lanes.figures().settled == 2


def test_a_batch_that_never_landed_closes_the_lane_and_nothing_behind_it_commits(
    faulty: Any, key: Any, make_batch: Any
) -> None:
    gate = Gate()
    faulty.fail("append_many", gate, "unknown", "unknown", "unknown")
    with lanes_of(faulty) as lanes:
        lane = lanes.open(faulty.claim(key, "w"))
        lane.submit(make_batch("first"))
        assert gate.reached.wait(WAIT)
        futures = [lane.submit(make_batch(f"b{n}")) for n in range(2)]
        flushed = lane.flush()
        gate.opened.set()
        assert isinstance(error_of(futures[0]), BackendUnavailable)
        assert isinstance(error_of(futures[1]), WriterFenced)
        assert isinstance(error_of(flushed), WriterFenced)
        with pytest.raises(WriterFenced) as refused:
            lane.submit(make_batch("later"))
        assert isinstance(refused.value.__cause__, BackendUnavailable)
        assert isinstance(error_of(lane.flush()), WriterFenced)
        with pytest.raises(WriterFenced):
            lanes.open(lane.claim)
        again = lanes.open(faulty.claim(key, "w"))
        assert again.submit(make_batch("later")).result(WAIT).first_seq == 2
    assert faulty.ids(key) == ["first.0", "later.0"]


def test_what_can_never_be_told_is_unknown_for_each_batch_that_was_sent(faulty: Any, key: Any, make_batch: Any) -> None:
    gate = Gate()
    faulty.fail("append_many", gate, {0: "lost", 1: "lost"}, "unknown", "unknown")
    faulty.fail("settle", *["unknown"] * 3)
    with lanes_of(faulty, group_batches_max=2) as lanes:
        lane = lanes.open(faulty.claim(key, "w"))
        lane.submit(make_batch("first"))
        assert gate.reached.wait(WAIT)
        futures = [lane.submit(make_batch(f"b{n}")) for n in range(3)]
        gate.opened.set()
        errors = [error_of(future) for future in futures]
    assert [type(error) for error in errors] == [OutcomeUnknown, OutcomeUnknown, WriterFenced]
    assert [(e.batch_id, e.base_seq) for e in errors[:2]] == [("b0", 1), ("b1", 2)]  # type: ignore[union-attr]
    assert faulty.ids(key) == ["first.0", "b0.0", "b1.0"]


def test_a_fenced_lane_learns_of_each_batch_whether_it_landed(faulty_real: Any, key: Any, make_batch: Any) -> None:
    gate = Gate()

    def takeover() -> None:
        faulty_real.inner.claim(key, "other")

    faulty_real.fail("append_many", gate, "lost", takeover)
    with lanes_of(faulty_real) as lanes:
        lane = lanes.open(faulty_real.claim(key, "w"))
        lane.submit(make_batch("first"))
        assert gate.reached.wait(WAIT)
        futures = [lane.submit(make_batch(f"b{n}")) for n in range(2)]
        gate.opened.set()
        errors = [error_of(future) for future in futures]
        assert all(isinstance(error, WriterFenced) for error in errors)
        assert [error.committed.first_seq for error in errors] == [2, 3]  # type: ignore[union-attr]
        with pytest.raises(WriterFenced):
            lane.submit(make_batch("later"))


def test_a_replayed_batch_moves_the_base_and_what_follows_is_sent_again(faulty: Any, key: Any, make_batch: Any) -> None:
    old = faulty.claim(key, "w")
    faulty.inner.append(old, make_batch("landed", 2), 0)
    faulty.inner.append(old, make_batch("other"), 2)
    with lanes_of(faulty) as lanes:
        gate = Gate()
        faulty.fail("append_many", gate)
        lane = lanes.open(faulty.claim(key, "w"))
        lane.submit(make_batch("x"))
        assert gate.reached.wait(WAIT)
        again, new = lane.submit(make_batch("landed", 2)), lane.submit(make_batch("new"))
        gate.opened.set()
        assert again.result(WAIT).replayed
        assert new.result(WAIT).first_seq == 5
        assert lane.committed_seq == 5


def test_another_writers_batch_and_a_conflicting_batch_close_the_lane(faulty: Any, key: Any, make_batch: Any) -> None:
    with lanes_of(faulty) as lanes:
        claim = faulty.claim(key, "w")
        lane = lanes.open(claim)
        faulty.inner.append(claim, make_batch("beside"), 0)
        assert isinstance(error_of(lane.submit(make_batch("b"))), HeadConflict)
        lane = lanes.open(faulty.claim(key, "w"))
        assert isinstance(error_of(lane.submit(make_batch("beside", 2))), BatchConflict)
        assert isinstance(lane.error, BatchConflict)


def test_a_newer_claims_lane_ends_the_older_one_and_waits_for_its_commit(
    faulty: Any, key: Any, make_batch: Any
) -> None:
    gate = Gate()
    faulty.fail("append_many", gate)
    with CommitLanes(faulty, workers=2) as lanes:
        old = lanes.open(faulty.claim(key, "w"))
        flying = old.submit(make_batch("flying"))
        assert gate.reached.wait(WAIT)
        unsent = old.submit(make_batch("unsent"))
        claim = faulty.claim(key, "w2")
        lane = lanes.open(claim)
        assert isinstance(error_of(unsent), WriterFenced)
        new = lane.submit(make_batch("new"))
        with pytest.raises(WriterFenced):
            old.submit(make_batch("later"))
        gate.opened.set()
        assert isinstance(error_of(flying), WriterFenced)
        assert new.result(WAIT).first_seq == 1
        with pytest.raises(WriterFenced):
            lanes.open(old.claim)
        assert lanes.open(claim).submit(make_batch("same lane")).result(WAIT).first_seq == 2
    assert faulty.overlaps == 0


def test_a_store_that_breaks_the_contract_leaves_nobody_waiting(faulty: Any, key: Any, make_batch: Any) -> None:
    gate = Gate()
    faulty.fail("append_many", gate, RuntimeError("a bug"))
    with lanes_of(faulty) as lanes:
        lane = lanes.open(faulty.claim(key, "w"))
        lane.submit(make_batch("first"))
        assert gate.reached.wait(WAIT)
        futures = [lane.submit(make_batch(f"b{n}")) for n in range(2)]
        gate.opened.set()
        errors = [error_of(future) for future in futures]
        assert [type(error) for error in errors] == [OutcomeUnknown, OutcomeUnknown]
        assert isinstance(errors[0].__cause__, RuntimeError)  # type: ignore[union-attr]
        again = lanes.open(faulty.claim(key, "w"))
        assert isinstance(again.submit(make_batch("b")).result(WAIT), Receipt)


def test_linger_gathers_what_comes_within_it(faulty: Any, thread_key: Any, make_batch: Any) -> None:
    with lanes_of(faulty, linger_s=WAIT, group_batches_max=3) as lanes:
        futures = [lanes.open(faulty.claim(thread_key(f"t{n}"), "w")).submit(make_batch(f"b{n}")) for n in range(3)]
        wait(futures, WAIT)
    assert [len(group) for group in faulty.groups] == [3]


def test_closing_commits_what_was_accepted(faulty: Any, key: Any, make_batch: Any) -> None:
    lanes = lanes_of(faulty, linger_s=WAIT)
    lane = lanes.open(faulty.claim(key, "w"))
    futures = [lane.submit(make_batch(f"b{n}")) for n in range(5)]
    assert lanes.close()
    assert [future.result(WAIT).first_seq for future in futures] == [1, 2, 3, 4, 5]
    with pytest.raises(StoreClosed):
        lane.submit(make_batch("later"))
    with pytest.raises(StoreClosed):
        lanes.open(lane.claim)
    assert lanes.close()


def test_closing_without_draining_refuses_what_was_not_sent(faulty: Any, key: Any, make_batch: Any) -> None:
    gate = Gate()
    faulty.fail("append_many", gate)
    lanes = lanes_of(faulty)
    lane = lanes.open(faulty.claim(key, "w"))
    flying = lane.submit(make_batch("flying"))
    assert gate.reached.wait(WAIT)
    unsent = lane.submit(make_batch("unsent"))
    assert not lanes.close(drain=False, deadline_s=0.01)
    assert isinstance(error_of(unsent), StoreClosed)
    assert not flying.done()
    gate.opened.set()
    assert flying.result(WAIT).first_seq == 1
    assert faulty.ids(key) == ["flying.0"]


def test_closing_says_what_is_unknown_at_its_deadline(faulty: Any, thread_key: Any, make_batch: Any) -> None:
    gate = Gate()
    faulty.fail("append_many", "lost", gate)
    patient = Patience(resends_max=1, pause_s=WAIT * 10, pause_max_s=WAIT * 10)
    lanes = CommitLanes(faulty, patience=patient, bounds=LaneBounds(group_batches_max=1))
    a, b = (lanes.open(faulty.claim(thread_key(name), "w")) for name in ("a", "b"))
    lost, behind = a.submit(make_batch("lost")), a.submit(make_batch("behind"))
    flying = b.submit(make_batch("flying"))
    assert gate.reached.wait(WAIT)
    assert not lanes.close(deadline_s=0.01)
    assert isinstance(error_of(lost), OutcomeUnknown)
    assert isinstance(error_of(behind), BackendUnavailable)
    gate.opened.set()
    assert flying.result(WAIT).first_seq == 1
    assert faulty.ids(thread_key("a")) == ["lost.0"]


def test_a_closed_lane_commits_what_it_has_and_frees_its_place(faulty: Any, thread_key: Any, make_batch: Any) -> None:
    gate = Gate()
    faulty.fail("append_many", gate)
    with lanes_of(faulty, lanes_max=1) as lanes:
        lane = lanes.open(faulty.claim(thread_key("a"), "w"))
        futures = [lane.submit(make_batch("b0")), lane.submit(make_batch("b1"))]
        with pytest.raises(Overloaded):
            lanes.open(faulty.claim(thread_key("b"), "w"))
        lane.close()
        with pytest.raises(StoreClosed):
            lane.submit(make_batch("b2"))
        gate.opened.set()
        assert [future.result(WAIT).first_seq for future in futures] == [1, 2]
        assert lane.flush().result(WAIT) == futures[1].result()
        other = lanes.open(faulty.claim(thread_key("b"), "w"))
        assert other.submit(make_batch("c")).result(WAIT).first_seq == 1


def test_many_threads_hand_in_and_every_batch_is_there_once_and_in_order(
    faulty_real: Any, thread_key: Any, make_batch: Any
) -> None:
    with lanes_of(faulty_real, lane_batches_max=4) as lanes:
        handles = [lanes.open(faulty_real.claim(thread_key(f"t{n}"), "w")) for n in range(6)]

        def hand_in(number: int) -> None:
            for n in range(25):
                handles[number % 6].submit(make_batch(f"{number}-{n}"), wait_s=WAIT)

        threads = [threading.Thread(target=hand_in, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    for place in range(6):
        ids = faulty_real.ids(thread_key(f"t{place}"))
        for number in (place, place + 6):
            own = [i for i in ids if i.startswith(f"{number}-")]
            assert own == [f"{number}-{n}.0" for n in range(25)]
    assert faulty_real.overlaps == 0
    assert lanes.figures().queued_bytes == 0
