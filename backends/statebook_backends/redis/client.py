"""The client that the three stores share: scripts sent to the right server, redirections, waiting, closing, forks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Final

from statebook.capabilities import Capabilities
from statebook.contention import Contention
from statebook.errors import BackendUnavailable, DataError, OutcomeUnknown, Overloaded, StatebookError, StoreClosed
from statebook_backends.redis.errors import (
    DriverError,
    NotSent,
    Reply,
    ReplyLost,
    code_of,
    refusal,
    refused_at_open,
    unavailable,
    unknown,
)
from statebook_backends.redis.known import HeadCache
from statebook_backends.redis.layout import IndexKeys, Layout
from statebook_backends.redis.options import ClusterOptions, RedisOptions
from statebook_backends.redis.probe import probe
from statebook_backends.redis.resp import command, words_in
from statebook_backends.redis.scripts import Call, script
from statebook_backends.redis.servers import Servers, servers_of
from statebook_backends.redis.store import ASKING, Node, Wire

_SENDS_MAX: Final = 6
"""How often a call goes out at most: every time but the first behind a proof that it was not run."""

_GROUP_CALLS: Final = 256
_GROUP_BYTES: Final = 8 * 1024 * 1024


class Client:
    """Sends calls to the servers of one store. Safe from many threads, and across a fork.

    Attributes:
        options: The options.
        layout: The names of keys.
        backend: The scheme.
        capabilities: What was read from the servers at open (ATOM-7).
        waits: Whether a write waits for more than its master.
    """

    def __init__(self, options: RedisOptions) -> None:
        """Connect, and look at the servers.

        Args:
            options: What to open.

        Raises:
            InvalidConfiguration: The servers are not what the options say, or unfit for a journal.
            BackendUnavailable: A server does not answer.
        """
        self.options = options
        self.backend = options.scheme
        self.layout = Layout(options.namespace)
        self.waits = bool(options.wait_replicas or options.waitaof)
        self.contention = Contention()
        self._lock = Lock()
        self._pid = os.getpid()
        self._servers: Servers | None = servers_of(options)
        self._heads = HeadCache()
        try:
            self.capabilities: Capabilities = probe(self._servers, options)
        except NotSent as error:
            self._servers.close()
            raise refused_at_open(error, self.backend) from error.__cause__
        except (ReplyLost, StatebookError) as error:
            self._servers.close()
            if isinstance(error, ReplyLost):
                raise unavailable(error, None, self.backend) from error
            raise
        # The nodes of a cluster answer for their own slots only, replicas for none.
        self._guard = b"" if isinstance(options, ClusterOptions) else command(b"WAIT", b"0", b"0")
        self._wait = b""
        if options.waitaof:
            self._wait = command(b"WAITAOF", b"1", b"%d" % options.wait_replicas, b"%d" % options.wait_timeout_ms)
        elif options.wait_replicas:
            self._wait = command(b"WAIT", b"%d" % options.wait_replicas, b"%d" % options.wait_timeout_ms)

    @property
    def heads(self) -> HeadCache:
        """What is remembered of heads, in this process. Of use also to a call that ends while the store is closed."""
        if self._pid != os.getpid():
            self._reopen_in_child()
        return self._heads

    def servers(self) -> Servers:
        """The servers, with connections of this process.

        Raises:
            StoreClosed: The store is closed.
        """
        if self._pid != os.getpid():
            self._reopen_in_child()
        servers = self._servers
        if servers is None:
            raise StoreClosed("the store was closed", backend=self.backend)
        return servers

    def _reopen_in_child(self) -> None:
        # The parent's connections and locks are left alone: they are in whatever state the fork met them in.
        if self._servers is not None:
            self._servers = servers_of(self.options)
        self._heads = HeadCache()
        self._lock = Lock()
        self._pid = os.getpid()

    def close(self) -> None:
        """Close the store; a second call is harmless (ERR-5)."""
        if self._pid != os.getpid():
            self._reopen_in_child()
        with self._lock:
            servers, self._servers = self._servers, None
        if servers is not None:
            servers.close()

    # ------------------------------------------------------------------------------------------------------- calls

    def read(self, slot: int, call: Call, damage: type[DataError], key: str | None) -> Reply:
        """Run a script that only reads. It is sent once more where its reply is lost with the connection.

        Raises:
            BackendUnavailable: There is no answer.
            StoreClosed: The store is closed.
        """
        try:
            return self._send(slot, call, damage, key, tail=self._guard, reads=True)
        except ReplyLost as lost:
            if not lost.broken:
                raise unavailable(lost, key, self.backend) from lost
        try:
            return self._send(slot, call, damage, key, tail=self._guard, reads=True)
        except ReplyLost as lost:
            raise unavailable(lost, key, self.backend) from lost

    def write(
        self,
        slot: int,
        call: Call,
        damage: type[DataError],
        key: str | None,
        *,
        batch_id: str | None = None,
        base_seq: int | None = None,
    ) -> Reply:
        """Run a script that writes; never sent again but behind a proof that it was not run (ERR-2, ERR-3).

        Args:
            slot: The slot of its keys.
            call: The call.
            damage: The class for damage.
            key: What it is about.
            batch_id: The batch, for `OutcomeUnknown`.
            base_seq: Its base.

        Returns:
            The script's reply: an array where it wrote nothing.

        Raises:
            BackendUnavailable: Certainly not applied.
            OutcomeUnknown: Perhaps applied.
            StoreClosed: The store is closed.
        """
        try:
            return self._send(slot, call, damage, key, tail=self._wait, reads=False)
        except ReplyLost as lost:
            reason = f"its reply was lost ({lost})" if lost.args[0] else "too few servers confirmed it in time"
            raise unknown(reason, key, self.backend, batch_id=batch_id, base_seq=base_seq) from lost

    def _send(
        self, slot: int, call: Call, damage: type[DataError], key: str | None, *, tail: bytes, reads: bool
    ) -> Reply:
        servers = self.servers()
        payload, asking = call.payload, b""
        node: Node | None = None
        failed: BaseException | None = None
        for _ in range(_SENDS_MAX):
            try:
                if node is None:
                    node = servers.node(slot)
                replies = node.exchange(asking + payload + tail, 1 + bool(asking) + bool(tail))
            except NotSent as error:
                failed = error
                if node is None or not (servers.refresh(slot, node) or not error.connecting):
                    break
                node, asking = None, b""
                continue
            except ReplyLost as lost:
                if not reads and isinstance(_reply_in(lost.replies, asking), list):
                    failed = lost  # nothing was written, but that it was the master who said so is not known
                    break
                raise
            reply = _reply_in(replies, asking)
            if not isinstance(reply, DriverError):
                if tail and not reads and not isinstance(reply, list) and not self._confirmed(replies[-1]):
                    raise ReplyLost("", replies, broken=False)
                if not self._guard or not self._is_demoted(node, reply, replies[-1], reads=reads):
                    return reply
                failed = NotSent("the server is a replica now", demoted=True)
                if not servers.refresh(slot, node):
                    break
                node, asking = None, b""
                continue
            failed = reply
            code = code_of(reply)
            asking = b""
            if code == "NOSCRIPT":
                payload = call.in_full()
            elif code == "MOVED":
                node = servers.moved(slot, _address_in(reply, node))
            elif code == "ASK":
                node, asking = servers.at(_address_in(reply, node)), ASKING
            elif code in ("READONLY", "CLUSTERDOWN", "MASTERDOWN") and servers.refresh(slot, node):
                node = None
            else:
                break
        raise self._refused(failed, damage, key)

    def _is_demoted(self, node: Node, reply: Reply, last: Reply, *, reads: bool) -> bool:
        """Tell whether what was read came from a replica (ATOM-5).

        A server that is demoted keeps its connections, and goes on to answer what only reads: reads, and writes that
        write nothing. `WAIT 0 0` costs nothing, and a replica refuses it. A write that wrote came from a master.
        """
        if reads:
            return _is_from_replica(last)
        if not isinstance(reply, list):
            return False
        try:
            (answer,) = node.exchange(self._guard)
        except (NotSent, ReplyLost):
            return True
        return _is_from_replica(answer)

    def _refused(self, failed: BaseException | None, damage: type[DataError], key: str | None) -> BaseException:
        if isinstance(failed, (NotSent, ReplyLost)):
            return unavailable(failed, key, self.backend)
        if isinstance(failed, DriverError):
            known = refusal(failed, damage, key, self.backend)
            if known is not None:
                return known
            lost = ReplyLost(f"the server answered with an error that proves nothing: {failed}", [], broken=False)
            lost.__cause__ = failed
            return lost
        return BackendUnavailable("no server took the call", key=key, backend=self.backend)

    def _confirmed(self, reply: Reply) -> bool:
        """Tell whether as many servers as asked for have a write."""
        if self.options.waitaof:
            if not isinstance(reply, list) or len(reply) != 2:
                return False
            local, replicas = reply
            return (
                isinstance(local, int)
                and isinstance(replicas, int)
                and local >= 1
                and (replicas >= self.options.wait_replicas)
            )
        return isinstance(reply, int) and reply >= self.options.wait_replicas

    def read_all(self, calls: Sequence[tuple[int, Call]], damage: type[DataError]) -> list[Reply]:
        """Run scripts that only read, in one round trip a server and 256 calls.

        Raises:
            BackendUnavailable: There is no answer to one of them.
            StoreClosed: The store is closed.
        """
        replies: list[Reply] = []
        for (slot, call), outcome in zip(calls, self._all(calls, self._guard, reads=True), strict=True):
            if isinstance(outcome, (NotSent, ReplyLost, DriverError)):
                replies.append(self.read(slot, call, damage, None))
            else:
                replies.append(outcome)
        return replies

    def glance(self, slot: int, payload: bytes, count: int) -> list[Reply] | None:
        """Run plain commands that only read, in one round trip and in their order, but not from one moment.

        Args:
            slot: The slot of their keys.
            payload: The commands, packed.
            count: How many there are.

        Returns:
            Their replies, or None where anything stands in the way: then a script is asked, which tells what it is.

        Raises:
            Overloaded: All connections are in use.
            StoreClosed: The store is closed.
        """
        try:
            node = self.servers().node(slot)
            replies = node.exchange(payload + self._guard, count + bool(self._guard))
        except (NotSent, ReplyLost):
            return None
        return None if any(isinstance(reply, DriverError) for reply in replies) else replies[:count]

    # ------------------------------------------------------------------------------------------------------- groups

    def write_all(self, calls: Sequence[tuple[int, Call]]) -> list[Reply | NotSent | ReplyLost]:
        """Run scripts in one round trip a server and 256 calls; they reach each server in their order.

        Args:
            calls: Slots and calls.

        Returns:
            For each its reply, error replies among them; `NotSent` where it was certainly not run, `ReplyLost` where
            that is not known or not confirmed. An error reply of a call says nothing about the others.

        Raises:
            StoreClosed: The store is closed.
        """
        return self._all(calls, self._wait, reads=False)

    def _all(self, calls: Sequence[tuple[int, Call]], tail: bytes, *, reads: bool) -> list[Reply | NotSent | ReplyLost]:
        outcomes: list[Reply | NotSent | ReplyLost] = [None] * len(calls)
        servers = self.servers()
        for start, end in _groups(calls):
            self._run_group(servers, _Group(calls, tail, outcomes, reads=reads), range(start, end))
        return outcomes

    def _run_group(self, servers: Servers, group: _Group, places: range) -> None:
        calls, outcomes = group.calls, group.outcomes
        by_node: dict[Node, list[int]] = {}
        for place in places:
            try:
                by_node.setdefault(servers.node(calls[place][0]), []).append(place)
            except NotSent as error:
                outcomes[place] = error
        connections: dict[Node, Wire] = {}
        sound: set[Node] = set()
        with ExitStack() as stack:
            # Always in the same order, so that two groups never wait for each other's connections.
            for node in sorted(by_node, key=lambda each: each.address):
                try:
                    connection = node.take()
                except (NotSent, Overloaded) as error:
                    for place in by_node[node]:
                        outcomes[place] = error if isinstance(error, NotSent) else NotSent(error.message)
                    continue
                connections[node] = connection
                stack.callback(_give, node, connection, sound)
            sent = [node for node in connections if _send_group(group, node, connections[node], by_node[node])]
            for node in sent:
                if self._receive_group(group, node, connections[node], by_node[node]):
                    sound.add(node)

    def _receive_group(self, group: _Group, node: Node, connection: Wire, places: Sequence[int]) -> bool:
        """Take the replies of one server; tell whether all came."""
        count = len(places) + bool(group.tail)
        lost: ReplyLost | None = None
        try:
            replies = node.receive(connection, count)
        except ReplyLost as error:
            lost, replies = error, error.replies
        whole = len(replies) == count
        if group.reads:
            confirmed = not group.tail or (whole and not _is_from_replica(replies[-1]))
        else:
            confirmed = not group.tail or (whole and self._confirmed(replies[-1]))
        for index, place in enumerate(places):
            if index >= len(replies):
                group.outcomes[place] = lost or ReplyLost("the server did not answer", [], broken=False)
            elif (
                confirmed
                or isinstance(replies[index], DriverError)
                or (not group.reads and isinstance(replies[index], list))
            ):
                group.outcomes[place] = replies[index]
            else:
                group.outcomes[place] = ReplyLost("too few servers confirmed it in time", [], broken=False)
        return lost is None

    # -------------------------------------------------------------------------------------------------------- index

    def index(self, keys: IndexKeys, verb: bytes, member: bytes, damage: type[DataError], key: str) -> None:
        """Put a name into an index, or take one out. An entry without what it names is skipped by every listing.

        Raises:
            BackendUnavailable: It is not known to be done; nothing but the entry was perhaps written.
        """
        try:
            self.write(keys.slot, script("index", 2).call(2, keys.packed, verb, member), damage, key)
        except OutcomeUnknown as error:
            raise unavailable(error, key, self.backend) from error

    def page(
        self, keys: IndexKeys, start: bytes, end: bytes, limit: int, damage: type[DataError], key: str
    ) -> list[bytes]:
        """Read a page of an index.

        Args:
            keys: The index.
            start: The lower bound, as for `ZRANGEBYLEX`.
            end: The upper bound.
            limit: How many members.
            damage: The class for damage.
            key: What is listed.

        Returns:
            The members, ascending.

        Raises:
            DataError: As `damage`: members are missing, or there are too many.
            BackendUnavailable: There is no answer.
        """
        call = script("page", 2).call(2, keys.packed, start, end, b"%d" % limit)
        reply = self.read(keys.slot, call, damage, key)
        if not (isinstance(reply, list) and len(reply) == 3):
            raise unavailable(NotSent("an unexpected reply"), key, self.backend)
        there, count, members = reply
        if not isinstance(there, int) or b"%d" % there != count:
            raise damage(
                "an index has lost or gained entries; it does not tell what is there",
                what="index",
                expected=f"{count!r} entries",
                found=f"{there!r}",
                key=key,
                backend=self.backend,
            )
        return words_in(members)


def _reply_in(replies: Sequence[Reply], asking: bytes) -> Reply:
    """The reply to the call itself; None where it did not come."""
    place = 1 if asking else 0
    return replies[place] if len(replies) > place else None


def _is_from_replica(reply: Reply) -> bool:
    """Tell whether a reply to `WAIT` is that of a replica, which refuses it."""
    return isinstance(reply, DriverError) and "replica" in str(reply)


class _Group:
    """Calls that go out together, and what came of them."""

    __slots__ = ("calls", "outcomes", "reads", "tail")

    def __init__(
        self,
        calls: Sequence[tuple[int, Call]],
        tail: bytes,
        outcomes: list[Reply | NotSent | ReplyLost],
        *,
        reads: bool,
    ) -> None:
        self.calls = calls
        self.tail = tail
        self.reads = reads
        self.outcomes = outcomes


def _give(node: Node, connection: Wire, sound: set[Node]) -> None:
    node.give(connection, sound=node in sound)


def _send_group(group: _Group, node: Node, connection: Wire, places: Sequence[int]) -> bool:
    """Send the calls of one server; tell whether they went out whole."""
    payload = b"".join([group.calls[place][1].payload for place in places]) + group.tail
    try:
        node.send(connection, payload)
    except ReplyLost as lost:
        for place in places:
            group.outcomes[place] = lost
        return False
    return True


def _groups(calls: Sequence[tuple[int, Call]]) -> Iterator[tuple[int, int]]:
    """Cut calls into groups that are bounded in number and bytes."""
    start = size = 0
    for place, (_, call) in enumerate(calls):
        if place > start and (place - start >= _GROUP_CALLS or size + len(call.payload) > _GROUP_BYTES):
            yield start, place
            start, size = place, 0
        size += len(call.payload)
    if calls:
        yield start, len(calls)


def _address_in(error: DriverError, asked: Node) -> tuple[str, int]:
    """The address in a redirection; an empty host stands for the one that was asked."""
    host, port = getattr(error, "host", None), getattr(error, "port", None)
    if not isinstance(port, int):
        place = str(error).rpartition(" ")[2]
        host, _, number = place.rpartition(":")
        port = int(number) if number.isdecimal() else asked.address[1]
    return (host if isinstance(host, str) and host else asked.address[0]), port
