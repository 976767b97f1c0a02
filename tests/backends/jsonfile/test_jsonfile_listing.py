"""Listings, ids, namespaces, and removing one of them."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import statebook
from statebook.errors import BackendUnavailable
from statebook.keys import StateKey, ThreadKey, ThreadScope
from statebook_backends.jsonfile.options import JsonFileOptions
from statebook_backends.jsonfile.store import JsonFileAtomicJournalStorage

_part = st.text("ab-_0", min_size=1, max_size=3)
_scopes = st.sets(st.lists(_part, min_size=1, max_size=4).map("/".join), max_size=12)


@given(scopes=_scopes, after=st.none() | st.text("ab-_0/", max_size=6), limit=st.integers(1, 14))
def test_scopes_are_listed_in_the_order_of_their_whole_names(
    tmp_path_factory: pytest.TempPathFactory, scopes: set[str], after: str | None, limit: int
) -> None:
    path = tmp_path_factory.mktemp("listing") / "root"
    store = JsonFileAtomicJournalStorage(JsonFileOptions(path=str(path), durability="process"))
    for scope in scopes:
        store.commit(scope, None, b"")
    prefixes = {"", *(scope.rpartition("/")[0] + "/" for scope in scopes if "/" in scope)}
    for prefix in prefixes:
        expected = sorted(name for name in scopes if name.startswith(prefix) and (after is None or name > after))
        page = store.list_scopes(prefix, after, limit)
        assert list(page.names) == expected[:limit]
        assert page.has_more == (len(expected) > limit)
    store.close()


def test_files_that_are_not_ours_are_no_scopes(store: JsonFileAtomicJournalStorage, root: Path) -> None:
    store.commit("t/a", None, b"")
    for name in ("k-x.bak", "notes", "k-"):
        (root / "ns.default" / "k-t" / name).write_bytes(b"")
    os.mkdir(os.fsencode(root / "ns.default" / "k-t") + b"/k-\xff")
    assert store.list_scopes("", None, 10).names == ("t/a",)
    with pytest.raises(ValueError, match="prefix"):
        store.list_scopes("t", None, 10)
    with pytest.raises(ValueError, match="limit"):
        store.list_scopes("t/", None, 0)


def test_every_id_is_a_key_of_its_own_as_agent_namespace_slot_and_thread(root: Path, ids: tuple[str, ...]) -> None:
    state = statebook.open_state(f"file://{root}?durability=process")
    for number, one in enumerate(ids):
        state.save(StateKey(one, "s", "k"), str(number).encode(), expected=statebook.ABSENT)
        state.save(StateKey("u", one, "k"), str(number).encode())
        state.save(StateKey(None, "s", one), str(number).encode(), expected=statebook.ABSENT)
    for number, one in enumerate(ids):
        found = state.load(StateKey(one, "s", "k"))
        assert found is not None
        assert found.value == str(number).encode()
    assert sorted(slot.key for slot in state.list_keys(statebook.SessionKey(None, "s")).keys) == sorted(ids)
    assert {key.session_id for key in state.list_sessions("u").sessions} >= set(ids)
    state.close()
    journal = statebook.open_journal(f"file://{root}?durability=process")
    for one in ids:
        journal.claim(ThreadKey("u", "a", "s", one), one)
    assert sorted(key.thread_id for key in journal.list_threads(ThreadScope("u", "a", "s")).threads) == sorted(ids)
    journal.close()
    real = os.path.realpath(root) + os.sep
    names: set[str] = set()
    for directory, directories, files in os.walk(root):
        assert os.path.realpath(directory).startswith(real[:-1])
        here = [*directories, *files]
        assert len({name.casefold() for name in here}) == len(here)
        names.update(here)
    assert all(name == name.lower() and name.isascii() and len(name) <= 140 for name in names)
    assert not {name.partition(".")[0] for name in names} & {"con", "prn", "aux", "nul", "com1", "lpt1"}


def test_namespaces_and_agents_of_one_root_never_meet(root: Path, ids: tuple[str, ...]) -> None:
    chosen = [one for one in ids if len(one) <= 128]
    queries: list[dict[str, str]] = [{"namespace": one} for one in chosen[:40]]
    queries += [{"agent_id": one} for one in chosen[:40]]
    for number, query in enumerate(queries):
        options = JsonFileOptions.checked({"path": str(root), "durability": "process", **query})
        store = JsonFileAtomicJournalStorage(options)
        assert store.list_scopes("", None, 10).names == ()
        store.commit(f"t/only-{number}", None, b"")
        store.close()
    for number, query in enumerate(queries):
        store = JsonFileAtomicJournalStorage(JsonFileOptions.checked({"path": str(root), **query}))
        assert store.list_scopes("", None, 10).names == (f"t/only-{number}",)
        store.close()


def test_destroying_a_namespace_removes_all_of_it_and_nothing_else(root: Path, open_store: Any, scope: str) -> None:
    mine, other = open_store("mine"), open_store("other")
    for store in (mine, other):
        store.commit(scope, None, b"h", {"a": b"1"})
    backend = statebook.load_backend(f"file://{root}?namespace=mine")
    assert backend.destroy_namespace()
    assert backend.destroy_namespace()
    assert sorted(os.listdir(root)) == ["ns.other", "statebook.json", "statebook.locks"]
    assert mine.read_head(scope) is None
    assert mine.read_blob(scope, "a") is None
    assert isinstance(mine.commit(scope, None, b"h", {"a": b"2"}), str)
    assert mine.read_blob(scope, "a") == b"2"
    head = other.read_head(scope)
    assert head is not None
    assert head.data == b"h"


def test_destroying_makes_no_root_and_spares_what_is_not_ours(
    root: Path, tmp_path: Path, store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path
) -> None:
    absent = tmp_path / "absent"
    assert statebook.load_backend(f"file://{absent}").destroy_namespace()
    assert not absent.exists()
    store.commit(scope, None, b"h", {"a": b"1"})
    (scope_path / "notes.txt").write_bytes(b"mine")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "head.json").write_bytes(b"mine")
    (scope_path / "k-link").symlink_to(outside)
    backend = statebook.load_backend(f"file://{root}")
    with pytest.raises(BackendUnavailable, match="not statebook's"):
        backend.destroy_namespace()
    assert (scope_path / "notes.txt").read_bytes() == b"mine"
    assert (outside / "head.json").read_bytes() == b"mine"
    assert store.read_head(scope) is None
    (scope_path / "notes.txt").unlink()
    assert backend.destroy_namespace()
    assert not (root / "ns.default").exists()
