"""A certificate says which distribution brings the backend, and which libraries it has loaded."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import Result

from statebook_conformance.certificate import read_certificate
from statebook_conformance.engine import Engine
from statebook_conformance.provenance import Provenance, provenance_of
from statebook_conformance.reports.parts import parts_of


def test_a_scheme_is_brought_by_its_plugins_distribution() -> None:
    assert Engine("memory://x").capabilities.backend == "memory"
    found = provenance_of("memory://x")
    assert (found.distribution, found.version) == ("statebook", metadata.version("statebook"))
    libraries = dict(found.libraries)
    assert libraries["msgspec"] == metadata.version("msgspec")


@pytest.mark.parametrize(
    ("target", "name"),
    [("msgspec.json:decode", "msgspec"), ("click:group?base=memory://x", "click"), ("nowhere://x", ""), ("no:no", "")],
)
def test_a_function_is_brought_by_the_distribution_of_its_module(target: str, name: str) -> None:
    version = metadata.version(name) if name else ""
    found = provenance_of(target)
    assert (found.distribution, found.version) == (name, version)
    if not name:
        assert found == Provenance()


def test_the_certificate_and_its_reports_say_it(command: Callable[..., Result], tmp_path: Path) -> None:
    assert command("memory://x", "--level", 0, "--out", tmp_path).exit_code == 0
    content = read_certificate(tmp_path / "certificate.json")
    version = metadata.version("statebook")
    assert content["subject"] == {
        "target": "memory://x",
        "backend": "memory",
        "distribution": "statebook",
        "version": version,
    }
    assert content["effort"] == 1
    parts = parts_of(content)
    assert parts.source == f"statebook {version}"
    assert ("library: msgspec", metadata.version("msgspec")) in parts.environment
    assert f"statebook {version} · <code>memory://x" in (tmp_path / "report.html").read_text(encoding="utf-8")
