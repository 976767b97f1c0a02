"""Rules of faults are of level 3; those that are provisional are reported, block nothing, and grant nothing."""

from __future__ import annotations

import pytest

from statebook_conformance.certificate import derive_level
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status

BELOW = tuple((f"rule-{level}", level, Status.PASS, False) for level in range(3))


def test_the_fault_rules_are_of_level_three_and_each_names_what_it_kills() -> None:
    rules = [rule for rule in all_rules() if rule.function.__module__.startswith("statebook_conformance.rules.faults_")]
    assert len(rules) >= 16
    assert {(rule.level, bool(rule.kills)) for rule in rules} == {(3, True)}


@pytest.mark.parametrize("status", [Status.PASS, Status.FAIL, Status.NOT_CLAIMED])
def test_a_level_with_provisional_rules_only_is_neither_granted_nor_blocked(status: Status) -> None:
    assert derive_level([*BELOW, ("rule-3", 3, status, True)]) == (2, ())


def test_a_mandatory_rule_decides_whatever_provisional_ones_say() -> None:
    provisional = ("new", 3, Status.FAIL, True)
    assert derive_level([*BELOW, ("rule-3", 3, Status.PASS, False), provisional]) == (3, ())
    assert derive_level([*BELOW, ("rule-3", 3, Status.FAIL, False), provisional]) == (2, ("rule-3",))
