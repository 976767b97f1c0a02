"""Rounds that take turns: every contender runs in each round, in an order that is drawn anew."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

WARM_UP_ROUNDS: Final = 1
"""Rounds whose times are thrown away."""

SIZING_TRIALS: Final = 3
"""How many trials at least tell how long an operation takes."""


class Spent(msgspec.Struct, frozen=True):
    """The time that operations took.

    Attributes:
        seconds: By the clock on the wall.
        cpu_s: Of the processor, in this process: what other work on the machine does not change.
    """

    seconds: float
    cpu_s: float

    def each(self, operations: float) -> Spent:
        """The same of one operation of so many."""
        return Spent(self.seconds / operations, self.cpu_s / operations)


class Watch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        """Start."""
        self._cpu_s = time.process_time()
        self._started = time.perf_counter()

    def spent(self) -> Spent:
        """What has been spent since."""
        return Spent(time.perf_counter() - self._started, time.process_time() - self._cpu_s)


class Contender(Protocol):
    """What is measured beside others."""

    @property
    def name(self) -> str:
        """How it is called in tables."""
        ...

    def run(self, operations: int) -> Spent:
        """Do so many operations, and give the time that they took. Preparation is not counted."""
        ...


class Timing(msgspec.Struct, frozen=True):
    """The rounds of one contender.

    Attributes:
        name: The contender.
        operations: Operations a round.
        seconds_per_op: Seconds an operation, one number a round, in the order of the rounds.
        cpu_s_per_op: Processor seconds of this process an operation, likewise.
    """

    name: str
    operations: int
    seconds_per_op: tuple[float, ...]
    cpu_s_per_op: tuple[float, ...]


def interleave(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    round_s: float,
    operations_max: int = 20_000,
    seed: int = 1,
    progress: Callable[[], None] = lambda: None,
) -> tuple[Timing, ...]:
    """Run contenders in interleaved rounds.

    Each does as many operations a round as it needs for about `round_s`, found by a short trial first.

    Args:
        contenders: The contenders.
        rounds: How many rounds count.
        round_s: How long one contender runs in a round, about.
        operations_max: The most operations of a round.
        seed: Draws the order within each round.
        progress: Called after each run.

    Returns:
        The timings, in the order of the contenders.

    Raises:
        ValueError: `rounds` is not positive.
    """
    if rounds < 1:
        raise ValueError("there must be at least one round")
    rng = random.Random(seed)
    sizes = [_size(contender, round_s, operations_max) for contender in contenders]
    times: list[list[Spent]] = [[] for _ in contenders]
    for number in range(rounds + WARM_UP_ROUNDS):
        order = list(range(len(contenders)))
        rng.shuffle(order)
        for index in order:
            spent = contenders[index].run(sizes[index])
            if number >= WARM_UP_ROUNDS:
                times[index].append(spent.each(sizes[index]))
            progress()
    return tuple(
        Timing(contender.name, size, tuple(s.seconds for s in measured), tuple(s.cpu_s for s in measured))
        for contender, size, measured in zip(contenders, sizes, times, strict=True)
    )


def _size(contender: Contender, round_s: float, operations_max: int) -> int:
    """Find how many operations take about `round_s`, from the fastest of some growing trials.

    The first operation is thrown away, and one slow trial decides nothing: on a busy machine it may have waited.
    """
    contender.run(1)
    operations, best, trials = 1, float("inf"), 0
    while True:
        best = min(best, contender.run(operations).seconds / operations)
        trials += 1
        enough = best * operations >= round_s / 4 and trials >= SIZING_TRIALS
        if enough or operations >= operations_max:
            return max(1, min(operations_max, int(round_s / max(best, 1e-9))))
        if best * operations < round_s / 4:
            operations = min(operations_max, operations * 4)
