"""A log-linear histogram of times: three significant digits from a nanosecond to days, in a few kilobytes of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

_BITS: Final = 11
"""Values below 2**11 are exact; above, a bucket is at most 1/1024 of its value wide."""
_LINEAR: Final = 1 << _BITS
_HALF: Final = _LINEAR >> 1

SAMPLES_BEHIND: Final = 10
"""How many samples must lie behind a percentile before it is reported."""


def bucket_of(value: int) -> int:
    """The index of the bucket that a value falls into.

    Args:
        value: Nanoseconds, at least 0.

    Returns:
        The index; indexes grow with values.
    """
    shift = max(0, value.bit_length() - _BITS)
    return shift * _HALF + (value >> shift)


def highest_in(bucket: int) -> int:
    """The highest value of a bucket.

    Args:
        bucket: Its index.

    Returns:
        The value that stands for the bucket: no sample in it took longer.
    """
    if bucket < _LINEAR:
        return bucket
    shift = bucket // _HALF - 1
    return ((bucket - shift * _HALF + 1) << shift) - 1


class HistogramData(msgspec.Struct, frozen=True):
    """A histogram as it is stored.

    Attributes:
        buckets: Pairs of index and count, ascending; see `bucket_of`.
        count: How many samples.
        total_ns: Their sum.
        max_ns: The longest, exactly; 0 where there is none.
    """

    buckets: tuple[tuple[int, int], ...]
    count: int
    total_ns: int
    max_ns: int


class Histogram:
    """Counts nanoseconds. Not safe from many threads: give each its own, and merge."""

    def __init__(self, values: Iterable[int] = ()) -> None:
        """Make a histogram.

        Args:
            values: Nanoseconds to begin with.
        """
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total_ns = 0
        self.max_ns = 0
        for value in values:
            self.record(value)

    def record(self, value: int) -> None:
        """Count one sample; a negative one, which a clock can give, counts as 0.

        Args:
            value: Nanoseconds.
        """
        value = max(0, value)
        bucket = bucket_of(value)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.total_ns += value
        self.max_ns = max(self.max_ns, value)

    def merge(self, other: Histogram) -> None:
        """Add the samples of another histogram.

        Args:
            other: It stays as it is.
        """
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.count += other.count
        self.total_ns += other.total_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def quantile_ns(self, q: float) -> int:
        """The q-quantile in nanoseconds, within 1/1024.

        Args:
            q: 0 to 1.

        Returns:
            The least value that so many samples do not exceed.

        Raises:
            ValueError: There is no sample, or `q` is outside its range.
        """
        if not self.count or not 0 <= q <= 1:
            raise ValueError("a quantile needs at least one sample, and q from 0 to 1")
        wanted = max(1, -int(-q * self.count // 1))
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(highest_in(bucket), self.max_ns)
        return self.max_ns

    def tells(self, q: float) -> bool:
        """Tell whether enough samples lie behind a quantile for it to be reported."""
        return round(self.count * (1 - q), 6) >= SAMPLES_BEHIND or (q <= 0.5 and self.count >= SAMPLES_BEHIND)

    @property
    def mean_ns(self) -> float:
        """The mean in nanoseconds; 0 where there is no sample."""
        return self.total_ns / self.count if self.count else 0.0

    def spectrum(self) -> list[tuple[float, int]]:
        """The quantiles at which the value changes, as pairs of quantile and nanoseconds, ascending."""
        points = []
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            points.append((seen / self.count, min(highest_in(bucket), self.max_ns)))
        return points

    def data(self) -> HistogramData:
        """The histogram as it is stored."""
        return HistogramData(tuple(sorted(self._buckets.items())), self.count, self.total_ns, self.max_ns)

    @classmethod
    def of(cls, data: HistogramData) -> Histogram:
        """The histogram that was stored."""
        made = cls()
        made._buckets = dict(data.buckets)
        made.count, made.total_ns, made.max_ns = data.count, data.total_ns, data.max_ns
        return made


PERCENTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
"""The percentiles that are reported, where there are samples enough."""


def percentiles_ms(histogram: Histogram) -> dict[str, float]:
    """The percentiles that there are samples enough for, in milliseconds."""
    return {name: histogram.quantile_ns(q) / 1e6 for name, q in PERCENTILES.items() if histogram.tells(q)}
