"""The exporter: J16, CURSOR-2 to CURSOR-5."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from concurrent.futures import Future, InvalidStateError
from typing import Any

import pytest

from statebook import (
    BackendUnavailable,
    CursorFenced,
    CursorInvalid,
    CursorRegression,
    InvalidValue,
    JournalNotFound,
    OutcomeUnknown,
    Patience,
)
from statebook.aio import AsyncThreadJournalStore
from statebook.lanes import WorkPool, WorkPools
from statebook.threads import AsyncJournalExporter, Delivery, JournalExporter, SinkInPool, SkippedEvent

QUICK = Patience(resends_max=2, pause_s=0.0)
WAIT = 20.0


class Receiver:
    """A sink that takes event by event and deduplicates, and fails or dies where it is told."""

    def __init__(self) -> None:
        self.raw: list[int] = []
        self.taken: dict[str, int] = {}
        self.skips: list[SkippedEvent] = []
        self.fail_at: dict[int, BaseException] = {}
        self.hold_back = 0
        self._enough: tuple[int, Future[None]] | None = None

    def came(self, count: int) -> Future[None]:
        """Fulfilled when so many events have come."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        self._enough = (count, future)
        self._look()
        return future

    def _look(self) -> None:
        if self._enough and len(self.raw) >= self._enough[0] and not self._enough[1].done():
            with contextlib.suppress(InvalidStateError):
                self._enough[1].set_result(None)

    def deliver(self, delivery: Delivery) -> int:
        for event in delivery.events:
            if event.seq in self.fail_at:
                raise self.fail_at[event.seq]
            self.raw.append(event.seq)
            self.taken.setdefault(event.event_id, event.seq)
        self._look()
        return max(delivery.events[0].seq - 1, delivery.last_seq - self.hold_back)

    def skipped(self, skipped: SkippedEvent) -> None:
        self.skips.append(skipped)


def fill(store: Any, key: Any, make_batch: Any, *counts: int) -> Any:
    claim = store.claim(key, "w")
    base = claim.last_seq
    for number, count in enumerate(counts):
        base = store.inner.append(claim, make_batch(f"{base}-{number}", count), base).last_seq
    return claim


def exporter_of(store: Any, key: Any, sink: Any, **more: Any) -> JournalExporter:
    return JournalExporter(store, key, "x", sink, patience=QUICK, sleep=lambda _: None, clock_ms=lambda: 9, **more)


def test_a_drain_delivers_everything_in_order_and_acknowledges_it(faulty_real: Any, key: Any, make_batch: Any) -> None:
    fill(faulty_real, key, make_batch, 3, 4, 5)
    sink = Receiver()
    exporter = exporter_of(faulty_real, key, sink, page=5)
    assert (exporter.key, exporter.exporter, exporter.acked_seq) == (key, "x", None)
    report = exporter.drain()
    assert (report.delivered, report.acked_seq, report.last_seq, report.complete) == (12, 12, 12, True)
    assert sink.raw == list(range(1, 13))
    assert exporter.drain().delivered == 0
    assert faulty_real.open_cursor(key, "x").acked_seq == 12


def test_a_failing_sink_moves_nothing_and_no_event_is_skipped(faulty_real: Any, key: Any, make_batch: Any) -> None:
    """Case 47: a sink fails at event k while later ones would succeed, and the exporter restarts."""
    fill(faulty_real, key, make_batch, 10)
    sink = Receiver()
    sink.fail_at[6] = OSError("down")
    exporter = exporter_of(faulty_real, key, sink, page=2)
    for again in (exporter, exporter, exporter_of(faulty_real, key, sink, page=4)):
        with pytest.raises(OSError, match="down"):
            again.drain()
    assert faulty_real.open_cursor(key, "x").acked_seq == 4
    sink.fail_at.clear()
    assert exporter_of(faulty_real, key, sink).drain().complete
    assert list(sink.taken.values()) == list(range(1, 11))


def test_an_old_exporter_cannot_overwrite_a_newer_ones_cursor(faulty_real: Any, key: Any, make_batch: Any) -> None:
    """Case 48: the old one is fenced, and delivers nothing more until it is opened again on purpose."""
    fill(faulty_real, key, make_batch, 6)
    old_sink, new_sink = Receiver(), Receiver()
    old, new = exporter_of(faulty_real, key, old_sink, page=2), exporter_of(faulty_real, key, new_sink, page=2)
    old.open()
    old_sink.fail_at[3] = OSError("down")
    with pytest.raises(OSError, match="down"):
        old.drain()
    new.drain()
    old_sink.fail_at.clear()
    with pytest.raises(CursorFenced):
        old.drain()
    delivered, calls = len(old_sink.raw), faulty_real.calls.total()
    with pytest.raises(CursorFenced):
        old.drain()
    with pytest.raises(CursorFenced):
        old.skip(3, "no")
    assert (len(old_sink.raw), faulty_real.calls.total()) == (delivered, calls)
    assert new.drain().acked_seq == 6
    assert old.open().acked_seq == 6
    fill(faulty_real, key, make_batch, 1)
    with pytest.raises(CursorFenced):
        new.drain()


def test_a_crash_within_a_batch_delivers_again_from_the_next_event(faulty_real: Any, key: Any, make_batch: Any) -> None:
    """Case 49: the sink had taken events 1 and 2 of a batch of 5; the cursor knows events, not batches."""
    fill(faulty_real, key, make_batch, 5)
    sink = Receiver()
    sink.fail_at[3] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        exporter_of(faulty_real, key, sink, page=1).drain()
    sink.fail_at.clear()
    sink.raw.clear()
    exporter_of(faulty_real, key, sink).drain()
    assert sink.raw == [3, 4, 5]


class Died(BaseException):
    """The exporter's process is gone."""


def test_in_200_rounds_of_failures_and_deaths_each_event_arrives_in_order_and_none_is_skipped(
    faulty: Any, key: Any, make_batch: Any
) -> None:
    """Cases 47 and 49: a sink that fails at event k and an exporter that dies at random points."""
    rng = random.Random(7)
    claim = fill(faulty, key, make_batch, 3)
    base, failures = 3, 0
    sink = Receiver()
    for number in range(200):
        if number % 2 == 0:
            base = faulty.inner.append(claim, make_batch(f"r{number}", rng.randint(1, 3)), base).last_seq
        sink.fail_at = {} if rng.random() < 0.3 else {rng.randint(1, base): rng.choice([OSError("k"), Died()])}
        faults = ["lost", "unknown", "refused", Died(), None, None]
        for name in ("open_cursor", "advance_cursor", "read_after"):
            faulty.faults.pop(name, None)
            faulty.fail(name, *rng.choices(faults, k=rng.randint(0, 2)))
        sink.hold_back = rng.choice([0, 0, 1, 3])
        exporter = exporter_of(faulty, key, sink, page=rng.randint(1, 7))
        try:
            for _ in range(rng.randint(1, 2)):
                exporter.drain()
        except (OSError, Died, BackendUnavailable, OutcomeUnknown):
            failures += 1
        acked = faulty.inner.open_cursor(key, "x").acked_seq
        assert acked <= len(sink.taken)
        assert list(sink.taken.values()) == list(range(1, len(sink.taken) + 1))
    assert failures > 50
    faulty.faults.clear()
    sink.fail_at, sink.hold_back = {}, 0
    assert exporter_of(faulty, key, sink).drain().acked_seq == base
    assert list(sink.taken) == faulty.ids(key)


def test_an_advance_of_unknown_outcome_is_sent_again_before_anything_else(
    faulty: Any, key: Any, make_batch: Any
) -> None:
    fill(faulty, key, make_batch, 4)
    sink = Receiver()
    exporter = exporter_of(faulty, key, sink)
    faulty.fail("advance_cursor", "lost", "unknown", "unknown")
    with pytest.raises(OutcomeUnknown):
        exporter.drain()
    sink.hold_back = 2
    assert exporter.drain().acked_seq == 4
    assert sink.raw == [1, 2, 3, 4]


def test_an_acknowledgement_of_what_was_not_delivered_moves_nothing(faulty: Any, key: Any, make_batch: Any) -> None:
    fill(faulty, key, make_batch, 3)
    sink = Receiver()
    for wrong in (-1, 3):
        sink.hold_back = wrong
        sink.deliver = lambda delivery, wrong=wrong: 4 if wrong < 0 else -1  # type: ignore[method-assign,misc]
        with pytest.raises(InvalidValue):
            exporter_of(faulty, key, sink).drain()
    assert faulty.open_cursor(key, "x").acked_seq == 0


def test_what_a_buffering_sink_holds_back_comes_again_in_the_next_drain(faulty: Any, key: Any, make_batch: Any) -> None:
    fill(faulty, key, make_batch, 9)
    sink = Receiver()
    sink.hold_back = 2
    exporter = exporter_of(faulty, key, sink, page=3)
    report = exporter.drain()
    assert (report.acked_seq, report.complete, sink.raw) == (7, False, list(range(1, 10)))
    sink.hold_back = 0
    assert exporter.drain().complete
    assert sink.raw[9:] == [8, 9]


def test_a_skip_is_explicit_and_recorded_before_the_cursor_moves(faulty_real: Any, key: Any, make_batch: Any) -> None:
    fill(faulty_real, key, make_batch, 3)
    sink = Receiver()
    sink.fail_at[2] = OSError("never")
    exporter = exporter_of(faulty_real, key, sink, page=1)
    with pytest.raises(OSError, match="never"):
        exporter.drain()
    for seq in (1, 3, True):
        with pytest.raises(ValueError, match="next event"):
            exporter.skip(seq, "why")
    with pytest.raises(InvalidValue):
        exporter.skip(2, " ")
    faulty_real.fail("advance_cursor", *["refused"] * 3)
    with pytest.raises(BackendUnavailable):
        exporter.skip(2, "the receiver can never take it")
    assert len(sink.skips) == 1
    skipped = exporter_of(faulty_real, key, sink).skip(2, "the receiver can never take it")
    assert sink.skips[1] == skipped
    assert (skipped.seq, skipped.event_id, skipped.exporter, skipped.skipped_at) == (2, "0-0.1", "x", 9)
    assert exporter_of(faulty_real, key, sink).drain().complete
    assert sink.raw == [1, 3]
    with pytest.raises(ValueError, match="no event"):
        exporter_of(faulty_real, key, sink).skip(4, "why")


def test_another_incarnation_is_refused_until_the_cursor_is_reset_on_purpose(
    faulty: Any, key: Any, make_batch: Any
) -> None:
    with pytest.raises(JournalNotFound):
        exporter_of(faulty, key, Receiver()).drain()
    fill(faulty, key, make_batch, 3)
    sink = Receiver()
    exporter = exporter_of(faulty, key, sink)
    exporter.drain()
    faulty.delete(key)
    fill(faulty, key, make_batch, 2)
    with pytest.raises(CursorInvalid) as invalid:
        exporter_of(faulty, key, sink).drain()
    assert exporter.reset(0, expected_version=invalid.value.version).acked_seq == 0
    assert exporter.drain().delivered == 2
    with pytest.raises(CursorRegression):
        faulty.advance_cursor(exporter.open(), 1)


def test_following_delivers_what_comes_and_bears_failures_that_pass(faulty: Any, key: Any, make_batch: Any) -> None:
    claim = fill(faulty, key, make_batch, 2)
    stop, enough = threading.Event(), threading.Event()
    sink = Receiver()
    take = sink.deliver

    def deliver(delivery: Delivery) -> int:
        faulty.calls["deliver"] += 1
        if faulty.calls["deliver"] in (1, 3):
            raise BackendUnavailable("not now")
        acked = take(delivery)
        if acked >= 5:
            enough.set()
        return acked

    sink.deliver = deliver  # type: ignore[method-assign]
    exporter = exporter_of(faulty, key, sink)
    thread = threading.Thread(target=lambda: exporter.follow(stop, poll_s=0.001))
    thread.start()
    faulty.inner.append(claim, make_batch("more", 3), 2)
    assert enough.wait(WAIT)
    stop.set()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert list(sink.taken.values()) == [1, 2, 3, 4, 5]


def test_following_gives_up_when_patience_ends_without_progress(faulty: Any, key: Any, make_batch: Any) -> None:
    fill(faulty, key, make_batch, 2)
    sink = Receiver()
    sink.fail_at[2] = BackendUnavailable("down")
    with pytest.raises(BackendUnavailable, match="down"):
        exporter_of(faulty, key, sink, page=1).follow(threading.Event(), poll_s=0.0)
    assert sink.raw == [1]
    sink.fail_at[2] = OSError("broken")
    with pytest.raises(OSError, match="broken"):
        exporter_of(faulty, key, sink).follow(threading.Event(), poll_s=0.0)


def test_the_asyncio_exporter_does_the_same(faulty: Any, key: Any, make_batch: Any) -> None:
    async def main() -> None:
        claim = fill(faulty, key, make_batch, 4)
        sink = Receiver()
        with WorkPools() as pools, WorkPool("sink", workers_max=1) as sinks:
            store = AsyncThreadJournalStore(faulty, pools)
            exporter = AsyncJournalExporter(store, key, "x", SinkInPool(sink, sinks), page=2, patience=QUICK)
            sink.fail_at[3] = OSError("down")
            with pytest.raises(OSError, match="down"):
                await exporter.drain()
            assert exporter.acked_seq == 2
            assert (await exporter.skip(3, "never")).seq == 3
            faulty.fail("advance_cursor", "lost")
            assert (await exporter.drain()).complete
            stop = asyncio.Event()
            follow = asyncio.create_task(exporter.follow(stop, poll_s=0.001))
            await store.append(claim, make_batch("more", 2), 4)
            await asyncio.wrap_future(sink.came(5))
            stop.set()
            await follow
            assert (await exporter.open()).acked_seq == 6
            faulty.delete(key)
            fill(faulty, key, make_batch, 1)
            with pytest.raises(CursorInvalid) as invalid:
                await exporter.open()
            assert (await exporter.reset(0, expected_version=invalid.value.version or 0)).acked_seq == 0
            assert (await exporter.drain()).delivered == 1
        assert sink.raw == [1, 2, 4, 5, 6, 1]

    asyncio.run(main())


def test_a_cancelled_drain_can_be_run_again(faulty: Any, key: Any, make_batch: Any) -> None:
    async def main() -> None:
        fill(faulty, key, make_batch, 3)
        sink, gate = Receiver(), asyncio.Event()

        class Slow:
            async def deliver(self, delivery: Delivery) -> int:
                await gate.wait()
                return sink.deliver(delivery)

            async def skipped(self, skipped: SkippedEvent) -> None:
                sink.skipped(skipped)

        with WorkPools() as pools:
            exporter = AsyncJournalExporter(AsyncThreadJournalStore(faulty, pools), key, "x", Slow(), patience=QUICK)
            task = asyncio.create_task(exporter.drain())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.set()
            assert (await exporter.drain()).complete
        assert sink.raw == [1, 2, 3]

    asyncio.run(main())
