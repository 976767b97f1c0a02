"""Sessions under any order of calls, cancellations, faults and other processes: a machine makes the storage calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from faulty_state import FaultyState
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from statebook import (
    BackendUnavailable,
    OutcomeUnknown,
    Overloaded,
    Patience,
    StateKey,
    VersionConflict,
    new_id,
    open_state,
)
from statebook.agents import AGENT_STATE_KEY, AgentSessions, AgentState, ConflictPolicy, SessionCall, SessionOptions

SESSIONS = ("s", "..")
WAITERS_MAX = 3


class Deferred:
    """In the place of the pool: a storage call waits until the machine has it made."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self.waiting.append((future, call))
        return future

    def make(self, place: int) -> None:
        future, call = self.waiting.pop(place % len(self.waiting))
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - what a pool does
            future.set_exception(error)

    def shutdown(self, *, wait: bool) -> None:
        assert not wait


class Caller:
    """One call: what it says, and how far it has come."""

    def __init__(self, number: int, session: str) -> None:
        self.number = number
        self.session = session
        self.go_on = asyncio.Event()
        self.said = self.cancelled = False
        self.call: SessionCall | None = None
        self.task: asyncio.Task[None]


class SessionMachine(RuleBasedStateMachine):
    policy = ConflictPolicy.FAIL

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = open_state(f"memory://machine-{new_id()}")
        self.faulty = FaultyState(self.store)
        self.pool = Deferred()
        self.callers: list[Caller] = []
        self.entered: dict[str, list[int]] = {session: [] for session in SESSIONS}
        self.inside: Counter[str] = Counter()
        self.others: dict[str, list[int]] = {session: [] for session in SESSIONS}

    @initialize(cache_max=st.sampled_from([0, 1, 8]))
    def begin(self, cache_max: int) -> None:
        options = SessionOptions(
            policy=self.policy,
            cache_max=cache_max,
            waiters_max=WAITERS_MAX,
            patience=Patience(resends_max=1, pause_s=0),
        )
        self.sessions = AgentSessions(self.faulty, options)  # type: ignore[arg-type]
        self.sessions._pool.shutdown()
        self.sessions._pool = self.pool  # type: ignore[assignment]

    # ------------------------------------------------------------------------------------------------------- rules

    @rule(session=st.sampled_from(SESSIONS))
    def start(self, session: str) -> None:
        caller = Caller(len(self.callers), session)
        alive = sum(not c.task.done() for c in self.callers if c.session == session)
        caller.task = self.loop.create_task(self.body(caller))
        self.settle()
        if alive > WAITERS_MAX:
            assert isinstance(caller.task.exception(), Overloaded)
        else:
            self.callers.append(caller)

    async def body(self, caller: Caller) -> None:
        async with self.sessions.call(caller.session) as call:
            caller.call = call
            self.entered[caller.session].append(caller.number)
            self.inside[caller.session] += 1
            try:
                await caller.go_on.wait()
                call.state = call.state.model_copy(update={"context": (*call.state.context, {"n": caller.number})})
                caller.said = True
            finally:
                self.inside[caller.session] -= 1

    @precondition(lambda self: self.pool.waiting)
    @rule(place=st.integers(0, 3))
    def storage_answers(self, place: int) -> None:
        self.pool.make(place)
        self.settle()

    @precondition(lambda self: self.callers)
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.callers)).go_on.set()
        self.settle()

    @precondition(lambda self: self.callers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        caller = data.draw(st.sampled_from(self.callers))
        caller.cancelled = caller.task.cancel() or caller.cancelled
        self.settle()

    @rule(fault=st.sampled_from(["after", "before", "late", "unavailable"]))
    def plan(self, fault: Any) -> None:
        self.faulty.faults.append(fault)

    @precondition(lambda self: self.faulty.on_their_way)
    @rule()
    def a_late_request_lands(self) -> None:
        self.faulty.land()

    @rule(session=st.sampled_from(SESSIONS))
    def another_process_writes(self, session: str) -> None:
        number = -1 - len(self.others[session])
        found = self.store.load(self.slot(session))
        state = AgentState(session_id=session) if found is None else AgentState.from_json(found.value)
        state = state.model_copy(update={"context": (*state.context, {"n": number})})
        self.store.save(self.slot(session), state.to_json())
        self.others[session].append(number)

    @rule(session=st.sampled_from(SESSIONS))
    def interrupt(self, session: str) -> None:
        before = {c.number for c in self.callers if c.call is not None and c.call.interrupt.requested}
        in_flight = [c for c in self.callers if c.session == session and c.call is not None and not c.task.done()]
        assert self.sessions.interrupt(session) == bool(in_flight)
        after = {c.number for c in self.callers if c.call is not None and c.call.interrupt.requested}
        assert after - before <= {c.number for c in in_flight}
        assert len(in_flight) <= 1

    # -------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def one_call_a_session_in_the_order_of_arrival(self) -> None:
        assert all(self.inside[session] <= 1 for session in SESSIONS)
        for session in SESSIONS:
            assert self.entered[session] == sorted(self.entered[session])

    @invariant()
    def what_ended_well_is_stored_once_and_what_was_refused_is_not(self) -> None:
        stored = {session: self.stored(session) for session in SESSIONS}
        for caller in self.callers:
            times = stored[caller.session].count(caller.number)
            assert times <= caller.said
            if not caller.task.done() or caller.task.cancelled():
                continue
            error = caller.task.exception()
            if error is None:
                assert times == 1
            elif isinstance(error, VersionConflict | BackendUnavailable):
                assert times == 0
            else:
                assert isinstance(error, OutcomeUnknown)
        for session in SESSIONS:
            assert [n for n in stored[session] if n < 0] == self.others[session]
            ours = [n for n in stored[session] if n >= 0]
            assert ours == sorted(ours)

    # ------------------------------------------------------------------------------------------------------- the end

    def teardown(self) -> None:
        try:
            if hasattr(self, "sessions"):
                self.end()
        finally:
            for caller in self.callers:
                caller.task.cancel()
            self.settle()
            self.store.close()
            self.loop.close()

    def end(self) -> None:
        for caller in self.callers:
            caller.go_on.set()
        self.settle()
        while self.pool.waiting:
            self.pool.make(0)
            self.settle()
        assert all(caller.task.done() for caller in self.callers)
        assert self.sessions._core.gate._queues == {}
        assert self.loop.run_until_complete(self.sessions.shutdown()) == ()
        self.what_ended_well_is_stored_once_and_what_was_refused_is_not()

    @staticmethod
    def slot(session: str) -> StateKey:
        return StateKey(None, session, AGENT_STATE_KEY)

    def stored(self, session: str) -> list[int]:
        found = self.store.load(self.slot(session))
        return [] if found is None else [message["n"] for message in AgentState.from_json(found.value).context]  # type: ignore[misc]

    def settle(self) -> None:
        """Let every task run as far as it can without an answer of the storage."""

        async def turns() -> None:
            for _ in range(12):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())


class MergingMachine(SessionMachine):
    policy = ConflictPolicy.APPEND_MERGE


TestSessionsThatFail = SessionMachine.TestCase
TestSessionsThatMerge = MergingMachine.TestCase
TestSessionsThatFail.settings = TestSessionsThatMerge.settings = settings(max_examples=60, stateful_step_count=40)
