"""From the journal back to a state; uncertain outcomes: J4, J13, J15, J18."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from statebook import (
    HeadConflict,
    InvalidConfiguration,
    InvalidValue,
    JournalCorrupt,
    JournalNotFound,
    OutcomeUnknown,
    RecordedEvent,
    StateCorrupt,
    ThreadJournal,
    ThreadKey,
    Trimmed,
    UnsupportedFormat,
    WriterFenced,
    decode_value,
)
from statebook.agents.agent_state import AgentState
from statebook.threads import events as models
from statebook.threads.checkpoint_payload import Checkpoint
from statebook.threads.codecs import JournalEventCodecRegistry
from statebook.threads.history import ThreadHistory
from statebook.threads.payload import EventPayload, build_event
from statebook.threads.position import AgentExecutionPosition, Phase
from statebook.threads.projection import JournalProjection
from statebook.threads.recovery import NextStep, RecoveredThread, ThreadRecovery, ToolOutcome

STATE: Any = AgentState(session_id="session", user_id="user").to_mapping()


def writer(store: Any, key: ThreadKey) -> ThreadJournal:
    journal = ThreadJournal(store, key)
    journal.claim("w")
    return journal


def write(journal: ThreadJournal, *payloads: EventPayload, run: str = "r1") -> None:
    start = journal.last_seq + 1
    journal.append(
        *(
            build_event(payload, event_id=f"e{place}", occurred_at=1, run_id=run, turn_id="t")
            for place, payload in enumerate(payloads, start)
        )
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def begun(journal: ThreadJournal, *after: EventPayload) -> None:
    """A run that dies while two tools act, behind a checkpoint."""
    write(journal, models.RunStart(), models.StepStart(step=0), models.InputApplied(input_id="i", message=user("pay")))
    write(
        journal,
        models.ModelEnd(call_id="m", message={"role": "assistant"}),
        models.ToolRequested(call_id="t1", name="pay", arguments={"eur": 5}),
        models.ToolRequested(call_id="t2", name="mail"),
        models.ToolRequested(call_id="t3", name="log"),
    )
    position = JournalProjection.read(journal).position
    write(journal, Checkpoint(state={**STATE, "context": [user("pay"), {"role": "assistant"}]}, position=position))
    write(journal, models.ToolDispatch(call_id="t1"), models.ToolDispatch(call_id="t2"))
    write(journal, models.ActionEnd(call_id="t2", outcome="unknown"), *after)


def test_recovery_is_the_checkpoint_with_what_follows_it_applied_and_writes_nothing(faulty_real: Any, key: Any) -> None:
    journal = writer(faulty_real, key)
    begun(journal, models.InputApplied(input_id="j", message=user("and hurry")))
    head = faulty_real.head(key)
    faulty_real.calls.clear()
    thread = ThreadRecovery(validate=AgentState.from_mapping).load(ThreadJournal(faulty_real, key))
    assert faulty_real.calls["read_after"] == 1
    assert faulty_real.head(key) == head
    assert AgentState.from_mapping(dict(thread.state or {})).context == (
        user("pay"),
        {"role": "assistant"},
        user("and hurry"),
    )
    assert (thread.checkpoint_seq, thread.as_of_seq, thread.phase) == (8, 12, Phase.ACTING)
    assert thread.position == JournalProjection.read(journal).position
    assert [tool.call_id for tool in thread.uncertain] == ["t1", "t2"]
    assert thread.next_step is NextStep.RECONCILE
    assert thread.restored() == models.StateRestored(checkpoint_seq=8, as_of_seq=12, phase=Phase.ACTING)


def test_an_unknown_required_type_blocks_recovery_and_names_type_and_seq(faulty_real: Any, key: Any) -> None:
    journal = writer(faulty_real, key)
    begun(journal)
    journal.append(journal.event("x/free", {}), journal.event("x/vital", {"a": 1}, required=True))
    head = faulty_real.head(key)
    with pytest.raises(UnsupportedFormat, match=r"'x/vital' at seq 13") as caught:
        ThreadRecovery().load(journal)
    assert caught.value.found == "x/vital"
    with pytest.raises(UnsupportedFormat):
        ThreadRecovery().reconcile(journal, [ToolOutcome("t1", "completed")], "why")
    assert faulty_real.head(key) == head


class Vital(BaseModel):
    a: int


def test_a_registered_extension_is_applied_and_nothing_is_registered_after_a_restore(faulty: Any, key: Any) -> None:
    registry = JournalEventCodecRegistry()
    registry.register("x/vital", Vital, apply=lambda state, payload, event: {**state, "vital": payload.a})
    journal = writer(faulty, key)
    begun(journal)
    journal.append(journal.event("x/vital", {"a": 1}, required=True))
    thread = ThreadRecovery(registry).load(journal)
    assert thread.state is not None
    assert thread.state["vital"] == 1
    with pytest.raises(InvalidConfiguration):
        registry.register("x/late", Vital)


def test_a_required_type_before_the_checkpoint_is_in_the_checkpoint_and_blocks_nothing(faulty: Any, key: Any) -> None:
    journal = writer(faulty, key)
    journal.append(journal.event("x/vital", {}, required=True))
    begun(journal)
    assert ThreadRecovery().load(journal).checkpoint_seq == 9


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ([], JournalCorrupt),
        ({**STATE, "position": {"phase": "dancing"}}, JournalCorrupt),
        ({**STATE, "position": {"iterations": -1}}, JournalCorrupt),
        ({**STATE, "session_id": 7}, StateCorrupt),
        ({**STATE, "schema": 2}, UnsupportedFormat),
    ],
)
def test_a_checkpoint_that_does_not_validate_is_an_error_and_nothing_changes(
    faulty_real: Any, key: Any, payload: Any, error: type[Exception]
) -> None:
    journal = writer(faulty_real, key)
    begun(journal)
    journal.append(journal.event("state/checkpoint", payload))
    head = faulty_real.head(key)
    recovery = ThreadRecovery(validate=AgentState.from_mapping)
    with pytest.raises(error):
        recovery.load(journal)
    with pytest.raises(error):
        recovery.reconcile(journal, [ToolOutcome("t1", "completed")], "why")
    assert faulty_real.head(key) == head


def test_a_validator_that_only_says_value_error_is_damage_too(faulty: Any, key: Any) -> None:
    def validate(state: Any) -> None:
        raise ValueError("no")

    journal = writer(faulty, key)
    begun(journal)
    with pytest.raises(JournalCorrupt, match="seq 8"):
        ThreadRecovery(validate=validate).load(journal)


def test_without_a_checkpoint_recovery_begins_with_what_is_given(faulty: Any, key: Any) -> None:
    with pytest.raises(JournalNotFound):
        ThreadRecovery().load(ThreadJournal(faulty, key))
    journal = writer(faulty, key)
    empty = ThreadRecovery().load(journal)
    assert (empty.state, empty.as_of_seq, empty.next_step) == (None, 0, NextStep.NEW_CALL)
    initial = {"context": [user("a")]}
    assert ThreadRecovery().load(journal, initial=initial).state == initial
    write(journal, models.InputApplied(input_id="i", message=user("b")))
    assert ThreadRecovery().load(journal, initial=initial).state == {"context": [user("a"), user("b")]}
    assert ThreadRecovery().load(journal).state == {"context": [user("b")]}
    assert initial == {"context": [user("a")]}


def test_without_a_checkpoint_and_with_events_trimmed_nothing_is_guessed(faulty: Any, key: Any) -> None:
    journal = writer(faulty, key)
    for text in "abc":
        write(journal, models.InputApplied(input_id=text, message=user(text)))
    journal.trim(3)
    with pytest.raises(Trimmed):
        ThreadRecovery().load(journal, initial={})


def test_a_checkpoint_without_position_takes_it_from_the_whole_journal(faulty: Any, key: Any) -> None:
    journal = writer(faulty, key)
    begun(journal)
    journal.append(journal.event("state/checkpoint", {"messages": []}))
    thread = ThreadRecovery().load(journal)
    assert thread.state == {"messages": []}
    assert [tool.call_id for tool in thread.uncertain] == ["t1", "t2"]


# ---------------------------------------------------------------------------------------------------------- resume


def thread_of(*payloads: EventPayload) -> RecoveredThread:
    events = []
    for seq, payload in enumerate(payloads, 1):
        event = build_event(payload, event_id=f"e{seq}", occurred_at=1, run_id="r1")
        events.append(RecordedEvent(seq, event.event_id, event.type, 1, event.payload, "r1", None, event.required, 2))
    position = JournalProjection().advanced(events, JournalEventCodecRegistry()).position
    return RecoveredThread(ThreadKey("u", "a", "s", "main"), "j", STATE, None, len(events), position)


ASK = models.InteractionRequested(interaction_id="q", kind="approval")


def test_a_new_call_begins_only_where_nothing_is_unfinished() -> None:
    done = thread_of(models.RunStart(), models.ModelEnd(call_id="m"), models.RunEnd())
    assert done.next_step is NextStep.NEW_CALL
    assert done.new_call(input="x") == models.RunStart(input="x")
    with pytest.raises(HeadConflict, match="no run to continue"):
        done.continuation()


def test_an_unfinished_run_is_continued_and_no_new_call_passes_it() -> None:
    for thread in (
        thread_of(models.RunStart(), models.ModelDispatch(call_id="m")),
        thread_of(models.RunStart(), models.RunEnd(outcome="interrupted")),
        thread_of(models.RunStart(), models.ToolRequested(call_id="t", name="x")),
    ):
        assert thread.next_step is NextStep.CONTINUE
        assert thread.continuation().continues == "r1"
        with pytest.raises(HeadConflict, match="new call"):
            thread.new_call()


def test_a_run_that_waits_for_answers_is_continued_with_them() -> None:
    thread = thread_of(models.RunStart(), ASK, models.RunEnd(outcome="paused"))
    assert thread.next_step is NextStep.ANSWER
    assert thread.continuation(answering=["q"], input="yes").continues == "r1"
    with pytest.raises(HeadConflict, match="waits for answers"):
        thread.continuation()
    with pytest.raises(InvalidValue, match="'other'"):
        thread.continuation(answering=["other"])


def test_an_uncertain_tool_comes_before_everything_else() -> None:
    thread = thread_of(models.RunStart(), ASK, models.ToolDispatch(call_id="t"))
    assert thread.next_step is NextStep.RECONCILE
    with pytest.raises(HeadConflict, match="reconcile"):
        thread.new_call()
    for answering in ([], ["q"]):
        with pytest.raises(HeadConflict, match="reconcile"):
            thread.continuation(answering=answering)


# -------------------------------------------------------------------------------------------------------- reconcile


def test_reconciled_outcomes_and_checkpoint_are_one_batch_with_their_provenance(faulty_real: Any, key: Any) -> None:
    begun(writer(faulty_real, key))
    journal = writer(faulty_real, key)
    recovery = ThreadRecovery(validate=AgentState.from_mapping, clock_ms=lambda: 7)
    done = recovery.reconcile(
        journal,
        [ToolOutcome("t1", "completed", content="paid"), ToolOutcome("t2", "unknown", message={"role": "tool"})],
        "the bank's statement",
    )
    assert (done.receipt.first_seq, done.receipt.last_seq) == (12, 15)
    events = faulty_real.inner.read_after(key, 11).events
    assert [event.type for event in events] == ["tool/result", "tool/result", "recovery/applied", "state/checkpoint"]
    result: Any = decode_value(events[0].payload)
    assert (events[0].run_id, events[0].turn_id) == ("r1", "t")
    assert (result["source"], result["outcome"], result["content"]) == ("reconciled", "completed", "paid")
    assert result["provenance"] == {
        "run_id": "r1",
        "turn_id": "t",
        "step": 0,
        "event_id": "e9",
        "state": "dispatched",
        "reason": "the bank's statement",
    }
    assert decode_value(events[2].payload) == {
        "reason": "the bank's statement",
        "call_ids": ["t1", "t2"],
        "as_of_seq": 11,
    }
    again = recovery.load(ThreadJournal(faulty_real, key))
    assert again == done.thread
    assert (again.next_step, again.phase, again.position.iterations) == (NextStep.CONTINUE, Phase.ACTING, 1)
    assert [tool.call_id for tool in again.pending.tools] == ["t3"]
    assert [message["role"] for message in ThreadHistory().messages(journal)] == ["user", "assistant", "tool", "tool"]  # type: ignore[index, call-overload]


def test_what_is_not_reconciled_stays_uncertain(faulty: Any, key: Any) -> None:
    journal = writer(faulty, key)
    begun(journal)
    done = ThreadRecovery().reconcile(journal, [ToolOutcome("t2", "not_executed")], "asked")
    assert [tool.call_id for tool in done.thread.uncertain] == ["t1"]
    assert done.thread.next_step is NextStep.RECONCILE


@pytest.mark.parametrize(
    "outcomes",
    [
        [],
        [ToolOutcome("t3", "completed")],
        [ToolOutcome("nobody", "completed")],
        [ToolOutcome("t1", "completed"), ToolOutcome("t1", "failed")],
    ],
)
def test_outcomes_for_what_is_not_uncertain_are_refused_and_nothing_changes(
    faulty_real: Any, key: Any, outcomes: list[ToolOutcome]
) -> None:
    journal = writer(faulty_real, key)
    begun(journal)
    head = faulty_real.head(key)
    with pytest.raises(InvalidValue):
        ThreadRecovery().reconcile(journal, outcomes, "asked")
    with pytest.raises(InvalidValue, match="reason"):
        ThreadRecovery().reconcile(journal, [ToolOutcome("t1", "completed")], "")
    assert faulty_real.head(key) == head


def test_only_the_holder_of_the_newest_claim_reconciles(faulty_real: Any, key: Any) -> None:
    old = writer(faulty_real, key)
    begun(old)
    with pytest.raises(WriterFenced, match="claim"):
        ThreadRecovery().reconcile(ThreadJournal(faulty_real, key), [ToolOutcome("t1", "completed")], "asked")
    new = writer(faulty_real, key)
    head = faulty_real.head(key)
    with pytest.raises(WriterFenced):
        ThreadRecovery().reconcile(old, [ToolOutcome("t1", "completed")], "asked")
    assert faulty_real.head(key) == head
    write(new, models.StepEnd(step=0))
    stale = ThreadJournal(faulty_real, key)
    stale.claim("w3")
    other = ThreadJournal(faulty_real, key)
    other.claim("w4")
    write(other, models.StepStart(step=1))
    with pytest.raises(HeadConflict, match="moved past"):
        ThreadRecovery().reconcile(stale, [ToolOutcome("t1", "completed")], "asked")


def test_a_reconciliation_whose_reply_is_lost_is_there_once(faulty: Any, key: Any) -> None:
    begun(writer(faulty, key))

    class Lossy:
        lost = False

        def append(self, *arguments: Any) -> Any:
            receipt = faulty.append(*arguments)
            if not self.lost:
                self.lost = True
                raise OutcomeUnknown("lost")
            return receipt

        def __getattr__(self, name: str) -> Any:
            return getattr(faulty, name)

    journal = ThreadJournal(Lossy(), key, sleep=lambda _: None)  # type: ignore[arg-type]
    journal.claim("w2")
    done = ThreadRecovery().reconcile(journal, [ToolOutcome("t1", "completed")], "asked")
    assert done.receipt.replayed
    results = [event for event in faulty.read_after(key, 0).events if event.type == "tool/result"]
    assert len(results) == 1


def test_a_reconciled_state_that_would_not_validate_is_not_written(faulty: Any, key: Any) -> None:
    def validate(state: Any) -> None:
        if len(state["context"]) > 2:
            raise StateCorrupt("too long")

    journal = writer(faulty, key)
    begun(journal)
    head = faulty.head(key)
    with pytest.raises(StateCorrupt):
        ThreadRecovery(validate=validate).reconcile(journal, [ToolOutcome("t1", "completed")], "asked")
    assert faulty.head(key) == head


def test_a_position_describes_itself_without_payloads() -> None:
    thread = thread_of(models.RunStart(), models.ToolRequested(call_id="t", name="x", arguments={"pin": "1234"}))
    assert "1234" not in thread.position.describe()
    assert AgentExecutionPosition().describe() == "nothing is unfinished"
