"""The concurrent rules of journals pass over a good store with any seed, and fail each mutant that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebook_conformance.engine import Engine
from statebook_conformance.mutants.gallery import all_mutants
from statebook_conformance.mutants.selfcheck import KILLED
from statebook_conformance.rule import Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status

MODULES = ("journal_concurrent", "takeover", "readers", "groups", "maintenance_concurrent")
RULES = {rule.id: rule for rule in all_rules() if rule.function.__module__.rpartition(".")[2] in MODULES}
NAMED = [(rule.id, name) for rule in RULES.values() for name in rule.kills]


def run(target: str, rule: Rule, seed: int) -> tuple[Status, str]:
    result = Engine(target, seed=seed, reruns=0).run_rule(rule)
    return result.status, result.reason


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rule_id", RULES)
def test_a_good_store_passes_with_any_seed(rule_id: str, seed: int) -> None:
    status, reason = run("memory://concurrent", RULES[rule_id], seed)
    assert status in (Status.PASS, Status.NOT_CLAIMED), reason


@pytest.mark.parametrize("rule_id", RULES)
def test_a_good_store_shared_by_processes_passes(rule_id: str, tmp_path: Path) -> None:
    status, reason = run(f"file://{tmp_path}", RULES[rule_id], 1)
    assert status is Status.PASS, reason


@pytest.mark.parametrize(("rule_id", "mutant"), NAMED)
def test_a_rule_fails_each_mutant_that_it_names(rule_id: str, mutant: str, tmp_path: Path) -> None:
    bad = all_mutants()[mutant]
    status, reason = run(bad.target(bad.base.format(directory=tmp_path)), RULES[rule_id], 1)
    assert status in KILLED, f"{status.value}: {reason}"


def test_each_rule_is_of_level_two_and_names_a_mutant() -> None:
    assert RULES
    assert [rule.id for rule in RULES.values() if not rule.kills or rule.level != 2] == []
