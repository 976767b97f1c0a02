"""The page for people: level, grid, each rule with its facts, a timeline of each failed history.

One file, without scripts and without anything from outside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Final

from statebook_conformance.checkers.history import History, HistoryError, load
from statebook_conformance.checkers.registry import judge
from statebook_conformance.reports.parts import Parts, RuleRow
from statebook_conformance.reports.timeline import timeline
from statebook_conformance.rule import LEVELS
from statebook_conformance.statuses import Status, worst

_KIND: Final = {
    Status.PASS: "pass",
    Status.NOT_CLAIMED: "info",
    Status.WAIVED: "warn",
    Status.UNAVAILABLE: "warn",
    Status.INCONCLUSIVE: "warn",
}


def page(parts: Parts, texts: dict[str, str], histories: Path | None) -> str:
    """The page of one certificate.

    Args:
        parts: The certificate.
        texts: The whole text of each rule, by id.
        histories: Where histories of failures were kept, or None.

    Returns:
        The HTML document, with nothing outside of itself.
    """
    bad = [rule for rule in parts.rules if not rule.status.grants]
    body = [
        f"<h1>{escape(parts.backend)}</h1><p class=dim><code>{escape(parts.target)}</code></p>",
        _banner(parts, bad),
        "<h2>Rules by chapter and level</h2>",
        _grid(parts),
    ]
    if bad:
        body.append("<h2>What failed</h2>")
        body += [_rule(rule, texts, histories, opened=True) for rule in bad]
    body += ["<h2>All rules</h2>", *(_rule(rule, texts, None, opened=False) for rule in parts.rules)]
    body += ["<h2>What the backend declares</h2>", _pairs(parts.claims)]
    body += ["<h2>Environment</h2>", _pairs(parts.environment)]
    body += ["<h2>Known-bad variants that were run along</h2>", _canaries(parts)]
    body.append(
        f"<p class=dim>Issued {escape(parts.issued_at)} after {parts.seconds:g} s, seed {parts.seed}. SHA-256 of the "
        f"certificate: <code>{escape(parts.sha256)}</code>. Check it with "
        "<code>statebook conformance verify certificate.json</code>.</p>"
    )
    return document(f"{parts.backend}: statebook {parts.level_name}", body)


def document(title: str, body: Sequence[str]) -> str:
    """One self-contained HTML document."""
    style = resources.files(__package__ or "").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def mark(status: Status, text: str | None = None) -> str:
    """A status as a coloured word."""
    return f'<span class="s {_KIND.get(status, "bad")}">{escape(text or status.name)}</span>'


def _banner(parts: Parts, bad: Sequence[RuleRow]) -> str:
    passed = sum(rule.status is Status.PASS for rule in parts.rules)
    checks = sum(rule.checks for rule in parts.rules)
    blocked = f"<br>Blocked by {escape(', '.join(parts.blocked_by[:8]))}" if parts.blocked_by else ""
    kind = "banner" if parts.granted is not None else "banner none"
    return (
        f'<div class="{kind}"><div class=level>{escape(parts.level_name)}</div>'
        f"<div>{passed} of {len(parts.rules)} rules passed with {checks:,} checks; {len(bad)} failed; attempted level "
        f"{parts.attempted}.{blocked}</div></div>"
    )


def _grid(parts: Parts) -> str:
    head = "".join(f"<th>{level} {LEVELS[level]}</th>" for level in parts.levels)
    rows = []
    for chapter in parts.chapters:
        cells = []
        for level in parts.levels:
            here = [rule for rule in parts.rules if rule.chapter == chapter and rule.level == level]
            cells.append(f"<td>{_cell(here)}</td>")
        rows.append(f"<tr><th>{escape(chapter)}</th>{''.join(cells)}</tr>")
    return f"<div class=scroll><table><tr><th>chapter</th>{head}</tr>{''.join(rows)}</table></div>"


def _cell(rules: Sequence[RuleRow]) -> str:
    if not rules:
        return "<span class=dim>–</span>"
    status = worst(rule.status for rule in rules)
    passed = sum(rule.status is Status.PASS for rule in rules)
    text = f"{passed} PASS" if passed == len(rules) else f"{status.name} · {passed} of {len(rules)} PASS"
    return mark(status, text)


def _rule(rule: RuleRow, texts: dict[str, str], histories: Path | None, *, opened: bool) -> str:
    evidence = ", ".join(f"{name}: {count:,}" for name, count in rule.evidence)
    rest = texts.get(rule.id, "").partition("\n")[2].strip()
    facts = [
        f"<p class=dim>{rule.checks:,} checks in {rule.seconds:g} s" + (f"; {escape(evidence)}" if evidence else "")
    ]
    facts.append("</p>")
    if rest:
        facts.append(f"<p>{escape(rest)}</p>")
    if rule.reason:
        facts.append(f"<pre>{escape(rule.reason)}</pre>")
    for checker, digest in rule.histories:
        facts.append(f"<p class=dim>history judged by {escape(checker)}, SHA-256 <code>{escape(digest)}</code></p>")
    facts += [_history(path) for path in _kept(rule, histories)]
    return (
        f"<details{' open' if opened else ''}><summary><code>{escape(rule.id)}</code>"
        f"<span class=t>{escape(rule.title)}</span>{mark(rule.status)}</summary><div>{''.join(facts)}</div></details>"
    )


def _kept(rule: RuleRow, histories: Path | None) -> tuple[Path, ...]:
    if histories is None or not histories.is_dir() or rule.status is Status.PASS:
        return ()
    own = re.compile(re.escape(rule.id) + r"-[0-9]+\.jsonl\Z")
    return tuple(path for path in sorted(histories.iterdir()) if own.match(path.name))


def _history(path: Path) -> str:
    try:
        history: History = load(path)
        verdict = judge(history)
    except HistoryError as error:
        return f"<p>the history {escape(path.name)} cannot be read: {escape(str(error))}</p>"
    first = verdict.facts[0].operations if verdict.facts else ()
    return (
        f"<div class=scroll>{timeline(history, first)}</div>"
        f"<p>Judge it again without the backend:</p><pre>statebook conformance replay {escape(path.name)}</pre>"
    )


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td><code>{escape(value)}</code></td></tr>" for name, value in pairs)
    return f"<div class=scroll><table>{rows}</table></div>"


def _canaries(parts: Parts) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{_fate(killer)}</td></tr>" for name, killer in parts.canaries
    )
    return f"<div class=scroll><table>{rows}</table></div>" if rows else "<p class=dim>none</p>"


def _fate(killer: str) -> str:
    return mark(Status.PASS, f"killed by {killer}") if killer else mark(Status.FAIL, "survived")
