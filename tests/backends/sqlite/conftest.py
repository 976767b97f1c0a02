"""Fresh database files, the raw driver beside the store, and other processes."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from statebook import (
    AgentStateStore,
    AtomicJournalStorage,
    Batch,
    Event,
    ThreadJournalStore,
    ThreadKey,
    plugins as statebook,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def journal(url: str) -> Iterator[ThreadJournalStore]:
    store = statebook.open_journal(url)
    yield store
    store.close()


@pytest.fixture
def state(url: str) -> Iterator[AgentStateStore]:
    store = statebook.open_state(url)
    yield store
    store.close()


@pytest.fixture
def atomic(url: str) -> Iterator[AtomicJournalStorage]:
    store = statebook.open_atomic(url)
    yield store
    store.close()


@pytest.fixture
def key() -> ThreadKey:
    return ThreadKey("user", "agent", "session", "thread")


@pytest.fixture
def raw(path: Path) -> Iterator[Callable[[str], list[Any]]]:
    """Run a statement around the store, as someone with the sqlite3 shell would."""
    with ExitStack() as stack:

        def run(statement: str, *parameters: Any) -> list[Any]:
            connection = sqlite3.connect(path, isolation_level=None, timeout=10)
            stack.callback(connection.close)
            return connection.execute(statement, parameters).fetchall()

        yield run


@pytest.fixture(scope="session")
def ids() -> tuple[str, ...]:
    """Every identifier of the published vectors: each is a key of its own."""
    vectors = json.loads(files("statebook").joinpath("vectors/ids.json").read_text(encoding="utf-8"))
    return tuple(entry["id"] for entry in vectors["names"] if entry["id"] is not None)


class MakeBatch:
    """Builds small batches with distinct ids."""

    def __call__(self, name: str, events: int = 1, type_: str = "x", payload: bytes = b"1") -> Batch:
        return Batch(
            name,
            tuple(
                Event(event_id=f"{name}.{number}", type=type_, occurred_at=1, payload=payload)
                for number in range(events)
            ),
        )


@pytest.fixture(scope="session")
def batch() -> MakeBatch:
    return MakeBatch()


@pytest.fixture
def python() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Run a program in another Python process."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
