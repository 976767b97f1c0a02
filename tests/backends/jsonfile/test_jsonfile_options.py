"""`file://` URLs and where the root is."""

import os
from pathlib import Path

import pytest

import statebook
from statebook.errors import InvalidConfiguration
from statebook.options import StoreUrl
from statebook_backends.jsonfile import plugin
from statebook_backends.jsonfile.options import JsonFileOptions
from statebook_backends.jsonfile.root import root_path


def options(url: str) -> JsonFileOptions:
    return JsonFileOptions.from_url(StoreUrl.parse(url))


def test_the_path_comes_before_the_environment_and_that_before_the_home() -> None:
    home = os.path.expanduser("~/.statebook/state")
    assert root_path(options("file://"), {}) == home
    assert root_path(options("file://"), {"STATEBOOK_HOME": ""}) == home
    assert root_path(options("file://"), {"STATEBOOK_HOME": "/srv/book"}) == "/srv/book"
    assert root_path(options("file:///data/x%20y/"), {"STATEBOOK_HOME": "/srv/book"}) == "/data/x y"


def test_an_agent_has_a_directory_of_its_own_below_every_root() -> None:
    home = os.path.expanduser("~/.statebook/state")
    assert root_path(options("file://?agent_id=writer"), {}) == f"{home}/writer"
    assert root_path(options("file:///d?agent_id=..%2Fx"), {}) == "/d/_2e_2e_2fx"
    assert root_path(options("file:///d?agent_id=CON"), {}) == "/d/_43_4f_4e"
    assert root_path(options("file:///d?agent_id=con"), {}) == "/d/_con"
    assert root_path(options("file:///d?agent_id=con2"), {}) == "/d/con2"


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("file://dir", "url"),
        ("file://host/dir", "url"),
        ("file://u:p@/dir", "url"),
        ("file:///dir?path=/x", "path"),
        ("file:///dir?durabilty=host", "durabilty"),
        ("file:///dir?durability=network", "durability"),
        ("file:///dir?lock_timeout_s=0", "lock_timeout_s"),
        ("file:///dir?lock_timeout_s=nan", "lock_timeout_s"),
        ("file:///dir?agent_id=", "agent_id"),
        ("file:///dir?agent_id=" + "x" * 600, "agent_id"),
        ("file:///dir?namespace=", "namespace"),
    ],
)
def test_anything_else_is_refused_by_name(url: str, option: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        options(url)
    assert caught.value.option == option


@pytest.mark.parametrize("path", ["relative", "/nul\0byte", "/" + "x/" * 2_000])
def test_a_path_that_cannot_be_a_root_is_refused(path: str) -> None:
    with pytest.raises(InvalidConfiguration):
        root_path(JsonFileOptions(path=path), {})
    with pytest.raises(InvalidConfiguration):
        root_path(JsonFileOptions(), {"STATEBOOK_HOME": path})


def test_durability_is_declared_as_it_was_asked_for(root: Path) -> None:
    for asked, declared in (("host", statebook.Durability.HOST), ("process", statebook.Durability.PROCESS)):
        store = statebook.open_atomic(f"file://{root}?durability={asked}")
        assert store.capabilities.durability is declared
        assert store.capabilities.sharing is statebook.Sharing.HOST
        store.close()


def test_another_backends_options_are_refused() -> None:
    with pytest.raises(InvalidConfiguration):
        plugin.statebook_open_atomic(statebook.BackendOptions())
