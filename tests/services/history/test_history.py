"""Transcripts, projections and interactions: J4, J5, J6, J14."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from statebook import InvalidValue, JournalCorrupt, JournalRegressed, RecordedEvent, ThreadJournal, encode_value
from statebook.threads import events as models
from statebook.threads.checkpoint_payload import Checkpoint
from statebook.threads.codecs import JournalEventCodecRegistry
from statebook.threads.history import ThreadHistory, TranscriptMessages
from statebook.threads.interactions import ThreadInteractions
from statebook.threads.payload import EventPayload, build_event
from statebook.threads.position import AgentExecutionPosition, ExecutionStatus, Phase, ToolState
from statebook.threads.projection import JournalProjection


def writer(store: Any, key: Any) -> ThreadJournal:
    journal = ThreadJournal(store, key)
    journal.claim("w")
    return journal


def write(journal: ThreadJournal, *payloads: EventPayload, run: str | None = "r1") -> None:
    start = journal.last_seq + 1
    journal.append(
        *(
            build_event(payload, event_id=f"e{place}", occurred_at=place, run_id=run, turn_id="t")
            for place, payload in enumerate(payloads, start)
        )
    )


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


TURN: tuple[EventPayload, ...] = (
    models.RunStart(input="hi"),
    models.InputReceived(input_id="i", message={"role": "user", "content": "hi"}),
    models.StepStart(step=0),
    models.InputApplied(input_id="i", message={"role": "user", "content": "hi"}),
    models.ModelDispatch(call_id="m0"),
    models.ModelChunk(call_id="m0", index=0, delta="par"),
    models.ModelEnd(call_id="m0", outcome="failed", message=said("par")),
    models.ModelDispatch(call_id="m1"),
    models.ModelEnd(call_id="m1", message=said("tool, please")),
    models.ToolRequested(call_id="t1", name="send", arguments={"n": 1}),
    models.ToolDispatch(call_id="t1"),
    models.ActionEnd(call_id="t1", result="sent"),
    models.ToolResult(call_id="t1", content="sent"),
    models.StepEnd(step=0),
    models.RunEnd(),
)


def test_a_transcript_has_complete_messages_only_and_the_seq_it_is_true_at(faulty_real: Any, key: Any) -> None:
    journal = writer(faulty_real, key)
    write(journal, *TURN)
    transcript = ThreadHistory().transcript(ThreadJournal(faulty_real, key), page=2)
    assert [(made.seq, made.type) for made in transcript.messages] == [
        (4, "input/applied"),
        (9, "model/end"),
        (13, "tool/result"),
    ]
    assert transcript.messages[1].message == said("tool, please")
    assert (transcript.messages[1].event_id, transcript.messages[1].run_id, transcript.messages[1].turn_id) == (
        "e9",
        "r1",
        "t",
    )
    assert transcript.as_of_seq == 15
    write(journal, models.InputApplied(input_id="j", message={"role": "user", "content": "more"}))
    later = ThreadHistory().transcript(journal, after=15)
    assert [made.seq for made in later.messages] == [16]
    assert later.as_of_seq == 16
    assert ThreadHistory().transcript(journal, after=16) == type(later)((), 16)
    with pytest.raises(JournalRegressed):
        ThreadHistory().transcript(journal, after=17)


def test_a_thread_without_a_journal_has_an_empty_transcript(faulty: Any, key: Any) -> None:
    journal = ThreadJournal(faulty, key)
    assert ThreadHistory().transcript(journal).messages == ()
    assert JournalProjection.read(journal) == JournalProjection()
    assert JournalProjection.read_from_checkpoint(journal) == JournalProjection()
    assert ThreadInteractions().pending(journal) == ()
    assert faulty.head(key) is None


def test_reading_claims_nothing_and_changes_nothing(faulty_real: Any, key: Any) -> None:
    journal = writer(faulty_real, key)
    write(journal, *TURN)
    head = faulty_real.head(key)
    reader = ThreadJournal(faulty_real, key)
    ThreadHistory().messages(reader)
    JournalProjection.read(reader)
    ThreadInteractions().pending(reader)
    assert faulty_real.head(key) == head


def test_a_journal_that_begins_with_a_state_begins_with_its_messages(faulty_real: Any, key: Any) -> None:
    journal = writer(faulty_real, key)
    write(journal, *TURN, Checkpoint(state={"context": [said("a"), said("b")]}, position=AgentExecutionPosition()))
    write(journal, models.InputApplied(input_id="j", message=said("c")))
    whole = ThreadHistory().messages(journal)
    assert len(whole) == 4  # a checkpoint in the middle repeats nothing
    journal.trim(16)
    trimmed = ThreadHistory().transcript(journal)
    assert [made.message["content"] for made in trimmed.messages] == ["a", "b", "c"]
    assert [(made.seq, made.index) for made in trimmed.messages] == [(16, 0), (16, 1), (17, 0)]


def test_the_reader_of_an_export_gives_the_same_messages_and_nothing_stays_open(faulty: Any, key: Any) -> None:
    journal = writer(faulty, key)
    write(journal, *TURN)
    reader = TranscriptMessages()
    fed = [made for event in journal.read() for made in reader.feed(event)]
    assert tuple(fed) == ThreadHistory().transcript(journal).messages
    assert reader.open_since is None


def test_damage_in_a_payload_is_an_error_of_every_reader(faulty: Any, key: Any) -> None:
    journal = writer(faulty, key)
    journal.append(journal.event("run/end", {"outcome": "maybe"}))
    for read in (
        ThreadHistory().transcript,
        JournalProjection.read,
        ThreadInteractions().pending,
    ):
        with pytest.raises(JournalCorrupt, match="run/end"):
            read(journal)


def project(*payloads: EventPayload) -> JournalProjection:
    return JournalProjection().advanced(events_of(payloads), JournalEventCodecRegistry())


def events_of(payloads: Iterable[EventPayload], run: str = "r1") -> list[RecordedEvent]:
    made = []
    for seq, payload in enumerate(payloads, 1):
        event = build_event(payload, event_id=f"e{seq}", occurred_at=1, run_id=run)
        made.append(RecordedEvent(seq, event.event_id, event.type, 1, event.payload, run, None, event.required, 2))
    return made


def test_a_projection_shows_runs_steps_phase_and_nothing_pending_at_the_end() -> None:
    done = project(*TURN)
    assert [(run.run_id, run.started_seq, run.ended_seq, run.outcome) for run in done.runs] == [
        ("r1", 1, 15, "completed")
    ]
    assert [(step.step, step.phase, step.ended_seq) for step in done.steps] == [(0, Phase.ACTING, 14)]
    assert (done.as_of_seq, done.phase, done.position.iterations) == (15, None, 1)
    assert not done.pending
    assert not done.position.unfinished
    assert done.checkpoint is None


@pytest.mark.parametrize(
    ("length", "phase", "unfinished"),
    [
        (1, Phase.REASONING, "run 'r1' is running"),
        (2, Phase.REASONING, "input 'i' is not applied"),
        (5, Phase.MODEL, "model call 'm0' has no end"),
        (7, Phase.MODEL, "run 'r1' is running"),
        (9, Phase.ACTING, "run 'r1' is running"),
        (10, Phase.ACTING, "tool call 't1' is requested"),
        (11, Phase.ACTING, "tool call 't1' is dispatched"),
        (12, Phase.ACTING, "tool call 't1' is ended"),
        (15, None, "nothing is unfinished"),
    ],
)
def test_a_projection_shows_what_is_pending_wherever_the_journal_ends(
    length: int, phase: Phase | None, unfinished: str
) -> None:
    projection = project(*TURN[:length])
    assert projection.phase is phase
    assert unfinished in projection.position.describe()
    assert projection.position.unfinished == (length < 15)


def test_uncertain_tools_are_those_whose_effect_may_have_happened() -> None:
    asked = [models.ToolRequested(call_id=f"t{n}", name="send") for n in range(4)]
    begun = [models.ToolDispatch(call_id=f"t{n}") for n in range(1, 4)]
    pending = project(
        *asked, *begun, models.ActionEnd(call_id="t2", outcome="unknown"), models.ActionEnd(call_id="t3", result=[1])
    ).pending
    assert [tool.state for tool in pending.tools] == [
        ToolState.REQUESTED,
        ToolState.DISPATCHED,
        ToolState.UNCERTAIN,
        ToolState.ENDED,
    ]
    assert [tool.call_id for tool in pending.dispatched] == ["t1"]
    assert [tool.call_id for tool in pending.uncertain] == ["t1", "t2"]
    ended = pending.tool("t3")
    assert ended is not None
    assert (ended.result, ended.event_id, ended.name) == ([1], "e9", "send")


def test_a_continuation_keeps_iterations_and_starts_at_step_zero() -> None:
    first = project(
        models.RunStart(),
        models.StepStart(step=0),
        models.ModelEnd(call_id="a"),
        models.StepStart(step=1),
        models.ModelEnd(call_id="b"),
        models.RunEnd(outcome="paused"),
    )
    assert (first.position.status, first.position.iterations, first.position.step) == (ExecutionStatus.PAUSED, 2, 1)
    registry = JournalEventCodecRegistry()
    start = build_event(models.RunStart(continues="r1"), event_id="x", occurred_at=1, run_id="r2")
    recorded = RecordedEvent(7, "x", start.type, 1, start.payload, "r2", None, True, 2)
    position = first.advanced((recorded,), registry).position
    assert (position.run_id, position.origin_run_id, position.iterations, position.step) == ("r2", "r1", 2, 0)
    fresh = build_event(models.RunStart(), event_id="x", occurred_at=1, run_id="r3")
    recorded = RecordedEvent(7, "x", fresh.type, 1, fresh.payload, "r3", None, True, 2)
    position = first.advanced((recorded,), registry).position
    assert (position.origin_run_id, position.iterations) == ("r3", 0)


def test_a_model_call_of_a_run_that_died_is_not_pending_in_the_next_run() -> None:
    position = project(models.RunStart(), models.ModelDispatch(call_id="m"), models.RunStart(continues="r1")).position
    assert position.pending.model_call_id is None
    assert (position.phase, position.iterations) == (Phase.MODEL, 0)


def test_applying_a_tool_result_consumes_no_iteration() -> None:
    before = project(*TURN[:12]).position
    after = project(*TURN[:13]).position
    assert (before.iterations, after.iterations) == (1, 1)
    assert before.pending.tools
    assert not after.pending.tools


def test_a_projection_keeps_a_bounded_number_of_runs_and_steps() -> None:
    payloads = [one for _ in range(20) for one in (models.RunStart(), models.StepStart(step=0), models.RunEnd())]
    kept = JournalProjection(runs_max=3).advanced(events_of(payloads), JournalEventCodecRegistry())
    assert [run.started_seq for run in kept.runs] == [52, 55, 58]
    assert len(kept.steps) == 3
    with pytest.raises(ValueError, match="runs_max"):
        JournalProjection.read(None, runs_max=0)  # type: ignore[arg-type]


def test_events_that_do_not_follow_are_refused() -> None:
    with pytest.raises(ValueError, match="does not follow"):
        JournalProjection().advanced(events_of(TURN)[1:], JournalEventCodecRegistry())


ids = st.sampled_from(["a", "b"])
payloads = st.lists(
    st.one_of(
        st.just(models.RunStart()),
        st.just(models.RunStart(continues="r1")),
        st.sampled_from(["completed", "paused", "failed"]).map(lambda how: models.RunEnd(outcome=how)),  # type: ignore[arg-type]
        st.integers(0, 3).map(lambda n: models.StepStart(step=n)),
        ids.map(lambda n: models.ModelDispatch(call_id=n)),
        st.builds(models.ModelEnd, call_id=ids, outcome=st.sampled_from(["completed", "failed"])),
        ids.map(lambda n: models.ToolRequested(call_id=n, name="x", arguments=[n])),
        ids.map(lambda n: models.ToolDispatch(call_id=n)),
        st.builds(models.ActionEnd, call_id=ids, outcome=st.sampled_from(["completed", "unknown"]), result=ids),
        ids.map(lambda n: models.ToolResult(call_id=n)),
        ids.map(lambda n: models.InteractionRequested(interaction_id=n, kind="approval", step=1)),
        ids.map(lambda n: models.InteractionResolved(interaction_id=n)),
        ids.map(lambda n: models.InputReceived(input_id=n, message={})),
        ids.map(lambda n: models.InputApplied(input_id=n, message={})),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(payloads, st.integers(0, 25))
def test_a_position_saved_anywhere_and_folded_on_is_the_position_of_the_whole(
    made: list[EventPayload], place: int
) -> None:
    registry = JournalEventCodecRegistry()
    whole = JournalProjection().advanced(events_of(made), registry)
    events = events_of(made)
    half = JournalProjection().advanced(events[:place], registry)
    assert half.advanced(events[place:], registry) == whole
    stored = encode_value(Checkpoint(state={}, position=half.position).to_json())
    point = RecordedEvent(half.as_of_seq, "c", "state/checkpoint", 1, stored, None, None, True, 2)
    begun = JournalProjection(as_of_seq=half.as_of_seq - 1).advanced((point,), registry)
    assert begun.advanced(events[place:], registry).position == whole.position


def test_from_a_checkpoint_the_pending_work_is_complete_at_the_cost_of_what_follows(faulty: Any, key: Any) -> None:
    journal = writer(faulty, key)
    write(journal, *TURN[:11])
    position = JournalProjection.read(journal).position
    write(journal, Checkpoint(state={}, position=position))
    write(journal, models.InteractionRequested(interaction_id="q", kind="question"))
    faulty.calls.clear()
    short = JournalProjection.read_from_checkpoint(journal, page=2)
    assert faulty.calls["read_after"] == 1
    assert short.position == JournalProjection.read(journal).position
    assert short.checkpoint is not None
    assert (short.checkpoint.seq, short.checkpoint.checkpoint.state) == (12, {})


def test_a_checkpoint_without_position_hides_no_pending_work(faulty: Any, key: Any) -> None:
    journal = writer(faulty, key)
    write(journal, *TURN[:11])
    journal.append(journal.event("state/checkpoint", {"messages": []}))
    found = JournalProjection.read_from_checkpoint(journal)
    assert [tool.call_id for tool in found.pending.dispatched] == ["t1"]


def ask(name: str, step: int) -> models.InteractionRequested:
    return models.InteractionRequested(interaction_id=name, kind="approval", call_id=f"t-{name}", prompt="?", step=step)


def test_open_interactions_keep_their_original_run_and_step(faulty_real: Any, key: Any) -> None:
    journal = writer(faulty_real, key)
    write(journal, models.RunStart(), ask("a", 2), ask("b", 2), models.RunEnd(outcome="paused"))
    write(journal, ask("c", 0), run="r2")
    write(journal, models.InteractionResolved(interaction_id="b"))
    interactions = ThreadInteractions()
    assert [asked.interaction_id for asked in interactions.pending(journal)] == ["a", "c"]
    requests = interactions.continuation_requests(journal, ["a"])
    assert (requests.run_id, requests.turn_id, requests.step, requests.as_of_seq) == ("r1", "t", 2, 6)
    assert [(asked.call_id, asked.prompt) for asked in requests.requests] == [("t-a", "?")]


@pytest.mark.parametrize(
    ("selected", "why"),
    [
        ([], "at least one"),
        (["a", "a"], "each once"),
        (["x"], "not open"),
        (["b"], "not open"),
        (["a", "c"], "different"),
    ],
)
def test_a_selection_that_is_not_open_or_not_of_one_step_is_refused(
    faulty: Any, key: Any, selected: list[str], why: str
) -> None:
    journal = writer(faulty, key)
    write(journal, ask("a", 2), ask("b", 2), ask("c", 3), models.InteractionResolved(interaction_id="b"))
    head = faulty.head(key)
    with pytest.raises(InvalidValue, match=why):
        ThreadInteractions().continuation_requests(journal, selected)
    assert faulty.head(key) == head
