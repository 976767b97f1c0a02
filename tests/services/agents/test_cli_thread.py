"""`statebook transcript` and `statebook inspect --runs`: what they print, what they hide, what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from statebook import Event, ThreadJournal, ThreadKey, encode_value, new_id, open_journal
from statebook.cli import root
from statebook.threads.events import InputApplied, InputReceived, ModelDispatch, ModelEnd, RunStart
from statebook.threads.payload import EventPayload, build_event

KEY = ThreadKey(None, "a", "..", "t\n")
THREAD = ("--agent", "a", "--session", "..", "--thread", "t\n")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, arguments)


@pytest.fixture
def url() -> Iterator[str]:
    """A store with one thread that holds text fit to upset a terminal."""
    name = f"memory://cli-{new_id()}"
    store = open_journal(name)
    payloads: tuple[EventPayload, ...] = (
        RunStart(input="hello"),
        InputReceived(input_id="i", message={"role": "user", "content": "hello"}),
        InputApplied(input_id="i", message={"role": "user", "content": "one\ntwo\x1b[2J\u202e"}),
        ModelDispatch(call_id="m"),
        ModelEnd(call_id="m", message={"role": "ass\x07istant", "content": [{"text": "\x1b]0;title"}]}),
        ModelDispatch(call_id="n"),
    )
    with ThreadJournal(store, KEY) as journal:
        journal.claim("w")
        for number, payload in enumerate(payloads):
            journal.append(build_event(payload, event_id=f"e{number}", occurred_at=1, run_id="run"))
    yield name
    store.close()


def test_a_transcript_shows_complete_messages_and_nothing_that_moves_a_terminal(url: str) -> None:
    result = run("transcript", url, *THREAD)
    assert result.exit_code == 0, result.output
    assert not any(not c.isprintable() for c in result.output.replace("\n", ""))
    lines = [line.split() for line in result.output.splitlines()]
    assert lines[1] == ["3", "user", "one"]
    assert lines[2] == ["two\\x1b[2J\\u202e"]
    assert lines[3][:2] == ["5", '"ass\\x07istant"']
    assert lines[-1] == ["2", "messages,", "complete", "up", "to", "seq", "6"]


def test_a_transcript_as_json_is_what_is_stored(url: str) -> None:
    shown = json.loads(run("transcript", url, *THREAD, "--json").output)
    assert shown["key"] == {"user_id": None, "agent_id": "a", "session_id": "..", "thread_id": "t\n"}
    assert shown["as_of_seq"] == 6
    assert [made["message"]["content"] for made in shown["messages"]] == [
        "one\ntwo\x1b[2J\u202e",
        [{"text": "\x1b]0;title"}],
    ]
    assert [made["seq"] for made in shown["messages"]] == [3, 5]
    assert json.loads(run("transcript", url, *THREAD, "--json", "--after", "3").output)["messages"][0]["seq"] == 5


def test_inspect_says_what_is_unfinished_without_payloads(url: str) -> None:
    text = run("inspect", url, *THREAD, "--runs").output
    assert "run run: from seq 1 has not ended" in text
    assert "model call 'n' has no end" in text
    assert "hello" not in text
    assert "unfinished" not in json.loads(run("inspect", url, *THREAD, "--json").output)
    shown = json.loads(run("inspect", url, *THREAD, "--json", "--runs").output)
    assert [shown["runs"][0]["run_id"], shown["runs"][0]["ended_seq"]] == ["run", None]


@pytest.mark.parametrize("given", [(), ("--agent", "a"), ("--agent", "a", "--session", "..")])
def test_a_transcript_needs_a_thread(url: str, given: tuple[str, ...]) -> None:
    result = run("transcript", url, *given)
    assert (result.exit_code, "needs --agent, --session and --thread" in result.output) == (2, True)


def test_a_thread_without_a_journal_is_told_and_none_is_made(url: str) -> None:
    result = run("transcript", url, "--agent", "a", "--session", "..", "--thread", "other")
    assert (result.exit_code, "JournalNotFound" in result.output) == (1, True)
    listed = json.loads(run("inspect", url, "--json").output)
    assert len(listed["threads"]) == 1


def test_a_seq_behind_the_end_is_an_error(url: str) -> None:
    result = run("transcript", url, *THREAD, "--after", "7")
    assert (result.exit_code, "JournalRegressed" in result.output) == (1, True)


def test_a_damaged_payload_is_an_error_and_no_empty_transcript(url: str) -> None:
    store = open_journal(url)
    with ThreadJournal(store, KEY) as journal:
        journal.claim("w")
        journal.append(Event(event_id="bad", type="model/end", occurred_at=1, payload=encode_value({"call": "m"})))
    store.close()
    for command in (("transcript",), ("inspect", "--runs")):
        result = run(command[0], url, *THREAD, *command[1:])
        assert (result.exit_code, "JournalCorrupt" in result.output) == (1, True)
    assert run("inspect", url, *THREAD).exit_code == 0
