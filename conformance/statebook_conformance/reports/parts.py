"""The certificate as plain, checked values: what every report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from statebook_conformance.rule import LEVELS, chapter_place
from statebook_conformance.statuses import Status


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a certificate.

    Attributes:
        id: The rule.
        level: Its level.
        title: Its promise.
        status: What became of it.
        checks: How many checks were counted.
        evidence: What was seen.
        reason: Why it is not PASS, or an empty text.
        seconds: How long it took.
        histories: Checker and digest of each judged history.
        provisional: Whether it is reported only, and blocks no level.
    """

    id: str
    level: int
    title: str
    status: Status
    checks: int
    evidence: tuple[tuple[str, int], ...]
    reason: str
    seconds: float
    histories: tuple[tuple[str, str], ...]
    provisional: bool = False

    @property
    def chapter(self) -> str:
        """The chapter of the contract, such as `APPEND`."""
        return self.id.partition("-")[0]


class WaiverRow(msgspec.Struct, frozen=True):
    """A waiver of a certificate.

    Attributes:
        rule: The rule.
        reason: Why its failure is accepted.
        expires: The last day on which that holds.
    """

    rule: str
    reason: str
    expires: str


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate in typed parts.

    Attributes:
        backend: The backend's name.
        target: The target without secrets.
        source: The distribution that brings it and its version, or an empty text.
        granted: The level granted, or None.
        attempted: The level attempted.
        blocked_by: What blocks the next level.
        claims: What the backend declares, as text.
        environment: Where it was run, as text.
        canaries: Known-bad variants and what killed them.
        rules: All rules.
        seed: The seed.
        effort: How many times the work of an ordinary run each rule did.
        issued_at: When, ISO 8601.
        seconds: How long.
        sha256: The digest of the certificate.
        profile: The rule set, in words.
        provisional_levels: Levels that were attempted and have provisional rules only.
        waivers: Failures that were accepted in writing.
    """

    backend: str
    target: str
    source: str
    granted: int | None
    attempted: int
    blocked_by: tuple[str, ...]
    claims: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    canaries: tuple[tuple[str, str], ...]
    rules: tuple[RuleRow, ...]
    seed: int
    effort: int
    issued_at: str
    seconds: float
    sha256: str
    profile: str
    provisional_levels: tuple[int, ...]
    waivers: tuple[WaiverRow, ...]

    @property
    def level_name(self) -> str:
        """The level in words."""
        return "no level" if self.granted is None else f"level {self.granted} · {LEVELS[self.granted]}"

    @property
    def failed(self) -> tuple[RuleRow, ...]:
        """The rules that block a level, worst first; provisional ones are not among them."""
        bad = [rule for rule in self.rules if not rule.status.grants and not rule.provisional]
        return tuple(sorted(bad, key=lambda rule: rule.status.rank))

    @property
    def provisional(self) -> tuple[RuleRow, ...]:
        """The provisional rules."""
        return tuple(rule for rule in self.rules if rule.provisional)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about levels that cannot be granted yet."""
        return tuple(provisional_sentence(level) for level in self.provisional_levels)

    @property
    def chapters(self) -> tuple[str, ...]:
        """The chapters, in the order of the rules."""
        return tuple(sorted({rule.chapter for rule in self.rules}, key=chapter_place))

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels that have rules, ascending."""
        return tuple(sorted({rule.level for rule in self.rules}))


def provisional_sentence(level: int) -> str:
    """The sentence about a level that has provisional rules only."""
    return (
        f"Level {level} ({LEVELS[level]}) has provisional rules only: they are reported, block nothing, and the level "
        "cannot be granted yet."
    )


def parts_of(certificate: Mapping[str, object]) -> Parts:
    """Take a certificate apart.

    Args:
        certificate: A certificate of this release, as `make_certificate` or `verify_certificate` gives it.

    Returns:
        Its parts.
    """
    level = cast("Mapping[str, object]", certificate["level"])
    subject = cast("Mapping[str, str]", certificate["subject"])
    claims = cast("Mapping[str, object]", certificate["claims"])
    environment = dict(cast("Mapping[str, object]", certificate["environment"]))
    server = cast("Sequence[Sequence[str]]", environment.pop("server"))
    libraries = cast("Sequence[Sequence[str]]", environment.pop("libraries", ()))
    rules = tuple(_row(entry) for entry in cast("Sequence[Mapping[str, object]]", certificate["rules"]))
    return Parts(
        backend=subject["backend"],
        target=subject["target"],
        source=f"{subject.get('distribution', '')} {subject.get('version', '')}".strip(),
        granted=cast("int | None", level["granted"]),
        attempted=cast("int", level["attempted"]),
        blocked_by=tuple(cast("Sequence[str]", level["blocked_by"])),
        claims=tuple((name, _text(value)) for name, value in claims.items()),
        environment=(
            *((name, _text(value)) for name, value in environment.items()),
            *((f"server: {pair[0]}", pair[1]) for pair in server),
            *((f"library: {pair[0]}", pair[1]) for pair in libraries),
        ),
        canaries=tuple(cast("Mapping[str, str]", certificate["canaries"]).items()),
        rules=rules,
        seed=cast("int", certificate["seed"]),
        effort=cast("int", certificate.get("effort", 1)),
        issued_at=str(certificate["issued_at"]),
        seconds=float(cast("float", certificate["seconds"])),
        sha256=str(certificate["sha256"]),
        profile=_profile(certificate),
        provisional_levels=tuple(
            number
            for number in sorted({rule.level for rule in rules})
            if all(rule.provisional for rule in rules if rule.level == number)
        ),
        waivers=tuple(
            WaiverRow(waiver["rule"], waiver["reason"], waiver["expires"])
            for waiver in cast("Sequence[Mapping[str, str]]", certificate.get("waivers", []))
        ),
    )


def _profile(certificate: Mapping[str, object]) -> str:
    stated = cast("Mapping[str, object] | None", certificate.get("profile"))
    rule_set = cast("Mapping[str, object]", certificate["rule_set"])
    if stated is None:
        return f"not named, {rule_set['rules']} rules"
    return f"{stated['name']} of statebook {stated['release']}, {rule_set['rules']} rules run"


def _row(entry: Mapping[str, object]) -> RuleRow:
    return RuleRow(
        id=str(entry["id"]),
        level=cast("int", entry["level"]),
        title=str(entry["title"]),
        status=Status(entry["status"]),
        checks=cast("int", entry["checks"]),
        evidence=tuple(cast("Mapping[str, int]", entry["evidence"]).items()),
        reason=str(entry["reason"]),
        seconds=float(cast("float", entry["seconds"])),
        histories=tuple((h[0], h[1]) for h in cast("Sequence[Sequence[str]]", entry["histories"])),
        provisional=bool(entry["provisional"]),
    )


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={item}" for name, item in cast("Mapping[str, object]", value).items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in cast("Sequence[object]", value)) or "none"
    return str(value)
