"""What the project means to reach, and whether figures show that it does: each goal a ratio or a time of one run.

A goal is met where the whole interval of 95 % lies on its right side, missed where it lies on the wrong one, and
undecided in between. Ratios hold on any machine; times and rates are those of two cores of a server, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from statebook_benchmarks.figures import Figure
from statebook_benchmarks.peers.sidebyside import PeerFigure
from statebook_benchmarks.stats import Interval

AIO_RATIO: Final = 1 / 1.3
"""The asyncio facade takes at most 1.3 times what the blocking calls take."""


class Verdict(Enum):
    """Whether a goal is reached."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


class Judged(msgspec.Struct, frozen=True):
    """One goal beside what was found.

    Attributes:
        backend: Whose.
        what: What was measured.
        goal: What is to be reached.
        aim: What would be better still, or an empty text.
        found: What was found, with its interval.
        verdict: Whether the goal is reached.
        ratio: What was found, where the goal is a ratio to what stands beside it in the run, for plots.
    """

    backend: str
    what: str
    goal: str
    aim: str
    found: str
    verdict: Verdict
    ratio: Interval | None = None


class _Goal(msgspec.Struct, frozen=True):
    """A goal for one case of one backend.

    Attributes:
        scheme: The backend.
        durability: Only for this durability, or None for any.
        case: The case.
        read: Takes what is judged from the figures of one store.
        least: The least or, where `below` is set, the most.
        aim: What would be better still, or None.
        unit: What stands behind a number.
        below: Whether less is better.
    """

    scheme: str
    durability: str | None
    case: str
    read: _Read
    least: float
    aim: float | None = None
    unit: str = "of the raw engine"
    below: bool = False


_Read: TypeAlias = "Callable[[dict[str, Figure], str], Interval | None]"


def _ratio(figures: dict[str, Figure], case: str) -> Interval | None:
    return figures[case].ratio


def _milliseconds(figures: dict[str, Figure], case: str) -> Interval | None:
    taken = figures[case].microseconds
    return Interval(taken.estimate / 1e3, taken.low / 1e3, taken.high / 1e3)


def _rate(figures: dict[str, Figure], case: str) -> Interval | None:
    events, taken = figures[case].case.events * 1e6, figures[case].microseconds
    return Interval(events / taken.estimate, events / taken.high, events / taken.low)


def _times_one(figures: dict[str, Figure], case: str) -> Interval | None:
    """The rate of many writers as a multiple of that of one."""
    one = figures.get("append")
    if one is None:
        return None
    alone, together = one.microseconds, figures[case].microseconds
    return Interval(alone.estimate / together.estimate, alone.low / together.high, alone.high / together.low)


_RATE: Final = "events/s on two cores"
_MS: Final = "ms on two cores"
_GOALS: Final = (
    _Goal("sqlite", "host", "append", _ratio, 0.85, 0.93),
    _Goal("sqlite", "process", "append", _ratio, 0.75, 0.82),
    _Goal("sqlite", "host", "writers", _rate, 7_000, 12_000, _RATE),
    _Goal("sqlite", None, "group", _ratio, 0.5, 0.8),
    _Goal("file", None, "append", _ratio, 0.85),
    _Goal("file", None, "writers", _ratio, 0.7),
    _Goal("redis", None, "append", _ratio, 1.0, 1.3),
    _Goal("redis", None, "group", _ratio, 0.6),
    _Goal("mysql", None, "append", _ratio, 1.0, 1.25),
    _Goal("mysql", None, "writers", _times_one, 3.0, None, "times the rate of one writer"),
    _Goal("s3", None, "append", _ratio, 0.65, 0.88),
    _Goal("s3", None, "writers", _ratio, 0.8),
    _Goal("sqlite", None, "read", _milliseconds, 0.2, None, _MS, below=True),
    _Goal("redis", None, "read", _milliseconds, 0.4, None, _MS, below=True),
    _Goal("mysql", None, "read", _milliseconds, 0.8, None, _MS, below=True),
    _Goal("s3", None, "read", _milliseconds, 3.0, None, _MS, below=True),
    _Goal("sqlite", None, "load", _milliseconds, 30.0, 21.0, _MS, below=True),
    *(
        _Goal(scheme, None, "aio", _ratio, AIO_RATIO, None, "of the blocking calls")
        for scheme in ("memory", "file", "sqlite", "redis", "mysql", "s3")
    ),
)

_PEER_GOALS: Final = (
    ("memory", "append", "LangGraph InMemorySaver", 2.0),
    ("sqlite", "append", "LangGraph SqliteSaver", 1.0),
    ("sqlite", "append", "eventsourcing SQLite", 1.0),
    ("sqlite", "writers", "LangGraph SqliteSaver", 1.0),
    ("sqlite", "writers", "eventsourcing SQLite", 1.0),
)


def judge_figures(figures: Sequence[Figure]) -> tuple[Judged, ...]:
    """Hold figures against the goals of their backends.

    Args:
        figures: Of one run.

    Returns:
        A verdict for each goal that they tell anything about, in the order of the goals.
    """
    stores: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        stores.setdefault(figure.url, {})[figure.case.name] = figure
    return tuple(judged for found in stores.values() for judged in _judge_store(found))


def _judge_store(figures: dict[str, Figure]) -> Iterator[Judged]:
    for goal in _GOALS:
        figure = figures.get(goal.case)
        if figure is None or figure.backend.partition("+")[0] != goal.scheme:
            continue
        if goal.durability not in (None, figure.promise):
            continue
        value = goal.read(figures, goal.case)
        if value is not None:
            name = f"{figure.backend} ({figure.promise})"
            judged = _judged(name, goal.case, value, goal.least, goal.aim, goal.unit, below=goal.below)
            yield msgspec.structs.replace(judged, ratio=value) if goal.read is _ratio else judged


def judge_peers(figures: Sequence[PeerFigure]) -> tuple[Judged, ...]:
    """Hold figures beside peers against the goals: so many times as fast as they are."""
    return tuple(
        _judged(f"statebook ({medium})", f"{case} beside {name}", figure.ratio, least, None, "times as fast")
        for medium, case, name, least in _PEER_GOALS
        for figure in figures
        if (figure.medium, figure.case, figure.name) == (medium, case, name) and figure.ratio is not None
    )


def _judged(
    backend: str, what: str, value: Interval, least: float, aim: float | None, unit: str, *, below: bool = False
) -> Judged:
    good, bad = (value.high <= least, value.low > least) if below else (value.low >= least, value.high < least)
    side = "at most" if below else "at least"
    return Judged(
        backend=backend,
        what=what,
        goal=f"{side} {_number(least)} {unit}",
        aim="" if aim is None else _number(aim),
        found=f"{_number(value.estimate)} ({_number(value.low)} to {_number(value.high)})",
        verdict=Verdict.MET if good else Verdict.MISSED if bad else Verdict.UNDECIDED,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
