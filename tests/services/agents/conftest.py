"""Make the helpers beside these tests importable by name; open state stores."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statebook import AgentStateStore, new_id, open_state

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def open_store() -> Iterator[Callable[[str], AgentStateStore]]:
    """Opens state stores and closes them."""
    opened: list[AgentStateStore] = []

    def opener(url: str) -> AgentStateStore:
        opened.append(open_state(url))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[str], AgentStateStore]) -> AgentStateStore:
    """An empty store in memory."""
    return open_store(f"memory://agents-{new_id()}")


@pytest.fixture(params=["memory", "sqlite"])
def real_store(
    request: pytest.FixtureRequest, tmp_path: Path, open_store: Callable[[str], AgentStateStore]
) -> AgentStateStore:
    """An empty store, in memory and in a file."""
    url = f"memory://agents-{new_id()}" if request.param == "memory" else f"sqlite:///{tmp_path}/agents.db"
    return open_store(url)
