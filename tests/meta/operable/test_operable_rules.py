"""The rules of level 4 on the embedded backends, and what each of them must have."""

from __future__ import annotations

from statebook_conformance.rules import all_rules

RULES = [rule for rule in all_rules() if rule.level == 4]
PROVISIONAL: set[str] = set()


def test_each_rule_kills_something_and_blocks_its_level() -> None:
    assert len(RULES) >= 11
    for rule in RULES:
        assert rule.kills, rule.id
        assert rule.floor, rule.id
        assert rule.provisional == (rule.id in PROVISIONAL), rule.id
