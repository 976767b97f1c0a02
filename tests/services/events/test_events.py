"""Event payloads and their registry: J2, J3, J18."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from statebook import (
    InvalidConfiguration,
    InvalidKey,
    InvalidValue,
    JournalCorrupt,
    RecordedEvent,
    UnsupportedFormat,
    decode_value,
    encode_value,
)
from statebook.threads import events as models
from statebook.threads.checkpoint_payload import Checkpoint, Initialization
from statebook.threads.codecs import STANDARD_PAYLOADS, JournalEventCodecRegistry
from statebook.threads.events import TokenUsage, message_of
from statebook.threads.payload import EventPayload, build_event
from statebook.threads.position import AgentExecutionPosition, Phase

FAMILIES = (
    "run/start run/end run/output step/start step/phase step/end input/received input/applied model/dispatch "
    "model/chunk model/end model/request_started model/request_usage model/request_ended tool/requested tool/dispatch "
    "action/end tool/result interaction/requested interaction/resolved state/initialized state/checkpoint "
    "state/restored recovery/applied"
)

SAMPLES: tuple[EventPayload, ...] = (
    models.RunStart(input={"text": "hi"}, continues="run-0"),
    models.RunEnd(outcome="paused", error="x"),
    models.RunOutput(output=[1, None], final=False),
    models.StepStart(step=3),
    models.StepPhase(step=3, phase=Phase.ACTING),
    models.StepEnd(step=3, outcome="failed"),
    models.InputReceived(input_id="i", message={"role": "user", "content": None}),
    models.InputApplied(input_id="i", message={"role": "user"}),
    models.ModelDispatch(call_id="m", model="x"),
    models.ModelChunk(call_id="m", index=0, delta="a"),
    models.ModelEnd(call_id="m", message={"role": "assistant"}, usage=TokenUsage(input_tokens=0)),
    models.ModelRequestStarted(request_id="r", call_id="m", attempt=1, provenance={"a": 1}),
    models.ModelRequestUsage(request_id="r", usage=TokenUsage(output_tokens=7)),
    models.ModelRequestEnded(request_id="r", outcome="unknown", status=503),
    models.ToolRequested(call_id="t", name="send", arguments={"to": []}),
    models.ToolDispatch(call_id="t", idempotency_key="k"),
    models.ActionEnd(call_id="t", result=10**30),
    models.ToolResult(call_id="t", content="done", source="reconciled", step=2, provenance={"run_id": None}),
    models.InteractionRequested(interaction_id="q", kind="approval", call_id="t", step=1),
    models.InteractionResolved(interaction_id="q", answer=False),
    models.StateRestored(checkpoint_seq=4, as_of_seq=9, phase=Phase.MODEL),
    models.RecoveryApplied(reason="asked the bank", call_ids=("t", "u"), as_of_seq=9),
    Checkpoint(state={"context": [None]}, position=AgentExecutionPosition(step=2)),
    Initialization(state={"context": []}, provenance={"kind": "import"}),
)


def recorded(type_: str, payload: Any, *, seq: int = 7, required: bool = False) -> RecordedEvent:
    return RecordedEvent(seq, f"e{seq}", type_, 5, encode_value(payload), "run", None, required, 2)


def stored(payload: EventPayload, seq: int = 7) -> RecordedEvent:
    event = build_event(payload, event_id="e", occurred_at=5, run_id="run", turn_id="turn")
    return RecordedEvent(
        seq, event.event_id, event.type, 5, event.payload, event.run_id, event.turn_id, event.required, 2
    )


def test_each_event_type_of_the_families_has_one_payload_model() -> None:
    assert sorted(model.event_type for model in STANDARD_PAYLOADS) == sorted(FAMILIES.split())
    assert {type(sample) for sample in SAMPLES} == set(STANDARD_PAYLOADS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.event_type)
def test_a_payload_comes_back_equal_and_frozen(sample: EventPayload) -> None:
    event = stored(sample)
    assert (event.type, event.required, event.run_id) == (sample.event_type, sample.event_required, "run")
    assert JournalEventCodecRegistry().require(event) == sample
    field = next(iter(type(sample).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(sample, field, None)


@pytest.mark.parametrize("sample", SAMPLES[:-2], ids=lambda sample: sample.event_type)
def test_an_unknown_member_is_damage_and_not_dropped(sample: EventPayload) -> None:
    event = recorded(sample.event_type, {**sample.to_json(), "surprise": "secret-value"})
    with pytest.raises(JournalCorrupt, match="surprise") as caught:
        JournalEventCodecRegistry().decode(event)
    assert "seq 7" in caught.value.message
    assert "secret-value" not in str(caught.value)
    assert caught.value.__cause__ is None  # pydantic's own error holds the payload
    assert caught.value.what == "event"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "é"]), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_any_json_in_a_payload_comes_back_equal(value: Any) -> None:
    registry = JournalEventCodecRegistry()
    for payload in (models.RunOutput(output=value), Checkpoint(state={"x": value})):
        again = registry.decode(stored(payload))
        assert again == payload
        assert repr(again) == repr(payload)  # 1 is not True, and 1.0 is not 1


@pytest.mark.parametrize("value", [float("nan"), "\ud800"])
def test_what_json_cannot_hold_is_refused_before_any_io(value: Any) -> None:
    with pytest.raises(InvalidValue):
        build_event(models.RunOutput(output=value), event_id="e", occurred_at=1)


def test_what_can_be_written_can_be_read_however_deep() -> None:
    deep: Any = 1
    for _ in range(600):
        deep = [deep]
        try:
            payload = models.RunOutput(output=deep)
        except ValidationError:
            break
        assert JournalEventCodecRegistry().decode(stored(payload)) == payload
    else:
        pytest.fail("nesting has no bound")


def test_absent_usage_stays_absent_and_zero_stays_zero() -> None:
    assert models.ModelEnd(call_id="m").to_json() == {"call_id": "m", "outcome": "completed"}
    assert models.ModelEnd(call_id="m", usage=TokenUsage(input_tokens=0)).to_json()["usage"] == {"input_tokens": 0}


def test_only_complete_messages_are_messages() -> None:
    message: Any = {"role": "assistant", "content": "x"}
    assert message_of(models.ModelEnd(call_id="m", message=message)) == message
    assert message_of(models.ModelEnd(call_id="m", message=message, outcome="cancelled")) is None
    assert message_of(models.ModelEnd(call_id="m")) is None
    assert message_of(models.ModelChunk(call_id="m", index=0, delta="x")) is None
    assert message_of(models.InputReceived(input_id="i", message=message)) is None
    assert message_of(models.ToolResult(call_id="t", content=[1])) == {
        "role": "tool",
        "tool_call_id": "t",
        "content": [1],
    }


class Note(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    text: str


def with_note(state: Any, payload: Note, event: Any) -> Any:
    return {**state, "notes": [*state.get("notes", []), payload.text]}


def test_an_extension_is_validated_and_applied() -> None:
    registry = JournalEventCodecRegistry()
    registry.register("x/note", Note, apply=with_note, required=True)
    event = registry.event("x/note", {"text": "a"}, event_id="e", occurred_at=1)
    assert event.required
    payload = registry.require(recorded("x/note", {"text": "a"}, required=True))
    before = {"notes": ["b"]}
    assert registry.apply(before, event, payload) == {"notes": ["b", "a"]}
    assert before == {"notes": ["b"]}
    with pytest.raises(InvalidValue, match="text"):
        registry.event("x/note", {"text": 1}, event_id="e", occurred_at=1)
    with pytest.raises(InvalidConfiguration):
        registry.event("x/other", {}, event_id="e", occurred_at=1)
    with pytest.raises(JournalCorrupt):
        registry.decode(recorded("x/note", {"text": 1}))


def test_a_type_is_registered_once_and_before_anything_is_restored() -> None:
    registry = JournalEventCodecRegistry()
    registry.register("x/note", Note)
    for taken in ("x/note", "run/start"):
        with pytest.raises(InvalidConfiguration, match=taken):
            registry.register(taken, Note)
    with pytest.raises(InvalidKey):
        registry.register("", Note)
    registry.seal()
    with pytest.raises(InvalidConfiguration, match="too late"):
        registry.register("x/late", Note)
    assert registry.codec("x/late") is None


def test_an_unknown_type_is_passed_through_unless_it_is_required() -> None:
    registry = JournalEventCodecRegistry()
    assert registry.require(recorded("x/new", {"a": 1})) is None
    assert registry.decode(recorded("x/new", {"a": 1}, required=True)) is None
    with pytest.raises(UnsupportedFormat) as caught:
        registry.require(recorded("x/new", {"a": "secret-value"}, seq=12, required=True))
    assert "'x/new'" in caught.value.message
    assert "seq 12" in caught.value.message
    assert caught.value.found == "x/new"
    assert "secret-value" not in str(caught.value)


def test_a_checkpoint_is_the_state_itself_with_its_position() -> None:
    position = AgentExecutionPosition(run_id="r", iterations=4)
    payload = Checkpoint(state={"context": [], "summary": "s"}, position=position).to_json()
    assert payload["summary"] == "s"
    assert payload["position"]["iterations"] == 4  # type: ignore[index, call-overload]
    for name in ("position", "provenance"):
        with pytest.raises(ValueError, match=name):
            Checkpoint(state={name: 1}).to_json()


@pytest.mark.parametrize(
    "bad", [[], None, "x", {"position": {"step": -1}}, {"position": {"step": True}}, {"provenance": 3}]
)
def test_a_checkpoint_that_does_not_validate_is_damage(bad: Any) -> None:
    with pytest.raises(JournalCorrupt) as caught:
        JournalEventCodecRegistry().decode(recorded("state/checkpoint", bad))
    assert caught.value.what == "checkpoint"


def test_messages_are_not_applied_to_a_state_of_another_form_by_mistake() -> None:
    event = stored(models.InputApplied(input_id="i", message={"role": "user"}))
    payload = JournalEventCodecRegistry().decode(event)
    with pytest.raises(InvalidValue, match="context"):
        JournalEventCodecRegistry().apply({"context": "text"}, event, payload)
    own = JournalEventCodecRegistry(apply_messages=None)
    assert own.apply({"context": "text"}, event, payload) == {"context": "text"}
    assert decode_value(event.payload) == {"input_id": "i", "message": {"role": "user"}}
