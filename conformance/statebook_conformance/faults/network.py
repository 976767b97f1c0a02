"""A network that can fail: every TCP connection that this process makes leads through a fault proxy of its own.

It needs no knowledge of a client or its URL: inside the `with` block `socket.socket.connect` is led to a proxy before
the address that was asked for, so that servers which are only found on the way (the master that a sentinel names, the
node that a cluster refers to) are met as well. Connections that this process has open already are ended first, where
the system shows them, so that pools are filled anew. What a library connects without Python's sockets is not met.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

from statebook_conformance.faults.plans import Plan, Source
from statebook_conformance.faults.proxy import NOTHING, Counts, Fates, FaultProxy, in_a_proxy

PROXIES_MAX: Final = 64
"""How many different servers are met at most."""

_Address: TypeAlias = "tuple[str, int] | tuple[str, int, int, int] | str | bytes"
_CONNECTS: Final = ("connect", "connect_ex")
_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


class Network:
    """All TCP connections that threads of this process make, with planned faults. A context manager, one at a time.

    Attributes:
        fates: What happens to the next requests, on whichever connection they come.
    """

    def __init__(self, source: Source | None = None) -> None:
        """Prepare it; changes nothing yet.

        Args:
            source: Where requests get their fate from when no plan waits; see `plans.seeded`. None: they pass.
        """
        self.fates = Fates(source)
        self._proxies: dict[tuple[int, str, int], FaultProxy] = {}
        self._lock = threading.Lock()
        self._local = threading.local()

    # --------------------------------------------------------------------------------------------------------- life

    def __enter__(self) -> Self:
        """Lead connections through proxies from now on.

        Raises:
            RuntimeError: Another network is active.
        """
        with _TURN:
            if _ACTIVE:
                raise RuntimeError("another faulty network is active in this process")
            _ACTIVE.append(self)
            for name in _CONNECTS:
                setattr(socket.socket, name, _connecting(getattr(socket.socket, name)))
        end_connections()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all proxied connections, and let new ones go straight to their servers."""
        self.close()

    def close(self) -> None:
        """As at the end of the `with` block; a second call is harmless."""
        with _TURN:
            if self in _ACTIVE:
                _ACTIVE.clear()
                for name in _CONNECTS:
                    delattr(socket.socket, name)
        with self._lock:
            proxies = tuple(self._proxies.values())
        for proxy in proxies:
            proxy.close()

    @contextmanager
    def bypass(self) -> Iterator[None]:
        """What this thread connects to inside the block, it connects to straight: observers, and control of servers."""
        before = getattr(self._local, "bypass", False)
        self._local.bypass = True
        try:
            yield
        finally:
            self._local.bypass = before

    # ------------------------------------------------------------------------------------------------------- faults

    def next(self, *plans: Plan) -> None:
        """Plan what happens to the next requests of all connections together, in this order.

        Raises:
            ValueError: Too many plans wait.
        """
        self.fates.next(*plans)

    def clear(self) -> None:
        """Forget plans that have not happened."""
        self.fates.clear()

    def disconnect(self) -> None:
        """End all connections that are open."""
        for proxy in self._all():
            proxy.disconnect()

    @property
    def counts(self) -> Counts:
        """What was seen so far on all connections together."""
        return sum((proxy.counts for proxy in self._all()), NOTHING)

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """The addresses that were connected to."""
        with self._lock:
            return tuple((host, port) for _, host, port in self._proxies)

    def _all(self) -> tuple[FaultProxy, ...]:
        with self._lock:
            return tuple(self._proxies.values())

    # -------------------------------------------------------------------------------------------------- connections

    def route(self, client: socket.socket, address: _Address) -> _Address:
        """The address to connect to instead of one that was asked for."""
        if (
            in_a_proxy()
            or getattr(self._local, "bypass", False)
            or client.family not in _LOOPBACK
            or client.type & 0xF != socket.SOCK_STREAM
            or not isinstance(address, tuple)
        ):
            return address
        host = _LOOPBACK[client.family]
        proxy = self._proxy_before(client.family, str(address[0]), int(address[1]))
        return (host, proxy.port)

    def _proxy_before(self, family: int, host: str, port: int) -> FaultProxy:
        with self._lock:
            proxy = self._proxies.get((family, host, port))
            if proxy is not None:
                return proxy
            if len(self._proxies) >= PROXIES_MAX:
                raise ConnectionRefusedError(f"a faulty network has at most {PROXIES_MAX} servers")
            proxy = FaultProxy(port, upstream_host=host, fates=self.fates, host=_LOOPBACK[socket.AddressFamily(family)])
            proxy.__enter__()
            self._proxies[family, host, port] = proxy
            return proxy


_ACTIVE: Final[list[Network]] = []
_TURN: Final = threading.Lock()


def end_connections() -> int:
    """End all TCP connections that this process has made or taken, as a network would: both sides see them end.

    Returns:
        How many there were; 0 where the system does not show them.
    """
    ended = 0
    entries = Path("/proc/self/fd")
    for entry in tuple(entries.iterdir()) if entries.is_dir() else ():
        with suppress(OSError):
            if not entry.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family in _LOOPBACK and connection.type & 0xF == socket.SOCK_STREAM:
                    connection.getpeername()
                    connection.shutdown(socket.SHUT_RDWR)
                    ended += 1
    return ended


def _connecting(real: Callable[[socket.socket, _Address], object]) -> Callable[[socket.socket, _Address], object]:
    def connect(client: socket.socket, address: _Address) -> object:
        network = next(iter(_ACTIVE), None)
        return real(client, address if network is None else network.route(client, address))

    return connect
