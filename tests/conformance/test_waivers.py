"""Waivers: a failure that is accepted in writing fails no run, raises no level, and ends on its day."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result
from made_results import BROKEN, RULES, TODAY, TOMORROW, result_of

from statebook.codec import canonical_json
from statebook_conformance.certificate import CertificateError, read_certificate, verify_certificate
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status
from statebook_conformance.waivers import Waiver, WaiverError, apply_waivers, check_waivers, read_waivers, unused

SECOND = Waiver(rule="APPEND-2.second", reason="the driver is being replaced", expires=TOMORROW)


def test_a_waived_failure_fails_no_run_and_raises_no_level(command: Callable[..., Result], tmp_path: Path) -> None:
    words = (BROKEN, "--level", 0, "--seed", 1)
    assert command(*words, "--out", tmp_path / "without").exit_code == 1
    done = command(*words, "--out", tmp_path, "--waive", "ERR-5", "--reason", "known", "--until", TOMORROW)
    assert done.exit_code == 0, done.output
    content = verify_certificate(tmp_path / "certificate.json", all_rules())
    before = verify_certificate(tmp_path / "without" / "certificate.json", all_rules())
    assert content["level"] == before["level"]
    assert content["waivers"] == [{"rule": "ERR-5", "reason": "known", "expires": str(TOMORROW)}]
    status = {rule["id"]: rule["status"] for rule in content["rules"]}  # type: ignore[union-attr, index]
    assert status["ERR-5"] == "waived"
    case = ET.parse(tmp_path / "junit.xml").getroot().find("testcase[@name='ERR-5']/skipped")
    assert case is not None
    assert "WAIVED" in str(case.get("message"))
    tests = json.loads((tmp_path / "ctrf.json").read_bytes())["results"]["tests"]
    assert next(test["rawStatus"] for test in tests if test["name"] == "ERR-5") == "waived"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "WAIVED" in page
    assert f"until {TOMORROW}" in page
    assert "raises no level" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--waive", "ERR-99", "--reason", "r", "--until", TOMORROW), "ERR-99"),
        (("--waive", "ERR-5", "--reason", "r", "--until", TODAY - timedelta(days=1)), "ERR-5 expired"),
        (("--waive", "ERR-5", "--reason", "  ", "--until", TOMORROW), "ERR-5 has no reason"),
        (("--waive", "ERR-5", "--until", TOMORROW), "one --reason"),
        (("--waive", "ERR-5", "--reason", "r", "--until", "soon"), "YYYY-MM-DD"),
        (("--waive", "ERR-5", "--reason", "r", "--until", TOMORROW) * 2, "ERR-5 is waived twice"),
    ],
)
def test_a_waiver_that_is_not_in_order_is_a_wrong_command(
    command: Callable[..., Result], words: tuple[object, ...], said: str
) -> None:
    done = command(BROKEN, "--level", 0, *words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_waivers_come_from_a_file_too(command: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "waivers.toml"
    file.write_text(f'[[waiver]]\nrule = "ERR-5"\nreason = "known"\nexpires = {TOMORROW}\n', encoding="utf-8")
    assert read_waivers(file) == (Waiver(rule="ERR-5", reason="known", expires=TOMORROW),)
    assert command(BROKEN, "--level", 0, "--waivers", file, "--no-canaries").exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[waiver]]\nrule = "ERR-5"\nexpires = 2099-01-01\n', "reason"),
        ('[[waiver]]\nrule = "ERR-5"\nreason = "r"\nexpires = 2099-01-01\nuntill = 1\n', "untill"),
        ('[[waivers]]\nrule = "ERR-5"\n', "waivers"),
        ("waiver = 3", "waiver"),
        ("[[waiver", "cannot be read"),
    ],
)
def test_a_file_of_waivers_that_is_not_in_order_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "waivers.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(WaiverError, match=said):
        read_waivers(file)


def test_only_a_finding_about_the_backend_can_be_waived() -> None:
    for status in Status:
        (result,) = apply_waivers([result_of(RULES[1], status, "why")], [SECOND])
        waived = status in (Status.FAIL, Status.FLAKY, Status.INCONCLUSIVE)
        assert (result.status is Status.WAIVED) is (waived or status is Status.WAIVED)
        if waived:
            assert status.name in result.reason
            assert SECOND.reason in result.reason


def test_a_waiver_that_was_not_needed_is_named() -> None:
    results = apply_waivers([result_of(RULES[0]), result_of(RULES[1], Status.FAIL, "why")], [SECOND])
    first = Waiver(rule=RULES[0].id, reason="r", expires=TOMORROW)
    third = Waiver(rule=RULES[2].id, reason="r", expires=TOMORROW)
    assert unused(results, [first, SECOND, third]) == ((first, "PASS"), (third, "not run"))


def test_a_waiver_holds_on_its_last_day() -> None:
    today = Waiver(rule="APPEND-2.second", reason="r", expires=TODAY)
    check_waivers([today], ["APPEND-2.second"], TODAY)
    with pytest.raises(WaiverError, match="expired"):
        check_waivers([today], ["APPEND-2.second"], TOMORROW)


def test_a_certificate_with_a_waived_rule_needs_its_waiver(certificate: Callable[..., Path]) -> None:
    failed = result_of(RULES[1], Status.FAIL, "why")
    path = certificate(result_of(RULES[0]), failed, result_of(RULES[2]), rules=RULES, waivers=(SECOND,))
    content = read_certificate(path)
    assert content["level"] == {"granted": 0, "attempted": 2, "blocked_by": ["APPEND-2.second"]}
    for waivers in ([], [{"rule": SECOND.rule, "reason": "r", "expires": "2020-01-01"}]):
        path.write_bytes(signed({**content, "waivers": waivers}))
        with pytest.raises(CertificateError, match=r"without a valid waiver: APPEND-2\.second"):
            read_certificate(path)


def signed(content: dict[str, object]) -> bytes:
    """A certificate with another content and the right digest: what somebody could write by hand."""
    import hashlib

    bare = {name: value for name, value in content.items() if name != "sha256"}
    return canonical_json({**bare, "sha256": hashlib.sha256(canonical_json(bare)).hexdigest()})
