"""StateDocument: plain values with compare-and-set (STATE-1, STATE-4)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from statebook import (
    ABSENT,
    AgentStateStore,
    InvalidValue,
    Json,
    StateDocument,
    StateKey,
    VersionConflict,
    open_state,
)

SLOT = StateKey(None, "s", "k")


@pytest.fixture
def state() -> Iterator[AgentStateStore]:
    store = open_state("memory://")
    yield store
    store.close()


@pytest.fixture
def document(state: AgentStateStore) -> StateDocument:
    return StateDocument(state, SLOT)


def test_a_document_comes_back_with_its_version(document: StateDocument) -> None:
    assert document.load() is None
    version = document.save({"a": [1, None]}, expected=ABSENT)
    loaded = document.load()
    assert loaded is not None
    assert (loaded.value, loaded.version) == ({"a": [1, None]}, version)
    assert document.save(None) > version
    empty = document.load()
    assert empty is not None  # a stored null is no absent slot
    assert empty.value is None


def test_a_save_based_on_an_older_version_conflicts(document: StateDocument) -> None:
    first = document.save(1)
    second = document.save(2, expected=first)
    with pytest.raises(VersionConflict) as caught:
        document.save(3, expected=first)
    assert caught.value.current_version == second
    with pytest.raises(VersionConflict):
        document.save(3, expected=ABSENT)


def test_a_value_is_a_copy_both_ways(document: StateDocument) -> None:
    value: dict[str, Any] = {"list": [1]}
    document.save(value)
    value["list"].append(2)
    loaded = document.load()
    assert loaded is not None
    assert loaded.value == {"list": [1]}
    default: list[Any] = []

    def change(current: Json) -> Json:
        assert isinstance(current, list)
        current.append(1)
        return current

    StateDocument(open_state("memory://"), SLOT).update(change, default=default)
    assert default == []


def test_what_json_would_change_is_refused_before_it_is_saved(document: StateDocument) -> None:
    with pytest.raises(InvalidValue):
        document.save({"a": (1,)})  # type: ignore[dict-item]
    assert document.load() is None


def test_an_update_starts_from_the_default_and_loses_no_other_save(document: StateDocument) -> None:
    saved = document.update(lambda value: [value, 1], default="first")
    assert saved.value == ["first", 1]
    saved = document.update(lambda value: {"was": value})
    loaded = document.load()
    assert loaded == saved


def test_racing_updates_all_count(document: StateDocument) -> None:
    def add(_: int) -> None:
        document.update(lambda value: value + 1 if isinstance(value, int) else 1, tries=1_000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(100)))
    loaded = document.load()
    assert loaded is not None
    assert loaded.value == 100


def test_an_update_gives_up_after_its_tries(document: StateDocument) -> None:
    calls = []

    def change(value: Json) -> Json:
        calls.append(value)
        document.save(len(calls))  # somebody is always faster
        return "mine"

    with pytest.raises(VersionConflict):
        document.update(change, tries=3)
    assert calls == [None, 1, 2]
    with pytest.raises(ValueError, match="tries"):
        document.update(change, tries=0)


def test_a_deleted_document_is_not_brought_back_by_a_stale_save(document: StateDocument) -> None:
    version = document.save(1)
    assert document.delete(expected=version)
    assert not document.delete()
    with pytest.raises(VersionConflict):
        document.save(2, expected=version)
    assert document.load() is None
    assert document.save(3, expected=ABSENT) > version
