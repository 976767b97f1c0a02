"""Peers side by side: statebook and the raw engine always, every other one that is installed, and the rest by name."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from statebook_benchmarks.cli import group
from statebook_benchmarks.peers import sidebyside
from statebook_benchmarks.peers.others import PEERS
from statebook_benchmarks.peers.sidebyside import CASES, PeersOrder, run_peers


def measured(directory: Path, medium: str) -> dict[str, set[str]]:
    order = PeersOrder(
        media=(medium,), cases=CASES, rounds=3, round_s=0.004, events=20, directory=directory, command="statebook bench"
    )
    result = run_peers(order, lambda: "bench-p", lambda what, done, of: None)
    names = {peer.name for peer in PEERS if peer.medium == medium}
    found = {figure.name for figure in result.figures}
    assert names - found == {name for name, _ in result.missing}
    for figure in result.figures:
        assert figure.promises
        assert figure.microseconds.estimate > 0
        assert (figure.ratio is None) == figure.name.startswith("statebook")
    return {case: {figure.name for figure in result.figures if figure.case == case} for case in CASES}


@pytest.mark.parametrize("medium", ["memory", "sqlite"])
def test_each_case_is_measured_beside_the_raw_engine_and_nothing_stays(medium: str, tmp_path: Path) -> None:
    found = measured(tmp_path, medium)
    assert {f"statebook ({medium})", f"raw ({medium})"} <= found["append"]
    assert found["append"] == found["writers"] == found["load"] | {f"raw ({medium})"}
    assert list(tmp_path.iterdir()) == []


def test_the_command_names_what_is_not_installed_and_how_to_install_it(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    arguments = ["peers", "--medium", "memory", "--case", "append", "--rounds", "3", "--round-ms", "5"]
    done = CliRunner().invoke(group, [*arguments, "--directory", str(tmp_path), "--json", str(file)])
    assert done.exit_code == 0, done.output
    installed = find_spec("eventsourcing") is not None and find_spec("langgraph") is not None
    assert ("statebook[bench-peers]" in done.output) != installed
    assert json.loads(file.read_bytes())["kind"] == "peers"


def test_a_peer_that_is_there_and_does_not_open_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(PEERS[0]):  # type: ignore[misc, name-defined]
        name = "Broken"
        medium = "memory"

        def __init__(self, directory: Path) -> None:
            raise TypeError("its dependency is too old")

    monkeypatch.setattr(sidebyside, "PEERS", (Broken,))
    arguments = ["peers", "--medium", "memory", "--case", "append", "--rounds", "3", "--round-ms", "5"]
    done = CliRunner().invoke(group, [*arguments, "--directory", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "Broken was left out: it cannot be opened (TypeError: its dependency is too old)" in done.output
