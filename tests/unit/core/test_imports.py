"""What is imported when: a name costs what it needs, and listing backends imports none."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import statebook

HEAVY = ("pydantic", "pluggy", "click", "rich", "boto3", "redis", "pymysql", "sqlite3", "asyncio", "uuid_utils")


def modules_after(code: str) -> set[str]:
    program = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(finished.stdout.splitlines()[-1]))


def heavy_in(modules: set[str]) -> set[str]:
    return {name for name in HEAVY if name in modules}


def test_importing_statebook_imports_nothing_but_itself() -> None:
    bare = modules_after("")
    modules = modules_after("import statebook")
    assert heavy_in(modules) == set()
    assert {name for name in modules if name.startswith("statebook")} == {"statebook"}
    assert len(modules - bare) < 40


def test_keys_values_and_errors_need_no_configuration_library() -> None:
    assert heavy_in(modules_after("from statebook import ThreadKey, Event, Batch, WriterFenced, encode_value")) == set()


def test_listing_backends_imports_no_backend_and_no_driver() -> None:
    code = "import statebook\nassert statebook.installed_backends()"
    modules = modules_after(code)
    assert not {name for name in modules if name.startswith("statebook_backends")}
    assert heavy_in(modules) <= {"pydantic", "pluggy", "asyncio"}


def test_the_command_line_starts_without_what_it_may_not_need() -> None:
    modules = modules_after("import statebook.cli")
    assert heavy_in(modules) <= {"click"}
    listed = modules_after("from statebook.cli.backends import installed\nassert list(installed())")
    assert not {name for name in listed if name.startswith("statebook_backends")}
    assert heavy_in(listed) <= {"click"}


def test_opening_one_backend_imports_that_one() -> None:
    modules = modules_after("import statebook\nstatebook.load_backend('memory://')")
    backends = {name.split(".")[1] for name in modules if name.startswith("statebook_backends.")}
    assert backends == {"memory"}
    assert not heavy_in(modules) & {"boto3", "redis", "pymysql", "sqlite3"}


def test_every_public_name_exists_is_listed_once_and_is_found_by_dir() -> None:
    assert len(set(statebook.__all__)) == len(statebook.__all__)
    for name in statebook.__all__:
        assert getattr(statebook, name) is not None
    assert dir(statebook) == sorted(statebook.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        statebook.no_such_name  # type: ignore[attr-defined]  # noqa: B018
