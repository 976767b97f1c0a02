"""Agent state over the atomic primitive: documents, lists, sessions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from honest_storage import HonestStorage
from hypothesis import given, settings, strategies as st

from statebook.atomic_state import AtomicAgentStateStore
from statebook.capabilities import Limits
from statebook.errors import (
    BackendUnavailable,
    InvalidKey,
    InvalidValue,
    LimitExceeded,
    StateCorrupt,
    StoreClosed,
    VersionConflict,
)
from statebook.index_tree import SHAPE, Shape
from statebook.keys import SessionKey, StateKey
from statebook.model import ABSENT, ANY, ListValue, SlotKind, StateValue

SLOT = StateKey("user", "session", "key")
SMALL = Shape(tail_bytes_max=200, references_max=3)


@pytest.fixture
def storage() -> HonestStorage:
    return HonestStorage()


@pytest.fixture(params=[SHAPE, SMALL], ids=["tail", "tree"])
def store(request: pytest.FixtureRequest, storage: HonestStorage) -> AtomicAgentStateStore:
    return states(storage, request.param)


def states(storage: HonestStorage, shape: Shape = SMALL) -> AtomicAgentStateStore:
    return AtomicAgentStateStore(storage, shape=shape, pause=lambda attempt: None)


def conflict(call: Callable[[], object]) -> tuple[int | None, int | None]:
    with pytest.raises(VersionConflict) as caught:
        call()
    return caught.value.current_version, caught.value.current_length


# -------------------------------------------------------------------------------------------------------- documents


def test_a_document_comes_back_as_it_was_saved(store: AtomicAgentStateStore) -> None:
    assert store.load(SLOT) is None
    for version, value in enumerate([b"{}", b'{"a": 1,\n "b":"\xc3\xa9"}', b"1.50", b"x\n\ny\n", b""], 1):
        assert store.save(SLOT, value) == version
        assert store.load(SLOT) == StateValue(value, version)


def test_saves_are_conditional_and_versions_grow_over_deletes(store: AtomicAgentStateStore) -> None:
    assert conflict(lambda: store.save(SLOT, b"1", expected=1)) == (None, None)
    assert not store.exists(SLOT.session)
    assert store.save(SLOT, b"1", expected=ABSENT) == 1
    assert conflict(lambda: store.save(SLOT, b"2", expected=ABSENT)) == (1, None)
    assert conflict(lambda: store.save(SLOT, b"2", expected=2)) == (1, None)
    assert conflict(lambda: store.delete(SLOT, expected=2)) == (1, None)
    assert store.delete(SLOT, expected=1) is True
    assert store.delete(SLOT) is False
    assert store.load(SLOT) is None
    assert conflict(lambda: store.save(SLOT, b"2", expected=1)) == (None, None)
    assert conflict(lambda: store.delete(SLOT, expected=1)) == (None, None)
    again = store.save(SLOT, b"3", expected=ABSENT)
    assert again > 1
    assert store.load(SLOT) == StateValue(b"3", again)


def test_deleting_what_was_never_there_leaves_no_trace(storage: HonestStorage, store: AtomicAgentStateStore) -> None:
    for kind in SlotKind:
        assert store.delete(SLOT, kind=kind) is False
        assert conflict(lambda: store.delete(SLOT, kind=kind, expected=1))[0] is None  # noqa: B023
    assert storage.heads == {}


def test_wrong_arguments_are_refused_before_any_call(storage: HonestStorage, store: AtomicAgentStateStore) -> None:
    for expected in (0, -1, True, "1", None, 1.0):
        with pytest.raises(ValueError, match="expected"):
            store.save(SLOT, b"1", expected=expected)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected"):
            store.replace_list(SLOT, [], expected=expected)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected"):
            store.delete(SLOT, expected=expected)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected"):
        store.delete(SLOT, expected=ABSENT)
    for length in (-1, True, "0", None):
        with pytest.raises(ValueError, match="expected_length"):
            store.append_list(SLOT, [], expected_length=length)  # type: ignore[arg-type]
    for value in ("1", bytearray(b"1"), None):
        with pytest.raises(InvalidValue):
            store.save(SLOT, value)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            store.append_list(SLOT, [value], expected_length=0)  # type: ignore[list-item]
    with pytest.raises(InvalidKey):
        store.list_sessions("")
    with pytest.raises(ValueError, match="after"):
        store.list_sessions("user", after=SessionKey("other", "s"))
    with pytest.raises(ValueError, match="after"):
        store.list_keys(SLOT.session, after=StateKey("user", "other", "key"))
    assert not storage.calls


def test_limits_are_kept_before_any_effect() -> None:
    storage = HonestStorage(limits=Limits(value_bytes_max=10, list_bytes_max=25))
    store = states(storage)
    for call in (
        lambda: store.save(SLOT, b"x" * 11),
        lambda: store.append_list(SLOT, [b"x" * 11], expected_length=0),
        lambda: store.replace_list(SLOT, [b"x" * 9] * 3),
        lambda: store.append_list(SLOT, [b"x" * 9] * 3, expected_length=0),
    ):
        with pytest.raises(LimitExceeded):
            call()
    assert (storage.heads, storage.blobs) == ({}, {})
    store.append_list(SLOT, [b"x" * 10] * 2, expected_length=0)
    with pytest.raises(LimitExceeded):
        store.append_list(SLOT, [b"x" * 6], expected_length=2)
    assert store.append_list(SLOT, [b"x" * 5], expected_length=2) == 2


def test_of_racing_saves_exactly_one_wins(storage: HonestStorage) -> None:
    stores = [states(storage) for _ in range(4)]
    for _ in range(50):
        base = stores[0].save(SLOT, b"0")

        def save(store: AtomicAgentStateStore, base: int = base) -> int | None:
            with suppress(VersionConflict):
                return store.save(SLOT, b"1", expected=base)
            return None

        with ThreadPoolExecutor(len(stores)) as pool:
            versions = list(pool.map(save, stores))
        assert [version for version in versions if version is not None] == [base + 1]


def test_an_unconditional_save_gives_up_after_a_bounded_time_of_races(storage: HonestStorage) -> None:
    store = AtomicAgentStateStore(storage, shape=SHAPE, pause=lambda attempt: None, patience_s=0.05)
    other = states(storage)

    def hammer(call: str) -> None:
        if call == "commit":
            storage.before_call = lambda call: None
            other.save(SLOT, b"2")
            storage.before_call = hammer

    storage.before_call = hammer
    with pytest.raises(BackendUnavailable, match="contention"):
        store.save(SLOT, b"1", expected=ANY)


# ------------------------------------------------------------------------------------------------------------ lists


class OneList:
    """What a list should be."""

    def __init__(self) -> None:
        self.items: list[bytes] | None = None
        self.version = 0


ITEMS = st.lists(st.one_of(st.binary(max_size=60), st.just(b"3:abc\n"), st.just(b"\n")), max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from(["append", "append", "append", "replace", "delete"]), ITEMS), max_size=25)


@settings(max_examples=60)
@given(STEPS)
def test_a_list_is_what_was_appended_and_replaced(steps: list[tuple[str, list[bytes]]]) -> None:
    storage = HonestStorage()
    store = states(storage)
    model = OneList()
    for step, items in steps:
        length = len(model.items or [])
        if step == "append":
            assert conflict(lambda: store.append_list(SLOT, items, expected_length=length + 1)) == (  # noqa: B023
                None if model.items is None else model.version,
                length,
            )
            version = store.append_list(SLOT, items, expected_length=length)
            model.items = [*(model.items or []), *items]
        elif step == "replace":
            version = store.replace_list(SLOT, items)
            model.items = list(items)
        else:
            assert store.delete(SLOT, kind=SlotKind.LIST) is (model.items is not None)
            model.items = None
            assert store.load_list(SLOT) is None
            continue
        assert version > model.version
        model.version = version
        assert states(storage).load_list(SLOT) == ListValue(tuple(model.items), version)
    if model.items is None:
        assert storage.blobs == {}


def test_lists_larger_than_a_segment_come_back(storage: HonestStorage) -> None:
    store = states(storage, SHAPE)
    items = [bytes([number % 256]) * 100_000 for number in range(40)]
    store.replace_list(SLOT, items)
    assert 3 < len(storage.blobs) < 8
    store.append_list(SLOT, items, expected_length=40)
    store.append_list(SLOT, [b"last"], expected_length=80)
    assert store.load_list(SLOT) == ListValue((*items, *items, b"last"), 3)
    store.replace_list(SLOT, [])
    assert store.load_list(SLOT) == ListValue((), 4)
    assert storage.blobs == {}


def test_documents_and_lists_of_one_key_are_apart(store: AtomicAgentStateStore) -> None:
    store.save(SLOT, b"1")
    store.append_list(SLOT, [b"2"], expected_length=0)
    assert store.delete(SLOT)
    assert store.load_list(SLOT) == ListValue((b"2",), 1)
    assert store.exists(SLOT.session)
    assert store.list_keys(SLOT.session).keys == ()
    assert store.list_keys(SLOT.session, kind=SlotKind.LIST).keys == (SLOT,)


def test_a_reader_beside_a_replacement_gets_the_one_or_the_other(storage: HonestStorage) -> None:
    store, other = states(storage), states(storage)
    store.replace_list(SLOT, [b"old"] * 100)

    def replace(call: str) -> None:
        if call == "read_blob":
            storage.before_call = lambda call: None
            other.replace_list(SLOT, [b"new"] * 120)

    storage.before_call = replace
    assert store.load_list(SLOT) == ListValue((b"new",) * 120, 2)

    def always(call: str) -> None:
        if call == "read_blob":
            storage.before_call = lambda call: None
            other.replace_list(SLOT, [b"new"] * 120)
            storage.before_call = always

    storage.before_call = always
    with pytest.raises(BackendUnavailable):
        store.load_list(SLOT)


def test_a_replacement_of_unknown_outcome_deletes_nothing_and_the_next_one_cleans_up(storage: HonestStorage) -> None:
    store = states(storage)
    store.replace_list(SLOT, [b"old"] * 100)
    before = set(storage.blobs)
    storage.faults.append("delayed")
    with pytest.raises(Exception, match="lost"):
        store.replace_list(SLOT, [b"unknown"] * 100)
    assert before < set(storage.blobs)
    assert store.load_list(SLOT) == ListValue((b"old",) * 100, 1)
    store.append_list(SLOT, [b"more"], expected_length=100)
    storage.land()
    assert store.load_list(SLOT) == ListValue((*(b"old",) * 100, b"more"), 2)
    store.replace_list(SLOT, [b"new"])
    assert storage.blobs == {}


def test_a_wrong_count_of_items_is_damage(storage: HonestStorage) -> None:
    store = states(storage)
    store.append_list(SLOT, [b"1", b"2"], expected_length=0)
    from statebook.codec import seal

    scope = f"l/{SLOT.name}"
    record = storage.heads[scope][0].partition(b"\n")[2].replace(b'"length":2', b'"length":3')
    storage.heads[scope] = (seal("state-list", record), "forged")
    with pytest.raises(StateCorrupt):
        store.load_list(SLOT)


# --------------------------------------------------------------------------------------------------------- listings

NAMES = st.text(alphabet="ab-_é", min_size=1, max_size=4)


@settings(max_examples=40)
@given(
    st.dictionaries(NAMES, st.sampled_from(["document", "list", "both", "dead", "half"]), max_size=25),
    st.integers(1, 4),
    st.integers(1, 6),
    st.one_of(st.none(), NAMES),
)
def test_sessions_are_listed_by_name_complete_and_live_over_any_page(
    made: dict[str, str], limit: int, page_max: int, after: str | None
) -> None:
    store = states(HonestStorage(page_max=page_max))
    for name, kind in made.items():
        slot = StateKey("user", name, "key")
        if kind != "list":
            store.save(slot, b"1")
        if kind in ("list", "both", "half"):
            store.append_list(slot, [b"1"], expected_length=0)
        if kind in ("dead", "half"):
            store.delete(slot)
    store.save(StateKey(None, "anonymous", "key"), b"1")
    start = None if after is None else SessionKey("user", after)
    live = [SessionKey("user", name) for name, kind in made.items() if kind != "dead"]
    live = [session for session in live if start is None or session.name > start.name]
    got: list[SessionKey] = []
    more = True
    while more:
        page = store.list_sessions("user", after=got[-1] if got else start, limit=limit)
        got += page.sessions
        more = page.has_more
        assert len(page.sessions) == limit or not more
    assert got == sorted(live, key=lambda session: session.name)
    assert [session.session_id for session in store.list_sessions(None).sessions] == ["anonymous"]


def test_keys_are_listed_by_name_complete_and_live_over_any_page(storage: HonestStorage) -> None:
    storage = HonestStorage(page_max=5)
    store = states(storage)
    live = []
    for number in range(60):
        slot = StateKey("user", "session", f"k{number}" if number % 2 else "K" * (number + 200))
        store.save(slot, b"1")
        if number % 3:
            store.delete(slot)
        else:
            live.append(slot)
    store.save(StateKey("user", "session-2", "k"), b"1")
    live.sort(key=lambda slot: slot.name)
    got: list[StateKey] = []
    more = True
    while more:
        page = store.list_keys(SLOT.session, after=got[-1] if got else None, limit=3)
        got += page.keys
        more = page.has_more
    assert got == live


def test_a_session_is_deleted_whole_and_alone(storage: HonestStorage) -> None:
    store = states(HonestStorage(page_max=3))
    for session in ("s", "s-2", "s2", "S"):
        for number in range(10):
            store.save(StateKey("user", session, f"k{number}"), b"1")
            store.replace_list(StateKey("user", session, f"l{number}"), [b"1"] * 100)
    store.delete(StateKey("user", "s", "k0"))
    assert store.delete_session(SessionKey("user", "s")) == 19
    assert store.delete_session(SessionKey("user", "s")) == 0
    assert not store.exists(SessionKey("user", "s"))
    assert [session.session_id for session in store.list_sessions("user").sessions] == ["S", "s-2", "s2"]
    loaded = store.load_list(StateKey("user", "s-2", "l3"))
    assert loaded is not None
    assert len(loaded.items) == 100


def test_after_close_every_call_says_so(storage: HonestStorage) -> None:
    store = states(storage)
    store.close()
    store.close()
    for call in (
        lambda: store.load(SLOT),
        lambda: store.save(SLOT, b"1"),
        lambda: store.load_list(SLOT),
        lambda: store.append_list(SLOT, [], expected_length=0),
        lambda: store.replace_list(SLOT, []),
        lambda: store.delete(SLOT),
        lambda: store.delete_session(SLOT.session),
        lambda: store.exists(SLOT.session),
        lambda: store.list_keys(SLOT.session),
        lambda: store.list_sessions("user"),
    ):
        with pytest.raises(StoreClosed):
            call()
