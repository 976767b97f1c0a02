"""Made-up trials and runs with known figures."""

from __future__ import annotations

from collections.abc import Sequence

from statebook_benchmarks.counters import Usage
from statebook_benchmarks.environment import Environment
from statebook_benchmarks.histogram import Histogram
from statebook_benchmarks.results import Calibration, Capacity, Parameters, Point, RunResult, Second, Subject, Trial
from statebook_benchmarks.validity import Finding

USAGE = Usage(0.5, 50 << 20, 10, 200, 20_000, None, None)


def trial_of(
    latencies_ms: Sequence[float],
    *,
    errors: int = 0,
    skipped: int = 0,
    series: Sequence[tuple[int, float]] = (),
    findings: tuple[Finding, ...] = (),
    closed: bool = True,
    throughput: float | None = None,
) -> Trial:
    """A trial with these latencies, and a done count and median latency for each second."""
    data = Histogram(int(ms * 1e6) for ms in latencies_ms).data()
    return Trial(
        rate=None if closed else 100.0,
        closed=closed,
        seconds=1.0,
        operations=len(latencies_ms),
        done=len(latencies_ms),
        conflicts=0,
        errors=(("OutcomeUnknown", errors),) if errors else (),
        skipped=skipped,
        events_per_op=1,
        throughput=float(len(latencies_ms)) if throughput is None else throughput,
        latency=data,
        service=data,
        lateness=data,
        extra=(),
        series=tuple(Second(done, 0, 0, p50, p50) for done, p50 in series),
        usage=USAGE,
        readings=(),
        findings=findings,
        limited_by_generator=False,
    )


def point_of(trial: Trial, *, capacity: Capacity | None = None, **settings: str | int) -> Point:
    """A point of one trial."""
    parameters = Parameters(workload="append", **{name: int(value) for name, value in settings.items()})
    return Point(tuple((name, str(value)) for name, value in settings.items()), parameters, (trial,), capacity)


def run_of(
    *points: Point, durability: str = "host", setting: str = "synchronous=FULL", slo: str | None = None
) -> RunResult:
    """A run with these points."""
    return RunResult(
        subject=Subject("host", "synchronous=FULL", "sqlite", "sqlite:///x.db", "host", (), (("sqlite", "3.45"),)),
        environment=Environment("2026-01-01T00:00:00+00:00", "Linux", "x86_64", "", 2, None, "CPython", 0.1, 0.1, ()),
        command="statebook bench run sqlite:///x.db",
        slo=slo,
        calibration=Calibration(100_000.0, 0.1),
        points=points,
    )
