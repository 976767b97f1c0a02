"""Sessions: clearing, direct writes, the three policies, and saves of unknown outcome."""

from __future__ import annotations

import pytest
from faulty_state import FaultyState
from speaking import said, say, slot

from statebook import AgentStateStore, OutcomeUnknown, Patience, VersionConflict
from statebook.agents import (
    AgentState,
    BlockingAgentSessions,
    ConflictPolicy,
    PermissionContext,
    SessionOptions,
    TasksContext,
)

AT_ONCE = SessionOptions(patience=Patience(resends_max=2, pause_s=0))

# -------------------------------------------------------------------------------------------- clearing, admin, policies


def test_clearing_persists_at_once_and_keeps_the_rest(store: AgentStateStore) -> None:
    full = AgentState(
        session_id="s",
        context=said("a"),
        summary="b",
        permissions=PermissionContext(granted=("read",)),
        tasks=TasksContext(tasks=({"id": 1},)),
    )
    for policy in ConflictPolicy:
        with BlockingAgentSessions(store, SessionOptions(policy=policy)) as sessions:
            sessions.write(full, version=sessions.read("s").version)
            with sessions.call("s"):
                pass  # now it is cached
            newer = full.model_copy(update={"permissions": PermissionContext(granted=("read", "write"))})
            store.save(slot("s"), newer.to_json())
            cleared = sessions.clear_context("s")
        stored = store.load(slot("s"))
        assert stored is not None
        assert AgentState.from_json(stored.value) == cleared.state == newer.cleared()


def test_admin_writes_are_conditional_whatever_the_policy(store: AgentStateStore) -> None:
    with BlockingAgentSessions(store, SessionOptions(policy=ConflictPolicy.OVERWRITE)) as sessions:
        first = sessions.write(AgentState(session_id="s", summary="1"), version=None)
        second = sessions.write(AgentState(session_id="s", summary="2"), version=first.version)
        for version in (None, first.version):
            with pytest.raises(VersionConflict):
                sessions.write(AgentState(session_id="s", summary="3"), version=version)
        assert sessions.read("s") == second
        with sessions.call("s") as call:
            assert call.state.summary == "2"


def test_the_three_policies(real_store: AgentStateStore) -> None:
    def turn(policy: ConflictPolicy, session_id: str) -> AgentState:
        sessions = BlockingAgentSessions(real_store, SessionOptions(policy=policy))
        with sessions.call(session_id) as call:
            say(call, "mine")
            newer = AgentState(session_id=session_id, context=said("theirs"), summary="theirs")
            real_store.save(slot(session_id), newer.to_json())
        return sessions.read(session_id).state

    with pytest.raises(VersionConflict):
        turn(ConflictPolicy.FAIL, "fail")
    assert turn(ConflictPolicy.OVERWRITE, "over").context == said("mine")
    merged = turn(ConflictPolicy.APPEND_MERGE, "merge")
    assert (merged.context, merged.summary) == (said("theirs", "mine"), "theirs")


def test_overwriting_an_equal_state_writes_nothing(store: AgentStateStore) -> None:
    sessions = BlockingAgentSessions(store, SessionOptions(policy=ConflictPolicy.OVERWRITE))
    with sessions.call("s") as call:
        say(call, "a")
        version = store.save(slot("s"), call.state.to_json())  # as a journal's mirror does
    assert sessions.read("s").version == version


def test_a_call_that_changed_earlier_messages_is_not_merged(store: AgentStateStore) -> None:
    store.save(slot("s"), AgentState(session_id="s", context=said("a", "b")).to_json())
    sessions = BlockingAgentSessions(store, SessionOptions(policy=ConflictPolicy.APPEND_MERGE))
    with pytest.raises(VersionConflict), sessions.call("s") as call:  # noqa: PT012
        store.save(slot("s"), AgentState(session_id="s", context=said("a", "b", "c")).to_json())
        call.state = call.state.model_copy(update={"context": said("a")})
    assert sessions.read("s").state.context == said("a", "b", "c")


# --------------------------------------------------------------------------------------------------------------- faults


def test_a_save_whose_reply_was_lost_is_found_done(store: AgentStateStore) -> None:
    faulty = FaultyState(store)
    faulty.faults.extend(("after", "unavailable"))
    sessions = BlockingAgentSessions(faulty, AT_ONCE)  # type: ignore[arg-type]
    with sessions.call("s") as call:
        say(call, "a")
    assert sessions.read("s").state.context == said("a")
    with sessions.call("s") as call:
        say(call, "b")
    assert sessions.read("s").state.context == said("a", "b")


def test_a_save_that_may_have_landed_below_another_one_is_unknown_and_never_made_twice(store: AgentStateStore) -> None:
    faulty = FaultyState(store)
    faulty.faults.append("after")

    def another() -> None:
        stored = store.load(slot("s"))
        assert stored is not None
        state = AgentState.from_json(stored.value)
        store.save(slot("s"), state.model_copy(update={"context": (*state.context, *said("theirs"))}).to_json())

    faulty.after_unknown = another
    options = SessionOptions(policy=ConflictPolicy.APPEND_MERGE, patience=Patience(resends_max=2, pause_s=0))
    sessions = BlockingAgentSessions(faulty, options)  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown), sessions.call("s") as call:
        say(call, "mine")
    assert sessions.read("s").state.context == said("mine", "theirs")


def test_requests_that_are_lost_before_they_arrive_are_sent_again_a_bounded_number_of_times(
    store: AgentStateStore,
) -> None:
    faulty = FaultyState(store)
    pauses: list[float] = []
    options = SessionOptions(patience=Patience(resends_max=3, pause_s=0.5, pause_max_s=1.0))
    sessions = BlockingAgentSessions(faulty, options, sleep=pauses.append)  # type: ignore[arg-type]
    faulty.faults.extend(["before"] * 3)
    with sessions.call("s") as call:
        say(call, "a")
    assert pauses == [0.5, 1.0, 1.0]
    faulty.faults.extend(["before"] * 4)
    with pytest.raises(OutcomeUnknown), sessions.call("s") as call:
        say(call, "b")
    with sessions.call("s") as call:
        assert call.state.context == said("a")
