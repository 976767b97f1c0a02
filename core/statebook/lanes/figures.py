"""What lanes and pools say about themselves: frozen snapshots, and the counters behind them."""

from __future__ import annotations

import msgspec


class LatencyFigures(msgspec.Struct, frozen=True):
    """How long something took.

    Attributes:
        count: How often.
        sum_s: All of it together, in seconds.
        max_s: The longest one.
    """

    count: int = 0
    sum_s: float = 0.0
    max_s: float = 0.0

    @property
    def mean_s(self) -> float:
        """The mean, or 0 where nothing was counted."""
        return self.sum_s / self.count if self.count else 0.0


class LaneFigures(msgspec.Struct, frozen=True):
    """One lane at one moment.

    Attributes:
        accepted: Batches accepted so far.
        committed: Batches that are in the journal.
        failed: Batches that are not, or whose outcome stayed unknown.
        refused: Submissions that met a full queue.
        queued_batches: Batches accepted and not yet answered.
        queued_bytes: Their bytes, as they are counted against the bounds.
        groups: Physical commits that this lane took part in.
        group_batches_max: The most batches that it had in one of them.
        resent: How often a batch was sent again.
        latency: From acceptance to receipt.
    """

    accepted: int
    committed: int
    failed: int
    refused: int
    queued_batches: int
    queued_bytes: int
    groups: int
    group_batches_max: int
    resent: int
    latency: LatencyFigures


class CommitFigures(msgspec.Struct, frozen=True):
    """All commit lanes at one moment.

    Attributes:
        lanes: Open lanes.
        workers: Threads that run.
        accepted: Batches accepted so far.
        committed: Batches that are in their journals.
        failed: Batches that are not, or whose outcome stayed unknown.
        refused: Submissions that met a full queue.
        queued_batches: Batches accepted and not yet answered.
        queued_bytes: Their bytes, as they are counted against the bounds.
        groups: Physical commits.
        group_batches: Batches in all of them; divided by `groups`, the mean size.
        group_batches_max: The largest one.
        resent: How often a batch was sent again.
        settled: How often the store was asked what became of a batch.
        latency: From acceptance to receipt.
        commit: The store's calls.
    """

    lanes: int
    workers: int
    accepted: int
    committed: int
    failed: int
    refused: int
    queued_batches: int
    queued_bytes: int
    groups: int
    group_batches: int
    group_batches_max: int
    resent: int
    settled: int
    latency: LatencyFigures
    commit: LatencyFigures


class PoolFigures(msgspec.Struct, frozen=True):
    """One pool at one moment.

    Attributes:
        workers: Threads that run.
        accepted: Calls accepted so far.
        finished: Calls that came back, with a result or an error.
        refused: Calls that met a full queue.
        queued: Calls that wait.
        running: Calls that run.
        latency: From acceptance to the end.
    """

    workers: int
    accepted: int
    finished: int
    refused: int
    queued: int
    running: int
    latency: LatencyFigures


class Stopwatch:
    """Counts durations; read it as `LatencyFigures`. The owner's lock guards it."""

    __slots__ = ("_count", "_max_s", "_sum_s")

    def __init__(self) -> None:
        self._count = 0
        self._sum_s = 0.0
        self._max_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._count += 1
        self._sum_s += seconds
        self._max_s = max(self._max_s, seconds)

    def figures(self) -> LatencyFigures:
        """What was counted so far."""
        return LatencyFigures(self._count, self._sum_s, self._max_s)


class Counters:
    """Counts of one lane, or of all of them. The owner's lock guards it."""

    __slots__ = (
        "accepted",
        "committed",
        "failed",
        "group_batches",
        "group_batches_max",
        "groups",
        "latency",
        "queued_batches",
        "queued_bytes",
        "refused",
        "resent",
        "settled",
    )

    def __init__(self) -> None:
        self.accepted = self.committed = self.failed = self.refused = 0
        self.queued_batches = self.queued_bytes = 0
        self.groups = self.group_batches = self.group_batches_max = 0
        self.resent = self.settled = 0
        self.latency = Stopwatch()

    def accept(self, size: int) -> None:
        """Count an accepted batch of so many bytes."""
        self.accepted += 1
        self.queued_batches += 1
        self.queued_bytes += size

    def answer(self, size: int, seconds: float, *, committed: bool) -> None:
        """Count a batch's answer, so many seconds after its acceptance."""
        self.queued_batches -= 1
        self.queued_bytes -= size
        if committed:
            self.committed += 1
            self.latency.add(seconds)
        else:
            self.failed += 1

    def group(self, batches: int) -> None:
        """Count a physical commit of so many batches."""
        self.groups += 1
        self.group_batches += batches
        self.group_batches_max = max(self.group_batches_max, batches)
