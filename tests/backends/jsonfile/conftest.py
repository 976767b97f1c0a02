"""Fresh roots, stores in them, and other processes."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Protocol

import pytest

from statebook_backends.jsonfile.options import JsonFileOptions
from statebook_backends.jsonfile.store import JsonFileAtomicJournalStorage
from statebook_backends.jsonfile.tree import Disk

SCOPE = "t/_n/agent/session/thread"


class OpenStore(Protocol):
    def __call__(
        self, namespace: str = "default", *, disk: Disk | None = None, lock_timeout_s: float = 30
    ) -> JsonFileAtomicJournalStorage: ...


class Python(Protocol):
    def __call__(self, program: str, *arguments: str) -> "subprocess.Popen[str]": ...


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def open_store(root: Path) -> Iterator[OpenStore]:
    """Opens stores in the root, with an injected disk where one is given."""
    opened: list[JsonFileAtomicJournalStorage] = []

    def open_one(
        namespace: str = "default", *, disk: Disk | None = None, lock_timeout_s: float = 30
    ) -> JsonFileAtomicJournalStorage:
        options = JsonFileOptions(path=str(root), namespace=namespace, lock_timeout_s=lock_timeout_s)
        store = JsonFileAtomicJournalStorage(options, disk=disk)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> JsonFileAtomicJournalStorage:
    return open_store()


@pytest.fixture
def python() -> Iterator[Python]:
    """Starts programs in other processes, and ends those that are left."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), *arguments],
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


@pytest.fixture(scope="session")
def ids() -> tuple[str, ...]:
    """Every identifier of the published vectors: each is a key of its own."""
    vectors = json.loads(files("statebook").joinpath("vectors/ids.json").read_text(encoding="utf-8"))
    return tuple(entry["id"] for entry in vectors["names"] if entry["id"] is not None)


@pytest.fixture
def scope() -> str:
    return SCOPE


@pytest.fixture
def scope_path(root: Path) -> Path:
    """The directory of the scope in the default namespace."""
    return root.joinpath("ns.default", *(f"k-{part}" for part in SCOPE.split("/")))
