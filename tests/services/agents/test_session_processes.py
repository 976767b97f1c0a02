"""Sessions served by several processes from one store: no turn is lost, and a rolling deploy goes on where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statebook import open_state
from statebook.agents import BlockingAgentSessions, SessionOptions

TURNS = 100
TOGETHER = 5
"""How many first turns of both processes are made at the same time, so that they certainly meet."""

WORKER = """
import sys
from statebook import VersionConflict, open_state
from statebook.agents import BlockingAgentSessions, ConflictPolicy, SessionOptions

url, policy, name, turns, together = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
options = SessionOptions(policy=ConflictPolicy(policy), cache_max=0)
conflicts = 0
store = open_state(url)
with BlockingAgentSessions(store, options) as sessions:
    for turn in range(turns):
        tries = 0
        while True:
            try:
                with sessions.call("s", user_id="u") as call:
                    message = {"by": name, "turn": turn}
                    call.state = call.state.model_copy(update={"context": (*call.state.context, message)})
                    if turn < together and tries == 0:
                        print("inside", flush=True)
                        sys.stdin.readline()
                break
            except VersionConflict:
                tries += 1
                conflicts += 1
store.close()
print(conflicts, flush=True)
"""

OLD = """
import asyncio, signal, sys
from statebook import open_state
from statebook.agents import AgentSessions

async def main():
    store = open_state(sys.argv[1])
    sessions = AgentSessions(store)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    async def long_call():
        async with sessions.call("s", user_id="u") as call:
            said = {"role": "user", "content": "a long task"}
            call.state = call.state.model_copy(update={"context": (*call.state.context, said), "iteration": 3})
            print("inside", flush=True)
            await asyncio.Event().wait()

    task = asyncio.create_task(long_call())
    await ended.wait()
    cut = await sessions.shutdown(grace_s=0.01)
    print([session.session_id for session in cut], flush=True)
    store.close()
    task.cancel()

asyncio.run(main())
"""

NEW = """
import asyncio, json, sys
from statebook import open_state
from statebook.agents import AgentSessions

async def main():
    store = open_state(sys.argv[1])
    async with AgentSessions(store) as sessions:
        async with sessions.call("s", user_id="u") as call:
            print(json.dumps(call.state.to_mapping()), call.interrupt.requested, flush=True)
            call.state = call.state.model_copy(update={"shutdown_interrupted": False, "iteration": 4})
    store.close()

asyncio.run(main())
"""


@pytest.fixture
def python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts programs, and ends those that are left."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, *arguments]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("policy", ["fail", "append-merge"])
def test_two_processes_share_a_session_and_lose_no_turn(
    tmp_path: Path, python: Callable[..., subprocess.Popen[str]], policy: str
) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    workers = [python(WORKER, url, policy, name, str(TURNS), str(TOGETHER)) for name in "ab"]
    for _ in range(TOGETHER):
        for worker in workers:
            assert line(worker) == "inside"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
    conflicts = sum(int(line(worker)) for worker in workers)
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert (conflicts >= TOGETHER) if policy == "fail" else (conflicts == 0)
    store = open_state(url)
    with BlockingAgentSessions(store, SessionOptions(cache_max=0)) as sessions:
        context = sessions.read("s", user_id="u").state.context
    store.close()
    assert len(context) == 2 * TURNS
    for name in "ab":
        assert [message["turn"] for message in context if message["by"] == name] == list(range(TURNS))


def test_a_rolling_deploy_saves_at_the_shutdown_and_goes_on_in_the_new_process(
    tmp_path: Path, python: Callable[..., subprocess.Popen[str]]
) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    old = python(OLD, url)
    assert line(old) == "inside"
    old.send_signal(signal.SIGTERM)
    assert line(old) == "['s']"
    assert old.wait(60) == 0
    new = python(NEW, url)
    shown, interrupted = line(new).rsplit(" ", 1)
    assert new.wait(60) == 0
    state = json.loads(shown)
    assert (state["shutdown_interrupted"], state["iteration"], interrupted) == (True, 3, "False")
    assert [message["content"] for message in state["context"]] == ["a long task"]
    store = open_state(url)
    with BlockingAgentSessions(store) as sessions:
        after = sessions.read("s", user_id="u").state
    store.close()
    assert (after.shutdown_interrupted, after.iteration) == (False, 4)
