"""The recorder of an invocation: J17, J22."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from statebook import (
    BackendUnavailable,
    BatchConflict,
    InvalidBatch,
    InvalidValue,
    LimitExceeded,
    Overloaded,
    Patience,
    Receipt,
    StoreClosed,
    WriterFenced,
    decode_value,
)
from statebook.lanes import CommitLanes, LaneBounds, WorkPool
from statebook.threads import (
    BlockingInvocationRecorder,
    CallableSink,
    ContextExport,
    EventDraft,
    InvocationRecorder,
    JournalExporter,
    RecorderBounds,
)

QUICK = Patience(resends_max=2, pause_s=0.001, pause_max_s=0.002)
WAIT = 20.0


class Gate:
    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(WAIT)


def lanes_of(store: Any, **bounds: Any) -> CommitLanes:
    return CommitLanes(store, patience=QUICK, bounds=LaneBounds(**bounds))


def recorder_of(lanes: CommitLanes, store: Any, key: Any, **more: Any) -> InvocationRecorder:
    return InvocationRecorder(lanes.open(store.claim(key, "w")), run_id="run", clock_ms=lambda: 5, **more)


def test_what_record_returned_is_durable_with_run_and_turn(faulty_real: Any, key: Any) -> None:
    async def main() -> None:
        with lanes_of(faulty_real) as lanes:
            async with recorder_of(lanes, faulty_real, key, turn_id="t1") as recorder:
                event = await recorder.record("run/start", {"input": "hello"}, required=True)
                assert faulty_real.inner.read_after(key, 0).events == (event,)
                assert (event.seq, event.run_id, event.turn_id, event.required) == (1, "run", "t1", True)
                assert (event.occurred_at, decode_value(event.payload)) == (5, {"input": "hello"})
                recorder.turn("t2")
                assert (await recorder.record("step/start", {})).turn_id == "t2"
                assert (await recorder.record("step/end", {}, turn_id="t3", event_id="mine")).event_id == "mine"
                assert (recorder.run_id, recorder.turn_id, recorder.error, recorder.ended) == ("run", "t2", None, False)
        assert recorder.ended

    asyncio.run(main())


def test_appended_events_go_with_the_next_flush_in_one_batch(faulty: Any, key: Any) -> None:
    async def main() -> None:
        with lanes_of(faulty) as lanes:
            async with recorder_of(lanes, faulty, key) as recorder:
                assert await recorder.flush() is None
                for n in range(5):
                    recorder.append("model/chunk", n)
                assert faulty.groups == []
                receipt = await recorder.flush()
                assert (receipt.first_seq, receipt.last_seq) == (1, 5)  # type: ignore[union-attr]
                assert await recorder.flush() == receipt
        payloads = [decode_value(event.payload) for event in faulty.inner.read_after(key, 0).events]
        assert payloads == [0, 1, 2, 3, 4]
        assert len(faulty.groups) == 1

    asyncio.run(main())


def test_a_commit_starts_at_once_where_it_is_asked_for_and_where_a_batch_is_full(faulty: Any, key: Any) -> None:
    gates = [Gate(), Gate()]
    faulty.fail("append_many", *gates)
    with lanes_of(faulty) as lanes:
        recorder = recorder_of(lanes, faulty, key, bounds=RecorderBounds(batch_events_max=3))
        recorder.append("model/chunk", 0, flush=True)
        assert gates[0].reached.wait(WAIT)
        for n in range(1, 5):
            recorder.append("model/chunk", n)
        gates[0].opened.set()
        assert gates[1].reached.wait(WAIT)
        gates[1].opened.set()
        asyncio.run(recorder.flush())
    assert [len(ids) for ids in (faulty.groups)] == [1, 1, 1]
    assert len(faulty.ids(key)) == 5


def test_events_recorded_together_are_one_batch_whatever_waits_before_them(faulty: Any, key: Any) -> None:
    async def main() -> None:
        gate = Gate()
        faulty.fail("append_many", gate)
        with lanes_of(faulty) as lanes:
            recorder = recorder_of(lanes, faulty, key, bounds=RecorderBounds(batch_events_max=3))
            recorder.append("model/chunk", 0, flush=True)
            await asyncio.to_thread(gate.reached.wait, WAIT)
            recorder.append("model/chunk", 1)
            recorder.append("model/chunk", 2)
            together = asyncio.create_task(
                recorder.record_together(EventDraft("action/end", {}), EventDraft("state/checkpoint", {"n": 1}))
            )
            await asyncio.sleep(0)
            gate.opened.set()
            events = await together
            assert [event.seq for event in events] == [4, 5]
            head = faulty.inner.head(key)
            assert head.checkpoint_seq == 5
            with pytest.raises(InvalidBatch):
                await recorder.record_together()
            with pytest.raises(InvalidBatch):
                await recorder.record_together(EventDraft("a", 1, event_id="x"), EventDraft("a", 1, event_id="x"))
            assert (await recorder.record("run/end", {})).seq == 6

    asyncio.run(main())


def test_half_of_a_hundred_waiters_are_cancelled_and_the_others_get_their_receipts(faulty_real: Any, key: Any) -> None:
    """Case 38: a cancelled task loses no batch and holds up nobody."""

    async def main() -> None:
        gate = Gate()
        faulty_real.fail("append_many", gate)
        with lanes_of(faulty_real) as lanes:
            recorder = recorder_of(lanes, faulty_real, key)
            waiters = []
            for n in range(100):
                recorder.append("model/chunk", n, flush=n == 0)
                waiters.append(asyncio.create_task(recorder.flush()))
            await asyncio.to_thread(gate.reached.wait, WAIT)
            for waiter in waiters[::2]:
                waiter.cancel()
            await asyncio.sleep(0)
            gate.opened.set()
            answers = await asyncio.gather(*waiters, return_exceptions=True)
            assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
            assert all(isinstance(answer, Receipt) for answer in answers[1::2])
            await recorder.end()
        payloads = [decode_value(event.payload) for event in faulty_real.inner.read_after(key, 0).events]
        assert payloads == list(range(100))

    asyncio.run(main())


def test_a_cancelled_record_is_committed(faulty: Any, key: Any) -> None:
    async def main() -> None:
        gate = Gate()
        faulty.fail("append_many", gate)
        with lanes_of(faulty) as lanes:
            async with recorder_of(lanes, faulty, key) as recorder:
                task = asyncio.create_task(recorder.record("run/start", {}))
                await asyncio.to_thread(gate.reached.wait, WAIT)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                gate.opened.set()
        assert len(faulty.ids(key)) == 1

    asyncio.run(main())


def test_a_failed_commit_stops_everything_at_once(faulty: Any, key: Any) -> None:
    async def main() -> None:
        gate = Gate()
        faulty.fail("append_many", gate, *["unknown"] * 3)
        with lanes_of(faulty) as lanes:
            recorder = recorder_of(lanes, faulty, key)
            first = asyncio.create_task(recorder.record("run/start", {}))
            await asyncio.to_thread(gate.reached.wait, WAIT)
            second = asyncio.create_task(recorder.record("step/start", {}))
            await asyncio.sleep(0)
            gate.opened.set()
            assert (await first).seq == 1
            with pytest.raises(BackendUnavailable):
                await second
            for call in (recorder.check, lambda: recorder.append("x", 1)):
                with pytest.raises(WriterFenced) as stopped:
                    call()
                assert isinstance(stopped.value.__cause__, BackendUnavailable)
            for wait in (lambda: recorder.record("x", 1), recorder.flush, recorder.end):
                with pytest.raises(WriterFenced):
                    await wait()
        assert len(faulty.ids(key)) == 1

    asyncio.run(main())


def test_what_waits_behind_a_failed_batch_is_refused_and_not_written(faulty: Any, key: Any) -> None:
    async def main() -> None:
        gate = Gate()

        def fenced() -> None:
            gate()
            faulty.inner.claim(key, "other")

        faulty.fail("append_many", fenced)
        with lanes_of(faulty) as lanes:
            recorder = recorder_of(lanes, faulty, key)
            tasks = [asyncio.create_task(recorder.record("run/start", n)) for n in range(3)]
            await asyncio.to_thread(gate.reached.wait, WAIT)
            flush = asyncio.create_task(recorder.flush())
            await asyncio.sleep(0)
            gate.opened.set()
            answers = await asyncio.gather(*tasks, flush, return_exceptions=True)
        assert [type(answer) for answer in answers] == [WriterFenced] * 4
        assert faulty.ids(key) == []

    asyncio.run(main())


def test_a_lost_ownership_stops_further_effects(faulty: Any, key: Any) -> None:
    async def main() -> None:
        with lanes_of(faulty) as lanes:
            recorder = recorder_of(lanes, faulty, key)
            recorder.append("model/chunk", 1)
            faulty.claim(key, "other")
            try:
                faulty.heartbeat(lanes.open(recorder._core._lane.claim).claim)
            except WriterFenced as error:
                recorder.stop(error)
            with pytest.raises(WriterFenced):
                recorder.check()
            with pytest.raises(WriterFenced):
                await recorder.flush()
        assert faulty.ids(key) == []

    asyncio.run(main())


def test_a_lane_that_was_closed_by_somebody_else_stops_the_recorder(faulty: Any, key: Any, make_batch: Any) -> None:
    with lanes_of(faulty) as lanes:
        recorder = recorder_of(lanes, faulty, key)
        lane = recorder._core._lane
        faulty.inner.append(lane.claim, make_batch("beside"), 0)
        lane.submit(make_batch("b")).exception(WAIT)
        with pytest.raises(WriterFenced):
            recorder.check()


def test_nothing_is_written_after_the_end(faulty: Any, key: Any) -> None:
    async def main() -> None:
        with lanes_of(faulty) as lanes:
            async with recorder_of(lanes, faulty, key) as recorder:
                recorder.append("run/start", {})
            for call in (recorder.check, lambda: recorder.append("x", 1)):
                with pytest.raises(StoreClosed):
                    call()
            with pytest.raises(StoreClosed):
                await recorder.record("x", 1)
            receipt = await recorder.flush()
            assert await recorder.end() == receipt
        assert len(faulty.ids(key)) == 1

    asyncio.run(main())


def test_the_end_commits_what_was_accepted_also_where_the_body_fails(faulty: Any, key: Any) -> None:
    async def main() -> None:
        with lanes_of(faulty) as lanes:

            async def invocation(body: Callable[[], object]) -> None:
                async with recorder_of(lanes, faulty, key) as recorder:
                    recorder.append("run/start", {})
                    body()

            with pytest.raises(ZeroDivisionError):
                await invocation(lambda: 1 // 0)
            faulty.fail("append_many", WriterFenced("gone"), WriterFenced("gone"))
            with pytest.raises(WriterFenced, match="gone"):
                await invocation(lambda: None)
            with pytest.raises(ZeroDivisionError):
                await invocation(lambda: 1 // 0)
        assert len(faulty.ids(key)) == 1

    asyncio.run(main())


@pytest.mark.parametrize("bounds", [{"buffer_events_max": 3}, {"buffer_bytes_max": 1_000}])
def test_a_full_buffer_refuses_at_once_and_keeps_what_it_has(faulty: Any, key: Any, bounds: dict[str, int]) -> None:
    with lanes_of(faulty) as lanes:
        recorder = recorder_of(lanes, faulty, key, bounds=RecorderBounds(**bounds))
        for n in range(3):
            recorder.append("model/chunk", n)
        with pytest.raises(Overloaded):
            recorder.append("model/chunk", "one too many")
        asyncio.run(recorder.flush())
        recorder.append("model/chunk", 3)
        asyncio.run(recorder.end())
    payloads = [decode_value(event.payload) for event in faulty.inner.read_after(key, 0).events]
    assert payloads == [0, 1, 2, 3]


def test_bad_events_are_refused_and_the_recorder_goes_on(faulty: Any, key: Any) -> None:
    with lanes_of(faulty) as lanes:
        recorder = recorder_of(lanes, faulty, key)
        with pytest.raises(InvalidValue):
            recorder.append("x", float("nan"))
        with pytest.raises(LimitExceeded):
            asyncio.run(recorder.record_together(*[EventDraft("x", 1)] * 10_001))
        assert asyncio.run(recorder.record("x", 1)).seq == 1


def test_an_event_id_that_comes_twice_is_a_conflict_that_stops_the_recorder(faulty: Any, key: Any) -> None:
    with lanes_of(faulty) as lanes:
        recorder = recorder_of(lanes, faulty, key)
        recorder.append("x", 1, event_id="same")
        recorder.append("x", 2, event_id="same")
        with pytest.raises(BatchConflict):
            asyncio.run(recorder.flush())
    assert faulty.ids(key) == ["same"]


def test_a_recorder_waits_for_a_place_in_a_full_lane_without_blocking(
    faulty: Any, thread_key: Any, make_batch: Any
) -> None:
    gate = Gate()
    faulty.fail("append_many", gate)
    with lanes_of(faulty, queue_batches_max=1) as lanes:
        other = lanes.open(faulty.claim(thread_key("other"), "w")).submit(make_batch("b"))
        assert gate.reached.wait(WAIT)
        recorder = recorder_of(lanes, faulty, thread_key())
        recorder.append("x", 1, flush=True)
        recorder.append("x", 2, flush=True)
        gate.opened.set()
        assert other.result(WAIT).first_seq == 1
        assert asyncio.run(recorder.flush()).last_seq == 2  # type: ignore[union-attr]


def test_the_blocking_twin_keeps_the_same_promises(faulty_real: Any, key: Any) -> None:
    with lanes_of(faulty_real) as lanes:
        lane = lanes.open(faulty_real.claim(key, "w"))
        with BlockingInvocationRecorder(lane, run_id="run") as recorder:
            assert recorder.record("run/start", {}).seq == 1
            recorder.append("model/chunk", 1)
            assert [event.seq for event in recorder.record_together(EventDraft("a", 1), EventDraft("b", 2))] == [3, 4]
            assert recorder.flush().last_seq == 4  # type: ignore[union-attr]
        with pytest.raises(StoreClosed):
            recorder.record("x", 1)
        faulty_real.claim(key, "other")
        with pytest.raises(WriterFenced), BlockingInvocationRecorder(lane, run_id="run") as recorder:
            recorder.append("x", 1)


def test_a_sink_in_the_calls_context_gets_events_after_their_commit(faulty: Any, key: Any) -> None:
    seen: list[int] = []
    came: Future[None] = Future()

    def take(event: Any) -> None:
        assert faulty.inner.head(key).last_seq >= event.seq
        seen.append(event.seq)
        if len(seen) == 1:
            came.set_result(None)

    async def main() -> None:
        with lanes_of(faulty) as lanes, WorkPool("export", workers_max=1) as pool:
            export = ContextExport(JournalExporter(faulty, key, "console", CallableSink(take)), pool)
            async with recorder_of(lanes, faulty, key, export=export) as recorder:
                await recorder.record("run/start", {})
                await asyncio.wrap_future(came)
                for n in range(20):
                    recorder.append("model/chunk", n)
                await recorder.record("run/end", {})
            assert seen == list(range(1, 23))
            assert (export.error, export.report.acked_seq) == (None, 22)  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_failing_sink_fails_no_invocation_and_the_cursor_keeps_its_place(faulty: Any, key: Any) -> None:
    def take(event: Any) -> None:
        if event.seq == 2:
            raise OSError("the console is gone")

    async def main() -> None:
        with lanes_of(faulty) as lanes, WorkPool("export", workers_max=1) as pool:
            exporter = JournalExporter(faulty, key, "console", CallableSink(take), page=1)
            export = ContextExport(exporter, pool)
            async with recorder_of(lanes, faulty, key, export=export) as recorder:
                for n in range(3):
                    await recorder.record("model/chunk", n)
            assert isinstance(export.error, OSError)
            assert exporter.acked_seq == 1
            pool.close()
            assert export.finish().result(WAIT) is None
            assert isinstance(export.error, StoreClosed)
        assert faulty.open_cursor(key, "console").acked_seq == 1

    asyncio.run(main())
