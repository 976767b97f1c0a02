"""The object that a plugin author puts into a test module: pytest collects it, one item a rule.

No pytest plugin is installed and no class is inherited: the object is callable, is marked as a test, and wraps a
function that pytest parametrizes by rule id. `-n`, `-k` and JUnit reports work as for any test.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from statebook_conformance.engine import Engine, RuleResult, TargetUnavailable, select
from statebook_conformance.rule import LEVELS
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status
from statebook_conformance.waivers import apply_waivers, check_waivers, read_waivers


class Suite:
    """The conformance suite for one target, as a test that pytest collects.

    ::

        from statebook_conformance import Suite

        suite = Suite("acme://127.0.0.1:7777")

    Attributes:
        target: What is certified.
    """

    __test__ = False

    def __init__(
        self,
        target: str,
        *,
        level: int = 2,
        seed: int | None = None,
        only: Sequence[str] = (),
        waivers: str | os.PathLike[str] | None = None,
    ) -> None:
        """Choose the rules; opens nothing.

        Args:
            target: A store URL or `module:function`: a second process can open it too.
            level: The highest level to run.
            seed: The seed of everything random. None: the environment variable STATEBOOK_SEED, or a fresh one, shown
                with each failure.
            only: Rule or contract ids; empty for all up to `level`.
            waivers: A TOML file of failures that are accepted in writing: reported as expected failures.

        Raises:
            InvalidConfiguration: The target's name is wrong.
            ValueError: `level` is no level, an id in `only` names no rule, or a waiver is not in order.
        """
        if not 0 <= level < len(LEVELS):
            raise ValueError(f"level must be 0 to {len(LEVELS) - 1}")
        chosen = {rule.id: rule for rule in select(all_rules(), level=level, only=only)}
        accepted = () if waivers is None else read_waivers(Path(waivers))
        check_waivers(accepted, (rule.id for rule in all_rules()), datetime.now(UTC).date())
        given = os.environ.get("STATEBOOK_SEED") if seed is None else str(seed)
        engine = Engine(target, seed=int(given) if given else None)
        self.target = engine.target.shown

        def test_rule(rule_id: str) -> None:
            try:
                result = engine.run_rule(chosen[rule_id])
            except TargetUnavailable as error:
                _settle_unavailable(str(error), missing=error.missing)
                return
            settle(apply_waivers((result,), accepted)[0])

        self.__test__ = True
        self.__wrapped__ = test_rule
        self.__name__ = "suite"
        self.pytestmark = [pytest.mark.parametrize("rule_id", list(chosen))]

    def __call__(self, rule_id: str) -> None:
        """Run one rule, as pytest does."""
        self.__wrapped__(rule_id)


def settle(result: RuleResult) -> None:
    """Tell pytest what became of a rule: passed, skipped, expected to fail, or failed."""
    if result.status is Status.PASS:
        return
    text = explain(result)
    if result.status is Status.NOT_CLAIMED:
        pytest.skip(text)
    if result.status is Status.UNAVAILABLE:
        _settle_unavailable(text, missing=True)
        return
    if result.status is Status.WAIVED:
        pytest.xfail(text)
    if result.provisional:
        pytest.xfail(f"provisional, blocks nothing: {text}")
    pytest.fail(text, pytrace=False)


def _settle_unavailable(text: str, *, missing: bool) -> None:
    """A missing service is an error in CI, and a skip that says so elsewhere."""
    if missing and not os.environ.get("CI"):
        pytest.skip(f"UNAVAILABLE: {text}")
    pytest.fail(f"UNAVAILABLE: {text}", pytrace=False)


def explain(result: RuleResult) -> str:
    """What a person needs to know of a result that is no pass: promise, facts, usual cause, how to repeat it."""
    lines = [f"{result.status.name} {result.rule}: {result.title}", f"  {result.reason}"]
    if result.hint:
        lines.append(f"  usual cause: {result.hint}")
    lines.append(f"  repeat with: {result.again}")
    return "\n".join(lines)
