"""The fault proxy does to a request what is planned, nothing else, and leaves no thread or socket behind."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from statebook_conformance.faults import (
    FaultProxy,
    black_hole,
    cut_reply,
    cut_request,
    delay,
    drip,
    http_answer,
    reset,
    seeded,
)

REPLY = b"reply to "


class Echo:
    """A server that answers each piece it gets, and remembers all of them."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.arrived = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65_536):
                    with self.arrived:
                        self.got.append(data)
                        self.arrived.notify_all()
                    connection.sendall(REPLY + data)
            except OSError:
                return

    def all(self) -> bytes:
        with self.arrived:
            return b"".join(self.got)

    def wait_for(self, data: bytes) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: b"".join(self.got) == data, timeout=5)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def server() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def proxy(server: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(server.port) as made:
        yield made


@pytest.fixture
def connect(proxy: FaultProxy) -> Iterator[Callable[[], socket.socket]]:
    opened: list[socket.socket] = []

    def connect_() -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", proxy.port), timeout=5))
        return opened[-1]

    yield connect_
    for each in opened:
        each.close()


Connect = Callable[[], socket.socket]


def ask(client: socket.socket, request: bytes) -> bytes:
    client.sendall(request)
    reply = b""
    while len(reply) < len(REPLY + request):
        data = client.recv(65_536)
        if not data:
            break
        reply += data
    return reply


def test_without_a_plan_requests_and_replies_pass(proxy: FaultProxy, connect: Connect) -> None:
    client = connect()
    assert [ask(client, b"one"), ask(client, b"two")] == [REPLY + b"one", REPLY + b"two"]
    counts = proxy.counts
    assert (counts.connections, counts.requests, counts.replies, counts.faults, counts.open) == (1, 2, 2, 0, 1)


@pytest.mark.parametrize("after", [0, 4])
def test_a_cut_reply_was_delivered_and_the_client_gets_only_its_beginning(
    server: Echo, proxy: FaultProxy, connect: Connect, after: int
) -> None:
    proxy.next(cut_reply(match=b"COMMIT", after=after))
    client = connect()
    assert ask(client, b"BEGIN") == REPLY + b"BEGIN"
    assert ask(client, b"COMMIT") == REPLY[:after]
    assert server.all() == b"BEGINCOMMIT"
    assert proxy.log == ((2, "cut reply"),)
    assert ask(connect(), b"again") == REPLY + b"again"


@pytest.mark.parametrize("after", [0, 3])
def test_a_cut_request_arrives_only_in_part(server: Echo, proxy: FaultProxy, connect: Connect, after: int) -> None:
    proxy.next(cut_request(after=after))
    client = connect()
    client.sendall(b"COMMIT")
    client.shutdown(socket.SHUT_WR)
    rest = b""
    while data := client.recv(100):
        rest += data
    assert proxy.counts.faults == 1
    assert server.wait_for(b"COMMIT"[:after])


def test_a_reset_request_is_not_delivered_and_the_client_sees_a_reset(
    server: Echo, proxy: FaultProxy, connect: Connect
) -> None:
    proxy.next(reset())
    with pytest.raises(ConnectionResetError):
        ask(connect(), b"COMMIT")
    assert server.all() == b""


@pytest.mark.parametrize("delivered", [False, True])
def test_a_black_hole_answers_nothing_and_stays_open(
    server: Echo, proxy: FaultProxy, connect: Connect, delivered: bool
) -> None:
    proxy.next(black_hole(delivered=delivered))
    client = connect()
    client.sendall(b"COMMIT")
    assert proxy.wait_for_faults(1)
    assert server.wait_for(b"COMMIT" if delivered else b"")
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(1)
    proxy.disconnect()
    client.settimeout(5)
    assert proxy.counts.open == 0
    try:
        assert client.recv(1) == b""
    except ConnectionResetError:
        assert proxy.counts.open == 0


def test_a_dripping_reply_arrives_whole_and_late(proxy: FaultProxy, connect: Connect) -> None:
    proxy.next(drip(size=3, delay_s=0.01))
    started = time.monotonic()
    assert ask(connect(), b"abc") == REPLY + b"abc"
    assert time.monotonic() - started >= 0.04


def test_a_delayed_request_arrives_after_the_wait(proxy: FaultProxy, connect: Connect) -> None:
    proxy.next(delay(0.05))
    started = time.monotonic()
    assert ask(connect(), b"abc") == REPLY + b"abc"
    assert time.monotonic() - started >= 0.05


def test_an_http_answer_comes_once_and_the_server_sees_nothing(
    server: Echo, proxy: FaultProxy, connect: Connect
) -> None:
    proxy.next(http_answer(503, match=b"PUT /head", body=b"<SlowDown/>"))
    client = connect()
    client.sendall(b"PUT /head HTTP/1.1\r\nContent-Length: 10\r\n\r\n12345")
    client.sendall(b"67890")
    answer = b""
    while data := client.recv(1_000):
        answer += data
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert answer.endswith(b"\r\n\r\n<SlowDown/>")
    assert server.all() == b""
    assert ask(connect(), b"PUT /head") == REPLY + b"PUT /head"


def test_a_match_is_found_over_the_edge_of_two_pieces_and_not_in_what_has_passed(
    proxy: FaultProxy, connect: Connect
) -> None:
    client = connect()
    ask(client, b"COMMIT")
    proxy.next(cut_reply(match=b"COMMIT"))
    assert ask(client, b" COM") == REPLY + b" COM"
    assert ask(client, b"MIT") == b""


def test_the_same_seed_gives_the_same_faults(server: Echo) -> None:
    def faults_of(seed: int) -> tuple[tuple[int, str], ...]:
        source = seeded(random.Random(seed), (cut_reply(), reset()), rate=0.3)
        with FaultProxy(server.port, source=source) as proxy:
            for number in range(30):
                with (
                    suppress(ConnectionResetError),
                    socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client,
                ):
                    ask(client, b"%d" % number)
            return proxy.log

    first = faults_of(7)
    assert {name for _, name in first} == {"cut reply", "reset"}
    assert faults_of(7) == first != faults_of(8)


def touch(proxy: FaultProxy) -> None:
    """Connect and read; a reset can arrive before the connect has returned."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client:
        client.recv(1)


def test_no_server_behind_the_proxy_is_a_reset_and_the_proxy_lives_on(server: Echo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with FaultProxy(port) as proxy:
        for _ in range(2):
            with pytest.raises(ConnectionResetError):
                touch(proxy)
    assert proxy.counts.connections == 2


def test_closing_leaves_no_thread_and_no_socket(server: Echo) -> None:
    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    threads, before = threading.active_count(), descriptors()
    for _ in range(3):
        with FaultProxy(server.port) as proxy:
            proxy.next(black_hole())
            clients = [socket.create_connection(("127.0.0.1", proxy.port), timeout=5) for _ in range(3)]
            clients[0].sendall(b"lost")
            assert proxy.wait_for_faults(1)
            assert ask(clients[1], b"here") == REPLY + b"here"
        for client in clients:
            client.close()
        proxy.close()
    deadline = time.monotonic() + 5
    while (threading.active_count() > threads or descriptors() > before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (threading.active_count(), descriptors()) == (threads, before)
