"""A profile names an exact rule set, and a certificate is checked against the profile that it was made with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from made_results import LATER, RULES, made_rule, profile_named, result_of

from statebook_conformance.certificate import CertificateError, read_certificate, verify_certificate
from statebook_conformance.profile import (
    UNRELEASED,
    ProfileError,
    dump_profile,
    frozen_profiles,
    load_profile,
    profile_of,
    too_early,
)
from statebook_conformance.reports.parts import parts_of
from statebook_conformance.rules import all_rules


def test_a_profile_comes_back_from_its_file_as_it_was() -> None:
    profile = profile_named("2026.1", *RULES, LATER)
    assert load_profile(dump_profile(profile), "a file") == profile
    assert profile.counts == (1, 1, 1, 1, 0)
    assert profile.provisional_levels == (3,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"APPEND-2.second"', '"APPEND-2.other"'),
        ('"APPEND-3.third"', '"APPEND-3.moved"'),
        ('"provisional": []', '"provisional": ["APPEND-1.first"]'),
        ('"statebook_profile": 1', '"statebook_profile": 2'),
        ('"levels"', '"level"'),
    ],
)
def test_a_changed_profile_is_refused(old: str, new: str) -> None:
    text = dump_profile(profile_named("2026.1", *RULES)).decode()
    assert old in text
    with pytest.raises(ProfileError, match=r"2026\.json"):
        load_profile(text.replace(old, new).encode(), "2026.json")


def test_the_digest_names_ids_levels_and_standing_and_not_their_order() -> None:
    base = profile_named("x", *RULES).digest
    assert profile_named("y", *reversed(RULES)).digest == base
    assert profile_named("x", *RULES[:2]).digest != base
    assert profile_named("x", *RULES[:2], made_rule("APPEND-3.third", 1)).digest != base
    assert profile_named("x", *RULES[:2], made_rule("APPEND-3.third", 2, provisional=True)).digest != base


def test_each_frozen_profile_of_the_package_holds() -> None:
    names = [profile.name for profile in frozen_profiles()]
    assert len(set(names)) == len(names)
    assert UNRELEASED not in names


def test_a_rule_set_that_no_release_has_frozen_is_called_unreleased() -> None:
    frozen = (profile_named("2026.1", *RULES),)
    assert profile_of(RULES, frozen).name == "2026.1"
    assert profile_of((*RULES, LATER), frozen).name == UNRELEASED


def test_a_certificate_of_an_older_profile_is_checked_against_that_profile(certificate: Callable[..., Path]) -> None:
    older = profile_named("2026.1", *RULES)
    path = certificate(*map(result_of, RULES), rules=RULES, profile=older)
    now = (*RULES, made_rule("APPEND-9.new", 1))
    assert verify_certificate(path, now, (older,))["level"] == {"granted": 2, "attempted": 2, "blocked_by": []}
    with pytest.raises(CertificateError) as refused:
        verify_certificate(path, now, ())
    for said in ("profile 2026.1 of statebook 0.0.9", "APPEND-9.new", "Unknown: none", "conformance compare"):
        assert said in str(refused.value)


def test_a_certificate_that_lacks_a_rule_of_its_own_profile_does_not_hold(certificate: Callable[..., Path]) -> None:
    older = profile_named("2026.1", *RULES)
    path = certificate(*map(result_of, RULES[:2]), rules=RULES[:2], profile=older)
    assert read_certificate(path)
    with pytest.raises(CertificateError, match=r"APPEND-3\.third"):
        verify_certificate(path, RULES[:2], (older,))


def test_a_level_of_provisional_rules_only_is_said_to_be_so(certificate: Callable[..., Path]) -> None:
    rules = (*RULES, LATER)
    path = certificate(*map(result_of, rules), rules=rules)
    parts = parts_of(read_certificate(path))
    assert parts.granted == 2
    assert [note.partition(":")[0] for note in parts.notes] == ["Level 3 (Fault-tolerant) has provisional rules only"]


def test_a_profile_is_frozen_under_a_name_and_then_names_this_release(
    command: Callable[..., Result], tmp_path: Path
) -> None:
    file = tmp_path / "2099.1.json"
    assert command("profile", "--save", file, "--name", "2099.1").exit_code == 0
    frozen = load_profile(file.read_bytes(), "2099.1.json")
    assert profile_of(all_rules(), (frozen,)).name == "2099.1"
    assert sum(len(ids) for ids in json.loads(file.read_bytes())["levels"].values()) == len(all_rules())
    assert command("profile", "--save", file).exit_code == 2


def test_a_new_rule_is_provisional_for_one_release() -> None:
    frozen = (profile_named("2026.1", *RULES),)
    new = made_rule("APPEND-9.new", 1)
    soon = made_rule("APPEND-9.soon", 1, provisional=True)
    assert too_early(profile_named("x", *RULES, new, soon), frozen) == ("APPEND-9.new",)
    assert too_early(profile_named("x", *RULES, new), (*frozen, profile_named("2026.2", *RULES, new))) == ()
    assert too_early(profile_named("x", new), ()) == ()


def test_no_rule_of_this_release_counts_before_it_was_shown() -> None:
    assert too_early(profile_of(all_rules()), frozen_profiles()) == ()
