"""The rules of level 4 on the embedded backends, and what each of them must have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statebook_conformance.engine import Engine
from statebook_conformance.rule import Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status

RULES = [rule for rule in all_rules() if rule.level == 4]
PROVISIONAL: set[str] = set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize("base", ["memory://operable", "sqlite:///{}/store.db"])
def test_an_embedded_backend_keeps_each_rule(rule: Rule, base: str, tmp_path: Path) -> None:
    result = Engine(base.format(tmp_path), seed=1, reruns=0).run_rule(rule)
    if result.status is Status.UNAVAILABLE and not os.environ.get("CI"):
        pytest.skip(result.reason)
    keeps_nothing = base.startswith("memory") and rule.id in ("FORMAT-4", "HEAD-5.budget-of-syscalls")
    assert result.status is (Status.NOT_CLAIMED if keeps_nothing else Status.PASS), result.reason


def test_each_rule_kills_something_and_blocks_its_level() -> None:
    assert len(RULES) >= 11
    for rule in RULES:
        assert rule.kills, rule.id
        assert rule.floor, rule.id
        assert rule.provisional == (rule.id in PROVISIONAL), rule.id
