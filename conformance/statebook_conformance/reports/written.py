"""All files that a certification leaves beside its certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from statebook_conformance.reports.machine import badge, ctrf, junit, shields
from statebook_conformance.reports.page import RuleText, page
from statebook_conformance.reports.parts import parts_of
from statebook_conformance.rule import Rule


def write_reports(certificate: Mapping[str, object], rules: Sequence[Rule], directory: Path) -> Path:
    """Write `report.html`, `junit.xml`, `ctrf.json`, `badge.svg` and `badge.json`.

    Args:
        certificate: The certificate.
        rules: The rules, for their texts.
        directory: Where to; must exist.

    Returns:
        The page.
    """
    parts = parts_of(certificate)
    (directory / "junit.xml").write_bytes(junit(parts))
    (directory / "ctrf.json").write_bytes(ctrf(parts))
    (directory / "badge.svg").write_bytes(badge(parts))
    (directory / "badge.json").write_bytes(shields(parts))
    path = directory / "report.html"
    texts = {rule.id: RuleText(rule.text, rule.hint) for rule in rules}
    path.write_text(page(parts, texts, directory / "histories"), encoding="utf-8")
    return path
