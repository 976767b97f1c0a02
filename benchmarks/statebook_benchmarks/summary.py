"""What a run looks like in a terminal: progress while it runs, a table of its points at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from statebook_benchmarks.drift import drift
from statebook_benchmarks.histogram import Histogram
from statebook_benchmarks.results import Capacity, Point, RunResult, Trial


class RunProgress:
    """A bar for the trial that runs."""

    def __init__(self, console: Console) -> None:
        """Make it; the bar is there inside `with`."""
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._task: TaskID = self._bar.add_task("calibrating the generator", total=1.0)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it away."""
        self._bar.stop()

    def trial(self, point: str, number: int, rate: float | None) -> None:
        """As `Progress.trial`."""
        how = "closed loop" if rate is None else f"{rate:,.0f}/s"
        self._bar.reset(self._task, description=f"{point}, trial {number}: {how}", total=1.0)

    def part(self, part: float) -> None:
        """As `Progress.part`."""
        self._bar.update(self._task, completed=part)


def print_run(console: Console, result: RunResult) -> None:
    """Print a run: durability first, then where, then a row a point."""
    subject = result.subject
    console.print(Text(f"{subject.url}: durability {subject.durability} ({subject.durability_setting})", style="bold"))
    console.print(Text(result.environment.line()))
    alone = result.calibration
    if alone is not None:
        console.print(
            Text(f"generator alone: up to {alone.max_rate:,.0f} ops/s, late by {alone.lateness_p99_ms:.2f} ms")
        )
    title = f"{result.points[0].parameters.workload}: {_method(result)}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("point", overflow="fold", min_width=8)
    for column in ("ops/s", "events/s", "p50 ms", "p99 ms", "max ms", "lost", "errors", "late"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("valid", no_wrap=True)
    for point in result.points:
        table.add_row(*_row(point))
    console.print(table)
    for point in result.points:
        if point.capacity is not None:
            console.print(Text(f"{point.label}: capacity {capacity_text(point.capacity)} at {result.slo}"))
        if point.cost is not None:
            console.print(Text(f"{point.label}: an operation is {point.cost.line()}"))
        for trial in point.trials:
            _print_trial(console, point, trial)


def _method(result: RunResult) -> str:
    if result.points[0].capacity is not None:
        return f"capacity at {result.slo}, open loop"
    return "closed loop: latencies leave out what waiting hides" if result.points[0].best.closed else "open loop"


def _row(point: Point) -> tuple[str, ...]:
    trial = point.best
    latency = Histogram.of(trial.latency)
    times = [trial.latency_ms(0.5), trial.latency_ms(0.99), latency.max_ns / 1e6 if latency.count else None]
    return (
        point.label,
        f"{trial.throughput:,.0f}",
        f"{trial.throughput * trial.events_per_op:,.0f}",
        *("" if time is None else f"{time:,.2f}" for time in times),
        str(trial.conflicts),
        str(sum(count for _, count in trial.errors)),
        str(trial.skipped),
        "valid" if all(one.valid for one in point.trials) else "INVALID",
    )


def capacity_text(capacity: Capacity) -> str:
    """A capacity as an interval, with the recommended point."""
    high = "more" if capacity.high is None else f"{capacity.high:,.0f}"
    return f"{capacity.low:,.0f} to {high} ops/s, recommended {capacity.recommended:,.0f} ({capacity.reason})"


def _print_trial(console: Console, point: Point, trial: Trial) -> None:
    for finding in trial.findings:
        text = f"INVALID, {point.label}: {finding.what} in {finding.thread}: {finding.count}, {finding.detail}"
        console.print(Text(text, style="bold red"))
    if trial.limited_by_generator:
        console.print(Text(f"{point.label}: limited by the generator, a lower bound", style="yellow"))
    if trial is point.best:
        for found in drift(trial):
            console.print(Text(f"{point.label}: {found.what} {found.first} to {found.last}, {found.change:+.1%}"))
    for name, data in trial.extra:
        extra = Histogram.of(data)
        if extra.count and trial is point.best:
            median = extra.quantile_ns(0.5) / 1e6
            console.print(Text(f"{point.label}: {name} p50 {median:,.2f} ms, max {extra.max_ns / 1e6:,.2f} ms"))
