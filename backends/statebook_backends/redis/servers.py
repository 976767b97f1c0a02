"""Which server holds a slot: one server, the master that sentinels name, or the nodes of a cluster. One code path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from threading import Lock
from typing import Final

from statebook.errors import InvalidConfiguration
from statebook.options import Host
from statebook_backends.redis.errors import (
    DriverError,
    NotSent,
    Reply,
    ReplyLost,
    code_of,
    driver_errors,
    is_credentials,
)
from statebook_backends.redis.layout import SLOTS
from statebook_backends.redis.options import (
    DEFAULT_PORT,
    DEFAULT_SENTINEL_PORT,
    ClusterOptions,
    RedisOptions,
    SentinelOptions,
)
from statebook_backends.redis.resp import command
from statebook_backends.redis.store import Address, Login, Node, connect, login_of

_CLUSTER_SLOTS: Final = command(b"CLUSTER", b"SLOTS")


class Servers(ABC):
    """The servers of one store. Safe from many threads."""

    @abstractmethod
    def node(self, slot: int) -> Node:
        """The server that holds a slot, as far as is known.

        Raises:
            NotSent: None is known.
        """

    @abstractmethod
    def refresh(self, slot: int, suspect: Node) -> bool:
        """Find out anew who holds a slot, after a server failed or refused.

        Args:
            slot: The slot.
            suspect: The server that failed.

        Returns:
            Whether it is another server now.
        """

    @abstractmethod
    def moved(self, slot: int, address: Address) -> Node:
        """The server that a redirection names; remembered for the slot."""

    @abstractmethod
    def at(self, address: Address) -> Node:
        """The server at an address, for this once."""

    @abstractmethod
    def masters(self) -> tuple[Node, ...]:
        """All servers that hold slots.

        Raises:
            NotSent: None is known.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


def servers_of(options: RedisOptions) -> Servers:
    """The servers that options name. Opens nothing."""
    if isinstance(options, ClusterOptions):
        return Cluster(options)
    if isinstance(options, SentinelOptions):
        return Watched(options)
    return Single(options)


def _address(host: Host, port: int) -> Address:
    return host.name, host.port or port


class Single(Servers):
    """One server."""

    def __init__(self, options: RedisOptions) -> None:
        address = _address(options.hosts[0], DEFAULT_PORT)
        self._node = Node(address, options, login_of(options), must_be_master=True)

    def node(self, slot: int) -> Node:
        return self._node

    def refresh(self, slot: int, suspect: Node) -> bool:
        return False

    def moved(self, slot: int, address: Address) -> Node:
        return self._node

    def at(self, address: Address) -> Node:
        return self._node

    def masters(self) -> tuple[Node, ...]:
        return (self._node,)

    def close(self) -> None:
        self._node.close()


class Watched(Servers):
    """The master that sentinels name. It is asked for its role at every new connection; a replica is never used."""

    def __init__(self, options: SentinelOptions) -> None:
        self._options = options
        self._sentinels = [_address(host, DEFAULT_SENTINEL_PORT) for host in options.hosts]
        self._node: Node | None = None
        self._lock = Lock()

    def node(self, slot: int) -> Node:
        node = self._node
        if node is not None:
            return node
        with self._lock:
            if self._node is None:
                self._node = self._made(self._ask())
            return self._node

    def refresh(self, slot: int, suspect: Node) -> bool:
        with self._lock:
            if self._node is not suspect:
                return True
            try:
                address = self._ask()
            except NotSent:
                return False
            if address == suspect.address:
                return False
            self._node = self._made(address)
        suspect.close()
        return True

    def _made(self, address: Address) -> Node:
        return Node(address, self._options, login_of(self._options), must_be_master=True)

    def _ask(self) -> Address:
        """Ask the sentinels, one after the other, for the master."""
        options = self._options
        secret = options.sentinel_password
        login = Login(options.sentinel_username, None if secret is None else secret.get_secret_value(), 0)
        question = command(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", options.service.encode())
        failed: NotSent | None = None
        unknown = False
        for sentinel in self._sentinels:
            try:
                reply = _ask_once(sentinel, options, login, question)
            except NotSent as error:
                failed = error
                continue
            if isinstance(reply, list) and len(reply) == 2:
                host, port = reply
                if isinstance(host, bytes) and isinstance(port, bytes):
                    return host.decode(), int(port)
            if isinstance(reply, DriverError) and is_credentials(reply):
                failed = NotSent("a sentinel refuses user or password", connecting=True)
                failed.__cause__ = reply
            else:
                unknown = True
        if unknown:
            raise InvalidConfiguration(
                f"no sentinel knows the service {options.service!r}; check the option service",
                option="service",
                backend=options.scheme,
            )
        raise failed or NotSent("no sentinel answered", connecting=True)

    def moved(self, slot: int, address: Address) -> Node:
        return self.node(slot)

    def at(self, address: Address) -> Node:
        return self.node(0)

    def masters(self) -> tuple[Node, ...]:
        return (self.node(0),)

    def close(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            node.close()


class Cluster(Servers):
    """The nodes of a cluster. The map of slots is read from any node that answers, and corrected by redirections."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._login = login_of(options)
        self._seeds = tuple(_address(host, DEFAULT_PORT) for host in options.hosts)
        self._nodes: dict[Address, Node] = {}
        self._slots: list[Node | None] = [None] * SLOTS
        self._lock = Lock()

    def node(self, slot: int) -> Node:
        node = self._slots[slot]
        if node is None:
            with self._lock:
                if self._slots[slot] is None:
                    self._read_map(None)
                node = self._slots[slot]
        if node is None:
            raise NotSent("the cluster has no master for a slot", connecting=True)
        return node

    def refresh(self, slot: int, suspect: Node) -> bool:
        with self._lock:
            if self._slots[slot] is not suspect:
                return True
            try:
                self._read_map(suspect)
            except NotSent:
                return False
            return self._slots[slot] is not suspect

    def _read_map(self, suspect: Node | None) -> None:
        """Read the map of slots from the first node that has one; the suspect is asked last."""
        known = [address for address in self._nodes if suspect is None or address != suspect.address]
        last = [] if suspect is None else [suspect.address]
        failed: NotSent | None = None
        for address in dict.fromkeys((*known, *self._seeds, *last)):
            try:
                reply = _ask_once(address, self._options, self._login, _CLUSTER_SLOTS)
            except NotSent as error:
                failed = error
                continue
            if isinstance(reply, DriverError):
                if code_of(reply) == "ERR":
                    raise InvalidConfiguration(
                        "the server is not part of a cluster; use redis:// or rediss://",
                        option="url",
                        backend=self._options.scheme,
                    )
                failed = NotSent(str(reply), connecting=True)
                failed.__cause__ = reply
            elif isinstance(reply, list) and reply:
                self._take_map(reply, address)
                return
        raise failed or NotSent("no node of the cluster has a map of slots", connecting=True)

    def _take_map(self, entries: Iterable[Reply], asked: Address) -> None:
        slots: list[Node | None] = [None] * SLOTS
        for entry in entries:
            if not (isinstance(entry, list) and len(entry) > 2):
                continue
            first, last, master = entry[:3]
            if isinstance(first, int) and isinstance(last, int) and isinstance(master, list) and len(master) > 1:
                host, port = master[:2]
                if isinstance(port, int):
                    name = host.decode() if isinstance(host, bytes) and host not in (b"", b"?") else asked[0]
                    slots[first : last + 1] = [self.at((name, port))] * (last + 1 - first)
        self._slots = slots

    def moved(self, slot: int, address: Address) -> Node:
        node = self.at(address)
        with self._lock:
            self._slots[slot] = node
        return node

    def at(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes.setdefault(address, Node(address, self._options, self._login, must_be_master=False))
        return node

    def masters(self) -> tuple[Node, ...]:
        with self._lock:
            self._read_map(None)
        return tuple(dict.fromkeys(node for node in self._slots if node is not None))

    def close(self) -> None:
        for node in tuple(self._nodes.values()):
            node.close()


def _ask_once(address: Address, options: RedisOptions, login: Login, question: bytes) -> Reply:
    """Ask a server one question over a connection of its own.

    Raises:
        NotSent: It does not answer.
    """
    connection = connect(address, options, login)
    try:
        with driver_errors(connecting=True):
            connection.send(question)
            return connection.read()
    except ReplyLost as error:
        raise NotSent(str(error), connecting=True) from error
    finally:
        connection.disconnect()
