"""What scenarios share: the reference agent, run to its end here, or killed in processes of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from statebook import StateKey, ThreadJournal, open_journal, open_state
from statebook.agents import AGENT_STATE_KEY, AgentState
from statebook.threads.history import ThreadHistory
from statebook_conformance.services.provide import ServiceUnavailable, provide

SCRIPT = Path(__file__).parents[2] / "examples" / "agent_turns.py"

# One process imports the agent once, and forks a child for each crash: a killed process, at the cost of a fork.
KILLER = """
import importlib.util, json, os, signal, sys
spec = importlib.util.spec_from_file_location("agent_turns", sys.argv[1])
agent = importlib.util.module_from_spec(spec)
spec.loader.exec_module(agent)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        try:
            agent.main(json.loads(line))
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    _, status = os.waitpid(pid, 0)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    sys.stdout.write(f"\\n@@{code}\\n")
    sys.stdout.flush()
"""


@pytest.fixture(scope="session")
def agent() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("agent_turns", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def in_a_process() -> Iterator[Callable[..., int]]:
    """Runs the agent in a process of its own; gives its exit code, negative where a signal ended it."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLER, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def run(*arguments: str) -> int:
        print(json.dumps(arguments), file=process.stdin, flush=True)
        for line in process.stdout or ():
            if line.startswith("@@"):
                return int(line[2:])
        raise AssertionError("the process that forks has ended")

    yield run
    process.stdin.close()
    process.stdout.close()
    assert process.wait(30) == 0


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A Redis server."""
    try:
        with provide("redis") as provided:
            yield provided.url
    except ServiceUnavailable as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))


class Look:
    """What can be seen of a thread from outside, through a store of its own."""

    def __init__(self, agent: ModuleType, url: str, ledger: Path) -> None:
        self.key = agent.KEY
        self.url = url
        self.ledger = ledger

    def said(self) -> list[str]:
        store = open_journal(self.url)
        try:
            found = ThreadHistory().transcript(ThreadJournal(store, self.key))
            assert not store.verify(self.key, deep=True).findings
        finally:
            store.close()
        return [str(made.message["content"]) for made in found.messages]

    def effects(self) -> list[str]:
        lines = self.ledger.read_text(encoding="utf-8").splitlines() if self.ledger.exists() else []
        return [json.loads(line)["tool"] for line in lines]

    def slot(self) -> AgentState:
        store = open_state(self.url)
        try:
            stored = store.load(StateKey(self.key.user_id, self.key.session_id, AGENT_STATE_KEY))
        finally:
            store.close()
        assert stored is not None
        return AgentState.from_json(stored.value)

    def is_complete(self) -> None:
        """Every message is there, in order, each side effect happened once, and the slot says the same."""
        said, slot = self.said(), self.slot()
        assert [text for text in said if text != "not done" and not text.startswith("I will")] == [
            "Book a table for four and tell the guests.",
            "table 7 at eight",
            "told 3 guests",
            "Done: table 7 at eight, told 3 guests.",
            "Thank you. What have you done?",
            "I booked table 7 at eight, and told 3 guests. Enjoy!",
        ]
        assert self.effects() == ["book_table", "tell_guests"]
        assert [str(message["content"]) for message in slot.context] == said


@pytest.fixture
def look(agent: ModuleType) -> Callable[[str, Path], Look]:
    def at(url: str, ledger: Path) -> Look:
        return Look(agent, url, ledger)

    return at
