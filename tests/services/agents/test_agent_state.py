"""AgentState and RuntimeContext: what is stored, what comes back, what never leaves its process."""

import copy
import json
import pickle

import pytest
from hypothesis import given, strategies as st

from statebook import InvalidKey, InvalidValue, StateCorrupt, UnsupportedFormat
from statebook.agents import (
    AgentState,
    InterruptControl,
    PermissionContext,
    PlanModeContext,
    RuntimeContext,
    TasksContext,
    ToolContext,
    resolve_agent_state,
)

FULL = AgentState(
    session_id="..",
    user_id=None,
    context=({"role": "user", "content": "\0 \U0001f600", "n": 10**40, "z": -0.0}, {}),
    summary="before",
    permissions=PermissionContext(mode="ask", granted=("read *",), denied=("rm",), details={"a": [1, {"b": None}]}),
    plan_mode=PlanModeContext(active=True, plan="1. go", details={"x": "y"}),
    tasks=TasksContext(tasks=({"id": 1}, {"id": 2})),
    tools=ToolContext(activated_groups=("web",), details={"shell": {"cwd": "/"}}),
    reply_id="r",
    iteration=3,
    shutdown_interrupted=True,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_state_comes_back_equal() -> None:
    assert AgentState.from_json(FULL.to_json()) == FULL
    assert AgentState.from_mapping(json.loads(FULL.to_json())) == FULL


@given(messages=st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=4), summary=st.text())
def test_whatever_messages_a_state_takes_come_back_or_are_refused(
    messages: list[dict[str, object]], summary: str
) -> None:
    state = AgentState.model_validate({"session_id": "s", "context": messages, "summary": summary})
    try:
        data = state.to_json()
    except InvalidValue:
        assert any(0xD800 <= ord(c) < 0xE000 for c in json.dumps([messages, summary], ensure_ascii=False))
        return
    assert AgentState.from_json(data) == state


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidValue):
        AgentState(session_id="s", context=({"x": float("nan")},)).to_json()


def test_a_state_of_a_newer_schema_is_refused_by_its_version() -> None:
    newer = {**FULL.to_mapping(), "schema": 2, "telepathy": True}
    with pytest.raises(UnsupportedFormat) as refused:
        AgentState.from_mapping(newer)
    assert (refused.value.expected, refused.value.found) == ("1", "2")


@pytest.mark.parametrize(
    "damage",
    [
        {"schema": None},
        {"schema": True},
        {"schema": 0},
        {"unknown": 1},
        {"iteration": -1},
        {"iteration": "3"},
        {"shutdown_interrupted": 1},
        {"context": {}},
        {"context": ["text"]},
        {"session_id": None},
        {"tools": {"activated_groups": [1]}},
    ],
)
def test_a_damaged_state_is_an_error_and_nothing_is_guessed(damage: dict[str, object]) -> None:
    with pytest.raises(StateCorrupt):
        AgentState.from_mapping({**FULL.to_mapping(), **damage})


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b'{"schema":1}', b'{"session_id":"s"}'])
def test_what_is_no_state_is_an_error(data: bytes) -> None:
    with pytest.raises(StateCorrupt):
        AgentState.from_json(data)


def test_an_error_about_a_damaged_state_shows_no_content() -> None:
    with pytest.raises(StateCorrupt) as refused:
        AgentState.from_mapping({**FULL.to_mapping(), "summary": ["top secret"]})
    assert "secret" not in str(refused.value)


def test_clearing_keeps_permissions_tools_tasks_and_plan_mode() -> None:
    cleared = FULL.cleared()
    assert (cleared.context, cleared.summary) == ((), "")
    assert cleared.model_copy(update={"context": FULL.context, "summary": FULL.summary}) == FULL


def test_states_do_not_share_their_default_parts() -> None:
    one, other = AgentState(session_id="a"), AgentState(session_id="b")
    one.tools.details["x"] = 1
    assert other.tools.details == {}


# ---------------------------------------------------------------------------------------------------- runtime context


def test_a_context_carries_ids_and_attributes_by_name_and_by_type() -> None:
    context = RuntimeContext("s", user_id="u", thread_id="t", attributes={"a": 1}, typed={int: 5})
    assert (context.user_id, context.session_id, context.thread_id) == ("u", "s", "t")
    assert (context.attributes["a"], context.get(int), context.get(str)) == (1, 5, None)
    other = context.with_attribute("b", 2).with_typed("x").with_state(FULL)
    assert dict(other.attributes) == {"a": 1, "b": 2}
    assert (other.get(str), other.get(int), other.state) == ("x", 5, FULL)
    assert (dict(context.attributes), context.get(str), context.state) == ({"a": 1}, None, None)


def test_a_context_cannot_be_changed_in_place() -> None:
    context = RuntimeContext("s", attributes={"a": 1})
    with pytest.raises(AttributeError):
        context.session_id = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        context.attributes["a"] = 2  # type: ignore[index]


def test_a_typed_attribute_must_be_of_its_type() -> None:
    with pytest.raises(TypeError):
        RuntimeContext("s", typed={int: "5"})


@pytest.mark.parametrize("ids", [("", None, None), ("s", "", None), ("s", None, "\0")])
def test_a_context_refuses_what_is_no_id(ids: tuple[str, str | None, str | None]) -> None:
    with pytest.raises(InvalidKey):
        RuntimeContext(ids[0], user_id=ids[1], thread_id=ids[2])


@pytest.mark.parametrize("runtime_only", [RuntimeContext("s", attributes={"token": "secret"}), InterruptControl()])
def test_what_belongs_to_one_process_is_never_serialised(runtime_only: object) -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(runtime_only)
    with pytest.raises(TypeError):
        json.dumps(runtime_only)
    assert "secret" not in repr(runtime_only)


def test_the_state_of_the_context_wins_over_the_fallback() -> None:
    fallback = AgentState(session_id="s")
    assert resolve_agent_state(None, fallback) is fallback
    assert resolve_agent_state(RuntimeContext("s"), fallback) is fallback
    assert resolve_agent_state(RuntimeContext("s", state=FULL), fallback) is FULL
