"""What changes while a load goes on: the last quarter against the first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import msgspec

from statebook_benchmarks.results import Trial

SECONDS_LEAST: Final = 8
"""Shorter trials tell no drift."""


class Drift(msgspec.Struct, frozen=True):
    """One measure.

    Attributes:
        what: The measure.
        first: Its median in the first quarter, as a text with its unit.
        last: Its median in the last quarter.
        change: The relative change.
    """

    what: str
    first: str
    last: str
    change: float


def drift(trial: Trial) -> tuple[Drift, ...]:
    """Compare the first quarter of a trial with its last.

    Args:
        trial: The trial.

    Returns:
        One entry for each measure that was taken; none where the trial was too short.
    """
    if len(trial.series) < SECONDS_LEAST:
        return ()
    return tuple(_drifts(trial))


def _drifts(trial: Trial) -> Iterator[Drift]:
    whole = trial.series[:-1]
    yield from _quarters("p50 latency", [row.p50_ms for row in whole], "{:.2f} ms", 1.0)
    yield from _quarters("throughput", [float(row.done) for row in whole], "{:,.0f} ops/s", 1.0)
    readings = [usage for _, usage in trial.readings[1:]]
    yield from _quarters("memory", [usage.memory_bytes for usage in readings], "{:,.1f} MiB", 2.0**20)
    yield from _quarters("open files", [usage.open_files for usage in readings], "{:.0f}", 1.0)
    server = [usage.server_memory_bytes for usage in readings]
    yield from _quarters("server memory", server, "{:,.1f} MiB", 2.0**20)


def _quarters(what: str, values: Sequence[float | None], text: str, unit: float) -> Iterator[Drift]:
    known = [value for value in values if value is not None]
    quarter = len(known) // 4
    if quarter == 0:
        return
    first, last = median(known[:quarter]), median(known[-quarter:])
    if first > 0:
        yield Drift(what, text.format(first / unit), text.format(last / unit), last / first - 1)
