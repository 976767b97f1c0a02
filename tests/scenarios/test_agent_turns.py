"""The reference agent, killed at each of its numbered points, goes on in another process as if nothing had happened."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from statebook import StoreUrl, ThreadKey, new_id, open_journal
from statebook.cli import root

POINTS = range(1, 28)
"""Every crash point of a conversation without a crash; the first test checks that these are all."""

KILLED = -signal.SIGKILL


def test_without_a_crash_every_point_is_passed(agent: ModuleType, look: Any, tmp_path: Path) -> None:
    url, ledger = f"sqlite:///{tmp_path}/demo.db", tmp_path / "effects.jsonl"
    assert agent.main(["--store", url, "--ledger", str(ledger)]) == len(POINTS)
    look(url, ledger).is_complete()


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_it_goes_on_and_no_side_effect_happens_twice(
    agent: ModuleType, in_a_process: Callable[..., int], look: Any, tmp_path: Path, point: int
) -> None:
    url, ledger = f"sqlite:///{tmp_path}/demo.db", tmp_path / "effects.jsonl"
    assert in_a_process("--store", url, "--ledger", str(ledger), "--crash-at", str(point)) == KILLED
    before = look(url, ledger).effects()
    agent.main(["--store", url, "--ledger", str(ledger)])
    look(url, ledger).is_complete()
    assert look(url, ledger).effects()[: len(before)] == before


@pytest.mark.parametrize("points", [(6, 2, 1, 3), (7, 1, 2, 3, 4), (14, 2, 2), (8, 2, 1), (3, 3, 3, 3, 3)])
def test_killed_again_and_again_it_still_gets_there(
    agent: ModuleType, in_a_process: Callable[..., int], look: Any, tmp_path: Path, points: tuple[int, ...]
) -> None:
    url, ledger = f"sqlite:///{tmp_path}/demo.db", tmp_path / "effects.jsonl"
    for point in points:
        assert in_a_process("--store", url, "--ledger", str(ledger), "--crash-at", str(point)) == KILLED
    agent.main(["--store", url, "--ledger", str(ledger)])
    look(url, ledger).is_complete()


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_on_redis(
    agent: ModuleType, in_a_process: Callable[..., int], look: Any, tmp_path: Path, redis_url: str, point: int
) -> None:
    url = StoreUrl.parse(redis_url).with_option("namespace", f"turns-{new_id()}").unredacted()
    ledger = tmp_path / "effects.jsonl"
    assert in_a_process("--store", url, "--ledger", str(ledger), "--crash-at", str(point)) == KILLED
    agent.main(["--store", url, "--ledger", str(ledger)])
    look(url, ledger).is_complete()


@pytest.mark.parametrize("point", [1, 5, 7, 8, 14, 21])
@pytest.mark.parametrize("scheme", ["file", "redis"])
def test_another_process_goes_on_with_another_backend(
    agent: ModuleType,
    in_a_process: Callable[..., int],
    look: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    scheme: str,
    point: int,
) -> None:
    url, ledger = f"sqlite:///{tmp_path}/demo.db", tmp_path / "effects.jsonl"
    other = f"file://{tmp_path}/other"
    if scheme == "redis":
        server = StoreUrl.parse(request.getfixturevalue("redis_url"))
        other = server.with_option("namespace", f"turns-{new_id()}").unredacted()
    assert in_a_process("--store", url, "--ledger", str(ledger), "--crash-at", str(point)) == KILLED
    agent.main(["--store", url, "--ledger", str(ledger), "--resume-on", other])
    look(other, ledger).is_complete()
    agent.main(["--store", url, "--ledger", str(ledger), "--resume-on", other])  # is moved once
    look(other, ledger).is_complete()


def test_it_is_exported_once_and_forked_with_another_identity(
    agent: ModuleType, look: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, ledger, lines = f"sqlite:///{tmp_path}/demo.db", tmp_path / "effects.jsonl", tmp_path / "events.jsonl"
    forks = f"file://{tmp_path}/forks"
    arguments = ["--store", url, "--ledger", str(ledger), "--export", str(lines), "--fork-into", forks]
    for _ in range(2):
        agent.main(arguments)
    exported = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert [line["seq"] for line in exported] == list(range(1, len(exported) + 1))
    assert "once before" in capsys.readouterr().out
    fork = ThreadKey("ada", "host", "dinner, next week", "main")
    store = open_journal(forks)
    event = store.read_after(fork, 0, 10).events[0]
    store.close()
    state = json.loads(event.payload)
    assert (state["session_id"], state["provenance"]["session_id"]) == ("dinner, next week", "dinner")
    assert len(state["context"]) == len(look(url, ledger).said())


def test_the_command_line_prints_the_thread(
    agent: ModuleType, in_a_process: Callable[..., int], look: Any, tmp_path: Path
) -> None:
    url, ledger = f"sqlite:///{tmp_path}/demo.db", tmp_path / "effects.jsonl"
    thread = ("--user", "ada", "--agent", "host", "--session", "dinner", "--thread", "main")

    def shown(command: str, *options: str) -> str:
        result = CliRunner().invoke(root, (command, url, *thread, *options))
        assert result.exit_code == 0, result.output
        return result.stdout

    assert in_a_process("--store", url, "--ledger", str(ledger), "--crash-at", "7") == KILLED
    assert "is dispatched" in shown("inspect", "--runs")
    agent.main(["--store", url, "--ledger", str(ledger)])
    text = shown("transcript")
    for said in look(url, ledger).said():
        assert said in text
    assert "nothing is unfinished" in shown("inspect", "--runs")
    runs = json.loads(shown("inspect", "--runs", "--json"))
    assert [run["outcome"] for run in runs["runs"]] == [None, "completed", "completed"]
    assert runs["unfinished"] is None
    as_json = json.loads(shown("transcript", "--json"))
    assert [made["message"]["content"] for made in as_json["messages"]] == look(url, ledger).said()
    behind = json.loads(shown("transcript", "--json", "--after", str(as_json["messages"][-2]["seq"])))
    assert behind["messages"] == as_json["messages"][-1:]
