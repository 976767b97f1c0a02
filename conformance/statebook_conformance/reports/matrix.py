"""The matrix of several certificates: what each backend was granted and declares, in Markdown and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from statebook_conformance.reports.page import document, mark
from statebook_conformance.reports.parts import Parts
from statebook_conformance.rule import chapter_place
from statebook_conformance.statuses import Status, worst

_CLAIMS = ("durability", "sharing", "features")


def matrix_rows(certificates: Sequence[Parts]) -> list[tuple[str, ...]]:
    """The matrix as rows of text, the first one the head.

    Args:
        certificates: The certificates, one a column.

    Returns:
        The rows.
    """
    rows: list[tuple[str, ...]] = [("", *(parts.backend for parts in certificates))]
    rows.append(("level", *(parts.level_name for parts in certificates)))
    rows.append(("profile", *(parts.profile.partition(",")[0] for parts in certificates)))
    rows.append(("server", *(_provider(parts) for parts in certificates)))
    rows += [(name, *(dict(parts.claims).get(name, "") for parts in certificates)) for name in _CLAIMS]
    chapters = sorted({chapter for parts in certificates for chapter in parts.chapters}, key=chapter_place)
    rows += [(chapter, *(_chapter(parts, chapter) for parts in certificates)) for chapter in chapters]
    if any(parts.provisional for parts in certificates):
        rows.append(("provisional", *(_provisional(parts) for parts in certificates)))
    if any(parts.waivers for parts in certificates):
        rows.append(("waived", *(", ".join(w.rule for w in parts.waivers) or "–" for parts in certificates)))
    rows.append(("checks", *(f"{sum(rule.checks for rule in parts.rules):,}" for parts in certificates)))
    return rows


def _provider(parts: Parts) -> str:
    return dict(parts.environment).get("provider", "").removeprefix("local ")


def _chapter(parts: Parts, chapter: str) -> str:
    rules = [rule for rule in parts.rules if rule.chapter == chapter and not rule.provisional]
    if not rules:
        return "–"
    passed = sum(rule.status is Status.PASS for rule in rules)
    status = worst(rule.status for rule in rules)
    return f"{passed} PASS" if status is Status.PASS else f"{passed} of {len(rules)} PASS, {status.name}"


def _provisional(parts: Parts) -> str:
    """Provisional rules apart: they block nothing, whatever their status."""
    passed = sum(rule.status is Status.PASS for rule in parts.provisional)
    return f"{passed} of {len(parts.provisional)} pass" if parts.provisional else "–"


def matrix_markdown(certificates: Sequence[Parts]) -> str:
    """The matrix as a Markdown table."""
    rows = matrix_rows(certificates)
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    lines += ["| " + " | ".join(row) + " |" for row in rows[1:]]
    return "\n".join(lines) + "\n"


def matrix_page(certificates: Sequence[Parts]) -> str:
    """The matrix as one self-contained page."""
    head, *rest = matrix_rows(certificates)
    cells = "".join(f"<th>{escape(text)}</th>" for text in head)
    rows = "".join(
        f"<tr><th>{escape(row[0])}</th>" + "".join(f"<td>{_shown(text)}</td>" for text in row[1:]) + "</tr>"
        for row in rest
    )
    body = [
        "<h1>statebook: what each backend is certified for</h1>",
        f"<div class=scroll><table class=wide><tr>{cells}</tr>{rows}</table></div>",
    ]
    return document("statebook: certified backends", body, kind="full")


def _shown(text: str) -> str:
    for status in Status:
        if text.endswith(status.name):
            return mark(status, text)
    return escape(text)
