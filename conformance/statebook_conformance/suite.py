"""The object that a plugin author puts into a test module: pytest collects it, one item a rule.

No pytest plugin is installed and no class is inherited: the object is callable, is marked as a test, and wraps a
function that pytest parametrizes by rule id. `-n`, `-k` and JUnit reports work as for any test.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from statebook_conformance.engine import Engine, RuleResult, TargetUnavailable, select
from statebook_conformance.rule import LEVELS
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status


class Suite:
    """The conformance suite for one target, as a test that pytest collects.

    ::

        from statebook_conformance import Suite

        suite = Suite("acme://127.0.0.1:7777")

    Attributes:
        target: What is certified.
    """

    __test__ = False

    def __init__(self, target: str, *, level: int = 2, seed: int | None = None, only: Sequence[str] = ()) -> None:
        """Choose the rules; opens nothing.

        Args:
            target: A store URL or `module:function`: a second process can open it too.
            level: The highest level to run.
            seed: The seed of everything random. None: the environment variable STATEBOOK_SEED, or a fresh one, shown
                with each failure.
            only: Rule or contract ids; empty for all up to `level`.

        Raises:
            InvalidConfiguration: The target's name is wrong.
            ValueError: `level` is no level, or an id in `only` names no rule.
        """
        if not 0 <= level < len(LEVELS):
            raise ValueError(f"level must be 0 to {len(LEVELS) - 1}")
        chosen = {rule.id: rule for rule in select(all_rules(), level=level, only=only)}
        given = os.environ.get("STATEBOOK_SEED") if seed is None else str(seed)
        engine = Engine(target, seed=int(given) if given else None)
        self.target = engine.target.shown

        def test_rule(rule_id: str) -> None:
            try:
                result = engine.run_rule(chosen[rule_id])
            except TargetUnavailable as error:
                _settle_unavailable(str(error), missing=error.missing)
                return
            _settle(result)

        self.__test__ = True
        self.__wrapped__ = test_rule
        self.__name__ = "suite"
        self.pytestmark = [pytest.mark.parametrize("rule_id", list(chosen))]

    def __call__(self, rule_id: str) -> None:
        """Run one rule, as pytest does."""
        self.__wrapped__(rule_id)


def _settle(result: RuleResult) -> None:
    if result.status is Status.PASS:
        return
    text = explain(result)
    if result.status is Status.NOT_CLAIMED:
        pytest.skip(text)
    if result.status is Status.UNAVAILABLE:
        _settle_unavailable(text, missing=True)
        return
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
    lines.append(f"  repeat with: --rule {result.rule} --seed {result.seed}")
    return "\n".join(lines)
