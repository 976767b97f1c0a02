"""The rule that plays random histories: it passes good backends, and tells how to repeat what differs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from statebook_conformance.cli import group
from statebook_conformance.engine import Engine
from statebook_conformance.mutants.gallery import all_mutants
from statebook_conformance.rules.one_caller import HISTORIES, STEPS, one_caller
from statebook_conformance.statuses import Status


def test_a_good_backend_passes_with_every_answer_counted(tmp_path: Path) -> None:
    for target in ("memory://one-caller", f"sqlite:///{tmp_path}/store.db"):
        result = Engine(target, seed=3).run_rule(one_caller)
        assert result.status is Status.PASS, result.reason
        assert result.checks >= HISTORIES * STEPS
        assert dict(result.evidence)["answers"] == result.checks


@pytest.mark.parametrize("name", one_caller.kills)
def test_each_mutant_that_the_rule_names_fails_it(name: str) -> None:
    mutant = all_mutants()[name]
    result = Engine(mutant.target(mutant.base), seed=1, reruns=0).run_rule(one_caller)
    assert result.status is Status.FAIL
    assert "at the last of these steps: {" in result.reason


def test_the_history_that_differs_is_kept_and_can_be_repeated(tmp_path: Path) -> None:
    target = all_mutants()["generation-stays"].target("memory://one-caller")
    result = Engine(target, seed=1, reruns=0, out=tmp_path).run_rule(one_caller)
    assert re.search(r"writes: the model has \d+, the target ", result.reason)
    found = re.search(r"--replay (\S+) URL", result.reason)
    assert found is not None
    assert Path(found[1]).parent == tmp_path / "histories"
    assert CliRunner().invoke(group, ["differential", "--replay", found[1], target]).exit_code == 1
    assert CliRunner().invoke(group, ["differential", "--replay", found[1], "memory://good"]).exit_code == 0


def test_limits_below_what_a_history_needs_are_no_failure(command: Callable[..., Result]) -> None:
    result = Engine("made_results:open_narrow", seed=1).run_rule(one_caller)
    assert result.status is Status.NOT_CLAIMED
    assert "group_batches_max is 1 of 4" in result.reason
    done = command("differential", "made_results:open_narrow")
    assert done.exit_code == 2
    assert "group_batches_max is 1 of 4" in " ".join(done.output.split())
