"""The host's boundaries: J12, J13, J15, J19, J20. A scripted agent dies at every boundary and goes on elsewhere."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Any, Self

import pytest
from hypothesis import given, settings, strategies as st

from statebook import (
    BackendUnavailable,
    HeadConflict,
    InvalidConfiguration,
    InvalidValue,
    Patience,
    StateKey,
    ThreadJournal,
    ThreadKey,
    WriterFenced,
    decode_value,
    open_journal,
    open_state,
)
from statebook.lanes import CommitLanes
from statebook.threads import events as models
from statebook.threads.history import ThreadHistory
from statebook.threads.host import AgentExecutionHost
from statebook.threads.mirror import StateMirror
from statebook.threads.payload import EventPayload
from statebook.threads.position import ExecutionStatus, Phase, ToolState
from statebook.threads.projection import JournalProjection
from statebook.threads.recorder import InvocationRecorder
from statebook.threads.recovery import NextStep, ThreadRecovery, ToolOutcome

KEY = ThreadKey("user", "agent", "session", "main")
QUICK = Patience(resends_max=1, pause_s=0.0)


class Killed(Exception):
    """The process is gone."""


class Mortal:
    """A recorder whose process dies at its n-th commit: before it, or after it and before anybody hears of it."""

    def __init__(self, inner: InvocationRecorder, kill_at: float, *, landed: bool) -> None:
        self._inner, self._kill_at, self._landed = inner, kill_at, landed
        self.commits = 0
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def check(self) -> None:
        if self.dead:
            raise Killed
        self._inner.check()

    async def record_together(self, *drafts: Any) -> Any:
        self.commits += 1
        if self.commits == self._kill_at:
            self.dead = True
            if self._landed:
                await self._inner.record_together(*drafts)
            raise Killed
        return await self._inner.record_together(*drafts)


class World:
    """What tools do outside: it remembers, so that an effect that happened twice is seen."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.models: Counter[str] = Counter()

    def act(self, call_id: str) -> str:
        self.effects[call_id] += 1
        return f"did {call_id}"


def assistant(text: str, *tools: str) -> Any:
    return {"role": "assistant", "content": text, "tools": list(tools)}


async def live(store: Any, world: World, run_id: str, kill_at: float, *, landed: bool) -> int:
    """One process: claim, load, reconcile where need be, go on to the end; or die."""
    with CommitLanes(store, patience=QUICK) as lanes:
        journal = ThreadJournal(store, KEY)
        journal.claim(run_id)
        recovery = ThreadRecovery()
        thread = recovery.load(journal)
        if thread.next_step is NextStep.RECONCILE:
            found = [
                ToolOutcome(tool.call_id, "completed" if world.effects[tool.call_id] else "not_executed", tool.call_id)
                for tool in thread.uncertain
            ]
            thread = recovery.reconcile(journal, found, "looked at the world").thread
        if thread.as_of_seq and thread.next_step is NextStep.NEW_CALL:
            return 0
        claim = journal.claim(run_id)
        recorder = Mortal(InvocationRecorder(lanes.open(claim), run_id=run_id), kill_at, landed=landed)
        host = AgentExecutionHost(recorder, thread)
        if thread.as_of_seq:
            await host.start(thread.continuation())
        else:
            given = models.InputReceived(input_id="i", message={"role": "user", "content": "go"})
            await host.start(thread.new_call(), given)
        await script(host, world)
        return recorder.commits


async def script(host: AgentExecutionHost, world: World) -> None:
    """The framework: it looks at state and position only, so that it goes on wherever they say."""
    for _ in range(20):
        for tool in host.position.pending.tools:
            if tool.state is ToolState.ENDED:
                await host.apply_result(models.ToolResult(call_id=tool.call_id, content=tool.result))
            elif tool.state is ToolState.REQUESTED:
                await host.acting(models.ToolDispatch(call_id=tool.call_id))
                result = world.act(tool.call_id)
                end = models.ActionEnd(call_id=tool.call_id, result=result)
                applied = models.ToolResult(call_id=tool.call_id, content=result)
                await host.action_ended(end, applied if tool.call_id == "t1" else None)
        if host.position.pending.tools:
            continue
        context: Any = host.state.get("context", [])
        last = context[-1] if context else None
        if last is not None and last["role"] == "assistant" and not last["tools"]:
            await host.finalization(last["content"])
            return
        step = await host.reasoning()
        call_id = f"m{host.position.iterations}"
        await host.model(models.ModelDispatch(call_id=call_id))
        world.models[call_id] += 1
        asked = ("t1", "t2") if host.position.iterations == 0 else ()
        message = assistant("tools, please" if asked else "done", *asked)
        await host.model_ended(
            models.ModelEnd(call_id=call_id, message=message),
            *(models.ToolRequested(call_id=name, name="act") for name in asked),
        )
        assert host.position.step == step
    raise AssertionError("the script never ends")


async def lives(kills: list[tuple[float, bool]]) -> tuple[World, Any, list[int]]:
    store = open_journal(f"memory://{uuid.uuid4().hex}")
    world = World()
    commits = []
    for number, (kill_at, landed) in enumerate([*kills, (float("inf"), False)]):
        try:
            commits.append(await live(store, world, f"run{number}", kill_at, landed=landed))
        except Killed:
            continue
    return world, store, commits


def check_whole(world: World, store: Any) -> None:
    journal = ThreadJournal(store, KEY)
    messages: Any = ThreadHistory().messages(journal)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert all(count == 1 for count in world.effects.values())
    thread = ThreadRecovery().load(journal)
    assert thread.state is not None
    assert tuple(thread.state["context"]) == messages  # type: ignore[arg-type]
    assert (thread.next_step, thread.position.iterations) == (NextStep.NEW_CALL, 2)
    projection = JournalProjection.read(journal)
    assert projection.position == thread.position
    assert thread.position.origin_run_id == projection.runs[0].run_id
    assert [run.continues for run in projection.runs] == [None, *(run.run_id for run in projection.runs[:-1])]


def test_without_a_crash_the_journal_tells_the_whole_run() -> None:
    world, store, commits = asyncio.run(lives([]))
    check_whole(world, store)
    assert world.effects == {"t1": 1, "t2": 1}
    assert commits == [13]
    projection = JournalProjection.read(ThreadJournal(store, KEY))
    assert [(run.run_id, run.outcome) for run in projection.runs] == [("run0", "completed")]
    assert [(step.step, step.phase, step.outcome) for step in projection.steps] == [
        (0, Phase.ACTING, "completed"),
        (1, Phase.FINALIZATION, "completed"),
    ]


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("kill_at", range(1, 14))
def test_a_process_that_dies_at_any_boundary_is_continued_without_doing_anything_twice(
    kill_at: int, landed: bool
) -> None:
    world, store, _ = asyncio.run(lives([(kill_at, landed)]))
    check_whole(world, store)
    assert all(count <= 2 for count in world.models.values())


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(1, 8), st.booleans()), max_size=5))
def test_however_often_processes_die_the_thread_comes_to_its_end_whole(kills: list[tuple[float, bool]]) -> None:
    world, store, _ = asyncio.run(lives(kills))
    check_whole(world, store)


# ------------------------------------------------------------------------------------------------ single boundaries


class Stage:
    """A host on a fresh memory store."""

    def __init__(self, **more: Any) -> None:
        self.store = open_journal(f"memory://{uuid.uuid4().hex}")
        self.lanes = CommitLanes(self.store, patience=QUICK)
        self.journal = ThreadJournal(self.store, KEY)
        self.claim = self.journal.claim("w")
        self.recorder = InvocationRecorder(self.lanes.open(self.claim), run_id="r1", turn_id="t")
        self.thread = ThreadRecovery().load(self.journal)
        self.host = AgentExecutionHost(self.recorder, self.thread, claim=self.claim, **more)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.lanes.close()

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.store.read_after(KEY, 0, 10_000).events]

    async def to_tools(self, *names: str) -> None:
        await self.host.start(models.RunStart())
        await self.host.reasoning()
        await self.host.model(models.ModelDispatch(call_id="m"))
        await self.host.model_ended(
            models.ModelEnd(call_id="m", message=assistant("x", *names)),
            *(models.ToolRequested(call_id=name, name="act") for name in names),
        )


def test_a_pause_is_confirmed_when_answer_questions_and_position_are_durable() -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.to_tools("t1")
            before = len(stage.types)
            ask = models.InteractionRequested(interaction_id="q", kind="approval", call_id="t1", step=0)
            confirmed = await stage.host.pause(ask, answer={"so far": "half"})
            assert stage.types[before:] == ["interaction/requested", "run/output", "run/end", "state/checkpoint"]
            head = stage.store.head(KEY)
            assert head is not None
            assert head.checkpoint_seq == confirmed.as_of_seq == head.last_seq
            thread = ThreadRecovery().load(ThreadJournal(stage.store, KEY))
            assert thread.position == confirmed.position
            assert (thread.position.status, thread.next_step) == (ExecutionStatus.PAUSED, NextStep.ANSWER)
            assert (thread.phase, thread.position.iterations) == (Phase.ACTING, 1)

    asyncio.run(main())


def test_a_continuation_with_an_answer_keeps_progress_and_begins_at_step_zero() -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.to_tools("t1")
            await stage.host.pause(models.InteractionRequested(interaction_id="q", kind="approval", call_id="t1"))
            thread = ThreadRecovery().load(stage.journal)
            claim = stage.journal.claim("w2")
            host = AgentExecutionHost(InvocationRecorder(stage.lanes.open(claim), run_id="r2"), thread)
            await host.start(thread.continuation(answering=["q"]))
            await host.answer(models.InteractionResolved(interaction_id="q", answer="no"))
            with pytest.raises(InvalidValue, match="open"):
                await host.answer(models.InteractionResolved(interaction_id="q"))
            await host.apply_result(models.ToolResult(call_id="t1", outcome="denied", source="provided"))
            assert (host.position.iterations, host.position.step, host.position.origin_run_id) == (1, 0, "r1")
            assert await host.reasoning() == 0
            assert host.position.iterations == 1
            await host.finalization("ok")
            assert ThreadRecovery().load(stage.journal).next_step is NextStep.NEW_CALL

    asyncio.run(main())


def test_a_tool_begins_once_also_when_two_tasks_try() -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.to_tools("t1", "t2")
            tries = await asyncio.gather(
                *(stage.host.acting(models.ToolDispatch(call_id="t1")) for _ in range(4)), return_exceptions=True
            )
            assert sum(result is None for result in tries) == 1
            assert sum(isinstance(result, InvalidValue) for result in tries) == 3
            assert stage.types.count("tool/dispatch") == 1
            for bad in (("t1",), ("nobody",), ("t2", "t2"), ()):
                with pytest.raises(InvalidValue):
                    await stage.host.acting(*(models.ToolDispatch(call_id=name) for name in bad))
            assert stage.types.count("tool/dispatch") == 1

    asyncio.run(main())


def test_a_result_is_applied_once_and_an_uncertain_one_is_reconciled() -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.to_tools("t1", "t2")
            host = stage.host
            await host.acting(models.ToolDispatch(call_id="t1"), models.ToolDispatch(call_id="t2"))
            result = models.ToolResult(call_id="t1", content=1)
            with pytest.raises(InvalidValue, match="uncertain"):
                await host.apply_result(result)
            for end, given in (
                (models.ActionEnd(call_id="t1", outcome="unknown"), result),
                (models.ActionEnd(call_id="t2"), result),
                (models.ActionEnd(call_id="t3"), None),
            ):
                with pytest.raises(InvalidValue):
                    await host.action_ended(end, given)
            await host.action_ended(models.ActionEnd(call_id="t2", outcome="unknown"))
            with pytest.raises(InvalidValue, match="uncertain"):
                await host.apply_result(models.ToolResult(call_id="t2"))
            end = models.ActionEnd(call_id="t1", result=1)
            both = await asyncio.gather(
                host.action_ended(end, result), host.action_ended(end, result), return_exceptions=True
            )
            assert [isinstance(one, InvalidValue) for one in both].count(True) == 1
            assert stage.types.count("tool/result") == 1
            with pytest.raises(InvalidValue, match="not complete"):
                await host.finalization("done")
            await host.finalization(outcome="failed", error="gave up")
            assert ThreadRecovery().load(stage.journal).next_step is NextStep.RECONCILE

    asyncio.run(main())


def test_a_new_call_does_not_begin_over_unfinished_work() -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.to_tools("t1")
            thread = ThreadRecovery().load(stage.journal)
            host = AgentExecutionHost(stage.recorder, thread)
            before = stage.types
            with pytest.raises(HeadConflict):
                await host.start(models.RunStart())
            with pytest.raises(InvalidValue):
                await host.start(models.RunStart(continues="another"))
            await stage.host.acting(models.ToolDispatch(call_id="t1"))
            before = stage.types
            uncertain = AgentExecutionHost(stage.recorder, ThreadRecovery().load(stage.journal))
            with pytest.raises(HeadConflict, match="reconcile"):
                await uncertain.start(models.RunStart(continues="r1"))
            assert stage.types == before

    asyncio.run(main())


def test_a_cancelled_waiter_leaves_state_and_journal_together() -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.to_tools("t1")
            waiter = asyncio.ensure_future(stage.host.acting(models.ToolDispatch(call_id="t1")))
            await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            await stage.host.action_ended(models.ActionEnd(call_id="t1"), models.ToolResult(call_id="t1", content="x"))
            thread = ThreadRecovery().load(stage.journal)
            assert (thread.state, thread.position) == (stage.host.state, stage.host.position)
            assert stage.types.count("tool/dispatch") == 1

    asyncio.run(main())


def test_after_a_lost_claim_no_boundary_is_passed_and_nothing_moves() -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.to_tools("t1")
            stage.store.claim(KEY, "successor")
            before, position = stage.types, stage.host.position
            for _ in range(2):
                with pytest.raises(WriterFenced):
                    await stage.host.acting(models.ToolDispatch(call_id="t1"))
            assert (stage.types, stage.host.position) == (before, position)

    asyncio.run(main())


class Extra(EventPayload):
    event_type = "x/extra"
    text: str


def test_further_events_are_recorded_if_registered_and_change_the_state_with_them() -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.host.start(models.RunStart())
            before = stage.types
            with pytest.raises(InvalidConfiguration, match="x/extra"):
                await stage.host.record(Extra(text="a"))
            assert stage.types == before
            seq = await stage.host.record(models.RunOutput(output=1), change=lambda state: {**state, "summary": "s"})
            event = stage.store.read_after(KEY, seq - 1, 1).events[0]
            payload: Any = decode_value(event.payload)
            assert (payload["summary"], stage.host.state["summary"]) == ("s", "s")
            stage.host.chunk(models.ModelChunk(call_id="m", index=0, delta="par"))
            await stage.host.receive(models.InputReceived(input_id="j", message={"role": "user"}))
            assert await stage.host.reasoning() == 0
            assert stage.host.state["context"] == [{"role": "user"}]
            assert stage.types.count("model/chunk") == 1

    asyncio.run(main())


def test_checkpoints_are_mirrored_and_a_mirror_that_fails_stops_nothing() -> None:
    states = open_state(f"memory://{uuid.uuid4().hex}")

    class Failing(StateMirror):
        fails = True

        def write(self, *arguments: Any) -> Any:
            if self.fails:
                raise BackendUnavailable("down")
            return super().write(*arguments)

    async def main() -> None:
        mirror = Failing(states)
        async with Stage(mirror=mirror) as stage:
            await stage.to_tools("t1")
            assert isinstance(stage.host.mirror_error, BackendUnavailable)
            mirror.fails = False
            await stage.host.record()
            assert [stage.host.mirror_error] == [None]
            value = states.load(StateKey("user", "session", "agent_state"))
            assert value is not None
            assert decode_value(value.value) == stage.host.state

    asyncio.run(main())
    with pytest.raises(ValueError, match="claim"):
        AgentExecutionHost(None, None, mirror=StateMirror(states))  # type: ignore[arg-type]
