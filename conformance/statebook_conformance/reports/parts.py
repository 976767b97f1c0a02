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

    @property
    def chapter(self) -> str:
        """The chapter of the contract, such as `APPEND`."""
        return self.id.partition("-")[0]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate in typed parts.

    Attributes:
        backend: The backend's name.
        target: The target without secrets.
        granted: The level granted, or None.
        attempted: The level attempted.
        blocked_by: What blocks the next level.
        claims: What the backend declares, as text.
        environment: Where it was run, as text.
        canaries: Known-bad variants and what killed them.
        rules: All rules.
        seed: The seed.
        issued_at: When, ISO 8601.
        seconds: How long.
        sha256: The digest of the certificate.
    """

    backend: str
    target: str
    granted: int | None
    attempted: int
    blocked_by: tuple[str, ...]
    claims: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    canaries: tuple[tuple[str, str], ...]
    rules: tuple[RuleRow, ...]
    seed: int
    issued_at: str
    seconds: float
    sha256: str

    @property
    def level_name(self) -> str:
        """The level in words."""
        return "no level" if self.granted is None else f"level {self.granted} · {LEVELS[self.granted]}"

    @property
    def chapters(self) -> tuple[str, ...]:
        """The chapters, in the order of the rules."""
        return tuple(sorted({rule.chapter for rule in self.rules}, key=chapter_place))

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels that have rules, ascending."""
        return tuple(sorted({rule.level for rule in self.rules}))


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
    return Parts(
        backend=subject["backend"],
        target=subject["target"],
        granted=cast("int | None", level["granted"]),
        attempted=cast("int", level["attempted"]),
        blocked_by=tuple(cast("Sequence[str]", level["blocked_by"])),
        claims=tuple((name, _text(value)) for name, value in claims.items()),
        environment=(
            *((name, _text(value)) for name, value in environment.items()),
            *((f"server: {pair[0]}", pair[1]) for pair in server),
        ),
        canaries=tuple(cast("Mapping[str, str]", certificate["canaries"]).items()),
        rules=tuple(_row(entry) for entry in cast("Sequence[Mapping[str, object]]", certificate["rules"])),
        seed=cast("int", certificate["seed"]),
        issued_at=str(certificate["issued_at"]),
        seconds=float(cast("float", certificate["seconds"])),
        sha256=str(certificate["sha256"]),
    )


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
    )


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={item}" for name, item in cast("Mapping[str, object]", value).items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in cast("Sequence[object]", value)) or "none"
    return str(value)
