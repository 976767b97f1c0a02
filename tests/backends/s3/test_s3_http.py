"""The HTTP client of the commit path: every form of answer, every way in which none comes, and whose fault it is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from statebook_backends.s3.http import Address, Connections, NoAnswer, NotConnected

HEAD = b"GET /b/k HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
OK = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: "e"\r\n\r\nhi'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Endpoint:
    """Answers each request on a connection with the next script: bytes to send, or None to close."""

    def __init__(self) -> None:
        self.scripts: list[Sequence[bytes | None]] = []
        self.connections = 0
        self.requests: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._listening.getsockname()[1], False)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            while request := connection.recv(1 << 22):
                self.requests.append(request)
                for part in self.scripts.pop(0):
                    if part is None:
                        return
                    connection.sendall(part)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture
def connections() -> Iterator[Connections]:
    made = Connections(trust=None, connect_timeout_s=2, read_timeout_s=0.5, kept_max=2)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("script", "status", "body", "kept"),
    [
        ([OK], 200, b"hi", True),
        ([OK[:20], OK[20:40], OK[40:]], 200, b"hi", True),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", OK], 200, b"hi", True),
        ([b"HTTP/1.1 204 No Content\r\nServer: s\r\n\r\n"], 204, b"", True),
        ([b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"], 304, b"", True),
        (
            [CHUNKED, b"3;x=y\r\nabc\r\n", b"2\r\nde\r\n0\r\nT: 1\r\n\r\n"],
            200,
            b"abcde",
            True,
        ),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: Close\r\n\r\nhi"], 200, b"hi", False),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"], 200, b"hi", False),
        ([b"HTTP/1.1 200 OK\r\n\r\nuntil the end", None], 200, b"until the end", False),
        ([OK + b"more than was said"], 200, b"hi", False),
    ],
)
def test_an_answer_is_read_whole_in_every_form_that_http_has(
    endpoint: Endpoint,
    connections: Connections,
    script: list[bytes | None],
    status: int,
    body: bytes,
    kept: bool,
) -> None:
    endpoint.scripts += [script, [OK]]
    answer = connections.exchange(endpoint.address, "GET", HEAD, b"")
    assert (answer.status, answer.body) == (status, body)
    assert connections.exchange(endpoint.address, "GET", HEAD, b"").headers["etag"] == '"e"'
    assert endpoint.connections == (1 if kept else 2)


@pytest.mark.parametrize(
    "script",
    [
        [b"SSH-2.0-x\r\n\r\n"],
        [b"HTTP/1.1 abc OK\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", None],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiho\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"],
        [b"HTTP/1.1 100 Continue\r\n\r\n" * 9],
        [b"x" * 70_000],
        [None],
        [],
    ],
)
def test_half_an_answer_or_nonsense_is_no_answer_and_the_connection_goes(
    endpoint: Endpoint, connections: Connections, script: list[bytes | None]
) -> None:
    endpoint.scripts += [script, [OK]]
    with pytest.raises(NoAnswer) as caught:
        connections.exchange(endpoint.address, "GET", HEAD, b"")
    assert not caught.value.closed  # it was a fresh connection
    assert connections.exchange(endpoint.address, "GET", HEAD, b"").body == b"hi"
    assert endpoint.connections == 2


def test_a_connection_that_the_endpoint_closed_meanwhile_is_not_used_again(
    endpoint: Endpoint, connections: Connections
) -> None:
    endpoint.scripts += [[OK, None], [OK]]
    connections.exchange(endpoint.address, "GET", HEAD, b"")
    _until(lambda: not connections._kept[endpoint.address][0].is_quiet())
    assert connections.exchange(endpoint.address, "GET", HEAD, b"").status == 200
    assert (endpoint.connections, len(endpoint.requests)) == (2, 2)


def test_a_kept_connection_that_closes_under_a_request_says_so_and_the_others_go_with_it(
    endpoint: Endpoint, connections: Connections
) -> None:
    endpoint.scripts += [[OK], [None]]
    connections.exchange(endpoint.address, "GET", HEAD, b"")
    with pytest.raises(NoAnswer) as caught:
        connections.exchange(endpoint.address, "GET", HEAD, b"")
    assert caught.value.closed
    assert endpoint.address not in connections._kept


def test_a_refusal_that_comes_before_the_body_was_read_is_an_answer(connections: Connections) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 20):
                    continue

        thread = threading.Thread(target=refuse)
        thread.start()
        address = Address("127.0.0.1", listening.getsockname()[1], False)
        answer = connections.exchange(address, "PUT", HEAD, b"x" * (8 << 20))
        thread.join(10)
    assert answer.status == 403


def test_nobody_listening_and_no_handshake_is_not_connected(endpoint: Endpoint, connections: Connections) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free = listening.getsockname()[1]
    with pytest.raises(NotConnected):
        connections.exchange(Address("127.0.0.1", free, False), "GET", HEAD, b"")


def test_no_more_connections_are_kept_than_asked_for_and_none_once_closed(
    endpoint: Endpoint, connections: Connections
) -> None:
    endpoint.scripts += [[OK]] * 9

    def ask() -> None:
        connections.exchange(endpoint.address, "GET", HEAD, b"")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(connections._kept[endpoint.address]) <= 2
    connections.close()
    ask()
    assert connections._kept == {}


def _until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(200):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not happen")
