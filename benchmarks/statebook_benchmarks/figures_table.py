"""The figures of several backends as one result: run with a progress bar, printed as a table, written as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from statebook_benchmarks.environment import Environment, environment, import_time_ms, load
from statebook_benchmarks.figures import BackendFigures, Effort, Figure, measure_backend
from statebook_benchmarks.goals import judge_figures
from statebook_benchmarks.goals_table import print_goals
from statebook_benchmarks.stats import Interval
from statebook_benchmarks.validity import Finding

MEASURES: Final = ("µs/operation", "events/s", "raw µs", "ratio, 95 %", "CPU µs", "CPU ratio")
"""The heads of what `measures_of` gives."""


class FiguresResult(msgspec.Struct, frozen=True):
    """What `bench figures` found.

    Attributes:
        format: The version of this layout.
        kind: `figures`.
        command: The command that repeats it, without secrets.
        environment: Where it ran.
        import_ms: What `import statebook` takes.
        figures: The figures.
        findings: What reading back found; none where the run is valid.
    """

    command: str
    environment: Environment
    import_ms: float
    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]
    format: int = 1
    kind: str = "figures"

    def write(self, file: Path) -> None:
        """Write the result as indented JSON."""
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def run_figures(
    urls: Sequence[str],
    cases: Sequence[str],
    effort: Effort,
    *,
    command: str,
    fresh_name: Callable[[], str],
    console: Console,
) -> FiguresResult:
    """Measure backends one after the other, each beside its raw engine.

    Args:
        urls: The stores.
        cases: The names of the cases.
        effort: How long to measure.
        command: The command that repeats it.
        fresh_name: Gives fresh names.
        console: Where progress is shown.

    Returns:
        The result.

    Raises:
        StatebookError: A store cannot be opened, or failed under way.
    """
    described = environment()
    import_ms = import_time_ms()
    measured: list[BackendFigures] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        for position, url in enumerate(urls, 1):

            def show(case: str, done: int, of: int, position: int = position, url: str = url) -> None:
                scheme = url.partition(":")[0]
                bar.update(task, description=f"[{position}/{len(urls)}] {scheme} {case}", completed=done, total=of)

            measured.append(measure_backend(url, cases, effort, name=fresh_name(), progress=show))
    return FiguresResult(
        command=command,
        environment=msgspec.structs.replace(described, load_after=load()),
        import_ms=import_ms,
        figures=tuple(figure for one in measured for figure in one.figures),
        findings=tuple(finding for one in measured for finding in one.findings),
    )


def print_figures(console: Console, result: FiguresResult) -> None:
    """Print the table: what it was measured on first, then a row a case, then what was found wrong."""
    console.print(Text(result.environment.line()))
    if not result.environment.isolated:
        console.print(Text("Other work ran on this machine: trust the ratios, not the times.", style="yellow"))
    console.print(Text(f"command: {result.command}"))
    console.print(Text(f"import statebook: {result.import_ms:.0f} ms"))
    table = Table(
        title="statebook beside the raw engine, interleaved in one run",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("backend", "case"):
        table.add_column(column, no_wrap=True)
    for column in MEASURES:
        table.add_column(column, justify="right", no_wrap=True)
    for figure in result.figures:
        table.add_row(figure.backend, figure.case.name, *measures_of(figure))
    console.print(table)
    print_goals(console, judge_figures(result.figures))
    for case in dict.fromkeys(figure.case for figure in result.figures):
        console.print(Text(f"{case.name}: {case.title}"))
    for url, durability in dict.fromkeys((figure.url, figure.durability) for figure in result.figures):
        console.print(Text(f"{url}: durability {durability}"))
        works: dict[str, list[str]] = {}
        for figure in result.figures:
            if figure.url == url and figure.floor_work is not None:
                works.setdefault(figure.floor_work, []).append(figure.case.name)
        for work, cases in works.items():
            console.print(Text(f"  raw of {', '.join(cases)}: {work}"))
    if result.findings:
        console.print(Text("INVALID: what was acknowledged is not what was read back", style="bold red"))
        for finding in result.findings:
            console.print(Text(f"  {finding.what} in {finding.thread}: {finding.count}, {finding.detail}"))
    else:
        console.print(Text("valid: every acknowledged event was read back, once and in order", style="green"))


def measures_of(figure: Figure) -> tuple[str, ...]:
    """What was measured, as tables and pages show it, under `MEASURES`."""
    raw = "" if figure.floor_microseconds is None else f"{figure.floor_microseconds.estimate:,.1f}"
    return (
        f"{figure.microseconds.estimate:,.1f}",
        f"{figure.events_per_second:,.0f}",
        raw,
        "" if figure.ratio is None else ratio_text(figure.ratio),
        f"{figure.cpu_microseconds.estimate:,.1f}",
        "" if figure.cpu_ratio is None else f"{figure.cpu_ratio.estimate:.2f}",
    )


def ratio_text(ratio: Interval) -> str:
    """A ratio with its interval, as tables show it."""
    return f"{ratio.estimate:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
