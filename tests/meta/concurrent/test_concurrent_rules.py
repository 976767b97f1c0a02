"""The concurrent rules of journals pass over a good store with any seed.

That they fail their mutants is shown by the self-check.
"""

from __future__ import annotations

import pytest

from statebook_conformance.engine import Engine
from statebook_conformance.rule import Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status

MODULES = ("journal_concurrent", "takeover", "readers", "groups", "maintenance_concurrent")
RULES = {rule.id: rule for rule in all_rules() if rule.function.__module__.rpartition(".")[2] in MODULES}


def run(target: str, rule: Rule, seed: int) -> tuple[Status, str]:
    result = Engine(target, seed=seed, reruns=0).run_rule(rule)
    return result.status, result.reason


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rule_id", RULES)
def test_a_good_store_passes_with_any_seed(rule_id: str, seed: int) -> None:
    status, reason = run("memory://concurrent", RULES[rule_id], seed)
    assert status in (Status.PASS, Status.NOT_CLAIMED), reason


def test_each_rule_is_of_level_two_and_names_a_mutant() -> None:
    assert RULES
    assert [rule.id for rule in RULES.values() if not rule.kills or rule.level != 2] == []
