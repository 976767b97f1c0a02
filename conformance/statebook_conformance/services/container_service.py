"""Servers in containers, through testcontainers: where no binary is installed, but a container engine answers."""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from statebook_conformance.services.redis_service import ask
from statebook_conformance.services.server import ServerFailed, ServiceUnavailable
from statebook_conformance.services.service import Service

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_INSTALL: Final = "run a container engine and: pip install testcontainers"
_READY_WITHIN_S: Final = 120.0


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How one server is run in a container.

    Attributes:
        kind: What it serves; names the variable that gives another image, such as `STATEBOOK_TEST_REDIS_IMAGE`.
        image: The image.
        port: The port inside.
        command: The command, or None for the image's own.
        environment: Environment variables.
        url: The URL of a store, with `{port}` for the published port.
        ready: Tells whether the server on a published port answers.
    """

    kind: str
    image: str
    port: int
    command: str | None
    environment: Mapping[str, str]
    url: str
    ready: Callable[[int], bool]


def _redis_answers(port: int) -> bool:
    return ask(port, "PING").startswith("+PONG")


def _mysql_greets(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=2.0) as connection:
        return len(connection.recv(64)) > 4


def _http_answers(path: str, port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    finally:
        connection.close()


_REDIS: Final = Recipe(
    kind="redis",
    image="redis:8",
    port=6379,
    # Protected mode would refuse a published port, whose connections do not come from the container's own loopback.
    command="redis-server --appendonly yes --appendfsync always --maxmemory-policy noeviction --protected-mode no",
    environment={},
    url="redis://127.0.0.1:{port}/0",
    ready=_redis_answers,
)
_MYSQL: Final = Recipe(
    kind="mysql",
    image="mysql:8.4",
    port=3306,
    command=None,
    environment={
        "MYSQL_ROOT_PASSWORD": "statebook-root",
        "MYSQL_DATABASE": "statebook",
        "MYSQL_USER": "statebook",
        "MYSQL_PASSWORD": "statebook-test",
    },
    url="mysql://statebook:statebook-test@127.0.0.1:{port}/statebook",
    ready=_mysql_greets,
)
_MOTO: Final = Recipe(
    kind="moto",
    image="motoserver/moto:latest",
    port=5000,
    command=None,
    environment={},
    url="s3://statebook/conformance?endpoint_url=http%3A%2F%2F127.0.0.1%3A{port}&region=us-east-1"
    "&access_key_id=statebook&secret_access_key=statebook",
    ready=partial(_http_answers, "/moto-api/"),
)

CONTAINED_ONLY: Final = "redis-container"
"""The service that is a container even where a local binary is found."""

RECIPES: Final[Mapping[str, Recipe]] = {
    "redis": _REDIS,
    "redis-new": _REDIS,
    CONTAINED_ONLY: _REDIS,
    "mysql": _MYSQL,
    "mysql-oracle": _MYSQL,
    "moto": _MOTO,
}
"""The services that one container can serve. Groups of servers (Sentinel, Cluster) and S3 need the local binaries."""


def image_of(recipe: Recipe, environment: Mapping[str, str]) -> str:
    """The image of a recipe: the one that `STATEBOOK_TEST_<KIND>_IMAGE` names, else the recipe's own.

    Args:
        recipe: The recipe.
        environment: The environment.

    Returns:
        The image.
    """
    return environment.get(f"STATEBOOK_TEST_{recipe.kind.upper()}_IMAGE") or recipe.image


class ContainerService(Service):
    """One server in a container, published on a free port of 127.0.0.1."""

    def __init__(self, name: str, *, keep_logs: bool = False) -> None:
        """Describe it; starts nothing.

        Args:
            name: A service in `RECIPES`.
            keep_logs: Keep the directory even where all went well.

        Raises:
            ServiceUnavailable: No recipe, no engine, or no testcontainers.
        """
        recipe = RECIPES.get(name)
        if recipe is None:
            raise ServiceUnavailable(f"{name} is not served by one container", install=_INSTALL)
        self._image = image_of(recipe, os.environ)
        self._container = _container(recipe, self._image)
        self.name = name  # type: ignore[misc]
        self.emulated = name == "moto"  # type: ignore[misc]
        super().__init__(keep_logs=keep_logs)
        self._recipe = recipe
        self._published = 0

    @property
    def url(self) -> str:
        return self._recipe.url.format(port=self._published)

    @property
    def provider(self) -> str:
        return f"container {self._image}"

    def start(self) -> None:
        self._container.start()
        self._published = int(self._container.get_exposed_port(self._recipe.port))
        deadline = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline:
            try:
                if self._recipe.ready(self._published):
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.1)
        out, errors = self._container.get_logs()
        raise ServerFailed(f"{self._image} did not answer: {(out + errors)[-2_000:].decode(errors='replace')}")

    def stop(self) -> None:
        self._container.stop()


def instead_of(name: str, local: ServiceUnavailable) -> ContainerService:
    """Give the container of a service whose local binary is missing.

    Args:
        name: The service.
        local: What is missing.

    Returns:
        The container, not started.

    Raises:
        ServiceUnavailable: No container serves it, or no engine answers: what is missing, and all ways to get it.
    """
    if name not in RECIPES or name == CONTAINED_ONLY:
        raise local
    try:
        return ContainerService(name)
    except ServiceUnavailable as error:
        raise ServiceUnavailable(str(local), install=f"or {error.install}") from error


def _container(recipe: Recipe, image: str) -> DockerContainer:
    try:
        from docker import from_env  # type: ignore[import-untyped]
        from docker.errors import DockerException  # type: ignore[import-untyped]
        from testcontainers.core.container import DockerContainer
    except ModuleNotFoundError as error:
        raise ServiceUnavailable("testcontainers is not installed", install=_INSTALL) from error
    try:
        client = from_env()
        client.ping()
        client.close()
    except DockerException as error:
        raise ServiceUnavailable("no container engine answers here", install=_INSTALL) from error
    container = DockerContainer(image)
    # On loopback only, and on any free port; the library's own methods publish on all interfaces.
    container.ports[f"{recipe.port}/tcp"] = ("127.0.0.1", None)  # type: ignore[assignment]
    for name, value in recipe.environment.items():
        container = container.with_env(name, value)
    return container if recipe.command is None else container.with_command(recipe.command)
