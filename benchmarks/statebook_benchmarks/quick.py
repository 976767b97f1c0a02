"""Every workload for a moment on every backend: whether it is valid, and what it looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from statebook_benchmarks.results import Parameters, RunResult
from statebook_benchmarks.runner import RunOrder, run
from statebook_benchmarks.summary import RunProgress
from statebook_benchmarks.workloads import WORKLOADS

THREADS: Final = 4
LANES: Final = 2
RATE: Final = 20.0
"""The rate of the open-loop trial of `append`; any backend can do it."""


def run_quick(
    urls: Sequence[str], seconds: float, command: str, fresh_name: Callable[[], str], console: Console
) -> tuple[RunResult, ...]:
    """Run every workload once on each backend, and `append` in an open loop and through commit lanes too.

    Args:
        urls: The stores.
        seconds: The length of a trial.
        command: The command that repeats it.
        fresh_name: Gives fresh names.
        console: Where progress is shown.

    Returns:
        The results.

    Raises:
        StatebookError: A store cannot be opened, or failed in preparation or while it was read back.
    """
    results = []
    for url in urls:
        for workload in WORKLOADS:
            parameters = Parameters(
                workload=workload,
                lanes=LANES,
                threads=THREADS,
                journal_len=200 if workload == "resume" else 0,
                seconds=seconds,
                warm_up_s=0.05,
            )
            order = RunOrder(
                url=url,
                parameters=parameters,
                sweep=(("via", ("store", "lanes")),) if workload == "append" else (),
                rate=RATE if workload == "soak" else None,
                name=fresh_name(),
                command=command,
            )
            with RunProgress(console) as progress:
                results.append(run(order, progress))
    return tuple(results)


def print_quick(console: Console, results: Sequence[RunResult]) -> None:
    """Print a row a trial, and what was found wrong.

    Args:
        console: Where.
        results: The results.
    """
    table = Table(title="every workload for a moment: valid, not fast", title_justify="left", box=SIMPLE_HEAD)
    for column in ("backend", "workload", "loop"):
        table.add_column(column, no_wrap=True)
    for column in ("ops", "ops/s", "lost"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("valid", no_wrap=True)
    for result in results:
        for point in result.points:
            trial = point.best
            name = point.parameters.workload + (f" via {point.parameters.via}" if point.settings else "")
            table.add_row(
                result.subject.backend,
                name,
                "closed" if trial.closed else "open",
                str(trial.operations),
                f"{trial.throughput:,.0f}",
                str(trial.conflicts),
                "valid" if trial.valid else "INVALID",
            )
    console.print(table)
    for result in results:
        for point in result.points:
            for finding in point.best.findings:
                text = f"INVALID, {result.subject.backend} {point.label}: {finding.what}: {finding.detail}"
                console.print(Text(text, style="bold red"))
