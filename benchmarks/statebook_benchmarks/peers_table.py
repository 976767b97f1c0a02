"""Peers side by side in a terminal."""

from __future__ import annotations

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from statebook_benchmarks.figures_table import ratio_text
from statebook_benchmarks.goals import judge_peers
from statebook_benchmarks.goals_table import print_goals
from statebook_benchmarks.peers import PeersResult
from statebook_benchmarks.peers.sidebyside import PeerFigure

MEASURES: Final = ("µs/event", "events/s", "statebook ×", "by CPU ×")
"""The heads of what `measures_of` gives."""


def measures_of(figure: PeerFigure) -> tuple[str, ...]:
    """What was measured of a peer, as tables and pages show it, under `MEASURES`."""
    return (
        f"{figure.microseconds.estimate:,.1f}",
        f"{1e6 / figure.microseconds.estimate:,.0f}",
        "" if figure.ratio is None else ratio_text(figure.ratio),
        "" if figure.cpu_ratio is None else f"{figure.cpu_ratio.estimate:.2f}",
    )


def print_peers(console: Console, result: PeersResult) -> None:
    """Print a table a medium and case, then what each promises.

    Args:
        console: Where.
        result: The result.
    """
    console.print(Text(result.environment.line()))
    console.print(Text(f"command: {result.command}"))
    console.print(Text(", ".join(f"{name} {version}" for name, version in result.versions)))
    for medium, case in dict.fromkeys((figure.medium, figure.case) for figure in result.figures):
        table = Table(title=f"{medium}: {case}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("store", no_wrap=True)
        for column in MEASURES:
            table.add_column(column, justify="right", no_wrap=True)
        for figure in result.figures:
            if (figure.medium, figure.case) == (medium, case):
                table.add_row(figure.name, *measures_of(figure))
        console.print(table)
    print_goals(console, judge_peers(result.figures))
    for name, promises in dict.fromkeys((figure.name, figure.promises) for figure in result.figures):
        console.print(Text(f"{name}: {promises}"))
    for name, reason in result.missing:
        console.print(Text(f'{name} was left out: {reason}; run: pip install --upgrade "statebook[bench-peers]"'))
