"""The certificate: one canonical JSON with a digest, from which anybody can derive the level again."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Final, cast

import msgspec

from statebook.capabilities import Capabilities
from statebook.codec import canonical_json
from statebook_conformance.engine import RuleResult
from statebook_conformance.profile import Profile, frozen_profiles, profile_of, profile_rules, rule_set_digest
from statebook_conformance.provenance import Provenance
from statebook_conformance.rule import LEVELS, Rule
from statebook_conformance.statuses import Status
from statebook_conformance.waivers import Waiver

CERTIFICATE_VERSION: Final = 1
"""The version of the certificate's form."""

FILE_NAME: Final = "certificate.json"
"""Its name under `--out`."""


class CertificateError(Exception):
    """A certificate does not hold: it was changed, or says more than its rules show."""


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
    profile: Profile,
    waivers: Sequence[Waiver] = (),
    provenance: Provenance | None = None,
    effort: int = 1,
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
        profile: The rule set of this release.
        waivers: Failures that were accepted in writing; they raise no level.
        provenance: What brings the backend, or None where that is not known.
        effort: How many times the work of an ordinary run each rule did.

    Returns:
        The certificate, with its digest.
    """
    granted, blocked_by = _granted(results, canaries, emulated=emulated)
    source = provenance or Provenance()
    content: dict[str, object] = {
        "statebook_certificate": CERTIFICATE_VERSION,
        "level": {"granted": granted, "attempted": attempted, "blocked_by": list(blocked_by)},
        "subject": {
            "target": shown_target,
            "backend": capabilities.backend,
            "distribution": source.distribution,
            "version": source.version,
        },
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
            "libraries": [list(pair) for pair in source.libraries],
        },
        "profile": {
            "name": profile.name,
            "release": profile.release,
            "digest": profile.digest,
            "rules": list(profile.counts),
            "provisional_levels": list(profile.provisional_levels),
        },
        "rule_set": {"digest": rule_set_digest(profile_rules(rules)), "rules": len(rules)},
        "seed": seed,
        "effort": effort,
        "issued_at": issued_at,
        "seconds": round(seconds, 1),
        "canaries": dict(sorted(canaries.items())),
        "waivers": [{"rule": w.rule, "reason": w.reason, "expires": w.expires.isoformat()} for w in waivers],
        "rules": [_entry(result) for result in results],
    }
    return {**content, "sha256": _digest(content)}


def _granted(
    results: Sequence[RuleResult], canaries: Mapping[str, str], *, emulated: bool
) -> tuple[int | None, tuple[str, ...]]:
    granted, blocked_by = derive_level((r.rule, r.level, r.status, r.provisional) for r in results)
    if granted is not None and any(not killer for killer in canaries.values()):
        return None, tuple(f"canary {name} survived" for name, killer in canaries.items() if not killer)
    if emulated and granted is not None and granted > 1:
        return 1, ("the server is an emulator, which proves nothing about races",)
    return granted, blocked_by


def _entry(result: RuleResult) -> dict[str, object]:
    return {
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


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What counts of a rule in a certificate.

    Attributes:
        id: The rule.
        level: Its level.
        status: What became of it.
        provisional: Whether it blocks no level.
        checks: How many checks were counted.
    """

    id: str
    level: int
    status: Status
    provisional: bool
    checks: int


def read_certificate(path: Path) -> dict[str, object]:
    """Read a certificate of any rule set: its digest matches, and its level follows from its rules.

    Args:
        path: The file.

    Returns:
        The certificate.

    Raises:
        CertificateError: It does not hold; says why.
    """
    try:
        certificate = cast("dict[str, object]", json.loads(path.read_bytes()))
        if certificate.get("statebook_certificate") != CERTIFICATE_VERSION:
            raise CertificateError(
                f"{path} is no certificate of version {CERTIFICATE_VERSION}, which this release reads"
            )
        content = {name: value for name, value in certificate.items() if name != "sha256"}
        if certificate.get("sha256") != _digest(content):
            raise CertificateError(f"the digest of {path} does not match: the certificate was changed")
        _check_level(certificate, _rows(certificate))
        _check_waivers(certificate)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CertificateError(f"{path} is no certificate: {error}") from error
    return certificate


def verify_certificate(path: Path, known: Sequence[Rule], frozen: Sequence[Profile] | None = None) -> dict[str, object]:
    """Check a certificate: its digest, its rule set, and that its level follows from its rules.

    Args:
        path: The file.
        known: The rules of this release.
        frozen: The profiles of releases; None for those that the package carries.

    Returns:
        The certificate. Its profile may be an older one that is known; see `profile_note`.

    Raises:
        CertificateError: It does not hold, or was made with a rule set that is not known here; says why.
    """
    certificate = read_certificate(path)
    profiles = frozen_profiles() if frozen is None else frozen
    _check_rule_set(certificate, _rows(certificate), profile_of(known, profiles), profiles)
    return certificate


def profile_note(certificate: Mapping[str, object], known: Sequence[Rule]) -> str:
    """Which profile a certificate was made with, and whether it is the one of this release.

    Args:
        certificate: The certificate.
        known: The rules of this release.

    Returns:
        A few words.
    """
    current = profile_of(known)
    stated = cast("Mapping[str, object] | None", certificate.get("profile"))
    if stated is None or stated["digest"] == current.digest:
        return f"{_named(stated)}, the rule set of this release"
    return f"{_named(stated)}; this release certifies with {_described(current)}"


def _rows(certificate: Mapping[str, object]) -> tuple[Row, ...]:
    return tuple(
        Row(
            id=str(entry["id"]),
            level=cast("int", entry["level"]),
            status=Status(entry["status"]),
            provisional=bool(entry["provisional"]),
            checks=cast("int", entry["checks"]),
        )
        for entry in cast("Sequence[Mapping[str, object]]", certificate["rules"])
    )


def _check_level(certificate: Mapping[str, object], rows: Sequence[Row]) -> None:
    level = cast("Mapping[str, object]", certificate["level"])
    canaries = cast("Mapping[str, str]", certificate["canaries"])
    environment = cast("Mapping[str, object]", certificate["environment"])
    if len({row.id for row in rows}) != len(rows):
        raise CertificateError("a rule stands in the certificate twice")
    if any(row.status is Status.PASS and not row.checks for row in rows):
        raise CertificateError("a rule passed without a check")
    granted, _ = derive_level((row.id, row.level, row.status, row.provisional) for row in rows)
    if granted is not None and any(not killer for killer in canaries.values()):
        granted = None
    if environment.get("emulated") and granted is not None:
        granted = min(granted, 1)
    if level["granted"] != granted:
        raise CertificateError(f"the certificate grants level {level['granted']}, its rules show {granted}")


def _check_waivers(certificate: Mapping[str, object]) -> None:
    waivers = cast("Sequence[Mapping[str, str]]", certificate.get("waivers", []))
    day = date.fromisoformat(str(certificate["issued_at"])[:10])
    valid = {waiver["rule"] for waiver in waivers if waiver["reason"] and date.fromisoformat(waiver["expires"]) >= day}
    bare = sorted({row.id for row in _rows(certificate) if row.status is Status.WAIVED} - valid)
    if bare:
        raise CertificateError(f"waived without a valid waiver: {', '.join(bare)}")


def _check_rule_set(
    certificate: Mapping[str, object], rows: Sequence[Row], current: Profile, frozen: Sequence[Profile]
) -> None:
    attempted = cast("int", cast("Mapping[str, object]", certificate["level"])["attempted"])
    stated = cast("Mapping[str, object] | None", certificate.get("profile"))
    digest = current.digest if stated is None else stated["digest"]
    profile = next((known for known in (current, *frozen) if known.digest == digest), None)
    expected = (current if profile is None else profile).up_to(attempted)
    found = {row.id: row for row in rows}
    missing = sorted(expected.keys() - found.keys())
    unknown = sorted(found.keys() - expected.keys())
    if missing or unknown:
        made = _named(stated) if stated else f"statebook {_release(certificate)}, whose certificates named no profile"
        raise CertificateError(
            f"the rule set is another one than this release's: it was made with {made}; this release has "
            f"{_described(current)}. Missing: {_some(missing)}. Unknown: {_some(unknown)}. "
            f"{_remedy(certificate)}"
        )
    changed = sorted(
        name
        for name, rule in expected.items()
        if (rule.level, rule.provisional) != (found[name].level, found[name].provisional)
    )
    if changed:
        raise CertificateError(f"level or standing of these rules was changed: {', '.join(changed)}")


def _remedy(certificate: Mapping[str, object]) -> str:
    compare = "`statebook conformance compare` shows it beside another one"
    made = _release(certificate)
    return compare if made == metadata.version("statebook") else f"verify it with statebook {made}; {compare}"


def _release(certificate: Mapping[str, object]) -> str:
    return str(cast("Mapping[str, object]", certificate["environment"]).get("statebook", "of another release"))


def _named(stated: Mapping[str, object] | None) -> str:
    if stated is None:
        return "no named profile"
    return f"profile {stated['name']} of statebook {stated['release']} (digest {str(stated['digest'])[:12]})"


def _described(profile: Profile) -> str:
    return f"profile {profile.name} of statebook {profile.release} (digest {profile.digest[:12]})"


def _some(names: Sequence[str], limit: int = 8) -> str:
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest if names else "none"
