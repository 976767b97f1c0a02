"""Two certificates side by side: what got worse fails, what is only other does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result
from made_results import LATER, RULES, TOMORROW, made_rule, profile_named, result_of

from statebook.capabilities import Durability, Feature, Limits, Sharing
from statebook_conformance.certificate import read_certificate
from statebook_conformance.compare import Change, Turn, compare, got_worse
from statebook_conformance.provenance import Provenance
from statebook_conformance.rule import Rule
from statebook_conformance.statuses import Status
from statebook_conformance.waivers import Waiver

Make = Callable[..., Path]


def statuses(make: Make, *status: Status, rules: tuple[Rule, ...] = RULES, **more: Any) -> dict[str, object]:
    results = [
        result_of(made, is_now, "" if is_now is Status.PASS else "why")
        for made, is_now in zip(rules, status, strict=True)
    ]
    return read_certificate(make(*results, rules=rules, **more))


def found(changes: tuple[Change, ...], what: str) -> dict[str, Turn]:
    return {change.name: change.turn for change in changes if change.what == what}


GOOD = (Status.PASS, Status.PASS, Status.PASS)


def test_equal_certificates_differ_in_nothing(certificate: Make) -> None:
    assert compare(statuses(certificate, *GOOD), statuses(certificate, *GOOD)) == ()


@pytest.mark.parametrize(
    ("old", "new", "turn"),
    [
        (Status.PASS, Status.FAIL, Turn.WORSE),
        (Status.PASS, Status.FLAKY, Turn.WORSE),
        (Status.PASS, Status.NOT_CLAIMED, Turn.WORSE),
        (Status.FAIL, Status.ERROR, Turn.WORSE),
        (Status.FAIL, Status.PASS, Turn.BETTER),
        (Status.INCONCLUSIVE, Status.PASS, Turn.BETTER),
        (Status.FLAKY, Status.FAIL, Turn.WORSE),
    ],
)
def test_a_rule_gets_worse_or_better_with_its_status(certificate: Make, old: Status, new: Status, turn: Turn) -> None:
    before = statuses(certificate, Status.PASS, old, Status.PASS)
    after = statuses(certificate, Status.PASS, new, Status.PASS)
    assert found(compare(before, after), "rule") == {"APPEND-2.second": turn}
    assert found(compare(after, before), "rule") == {
        "APPEND-2.second": Turn.BETTER if turn is Turn.WORSE else Turn.WORSE
    }


def test_a_level_that_is_lost_is_worse(certificate: Make) -> None:
    changes = compare(statuses(certificate, *GOOD), statuses(certificate, Status.PASS, Status.FAIL, Status.PASS))
    assert found(changes, "level") == {"granted": Turn.WORSE}
    none = compare(statuses(certificate, *GOOD), statuses(certificate, Status.FAIL, Status.PASS, Status.PASS))
    assert next(change.new for change in none if change.what == "level") == "none"


def test_a_waiver_repairs_nothing_and_is_named(certificate: Make) -> None:
    failed = (Status.PASS, Status.FAIL, Status.PASS)
    waiver = Waiver(rule="APPEND-2.second", reason="known", expires=TOMORROW)
    changes = compare(statuses(certificate, *failed), statuses(certificate, *failed, waivers=(waiver,)))
    assert found(changes, "rule") == {"APPEND-2.second": Turn.OTHER}
    assert found(changes, "waiver") == {"APPEND-2.second": Turn.APPEARED}
    lost = compare(statuses(certificate, *GOOD), statuses(certificate, *failed, waivers=(waiver,)))
    assert found(lost, "rule") == {"APPEND-2.second": Turn.WORSE}


def test_a_rule_of_one_release_only_is_neither_better_nor_worse(certificate: Make) -> None:
    new_rule = made_rule("APPEND-9.new", 2)
    rules = (RULES[0], RULES[1], new_rule)
    before = statuses(certificate, *GOOD, profile=profile_named("2026.1", *RULES))
    after = statuses(
        certificate, Status.PASS, Status.PASS, Status.PASS, rules=rules, profile=profile_named("2026.2", *rules)
    )
    changes = compare(before, after)
    assert found(changes, "rule") == {"APPEND-9.new": Turn.APPEARED, "APPEND-3.third": Turn.VANISHED}
    assert not got_worse(changes)
    (profile,) = [change for change in changes if change.what == "profile"]
    assert profile.old.startswith("2026.1 of statebook 0.0.9")
    assert profile.new.startswith("2026.2 of statebook 0.0.9")


def test_a_provisional_rule_makes_nothing_worse(certificate: Make) -> None:
    rules = (*RULES, LATER)
    changes = compare(
        statuses(certificate, *GOOD, Status.PASS, rules=rules), statuses(certificate, *GOOD, Status.FAIL, rules=rules)
    )
    assert found(changes, "provisional rule") == {LATER.id: Turn.OTHER}
    assert not got_worse(changes)


def test_a_lower_claim_is_worse_and_another_setting_is_only_other(certificate: Make, capabilities: Any) -> None:
    high = msgspec.structs.replace(
        capabilities,
        durability=Durability.HOST,
        sharing=Sharing.NETWORK,
        features=frozenset({Feature.PURGE}),
        durability_setting="fsync",
        limits=Limits(),
        server=(("engine", "2"),),
    )
    low = msgspec.structs.replace(
        high,
        durability=Durability.PROCESS,
        sharing=Sharing.HOST,
        features=frozenset({Feature.COLLECT}),
        durability_setting="none",
        limits=Limits(value_bytes_max=1),
        server=(("engine", "1"),),
    )
    changes = compare(statuses(certificate, *GOOD, declared=high), statuses(certificate, *GOOD, declared=low))
    assert found(changes, "claim") == {
        "durability": Turn.WORSE,
        "sharing": Turn.WORSE,
        "feature purge": Turn.WORSE,
        "feature collect": Turn.OTHER,
        "value_bytes_max": Turn.WORSE,
        "durability setting": Turn.OTHER,
    }
    assert found(changes, "environment") == {"server engine": Turn.OTHER}


def test_another_version_of_the_plugin_and_its_driver_is_only_other(certificate: Make) -> None:
    old = Provenance(distribution="acme", version="1.0", libraries=(("acme-driver", "4.1"), ("gone", "1")))
    new = Provenance(distribution="acme", version="1.1", libraries=(("acme-driver", "4.2"),))
    changes = compare(statuses(certificate, *GOOD, provenance=old), statuses(certificate, *GOOD, provenance=new))
    assert found(changes, "subject") == {"version": Turn.OTHER}
    assert found(changes, "environment") == {"library acme-driver": Turn.OTHER, "library gone": Turn.OTHER}
    assert not got_worse(changes)


def test_a_canary_that_survives_and_an_emulator_are_worse(certificate: Make) -> None:
    good = statuses(certificate, *GOOD)
    assert found(compare(good, statuses(certificate, *GOOD, canaries={"a-canary": ""})), "canary") == {
        "a-canary": Turn.WORSE
    }
    assert found(compare(good, statuses(certificate, *GOOD, emulated=True)), "environment") == {"emulated": Turn.WORSE}


def test_the_command_fails_where_something_got_worse_and_tells_it_as_json(
    command: Callable[..., Result], certificate: Make
) -> None:
    good = certificate(*map(result_of, RULES), rules=RULES)
    bad = certificate(
        result_of(RULES[0]), result_of(RULES[1], Status.FAIL, "two winners"), result_of(RULES[2]), rules=RULES
    )
    assert command("compare", good, good).exit_code == 0
    assert command("compare", bad, good).exit_code == 0
    done = command("compare", good, bad)
    assert done.exit_code == 1
    assert "rule APPEND-2.second: PASS → FAIL: two winners" in done.output
    document = json.loads(command("compare", good, bad, "--json").output)
    assert document["worse"] is True
    assert {change["name"] for change in document["changes"] if change["turn"] == "worse"} == {
        "granted",
        "APPEND-2.second",
    }


def test_a_changed_certificate_is_not_compared(command: Callable[..., Result], certificate: Make) -> None:
    good = certificate(*map(result_of, RULES), rules=RULES)
    bad = certificate(*map(result_of, RULES), rules=RULES)
    bad.write_bytes(bad.read_bytes().replace(b'"seed":7', b'"seed":8'))
    done = command("compare", good, bad)
    assert done.exit_code == 2
    assert str(bad) in "".join(done.output.split("\n"))
