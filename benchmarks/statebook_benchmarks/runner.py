"""A run: calibrate the generator, go through the swept parameters, try rates or search for the capacity."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, Protocol

import msgspec

from statebook import InvalidConfiguration, StoreUrl, load_backend
from statebook.plugins import Backend
from statebook_benchmarks.capacity import Objective, Probed, find_capacity
from statebook_benchmarks.cost import count_cost
from statebook_benchmarks.counters import Counters
from statebook_benchmarks.environment import environment, load
from statebook_benchmarks.results import Calibration, Parameters, Point, RunResult, Subject, Trial
from statebook_benchmarks.trial import LATENESS_MAX_NS, TrialOrder, calibrate, run_trial
from statebook_benchmarks.workloads import WORKLOADS, Site

SWEPT: Final = ("lanes", "threads", "batch_events", "event_bytes", "journal_len", "via")
"""The parameters that can be swept."""
LONGER_MAX: Final = 6
"""How many times longer than asked for a trial may become so that its percentile tells something."""
LATE_PART: Final = 0.1
"""What part of the objective the generator may be late by."""
SEARCHED_S: Final = 5.0
"""The length of the trials that look for the rate of a soak."""
NOT_COUNTED: Final = ("takeover", "export", "stream", "soak")
"""Workloads whose operations are not one call after the other, and are not counted."""
SCOUT_S: Final = 0.5
"""The length of the closed trial that finds out where the search begins."""


class Progress(Protocol):
    """Who is told how far a run is."""

    def trial(self, point: str, number: int, rate: float | None) -> None:
        """A trial begins."""
        ...

    def part(self, part: float) -> None:
        """So much of the trial is over, 0 to 1."""
        ...


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run.

    Attributes:
        url: The store.
        parameters: The parameters that are not swept.
        sweep: Swept parameters with their values: every combination is a point.
        objective: The capacity at this objective is searched; None for no search.
        rate: One trial at this rate; None for none.
        name: A fresh name, for the namespace.
        command: The command that repeats it, without secrets.
        trials_max: The most trials of a search.
    """

    url: str
    parameters: Parameters
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    objective: Objective | None = None
    rate: float | None = None
    name: str
    command: str
    trials_max: int = 40


def run(order: RunOrder, progress: Progress) -> RunResult:
    """Run.

    Args:
        order: What.
        progress: Who is told.

    Returns:
        The result; `valid` says whether each trial is.

    Raises:
        StatebookError: The store cannot be opened, or failed in preparation or while it was read back.
        InvalidConfiguration: A swept parameter or a value is none.
    """
    target = StoreUrl.parse(order.url)
    backend = load_backend(target.with_option("namespace", order.name))
    points = list(combinations(order.parameters, order.sweep))
    where = environment()
    with closing(backend.open_journal()) as store:
        subject = Subject.of(store.capabilities, target.redacted())
    try:
        opens = order.rate is not None or order.objective is not None
        calibration = calibrate(max(parameters.lanes for _, parameters in points)) if opens else None
        runner = _Runner(backend, order, calibration, Counters(_port(target)), progress)
        measured = tuple(runner.point(settings, parameters) for settings, parameters in points)
    finally:
        backend.destroy_namespace()
    return RunResult(
        subject=subject,
        environment=msgspec.structs.replace(where, load_after=load()),
        command=order.command,
        slo=None if order.objective is None else order.objective.text,
        calibration=calibration,
        points=measured,
    )


def _port(target: StoreUrl) -> int | None:
    if target.hosts and target.hosts[0].port is not None:
        return target.hosts[0].port
    endpoint = dict(target.query).get("endpoint_url")
    if endpoint is None:
        return None
    hosts = StoreUrl.parse(endpoint).hosts
    return hosts[0].port if hosts else None


def combinations(
    parameters: Parameters, sweep: Sequence[tuple[str, Sequence[str]]]
) -> Iterator[tuple[tuple[tuple[str, str], ...], Parameters]]:
    """Yield every combination of swept values. There are always at least as many threads as lanes.

    Args:
        parameters: The values that are not swept.
        sweep: Names with values, as texts; numbers may be written as `1e4`.

    Yields:
        The settings of a point, and all its parameters.

    Raises:
        InvalidConfiguration: A name or a value is none.
    """
    names = [name for name, _ in sweep]
    for name in names:
        if name not in SWEPT or names.count(name) > 1:
            raise InvalidConfiguration(f"{name!r} cannot be swept, or is twice; there are {', '.join(SWEPT)}")
    for values in itertools.product(*(values for _, values in sweep)):
        settings = tuple(zip(names, values, strict=True))
        chosen = msgspec.structs.replace(parameters, **{name: _value(name, value) for name, value in settings})
        yield settings, checked(chosen)


def checked(parameters: Parameters) -> Parameters:
    """The parameters with as many threads as lanes at least.

    Raises:
        InvalidConfiguration: A number is outside its range, or a name is none.
    """
    least = {"lanes": 1, "threads": 1, "batch_events": 1, "event_bytes": 2, "journal_len": 0}
    for name, minimum in least.items():
        if getattr(parameters, name) < minimum:
            raise InvalidConfiguration(f"{name} must be at least {minimum}", option=name)
    if parameters.seconds <= 0 or parameters.warm_up_s < 0:
        raise InvalidConfiguration("seconds must be positive, and the warm-up not negative", option="seconds")
    if parameters.workload not in WORKLOADS or parameters.via not in ("store", "lanes"):
        raise InvalidConfiguration(
            f"there is no workload {parameters.workload!r}, or via is neither store nor lanes", option="workload"
        )
    if parameters.via == "lanes" and parameters.workload != "append":
        raise InvalidConfiguration(
            f"via=lanes is for the workload append; {parameters.workload} goes its own way", option="via"
        )
    return msgspec.structs.replace(parameters, threads=max(parameters.threads, parameters.lanes))


def _value(name: str, text: str) -> int | str:
    if name == "via":
        return text
    try:
        number = float(text)
        if number != int(number):
            raise ValueError
    except (ValueError, OverflowError):
        raise InvalidConfiguration(f"{name} takes whole numbers, not {text!r}", option=name) from None
    return int(number)


class _Runner:
    """Runs the trials of one run."""

    def __init__(
        self, backend: Backend, order: RunOrder, calibration: Calibration | None, counters: Counters, progress: Progress
    ) -> None:
        self._backend = backend
        self._order = order
        self._calibration = calibration
        self._counters = counters
        self._progress = progress
        self._number = 0

    def point(self, settings: tuple[tuple[str, str], ...], parameters: Parameters) -> Point:
        """Run the trials of a point, and count what an operation costs."""
        measured = self._measured(settings, parameters)
        if parameters.workload in NOT_COUNTED or parameters.via != "store":
            return measured
        site = Site(self._backend, parameters, f"{self._order.name}-{self._number}")
        return msgspec.structs.replace(measured, cost=count_cost(site))

    def _measured(self, settings: tuple[tuple[str, str], ...], parameters: Parameters) -> Point:
        point = Point(settings, parameters, ())
        objective, rate = self._order.objective, self._order.rate
        if objective is None:
            return msgspec.structs.replace(point, trials=(self._trial(point, parameters, rate),))
        if rate is not None:
            return msgspec.structs.replace(point, trials=(self._judged(point, objective, rate),))
        return self._search(point, objective)

    def _search(self, point: Point, objective: Objective) -> Point:
        trials: list[Trial] = []
        short = msgspec.structs.replace(
            point.parameters, seconds=SCOUT_S, warm_up_s=0.1, workload=self._searched(point)
        )
        scout = self._trial(point, short, None)

        def probe(rate: float) -> Probed:
            trial = self._judged(point, objective, rate)
            trials.append(trial)
            return Probed(bool(trial.slo_met), trial.limited_by_generator)

        start = max(1.0, scout.throughput / 8)
        found = find_capacity(probe, start=start, trials_max=self._order.trials_max)
        if point.parameters.workload == "soak" and found.recommended > 0:
            trials.append(self._trial(point, point.parameters, found.recommended))
        return msgspec.structs.replace(point, trials=(scout, *trials), capacity=found)

    @staticmethod
    def _searched(point: Point) -> str:
        return "append" if point.parameters.workload == "soak" else point.parameters.workload

    def _judged(self, point: Point, objective: Objective, rate: float) -> Trial:
        """Run a trial at a rate, long enough for its percentile, and hold it against the objective."""
        soaking = point.parameters.workload == "soak" and self._order.rate is None
        asked = min(SEARCHED_S, point.parameters.seconds) if soaking else point.parameters.seconds
        seconds = max(asked, min(asked * LONGER_MAX, objective.samples / rate))
        parameters = msgspec.structs.replace(point.parameters, seconds=seconds, workload=self._searched(point))
        trial = self._trial(point, parameters, rate)
        missed = (*objective.missed(trial), *(finding.detail for finding in trial.findings))
        return msgspec.structs.replace(trial, slo_met=not missed, slo_missed=missed)

    def _trial(self, point: Point, parameters: Parameters, rate: float | None) -> Trial:
        self._number += 1
        self._progress.trial(point.label, self._number, rate)
        site = Site(self._backend, parameters, f"{self._order.name}-{self._number}")
        objective = self._order.objective
        late = LATENESS_MAX_NS if objective is None else max(LATENESS_MAX_NS, objective.limit_ns * LATE_PART)
        return run_trial(TrialOrder(site, rate, self._calibration, self._counters, self._progress.part, late))
