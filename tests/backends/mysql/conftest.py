"""A real server, fresh namespaces on it, a proxy that loses requests and replies, and other processes."""

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from statebook.atomic import AtomicJournalStorage
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import Batch, Event
from statebook.options import Host, StoreUrl
from statebook.plugins import Backend, load_backend
from statebook.state import AgentStateStore
from statebook_conformance.services.mysql_service import MysqlService
from statebook_conformance.services.provide import ServiceUnavailable


class Stores:
    """Opens stores of one URL in a namespace of its own, and closes them."""

    def __init__(self, url: str) -> None:
        self.namespace = f"test-{secrets.token_hex(6)}"
        self.url = StoreUrl.parse(url).with_option("namespace", self.namespace)
        self.opened: list[Any] = []

    @property
    def text(self) -> str:
        """The URL, to hand to another process."""
        return self.url.unredacted()

    def backend(self, **options: object) -> Backend:
        url = self.url
        for name, value in options.items():
            url = url.with_option(name, str(value))
        return load_backend(url)

    def _keep(self, store: Any) -> Any:
        self.opened.append(store)
        return store

    def journal(self, **options: object) -> ThreadJournalStore:
        store: ThreadJournalStore = self._keep(self.backend(**options).open_journal())
        return store

    def state(self, **options: object) -> AgentStateStore:
        store: AgentStateStore = self._keep(self.backend(**options).open_state())
        return store

    def atomic(self, **options: object) -> AtomicJournalStorage:
        store: AtomicJournalStorage = self._keep(self.backend(**options).open_atomic())
        return store

    def close(self) -> None:
        for store in self.opened:
            store.close()


def _start(stack: ExitStack, settings: Sequence[str]) -> MysqlService:
    try:
        return stack.enter_context(MysqlService(settings=settings))
    except ServiceUnavailable as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def start_server() -> Callable[[ExitStack, Sequence[str]], MysqlService]:
    """Starts a server with settings; fails or skips where there is none."""
    return _start


@pytest.fixture(scope="session")
def server() -> Iterator[MysqlService]:
    """One server for all tests that leave it as it was."""
    with ExitStack() as stack:
        yield _start(stack, ())


@pytest.fixture(scope="module")
def odd_server() -> Iterator[MysqlService]:
    """A server as one finds them: latin1, a collation that ignores case, 4 MB packets, a lazy log."""
    with ExitStack() as stack:
        yield _start(
            stack,
            (
                *("--character-set-server=latin1", "--collation-server=latin1_swedish_ci", "--max-allowed-packet=4M"),
                *("--innodb-flush-log-at-trx-commit=2", "--sql-mode=NO_BACKSLASH_ESCAPES,ANSI_QUOTES"),
                *("--transaction-isolation=SERIALIZABLE", "--autocommit=0"),
            ),
        )


@pytest.fixture(scope="module")
def own_server() -> Iterator[MysqlService]:
    """A server for tests that stop, kill or change it, and leave it running."""
    with ExitStack() as stack:
        yield _start(stack, ())


@pytest.fixture
def stores_at() -> Iterator[Callable[[str], Stores]]:
    """Opens stores at a URL."""
    made: list[Stores] = []

    def at(url: str) -> Stores:
        made.append(Stores(url))
        return made[-1]

    yield at
    for stores in made:
        stores.close()


@pytest.fixture
def stores(server: MysqlService, stores_at: Callable[[str], Stores]) -> Stores:
    """Stores on the shared server."""
    return stores_at(server.url)


@pytest.fixture
def key() -> ThreadKey:
    return ThreadKey("user", "agent", "session", "thread")


class MakeBatch:
    """Builds small batches with distinct ids."""

    def __call__(self, name: str, events: int = 1, payload: bytes = b"1") -> Batch:
        return Batch(
            name,
            tuple(
                Event(event_id=f"{name}.{number}", type="x", occurred_at=1, payload=payload) for number in range(events)
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


class Proxy:
    """Stands between a store and a server, and loses what it is told to lose.

    `lose_reply` and `lose_request` name a text: the connection whose request holds it is cut, after the server has
    answered it or before the server has seen it. Each happens once, and `lost` counts.
    """

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.lose_reply: bytes | None = None
        self.lose_request: bytes | None = None
        self.lost = 0
        self.requests = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, stores: Stores) -> str:
        return stores.url.model_copy(update={"hosts": (Host(name="127.0.0.1", port=self.port),)}).unredacted()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._sockets += [client, server]
            cut = threading.Event()
            threading.Thread(target=self._requests, args=(client, server, cut), daemon=True).start()
            threading.Thread(target=self._replies, args=(client, server, cut), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        try:
            while data := client.recv(1 << 20):
                self.requests += 1
                if self.lose_request is not None and self.lose_request in data:
                    self.lose_request = None
                    self.lost += 1
                    break
                if self.lose_reply is not None and self.lose_reply in data:
                    self.lose_reply = None
                    self.lost += 1
                    cut.set()
                server.sendall(data)
        except OSError:
            pass
        if not cut.is_set():
            _end(client, server)

    def _replies(self, client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        try:
            while data := server.recv(1 << 20):
                if cut.is_set():
                    # The server answers statement by statement: until the last answer is there the COMMIT is not.
                    server.settimeout(0.5)
                    while server.recv(1 << 20):
                        continue
                client.sendall(data)
        except OSError:
            pass
        _end(client, server)

    def close(self) -> None:
        self._listener.close()
        _end(*self._sockets)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@pytest.fixture
def proxy(server: MysqlService) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait for something that happens elsewhere, for a bounded time."""

    def wait(happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not happened():
            assert time.monotonic() < deadline, "it did not happen within 20 s"
            time.sleep(0.01)

    return wait


@pytest.fixture
def kill() -> Callable[[MysqlService, str], int]:
    """KILL the sessions of a user's stores that a condition of PROCESSLIST names."""

    def run(server: MysqlService, condition: str = "1=1") -> int:
        found = server.execute(
            f"SELECT id FROM information_schema.processlist WHERE user = '{server.user}' AND {condition}"
        ).split()
        for number in found:
            server.execute(f"KILL {number}")
        return len(found)

    return run
