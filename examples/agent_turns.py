"""A reference agent without a model: what a framework does with statebook, in one file.

The agent answers two messages of one user. Its "model" is a script that looks at the conversation, its tools are two
functions with a side effect each, a line in the ledger file. Everything else is real: a session gate, a claimed
journal, commit lanes, a recorder, checkpoints, recovery, an export and a fork.

    python examples/agent_turns.py --store sqlite:///demo.db --crash-at 7
    python examples/agent_turns.py --store sqlite:///demo.db

The first command kills itself at the seventh of its numbered points: a tool has acted, and nobody has written down
that it did. The second one, another process, goes on from the committed checkpoint. It finds a tool that was begun and
has no end, looks into the ledger instead of running it again, commits what it found together with the state, and
finishes the run; then it answers the second message. No side effect happens twice, and the transcript is complete.

    python examples/agent_turns.py --store sqlite:///demo.db --resume-on redis://127.0.0.1:6379/0
    python examples/agent_turns.py --store sqlite:///demo.db --fork-into file:///absolute/dir --export events.jsonl
    statebook transcript sqlite:///demo.db --user ada --agent host --session dinner --thread main

How it works, from top to bottom: `converse` brings the messages, `turn` is one call of the session, `reconcile` settles
what a crash left open, `execute` runs reasoning, model and tools between the boundaries of the host.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast

from statebook import Json, ThreadJournal, ThreadJournalStore, ThreadKey, new_id, open_journal, open_state, salvage
from statebook.agents import AgentSessions, AgentState, ConflictPolicy, RuntimeContext, SessionOptions
from statebook.lanes import CommitLanes
from statebook.threads import InvocationRecorder, JournalExporter, JsonLinesSink
from statebook.threads.checkpoints import ThreadCheckpoints
from statebook.threads.events import (
    ActionEnd,
    InputReceived,
    ModelDispatch,
    ModelEnd,
    ToolDispatch,
    ToolRequested,
    ToolResult,
)
from statebook.threads.history import ThreadHistory
from statebook.threads.host import AgentExecutionHost
from statebook.threads.mirror import StateMirror
from statebook.threads.payload import Message, ResultOutcome
from statebook.threads.position import PendingTool, ToolState
from statebook.threads.recovery import NextStep, RecoveredThread, ThreadRecovery, ToolOutcome

KEY = ThreadKey("ada", "host", "dinner", "main")
MESSAGES = ("Book a table for four and tell the guests.", "Thank you. What have you done?")


class Crash:
    """Kills this process at a numbered point, as a power cut would: nothing is closed, flushed or released."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.passed = 0

    def point(self, what: str) -> None:
        self.passed += 1
        if self.passed == self.at:
            say(f"crash point {self.passed}: {what}")
            os.kill(os.getpid(), signal.SIGKILL)


class Ledger:
    """The tools' outside world: a file with one line a side effect. It can be asked what has happened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def act(self, tool: PendingTool) -> str:
        """Have the side effect. Never called twice for one tool call."""
        result = {"book_table": "table 7 at eight", "tell_guests": "told 3 guests"}[tool.name]
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"call_id": tool.call_id, "tool": tool.name, "result": result}) + "\n")
        return result

    def find(self, call_id: str) -> str | None:
        """What a tool call has done, or None where it has done nothing."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        entries = [json.loads(line) for line in lines]
        return next((str(entry["result"]) for entry in entries if entry["call_id"] == call_id), None)


def scripted_model(conversation: Sequence[Message]) -> tuple[str, str | None]:
    """The "model": looks at the conversation alone, and says something or asks for a tool."""
    done = {str(message["name"]): message["content"] for message in conversation if message.get("done") is True}
    for tool, plan in (("book_table", "I will book a table."), ("tell_guests", "I will tell the guests.")):
        if tool not in done:
            return plan, tool
    if sum(message["role"] == "user" for message in conversation) == 1:
        return f"Done: {done['book_table']}, {done['tell_guests']}.", None
    return f"I booked {done['book_table']}, and {done['tell_guests']}. Enjoy!", None


class Agent:
    """One process that serves the thread `KEY` from one store."""

    def __init__(self, url: str, ledger: Ledger, crash: Crash, stack: ExitStack) -> None:
        self.store = stack.enter_context(closing(open_journal(url)))
        states = stack.enter_context(closing(open_state(url)))
        self.lanes = stack.enter_context(CommitLanes(self.store))
        self.mirror = StateMirror(states, main_thread_id=KEY.thread_id)
        # The journal is the authority and its mirror writes the slot, so that the sessions never argue about it.
        self.sessions = AgentSessions(states, SessionOptions(policy=ConflictPolicy.OVERWRITE, cache_max=0))
        self.recovery = ThreadRecovery(validate=AgentState.from_mapping)
        self.ledger = ledger
        self.crash = crash
        self.writer = f"agent-{os.getpid()}"

    async def converse(self) -> None:
        """Bring the messages that the thread has not received, and finish what it has begun."""
        async with self.sessions:
            while True:
                async with self.sessions.call(KEY.session_id, user_id=KEY.user_id, thread_id=KEY.thread_id) as call:
                    state = await self.turn(call.context)
                    if state is None:
                        return
                    call.state = state

    async def turn(self, context: RuntimeContext) -> AgentState | None:
        """One call of the session: claim, recover, go on or begin, release. None where nothing is left to do."""
        journal = ThreadJournal(self.store, KEY)
        try:
            thread = await self.claimed(journal, context)
            if thread.next_step is NextStep.RECONCILE:
                await asyncio.to_thread(self.reconcile, journal, thread)
                thread = await self.claimed(journal, context)
            if thread.next_step is not NextStep.NEW_CALL:
                return await self.run(journal, thread, None)
            received = sum(given["role"] == "user" for given in conversation(thread.state))
            return await self.run(journal, thread, MESSAGES[received]) if received < len(MESSAGES) else None
        finally:
            await asyncio.to_thread(journal.release)

    async def claimed(self, journal: ThreadJournal, context: RuntimeContext) -> RecoveredThread:
        """Claim the thread, which fences whoever had it, and read where it stands."""
        await asyncio.to_thread(journal.claim, self.writer)
        self.crash.point("the thread is claimed")
        assert context.state is not None
        initial = cast("Mapping[str, Json]", context.state.to_mapping())
        return await asyncio.to_thread(lambda: self.recovery.load(journal, initial=initial))

    async def run(self, journal: ThreadJournal, thread: RecoveredThread, message: str | None) -> AgentState:
        """One run, recorded through a lane of the claim; its end leaves nothing in flight."""
        claim = journal.held
        assert claim is not None
        lane = self.lanes.open(claim)
        async with InvocationRecorder(lane, run_id=new_id()) as recorder:
            host = AgentExecutionHost(recorder, thread, claim=claim, mirror=self.mirror)
            await self.execute(host, thread, message)
        lane.close()
        return AgentState.from_mapping(host.state)

    def reconcile(self, journal: ThreadJournal, thread: RecoveredThread) -> None:
        """Find out what uncertain tools have done, without running them, and commit it with the state behind it."""
        outcomes = []
        for tool in thread.uncertain:
            result = self.ledger.find(tool.call_id)
            say(f"{tool.name} was begun and has no end; the ledger says: {result or 'not done'}")
            outcome: ResultOutcome = "not_executed" if result is None else "completed"
            outcomes.append(ToolOutcome(tool.call_id, outcome, result, message=tool_message(tool, result)))
        self.recovery.reconcile(journal, outcomes, "the ledger was read")
        self.crash.point("what the tools did is committed")

    async def execute(self, host: AgentExecutionHost, thread: RecoveredThread, message: str | None) -> None:
        """Run reasoning, model and tools, each between two boundaries that are durable."""
        if message is None:
            say(f"going on where it was left: {thread.position.describe()}")
            await host.start(thread.continuation())
        else:
            say(f"user: {message}")
            received = InputReceived(input_id=new_id(), message={"role": "user", "content": message})
            await host.start(thread.new_call(input=message), received)
        self.crash.point("the run has begun")
        while (answer := await self.step(host)) is None:
            pass
        say(f"agent: {answer}")
        await host.finalization(answer)
        self.crash.point("the run has ended")

    async def step(self, host: AgentExecutionHost) -> str | None:
        """Do what comes next: the pending tools, or the model. Gives the answer when there is one."""
        for tool in host.position.pending.tools:
            await self.use(host, tool)
        said = conversation(host.state)
        if said and said[-1]["role"] == "assistant" and not host.position.pending.inputs:
            return str(said[-1]["content"])  # committed before a crash
        await host.reasoning()
        self.crash.point("the model has the conversation")
        call_id = new_id()
        await host.model(ModelDispatch(call_id=call_id, model="script"))
        self.crash.point("the model is asked")
        text, tool_name = scripted_model(conversation(host.state))
        wanted = () if tool_name is None else (ToolRequested(call_id=new_id(), name=tool_name, model_call_id=call_id),)
        await host.model_ended(ModelEnd(call_id=call_id, message={"role": "assistant", "content": text}), *wanted)
        self.crash.point("the model has answered")
        return None if wanted else text

    async def use(self, host: AgentExecutionHost, tool: PendingTool) -> None:
        """Run a tool once in its life, and apply its result. A result that is there already is only applied."""
        if tool.state is ToolState.REQUESTED:
            await host.acting(ToolDispatch(call_id=tool.call_id, idempotency_key=tool.call_id))
            self.crash.point(f"{tool.name} may act")
            result = await asyncio.to_thread(self.ledger.act, tool)
            say(f"{tool.name}: {result}")
            self.crash.point(f"{tool.name} has acted, and nobody has written it down")
            await host.action_ended(ActionEnd(call_id=tool.call_id, result=result))
            self.crash.point(f"the result of {tool.name} is saved")
        else:
            result = str(tool.result)
        message = tool_message(tool, result)
        await host.apply_result(ToolResult(call_id=tool.call_id, content=result, message=message))
        self.crash.point(f"the result of {tool.name} is in the conversation")


def conversation(state: Mapping[str, Json] | None) -> list[Message]:
    """The messages of a state."""
    return cast("list[Message]", (state or {}).get("context", []))


def tool_message(tool: PendingTool, result: str | None) -> Message:
    """What the model is told about a tool call."""
    told = "not done" if result is None else result
    return {
        "role": "tool",
        "name": tool.name,
        "tool_call_id": tool.call_id,
        "done": result is not None,
        "content": told,
    }


def move(source: ThreadJournalStore, target: ThreadJournalStore) -> None:
    """Carry the thread over to another store, event by event. The old store's writer is fenced for good."""
    if target.head(KEY) is None and source.head(KEY) is not None:
        ThreadJournal(source, KEY).claim("moved away")
        copied = salvage(source, KEY, target, KEY, "mover", page=10_000)
        say(f"{copied.last_seq} events moved, complete: {copied.complete}")


def look_back(store: ThreadJournalStore, options: argparse.Namespace) -> None:
    """Export what happened, fork the thread, and show the conversation: each from the journal alone."""
    if options.export:
        report = JournalExporter(store, KEY, "events", JsonLinesSink(options.export)).drain()
        say(f"exported up to seq {report.acked_seq} to {options.export}")
    if options.fork_into:
        target = ThreadKey(KEY.user_id, KEY.agent_id, "dinner, next week", KEY.thread_id)
        with closing(open_journal(options.fork_into)) as other:
            checkpoints = ThreadCheckpoints(store, validate=AgentState.from_mapping)
            forked = checkpoints.fork(KEY, target, "forker", target_store=other)
            say(f"forked as session {target.session_id!r}" + (", once before" if forked.replayed else ""))
    transcript = ThreadHistory().transcript(ThreadJournal(store, KEY))
    for made in transcript.messages:
        say(f"{made.seq:>4}  {made.message['role']!s:<9} {made.message['content']}")
    say(f"the transcript is complete up to seq {transcript.as_of_seq}")


def say(text: str) -> None:
    """Show what happens, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the thread; gives the number of crash points that were passed."""
    parser = argparse.ArgumentParser(description="A reference agent without a model.")
    parser.add_argument("--store", required=True, metavar="URL", help="where journal and state are")
    parser.add_argument("--crash-at", type=int, metavar="N", help="kill this process at its Nth point")
    parser.add_argument("--ledger", type=Path, default=Path("side_effects.jsonl"), help="the tools' outside world")
    parser.add_argument("--resume-on", metavar="URL", help="move the thread to this store, and go on there")
    parser.add_argument("--fork-into", metavar="URL", help="fork the finished thread into this store")
    parser.add_argument("--export", type=Path, metavar="FILE", help="export the events as JSON lines")
    options = parser.parse_args(arguments)
    crash = Crash(options.crash_at)
    with ExitStack() as stack:
        if options.resume_on:
            with closing(open_journal(options.store)) as source, closing(open_journal(options.resume_on)) as target:
                move(source, target)
        agent = Agent(options.resume_on or options.store, Ledger(options.ledger), crash, stack)
        asyncio.run(agent.converse())
        look_back(agent.store, options)
    say(f"{crash.passed} crash points were passed")
    return crash.passed


if __name__ == "__main__":
    main()
