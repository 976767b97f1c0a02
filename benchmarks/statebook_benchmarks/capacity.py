"""The search for a capacity: double until the objective fails, bisect to 5 %, confirm three times. Pure.

A trial that misses the objective, or in which the generator was the limit, is made once more and the second one counts:
one hiccup of a machine would else decide a search of minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from statebook_benchmarks.histogram import PERCENTILES, Histogram
from statebook_benchmarks.results import Capacity, Trial

PRECISION: Final = 0.05
"""How near the rate that holds and the one that fails come together."""
HALVED_MAX: Final = 64
"""Down to what part of its beginning a search goes that finds no rate."""
CONFIRMATIONS: Final = 3
"""How often the result must hold again."""
RECOMMENDED: Final = 0.8
"""What part of the capacity is recommended."""
_SLO: Final = re.compile(r"(p50|p90|p99|p99\.9)=(\d+(?:\.\d+)?)(us|ms|s)\Z")
_UNITS: Final = {"us": 1e3, "ms": 1e6, "s": 1e9}


class Objective(msgspec.Struct, frozen=True):
    """What latency must hold.

    Attributes:
        percentile: `p50`, `p90`, `p99` or `p99.9`.
        limit_ns: What it may be.
        text: As it was given.
    """

    percentile: str
    limit_ns: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read an objective such as `p99=20ms`.

        Raises:
            ValueError: It is none.
        """
        match = _SLO.match(text)
        if match is None:
            raise ValueError(f"{text!r} is no objective; write p50, p90, p99 or p99.9 and a time: p99=20ms")
        return cls(match[1], float(match[2]) * _UNITS[match[3]], text)

    @property
    def samples(self) -> int:
        """How many operations a trial needs for its percentile to tell anything."""
        return int(20 / (1 - PERCENTILES[self.percentile]))

    def missed(self, trial: Trial) -> tuple[str, ...]:
        """What of the objective a trial missed; nothing where it met it.

        Args:
            trial: The trial.

        Returns:
            One sentence for each miss. Errors and skipped operations miss it too.
        """
        latency = Histogram.of(trial.latency)
        misses = []
        if trial.errors:
            misses.append(f"{sum(count for _, count in trial.errors)} errors")
        if trial.skipped:
            misses.append(f"{trial.skipped} operations could not start in time")
        if not latency.count:
            misses.append("no operation was done")
        else:
            found = latency.quantile_ns(PERCENTILES[self.percentile])
            if found > self.limit_ns:
                misses.append(f"{self.percentile} was {found / 1e6:.2f} ms")
        return tuple(misses)


class Probed(msgspec.Struct, frozen=True):
    """What one trial of the search came to.

    Attributes:
        met: Whether the objective held.
        limited: Whether the generator was the limit: higher rates tell nothing.
    """

    met: bool
    limited: bool = False


def find_capacity(
    probe: Callable[[float], Probed], *, start: float, rate_max: float = 1e6, trials_max: int = 60
) -> Capacity:
    """Search for the highest rate at which the objective holds.

    Args:
        probe: Runs a trial at a rate.
        start: The rate to begin with.
        rate_max: Higher rates are not tried.
        trials_max: The most trials.

    Returns:
        The capacity as an interval: it held at `low`, three times, and failed at `high`.

    Raises:
        ValueError: `start` is not positive.
    """
    if start <= 0:
        raise ValueError("the search must begin with a positive rate")
    search = _Search(probe, trials_max)
    low, high = 0.0, None
    rate, limited = min(start, rate_max), False
    while high is None and search.left and not limited:
        met, limited = search.ask(rate)
        if not met:
            high = rate
        else:
            low = rate
            if rate >= rate_max:
                break
            rate = min(rate * 2, rate_max)
    while low == 0.0 and high is not None and high > start / HALVED_MAX and search.left:
        met, _ = search.ask(high / 2)
        low, high = (high / 2, high) if met else (0.0, high / 2)
    confirmed = 0
    while low > 0 and search.left and confirmed < CONFIRMATIONS:
        if high is not None and high > low * (1 + PRECISION):
            middle = (low + high) / 2
            met, _ = search.ask(middle)
            low, high = (middle, high) if met else (low, middle)
            continue
        met, _ = search.ask(low)
        if met:
            confirmed += 1
        else:
            low, high, confirmed = low * (1 - PRECISION), low, 0
    return Capacity(low, high, low * RECOMMENDED, confirmed, _reason(low, high, confirmed, limited=limited))


def _reason(low: float, high: float | None, confirmed: int, *, limited: bool) -> str:
    if low == 0:
        return "the objective held at no rate that was tried"
    if confirmed < CONFIRMATIONS:
        return "the trials ran out before it was confirmed"
    if limited:
        return "the generator was the limit: a lower bound"
    return "found and confirmed" if high is not None else "it held at the highest rate: a lower bound"


class _Search:
    """Counts the trials of a search."""

    def __init__(self, probe: Callable[[float], Probed], trials_max: int) -> None:
        self._probe = probe
        self.left = trials_max

    def ask(self, rate: float) -> tuple[bool, bool]:
        answer = self._once(rate)
        if self.left and (not answer.met or answer.limited):
            answer = self._once(rate)
        return answer.met, answer.limited

    def _once(self, rate: float) -> Probed:
        self.left -= 1
        return self._probe(rate)
