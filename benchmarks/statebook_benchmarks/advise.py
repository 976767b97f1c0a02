"""What a run says about sizes: lanes, queue, batch and pool. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from statebook_benchmarks.results import Point, RunResult
from statebook_benchmarks.usl import fit

GOOD_ENOUGH: Final = 0.95
"""What part of the best throughput is worth no further lane, and no larger batch."""
QUEUE_SECONDS: Final = 0.5
"""How long a burst may last that a queue takes in."""


class Advice(msgspec.Struct, frozen=True):
    """One size.

    Attributes:
        what: `lanes`, `queue`, `batch`, `pool`, `rate` or `threads`.
        value: The size.
        why: The figure that it follows from.
    """

    what: str
    value: str
    why: str


def advise(result: RunResult) -> tuple[Advice, ...]:
    """Draw conclusions from a run.

    Args:
        result: A valid run.

    Returns:
        The advice; empty where the run holds nothing that tells a size.

    Raises:
        ValueError: The run is INVALID: it tells nothing.
    """
    if not result.valid:
        raise ValueError("the run is INVALID: it tells nothing about sizes")
    return (*_lanes(result), *_batch(result), *_rates(result), *_queue(result))


def swept(result: RunResult, name: str) -> list[tuple[float, Point]]:
    """The points of a sweep of one parameter alone, by its value, ascending."""
    found = [
        (float(value), point)
        for point in result.points
        for key, value in point.settings
        if key == name and len(point.settings) == 1
    ]
    return sorted(found, key=lambda pair: pair[0])


def _throughput(point: Point) -> float:
    return point.capacity.low if point.capacity is not None else point.best.throughput


def _least(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The least size whose value comes near the best one."""
    best = max(value for _, value in points)
    return next((size, value) for size, value in points if value >= GOOD_ENOUGH * best)


def _lanes(result: RunResult) -> Iterator[Advice]:
    points = [(lanes, _throughput(point)) for lanes, point in swept(result, "lanes")]
    if len(points) < 2:
        return
    lanes, throughput = _least(points)
    law = fit(points)
    peak = "" if law is None or law.peak is None else f"; the fitted law peaks at {law.peak:.0f}"
    why = f"{throughput:,.0f} ops/s, at least {GOOD_ENOUGH:.0%} of the best in the sweep{peak}"
    yield Advice("lanes", f"{lanes:.0f}", why)
    yield Advice("pool", f"{lanes:.0f} connections", "one for each lane that works at once")


def _batch(result: RunResult) -> Iterator[Advice]:
    points = [(size, _throughput(point) * point.best.events_per_op) for size, point in swept(result, "batch_events")]
    if len(points) >= 2:
        size, events = _least(points)
        why = f"{events:,.0f} events/s, at least {GOOD_ENOUGH:.0%} of the best in the sweep"
        yield Advice("batch", f"{size:.0f} events", why)


def _rates(result: RunResult) -> Iterator[Advice]:
    for point in result.points:
        found = point.capacity
        if found is not None and found.low > 0:
            why = f"80 % of what held at {result.slo} with {point.label}: {found.low:,.0f} ops/s"
            yield Advice("rate", f"{found.recommended:,.0f} ops/s", why)


def _queue(result: RunResult) -> Iterator[Advice]:
    point = max(result.points, key=_throughput)
    rate, p99 = _throughput(point), point.best.latency_ms(0.99)
    if rate <= 0 or p99 is None:
        return
    # Little's law: what is under way at the 99th percentile, and what a burst adds.
    waiting = math.ceil(rate * max(p99 / 1e3, QUEUE_SECONDS))
    why = f"Little's law at {rate:,.0f} ops/s, p99 {p99:.1f} ms and bursts of {QUEUE_SECONDS:g} s"
    yield Advice("queue", f"{waiting:,} batches", why)
