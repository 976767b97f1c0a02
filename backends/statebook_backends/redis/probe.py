"""What is asked of servers at open: what is unsafe is refused, and what is not known is declared as less (ATOM-7)."""

from __future__ import annotations

from typing import Final

import msgspec

from statebook.capabilities import Capabilities, Durability, Feature, Limits, Sharing
from statebook.errors import BackendUnavailable, InvalidConfiguration, JournalCorrupt
from statebook_backends.redis.errors import DriverError, NotSent, Reply, code_of, is_credentials, refusal
from statebook_backends.redis.options import ClusterOptions, RedisOptions, SentinelOptions
from statebook_backends.redis.resp import command, fields_of
from statebook_backends.redis.servers import Servers
from statebook_backends.redis.store import Node

_VERSION_MIN: Final = (6, 2)
_WAITAOF_MIN: Final = (7, 2)
_OVERHEAD_BYTES: Final = 64 * 1024
_UNKNOWN: Final = "unknown"
_QUESTIONS: Final = (
    command(b"INFO"),
    command(b"CONFIG", b"GET", b"appendfsync"),
    command(b"CONFIG", b"GET", b"proto-max-bulk-len"),
)


class Facts(msgspec.Struct, frozen=True):
    """What one server says of itself.

    Attributes:
        version: Such as `7.0.15`.
        role: `master` or `slave`.
        cluster: Whether it is part of a cluster.
        policy: What it does when memory runs out.
        appendonly: Whether it keeps an append-only file.
        appendfsync: When that is synced; `unknown` where the server does not tell.
        bulk_bytes_max: The longest word of a command; 0 where the server does not tell.
        replicas: How many replicas follow it.
    """

    version: str
    role: str
    cluster: bool
    policy: str
    appendonly: bool
    appendfsync: str
    bulk_bytes_max: int
    replicas: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers."""
        return tuple(int(part) for part in self.version.split(".")[:2] if part.isdecimal())

    @property
    def setting(self) -> str:
        """What decides over durability."""
        return f"appendfsync={self.appendfsync}" if self.appendonly else "appendonly=no"


def probe(servers: Servers, options: RedisOptions) -> Capabilities:
    """Ask every master, refuse what is unfit, and declare the least that holds for all.

    Args:
        servers: The servers.
        options: The options.

    Returns:
        What the store declares.

    Raises:
        InvalidConfiguration: A server is a replica, evicts data, is too old, or is of another kind than the URL says.
        BackendUnavailable: A server is not ready.
        NotSent: A server is not there.
        ReplyLost: A server does not answer.
    """
    facts = tuple(_ask(node, options) for node in servers.masters())
    for each in facts:
        _check(each, options)
    least = min(facts, key=lambda each: (each.appendonly and each.appendfsync == "always", each.appendonly))
    durable = least.appendonly and least.appendfsync == "always"
    waits = f", WAITAOF 1 {options.wait_replicas}" if options.waitaof else f", WAIT {options.wait_replicas}"
    longest = min((each.bulk_bytes_max for each in facts if each.bulk_bytes_max), default=0)
    return Capabilities(
        backend=options.scheme,
        durability=Durability.HOST if durable else Durability.PROCESS,
        durability_setting=least.setting + (waits if options.waitaof or options.wait_replicas else ""),
        sharing=Sharing.NETWORK,
        features=frozenset({Feature.PURGE}),
        limits=_limits(longest),
        server=(
            ("appendfsync", least.appendfsync if least.appendonly else "no append-only file"),
            ("masters", str(len(facts))),
            ("maxmemory_policy", least.policy),
            ("mode", _mode(options)),
            ("redis", min((each.version for each in facts), key=_numbers)),
            ("replicas", str(sum(each.replicas for each in facts))),
        ),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _mode(options: RedisOptions) -> str:
    if isinstance(options, ClusterOptions):
        return "cluster"
    return "sentinel" if isinstance(options, SentinelOptions) else "standalone"


def _limits(longest: int) -> Limits:
    """The limits, lowered where the server takes only shorter words; a list's items are words of their own."""
    limits = Limits()
    if not longest:
        return limits
    room = max(1, longest - _OVERHEAD_BYTES)
    return Limits(value_bytes_max=min(limits.value_bytes_max, room), batch_bytes_max=min(limits.batch_bytes_max, room))


def _ask(node: Node, options: RedisOptions) -> Facts:
    info, fsync, bulk = node.exchange(b"".join(_QUESTIONS), len(_QUESTIONS))
    if not isinstance(info, bytes):
        raise _refused(info, options)
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    facts = {name: value for name, colon, value in lines if colon}
    longest = fields_of(bulk).get(b"proto-max-bulk-len", b"0")
    return Facts(
        version=facts.get("redis_version", "0"),
        role=facts.get("role", _UNKNOWN),
        cluster=facts.get("cluster_enabled") == "1",
        policy=facts.get("maxmemory_policy", _UNKNOWN),
        appendonly=facts.get("aof_enabled") == "1",
        appendfsync=fields_of(fsync).get(b"appendfsync", _UNKNOWN.encode()).decode(errors="replace"),
        bulk_bytes_max=int(longest) if longest.isdigit() else 0,
        replicas=int(facts.get("connected_slaves", "0")),
    )


def _refused(reply: Reply, options: RedisOptions) -> Exception:
    if isinstance(reply, DriverError):
        if is_credentials(reply):
            option = "password" if code_of(reply) == "NOAUTH" else "username"
            return InvalidConfiguration(
                "the server asks for other credentials, or the user may not run INFO and EVALSHA on keys that begin "
                "with sb:; check user and password in the URL",
                option=option,
                backend=options.scheme,
            )
        known = refusal(reply, JournalCorrupt, None, options.scheme)
        if known is not None:
            return known
    return BackendUnavailable("the server does not tell what it is", backend=options.scheme)


def _check(facts: Facts, options: RedisOptions) -> None:
    """Refuse a server that is unfit; nothing was written."""
    clustered = isinstance(options, ClusterOptions)
    if facts.role == "slave":
        raise NotSent("the server is a replica", demoted=True)
    if facts.numbers < _VERSION_MIN:
        raise _invalid(f"Redis {facts.version} is too old; statebook needs 6.2 or newer", "url", options)
    if facts.cluster and not clustered:
        raise _invalid("the server is part of a cluster; use redis+cluster://host:port,host:port", "url", options)
    if not facts.cluster and clustered:
        raise _invalid("the server is not part of a cluster; use redis:// or rediss://", "url", options)
    if facts.policy not in ("noeviction", _UNKNOWN):
        raise _invalid(
            f"the server evicts keys when memory runs out (maxmemory-policy {facts.policy}), so that acknowledged data "
            "disappears; set maxmemory-policy noeviction",
            "url",
            options,
        )
    if options.waitaof and facts.numbers < _WAITAOF_MIN:
        raise _invalid(f"Redis {facts.version} has no WAITAOF; it needs 7.2 or newer", "waitaof", options)
    if options.waitaof and not facts.appendonly:
        raise _invalid("the server keeps no append-only file to wait for; set appendonly yes", "waitaof", options)
    if options.wait_replicas > facts.replicas:
        raise _invalid(
            f"wait_replicas is {options.wait_replicas}, but the master has {facts.replicas} replicas; ask for "
            "fewer, or connect more",
            "wait_replicas",
            options,
        )


def _invalid(message: str, option: str, options: RedisOptions) -> InvalidConfiguration:
    return InvalidConfiguration(message, option=option, backend=options.scheme)
