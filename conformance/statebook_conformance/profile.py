"""A profile names an exact rule set: which rules, at which level, which of them provisional; its digest says so.

A release freezes its rules as a file in `profiles/`. A certificate carries the name and the digest of the profile that
it was made with, so that a later release still knows which rules it had to show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Final, cast

import msgspec

from statebook.codec import canonical_json
from statebook_conformance.rule import LEVELS, Rule

PROFILE_VERSION: Final = 1
"""The version of the file's form."""

UNRELEASED: Final = "unreleased"
"""The name of a rule set that no release has frozen."""


class ProfileError(Exception):
    """A file is no profile, or its digest does not match."""


class ProfileRule(msgspec.Struct, frozen=True, order=True):
    """One rule of a profile.

    Attributes:
        id: The rule.
        level: Its level.
        provisional: Whether it is reported only, and blocks no level.
    """

    id: str
    level: int
    provisional: bool


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """An exact rule set with a name.

    Attributes:
        name: Such as `2026.1`, or `unreleased`.
        release: The version of statebook that it belongs to.
        rules: The rules, sorted by id.
    """

    name: str
    release: str
    rules: tuple[ProfileRule, ...]

    @property
    def digest(self) -> str:
        """What names the rule set exactly: SHA-256 in hex."""
        return rule_set_digest(self.rules)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many rules each level has, provisional ones too."""
        return tuple(sum(rule.level == level for rule in self.rules) for level in range(len(LEVELS)))

    @property
    def provisional_levels(self) -> tuple[int, ...]:
        """The levels whose rules are provisional, all of them: reported, and not granted yet."""
        levels = sorted({rule.level for rule in self.rules})
        return tuple(level for level in levels if all(rule.provisional for rule in self.rules if rule.level == level))

    def up_to(self, level: int) -> dict[str, ProfileRule]:
        """The rules of a level and of those below, by id."""
        return {rule.id: rule for rule in self.rules if rule.level <= level}


def rule_set_digest(rules: Iterable[ProfileRule]) -> str:
    """The digest that names an exact set of rules.

    Args:
        rules: The rules, in any order.

    Returns:
        SHA-256 in hex.
    """
    entries = [[rule.id, rule.level, rule.provisional] for rule in sorted(rules)]
    return hashlib.sha256(canonical_json(entries)).hexdigest()


def profile_rules(rules: Iterable[Rule]) -> tuple[ProfileRule, ...]:
    """What a profile says of rules, sorted by id."""
    return tuple(sorted(ProfileRule(rule.id, rule.level, rule.provisional) for rule in rules))


def profile_of(rules: Iterable[Rule], frozen: Sequence[Profile] | None = None) -> Profile:
    """The profile of a rule set: a frozen one where it is exactly that, else an unreleased one.

    Args:
        rules: All rules of this release.
        frozen: The frozen profiles; None for those that the package carries.

    Returns:
        The profile.
    """
    present = profile_rules(rules)
    digest = rule_set_digest(present)
    for profile in frozen_profiles() if frozen is None else frozen:
        if profile.digest == digest:
            return profile
    return Profile(name=UNRELEASED, release=metadata.version("statebook"), rules=present)


def frozen_profiles() -> tuple[Profile, ...]:
    """The profiles that releases have frozen, by name.

    Raises:
        ProfileError: A file of the package is damaged.
    """
    folder = resources.files("statebook_conformance.profiles")
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".json")), key=lambda file: file.name)
    return tuple(load_profile(file.read_bytes(), file.name) for file in files)


def too_early(current: Profile, frozen: Sequence[Profile]) -> tuple[str, ...]:
    """Rules that count though no release has shown them: a new rule is provisional for one minor release.

    Args:
        current: The profile of this release.
        frozen: The profiles of earlier releases, by name.

    Returns:
        The ids of rules that are not provisional and that no frozen profile has; none where nothing is frozen yet.
    """
    if not frozen:
        return ()
    shown = {rule.id for profile in frozen for rule in profile.rules}
    return tuple(rule.id for rule in current.rules if not rule.provisional and rule.id not in shown)


def dump_profile(profile: Profile) -> bytes:
    """A profile as it is kept in a file: JSON with the rule ids of each level."""
    levels = {str(n): [rule.id for rule in profile.rules if rule.level == n] for n in range(len(LEVELS))}
    content = {
        "statebook_profile": PROFILE_VERSION,
        "name": profile.name,
        "release": profile.release,
        "digest": profile.digest,
        "levels": levels,
        "provisional": [rule.id for rule in profile.rules if rule.provisional],
    }
    return json.dumps(content, indent=1).encode() + b"\n"


def load_profile(data: bytes, name: str) -> Profile:
    """Read a profile, and check that its digest is that of its rules.

    Args:
        data: The file's content.
        name: What to call the file in an error.

    Returns:
        The profile.

    Raises:
        ProfileError: It is none, or was changed.
    """
    try:
        content = cast("Mapping[str, object]", json.loads(data))
        version = content["statebook_profile"]
        provisional = frozenset(cast("Sequence[str]", content["provisional"]))
        rules = tuple(
            sorted(
                ProfileRule(rule_id, int(level), rule_id in provisional)
                for level, ids in cast("Mapping[str, Sequence[str]]", content["levels"]).items()
                for rule_id in ids
            )
        )
        profile = Profile(name=str(content["name"]), release=str(content["release"]), rules=rules)
        digest = content["digest"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfileError(f"{name} is no profile: {error}") from error
    if version != PROFILE_VERSION:
        raise ProfileError(f"{name} is a profile of another version; this release reads version {PROFILE_VERSION}")
    if digest != profile.digest:
        raise ProfileError(f"the digest of {name} does not match: the profile was changed")
    return profile


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile to a file.

    Args:
        profile: The profile.
        path: The file.

    Raises:
        OSError: It cannot be written.
    """
    path.write_bytes(dump_profile(profile))
