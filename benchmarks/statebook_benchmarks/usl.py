"""The Universal Scalability Law: throughput against lanes, with what contention and coherence take. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from statebook_benchmarks.stats import quantile


class Usl(msgspec.Struct, frozen=True):
    """`throughput(n) = rate * n / (1 + contention * (n - 1) + coherence * n * (n - 1))`.

    Attributes:
        rate: What one lane does.
        contention: The part that is done one after the other; 0 scales linearly.
        coherence: What lanes cost each other in pairs; above 0, more lanes become slower.
    """

    rate: float
    contention: float
    coherence: float

    def at(self, lanes: float) -> float:
        """The throughput at so many lanes."""
        return self.rate * lanes / (1 + self.contention * (lanes - 1) + self.coherence * lanes * (lanes - 1))

    @property
    def peak(self) -> float | None:
        """At how many lanes the throughput is highest, or None where more are never slower."""
        if self.coherence <= 0:
            return None
        return max(1.0, math.sqrt(max(0.0, 1 - self.contention) / self.coherence))


def fit(points: Sequence[tuple[float, float]]) -> Usl | None:
    """Fit the law by least squares of relative errors, over a grid that is refined.

    Args:
        points: Pairs of lanes and throughput, both positive.

    Returns:
        The fit, or None where fewer than three different numbers of lanes were measured.
    """
    if len({lanes for lanes, _ in points}) < 3 or any(x <= 0 or y <= 0 for x, y in points):
        return None
    contention, coherence, width = 0.5, 0.05, 1.0
    best = _rated(points, contention, coherence)
    for _ in range(40):
        steps = [step / 4 * width for step in range(-4, 5)]
        near = [
            _rated(points, max(0.0, contention + 0.5 * a), max(0.0, coherence + 0.05 * b)) for a in steps for b in steps
        ]
        found = min(near, key=lambda law: _error(points, law))
        if _error(points, found) < _error(points, best):
            best = found
            contention, coherence = best.contention, best.coherence
        else:
            width *= 0.6
    return best


def _rated(points: Sequence[tuple[float, float]], contention: float, coherence: float) -> Usl:
    """The law with the rate that fits best at given losses."""
    unit = Usl(1.0, contention, coherence)
    return Usl(quantile(sorted(y / unit.at(x) for x, y in points), 0.5), contention, coherence)


def _error(points: Sequence[tuple[float, float]], law: Usl) -> float:
    return sum((law.at(x) / y - 1) ** 2 for x, y in points)
