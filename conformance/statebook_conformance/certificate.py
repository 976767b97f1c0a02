"""The certificate: one canonical JSON with a digest, from which anybody can derive the level again."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, cast

from statebook.capabilities import Capabilities
from statebook.codec import canonical_json
from statebook_conformance.engine import RuleResult
from statebook_conformance.rule import LEVELS, Rule
from statebook_conformance.statuses import Status

CERTIFICATE_VERSION: Final = 1
"""The version of the certificate's form."""

FILE_NAME: Final = "certificate.json"
"""Its name under `--out`."""


class CertificateError(Exception):
    """A certificate does not hold: it was changed, or says more than its rules show."""


def rule_set_digest(rules: Iterable[tuple[str, int, bool]]) -> str:
    """The digest that names an exact set of rules.

    Args:
        rules: Id, level and whether it is provisional, of each rule.

    Returns:
        SHA-256 in hex.
    """
    entries = [[name, level, provisional] for name, level, provisional in sorted(rules)]
    return hashlib.sha256(canonical_json(entries)).hexdigest()


def derive_level(entries: Iterable[tuple[str, int, Status, bool]]) -> tuple[int | None, tuple[str, ...]]:
    """Derive the level from results alone: each mandatory rule of a level and of those below must have passed.

    Args:
        entries: Rule id, level, status, and whether it is provisional.

    Returns:
        The level granted, or None for not even level 0, and the rules that block the next one.
    """
    rows = [entry for entry in entries if not entry[3]]
    granted: int | None = None
    for level in range(len(LEVELS)):
        of_level = [row for row in rows if row[1] == level]
        blockers = tuple(row[0] for row in of_level if not row[2].grants)
        if blockers:
            return granted, blockers
        if not of_level:
            return granted, ()
        granted = level
    return granted, ()


def make_certificate(
    *,
    shown_target: str,
    capabilities: Capabilities,
    rules: Sequence[Rule],
    results: Sequence[RuleResult],
    attempted: int,
    seed: int,
    canaries: Mapping[str, str],
    provider: str,
    emulated: bool,
    issued_at: str,
    seconds: float,
) -> dict[str, object]:
    """Make a certificate from the results of a run.

    Args:
        shown_target: The target without secrets.
        capabilities: What it declares.
        rules: The rules that were to be run.
        results: Their results.
        attempted: The highest level that was asked for.
        seed: The seed.
        canaries: For each mutant that was run along, the rule that killed it, or an empty text where none did.
        provider: Where the server came from.
        emulated: Whether the server is an emulator: then no level above 1 is granted.
        issued_at: UTC time of issue, ISO 8601.
        seconds: How long the run took.

    Returns:
        The certificate, with its digest.
    """
    granted, blocked_by = derive_level((r.rule, r.level, r.status, r.provisional) for r in results)
    if granted is not None and any(not killer for killer in canaries.values()):
        granted, blocked_by = None, tuple(f"canary {name} survived" for name, killer in canaries.items() if not killer)
    if emulated and granted is not None and granted > 1:
        granted, blocked_by = 1, ("the server is an emulator, which proves nothing about races",)
    content: dict[str, object] = {
        "statebook_certificate": CERTIFICATE_VERSION,
        "level": {"granted": granted, "attempted": attempted, "blocked_by": list(blocked_by)},
        "subject": {"target": shown_target, "backend": capabilities.backend},
        "claims": {
            "durability": capabilities.durability.value,
            "durability_setting": capabilities.durability_setting,
            "sharing": capabilities.sharing.value,
            "features": sorted(feature.value for feature in capabilities.features),
            "limits": {name: getattr(capabilities.limits, name) for name in capabilities.limits.__struct_fields__},
        },
        "environment": {
            "server": [list(pair) for pair in capabilities.server],
            "provider": provider,
            "emulated": emulated,
            "python": platform.python_version(),
            "implementation": sys.implementation.name,
            "system": f"{platform.system()} {platform.machine()}",
            "statebook": metadata.version("statebook"),
        },
        "rule_set": {
            "digest": rule_set_digest((rule.id, rule.level, rule.provisional) for rule in rules),
            "rules": len(rules),
        },
        "seed": seed,
        "issued_at": issued_at,
        "seconds": round(seconds, 1),
        "canaries": dict(sorted(canaries.items())),
        "rules": [
            {
                "id": result.rule,
                "level": result.level,
                "title": result.title,
                "status": result.status.value,
                "checks": result.checks,
                "evidence": dict(result.evidence),
                "reason": result.reason,
                "seconds": result.seconds,
                "histories": [list(entry) for entry in result.histories],
                "provisional": result.provisional,
            }
            for result in results
        ],
    }
    return {**content, "sha256": _digest(content)}


def _digest(content: Mapping[str, object]) -> str:
    return hashlib.sha256(canonical_json(dict(content))).hexdigest()


def write_certificate(certificate: Mapping[str, object], directory: Path) -> Path:
    """Write a certificate as canonical JSON.

    Args:
        certificate: The certificate.
        directory: Where to; created where it is absent.

    Returns:
        The file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE_NAME
    path.write_bytes(canonical_json(dict(certificate)) + b"\n")
    return path


def verify_certificate(path: Path, known: Sequence[Rule]) -> dict[str, object]:
    """Check a certificate: its digest, its rule set, and that its level follows from its rules.

    Args:
        path: The file.
        known: The rules of this release.

    Returns:
        The certificate.

    Raises:
        CertificateError: It does not hold; says why.
    """
    try:
        certificate = cast("dict[str, object]", json.loads(path.read_bytes()))
        content = {name: value for name, value in certificate.items() if name != "sha256"}
        rules = cast("list[dict[str, object]]", content["rules"])
        rows = [
            (
                str(r["id"]),
                cast("int", r["level"]),
                Status(r["status"]),
                bool(r["provisional"]),
                cast("int", r["checks"]),
            )
            for r in rules
        ]
        level = cast("dict[str, object]", content["level"])
        attempted = cast("int", level["attempted"])
        canaries = cast("dict[str, str]", content["canaries"])
        environment = cast("dict[str, object]", content["environment"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CertificateError(f"{path} is no certificate: {error}") from error
    if certificate.get("statebook_certificate") != CERTIFICATE_VERSION:
        raise CertificateError("this release reads certificates of another version only")
    if certificate.get("sha256") != _digest(content):
        raise CertificateError("the digest does not match: the certificate was changed")
    _check_rule_set(rows, known, attempted)
    granted, _ = derive_level((name, at, status, provisional) for name, at, status, provisional, _ in rows)
    if any(status is Status.PASS and not checks for _, _, status, _, checks in rows):
        raise CertificateError("a rule passed without a check")
    if granted is not None and any(not killer for killer in canaries.values()):
        granted = None
    if environment.get("emulated") and granted is not None:
        granted = min(granted, 1)
    if level["granted"] != granted:
        raise CertificateError(f"the certificate grants level {level['granted']}, its rules show {granted}")
    return certificate


def _check_rule_set(rows: Sequence[tuple[str, int, Status, bool, int]], known: Sequence[Rule], attempted: int) -> None:
    expected = {rule.id: (rule.level, rule.provisional) for rule in known if rule.level <= attempted}
    found = {name: (level, provisional) for name, level, _, provisional, _ in rows}
    if len(found) != len(rows):
        raise CertificateError("a rule stands in the certificate twice")
    missing = sorted(expected.keys() - found.keys())
    unknown = sorted(found.keys() - expected.keys())
    if missing or unknown:
        raise CertificateError(
            f"the rule set is another one than this release's: missing {missing or 'none'}, unknown {unknown or 'none'}"
        )
    changed = sorted(name for name in expected if expected[name] != found[name])
    if changed:
        raise CertificateError(f"level or standing of these rules was changed: {changed}")
