"""`memory://` URLs: what they mean and what is refused."""

import pytest

import statebook
from statebook.errors import InvalidConfiguration
from statebook.options import StoreUrl
from statebook_backends.memory import plugin
from statebook_backends.memory.options import MemoryOptions


def options(url: str) -> MemoryOptions:
    return MemoryOptions.from_url(StoreUrl.parse(url))


def test_the_name_is_the_host_and_the_namespace_an_option() -> None:
    made = options("memory://shop%20one?namespace=blue")
    assert (made.name, made.namespace) == ("shop one", "blue")
    assert options("memory://").name is None


@pytest.mark.parametrize(
    "url",
    [
        "memory://a:80",
        "memory://u@a",
        "memory://u:p@a",
        "memory://a,b",
        "memory://a/b",
        "memory://?name=a",
        "memory://a?nmae=b",
        "memory://a?namespace=",
    ],
)
def test_anything_else_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        options(url)
    assert caught.value.option in ("url", "name", "nmae", "namespace")
    assert caught.value.backend == "memory"


def test_another_backends_options_are_refused() -> None:
    with pytest.raises(InvalidConfiguration):
        plugin.statebook_open_state(statebook.BackendOptions())
