"""The engine, levels, certificates and reports: what a stranger relies on."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from statebook_conformance.certificate import CertificateError, derive_level, verify_certificate
from statebook_conformance.certify import Order, certify_target
from statebook_conformance.context import Context, Inconclusive
from statebook_conformance.engine import Engine, select
from statebook_conformance.rule import Rule, rule
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status, worst


def _rule(body: Callable[[Context], None], **options: object) -> Rule:
    body.__doc__ = "A promise."
    return rule("APPEND-1.made-up", level=1, hint="a hint", **options)(body)  # type: ignore[arg-type]


def _run(body: Callable[[Context], None], **options: object) -> Status:
    return Engine("memory://engine", seed=1, rounds=2).run_rule(_rule(body, **options)).status


def test_a_rule_without_a_check_is_vacuous() -> None:
    assert _run(lambda _: None) is Status.VACUOUS


def test_a_broken_promise_fails_and_a_kept_one_passes() -> None:
    assert _run(lambda ctx: ctx.check(False, "it does not hold")) is Status.FAIL
    assert _run(lambda ctx: ctx.check(True, "it holds")) is Status.PASS


def test_a_rule_below_its_floor_is_inconclusive_after_the_last_round() -> None:
    def shy(ctx: Context) -> None:
        ctx.check(True, "it holds")
        ctx.saw("conflicts", ctx.effort)

    assert _run(shy, floor={"conflicts": 2}) is Status.PASS
    assert _run(shy, floor={"conflicts": 5}) is Status.INCONCLUSIVE


def test_a_doubt_is_inconclusive_and_an_error_of_the_suite_is_an_error() -> None:
    def doubtful(ctx: Context) -> None:
        raise Inconclusive("nothing was seen")

    assert _run(doubtful) is Status.INCONCLUSIVE


def test_a_rule_that_fails_only_sometimes_is_flaky() -> None:
    answers = iter((False, True, True))
    assert _run(lambda ctx: ctx.check(next(answers), "the first time")) is Status.FLAKY


def test_a_hung_call_is_a_failure_that_says_so() -> None:
    import threading

    never = threading.Event()
    result = Engine("memory://engine", seed=1, reruns=0).run_rule(
        _rule(lambda ctx: ctx.check(never.wait(30), "late"), timeout_s=0.2)
    )
    assert result.status is Status.FAIL
    assert "did not come back" in result.reason
    never.set()


def test_a_group_is_never_greener_than_its_worst_member() -> None:
    assert worst([Status.PASS, Status.NOT_CLAIMED, Status.FLAKY]) is Status.FLAKY
    assert worst([]) is Status.VACUOUS


def test_levels_follow_from_the_results_alone() -> None:
    rows = [("a", 0, Status.PASS, False), ("b", 1, Status.NOT_CLAIMED, False), ("c", 2, Status.WAIVED, False)]
    assert derive_level(rows) == (1, ("c",))
    assert derive_level([("a", 0, Status.FAIL, False)]) == (None, ("a",))
    assert derive_level([("a", 0, Status.PASS, False), ("b", 1, Status.FAIL, True)]) == (0, ())


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ValueError, match="APPEND-99"):
        select(all_rules(), level=4, only=("APPEND-99",))


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("certificate")
    order = Order(
        target="memory://certified",
        level=0,
        seed=7,
        out=out,
        only=(),
        provider="a test",
        emulated=False,
        canaries=True,
    )
    assert certify_target(order, Console(file=io.StringIO())) == 0
    return out


def test_a_certificate_holds_and_its_reports_tell_the_same(certified: Path) -> None:
    content = verify_certificate(certified / "certificate.json", all_rules())
    rules = content["rules"]
    assert isinstance(rules, list)
    suite = ET.parse(certified / "junit.xml").getroot()
    assert suite.get("tests") == str(len(rules))
    assert suite.get("failures") == "0"
    assert len(json.loads((certified / "ctrf.json").read_bytes())["results"]["tests"]) == len(rules)
    assert "level 0" in (certified / "badge.svg").read_text(encoding="utf-8")
    page = (certified / "report.html").read_text(encoding="utf-8")
    assert "ERR-5" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"granted":0', b'"granted":2'),
        (b'"status":"not_claimed"', b'"status":"pass"'),
        (b'"seed":7', b'"seed":8'),
    ],
)
def test_a_changed_certificate_does_not_hold(certified: Path, tmp_path: Path, old: bytes, new: bytes) -> None:
    data = (certified / "certificate.json").read_bytes()
    assert old in data
    changed = tmp_path / "certificate.json"
    changed.write_bytes(data.replace(old, new))
    with pytest.raises(CertificateError):
        verify_certificate(changed, all_rules())


def test_pytest_collects_the_suite_object_one_item_a_rule(tmp_path: Path) -> None:
    module = tmp_path / "test_mine.py"
    module.write_text(
        "from statebook_conformance import Suite\nsuite = Suite('memory://collected', level=0)\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(module)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
    assert "skipped" in done.stdout
