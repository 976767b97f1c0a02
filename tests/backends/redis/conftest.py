"""Real Redis servers in three forms, fresh namespaces on them, a proxy that loses replies, and other processes."""

import os
import secrets
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar

import pytest

from statebook.atomic import AtomicJournalStorage
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import Batch, Event
from statebook.options import StoreUrl
from statebook.plugins import Backend, load_backend
from statebook.state import AgentStateStore
from statebook_conformance.services.redis_service import RedisClusterService, RedisSentinelService, RedisService, ask
from statebook_conformance.services.server import ServiceUnavailable
from statebook_conformance.services.service import Service

S = TypeVar("S", bound=Service)

THREAD = ThreadKey("user", "agent", "session", "thread")


class Stores:
    """Opens stores of one URL in a namespace of its own, and closes them."""

    def __init__(self, url: str) -> None:
        self.namespace = f"test-{secrets.token_hex(6)}"
        self.url = StoreUrl.parse(url).with_option("namespace", self.namespace)
        self.opened: list[Any] = []

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


def _started(service: S, stack: ExitStack) -> S:
    try:
        return stack.enter_context(service)
    except ServiceUnavailable as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def server() -> Iterator[RedisService]:
    """One server for all tests that leave it as it was."""
    with ExitStack() as stack:
        yield _started(RedisService(), stack)


@pytest.fixture
def own_server() -> Iterator[Callable[..., RedisService]]:
    """Starts servers with settings of their own, for tests that kill or change them."""
    with ExitStack() as stack:

        def start(*extra: str, appendfsync: str = "always") -> RedisService:
            return _started(RedisService(appendfsync=appendfsync, extra=extra), stack)

        yield start


@pytest.fixture
def cluster() -> Iterator[RedisClusterService]:
    """A cluster of three masters with replicas; each test has its own, since masters are killed."""
    with ExitStack() as stack:
        yield _started(RedisClusterService(failover=True), stack)


@pytest.fixture
def sentinel() -> Iterator[RedisSentinelService]:
    """A master with replicas and sentinels; each test has its own, since masters are killed."""
    with ExitStack() as stack:
        yield _started(RedisSentinelService(down_after_ms=1_000), stack)


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
def stores(server: RedisService, stores_at: Callable[[str], Stores]) -> Stores:
    """Stores on the shared server."""
    return stores_at(server.url)


def batch(name: str, count: int = 1, payload: bytes = b"{}") -> Batch:
    """A batch whose event ids follow from its name."""
    return Batch(
        name,
        tuple(
            Event(event_id=f"{name}.{index}", type="run/step", occurred_at=1, payload=payload) for index in range(count)
        ),
    )


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return batch


@pytest.fixture
def thread() -> ThreadKey:
    return THREAD


class Proxy:
    """Stands between a store and a server; on demand it hands a request on and loses the reply."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lose_reply = threading.Event()
        self.lose_after: int | None = None
        self.lost = 0
        self._open = True
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self._port))
            self._start(self._forward, client, upstream)
            self._start(self._backward, client, upstream)

    def _forward(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while data := client.recv(65_536):
                upstream.sendall(data)
        except OSError:
            pass
        finally:
            upstream.close()

    def _backward(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while data := upstream.recv(65_536):
                if self.lose_reply.is_set():
                    self.lose_reply.clear()
                    self.lost += 1
                    client.sendall(data[: self.lose_after or 0])
                    client.shutdown(socket.SHUT_RDWR)
                    break
                client.sendall(data)
        except OSError:
            pass
        finally:
            client.close()

    def close(self) -> None:
        self._open = False
        self._listener.close()


@pytest.fixture
def proxy(server: RedisService) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


class Python(Protocol):
    def __call__(self, program: str, *arguments: str) -> "subprocess.Popen[str]": ...


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


@pytest.fixture
def tell(server: RedisService) -> Callable[..., str]:
    """Sends a command to the shared server, without the driver."""
    return lambda *words: ask(server.port, *words)


def stat(port: int, section: str, name: str) -> int:
    """A number of a server's INFO."""
    for line in ask(port, "INFO", section).split("\r\n"):
        if line.startswith(f"{name}:"):
            value = line.partition(":")[2]
            return int(value.partition("calls=")[2].partition(",")[0] if "calls=" in value else value)
    return 0


@pytest.fixture
def count(server: RedisService) -> Callable[[str, str], int]:
    """Reads a counter of the shared server."""
    return lambda section, name: stat(server.port, section, name)
