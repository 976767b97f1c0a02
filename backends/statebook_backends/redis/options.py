"""The options of the four Redis schemes: where the servers are, time-outs, TLS, and what a commit waits for."""

from __future__ import annotations

from typing import ClassVar, Final, Self

from pydantic import Field, SecretStr

from statebook.errors import InvalidConfiguration
from statebook.options import BackendOptions, Host, StoreUrl

DEFAULT_PORT: Final = 6_379
DEFAULT_SENTINEL_PORT: Final = 26_379
_OF_THE_URL: Final = frozenset({"hosts", "username", "password", "db"})


class RedisOptions(BackendOptions):
    """What a store on one Redis server is opened with (`redis://`).

    Attributes:
        hosts: Where the servers are: one server, or the sentinels, or some nodes of a cluster.
        username: The user, or None for the default one.
        password: The password, or None.
        db: The number of the database.
        namespace: As for every backend.
        connect_timeout_s: How long to wait for a connection.
        read_timeout_s: How long to wait for a reply. Behind it, a write is `OutcomeUnknown`.
        pool_timeout_s: How long a call waits for a free connection.
        connections_max: How many connections a store opens to one server at most.
        health_check_s: A connection that was idle for longer is asked before it is used.
        wait_replicas: How many replicas must have a write before it is acknowledged.
        wait_timeout_ms: How long to wait for them, less than `read_timeout_s`. Behind it, the write is
            `OutcomeUnknown`: the master has it.
        waitaof: Whether the master's append-only file must be synced before a write is acknowledged (Redis 7.2).
        tls_ca_file: The file with the authorities to trust, or None for the system's.
        tls_cert_file: The file with the client's certificate, or None.
        tls_key_file: The file with its key, or None.
        tls_verify: Whether the server's certificate and name are checked.
    """

    scheme: ClassVar[str] = "redis"
    tls_of_scheme: ClassVar[bool] = False

    hosts: tuple[Host, ...] = Field(min_length=1, max_length=1)
    username: str | None = None
    password: SecretStr | None = None
    db: int = Field(default=0, ge=0, le=65_535)
    connect_timeout_s: float = Field(default=5.0, gt=0, le=600)
    read_timeout_s: float = Field(default=10.0, gt=0, le=600)
    pool_timeout_s: float = Field(default=10.0, gt=0, le=600)
    connections_max: int = Field(default=64, ge=1, le=10_000)
    health_check_s: int = Field(default=30, ge=1, le=3_600)
    wait_replicas: int = Field(default=0, ge=0, le=100)
    wait_timeout_ms: int = Field(default=1_000, ge=1, le=600_000)
    waitaof: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_verify: bool = True

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls_of_scheme

    @classmethod
    def from_url(cls, url: StoreUrl) -> Self:
        """Turn a URL into options. No I/O.

        Args:
            url: `scheme://[user[:password]@]host[:port][,host[:port]…][/db]` and options.

        Returns:
            The options.

        Raises:
            InvalidConfiguration: A host is missing, or an option is unknown or wrong (ERR-6).
        """
        values: dict[str, object] = dict(url.query)
        for name in _OF_THE_URL & values.keys():
            raise _refused(f"{name} stands in the URL itself: {cls.scheme}://user:password@host:port/db", name, cls)
        if not url.hosts:
            raise _refused(f"a Redis store needs a server: {cls.scheme}://host:port/0", "url", cls)
        if len(url.hosts) > 1 and cls in (RedisOptions, RedissOptions):
            raise _refused(
                "one server is named by one host:port; several are named with redis+sentinel:// or redis+cluster://",
                "url",
                cls,
            )
        number = url.path.strip("/")
        if number and not (number.isascii() and number.isdecimal()):
            raise _refused(
                f"the path of a Redis URL is the number of a database, such as /0, not {url.path!r}", "db", cls
            )
        values |= {"hosts": url.hosts, "username": url.username, "password": url.password, "db": int(number or 0)}
        options = cls.checked(values, allowed=tuple(name for name in cls.model_fields if name not in _OF_THE_URL))
        if (options.wait_replicas or options.waitaof) and options.wait_timeout_ms >= options.read_timeout_s * 1_000:
            raise _refused("wait_timeout_ms must be less than read_timeout_s", "wait_timeout_ms", cls)
        return options


class RedissOptions(RedisOptions):
    """One Redis server over TLS (`rediss://`)."""

    scheme: ClassVar[str] = "rediss"
    tls_of_scheme: ClassVar[bool] = True


class SentinelOptions(RedisOptions):
    """A master that sentinels name (`redis+sentinel://`).

    Attributes:
        service: The name under which the sentinels watch the master.
        sentinel_username: The user at the sentinels, or None.
        sentinel_password: The password at the sentinels, or None.
        tls: Whether connections are encrypted, those to sentinels too.
    """

    scheme: ClassVar[str] = "redis+sentinel"

    hosts: tuple[Host, ...] = Field(min_length=1, max_length=64)
    service: str = Field(min_length=1, max_length=512)
    sentinel_username: str | None = None
    sentinel_password: SecretStr | None = None
    tls: bool = False

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls


class ClusterOptions(RedisOptions):
    """A cluster, of which some nodes are named (`redis+cluster://`).

    Attributes:
        tls: Whether connections are encrypted.
    """

    scheme: ClassVar[str] = "redis+cluster"

    hosts: tuple[Host, ...] = Field(min_length=1, max_length=64)
    db: int = Field(default=0, ge=0, le=0)
    tls: bool = False

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls


def options_of(url: StoreUrl) -> RedisOptions:
    """Turn a URL of one of the four schemes into options. No I/O.

    Args:
        url: The parsed URL.

    Returns:
        The options.

    Raises:
        InvalidConfiguration: The scheme is another one, or something in the URL is wrong (ERR-6).
    """
    kinds: tuple[type[RedisOptions], ...] = (RedisOptions, RedissOptions, SentinelOptions, ClusterOptions)
    for kind in kinds:
        if kind.scheme == url.scheme:
            return kind.from_url(url)
    raise _refused(f"this backend does not answer to {url.scheme}://", "url", RedisOptions)


def _refused(message: str, option: str, kind: type[RedisOptions]) -> InvalidConfiguration:
    return InvalidConfiguration(message, option=option, backend=kind.scheme)
