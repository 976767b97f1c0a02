"""Reports for machines: JUnit XML, CTRF JSON, a badge for shields and as SVG."""

from __future__ import annotations

import json
from typing import Final
from xml.etree import ElementTree as ET

from statebook_conformance.reports.parts import Parts, RuleRow
from statebook_conformance.statuses import Status

_CTRF_STATUS: Final = {
    Status.PASS: "passed",
    Status.NOT_CLAIMED: "skipped",
    Status.WAIVED: "skipped",
    Status.UNAVAILABLE: "pending",
    Status.INCONCLUSIVE: "other",
}
_COLOURS: Final = {None: "#c0392b", 0: "#d68910", 1: "#b7950b", 2: "#2e7d32", 3: "#1b5e20", 4: "#0d47a1"}


def junit(parts: Parts) -> bytes:
    """JUnit XML: one test case a rule; what is not claimed or waived is skipped, what broke in the suite is an error.

    A provisional rule that did not pass is skipped too: it blocks nothing.

    Args:
        parts: The certificate.

    Returns:
        The document in UTF-8.
    """
    failures = [rule for rule in parts.rules if _junit_kind(rule) == "failure"]
    errors = [rule for rule in parts.rules if _junit_kind(rule) == "error"]
    skipped = [rule for rule in parts.rules if _junit_kind(rule) == "skipped"]
    suite = ET.Element(
        "testsuite",
        name=f"statebook.{parts.backend}",
        tests=str(len(parts.rules)),
        failures=str(len(failures)),
        errors=str(len(errors)),
        skipped=str(len(skipped)),
        time=f"{parts.seconds:.3f}",
        timestamp=parts.issued_at,
    )
    for rule in parts.rules:
        case = ET.SubElement(
            suite, "testcase", classname=f"statebook.{rule.chapter}", name=rule.id, time=f"{rule.seconds:.3f}"
        )
        kind = _junit_kind(rule)
        if kind is not None:
            standing = "provisional, " if rule.provisional else ""
            mark = ET.SubElement(case, kind, message=_xml_text(f"{standing}{rule.status.name}: {rule.title}"))
            mark.text = _xml_text(rule.reason)
    document: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document


def _junit_kind(rule: RuleRow) -> str | None:
    if rule.status is Status.PASS:
        return None
    if rule.provisional or rule.status in (Status.NOT_CLAIMED, Status.WAIVED):
        return "skipped"
    return "error" if rule.status in (Status.ERROR, Status.VACUOUS, Status.UNAVAILABLE) else "failure"


def _xml_text(text: str) -> str:
    """The text without the control characters that XML 1.0 cannot hold."""
    return "".join(
        c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff" else "?" for c in text
    )


def ctrf(parts: Parts) -> bytes:
    """The Common Test Report Format: one test a rule.

    Args:
        parts: The certificate.

    Returns:
        The document.
    """
    tests = [
        {
            "name": rule.id,
            "status": _ctrf_status(rule),
            "duration": round(rule.seconds * 1_000),
            "message": rule.reason,
            "suite": f"level {rule.level}",
            "rawStatus": rule.status.value,
            "flaky": rule.status is Status.FLAKY,
            "tags": ["provisional"] if rule.provisional else [],
        }
        for rule in parts.rules
    ]
    counts = {
        name: sum(test["status"] == name for test in tests)
        for name in ("passed", "failed", "skipped", "pending", "other")
    }
    report = {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {
            "tool": {"name": "statebook conformance"},
            "summary": {"tests": len(tests), **counts, "start": 0, "stop": round(parts.seconds * 1_000)},
            "tests": tests,
            "environment": {**dict(parts.environment), "profile": parts.profile},
        },
    }
    return json.dumps(report, indent=1).encode()


def _ctrf_status(rule: RuleRow) -> str:
    status = _CTRF_STATUS.get(rule.status, "failed")
    return "other" if rule.provisional and status == "failed" else status


def shields(parts: Parts) -> bytes:
    """The JSON that a shields.io endpoint badge reads.

    Args:
        parts: The certificate.

    Returns:
        The document.
    """
    return json.dumps(
        {
            "schemaVersion": 1,
            "label": "statebook",
            "message": parts.level_name,
            "color": _COLOURS[parts.granted].removeprefix("#"),
        }
    ).encode()


def badge(parts: Parts) -> bytes:
    """The badge as SVG.

    Args:
        parts: The certificate.

    Returns:
        The picture.
    """
    label, message = "statebook", parts.level_name
    left, right = 10 + 7 * len(label), 10 + 7 * len(message)
    colour = _COLOURS[parts.granted]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{label}: {message}"><title>{label}: {message}</title>'
        f'<rect rx="3" width="{left + right}" height="20" fill="#444"/>'
        f'<rect rx="3" x="{left}" width="{right}" height="20" fill="{colour}"/><rect x="{left}" width="4" height="20" '
        f'fill="{colour}"/><g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" '
        f'font-size="11"><text x="{left / 2}" y="14">{label}</text><text x="{left + right / 2}" y="14">{message}</text>'
        "</g></svg>"
    ).encode()
