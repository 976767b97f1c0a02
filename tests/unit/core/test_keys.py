"""Ids: any string of 1 to 512 bytes is a key of its own (ID-1 to ID-5)."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, strategies as st

from statebook import InvalidKey, SessionKey, StateKey, ThreadKey, ThreadScope
from statebook.keys import ID_BYTES_MAX, NAME_CHARS_MAX, check_id, decode_name, encode_id, is_digest_name

text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=200)
ids = text.filter(lambda value: len(value.encode()) <= ID_BYTES_MAX)
confusable = st.text(st.sampled_from("_nh0f2a-AÀ/.:%"), min_size=1, max_size=6)


@given(st.one_of(ids, confusable))
@example("_n")
@example("_h" + "0" * 64)
def test_a_name_is_short_plain_and_reads_back(value: str) -> None:
    name = encode_id(value)
    assert re.fullmatch(r"[a-z0-9_-]+", name)
    assert len(name) <= NAME_CHARS_MAX
    if not is_digest_name(name):
        assert decode_name(name) == value


@given(st.one_of(ids, confusable, st.none()), st.one_of(ids, confusable, st.none()))
def test_distinct_ids_have_distinct_names_without_case_too(one: str | None, other: str | None) -> None:
    assert (encode_id(one).casefold() == encode_id(other).casefold()) == (one == other)


@given(st.tuples(ids, ids, ids), st.tuples(ids, ids, ids))
def test_distinct_keys_have_distinct_names_though_ids_are_joined(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (StateKey(*one).name == StateKey(*other).name) == (one == other)
    assert (ThreadKey(None, *one).name == ThreadKey(None, *other).name) == (one == other)


@given(st.lists(st.tuples(confusable, confusable), min_size=2, max_size=8, unique=True))
def test_a_scope_covers_exactly_the_names_with_its_prefix(pairs: list[tuple[str, str]]) -> None:
    keys = [ThreadKey(user, agent, "s", "t") for user, agent in pairs] + [ThreadKey(None, "a", "s", "t")]
    for user, agent in pairs:
        for scope in (ThreadScope(user), ThreadScope(user, agent), ThreadScope(user, agent, "s"), ThreadScope(None)):
            assert scope.prefix.endswith("/")
            for key in keys:
                assert scope.covers(key) == key.name.startswith(scope.prefix)


def test_names_sort_the_same_as_bytes_and_as_text() -> None:
    names = [encode_id(value) for value in ("b", "A", "a", "ä", "0", "-", "_", "z", "aa", "a-", "a_")]
    assert sorted(names) == sorted(names, key=str.encode)


def test_the_absent_user_is_no_string() -> None:
    for value in ("_n", "None", "null", "__anon__", "n"):
        assert SessionKey(None, "s").name != SessionKey(value, "s").name
    assert decode_name("_n") is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "1 to 512"),
        ("x" * 513, "not 513"),
        ("é" * 257, "not 514"),
        ("a\0b", "U+0000"),
        ("\ud800", "surrogate"),
        (b"x", "bytes"),
        (1, "int"),
        (True, "bool"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_id_is_refused_with_its_reason(value: object, reason: str) -> None:
    with pytest.raises(InvalidKey, match=re.escape(reason)) as caught:
        check_id(value, "thread_id")
    assert "thread_id" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", ["x", "x" * 512, "é" * 256, "\U0010ffff" * 128, "\x01", "\ufffe"])
def test_ids_at_the_edge_are_legal(value: str) -> None:
    check_id(value, "thread_id")
    assert ThreadKey(value, value, value, value).thread_id == value


@pytest.mark.parametrize("name", ["", "A", "a/b", "_", "_g0", "_4", "_hff", "_61", "_ff", "_C3", "é", "a\n", "_n_n"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidKey):
        decode_name(name)


def test_a_session_scope_needs_its_agent() -> None:
    with pytest.raises(InvalidKey, match="agent_id"):
        ThreadScope("u", None, "s")


def test_keys_are_frozen_values() -> None:
    assert ThreadKey("u", "a", "s", "t") == ThreadKey("u", "a", "s", "t")
    assert len({StateKey("u", "s", "k"), StateKey("u", "s", "k")}) == 1
    assert StateKey("u", "s", "k").session == SessionKey("u", "s")
    with pytest.raises(AttributeError):
        StateKey("u", "s", "k").key = "other"  # type: ignore[misc]
