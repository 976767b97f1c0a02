"""Rules of system calls, clocks and cancellation pass over good stores, and fail each mutant that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from statebook_conformance.engine import Engine
from statebook_conformance.mutants.gallery import all_mutants
from statebook_conformance.mutants.selfcheck import KILLED
from statebook_conformance.rule import Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status

MODULES = ("faults_trace", "faults_seen", "faults_clock", "faults_cancelled")
RULES = {rule.id: rule for rule in all_rules() if rule.function.__module__.rpartition(".")[2] in MODULES}
NAMED = [(rule.id, name) for rule in RULES.values() for name in rule.kills]
NEED_FILES = ("DUR-1.synced", "DUR-1.seen", "SETTLE-4.fsync-error", "ERR-2.no-space")


def run(target: str, rule: Rule, seed: int) -> tuple[Status, str]:
    result = Engine(target, seed=seed, reruns=0).run_rule(rule)
    return result.status, result.reason


@pytest.mark.parametrize("base", ["file://{directory}/root", "sqlite:///{directory}/store.db"])
@pytest.mark.parametrize("rule_id", RULES)
def test_a_good_store_passes(rule_id: str, base: str, tmp_path: Path) -> None:
    status, reason = run(base.format(directory=tmp_path), RULES[rule_id], 1)
    assert status is Status.PASS, reason


@pytest.mark.parametrize("rule_id", RULES)
def test_a_store_in_memory_passes_or_claims_no_disk(rule_id: str) -> None:
    status, reason = run("memory://traced", RULES[rule_id], 1)
    assert status is (Status.NOT_CLAIMED if rule_id in NEED_FILES else Status.PASS), reason


@pytest.mark.parametrize(
    "target", ["file://{directory}/root?durability=process", "sqlite:///{directory}/s.db?synchronous=normal"]
)
def test_a_store_that_claims_no_more_than_its_process_is_not_held_to_flushes(target: str, tmp_path: Path) -> None:
    for rule_id in ("DUR-1.synced", "DUR-1.seen", "SETTLE-4.fsync-error"):
        status, reason = run(target.format(directory=tmp_path), RULES[rule_id], 1)
        assert status is Status.NOT_CLAIMED, reason


@pytest.mark.parametrize(("rule_id", "mutant"), NAMED)
def test_a_rule_fails_each_mutant_that_it_names(rule_id: str, mutant: str, tmp_path: Path) -> None:
    bad = all_mutants()[mutant]
    status, reason = run(bad.target(bad.base.format(directory=tmp_path)), RULES[rule_id], 1)
    assert status in KILLED, f"{status.value}: {reason}"


def test_each_rule_is_of_level_three_and_names_mutants_and_evidence() -> None:
    assert set(NEED_FILES) < set(RULES)
    assert [rule.id for rule in RULES.values() if not rule.kills or not rule.floor or rule.level != 3] == []
