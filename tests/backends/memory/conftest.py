"""Fresh memory stores."""

import json
from collections.abc import Iterator
from importlib.resources import files

import pytest

import statebook
from statebook import AgentStateStore, AtomicJournalStorage, Batch, Event, ThreadJournalStore


@pytest.fixture
def state() -> Iterator[AgentStateStore]:
    store = statebook.open_state("memory://")
    yield store
    store.close()


@pytest.fixture
def journal() -> Iterator[ThreadJournalStore]:
    store = statebook.open_journal("memory://")
    yield store
    store.close()


@pytest.fixture
def atomic() -> Iterator[AtomicJournalStorage]:
    store = statebook.open_atomic("memory://")
    yield store
    store.close()


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
