"""Checkpoints: one batch with their facts, export, fork, initialise; the mirror: J11, J12, J21."""

from __future__ import annotations

import json
import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from statebook import (
    BackendUnavailable,
    HeadConflict,
    InvalidValue,
    JournalCorrupt,
    JournalNotFound,
    OutcomeUnknown,
    StateCorrupt,
    StateKey,
    StateValue,
    ThreadJournal,
    ThreadKey,
    UnsupportedFormat,
    VersionConflict,
    WriterBusy,
    decode_value,
    encode_value,
    open_journal,
    open_state,
)
from statebook.agents.agent_state import AgentState
from statebook.threads import events as models
from statebook.threads.checkpoint_payload import Checkpoint
from statebook.threads.checkpoints import ThreadCheckpoints
from statebook.threads.mirror import MIRROR_KEY, MIRROR_PLACE_KEY, MirrorOutcome, MirrorPlace, StateMirror
from statebook.threads.payload import EventPayload, build_event
from statebook.threads.position import AgentExecutionPosition, ExecutionStatus, Phase
from statebook.threads.projection import JournalProjection
from statebook_conformance.mutants.forward import ForwardState

SOURCE = ThreadKey("user", "agent", "session", "main")
TARGET = ThreadKey("other", "agent2", "session2", "fork")
IDLE = AgentExecutionPosition(run_id="r1", iterations=3)
STATE = AgentState(session_id="session", user_id="user", context=({"role": "user"},), summary="s").to_mapping()


def event(payload: EventPayload, event_id: str = "e1") -> Any:
    return build_event(payload, event_id=event_id, occurred_at=1, run_id="r1")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    url = f"memory://{uuid.uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/journal.db"
    with closing(open_journal(url)) as opened:
        yield opened


def claimed(store: Any, key: ThreadKey = SOURCE) -> ThreadJournal:
    journal = ThreadJournal(store, key)
    journal.claim("w")
    return journal


def finished(store: Any, checkpoints: ThreadCheckpoints, position: AgentExecutionPosition = IDLE) -> None:
    with claimed(store) as journal:
        checkpoints.commit(journal, [event(models.RunEnd())], STATE, position)


# ------------------------------------------------------------------------------------------------------------- commit


def test_facts_and_state_are_one_batch_and_move_the_checkpoint(store: Any) -> None:
    journal = claimed(store)
    done = ThreadCheckpoints(store).commit(journal, [event(models.RunEnd())], STATE, IDLE)
    assert (done.receipt.first_seq, done.receipt.last_seq) == (1, 2)
    head = store.head(SOURCE)
    assert head is not None
    assert head.checkpoint_seq == 2
    payload = decode_value(store.read_after(SOURCE, 1, 1).events[0].payload)
    assert payload == {**STATE, "position": IDLE.model_dump(mode="json", exclude_none=True)}


@pytest.mark.parametrize("fault", ["lost", "unknown", "refused"])
def test_a_commit_whose_reply_fails_is_made_once_and_whole(store: Any, fault: str) -> None:
    journal = ThreadJournal(ForwardJournalAppend(store, fault), SOURCE, sleep=lambda _: None)  # type: ignore[arg-type]
    journal.claim("w")
    ThreadCheckpoints(store).commit(journal, [event(models.RunEnd())], STATE, IDLE)
    assert [one.type for one in store.read_after(SOURCE, 0).events] == ["run/end", "state/checkpoint"]


class ForwardJournalAppend:
    """A store whose first append fails as it is told, so that the handle sends the same batch again."""

    def __init__(self, inner: Any, fault: str) -> None:
        self._inner, self._fault = inner, fault

    def append(self, *arguments: Any) -> Any:
        fault, self._fault = self._fault, ""
        if fault == "refused":
            raise BackendUnavailable("refused")
        if fault == "unknown":
            raise OutcomeUnknown("timed out")
        receipt = self._inner.append(*arguments)
        if fault == "lost":
            raise OutcomeUnknown("lost")
        return receipt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("bad", [{"position": 1}, {"provenance": 1}, {"schema": 1, "session_id": 5}])
def test_a_state_that_is_not_valid_is_refused_before_any_write(store: Any, bad: Any) -> None:
    journal = claimed(store)
    head = store.head(SOURCE)
    checkpoints = ThreadCheckpoints(store, validate=AgentState.from_mapping)
    with pytest.raises(InvalidValue):
        checkpoints.commit(journal, [event(models.RunEnd())], bad, IDLE)
    with pytest.raises(InvalidValue):
        checkpoints.initialize(TARGET, "w", bad, provenance={})
    assert store.head(SOURCE) == head
    assert store.head(TARGET) is None


# -------------------------------------------------------------------------------------------- initialise, export, fork


def test_an_initialised_thread_has_its_state_and_provenance_and_is_recognised(store: Any) -> None:
    checkpoints = ThreadCheckpoints(store, validate=AgentState.from_mapping)
    made = checkpoints.initialize(SOURCE, "w", STATE, provenance={"kind": "import", "from": "file"})
    again = checkpoints.initialize(SOURCE, "w", STATE, provenance={"kind": "import", "from": "file"})
    assert (made.replayed, again.replayed, made.event_id) == (False, True, again.event_id)
    snapshot = checkpoints.export_snapshot(SOURCE)
    assert (snapshot.state, snapshot.as_of_seq, snapshot.journal_id) == (STATE, 1, made.journal_id)
    assert checkpoints.export_state(SOURCE) == STATE
    with pytest.raises(HeadConflict):
        checkpoints.initialize(SOURCE, "w", {**STATE, "summary": "other"}, provenance={})


def test_a_snapshot_has_what_follows_the_checkpoint(store: Any) -> None:
    checkpoints = ThreadCheckpoints(store)
    finished(store, checkpoints)
    with claimed(store) as journal:
        journal.append(
            event(models.RunStart(), "a"),
            event(models.InputApplied(input_id="i", message={"role": "late"}), "b"),
            event(models.RunEnd(), "c"),
        )
    snapshot = checkpoints.export_snapshot(SOURCE)
    assert snapshot.as_of_seq == 5
    assert snapshot.state == {**STATE, "context": [{"role": "user"}, {"role": "late"}]}


def test_a_fork_takes_the_targets_identity_fresh_counters_and_names_its_origin(store: Any) -> None:
    checkpoints = ThreadCheckpoints(store, validate=AgentState.from_mapping)
    finished(store, checkpoints)
    before = store.head(SOURCE)
    made = checkpoints.fork(SOURCE, TARGET, "w")
    assert store.head(SOURCE) == before
    payload: Any = decode_value(store.read_after(TARGET, 0).events[0].payload)
    assert (payload["user_id"], payload["session_id"]) == ("other", "session2")
    assert "agent_id" not in payload
    assert "position" not in payload
    assert payload["provenance"]["as_of_seq"] == 2
    assert checkpoints.export_state(TARGET) == {**STATE, "user_id": "other", "session_id": "session2"}
    assert checkpoints.fork(SOURCE, TARGET, "w").replayed
    assert not made.replayed


def test_a_fork_can_rewrite_more_and_go_to_another_store(store: Any) -> None:
    checkpoints = ThreadCheckpoints(store)
    finished(store, checkpoints)
    with closing(open_journal(f"memory://{uuid.uuid4().hex}")) as other:
        checkpoints.fork(SOURCE, TARGET, "w", target_store=other, rewrite=lambda state: {**state, "summary": "forked"})
        assert ThreadCheckpoints(other).export_state(TARGET)["summary"] == "forked"
    assert store.head(TARGET) is None


UNFINISHED: dict[str, tuple[EventPayload, ...]] = {
    "run": (models.RunStart(),),
    "pause": (models.RunStart(), models.RunEnd(outcome="paused")),
    "model": (models.RunStart(), models.ModelDispatch(call_id="m")),
    "tool": (models.ToolRequested(call_id="t", name="x"), models.ToolDispatch(call_id="t"), models.RunEnd()),
    "interaction": (models.InteractionRequested(interaction_id="q", kind="approval"), models.RunEnd()),
    "input": (models.InputReceived(input_id="i", message={}),),
}


@pytest.mark.parametrize("kind", UNFINISHED)
@pytest.mark.parametrize("with_position", [True, False])
def test_unfinished_work_is_neither_exported_nor_forked_and_nothing_changes(
    store: Any, kind: str, with_position: bool
) -> None:
    checkpoints = ThreadCheckpoints(store)
    with claimed(store) as journal:
        journal.append(*(event(payload, f"e{place}") for place, payload in enumerate(UNFINISHED[kind])))
        if with_position:
            checkpoints.commit(journal, [], STATE, JournalProjection.read(journal).position)
        else:
            journal.append(event(Checkpoint(state=STATE), "c"))
    before = store.head(SOURCE)
    for refused in (
        lambda: checkpoints.export_snapshot(SOURCE),
        lambda: checkpoints.export_state(SOURCE),
        lambda: checkpoints.fork(SOURCE, TARGET, "w"),
    ):
        with pytest.raises(HeadConflict, match="unfinished work"):
            refused()
    assert store.head(SOURCE) == before
    assert store.head(TARGET) is None


def test_work_that_begins_between_the_look_and_the_fork_is_seen(store: Any) -> None:
    checkpoints = ThreadCheckpoints(store)
    finished(store, checkpoints)

    class Racing(ForwardJournalAppend):
        heads = 0

        def head(self, key: ThreadKey) -> Any:
            self.heads += 1
            if self.heads == 4:  # behind the service's own look, before that of the fork itself
                busy = AgentExecutionPosition(status=ExecutionStatus.RUNNING, run_id="r2", phase=Phase.ACTING)
                with claimed(store) as journal:
                    checkpoints.commit(journal, [], STATE, busy)
            return store.head(key)

    racing = Racing(store, "")
    with pytest.raises(HeadConflict, match="'r2' is running"):
        ThreadCheckpoints(racing).fork(SOURCE, TARGET, "w")  # type: ignore[arg-type]
    assert racing.heads > 4
    assert store.head(TARGET) is None


def test_a_thread_that_somebody_writes_is_neither_exported_nor_forked(store: Any) -> None:
    checkpoints = ThreadCheckpoints(store)
    finished(store, checkpoints)
    claimed(store)
    with pytest.raises(WriterBusy) as caught:
        checkpoints.export_snapshot(SOURCE)
    assert caught.value.holder is not None
    assert caught.value.holder.writer_id == "w"
    with pytest.raises(WriterBusy):
        checkpoints.fork(SOURCE, TARGET, "w")
    assert store.head(TARGET) is None


def test_a_thread_that_is_claimed_during_an_export_is_not_exported(store: Any) -> None:
    checkpoints = ThreadCheckpoints(store)
    finished(store, checkpoints)

    class Racing(ForwardJournalAppend):
        heads = 0

        def head(self, key: ThreadKey) -> Any:
            self.heads += 1
            if self.heads == 5:
                store.claim(key, "somebody")
            return store.head(key)

    racing = Racing(store, "")
    with pytest.raises(HeadConflict, match="claimed while"):
        ThreadCheckpoints(racing).export_snapshot(SOURCE)  # type: ignore[arg-type]
    assert racing.heads == 5


def test_what_is_not_there_is_not_exported(store: Any) -> None:
    checkpoints = ThreadCheckpoints(store)
    with pytest.raises(JournalNotFound):
        checkpoints.export_snapshot(SOURCE)
    with pytest.raises(JournalNotFound):
        checkpoints.fork(SOURCE, TARGET, "w")
    with claimed(store):
        pass
    with pytest.raises(JournalNotFound):
        checkpoints.export_state(SOURCE)
    assert store.head(TARGET) is None


def test_a_checkpoint_that_does_not_validate_is_neither_exported_nor_forked(store: Any) -> None:
    checkpoints = ThreadCheckpoints(store, validate=AgentState.from_mapping)
    bad: list[tuple[Any, type[Exception]]] = [
        ({"schema": 1, "session_id": 7}, StateCorrupt),
        ({"schema": 99, "session_id": "session"}, UnsupportedFormat),
        ({**STATE, "position": {"step": "x"}}, JournalCorrupt),
    ]
    for payload, error in bad:
        with claimed(store) as journal:
            journal.append(journal.event("state/checkpoint", payload))
        before = store.head(SOURCE)
        with pytest.raises(error):
            checkpoints.export_snapshot(SOURCE)
        with pytest.raises(error):
            checkpoints.fork(SOURCE, TARGET, "w")
        assert store.head(SOURCE) == before
        assert store.head(TARGET) is None


# ------------------------------------------------------------------------------------------------------------- mirror


class FaultyState(ForwardState):
    """Runs functions before the next saves, or loads, of a key; or raises an error."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.before: dict[str, list[Callable[[], None] | Exception]] = {}
        self.before_load: dict[str, list[Callable[[], None]]] = {}

    def load(self, key: StateKey) -> Any:
        waiting = self.before_load.get(key.key)
        if waiting:
            waiting.pop(0)()
        return self.inner.load(key)

    def save(self, key: StateKey, value: bytes, *, expected: Any = None) -> int:
        waiting = self.before.get(key.key)
        if waiting:
            fault = waiting.pop(0)
            if isinstance(fault, Exception):
                raise fault
            fault()
        return int(self.inner.save(key, value, expected=expected))


@pytest.fixture
def state_store() -> Iterator[FaultyState]:
    with closing(open_state(f"memory://{uuid.uuid4().hex}")) as opened:
        yield FaultyState(opened)


def slot(name: str) -> StateKey:
    return StateKey("user", "session", name)


def mirrored(store: FaultyState) -> Any:
    value = store.inner.load(slot(MIRROR_KEY))
    return None if value is None else decode_value(value.value)


def at(seq: int, *, epoch: int = 1, journal_id: str = "j") -> MirrorPlace:
    return MirrorPlace(journal_id, epoch, seq)


def test_a_committed_checkpoint_is_mirrored_as_a_plain_agent_state(store: Any, state_store: FaultyState) -> None:
    checkpoints = ThreadCheckpoints(store, mirror=StateMirror(state_store))
    journal = claimed(store)
    done = checkpoints.commit(journal, [], STATE, IDLE)
    assert done.mirrored is MirrorOutcome.WRITTEN
    value = state_store.load(slot(MIRROR_KEY))
    assert isinstance(value, StateValue)
    assert AgentState.from_json(value.value).to_mapping() == STATE
    assert StateMirror(state_store).place(SOURCE) == MirrorPlace(done.receipt.journal_id, 1, 1)


def test_only_the_main_thread_is_mirrored(store: Any, state_store: FaultyState) -> None:
    checkpoints = ThreadCheckpoints(store, mirror=StateMirror(state_store))
    side = ThreadKey("user", "agent", "session", "side")
    done = checkpoints.commit(claimed(store, side), [], STATE, IDLE)
    assert done.mirrored is MirrorOutcome.OTHER_THREAD
    assert not state_store.exists(slot(MIRROR_KEY).session)


def test_a_mirror_that_fails_undoes_no_commit_and_is_made_again(store: Any, state_store: FaultyState) -> None:
    checkpoints = ThreadCheckpoints(store, mirror=StateMirror(state_store))
    journal = claimed(store)
    for key in (MIRROR_PLACE_KEY, MIRROR_KEY):
        state_store.before[key] = [BackendUnavailable("down")]
        done = checkpoints.commit(journal, [], {**STATE, "summary": key}, IDLE)
        assert isinstance(done.mirror_error, BackendUnavailable)
        assert (done.mirrored, store.head(SOURCE).checkpoint_seq) == (None, done.receipt.last_seq)
        assert checkpoints.mirror_again(SOURCE) is MirrorOutcome.WRITTEN
        assert mirrored(state_store)["summary"] == key
        assert checkpoints.mirror_again(SOURCE) is MirrorOutcome.CURRENT


def test_the_journal_is_the_authority_over_whoever_wrote_the_slot(store: Any, state_store: FaultyState) -> None:
    state_store.inner.save(slot(MIRROR_KEY), encode_value({"stale": True}))
    checkpoints = ThreadCheckpoints(store, mirror=StateMirror(state_store))
    checkpoints.commit(claimed(store), [], STATE, IDLE)
    assert mirrored(state_store) == STATE


def test_an_older_checkpoint_never_overwrites_a_newer_one(state_store: FaultyState) -> None:
    mirror = StateMirror(state_store)
    assert mirror.write(SOURCE, {"n": 9}, at(9)) is MirrorOutcome.WRITTEN
    assert mirror.write(SOURCE, {"n": 5}, at(5)) is MirrorOutcome.NEWER
    assert mirror.write(SOURCE, {"n": 5}, at(99, epoch=0, journal_id="before")) is MirrorOutcome.NEWER
    assert mirrored(state_store) == {"n": 9}
    assert mirror.write(SOURCE, {"n": 1}, at(1, epoch=2, journal_id="after")) is MirrorOutcome.WRITTEN
    assert mirrored(state_store) == {"n": 1}


@pytest.mark.parametrize("call", ["load", "save"])
@pytest.mark.parametrize("key", [MIRROR_PLACE_KEY, MIRROR_KEY])
def test_a_slow_older_mirror_that_is_overtaken_stops(state_store: FaultyState, key: str, call: str) -> None:
    mirror = StateMirror(state_store)
    mirror.write(SOURCE, {"n": 1}, at(1))
    fast = StateMirror(state_store.inner)
    outcomes: list[MirrorOutcome] = []
    overtake: list[Callable[[], None]] = [lambda: outcomes.append(fast.write(SOURCE, {"n": 9}, at(9)))]
    if call == "load":
        state_store.before_load[key] = overtake
    else:
        state_store.before[key] = [*overtake]
    assert mirror.write(SOURCE, {"n": 5}, at(5)) is MirrorOutcome.NEWER
    assert outcomes == [MirrorOutcome.WRITTEN]
    assert mirrored(state_store) == {"n": 9}


class Stepped(ForwardState):
    """A mirror in a thread of its own that stops before each call of the store until it is told to go on."""

    def __init__(self, inner: Any, seq: int) -> None:
        super().__init__(inner)
        self._go: queue.Queue[bool] = queue.Queue()
        self._stopped: queue.Queue[bool] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(seq,), daemon=True)
        self._thread.start()
        self.running = self._stopped.get(timeout=20)

    def _run(self, seq: int) -> None:
        try:
            StateMirror(self).write(SOURCE, {"n": seq}, at(seq))
        except BackendUnavailable:
            pass
        finally:
            self._stopped.put(False)

    def _call(self) -> None:
        self._stopped.put(True)
        if not self._go.get(timeout=20):
            raise BackendUnavailable("this process was killed")

    def step(self, *, alive: bool = True) -> None:
        self._go.put(alive)
        self.running = self._stopped.get(timeout=20)
        if not self.running:
            self._thread.join(20)

    def load(self, key: StateKey) -> Any:
        self._call()
        return self.inner.load(key)

    def save(self, key: StateKey, value: bytes, *, expected: Any = None) -> int:
        self._call()
        return self.inner.save(key, value, expected=expected)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 30), max_size=2))
def test_whatever_the_schedule_and_the_crashes_the_mirror_never_goes_back(order: list[int], kills: list[int]) -> None:
    with closing(open_state(f"memory://{uuid.uuid4().hex}")) as inner:
        mirrors = [Stepped(inner, seq) for seq in (1, 2, 3)]
        seen = [0]
        for place, chosen in enumerate([*order, *([2, 1, 0] * 60)]):
            mirror = mirrors[chosen]
            if not mirror.running:
                continue
            mirror.step(alive=chosen == 2 or place not in kills)  # the newest one lives; the others may not
            value = inner.load(slot(MIRROR_KEY))
            seen.append(0 if value is None else json.loads(value.value)["n"])
            assert seen[-1] >= seen[-2]
        assert not any(mirror.running for mirror in mirrors)
        assert seen[-1] == 3


def test_a_place_that_cannot_be_read_is_an_error_and_is_not_repaired(state_store: FaultyState) -> None:
    state_store.inner.save(slot(MIRROR_PLACE_KEY), b'{"as_of_seq":1}')
    with pytest.raises(StateCorrupt):
        StateMirror(state_store).write(SOURCE, {"n": 1}, at(1))
    assert mirrored(state_store) is None


def test_a_mirror_that_others_always_overtake_gives_up_in_bounded_time(state_store: FaultyState) -> None:
    state_store.before[MIRROR_KEY] = [VersionConflict("busy") for _ in range(100)]
    with pytest.raises(VersionConflict):
        StateMirror(state_store).write(SOURCE, {"n": 1}, at(1))
    assert len(state_store.before[MIRROR_KEY]) == 84


def test_what_cannot_be_mirrored_again_says_so(store: Any, state_store: FaultyState) -> None:
    with pytest.raises(ValueError, match="no mirror"):
        ThreadCheckpoints(store).mirror_again(SOURCE)
    with pytest.raises(JournalNotFound):
        ThreadCheckpoints(store, mirror=StateMirror(state_store)).mirror_again(SOURCE)
