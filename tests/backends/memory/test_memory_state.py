"""The state store in memory: versions, lists, deletes, listings."""

from itertools import pairwise
from threading import Barrier, Thread

import pytest

from statebook import ABSENT, AgentStateStore, LimitExceeded, SessionKey, SlotKind, StateKey, VersionConflict

SLOT = StateKey("u", "s", "k")


def test_versions_grow_over_deletes_and_a_deleted_version_conflicts(state: AgentStateStore) -> None:
    first = state.save(SLOT, b"1", expected=ABSENT)
    assert state.delete(SLOT, expected=first)
    assert not state.delete(SLOT)
    assert state.load(SLOT) is None
    assert not state.exists(SLOT.session)
    with pytest.raises(VersionConflict) as caught:
        state.save(SLOT, b"2", expected=first)
    assert caught.value.current_version is None
    assert not state.exists(SLOT.session)
    assert state.save(SLOT, b"3", expected=ABSENT) > first


def test_a_conflict_carries_the_current_version_and_changes_nothing(state: AgentStateStore) -> None:
    version = state.save(SLOT, b"1")
    with pytest.raises(VersionConflict) as caught:
        state.save(SLOT, b"2", expected=version + 1)
    assert caught.value.current_version == version
    with pytest.raises(VersionConflict):
        state.save(SLOT, b"2", expected=ABSENT)
    found = state.load(SLOT)
    assert found is not None
    assert (found.value, found.version) == (b"1", version)


@pytest.mark.parametrize("expected", [0, -1, True, "1", 1.0, None])
def test_an_expectation_that_is_no_version_is_refused(state: AgentStateStore, expected: object) -> None:
    with pytest.raises(ValueError, match="expected must be"):
        state.save(SLOT, b"1", expected=expected)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected must be"):
        state.delete(SLOT, expected=expected)  # type: ignore[arg-type]
    assert not state.exists(SLOT.session)


def test_lists_come_back_as_given_also_empty_ones(state: AgentStateStore) -> None:
    given = [b"1", b"2"]
    first = state.append_list(SLOT, given, expected_length=0)
    given.append(b"3")
    found = state.load_list(SLOT)
    assert found is not None
    assert found.items == (b"1", b"2")
    with pytest.raises(VersionConflict) as caught:
        state.append_list(SLOT, [b"x"], expected_length=1)
    assert (caught.value.current_version, caught.value.current_length) == (first, 2)
    assert state.append_list(SLOT, [], expected_length=2) == first + 1
    assert state.replace_list(SLOT, [], expected=first + 1) == first + 2
    empty = state.load_list(SLOT)
    assert empty is not None
    assert (empty.items, empty.version) == ((), first + 2)
    assert state.exists(SLOT.session)
    assert state.load(SLOT) is None


def test_a_list_over_its_limit_is_refused_before_any_effect(state: AgentStateStore) -> None:
    item = b"1" * state.capabilities.limits.value_bytes_max
    version = state.replace_list(SLOT, [item] * 4)
    with pytest.raises(LimitExceeded):
        state.append_list(SLOT, [b"1"], expected_length=4)
    with pytest.raises(LimitExceeded):
        state.append_list(StateKey("u", "s", "other"), [item + b"1"], expected_length=0)
    found = state.load_list(SLOT)
    assert found is not None
    assert (len(found.items), found.version) == (4, version)
    assert state.list_keys(SLOT.session, kind=SlotKind.LIST).keys == (SLOT,)


def test_deleting_a_session_deletes_both_kinds_and_nothing_else(state: AgentStateStore) -> None:
    near = [StateKey("u", "s2", "k"), StateKey(None, "s", "k"), StateKey("u2", "s", "k")]
    for slot in (SLOT, StateKey("u", "s", "k2"), *near):
        state.save(slot, b"1")
    state.replace_list(SLOT, [b"1"])
    assert state.delete_session(SLOT.session) == 3
    assert state.delete_session(SLOT.session) == 0
    assert not state.exists(SLOT.session)
    assert all(state.exists(slot.session) for slot in near)


def test_every_id_is_a_slot_of_its_own_and_is_listed_as_it_was_given(
    state: AgentStateStore, ids: tuple[str, ...]
) -> None:
    slots = [StateKey(one, one, one) for one in ids] + [StateKey("u", "s", one) for one in ids]
    for number, slot in enumerate(slots):
        state.save(slot, str(number).encode(), expected=ABSENT)
    for number, slot in enumerate(slots):
        found = state.load(slot)
        assert found is not None
        assert found.value == str(number).encode()
    assert sorted(slot.key for slot in state.list_keys(SessionKey("u", "s")).keys) == sorted(ids)
    for one in ids:
        assert state.list_sessions(one).sessions == (
            (SessionKey(one, one),) if one != "u" else (SessionKey("u", "s"), SessionKey("u", "u"))
        )
    assert state.list_sessions(None).sessions == ()


def test_pages_are_ascending_complete_and_may_begin_behind_what_is_gone(state: AgentStateStore) -> None:
    session = SessionKey("u", "s")
    for number in range(25):
        state.save(StateKey("u", "s", f"k{number:02}"), b"1")
    seen: list[StateKey] = []
    after = None
    for _ in range(10):
        page = state.list_keys(session, after=after, limit=7)
        seen.extend(page.keys)
        if not page.has_more:
            break
        after = page.keys[-1]
        state.delete(after)
    assert [slot.key for slot in seen] == [f"k{number:02}" for number in range(25)]
    assert all(one.name < two.name for one, two in pairwise(seen))
    with pytest.raises(ValueError, match="after"):
        state.list_keys(session, after=StateKey("u", "other", "k"))
    with pytest.raises(ValueError, match="limit"):
        state.list_keys(session, limit=0)


def test_of_racing_saves_with_one_expected_version_exactly_one_succeeds(state: AgentStateStore) -> None:
    version = state.save(SLOT, b"0")
    for _ in range(50):
        won: list[int] = []
        barrier = Barrier(4)

        def race(barrier: Barrier = barrier, won: list[int] = won, version: int = version) -> None:
            barrier.wait()
            try:
                won.append(state.save(SLOT, b"1", expected=version))
            except VersionConflict:
                return

        threads = [Thread(target=race) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        version = won[0]
