"""All TCP connections of a process lead through fault proxies, wherever their addresses come from."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from statebook_conformance.faults.network import Network
from statebook_conformance.faults.plans import cut_reply, reset


class Echo:
    """A server that answers each line with itself, and says how many connections it has taken."""

    def __init__(self, family: socket.AddressFamily = socket.AF_INET) -> None:
        host = "127.0.0.1" if family is socket.AF_INET else "::1"
        self._listener = socket.create_server((host, 0), family=family)
        self.address = (host, int(self._listener.getsockname()[1]))
        self.lines: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
            for line in stream:
                self.lines.append(line)
                stream.write(line)
                stream.flush()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


def say(address: tuple[str, int], text: bytes = b"hello\n") -> bytes:
    with socket.create_connection(address, timeout=5) as connection:
        connection.sendall(text)
        return connection.recv(100)


def test_connections_pass_and_are_counted(echo: Echo) -> None:
    with Network() as network:
        assert say(echo.address) == b"hello\n"
        assert say(echo.address) == b"hello\n"
        counts = network.counts
        assert (counts.connections, counts.requests, counts.sent, counts.received) == (2, 2, 12, 12)
        assert network.servers == (echo.address,)
    assert network.counts.open == 0


def test_one_plan_meets_the_next_request_of_any_server(echo: Echo) -> None:
    other = Echo()
    with Network() as network:
        network.next(cut_reply())
        assert say(other.address) == b""
        assert say(echo.address) == b"hello\n"
        network.next(reset())
        with pytest.raises(ConnectionResetError):
            say(echo.address)
        assert network.counts.faults == 2
    assert (other.lines, echo.lines) == ([b"hello\n"], [b"hello\n"])
    other.close()


def test_an_observer_connects_straight(echo: Echo) -> None:
    with Network() as network:
        network.next(cut_reply())
        with network.bypass():
            assert say(echo.address) == b"hello\n"
        assert network.counts.connections == 0
        assert say(echo.address) == b""


def test_afterwards_connections_go_straight_again(echo: Echo) -> None:
    before = socket.socket.connect
    with Network() as network, socket.create_connection(echo.address, timeout=5) as kept:
        kept.sendall(b"x\n")
        assert kept.recv(10) == b"x\n"
        network.close()
        assert kept.recv(10) == b""
        assert say(echo.address) == b"hello\n"
    assert socket.socket.connect is before
    assert "connect" not in vars(socket.socket)


def test_asyncio_is_led_as_well(echo: Echo) -> None:
    async def once() -> bytes:
        reader, writer = await asyncio.open_connection(*echo.address)
        writer.write(b"hi\n")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return line

    with Network() as network:
        assert asyncio.run(once()) == b"hi\n"
        assert network.counts.requests == 1


def test_ip_version_6_is_led_as_well() -> None:
    server = Echo(socket.AF_INET6)
    with Network() as network:
        assert say(server.address) == b"hello\n"
        assert network.counts.requests == 1
    server.close()


def test_a_mark_is_counted_wherever_it_is_cut(echo: Echo) -> None:
    with Network() as network:
        network.fates.watch(b"needle")
        with socket.create_connection(echo.address, timeout=5) as connection:
            for piece in (b"a needle\n", b"half a nee", b"dle\n", b"nothing\n"):
                connection.sendall(piece)
                if piece.endswith(b"\n"):
                    assert connection.recv(100).endswith(b"\n")
                else:
                    while network.counts.requests < 2:
                        pass
        assert network.fates.sent(b"needle") == 2


def test_only_one_network_is_active_at_a_time() -> None:
    with Network(), pytest.raises(RuntimeError, match="another"):
        Network().__enter__()
