"""What a certification tells GitHub: a summary of the job in Markdown, annotations, outputs of the step.

Elsewhere the same summary is a file, so that any CI can show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from statebook_conformance.engine import RuleResult
from statebook_conformance.exits import EXIT_FAILED, EXIT_SUITE, EXIT_UNAVAILABLE, EXIT_USAGE
from statebook_conformance.reports.parts import Parts
from statebook_conformance.statuses import Status

SUMMARY_NAME: Final = "github-summary.md"
"""The summary's file where there is no job of GitHub's."""

ANNOTATIONS_MAX: Final = 10
"""How many annotations of one kind GitHub shows for a step; the rest is in the summary."""

_REASON_MAX: Final = 300
_VERDICTS: Final[Mapping[int, str]] = {
    0: "certified as far as it was attempted",
    EXIT_FAILED: "a rule failed",
    EXIT_USAGE: "the command or the target is wrong",
    EXIT_UNAVAILABLE: "a service, tool or driver is missing",
    EXIT_SUITE: "the suite itself broke",
}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has to tell.

    Attributes:
        target: The target without secrets.
        code: The exit status.
        results: What became of the rules; empty where none ran.
        parts: The certificate, or None where there is none.
        reason: Why no rule ran, or an empty text.
    """

    target: str
    code: int
    results: tuple[RuleResult, ...] = ()
    parts: Parts | None = None
    reason: str = ""


def tell_github(told: Told, out: Path | None, environment: Mapping[str, str]) -> tuple[Path, tuple[str, ...]]:
    """Write the summary and the step's outputs.

    Args:
        told: What there is to tell.
        out: The directory of the certificate, or None: the summary's place where GitHub names none.
        environment: The environment; `GITHUB_STEP_SUMMARY` and `GITHUB_OUTPUT` are files that are appended to.

    Returns:
        The summary's file, and the annotations: lines for the standard output.

    Raises:
        OSError: A file cannot be written.
    """
    given = environment.get("GITHUB_STEP_SUMMARY")
    path = Path(given) if given else (out or Path()) / SUMMARY_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a" if given else "w", encoding="utf-8") as file:
        file.write(summary(told))
    outputs = environment.get("GITHUB_OUTPUT")
    if outputs:
        granted = told.parts.granted if told.parts is not None else None
        with Path(outputs).open("a", encoding="utf-8") as file:
            file.write(f"level={'none' if granted is None else granted}\nstatus={told.code}\n")
    return path, annotation_lines(told)


# ------------------------------------------------------------------------------------------------------- annotations


def annotation_lines(told: Told) -> tuple[str, ...]:
    """The annotations: an error for each rule that failed, a warning for what is waived, provisional or not done.

    Args:
        told: What there is to tell.

    Returns:
        Lines of workflow commands, at most `ANNOTATIONS_MAX` of each kind.
    """
    if told.reason:
        kind = "warning" if told.code == EXIT_UNAVAILABLE else "error"
        return (_command(kind, f"statebook conformance {told.target}", f"{_VERDICTS[told.code]}: {told.reason}"),)
    lines: list[str] = []
    for kind in ("error", "warning"):
        of_kind = [result for result in told.results if _kind(result) == kind]
        lines += [_annotation(kind, result) for result in of_kind[:ANNOTATIONS_MAX]]
    survived = [] if told.parts is None else [name for name, killer in told.parts.canaries if not killer]
    lines += [_command("error", f"canary {name}", "survived: the suite does not bite here") for name in survived]
    return tuple(lines)


def _kind(result: RuleResult) -> str:
    if result.status.grants:
        return ""
    warned = result.provisional or result.status in (Status.WAIVED, Status.UNAVAILABLE)
    return "warning" if warned else "error"


def _annotation(kind: str, result: RuleResult) -> str:
    standing = " (provisional)" if result.provisional else ""
    text = f"{result.title}\n{result.reason}"
    if result.hint:
        text += f"\nusual cause: {result.hint}"
    text += f"\nrepeat with: {result.again}"
    return _command(kind, f"{result.status.name} {result.rule}{standing}", text)


def _command(kind: str, title: str, text: str) -> str:
    """One workflow command; its text is escaped, so that no line of a reason is taken for a command."""
    data = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    name = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={name}::{data}"


# ----------------------------------------------------------------------------------------------------------- summary


def summary(told: Told) -> str:
    """The summary in Markdown.

    Args:
        told: What there is to tell.

    Returns:
        The text.
    """
    parts = told.parts
    title = told.target if parts is None else parts.backend
    lines = [f"## statebook conformance: {_inline(title)}", ""]
    if parts is not None:
        source = f" {_inline(parts.source)} at `{parts.target.replace('`', '')}`." if parts.source else ""
        lines += [
            f"**{parts.level_name}** (attempted up to {parts.attempted}); profile {_inline(parts.profile)}.{source}"
        ]
        if parts.blocked_by:
            lines += ["", f"The next level is blocked by {', '.join(_code(name) for name in parts.blocked_by[:20])}."]
        lines += [line for note in parts.notes for line in ("", note)]
    else:
        lines += [f"No certificate: {_VERDICTS[told.code]}."]
    if told.reason:
        lines += ["", _inline(told.reason)]
    lines += ["", *_counts(told.results)]
    lines += _listed("Failed", [r for r in told.results if not r.status.grants and _kind(r) == "error"])
    lines += _listed("Waived or unavailable", [r for r in told.results if _kind(r) == "warning" and not r.provisional])
    lines += _listed(
        "Provisional, blocks nothing", [r for r in told.results if _kind(r) == "warning" and r.provisional]
    )
    if parts is not None:
        lines += _facts(parts)
    return "\n".join(lines).rstrip() + "\n\n"


def _counts(results: Sequence[RuleResult]) -> list[str]:
    if not results:
        return []
    counted = [(status, sum(result.status is status for result in results)) for status in Status]
    words = ", ".join(f"{count} {status.name}" for status, count in reversed(counted) if count)
    checks = sum(result.checks for result in results)
    return [f"{len(results)} rules: {words}; {checks:,} checks; seed {results[0].seed}.", ""]


def _listed(heading: str, results: Sequence[RuleResult]) -> list[str]:
    if not results:
        return []
    rows = [
        f"| {_code(r.rule)} | {r.level} | {r.status.name} | {_cell(r.title)} | {_cell(_short(r.reason))} |"
        for r in results
    ]
    head = ["| rule | level | status | promise | what was seen |", "| --- | --- | --- | --- | --- |"]
    return [f"### {heading}", "", *head, *rows, ""]


def _facts(parts: Parts) -> list[str]:
    rows = [f"| {_cell(name)} | {_cell(_short(value))} |" for name, value in (*parts.claims, *parts.environment)]
    return [
        "<details><summary>What it declares, and where it ran</summary>",
        "",
        "| | |",
        "| --- | --- |",
        *rows,
        f"| SHA-256 of the certificate | {_code(parts.sha256)} |",
        "",
        "</details>",
        "",
    ]


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _REASON_MAX else f"{words[:_REASON_MAX]}…"


def _cell(text: str) -> str:
    return _inline(text).replace("|", "\\|")


def _inline(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in "\\`*_[]" else c for c in plain)


def _code(text: str) -> str:
    return f"`{text.replace('`', '')}`"
