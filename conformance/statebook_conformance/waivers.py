"""Waivers: a rule that is known to fail, with the reason in writing and the day on which that ends.

A waiver changes what a run reports and its exit status. It never raises a level: the level is what it would be without.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Final, cast

import msgspec

from statebook_conformance.engine import RuleResult
from statebook_conformance.statuses import Status

WAIVABLE: Final = frozenset({Status.FAIL, Status.FLAKY, Status.INCONCLUSIVE})
"""What can be waived: what says something about the backend. A rule that broke, or that could not run, cannot be."""


class WaiverError(ValueError):
    """A waiver is not in order: no reason, expired, an unknown rule, or the same rule twice."""


class Waiver(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's written word that a failing rule is accepted for a while.

    Attributes:
        rule: The rule's id.
        reason: Why it is accepted.
        expires: The last day on which it holds.
    """

    rule: str
    reason: str
    expires: date


def read_waivers(path: Path) -> tuple[Waiver, ...]:
    """Read a file of waivers: TOML with one `[[waiver]]` each, that has `rule`, `reason` and `expires`.

    Args:
        path: The file.

    Returns:
        The waivers, not checked yet.

    Raises:
        WaiverError: It cannot be read, or an entry lacks something.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WaiverError(f"{path} cannot be read: {error}") from error
    unknown = sorted(content.keys() - {"waiver"})
    entries = content.get("waiver", [])
    if unknown or not isinstance(entries, list):
        raise WaiverError(f"{path}: write each waiver as [[waiver]]; unknown: {', '.join(unknown) or 'waiver'}")
    return tuple(_entry(path, number, entry) for number, entry in enumerate(cast("list[object]", entries), 1))


def _entry(path: Path, number: int, entry: object) -> Waiver:
    fields = cast("Mapping[str, object]", entry) if isinstance(entry, dict) else {}
    rule = str(fields.get("rule", ""))
    where = f"{path}: waiver {number}" + (f" ({rule})" if rule else "")
    wrong = sorted(fields.keys() ^ {"rule", "reason", "expires"})
    if wrong:
        raise WaiverError(f"{where} needs exactly rule, reason and expires; missing or unknown: {', '.join(wrong)}")
    return make_waiver(rule, str(fields["reason"]), str(fields["expires"]))


def make_waiver(rule: str, reason: str, expires: str) -> Waiver:
    """Make a waiver from text.

    Args:
        rule: The rule's id.
        reason: Why the failure is accepted.
        expires: The last day on which it holds, `YYYY-MM-DD`.

    Returns:
        The waiver, not checked yet.

    Raises:
        WaiverError: The day is none.
    """
    try:
        return Waiver(rule=rule, reason=reason.strip(), expires=date.fromisoformat(expires))
    except ValueError as error:
        raise WaiverError(f"the waiver of {rule} expires on {expires!r}; write a day as YYYY-MM-DD") from error


def check_waivers(waivers: Sequence[Waiver], known: Iterable[str], today: date) -> None:
    """Refuse waivers that are not in order.

    Args:
        waivers: The waivers.
        known: The ids of all rules.
        today: The day of the run, in UTC.

    Raises:
        WaiverError: One has no reason, has expired, names no rule, or names a rule for the second time.
    """
    ids = frozenset(known)
    seen: set[str] = set()
    for waiver in waivers:
        if waiver.rule not in ids:
            raise WaiverError(
                f"a waiver names {waiver.rule!r}, which is no rule's full id; see `statebook conformance list`"
            )
        if waiver.rule in seen:
            raise WaiverError(f"{waiver.rule} is waived twice")
        if not waiver.reason:
            raise WaiverError(f"the waiver of {waiver.rule} has no reason; say in writing why the failure is accepted")
        if waiver.expires < today:
            raise WaiverError(f"the waiver of {waiver.rule} expired on {waiver.expires}; repair the rule or renew it")
        seen.add(waiver.rule)


def apply_waivers(results: Sequence[RuleResult], waivers: Sequence[Waiver]) -> tuple[RuleResult, ...]:
    """Mark what is waived.

    Args:
        results: The results of a run.
        waivers: The waivers, checked.

    Returns:
        The same results; where a waived rule failed, its status is `WAIVED`, and the reason says until when and why.
    """
    by_rule = {waiver.rule: waiver for waiver in waivers}
    return tuple(_waived(result, by_rule.get(result.rule)) for result in results)


def _waived(result: RuleResult, waiver: Waiver | None) -> RuleResult:
    if waiver is None or result.status not in WAIVABLE:
        return result
    reason = f"{result.status.name}, waived until {waiver.expires}: {waiver.reason}. {result.reason}"
    return msgspec.structs.replace(result, status=Status.WAIVED, reason=reason)


def unused(results: Sequence[RuleResult], waivers: Sequence[Waiver]) -> tuple[tuple[Waiver, str], ...]:
    """Waivers that were not needed, with why.

    Args:
        results: The results, after `apply_waivers`.
        waivers: The waivers.

    Returns:
        Each waiver whose rule is not `WAIVED`, and what became of the rule.
    """
    status = {result.rule: result.status for result in results}
    return tuple(
        (waiver, status[waiver.rule].name if waiver.rule in status else "not run")
        for waiver in waivers
        if status.get(waiver.rule) is not Status.WAIVED
    )
