"""A TCP proxy that loses, cuts, delays and answers: between any client and a server on this machine.

It knows no protocol. A request is what arrives from the client in one piece, so clients that send one request at a
time, as drivers of databases do, meet exactly the planned fault. One thread with an event loop of its own serves all
connections; leaving the `with` block ends them all.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import msgspec

from statebook_conformance.faults.plans import NO_FAULT, Action, Plan, Source

CONNECTIONS_MAX: Final = 256
"""How many connections are served at a time; further ones are reset."""
LOG_MAX: Final = 10_000
"""How many faults the log keeps, the newest ones."""
PLANS_MAX: Final = 1_000
"""How many plans can wait."""

_CARRIED: Final = 256
_CHUNK: Final = 64 * 1024
_CONNECT_S: Final = 10.0
_LINGER_S: Final = 5.0
_REQUEST_MAX: Final = 64 * 1024 * 1024
_STOP_S: Final = 10.0


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What a proxy has seen so far.

    Attributes:
        connections: Accepted connections.
        requests: Pieces that came from clients.
        replies: Pieces that came from the server.
        sent: Bytes that came from clients.
        received: Bytes that came from the server.
        faults: Faults that have happened.
        open: Connections that are open now.
    """

    connections: int
    requests: int
    replies: int
    sent: int
    received: int
    faults: int
    open: int

    def __add__(self, other: Counts) -> Counts:
        """Both together."""
        fields = self.__struct_fields__
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in fields})

    def __sub__(self, other: Counts) -> Counts:
        """What was seen since an earlier look."""
        fields = self.__struct_fields__
        return Counts(**{name: getattr(self, name) - getattr(other, name) for name in fields})


NOTHING: Final = Counts(connections=0, requests=0, replies=0, sent=0, received=0, faults=0, open=0)
"""Nothing was seen yet."""


class Fates:
    """What happens to the next requests, for one proxy or for several that stand before one system. Safe from threads.

    A request's fate is the first waiting plan that matches it, else what the source says, else nothing.
    """

    def __init__(self, source: Source | None = None) -> None:
        """Plan nothing yet.

        Args:
            source: Where requests get their fate from when no plan waits; see `plans.seeded`. None: they pass.
        """
        self._source = source
        self._plans: deque[Plan] = deque()
        self._marks: dict[bytes, int] = {}
        self._number = 0
        self._lock = threading.Lock()

    def next(self, *plans: Plan) -> None:
        """Plan what happens to the next requests, one plan a request that matches it, in this order.

        Args:
            plans: The plans.

        Raises:
            ValueError: Too many plans wait.
        """
        with self._lock:
            if len(self._plans) + len(plans) > PLANS_MAX:
                raise ValueError(f"at most {PLANS_MAX} plans can wait")
            self._plans.extend(plans)

    def clear(self) -> None:
        """Forget plans that have not happened."""
        with self._lock:
            self._plans.clear()

    def follow(self, source: Source | None) -> None:
        """Take the fate of requests from another source from now on."""
        with self._lock:
            self._source = source

    @property
    def waiting(self) -> int:
        """How many plans wait."""
        with self._lock:
            return len(self._plans)

    def watch(self, mark: bytes) -> None:
        """Count from now on how often clients send these bytes."""
        with self._lock:
            self._marks[mark] = 0

    def sent(self, mark: bytes) -> int:
        """How often clients have sent the bytes that are watched."""
        with self._lock:
            return self._marks[mark]

    def draw(self, carried: bytes, data: bytes) -> tuple[Plan, int]:
        """The fate of a piece of a request, and its number.

        Args:
            carried: The end of what came before it on the same connection.
            data: The piece.
        """
        with self._lock:
            self._number += 1
            for mark in self._marks:
                tail = carried[max(0, len(carried) - len(mark) + 1) :]
                self._marks[mark] += (tail + data).count(mark)
            if self._plans:
                match = self._plans[0].match
                seen = carried[max(0, len(carried) - len(match) + 1) :] + data if match else data
                return (self._plans.popleft() if match in seen else NO_FAULT), self._number
            return (NO_FAULT if self._source is None else self._source()), self._number


_RUNNING: Final = threading.local()


def in_a_proxy() -> bool:
    """Whether this thread is a proxy's own."""
    return bool(getattr(_RUNNING, "proxy", False))


class _Link:
    """One client connection and its counterpart."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.from_client, self.to_client = client
        self.from_server, self.to_server = server
        self.reply: Plan = NO_FAULT
        self.carried = b""
        self.number = 0


class FaultProxy:
    """Forwards 127.0.0.1:`port` to a server port, with faults as planned. A context manager; usable from any thread.

    Attributes:
        port: The proxy's port, once it runs.
        fates: What happens to the next requests.
    """

    def __init__(
        self,
        upstream_port: int,
        *,
        upstream_host: str = "127.0.0.1",
        source: Source | None = None,
        fates: Fates | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """Prepare a proxy; opens nothing.

        Args:
            upstream_port: The server's port.
            upstream_host: The server's host.
            source: Where requests get their fate from when no plan waits; see `plans.seeded`. None: they pass.
            fates: Plans that several proxies share, instead of `source`.
            host: The loopback address to listen on: 127.0.0.1 or ::1.
        """
        self.port = 0
        self.fates = Fates(source) if fates is None else fates
        self._host = host
        self._upstream = upstream_host, upstream_port
        self._log: deque[tuple[int, str]] = deque(maxlen=LOG_MAX)
        self._seen = NOTHING
        self._lock = threading.Condition()
        self._links: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)

    # --------------------------------------------------------------------------------------------------- life

    def __enter__(self) -> Self:
        """Start to listen.

        Raises:
            OSError: There is no free port.
        """
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join(_STOP_S)
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all connections and the thread."""
        self.close()

    def close(self) -> None:
        """End all connections and the thread; a second call is harmless."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has ended in this moment
                loop.call_soon_threadsafe(stop.set)
            self._thread.join(_STOP_S)

    def disconnect(self) -> None:
        """End all connections that are open, and wait until they are; new ones are served as before."""
        loop = self._loop
        if loop is not None and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end_links(), loop).result(_STOP_S)

    # ------------------------------------------------------------------------------------------------- faults

    def next(self, *plans: Plan) -> None:
        """Plan what happens to the next requests, one plan a request that matches it, in this order.

        Args:
            plans: The plans.

        Raises:
            ValueError: Too many plans wait.
        """
        self.fates.next(*plans)

    def clear(self) -> None:
        """Forget plans that have not happened."""
        self.fates.clear()

    @property
    def counts(self) -> Counts:
        """What was seen so far."""
        with self._lock:
            return msgspec.structs.replace(self._seen, open=len(self._links))

    @property
    def log(self) -> tuple[tuple[int, str], ...]:
        """The number of the request and the name of the fault, for each fault that has happened."""
        with self._lock:
            return tuple(self._log)

    def wait_for_faults(self, count: int, *, timeout_s: float = 10.0) -> bool:
        """Wait until so many faults have happened.

        Args:
            count: How many.
            timeout_s: How long to wait at most, in seconds.

        Returns:
            Whether they have.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:
            while self._seen.faults < count:
                if not self._lock.wait(max(0.0, deadline - time.monotonic())):
                    return self._seen.faults >= count
            return True

    def _see(self, **more: int) -> None:
        with self._lock:
            seen = {name: getattr(self._seen, name) + value for name, value in more.items()}
            self._seen = msgspec.structs.replace(self._seen, **seen)

    def _happened(self, number: int, plan: Plan) -> None:
        self._see(faults=1)
        with self._lock:
            self._log.append((number, plan.action.value))
            self._lock.notify_all()

    # ---------------------------------------------------------------------------------------------- the loop

    def _run(self) -> None:
        _RUNNING.proxy = True
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that starts the proxy
            self._error = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        listener = await asyncio.start_server(self._serve, self._host, 0, limit=_CHUNK)
        self.port = listener.sockets[0].getsockname()[1]
        self._started.set()
        try:
            await self._stop.wait()
        finally:
            listener.close()
            await asyncio.sleep(0)  # connections that were just accepted are known after this
            await self._end_links()

    async def _end_links(self) -> None:
        links = tuple(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._links) >= CONNECTIONS_MAX:
            _reset(writer)
            return
        self._see(connections=1)
        with self._lock:
            self._links.add(task)
        try:
            await self._connect(reader, writer)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            with self._lock:
                self._links.discard(task)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.wait_for(asyncio.open_connection(*self._upstream, limit=_CHUNK), _CONNECT_S)
        except OSError:  # a time-out as well
            _reset(writer)
            return
        link = _Link((reader, writer), server)
        requests = asyncio.ensure_future(self._carry_requests(link))
        replies = asyncio.ensure_future(self._carry_replies(link))
        try:
            done, _ = await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
            if requests in done and requests.exception() is None and requests.result():
                await asyncio.wait({replies}, timeout=_LINGER_S)  # the client only ended its half
        finally:
            for each in (requests, replies):
                each.cancel()
            link.to_client.close()
            link.to_server.close()
            await asyncio.gather(requests, replies, return_exceptions=True)
            for end in (link.to_client, link.to_server):
                await _closed(end)

    async def _carry_requests(self, link: _Link) -> bool:
        """Carry requests until an end. Returns whether the client ended its half and still waits for replies."""
        while data := await link.from_client.read(_CHUNK):
            self._see(requests=1, sent=len(data))
            plan, number = self.fates.draw(link.carried, data)
            link.number = number
            link.carried = (link.carried + data)[-_CARRIED:]
            if plan.action is not Action.PASS and not await self._fault(link, plan, number, data):
                return False
            if plan.action is Action.PASS:
                link.to_server.write(data)
                await link.to_server.drain()
        if link.to_server.can_write_eof():
            link.to_server.write_eof()
        return True

    async def _fault(self, link: _Link, plan: Plan, number: int, data: bytes) -> bool:
        """Do what is planned for a request. Returns whether the connection goes on."""
        if plan.action is Action.RESET:
            self._happened(number, plan)
            _reset(link.to_client)
            return False
        if plan.action is Action.CUT_REQUEST:
            link.to_server.write(data[: plan.size])
            await link.to_server.drain()
            self._happened(number, plan)
            return False
        if plan.action is Action.BLACK_HOLE:
            link.reply = plan
            self._happened(number, plan)
            while await link.from_client.read(_CHUNK):
                continue
            return False
        if plan.action is Action.ANSWER:
            await _rest_of_http(link.from_client, data)
            link.to_client.write(plan.answer)
            await link.to_client.drain()
            self._happened(number, plan)
            return False
        if plan.action is Action.DELAY:
            self._happened(number, plan)
            await asyncio.sleep(plan.delay_s)
        else:
            link.reply = plan
            if plan.action is not Action.CUT_REPLY:
                self._happened(number, plan)
        link.to_server.write(data)
        await link.to_server.drain()
        return True

    async def _carry_replies(self, link: _Link) -> None:
        while data := await link.from_server.read(_CHUNK):
            self._see(replies=1, received=len(data))
            plan, number = link.reply, link.number
            if plan.action in (Action.BLACK_HOLE, Action.LOST_REPLIES):
                continue
            if plan.action is Action.CUT_REPLY:
                link.to_client.write(data[: plan.size])
                await link.to_client.drain()
                self._happened(number, plan)
                return
            if plan.action is Action.DRIP:
                await _drip(link.to_client, data, plan)
                continue
            link.to_client.write(data)
            await link.to_client.drain()


async def _drip(writer: asyncio.StreamWriter, data: bytes, plan: Plan) -> None:
    start, size = 0, plan.size
    while start < len(data):
        await asyncio.sleep(plan.delay_s)
        writer.write(data[start : start + size])
        await writer.drain()
        start, size = start + size, size * plan.growth


async def _rest_of_http(reader: asyncio.StreamReader, data: bytes) -> None:
    """Read an HTTP request to its end, so that the client is ready for an answer; a client that waits for 100 is."""
    while b"\r\n\r\n" not in data and len(data) < _REQUEST_MAX:
        more = await reader.read(_CHUNK)
        if not more:
            return
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if b"100-continue" in fields.get(b"expect", b"").lower():
        return
    length = fields.get(b"content-length", b"0")
    missing = min(int(length) if length.isdigit() else 0, _REQUEST_MAX) - len(body)
    while missing > 0:
        more = await reader.read(min(_CHUNK, missing))
        if not more:
            return
        missing -= len(more)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN."""
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Wait until what was written has left, and no longer than the client may take for it."""
    try:
        await asyncio.wait_for(writer.wait_closed(), _LINGER_S)
    except OSError:  # a time-out as well
        writer.transport.abort()
