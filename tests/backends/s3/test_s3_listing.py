"""Listings are whole, ascending by name and bounded, whatever order a store lists in."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from statebook import AtomicJournalStorage, plugins as statebook
from statebook_backends.s3.objects import in_order

ROOT = "some/prefix/default/heads/"


def scopes(atomic: AtomicJournalStorage, prefix: str, limit: int) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        page = atomic.list_scopes(prefix, after, limit)
        assert len(page.names) <= limit
        found += page.names
        if not page.has_more:
            return found
        after = page.names[-1]


def test_more_than_a_page_of_scopes_is_listed_whole_and_a_page_costs_a_page(lookalike: Any, atomic: Any) -> None:
    """Case 14."""
    wanted = sorted(f"t/u/a/s/{number}{end}" for number in range(1_250) for end in ("", "-x"))
    for scope in wanted:
        lookalike.objects[f"{ROOT}{scope}!head"] = b""
        lookalike.objects[f"some/prefix/default/blobs/{scope}!/b"] = b""
    assert scopes(atomic, "t/", 10_000) == wanted
    lookalike.requests.clear()
    assert atomic.list_scopes("t/u/", wanted[2_000], 100).names == tuple(wanted[2_001:2_101])
    assert lookalike.counted() == {"GET": 1}


def test_names_that_continue_others_come_in_the_order_of_names(lookalike: Any, atomic: Any) -> None:
    names = ["t/a", "t/a-b", "t/a-b/c", "t/a/c", "t/a0", "t/a_20", "t/b", "d/a", "tt/a", "t/a/head", "t/a/blobs/x"]
    for name in names:
        assert atomic.commit(name, None, name.encode(), {"blob": b"x"}) is not None
    wanted = sorted(name for name in names if name.startswith("t/"))
    for limit in (1, 2, 3, 100):
        assert scopes(atomic, "t/", limit) == wanted
    assert scopes(atomic, "", 100) == sorted(names)
    assert atomic.list_scopes("t/", "t/a-a", 100).names == tuple(name for name in wanted if name > "t/a-a")
    assert atomic.list_scopes("t/", "a", 100).names == tuple(wanted)
    assert atomic.list_scopes("t/", "z", 100).names == ()


def test_foreign_objects_are_passed_over(lookalike: Any, atomic: Any) -> None:
    atomic.commit("t/a", None, b"1")
    atomic.commit("t/b", None, b"1")
    for name in ("t/A!head", "t/a", "t/a!", "t/a!head!head", "t/aa!other", "t/", "!head"):
        lookalike.objects[ROOT + name] = b""
    for limit in (1, 100):
        assert scopes(atomic, "", limit) == ["t/a", "t/b"]


class Shuffled:
    """A listing that is whole and in no order."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def pages(self, directory: str, after: str | None = None) -> Iterator[Sequence[str]]:
        assert after is None
        for start in range(0, len(self._paths), 7):
            yield self._paths[start : start + 7]

    def read(self, path: str) -> bytes | None:
        raise AssertionError(path)

    def put(self, path: str, data: bytes) -> None:
        raise AssertionError(path)

    def delete(self, paths: Sequence[str]) -> None:
        raise AssertionError(paths)


@pytest.mark.parametrize("after", [None, "x/20", "x/9999"])
def test_a_store_that_lists_in_no_order_is_sorted_here(after: str | None) -> None:
    paths = [f"x/{number * 37 % 100}" for number in range(100)]
    wanted = [path for path in sorted(paths) if after is None or path > after]
    assert in_order(Shuffled(paths), "x/", after, 10, ordered=False) == tuple(wanted[:10])


def test_a_real_store_lists_more_than_a_thousand_of_both(url: str) -> None:
    """Case 14."""
    atomic = statebook.open_atomic(url)
    names = [f"blob-{number:04d}" for number in range(1_010)]
    atomic.commit("t/u/a/s/a", None, b"1", dict.fromkeys(names, b""))
    wanted = ["t/u/a/s/a", "t/u/a/s/a-b", "t/u/a/s/a-b/c", "t/u/a/s/a/c"]
    for scope in wanted[1:]:
        atomic.commit(scope, None, b"1")
    assert atomic.list_blobs("t/u/a/s/a", None, 10_000).names == tuple(names)
    page = atomic.list_blobs("t/u/a/s/a", names[499], 500)
    assert page.names == tuple(names[500:1_000])
    assert page.has_more
    assert scopes(atomic, "t/u/", 2) == wanted
    atomic.delete_blobs("t/u/a/s/a", names)
    assert atomic.list_blobs("t/u/a/s/a", None, 10).names == ()
    atomic.close()
