"""Made-up rules, results and profiles, for tests of what is made from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from statebook.capabilities import Capabilities
from statebook_conformance.engine import RuleResult
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.gallery import all_mutants
from statebook_conformance.mutants.wrapping import BadJournal, wrapping
from statebook_conformance.profile import Profile, ProfileRule
from statebook_conformance.rule import Rule, rule
from statebook_conformance.statuses import Status
from statebook_conformance.target import Target

BROKEN = all_mutants()["works-after-close"].target("memory://broken")
"""A backend that fails ERR-5, a rule of level 0."""

TODAY = datetime.now(UTC).date()
TOMORROW = TODAY + timedelta(days=1)


def made_rule(rule_id: str, level: int, *, provisional: bool = False) -> Rule:
    def body(ctx: Any) -> None:
        """A promise."""

    return rule(rule_id, level=level, hint="a hint", provisional=provisional)(body)


def result_of(made: Rule, status: Status = Status.PASS, reason: str = "") -> RuleResult:
    return RuleResult(
        rule=made.id,
        level=made.level,
        title=made.title,
        status=status,
        checks=3 if status is Status.PASS else 0,
        evidence=(("conflicts", 2),),
        reason=reason,
        hint=made.hint,
        seed=7,
        seconds=0.5,
        provisional=made.provisional,
    )


def profile_named(name: str, *rules: Rule, release: str = "0.0.9") -> Profile:
    found = tuple(sorted(ProfileRule(made.id, made.level, made.provisional) for made in rules))
    return Profile(name=name, release=release, rules=found)


RULES = (made_rule("APPEND-1.first", 0), made_rule("APPEND-2.second", 1), made_rule("APPEND-3.third", 2))
LATER = made_rule("APPEND-4.later", 3, provisional=True)


class NarrowJournal(BadJournal):
    """A journal store that takes one request of a group, which is its right."""

    @property
    def capabilities(self) -> Capabilities:
        """Declare so."""
        declared = super().capabilities
        return msgspec.structs.replace(declared, limits=msgspec.structs.replace(declared.limits, group_batches_max=1))


def open_narrow(namespace: str) -> ForwardBackend:
    """Open a good backend with a narrow limit: `made_results:open_narrow`."""
    return wrapping(journal=NarrowJournal)(Target("memory://narrow").backend(namespace))
