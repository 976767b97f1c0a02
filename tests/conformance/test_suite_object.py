"""The suite object under pytest: a waived or provisional failure is expected, any other one fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from made_results import BROKEN, TODAY, TOMORROW, made_rule, result_of

from statebook_conformance.statuses import Status
from statebook_conformance.suite import Suite, settle
from statebook_conformance.waivers import WaiverError

BROKEN_SUITE = """
from statebook_conformance import Suite

suite = Suite({target!r}, level=0, seed=1, waivers={waivers!r})
"""


def waivers(folder: Path, day: object) -> Path:
    file = folder / "waivers.toml"
    file.write_text(f'[[waiver]]\nrule = "ERR-5"\nreason = "issue 123"\nexpires = {day}\n', encoding="utf-8")
    return file


def collected(folder: Path, file: Path | None) -> subprocess.CompletedProcess[str]:
    module = folder / "test_mine.py"
    text = BROKEN_SUITE.format(target=BROKEN, waivers=None if file is None else str(file))
    module.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rx", "-W", "error", "-p", "no:cacheprovider", str(module)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
        check=False,
    )


def test_a_waived_failure_is_an_expected_one(tmp_path: Path) -> None:
    without = collected(tmp_path, None)
    assert without.returncode == 1
    assert "1 failed" in without.stdout
    done = collected(tmp_path, waivers(tmp_path, TOMORROW))
    assert done.returncode == 0, done.stdout
    assert "1 xfailed" in done.stdout
    assert "issue 123" in done.stdout


def test_an_expired_waiver_is_no_suite(tmp_path: Path) -> None:
    file = waivers(tmp_path, TODAY.replace(year=TODAY.year - 1, day=1))
    with pytest.raises(WaiverError, match="ERR-5 expired"):
        Suite("memory://x", level=0, waivers=file)


def test_a_provisional_failure_is_expected_and_any_other_one_fails() -> None:
    provisional = made_rule("APPEND-9.soon", 1, provisional=True)
    with pytest.raises(pytest.xfail.Exception, match="provisional, blocks nothing"):
        settle(result_of(provisional, Status.FAIL, "why"))
    with pytest.raises(pytest.fail.Exception, match="why"):
        settle(result_of(made_rule("APPEND-9.now", 1), Status.FAIL, "why"))
    settle(result_of(provisional))


def test_without_pytest_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import statebook_conformance

    monkeypatch.delitem(sys.modules, "statebook_conformance.suite")
    monkeypatch.setitem(sys.modules, "pytest", None)
    with pytest.raises(ImportError, match=r"pip install 'statebook\[conformance\]'"):
        _ = statebook_conformance.Suite
