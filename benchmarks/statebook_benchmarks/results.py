"""The versioned results of a run: what is written as JSON, compared and reported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from statebook import Capabilities
from statebook_benchmarks.counters import Usage
from statebook_benchmarks.environment import Environment
from statebook_benchmarks.histogram import Histogram, HistogramData
from statebook_benchmarks.validity import Finding

T = TypeVar("T")

RESULTS_FORMAT: Final = 1
"""The version of the layout. A reader refuses others."""


class ResultsError(Exception):
    """A file holds no results, or those of another version."""


class Subject(msgspec.Struct, frozen=True):
    """What was measured. The durability stands first: figures of different durability are not compared.

    Attributes:
        durability: What an acknowledgement promises.
        durability_setting: The setting that gives it, as the server says.
        backend: The URL scheme.
        url: The URL, without secrets.
        sharing: Over which distance handles are one store.
        features: The declared features, sorted.
        server: Facts about the engine.
    """

    durability: str
    durability_setting: str
    backend: str
    url: str
    sharing: str
    features: tuple[str, ...]
    server: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, capabilities: Capabilities, url: str) -> Subject:
        """Describe an open store."""
        return cls(
            durability=capabilities.durability.value,
            durability_setting=capabilities.durability_setting,
            backend=capabilities.backend,
            url=url,
            sharing=capabilities.sharing.value,
            features=tuple(sorted(feature.value for feature in capabilities.features)),
            server=capabilities.server,
        )


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was asked for.

    Attributes:
        workload: Its name.
        lanes: Workers of the generator.
        threads: Threads that operations go round.
        batch_events: Events a batch.
        event_bytes: Bytes of a payload.
        journal_len: Events that each journal holds before the trial.
        seconds: The length of a trial.
        warm_up_s: What is thrown away before it.
        via: `store`: each worker calls the store. `lanes`: commit lanes group what waits.
        seed: Seed of everything random.
    """

    workload: str
    lanes: int = 8
    threads: int = 64
    batch_events: int = 1
    event_bytes: int = 600
    journal_len: int = 0
    seconds: float = 5.0
    warm_up_s: float = 0.5
    via: str = "store"
    seed: int = 1


class Second(msgspec.Struct, frozen=True):
    """One second of a trial.

    Attributes:
        done: Operations that ended in it without error.
        errors: Errors in it.
        conflicts: Conflicts in it.
        p50_ms: The median latency of those that ended in it, or None where none did.
        max_ms: The longest.
    """

    done: int
    errors: int
    conflicts: int
    p50_ms: float | None
    max_ms: float | None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial.

    Attributes:
        rate: Intended operations a second; None in a closed loop.
        closed: Whether the next operation waited for the one before: latencies leave out what such waiting hides.
        seconds: How long it took.
        operations: Operations that were started after the warm-up.
        done: Those that ended without error or conflict.
        conflicts: Those that lost a compare-and-set.
        errors: Those that failed, by class.
        skipped: Those that could not start in time.
        events_per_op: Events an operation.
        throughput: Done operations a second.
        latency: From the intended start.
        service: From the real start.
        lateness: Of the generator: between the moment when an operation could start and when it did.
        extra: Further histograms of the workload, such as `export_lag`.
        series: Second by second.
        usage: What was used.
        readings: Pairs of seconds and usage since the start, for drift.
        findings: What reading back found; any finding makes it INVALID.
        limited_by_generator: Whether the generator and not the store set the limit: a lower bound.
        slo_met: Whether it met the objective of the run; None where there was none.
        slo_missed: What it missed.
    """

    rate: float | None
    closed: bool
    seconds: float
    operations: int
    done: int
    conflicts: int
    errors: tuple[tuple[str, int], ...]
    skipped: int
    events_per_op: int
    throughput: float
    latency: HistogramData
    service: HistogramData
    lateness: HistogramData
    extra: tuple[tuple[str, HistogramData], ...]
    series: tuple[Second, ...]
    usage: Usage
    readings: tuple[tuple[float, Usage], ...]
    findings: tuple[Finding, ...]
    limited_by_generator: bool
    slo_met: bool | None = None
    slo_missed: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether everything that was acknowledged was read back, once and in order."""
        return not self.findings

    def latency_ms(self, q: float) -> float | None:
        """A quantile of the latency in milliseconds, or None where too few samples tell it."""
        histogram = Histogram.of(self.latency)
        return histogram.quantile_ns(q) / 1e6 if histogram.tells(q) else None


class Capacity(msgspec.Struct, frozen=True):
    """The highest rate at which the objective held.

    Attributes:
        low: It held at this rate, three times; 0 where it held at none.
        high: It failed at this rate, or None where the search ended first: then `low` is a lower bound.
        recommended: 80 % of `low`.
        confirmed: How often `low` was confirmed.
        reason: Why the search ended.
    """

    low: float
    high: float | None
    recommended: float
    confirmed: int
    reason: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one operation is made of, on average: counted in a pass of its own, never timed.

    Attributes:
        operations: How many operations were counted.
        events_per_op: Events an operation.
        round_trips: How often it waited for an answer of a server.
        bytes_sent: What it sent to one, in bytes.
        bytes_received: What it received, in bytes.
        file_reads: Read calls to files.
        file_writes: Write calls to files.
        file_bytes_read: What they read, in bytes.
        file_bytes_written: What they wrote, in bytes.
        syncs: Calls of fsync from Python; those of libraries in C, such as SQLite's, are not seen.
        python_calls: Calls of Python functions, and of C functions from Python.
    """

    operations: int
    events_per_op: int
    round_trips: float
    bytes_sent: float
    bytes_received: float
    file_reads: float
    file_writes: float
    file_bytes_read: float
    file_bytes_written: float
    syncs: float
    python_calls: float

    def line(self) -> str:
        """In one line, without what is zero."""
        moved = (
            (self.round_trips, "round trips"),
            (self.bytes_sent, "bytes sent"),
            (self.bytes_received, "bytes received"),
            (self.file_writes, "file writes"),
            (self.file_bytes_written, "bytes written"),
            (self.file_reads, "file reads"),
            (self.file_bytes_read, "bytes read"),
            (self.syncs, "syncs"),
            (self.python_calls, "Python calls"),
        )
        return ", ".join(f"{number:,.4g} {what}" for number, what in moved if number)


class Point(msgspec.Struct, frozen=True):
    """One combination of parameters.

    Attributes:
        settings: The swept parameters with their values; empty where nothing is swept.
        parameters: All parameters.
        trials: The trials, in the order in which they ran.
        capacity: The capacity at the objective, where it was searched.
        cost: What an operation is made of, or None where it was not counted.
    """

    settings: tuple[tuple[str, str], ...]
    parameters: Parameters
    trials: tuple[Trial, ...]
    capacity: Capacity | None = None
    cost: Cost | None = None

    @property
    def best(self) -> Trial:
        """The trial to show: the soak itself, else the fastest among those that met the objective, if any did."""
        if self.parameters.workload == "soak":
            return self.trials[-1]
        met = [trial for trial in self.trials if trial.slo_met] or list(self.trials)
        return max(met, key=lambda trial: trial.throughput)

    @property
    def label(self) -> str:
        """The settings in one text."""
        return ", ".join(f"{name}={value}" for name, value in self.settings) or self.parameters.workload


class Calibration(msgspec.Struct, frozen=True):
    """What the generator itself can do, against a null backend.

    Attributes:
        max_rate: The highest rate that it kept up with.
        lateness_p99_ms: How late it is at a calm rate: what this machine's timers and other work cost.
    """

    max_rate: float
    lateness_p99_ms: float


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A run.

    Attributes:
        format: The version of this layout.
        kind: `run`.
        subject: What was measured.
        environment: Where.
        command: The command that repeats it, without secrets.
        slo: The objective as it was given, or None.
        calibration: What the generator can do; None where only closed loops ran.
        points: One for each combination of swept parameters.
    """

    format: int = RESULTS_FORMAT
    kind: str = "run"
    subject: Subject
    environment: Environment
    command: str
    slo: str | None
    calibration: Calibration | None
    points: tuple[Point, ...]

    @property
    def valid(self) -> bool:
        """Whether each trial is valid."""
        return all(trial.valid for point in self.points for trial in point.trials)

    def write(self, file: Path) -> None:
        """Write it as JSON.

        Args:
            file: Where; its directory is made.
        """
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


class _Kind(msgspec.Struct, frozen=True):
    format: int
    kind: str


def read_run(file: Path) -> RunResult:
    """Read a run back.

    Args:
        file: What `RunResult.write` wrote.

    Returns:
        The run.

    Raises:
        ResultsError: It is no run, or of another version.
    """
    return read_result(file, {"run": RunResult})


def read_result(file: Path, types: Mapping[str, type[T]]) -> T:
    """Read results of one of some kinds.

    Args:
        file: What their `write` wrote.
        types: What to make of each kind.

    Returns:
        The results.

    Raises:
        ResultsError: It holds none of these, or those of another version.
    """
    try:
        data = file.read_bytes()
        kind = msgspec.json.decode(data, type=_Kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ResultsError(f"{file} holds no benchmark results: {error}") from error
    if kind.kind not in types or kind.format != RESULTS_FORMAT:
        wanted = " or ".join(repr(name) for name in types)
        raise ResultsError(
            f"{file} holds {kind.kind!r} of format {kind.format}; what is read here is {wanted} of format "
            f"{RESULTS_FORMAT}"
        )
    try:
        return msgspec.json.decode(data, type=types[kind.kind])
    except msgspec.DecodeError as error:
        raise ResultsError(f"{file} is damaged: {error}") from error
