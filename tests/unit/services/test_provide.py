"""Where servers come from: the environment, a local binary, a container, or one line on what to install."""

from __future__ import annotations

import shutil

import pytest

from statebook_conformance.services import provide as module
from statebook_conformance.services.provide import OPTIONAL_NAMES, SERVICE_NAMES, make_service, provide, variable
from statebook_conformance.services.server import ServiceUnavailable, find_binary, free_port


def test_a_server_that_the_environment_names_is_used_as_it_is() -> None:
    with provide("redis", {"STATEBOOK_TEST_REDIS_URL": "redis://127.0.0.1:7/0"}) as provided:
        assert provided.url == "redis://127.0.0.1:7/0"
        assert provided.service is None
        assert provided.provider == "given by STATEBOOK_TEST_REDIS_URL"


def test_every_service_has_a_variable_and_a_description() -> None:
    for name in (*SERVICE_NAMES, "redis-new", "mysql-oracle"):
        assert variable(name) == f"STATEBOOK_TEST_{name.upper().replace('-', '_')}_URL"
        made = make_service(name)
        shutil.rmtree(made.directory)
        assert made.name == name


def test_the_services_that_a_certification_needs_are_apart_from_the_optional_ones() -> None:
    assert SERVICE_NAMES == ("redis", "redis-sentinel", "redis-cluster", "mysql", "s3", "moto")
    assert set(OPTIONAL_NAMES) == {"redis-new", "mysql-oracle", "redis-container"}


def test_an_unknown_service_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="redis-sentinel"):
        make_service("oracle")
    with pytest.raises(ValueError, match="redis-container"):
        make_service("oracle")


def test_a_missing_binary_and_a_missing_engine_say_in_one_line_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")

    def missing(name: str) -> None:
        raise ServiceUnavailable(f"there is no server for {name} here", install="install Debian's mariadb-server")

    monkeypatch.setattr(module, "make_service", missing)
    with pytest.raises(ServiceUnavailable) as caught, provide("mysql", {}):
        pytest.fail("nothing can be provided")
    text = str(caught.value)
    assert "mariadb-server" in text
    assert "container engine" in text
    assert "\n" not in text


def test_a_binary_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(ServiceUnavailable, match="install it"):
        find_binary("statebook-no-such-server", install="install it")


def test_no_port_is_given_twice_before_its_server_listens() -> None:
    given = [free_port(also_free=10_000) for _ in range(300)]
    assert len({*given, *(port + 10_000 for port in given)}) == 600


def test_free_ports_lie_below_the_range_of_outgoing_connections() -> None:
    assert all(20_000 <= free_port(also_free=10) < 32_000 for _ in range(20))
