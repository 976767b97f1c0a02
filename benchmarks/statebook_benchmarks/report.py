"""The report of runs: capacity, latency, scaling, growth, timelines, cost, and the commands that repeat them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from statebook_benchmarks.advise import swept
from statebook_benchmarks.drift import drift
from statebook_benchmarks.figures_table import FiguresResult
from statebook_benchmarks.histogram import Histogram
from statebook_benchmarks.page import card, document, table
from statebook_benchmarks.peers.sidebyside import PeersResult
from statebook_benchmarks.plots import Axis, Series, bars, plot, short
from statebook_benchmarks.results import Point, RunResult, Trial
from statebook_benchmarks.sections import figures_section, peers_section, where
from statebook_benchmarks.stats import slope
from statebook_benchmarks.usl import fit


class Prices(msgspec.Struct, frozen=True):
    """What the user pays.

    Attributes:
        hour: For the store, an hour; None where it is not known.
        million: For a million write requests; None where they are not priced.
    """

    hour: float | None = None
    million: float | None = None


def render(results: Sequence[RunResult | FiguresResult | PeersResult], prices: Prices) -> str:
    """Render the page.

    Args:
        results: Runs, each of which has its part under its durability; figures beside the raw engine; peers.
        prices: For the cost of a million events.

    Returns:
        One self-contained HTML page.
    """
    runs = [result for result in results if isinstance(result, RunResult)]
    parts = ["<h1>statebook benchmarks</h1>", _overview(runs)]
    parts.extend(figures_section(result) for result in results if isinstance(result, FiguresResult))
    parts.extend(peers_section(result) for result in results if isinstance(result, PeersResult))
    parts.extend(_part(run, prices) for run in runs)
    return document("statebook benchmarks", "".join(parts))


def _overview(runs: Sequence[RunResult]) -> str:
    """A table a durability class: figures of different durability are never in one ranking."""
    parts = []
    for durability in sorted({run.subject.durability for run in runs}):
        rows = [
            (
                run.subject.backend,
                run.points[0].parameters.workload,
                point.label,
                f"{point.best.throughput:,.0f}",
                _ms(point.best.latency_ms(0.5)),
                _ms(point.best.latency_ms(0.99)),
                _how(run, point),
                "valid" if all(trial.valid for trial in point.trials) else "INVALID",
            )
            for run in runs
            if run.subject.durability == durability
            for point in run.points
        ]
        head = ("backend", "workload", "point", "ops/s", "p50 ms", "p99 ms", "how", "valid")
        parts.append(f"<h2>Durability: {escape(durability)}</h2>{table(head, rows)}")
    return "".join(parts)


def _how(run: RunResult, point: Point) -> str:
    if point.capacity is not None:
        return f"capacity at {run.slo}"
    return "closed loop" if point.best.closed else "open loop"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _part(run: RunResult, prices: Prices) -> str:
    subject = run.subject
    workload = run.points[0].parameters.workload
    verdict = '<span class="good">valid</span>' if run.valid else '<span class="bad">INVALID</span>'
    server = ", ".join(f"{name} {value}" for name, value in subject.server)
    alone = run.calibration
    generator = "" if alone is None else f"The generator alone: up to {alone.max_rate:,.0f} operations/s."
    head = (
        f"<h2>{escape(subject.backend)}: {escape(workload)}</h2>"
        f"<p>Durability {escape(subject.durability)} ({escape(subject.durability_setting)}), {verdict}</p>"
        f'<p class="soft">{escape(" · ".join(text for text in (subject.url, server) if text))}</p>'
        f"{where(run.environment, run.command)}"
        f'<p class="soft">{generator}</p>'
    )
    return head + f'<div class="grid-of">{"".join(_cards(run, prices))}</div>' + _findings(run)


def _cards(run: RunResult, prices: Prices) -> Iterator[str]:
    yield _capacity(run)
    yield _knee(run)
    yield _spectrum(run)
    yield _scaling(run)
    yield _growth(run)
    yield _batches(run)
    yield _timeline(run)
    yield _extra(run)
    yield _drift(run)
    yield _cost(run, prices)
    yield _counted(run)
    yield _work(run)
    yield _losses(run)


def _capacity(run: RunResult) -> str:
    rows = [
        (point.label, point.capacity.low, point.capacity.high) for point in run.points if point.capacity is not None
    ]
    return card(f"Capacity at {run.slo}", bars(rows, "operations a second; the line ends where it failed"))


def _knee(run: RunResult) -> str:
    series = []
    for point in run.points:
        trials = sorted((t for t in point.trials if t.rate is not None), key=lambda trial: trial.throughput)
        points = tuple((trial.throughput, _p99(trial)) for trial in trials if trial.operations)
        if len(points) > 1:
            series.append(Series(point.label, points, joined=False))
    drawn = plot(series, Axis("done, operations/s"), Axis("p99 latency, ms", log=True), "throughput against latency")
    return card("Throughput against latency", drawn, "Behind the knee, latency grows and throughput does not.")


def _p99(trial: Trial) -> float:
    return Histogram.of(trial.latency).quantile_ns(0.99) / 1e6


def _spectrum(run: RunResult) -> str:
    series = []
    for point in run.points:
        histogram = Histogram.of(point.best.latency)
        if histogram.count:
            last = 1 - 1 / (histogram.count + 1)
            points = tuple((1 / (1 - min(q, last)), ns / 1e6) for q, ns in histogram.spectrum())
            series.append(Series(point.label, points, marked=False))
    x = Axis("one in so many operations is slower", log=True)
    drawn = plot(series, x, Axis("latency, ms", log=True), "latency by percentile")
    return card("Percentile spectrum", drawn, "10 is p90, 100 is p99, 1k is p99.9.")


def _throughput(point: Point) -> float:
    return point.capacity.low if point.capacity is not None else point.best.throughput


def _scaling(run: RunResult) -> str:
    points = [(lanes, _throughput(point)) for lanes, point in swept(run, "lanes")]
    if len(points) < 2:
        return ""
    series = [Series("measured", tuple(points))]
    law = fit(points)
    note = "Too few points for a fit."
    if law is not None:
        top = points[-1][0]
        curve = tuple((1 + (top - 1) * step / 40, law.at(1 + (top - 1) * step / 40)) for step in range(41))
        series.append(Series("fitted law", curve, marked=False))
        peak = "more lanes are never slower" if law.peak is None else f"the peak is at {law.peak:.0f} lanes"
        note = f"Universal Scalability Law: contention {law.contention:.3f}, coherence {law.coherence:.4f}; {peak}."
    return card("Lanes", plot(series, Axis("lanes"), Axis("operations/s"), "throughput by lanes"), note)


def _growth(run: RunResult) -> str:
    found = swept(run, "journal_len")
    points = []
    for length, point in found:
        service = Histogram.of(point.best.service)
        if length > 0 and service.count:
            points.append((length, service.quantile_ns(0.5) / 1e6))
    if len(points) < 2:
        return ""
    exponent = slope([(math.log10(x), math.log10(y)) for x, y in points])
    x = Axis("events in the journal", log=True)
    drawn = plot([Series("p50 service time", tuple(points))], x, Axis("ms", log=True), "time by journal length")
    return card("Growth with the journal", drawn, f"Slope on logarithms {exponent:+.3f}: 0 is flat, 1 is linear.")


def _batches(run: RunResult) -> str:
    sizes = sorted({(p.parameters.batch_events, p.parameters.event_bytes) for p in run.points})
    if len(sizes) < 2:
        return ""
    events = sorted({size for size, _ in sizes})
    payloads = sorted({size for _, size in sizes})
    found = {
        (p.parameters.batch_events, p.parameters.event_bytes): p.best.throughput * p.best.events_per_op
        for p in run.points
    }
    rows = [
        (f"{count} events", *(short(found[count, size]) if (count, size) in found else "" for size in payloads))
        for count in events
    ]
    return card("Batch and payload: events/s", table(("batch", *(f"{size} B" for size in payloads)), rows))


def _timeline(run: RunResult) -> str:
    series = [
        Series(point.label, tuple((second + 1.0, float(row.done)) for second, row in enumerate(point.best.series[:-1])))
        for point in run.points
        if len(point.best.series) > 2
    ]
    return card("Second by second", plot(series, Axis("seconds"), Axis("operations/s"), "throughput by second"))


def _extra(run: RunResult) -> str:
    rows = []
    for point in run.points:
        for name, data in point.best.extra:
            histogram = Histogram.of(data)
            if histogram.count:
                middle, high = (histogram.quantile_ns(q) / 1e6 for q in (0.5, 0.9))
                rows.append(
                    (f"{point.label} {name}", str(histogram.count), _ms(middle), _ms(high), _ms(histogram.max_ns / 1e6))
                )
    return card("Times of the workload", table(("what", "count", "p50 ms", "p90 ms", "max ms"), rows))


def _drift(run: RunResult) -> str:
    rows = [
        (f"{point.label} {found.what}", found.first, found.last, f"{found.change:+.1%}")
        for point in run.points
        for found in drift(point.best)
    ]
    return card("Drift from the first quarter to the last", table(("what", "first", "last", "change"), rows))


def _cost(run: RunResult, prices: Prices) -> str:
    rows = []
    for point in run.points:
        trial = point.best
        rate = point.capacity.recommended if point.capacity is not None else trial.throughput
        events = rate * trial.events_per_op
        if events <= 0:
            continue
        cost = 0.0
        if prices.hour is not None:
            cost += prices.hour / (events * 3_600) * 1e6
        if prices.million is not None:
            cost += prices.million / trial.events_per_op
        if prices.hour is not None or prices.million is not None:
            rows.append((point.label, f"{cost:,.4f}"))
    note = "At 80 % of the capacity where it was searched, else at the measured throughput; a write request each."
    return card("Cost of a million events, at your prices", table(("point", "cost"), rows), note)


def _counted(run: RunResult) -> str:
    rows = [
        (
            point.label,
            f"{cost.round_trips:,.4g}",
            short(cost.bytes_sent + cost.bytes_received),
            f"{cost.file_writes:,.4g}",
            short(cost.file_bytes_written),
            f"{cost.syncs:,.4g}",
            f"{cost.python_calls:,.0f}",
        )
        for point in run.points
        if (cost := point.cost) is not None
    ]
    if not rows:
        return ""
    head = ("point", "round trips", "network bytes", "file writes", "bytes", "syncs", "Python calls")
    note = "Counted with one caller, in a pass of its own; syncs of libraries in C, such as SQLite's, are not seen."
    return card("What an operation is made of", table(head, rows), note)


def _work(run: RunResult) -> str:
    rows = []
    for point in run.points:
        trial, usage = point.best, point.best.usage
        operations = max(1, trial.operations)
        rows.append(
            (
                point.label,
                f"{usage.cpu_s / operations * 1e6:,.0f}",
                "" if usage.server_cpu_s is None else f"{usage.server_cpu_s / operations * 1e6:,.0f}",
                "" if usage.write_calls is None else f"{usage.write_calls / operations:,.2f}",
                "" if usage.written_bytes is None else short(usage.written_bytes / operations),
                "" if usage.memory_bytes is None else f"{usage.memory_bytes / 2**20:,.0f}",
            )
        )
    head = ("point", "CPU µs", "server CPU µs", "file writes", "bytes", "memory MiB")
    return card("Work an operation under load", table(head, rows), "Warm-up included; sockets are not counted.")


def _losses(run: RunResult) -> str:
    rows = []
    for point in run.points:
        trial = point.best
        if trial.conflicts or trial.errors or trial.skipped:
            errors = ", ".join(f"{name} {count}" for name, count in trial.errors)
            part = f"{trial.conflicts / max(1, trial.operations):.1%}"
            rows.append((point.label, str(trial.conflicts), part, errors, str(trial.skipped)))
    return card("Conflicts and errors", table(("point", "conflicts", "rate", "errors", "skipped"), rows))


def _findings(run: RunResult) -> str:
    lines = [
        f'<p class="bad">INVALID, {escape(point.label)}: {escape(finding.what)} in {escape(finding.thread)}: '
        f"{finding.count}, {escape(finding.detail)}</p>"
        for point in run.points
        for trial in point.trials
        for finding in trial.findings
    ]
    limited = any(trial.limited_by_generator for point in run.points for trial in point.trials)
    if limited:
        lines.append('<p class="warn">Some trials were limited by the generator: lower bounds.</p>')
    return "".join(lines)
