"""The options of `mysql://user:password@host:port/database?table_prefix=…`."""

from __future__ import annotations

import re
from typing import ClassVar, Final, Self

from pydantic import Field

from statebook.errors import InvalidConfiguration
from statebook.options import BackendOptions, StoreUrl

_PREFIX: Final = re.compile(r"[A-Za-z0-9_]{1,32}\Z", re.ASCII)
_IN_URL: Final = ("host", "port", "user", "password", "database")


class MysqlOptions(BackendOptions):
    """What a store on MySQL or MariaDB is opened with.

    Attributes:
        host: The server.
        port: Its port.
        user: The user.
        password: The password. Shown nowhere.
        database: The database; it must exist.
        namespace: As for every backend.
        table_prefix: The names of all tables start with this: letters, digits and underscores, at most 32.
        create: Make missing tables. With `false` an operator runs `schema.sql`, and this user needs no right to do so.
        connect_timeout_s: How long connecting may take.
        read_timeout_s: How long the server may take to answer.
        write_timeout_s: How long sending may take.
        lock_timeout_s: How long a statement waits for another's lock; less than `read_timeout_s`.
        pool_max: How many connections a store opens at most.
        pool_timeout_s: How long a call waits for one of them.
        ping_after_s: A connection that was idle for longer is asked whether it still answers before it is used.
        ssl: Talk TLS, and not at all where the server does not. Implied by `ssl_ca`, `ssl_cert` and `ssl_key`.
        ssl_ca: A file of authorities to trust, in PEM.
        ssl_cert: The client's certificate, in PEM.
        ssl_key: Its key, in PEM.
        ssl_verify: Whether the server's certificate and name are verified.
    """

    scheme: ClassVar[str] = "mysql"

    host: str = Field(min_length=1, max_length=255)
    port: int = Field(default=3_306, ge=1, le=65_535)
    user: str = Field(min_length=1, max_length=255)
    password: str | None = Field(default=None, repr=False)
    database: str = Field(min_length=1, max_length=64)
    table_prefix: str = "sb_"
    create: bool = True
    connect_timeout_s: float = Field(default=5.0, gt=0, le=600)
    read_timeout_s: float = Field(default=10.0, gt=0, le=3_600)
    write_timeout_s: float = Field(default=10.0, gt=0, le=3_600)
    lock_timeout_s: int = Field(default=5, ge=1, le=3_600)
    pool_max: int = Field(default=8, ge=1, le=1_024)
    pool_timeout_s: float = Field(default=10.0, gt=0, le=3_600)
    ping_after_s: float = Field(default=30.0, ge=0, le=86_400)
    ssl: bool = False
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    ssl_verify: bool = True

    @property
    def tls(self) -> bool:
        """Whether TLS is required."""
        return self.ssl or any((self.ssl_ca, self.ssl_cert, self.ssl_key))

    @classmethod
    def from_url(cls, url: StoreUrl) -> Self:
        """Turn a URL into options. No I/O.

        Args:
            url: `mysql://user:password@host:port/database`, and options.

        Returns:
            The options.

        Raises:
            InvalidConfiguration: The URL names no user, no single host or no database, or an option is unknown or
                wrong (ERR-6).
        """
        if len(url.hosts) != 1:
            raise _refused("url", "name one server: mysql://user:password@host:port/database")
        if url.username is None:
            raise _refused("url", "name a user: mysql://user:password@host:port/database")
        database = url.path[1:]
        if not database or "/" in database:
            raise _refused("url", "name one database, which exists: mysql://user:password@host:port/database")
        values: dict[str, object] = dict(url.query)
        for name in _IN_URL:
            if name in values:
                raise _refused(name, f"{name} stands in the URL itself: mysql://user:password@host:port/database")
        values |= {"host": url.hosts[0].name, "user": url.username, "password": url.password, "database": database}
        if url.hosts[0].port is not None:
            values["port"] = url.hosts[0].port
        options = cls.checked(values, allowed=tuple(name for name in cls.model_fields if name not in _IN_URL))
        options.check()
        return options

    def check(self) -> None:
        """Refuse what fields cannot tell by themselves.

        Raises:
            InvalidConfiguration: The prefix is no prefix, or options do not go together (ERR-6).
        """
        if _PREFIX.match(self.table_prefix) is None:
            raise _refused("table_prefix", "table_prefix takes 1 to 32 letters, digits and underscores, such as sb_")
        if self.lock_timeout_s >= self.read_timeout_s:
            raise _refused(
                "lock_timeout_s",
                "lock_timeout_s must be less than read_timeout_s, or a wait for a lock ends with an unknown outcome",
            )
        if (self.ssl_cert is None) != (self.ssl_key is None):
            raise _refused("ssl_cert", "ssl_cert and ssl_key go together; give both or none")


def _refused(option: str, message: str) -> InvalidConfiguration:
    return InvalidConfiguration(message, option=option, backend=MysqlOptions.scheme)
