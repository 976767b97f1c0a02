"""The page for people: level, grid, each rule with its facts, a timeline of each failed history.

One file, without scripts and without anything from outside.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from statebook_conformance.checkers.history import History, HistoryError, load
from statebook_conformance.checkers.registry import judge
from statebook_conformance.reports.parts import Parts, RuleRow
from statebook_conformance.reports.timeline import first_fact, timeline
from statebook_conformance.rule import LEVELS, repeating
from statebook_conformance.statuses import Status, worst

_KIND: Final = {
    Status.PASS: "pass",
    Status.NOT_CLAIMED: "info",
    Status.WAIVED: "warn",
    Status.UNAVAILABLE: "warn",
    Status.INCONCLUSIVE: "warn",
}

_BLOCKED_MAX: Final = 8
_HISTORIES_MAX: Final = 6
_CASES: Final = re.compile(r"\s*\bCases?: (?P<numbers>[0-9, ]+)\.")
_WAIVED: Final = (
    "<p class=dim>Known failures that somebody accepts in writing. They fail no run and raise no level: it is what it "
    "would be without.</p>"
)
_PROVISIONAL: Final = (
    "<p class=dim>New rules are reported for one minor release before they count. Whatever their status, they block "
    "nothing.</p>"
)


class RuleText(msgspec.Struct, frozen=True):
    """What this release knows of a rule, beyond its certificate.

    Attributes:
        text: The whole docstring.
        hint: The usual cause of a failure.
    """

    text: str
    hint: str


def page(parts: Parts, texts: Mapping[str, RuleText], histories: Path | None) -> str:
    """The page of one certificate.

    Args:
        parts: The certificate.
        texts: The text of each rule, by id.
        histories: Where histories of failures were kept, or None.

    Returns:
        The HTML document, with nothing outside of itself.
    """
    waived = [rule for rule in parts.failed if rule.status is Status.WAIVED]
    bad = [rule for rule in parts.failed if rule.status is not Status.WAIVED]
    book = _Book(parts, texts, histories)
    body = [
        f"<h1>{escape(parts.backend)}</h1><p class=dim>{_source(parts)}<code>{escape(parts.target)}</code></p>",
        _banner(parts, bad, waived),
        "<h2>Rules by chapter and level</h2>",
        _grid(parts),
    ]
    if bad:
        body += ["<h2>What failed</h2>", *(book.rule(rule, opened=True) for rule in bad)]
    if waived:
        body += ["<h2>Waived</h2>", _WAIVED, _waivers(parts), *(book.rule(rule, opened=False) for rule in waived)]
    if parts.provisional:
        body += [
            "<h2>Provisional rules</h2>",
            _PROVISIONAL,
            *(f"<p class=dim>{escape(note)}</p>" for note in parts.notes),
        ]
        body += [book.rule(rule, opened=False) for rule in parts.provisional]
    body.append("<h2>All rules</h2>")
    for level in parts.levels:
        of_level = [rule for rule in parts.rules if rule.level == level and not rule.provisional]
        if of_level:
            body.append(f"<h3>Level {level} · {LEVELS[level]}: {len(of_level)}</h3>")
            body += [book.rule(rule, opened=False) for rule in of_level]
    body += ["<h2>What the backend declares</h2>", _pairs(parts.claims)]
    body += ["<h2>Environment</h2>", _pairs(parts.environment)]
    body += ["<h2>Known-bad variants that were run along</h2>", _canaries(parts)]
    body.append(
        f"<p class=dim>Profile {escape(parts.profile)}. Issued {escape(parts.issued_at)} after {parts.seconds:g} s, "
        f"seed {parts.seed}, effort {parts.effort}. SHA-256 of the certificate: "
        f"<code>{escape(parts.sha256)}</code>. Check it with "
        "<code>statebook conformance verify certificate.json</code>.</p>"
    )
    return document(f"{parts.backend}: statebook {parts.level_name}", body)


def document(title: str, body: Sequence[str], *, kind: str = "text") -> str:
    """One self-contained HTML document; `full` is as wide as the window, for large tables."""
    style = resources.files(__package__ or "").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main class={kind}>{''.join(body)}</main></body></html>\n"
    )


def mark(status: Status, text: str | None = None) -> str:
    """A status as a coloured word."""
    return f'<span class="s {_KIND.get(status, "bad")}">{escape(text or status.name)}</span>'


def _source(parts: Parts) -> str:
    return f"{escape(parts.source)} · " if parts.source else ""


def _banner(parts: Parts, bad: Sequence[RuleRow], waived: Sequence[RuleRow]) -> str:
    counted = [rule for rule in parts.rules if not rule.provisional]
    passed = sum(rule.status is Status.PASS for rule in counted)
    checks = sum(rule.checks for rule in parts.rules)
    numbers = [f"{passed} of {len(counted)} rules passed with {checks:,} checks"]
    not_claimed = sum(rule.status is Status.NOT_CLAIMED for rule in counted)
    for count, words in ((not_claimed, "not claimed"), (len(bad), "failed"), (len(waived), "waived")):
        numbers += [f"{count} {words}"] if count else []
    numbers += [f"{len(parts.provisional)} provisional"] if parts.provisional else []
    blocked = ""
    if parts.blocked_by:
        rest = len(parts.blocked_by) - _BLOCKED_MAX
        names = ", ".join(f"<code>{escape(name)}</code>" for name in parts.blocked_by[:_BLOCKED_MAX])
        blocked = f"<div>The next level is blocked by {names}{f' and {rest} more' if rest > 0 else ''}.</div>"
    below = parts.granted is not None and parts.granted < parts.attempted
    kind = "none" if parts.granted is None else "below" if below else ""
    return (
        f"<div class='banner {kind}'><div class=level>{escape(parts.level_name)}</div>"
        f"<div>Attempted up to level {parts.attempted} · {LEVELS[parts.attempted]}. {'; '.join(numbers)}.</div>"
        f"{blocked}</div>"
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
    return f"<div class=scroll><table class=grid><tr><th>chapter</th>{head}</tr>{''.join(rows)}</table></div>"


def _cell(rules: Sequence[RuleRow]) -> str:
    mandatory = [rule for rule in rules if not rule.provisional]
    provisional = [rule for rule in rules if rule.provisional]
    marks = [mark(worst(rule.status for rule in mandatory), _counts(mandatory))] if mandatory else []
    if provisional:
        kind = "info" if all(rule.status.grants for rule in provisional) else "warn"
        marks.append(f'<span class="s {kind}">provisional: {escape(_counts(provisional))}</span>')
    return " ".join(marks) or "<span class=dim>–</span>"


def _counts(rules: Sequence[RuleRow]) -> str:
    """How many of each status, the worst first, those that passed last."""
    counted = [(status, sum(rule.status is status for rule in rules)) for status in Status]
    return " · ".join(f"{count} {status.name}" for status, count in counted if count)


class _Book:
    """What each rule's entry is made from."""

    def __init__(self, parts: Parts, texts: Mapping[str, RuleText], histories: Path | None) -> None:
        self._parts = parts
        self._texts = texts
        self._histories = histories

    def rule(self, rule: RuleRow, *, opened: bool) -> str:
        """The entry of a rule: its promise and status, and behind a click its text, evidence, reason and history."""
        known = self._texts.get(rule.id, RuleText("", ""))
        text, cases = _CASES.subn("", known.text.partition("\n")[2]), _CASES.search(known.text)
        facts = [f"<p>{escape(text[0].strip())}</p>"] if text[0].strip() else []
        if rule.reason:
            facts.append(f"<pre>{escape(rule.reason)}</pre>")
        failed = not rule.status.grants
        if failed and known.hint:
            facts.append(f"<p>Usual cause: {escape(known.hint)}.</p>")
        if failed:
            facts += [_history(path) for path in _kept(rule, self._histories)]
            again = repeating(rule.id, self._parts.seed, self._parts.effort)
            words = f"statebook conformance {shlex.quote(self._parts.target)} {again}"
            facts.append(f"<p>Run it again:</p><pre>{escape(words)}</pre>")
        facts.append(f"<p class=dim>{escape(_evidence(rule))}</p>")
        facts += [
            f"<p class=dim>history judged by {escape(checker)}, SHA-256 <code>{escape(digest)}</code></p>"
            for checker, digest in rule.histories[:_HISTORIES_MAX]
        ]
        if cases is not None:
            facts.append(f"<p class=dim>Incidents from the field that it covers: {escape(cases['numbers'])}.</p>")
        return (
            f"<details{' open' if opened else ''}><summary><code>{escape(rule.id)}</code>"
            f"<span class=t>{escape(_CASES.sub('', rule.title))}</span>{mark(rule.status)}</summary>"
            f"<div>{''.join(facts)}</div></details>"
        )


def _evidence(rule: RuleRow) -> str:
    seen = ", ".join(f"{name}: {count:,}" for name, count in rule.evidence)
    return f"Level {rule.level}; {rule.checks:,} checks in {rule.seconds:g} s" + (f"; seen: {seen}" if seen else "")


def _waivers(parts: Parts) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(w.rule)}</code></td><td>{escape(w.expires)}</td><td>{escape(w.reason)}</td></tr>"
        for w in parts.waivers
    )
    return f"<div class=scroll><table><tr><th>rule</th><th>until</th><th>why</th></tr>{rows}</table></div>"


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
    fact = first_fact(history, verdict.facts)
    sentence = f"<p>First: {escape(fact.promise)}, {escape(fact.sentence)}.</p>" if fact is not None else ""
    return (
        f"{sentence}{timeline(history, fact.operations if fact is not None else ())}"
        f"<p>Judge it again without the backend:</p>"
        f"<pre>statebook conformance replay {escape(shlex.quote(f'histories/{path.name}'))}</pre>"
    )


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td><code>{escape(value)}</code></td></tr>" for name, value in pairs)
    return f"<div class=scroll><table class=pairs>{rows}</table></div>"


def _canaries(parts: Parts) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{_fate(killer)}</td></tr>" for name, killer in parts.canaries
    )
    return f"<div class=scroll><table class=pairs>{rows}</table></div>" if rows else "<p class=dim>none</p>"


def _fate(killer: str) -> str:
    return mark(Status.PASS, f"killed by {killer}") if killer else mark(Status.FAIL, "survived")
