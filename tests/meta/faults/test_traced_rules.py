"""Rules of system calls, clocks and cancellation ask nothing of a store that claims nothing.

That they pass over good stores is shown by each certification, that they fail their mutants by the self-check.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from statebook_conformance.engine import Engine
from statebook_conformance.rule import Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status

MODULES = ("faults_trace", "faults_seen", "faults_clock", "faults_cancelled")
RULES = {rule.id: rule for rule in all_rules() if rule.function.__module__.rpartition(".")[2] in MODULES}
NEED_FILES = ("DUR-1.synced", "DUR-1.seen", "SETTLE-4.fsync-error", "ERR-2.no-space")


def run(target: str, rule: Rule, seed: int) -> tuple[Status, str]:
    result = Engine(target, seed=seed, reruns=0).run_rule(rule)
    return result.status, result.reason


@pytest.mark.parametrize(
    "target", ["file://{directory}/root?durability=process", "sqlite:///{directory}/s.db?synchronous=normal"]
)
def test_a_store_that_claims_no_more_than_its_process_is_not_held_to_flushes(target: str, tmp_path: Path) -> None:
    for rule_id in ("DUR-1.synced", "DUR-1.seen", "SETTLE-4.fsync-error"):
        status, reason = run(target.format(directory=tmp_path), RULES[rule_id], 1)
        assert status is Status.NOT_CLAIMED, reason


def test_each_rule_is_of_level_three_and_names_mutants_and_evidence() -> None:
    assert set(NEED_FILES) < set(RULES)
    assert [rule.id for rule in RULES.values() if not rule.kills or not rule.floor or rule.level != 3] == []
