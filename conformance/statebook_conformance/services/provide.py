"""Find or start what a backend needs, or say what to install."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec

from statebook_conformance.services.server import ServiceUnavailable
from statebook_conformance.services.service import Service

SERVICE_NAMES: Final = ("redis", "redis-sentinel", "redis-cluster", "mysql", "s3", "moto")
"""The services that every certification of the networked backends needs."""

OPTIONAL_NAMES: Final = ("redis-new", "mysql-oracle", "redis-container")
"""Further servers, used where they can be had: a Redis with WAITAOF, Oracle's MySQL, Redis in a container."""

ALL_NAMES: Final = (*SERVICE_NAMES, *OPTIONAL_NAMES)
"""The services that can be named where a URL can."""


class Provided(msgspec.Struct, frozen=True):
    """Where a backend's server is.

    Attributes:
        url: The URL of a store on it; may hold a password.
        provider: Where it came from, for the certificate.
        emulated: Whether it only looks like the real thing.
        service: The running service, or None where the URL was given.
    """

    url: str
    provider: str
    emulated: bool
    service: Service | None = None


def variable(name: str) -> str:
    """The environment variable that names a ready server for a service: `STATEBOOK_TEST_REDIS_CLUSTER_URL`."""
    return f"STATEBOOK_TEST_{name.upper().replace('-', '_')}_URL"


def make_service(name: str) -> Service:
    """Describe a service by name; starts nothing.

    Args:
        name: One of `ALL_NAMES`.

    Returns:
        The service.

    Raises:
        ServiceUnavailable: It is a container, and no engine answers.
        ValueError: There is no such service.
    """
    from statebook_conformance.services import mysql_oracle, mysql_service, redis_service, s3_service
    from statebook_conformance.services.container_service import CONTAINED_ONLY, ContainerService

    if name == CONTAINED_ONLY:
        return ContainerService(name)
    services: dict[str, type[Service]] = {
        service.name: service
        for service in (
            redis_service.RedisService,
            redis_service.NewRedisService,
            redis_service.RedisSentinelService,
            redis_service.RedisClusterService,
            mysql_service.MysqlService,
            mysql_oracle.OracleMysqlService,
            s3_service.SeaweedService,
            s3_service.MotoService,
        )
    }
    if name not in services:
        raise ValueError(f"there is no service {name!r}; there are {', '.join(ALL_NAMES)}")
    return services[name]()


@contextmanager
def provide(name: str, environment: Mapping[str, str] | None = None) -> Iterator[Provided]:
    """Give a server for a service: the one that the environment names, else one that is started here and ended after.

    A local binary comes first, then a container where an engine answers.

    Args:
        name: One of `ALL_NAMES`.
        environment: The environment; None for this process's.

    Yields:
        Where it is.

    Raises:
        ServiceUnavailable: It cannot be had; the message says what to install.
        ServerFailed: It did not start; the end of its log is in the message.
        ValueError: There is no such service.
    """
    given = (os.environ if environment is None else environment).get(variable(name))
    if given:
        yield Provided(given, f"given by {variable(name)}", emulated=name == "moto")
        return
    with ExitStack() as stack:
        service = _started(name, stack)
        yield Provided(service.url, service.provider, service.emulated, service)


def _started(name: str, stack: ExitStack) -> Service:
    """The service on this machine's own binaries, else in a container, started; ended with the stack."""
    try:
        return stack.enter_context(make_service(name))
    except ServiceUnavailable as local:
        from statebook_conformance.services.container_service import instead_of

        return stack.enter_context(instead_of(name, local))


__all__ = [
    "ALL_NAMES",
    "OPTIONAL_NAMES",
    "SERVICE_NAMES",
    "Provided",
    "ServiceUnavailable",
    "make_service",
    "provide",
    "variable",
]
