"""What a person sees in the terminal: progress while rules run, then a table by chapter, then the level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from statebook_conformance.engine import RuleResult
from statebook_conformance.rule import LEVELS, Rule, chapter_place
from statebook_conformance.statuses import Status, worst

COLOURS: Final = {
    Status.ERROR: "bold red",
    Status.VACUOUS: "bold red",
    Status.FAIL: "bold red",
    Status.FLAKY: "red",
    Status.INCONCLUSIVE: "yellow",
    Status.UNAVAILABLE: "yellow",
    Status.WAIVED: "magenta",
    Status.NOT_CLAIMED: "cyan",
    Status.PASS: "green",
}
"""How each status is coloured."""

_PLAIN_EVERY: Final = 25
_WHY_MAX: Final = 200


class ProgressView:
    """Progress of a run: a bar in a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, title: str, total: int) -> None:
        """Begin; use it as a context manager."""
        self._console = console
        self._title = title
        self._total = total
        self._done = 0
        self._bar = Progress(
            TextColumn("[bold]{task.fields[title]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, title=title)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        if not self._console.is_terminal:
            self._console.print(f"{self._title}: {self._total} rules", highlight=False)
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self._bar.stop()

    def __call__(self, rule: Rule, result: RuleResult | None) -> None:
        """Show which rule runs, and at once what failed."""
        if result is None:
            self._bar.update(self._task, description=rule.id)
            return
        self._done += 1
        self._bar.advance(self._task)
        if not result.status.grants:
            self._console.print(failure_text(result), highlight=False)
        if not self._console.is_terminal and (self._done % _PLAIN_EVERY == 0 or self._done == self._total):
            self._console.print(f"{self._title}: {self._done} of {self._total} rules", highlight=False)


def failure_text(result: RuleResult) -> str:
    """A failed rule for the terminal: promise, facts, usual cause, how to repeat it."""
    colour = COLOURS[result.status]
    standing = " [dim](provisional, blocks nothing)[/]" if result.provisional else ""
    lines = [
        f"[{colour}]{result.status.name}[/]{standing} [bold]{escape(result.rule)}[/] {escape(result.title)}",
        f"    {escape(result.reason)}",
    ]
    if result.hint:
        lines.append(f"    usual cause: {escape(result.hint)}")
    lines.append(f"    repeat with: {result.again}")
    return "\n".join(lines)


def chapter_table(results: Sequence[RuleResult]) -> Table:
    """The table at the end: one line a chapter, one column a level, each cell its worst status and counts."""
    levels = sorted({result.level for result in results})
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("chapter")
    for level in levels:
        table.add_column(f"{level} {LEVELS[level]}")
    table.add_column("checks", justify="right")
    table.add_column("seconds", justify="right")
    chapters = sorted({result.rule.partition("-")[0] for result in results}, key=chapter_place)
    for chapter in chapters:
        of_chapter = [result for result in results if result.rule.partition("-")[0] == chapter]
        cells = [_cell([result for result in of_chapter if result.level == level]) for level in levels]
        table.add_row(
            chapter,
            *cells,
            f"{sum(result.checks for result in of_chapter):,}",
            f"{sum(result.seconds for result in of_chapter):.1f}",
        )
    return table


def _cell(results: Sequence[RuleResult]) -> str:
    mandatory = [result for result in results if not result.provisional]
    apart = len(results) - len(mandatory)
    more = f"[dim]{apart} provisional[/]" if apart else ""
    if not mandatory:
        return more or "[dim]-[/]"
    status = worst(result.status for result in mandatory)
    passed = sum(result.status is Status.PASS for result in mandatory)
    rest = f", {len(mandatory) - passed} {status.name}" if passed and passed < len(mandatory) else ""
    name = "PASS" if passed else status.name
    count = passed or len(mandatory)
    return f"[{COLOURS[status]}]{count} {name}{rest}[/]" + (f" {more}" if more else "")


def provisional_table(results: Sequence[RuleResult]) -> Table | None:
    """The provisional rules apart, with what became of each; None where there is none.

    Args:
        results: All results.

    Returns:
        The table.
    """
    rows = [result for result in results if result.provisional]
    if not rows:
        return None
    table = Table(
        show_edge=False, pad_edge=False, header_style="bold", title="provisional, blocks nothing", title_justify="left"
    )
    table.add_column("rule", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("why", overflow="fold")
    for result in rows:
        colour = COLOURS[result.status]
        table.add_row(result.rule, f"[{colour}]{result.status.name}[/]", escape(result.reason[:_WHY_MAX]))
    return table


def level_line(certificate: Mapping[str, object]) -> str:
    """The sentence that says which level was granted, and what blocks the next one."""
    level = cast("Mapping[str, object]", certificate["level"])
    granted = cast("int | None", level["granted"])
    blocked = cast("Sequence[str]", level["blocked_by"])
    if granted is None:
        text = "[bold red]no level granted[/]"
    else:
        text = f"[bold green]level {granted} ({LEVELS[granted]}) granted[/]"
    if blocked:
        text += f"; blocked by {escape(', '.join(blocked[:6]))}" + (" …" if len(blocked) > 6 else "")
    return text
