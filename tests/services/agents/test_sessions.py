"""Sessions: load at entry, save at exit, a snapshot for each call, a bounded cache, deployments."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_state import FaultyState
from speaking import run, said, say, slot

from statebook import (
    AgentStateStore,
    InvalidKey,
    SessionKey,
    StateCorrupt,
    UnsupportedCapability,
    UnsupportedFormat,
    VersionConflict,
    open_state,
)
from statebook.agents import AgentSessions, AgentState, BlockingAgentSessions, ConflictPolicy, SessionOptions
from statebook.plugins import open_default_state

# ------------------------------------------------------------------------------------------------- load, save, snapshot


def test_a_call_loads_at_entry_and_writes_once_at_exit(store: AgentStateStore) -> None:
    counted = FaultyState(store)

    async def program() -> None:
        async with AgentSessions(counted) as sessions:  # type: ignore[arg-type]
            for turn in range(3):
                async with sessions.call("s", user_id="u") as call:
                    assert len(call.state.context) == turn * 5
                    for _ in range(5):
                        say(call, f"{turn}")

    run(program())
    assert (counted.loads, counted.saves) == (1, 3)


def test_a_call_that_changes_nothing_writes_nothing(store: AgentStateStore) -> None:
    counted = FaultyState(store)

    async def program() -> None:
        async with AgentSessions(counted) as sessions:  # type: ignore[arg-type]
            async with sessions.call("s"):
                pass
            await sessions.clear_context("s")

    run(program())
    assert counted.saves == 0
    assert not store.exists(SessionKey(None, "s"))


def test_each_call_has_a_snapshot_that_nothing_else_shares(store: AgentStateStore) -> None:
    with BlockingAgentSessions(store) as sessions:
        with sessions.call("s") as call:
            say(call, "a")
        before = store.load(slot("s"))
        with sessions.call("s") as call:
            call.state.context[0]["content"] = "changed in place"
        after = store.load(slot("s"))
        assert before is not None
        assert after is not None
        assert (after.version > before.version, b"changed in place" in after.value) == (True, True)
        kept = call.state
        kept.context[0]["content"] = "changed after the end"
        with sessions.call("s") as call:
            assert call.state.context[0]["content"] == "changed in place"


def test_the_context_of_a_call_carries_its_state_and_what_the_caller_gave(store: AgentStateStore) -> None:
    with (
        BlockingAgentSessions(store) as sessions,
        sessions.call("s", user_id="u", thread_id="t", attributes={"a": 1}, typed={int: 7}) as call,
    ):
        assert call.context.state is call.state
        say(call, "a")
        assert call.context.state is call.state
        assert (call.context.user_id, call.context.thread_id, call.context.get(int)) == ("u", "t", 7)


def test_a_call_cannot_set_another_sessions_state(store: AgentStateStore) -> None:
    with BlockingAgentSessions(store) as sessions, sessions.call("s") as call, pytest.raises(ValueError, match="own"):
        call.state = AgentState(session_id="other")


def test_a_failing_body_saves_what_it_has_set_and_its_error_goes_on(store: AgentStateStore) -> None:
    with BlockingAgentSessions(store) as sessions:
        with pytest.raises(ZeroDivisionError), sessions.call("s") as call:  # noqa: PT012
            say(call, "a")
            raise ZeroDivisionError
        assert sessions.read("s").state.context == said("a")


def test_a_save_that_fails_is_noted_on_the_bodys_error(store: AgentStateStore) -> None:
    with BlockingAgentSessions(store) as sessions:
        with pytest.raises(ZeroDivisionError) as failed, sessions.call("s") as call:  # noqa: PT012
            store.save(slot("s"), AgentState(session_id="s", summary="faster").to_json())
            say(call, "a")
            raise ZeroDivisionError
        assert any("could not be saved" in note for note in failed.value.__notes__)


@pytest.mark.parametrize("odd", ["..", "/", "a:b", "%", "CON", "A", "a", "\U0001f600", "x" * 512])
def test_any_id_is_a_session(real_store: AgentStateStore, odd: str) -> None:
    with BlockingAgentSessions(real_store, SessionOptions(cache_max=0)) as sessions:
        with sessions.call(odd, user_id=odd) as call:
            say(call, odd)
        assert sessions.read(odd, user_id=odd).state.context == said(odd)
        assert sessions.read(odd).version is None
        assert real_store.list_sessions(odd).sessions == (SessionKey(odd, odd),)


def test_what_is_no_id_is_refused_before_anything_is_read(store: AgentStateStore) -> None:
    counted = FaultyState(store)
    sessions = BlockingAgentSessions(counted)  # type: ignore[arg-type]
    for session_id, user_id in (("", None), ("s", ""), ("\0", None)):
        with pytest.raises(InvalidKey), sessions.call(session_id, user_id=user_id):
            pass
    assert counted.loads == 0


@pytest.mark.parametrize("policy", list(ConflictPolicy))
def test_a_state_of_a_newer_schema_is_refused_and_stays_as_it_is(
    real_store: AgentStateStore, policy: ConflictPolicy
) -> None:
    newer = b'{"schema":2,"session_id":"s","telepathy":true}'
    real_store.save(slot("s"), newer)
    before = real_store.load(slot("s"))
    assert before is not None
    with BlockingAgentSessions(real_store, SessionOptions(policy=policy)) as sessions:
        with pytest.raises(UnsupportedFormat), sessions.call("s"):
            pytest.fail("the body must not run")
        with pytest.raises(UnsupportedFormat):
            sessions.clear_context("s")
        with pytest.raises(UnsupportedFormat):
            sessions.write(AgentState(session_id="s"), version=before.version)
    assert real_store.load(slot("s")) == before


def test_another_sessions_document_in_the_slot_is_damage(store: AgentStateStore) -> None:
    store.save(slot("s"), AgentState(session_id="other").to_json())
    with BlockingAgentSessions(store) as sessions, pytest.raises(StateCorrupt), sessions.call("s"):
        pytest.fail("the body must not run")


# ------------------------------------------------------------------------------------------------------------ the cache


def test_the_cache_is_bounded_and_a_conflict_drops_its_entry(store: AgentStateStore) -> None:
    counted = FaultyState(store)
    sessions = BlockingAgentSessions(counted, SessionOptions(cache_max=2))  # type: ignore[arg-type]
    for name in ("a", "b", "c", "b", "c"):
        with sessions.call(name) as call:
            say(call, "x")
    assert counted.loads == 3
    with sessions.call("a"):
        pass
    assert counted.loads == 4
    store.save(slot("a"), AgentState(session_id="a", summary="faster").to_json())
    with pytest.raises(VersionConflict), sessions.call("a") as call:
        say(call, "lost")
    with sessions.call("a") as call:
        assert (call.state.summary, call.state.context) == ("faster", ())


def test_nothing_is_cached_without_a_cache(store: AgentStateStore) -> None:
    counted = FaultyState(store)
    sessions = BlockingAgentSessions(counted, SessionOptions(cache_max=0))  # type: ignore[arg-type]
    for turn in range(3):
        with sessions.call("s") as call:
            say(call, str(turn))
    assert counted.loads == 3


# ----------------------------------------------------------------------------------------------------------- deployment


@pytest.mark.parametrize("kind", [AgentSessions, BlockingAgentSessions])
@pytest.mark.parametrize("scheme", ["memory", "file", "sqlite"])
def test_a_distributed_deployment_refuses_a_single_hosts_store_when_it_is_built(
    tmp_path: Path, scheme: str, kind: type[AgentSessions | BlockingAgentSessions]
) -> None:
    url = {"memory": "memory://x", "file": f"file://{tmp_path}", "sqlite": f"sqlite:///{tmp_path}/x.db"}[scheme]
    store = open_state(url)
    with pytest.raises(UnsupportedCapability, match="sharing=network"):
        kind(store, SessionOptions(distributed=True))
    store.close()


def test_the_default_store_is_json_files_of_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEBOOK_HOME", str(tmp_path / "by-variable"))
    for root, place in ((None, "by-variable"), (tmp_path / "by argument", "by argument")):
        store = open_default_state("agent", root)
        with BlockingAgentSessions(store) as sessions, sessions.call("s") as call:
            say(call, "hello")
        store.close()
        files = [path for path in (tmp_path / place / "agent").rglob("*") if path.is_file()]
        assert any(b"hello" in path.read_bytes() for path in files)
    monkeypatch.delenv("STATEBOOK_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    store = open_default_state("agent")
    store.save(slot("s"), AgentState(session_id="s").to_json())
    store.close()
    assert (tmp_path / ".statebook" / "state" / "agent").is_dir()


def test_the_default_stores_of_two_agents_are_apart(tmp_path: Path) -> None:
    one, other = open_default_state("A", tmp_path), open_default_state("a", tmp_path)
    one.save(slot("s"), b"{}")
    assert other.load(slot("s")) is None
    one.close()
    other.close()


@pytest.mark.parametrize("options", [{"cache_max": -1}, {"waiters_max": -1}])
def test_numbers_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        SessionOptions(**options)


def test_sessions_need_a_worker(store: AgentStateStore) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        AgentSessions(store, workers=0)
