"""Sessions, from asyncio and from threads: one call at a time in order, interrupt, shutdown."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from typing import Any

import pytest
from faulty_state import FaultyState, Gate
from speaking import run, said, say, slot, until

from statebook import AgentStateStore, Overloaded, SessionKey, StoreClosed, VersionConflict
from statebook.agents import AgentSessions, AgentState, BlockingAgentSessions

# ------------------------------------------------------------------------------------------------------------- the gate


def test_a_thousand_calls_of_one_session_wait_without_a_thread_and_run_in_order(store: AgentStateStore) -> None:
    order: list[int] = []
    running = 0

    async def program() -> None:
        nonlocal running
        async with AgentSessions(store, workers=4) as sessions:

            async def one(number: int) -> None:
                nonlocal running
                async with sessions.call("s") as call:
                    running += 1
                    assert running == 1
                    order.append(number)
                    if number % 100 == 0:
                        say(call, str(number))
                    await asyncio.sleep(0)
                    running -= 1

            before = threading.active_count()
            async with sessions.call("s"):
                waiting = [asyncio.create_task(one(number)) for number in range(1_000)]
                await asyncio.sleep(0)
                async with sessions.call("another"):  # is served meanwhile, by the same four threads
                    pass
                assert threading.active_count() - before <= 4
                with pytest.raises(Overloaded):
                    await one(-1)
            await asyncio.gather(*waiting)
            assert threading.active_count() - before <= 4
            assert (await sessions.read("s")).state.context == said(*(str(n) for n in range(0, 1_000, 100)))

    run(program())
    assert order == list(range(1_000))


def test_sessions_run_side_by_side(store: AgentStateStore) -> None:
    async def program() -> None:
        async with AgentSessions(store) as sessions:
            met = asyncio.Barrier(3)

            async def one(session_id: str, user_id: str | None) -> None:
                async with sessions.call(session_id, user_id=user_id):
                    await met.wait()

            await asyncio.gather(one("s", None), one("s", "u"), one("t", None))

    run(program())


def test_a_waiter_that_is_cancelled_lets_the_others_pass(store: AgentStateStore) -> None:
    async def program() -> list[int]:
        order: list[int] = []
        async with AgentSessions(store) as sessions:

            async def one(number: int) -> None:
                async with sessions.call("s"):
                    order.append(number)

            async with sessions.call("s"):
                tasks = [asyncio.create_task(one(number)) for number in range(6)]
                await asyncio.sleep(0)
                for number in (0, 3):
                    tasks[number].cancel()
            tasks[1].cancel()  # has perhaps its turn by now
            await asyncio.gather(*tasks, return_exceptions=True)
        return order

    order = run(program())
    assert [number for number in order if number != 1] == [2, 4, 5]


def test_cancelling_the_caller_cancels_no_save_and_the_next_call_waits_for_it(store: AgentStateStore) -> None:
    slow = FaultyState(store)
    gate = Gate()
    slow.faults.append(gate)

    async def program() -> None:
        async with AgentSessions(slow) as sessions:  # type: ignore[arg-type]

            async def first() -> None:
                async with sessions.call("s") as call:
                    say(call, "first")

            async def second() -> tuple[dict[str, Any], ...]:
                async with sessions.call("s") as call:
                    return call.state.context

            cancelled = asyncio.create_task(first())
            await until(gate.reached.is_set)
            cancelled.cancel()
            following = asyncio.create_task(second())
            await asyncio.sleep(0.01)
            assert (cancelled.done(), following.done()) == (False, False)
            gate.open.set()
            assert await following == said("first")
            with pytest.raises(asyncio.CancelledError):
                await cancelled

    run(program())


def test_threads_take_turns_in_order(store: AgentStateStore) -> None:
    sessions = BlockingAgentSessions(store)
    order: list[int] = []
    threads: list[threading.Thread] = []

    def one(number: int) -> None:
        with sessions.call("s") as call:
            order.append(number)
            say(call, str(number))

    queue = sessions._core.gate._queues
    with sessions.call("s"):
        for number in range(8):
            threads.append(threading.Thread(target=one, args=(number,)))
            threads[-1].start()
            while len(queue[SessionKey(None, "s")]) < number + 2:
                time.sleep(0.001)
    for thread in threads:
        thread.join(30)
    assert order == list(range(8))
    assert sessions.read("s").state.context == said(*map(str, order))


def test_both_kinds_of_sessions_have_the_same_names_and_parameters() -> None:
    names = {name for name in vars(AgentSessions) if not name.startswith("_")}
    assert names == {name for name in vars(BlockingAgentSessions) if not name.startswith("_")}
    for name in names:
        asynchronous, blocking = (getattr(kind, name) for kind in (AgentSessions, BlockingAgentSessions))
        assert inspect.signature(asynchronous).parameters == inspect.signature(blocking).parameters, name


# ----------------------------------------------------------------------------------------------- interrupt and shutdown


def test_an_interrupt_reaches_exactly_one_sessions_call(store: AgentStateStore) -> None:
    async def program() -> None:
        async with AgentSessions(store) as sessions:
            async with (
                sessions.call("s", user_id="u") as reached,
                sessions.call("s") as other_user,
                sessions.call("t", user_id="u") as other_session,
            ):
                waiting = asyncio.create_task(one_after(sessions))
                await asyncio.sleep(0)
                assert sessions.interrupt("s", user_id="u", message="stop")
                assert sessions.interrupt("s", user_id="u", message="too late")
                assert (reached.interrupt.requested, reached.interrupt.message) == (True, "stop")
                assert not any(call.interrupt.requested for call in (other_user, other_session))
            assert not await waiting
            assert not sessions.interrupt("s", user_id="u")
            assert b"stop" not in b"".join(v.value for v in [store.load(slot("s", "u"))] if v)

    async def one_after(sessions: AgentSessions) -> bool:
        async with sessions.call("s", user_id="u") as call:
            return call.interrupt.requested

    run(program())


def test_a_shutdown_refuses_interrupts_saves_and_stores_nothing_afterwards(store: AgentStateStore) -> None:
    async def program() -> None:
        sessions = AgentSessions(store)
        hang = asyncio.Event()

        async def body(session_id: str, *, stops: bool, late: bool = False, complete: bool = False) -> None:
            async with sessions.call(session_id) as call:
                say(call, "begun")
                if complete:
                    call.complete()
                if stops:
                    await until(lambda: call.interrupt.requested)
                else:
                    await hang.wait()
                if late:
                    say(call, "too late")

        tasks = {
            "stops": asyncio.create_task(body("stops", stops=True)),
            "complete": asyncio.create_task(body("complete", stops=True, complete=True)),
            "hangs": asyncio.create_task(body("hangs", stops=False)),
            "late": asyncio.create_task(body("late", stops=False, late=True)),
        }
        await until(lambda: len(sessions._core._calls) == 4)
        waiting = asyncio.create_task(body("hangs", stops=True))
        await asyncio.sleep(0)
        cut = await sessions.shutdown(grace_s=0.05)
        assert {session.session_id for session in cut} == {"hangs", "late"}
        with pytest.raises(StoreClosed):
            await waiting
        with pytest.raises(StoreClosed):
            await body("new", stops=True)
        with pytest.raises(StoreClosed):
            await sessions.read("hangs")
        before = store.load(slot("late"))
        hang.set()
        await tasks["hangs"]
        with pytest.raises(StoreClosed):
            await tasks["late"]
        assert store.load(slot("late")) == before
        assert await sessions.shutdown() == ()

    run(program())
    flags = {}
    for name in ("stops", "complete", "hangs", "late"):
        stored = store.load(slot(name))
        assert stored is not None
        state = AgentState.from_json(stored.value)
        assert state.context == said("begun")
        flags[name] = state.shutdown_interrupted
    assert flags == {"stops": True, "complete": False, "hangs": True, "late": True}


def test_a_shutdown_of_threads_saves_calls_as_they_stand(store: AgentStateStore) -> None:
    sessions = BlockingAgentSessions(store)
    begun, hang = threading.Event(), threading.Event()
    outcome: list[type[BaseException] | None] = []

    def body() -> None:
        try:
            with sessions.call("s") as call:
                say(call, "begun")
                begun.set()
                hang.wait(30)
                say(call, "too late")
        except StoreClosed as error:
            outcome.append(type(error))

    thread = threading.Thread(target=body)
    thread.start()
    assert begun.wait(30)
    assert sessions.shutdown(grace_s=0) == (SessionKey(None, "s"),)
    hang.set()
    thread.join(30)
    assert outcome == [StoreClosed]
    with pytest.raises(StoreClosed):
        sessions.read("s")
    stored = store.load(slot("s"))
    assert stored is not None
    assert AgentState.from_json(stored.value) == AgentState(
        session_id="s", context=said("begun"), shutdown_interrupted=True
    )


def test_a_save_in_flight_at_the_shutdown_is_not_made_twice(store: AgentStateStore) -> None:
    slow = FaultyState(store)
    gate = Gate()
    slow.faults.append(gate)

    async def program() -> None:
        sessions = AgentSessions(slow)  # type: ignore[arg-type]

        async def body() -> None:
            async with sessions.call("s") as call:
                say(call, "once")
                call.complete()

        task = asyncio.create_task(body())
        await until(gate.reached.is_set)
        ending = asyncio.create_task(sessions.shutdown(grace_s=0))
        await asyncio.sleep(0.01)
        gate.open.set()
        await asyncio.gather(task, ending)

    run(program())
    assert slow.saves == 1


def test_a_call_that_is_still_loading_at_the_shutdown_does_not_begin(store: AgentStateStore) -> None:
    slow = FaultyState(store)
    gate = Gate()
    slow.load_gates.append(gate)

    async def program() -> None:
        sessions = AgentSessions(slow)  # type: ignore[arg-type]

        async def body() -> None:
            async with sessions.call("s"):
                pytest.fail("the body must not run")

        task = asyncio.create_task(body())
        await until(gate.reached.is_set)
        ending = asyncio.create_task(sessions.shutdown())
        await asyncio.sleep(0)
        gate.open.set()
        with pytest.raises(StoreClosed):
            await task
        assert await ending == ()

    run(program())
    assert slow.saves == 0


def test_sessions_that_end_with_a_failing_save_say_so_and_save_the_others(store: AgentStateStore) -> None:
    async def program() -> None:
        sessions = AgentSessions(store)
        hang = asyncio.Event()

        async def body(session_id: str) -> None:
            async with sessions.call(session_id) as call:
                say(call, "begun")
                await hang.wait()

        tasks = [asyncio.create_task(body(name)) for name in ("taken", "fine")]
        await until(lambda: len(sessions._core._calls) == 2)
        store.save(slot("taken"), AgentState(session_id="taken", summary="faster").to_json())
        with pytest.raises(VersionConflict):
            await sessions.shutdown(grace_s=0)
        hang.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [StoreClosed, type(None)]

    run(program())
    stored = store.load(slot("fine"))
    assert stored is not None
    assert AgentState.from_json(stored.value).shutdown_interrupted
