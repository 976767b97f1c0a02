"""Goals and verdicts in a terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from statebook_benchmarks.goals import Judged, Verdict
from statebook_benchmarks.page import card, table
from statebook_benchmarks.plots import bars

_STYLES: Final = {Verdict.MET: "green", Verdict.MISSED: "red", Verdict.UNDECIDED: "yellow"}
_HEAD: Final = ("backend", "what", "goal", "aim", "found, 95 %", "verdict")
_NOTE: Final = "Met or missed where the whole interval of 95 % is; undecided where the goal lies within it."


def print_goals(console: Console, judged: Sequence[Judged]) -> None:
    """Print each goal with its verdict; nothing where there is none.

    Args:
        console: Where.
        judged: The verdicts.
    """
    if not judged:
        return
    grid = Table(title="against the project's goals", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in _HEAD:
        grid.add_column(column, overflow="fold")
    for row in judged:
        *cells, verdict = _cells(row)
        grid.add_row(*cells, Text(verdict, style=_STYLES[row.verdict]))
    console.print(grid)
    console.print(Text(_NOTE))


def goals_cards(judged: Sequence[Judged]) -> str:
    """The same as boxes of a page, with a plot of those goals that are ratios to the raw engine."""
    rows = [_cells(row) for row in judged]
    ratios = [
        (f"{row.backend} {row.what}", row.ratio.estimate, row.ratio.high) for row in judged if row.ratio is not None
    ]
    return card("Against the project's goals", table(_HEAD, rows), _NOTE) + card(
        "Ratios that are goals", bars(ratios, "1 is as fast as what stands beside it; the line ends at 95 %")
    )


def _cells(row: Judged) -> tuple[str, ...]:
    return (row.backend, row.what, row.goal, row.aim, row.found, row.verdict.value)
