"""Every workload on the reference backend: it operates and is valid, and INVALID where a store loses or doubles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from statebook import (
    AgentStateStore,
    Batch,
    InvalidConfiguration,
    Receipt,
    StateKey,
    ThreadJournalStore,
    WriterClaim,
    load_backend,
)
from statebook_benchmarks.capacity import Objective
from statebook_benchmarks.cli import WORKLOAD_NAMES, group, parse_sweep
from statebook_benchmarks.counters import Counters, listener
from statebook_benchmarks.results import Parameters
from statebook_benchmarks.runner import RunOrder, checked, combinations, run as run_order
from statebook_benchmarks.summary import RunProgress
from statebook_benchmarks.trial import TrialOrder, run_trial
from statebook_benchmarks.workloads import WORKLOADS, Site

JOURNAL = tuple(name for name in WORKLOADS if not name.startswith("cas"))


def site(workload: str, name: str, **more: int | str) -> Site:
    parameters = Parameters(workload=workload, lanes=2, threads=3, seconds=0.05, warm_up_s=0.0)
    for key, value in more.items():
        parameters = next(combinations(parameters, ((key, (str(value),)),)))[1]
    return Site(load_backend(f"memory://{name}"), parameters, name)


def order(where: Site, rate: float | None = None) -> TrialOrder:
    return TrialOrder(where, rate, None, Counters(), lambda part: None)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload_operates_and_what_it_leaves_is_valid(workload: str) -> None:
    trial = run_trial(order(site(workload, f"works-{workload}", journal_len=150)))
    assert trial.valid
    assert trial.done > 0
    assert trial.errors == ()
    assert trial.usage.cpu_s > 0
    if workload in ("export", "takeover"):
        assert trial.extra[0][1].count > 0


def test_appends_through_commit_lanes_are_valid_too() -> None:
    trial = run_trial(order(site("append", "works-lanes", via="lanes", batch_events=8)))
    assert trial.valid
    assert trial.events_per_op == 8


def test_the_command_knows_every_workload() -> None:
    assert tuple(WORKLOADS) == WORKLOAD_NAMES


def losing(store: ThreadJournalStore, *, twice: bool) -> ThreadJournalStore:
    """Make a store acknowledge every tenth batch without having it, or store it under a second id as well."""
    honest = store.append
    shift: dict[str, int] = {}
    calls: list[str] = []

    def append(claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        moved = shift.get(claim.key.name, 0)
        calls.append(batch.batch_id)
        if len(calls) % 10 == 0:
            if not twice:
                shift[claim.key.name] = moved - len(batch.events)
                last = base_seq + len(batch.events)
                return Receipt(batch.batch_id, claim.journal_id, base_seq + 1, last, claim.epoch, "0" * 64)
            receipt = honest(claim, batch, base_seq + moved)
            again = tuple(
                type(e)(event_id=e.event_id + "'", type=e.type, occurred_at=0, payload=e.payload) for e in batch.events
            )
            honest(claim, Batch(batch.batch_id + "'", again), receipt.last_seq)
            shift[claim.key.name] = moved + len(batch.events)
        else:
            receipt = honest(claim, batch, base_seq + moved)
        return Receipt(batch.batch_id, claim.journal_id, base_seq + 1, base_seq + len(batch.events), claim.epoch, "")

    store.append = append  # type: ignore[method-assign]
    return store


class Spoiled:
    """A backend whose journal store loses or doubles."""

    def __init__(self, name: str, *, twice: bool) -> None:
        self._backend = load_backend(f"memory://{name}")
        self._twice = twice

    def open_journal(self, require: Sequence[object] = ()) -> ThreadJournalStore:
        return losing(self._backend.open_journal(), twice=self._twice)

    def open_state(self, require: Sequence[object] = ()) -> AgentStateStore:
        return self._backend.open_state()


@pytest.mark.parametrize(("twice", "what"), [(False, "loss"), (True, "unknown event")])
@pytest.mark.parametrize("workload", ["append", "turn", "export", "soak"])
def test_a_store_that_loses_or_doubles_makes_the_trial_invalid(workload: str, what: str, *, twice: bool) -> None:
    name = f"spoiled-{workload}-{twice}"
    parameters = Parameters(workload=workload, lanes=1, threads=1, seconds=0.1, warm_up_s=0.0)
    where = Site(Spoiled(name, twice=twice), parameters, name)  # type: ignore[arg-type]
    trial = run_trial(order(where))
    assert not trial.valid
    assert what in {finding.what for finding in trial.findings}


def test_a_lost_update_of_a_counter_makes_the_trial_invalid() -> None:
    where = site("cas_hot", "lost-update")
    honest = where.backend.open_state

    def open_state(require: Sequence[object] = ()) -> AgentStateStore:
        store = honest()
        save, saves = store.save, []

        def forgets(slot: StateKey, value: bytes, *, expected: object = None) -> int:
            saves.append(slot)
            if len(saves) % 10 == 0:
                return 10**9
            return save(slot, value, expected=expected)  # type: ignore[arg-type]

        store.save = forgets  # type: ignore[method-assign, assignment]
        return store

    where.backend.open_state = open_state  # type: ignore[method-assign]
    trial = run_trial(order(where))
    assert {finding.what for finding in trial.findings} == {"loss"}


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(group, ["run", *arguments])
    return done.exit_code, done.output


def test_a_run_searches_for_its_capacity_writes_it_and_is_compared_and_reported(tmp_path: Path) -> None:
    short = ("memory://run", "--lanes", "1", "--threads", "2", "--seconds", "0.05", "--out", str(tmp_path))
    code, output = run(*short, "--slo", "p50=200ms")
    assert code == 0, output
    assert "capacity" in output
    (file,) = tmp_path.glob("*.json")
    written = json.loads(file.read_bytes())
    assert written["points"][0]["capacity"]["low"] > 0
    page = str(tmp_path / "r.html")
    for command in (["compare", str(file), str(file)], ["report", str(file), "--html", page], ["advise", str(file)]):
        done = CliRunner().invoke(group, command)
        assert done.exit_code == 0, done.output
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_soak_finds_the_capacity_first_and_runs_below_it() -> None:
    parameters = Parameters(workload="soak", lanes=1, threads=2, seconds=0.1, warm_up_s=0.0)
    wanted = RunOrder(
        url="memory://soak",
        parameters=parameters,
        objective=Objective.parse("p50=500ms"),
        name="soak",
        command="",
        trials_max=4,
    )
    with RunProgress(Console(quiet=True)) as progress:
        (point,) = run_order(wanted, progress).points
    assert point.capacity is not None
    assert point.best is point.trials[-1]
    assert point.best.rate == pytest.approx(0.8 * point.capacity.low)
    assert all(trial.valid for trial in point.trials)


def test_a_sweep_runs_every_combination_in_a_labelled_closed_loop() -> None:
    code, output = run(
        "memory://sweep", "--sweep", "lanes=1,2", "--sweep", "batch-events=1,8", "--threads", "2", "--seconds", "0.03"
    )
    assert code == 0, output
    assert "closed loop" in output
    assert output.count("lanes=") >= 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "URL"),
        (("memory://x", "--slo", "fast"), "objective"),
        (("memory://x", "--closed", "--rate", "5"), "one of"),
        (("memory://x", "--sweep", "lanes"), "lanes=1,2,4"),
    ],
)
def test_a_wrong_run_says_what_is_wrong(arguments: tuple[str, ...], says: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert says in output


def test_sweeps_take_numbers_as_people_write_them() -> None:
    assert parse_sweep("journal-len=1e3, 1e4") == ("journal_len", ("1e3", "1e4"))
    points = list(combinations(Parameters(workload="append", threads=4), (("lanes", ("2", "8")),)))
    assert [(p.lanes, p.threads) for _, p in points] == [(2, 4), (8, 8)]


def test_a_file_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}", encoding="utf-8")
    done = CliRunner().invoke(group, ["advise", str(file)])
    assert done.exit_code == 1
    assert "no benchmark results" in done.output


def test_nobody_listens_on_a_port_that_nobody_has() -> None:
    assert listener(1) is None


@pytest.mark.parametrize("workload", ["turn", "stream", "cas_hot"])
def test_commit_lanes_are_refused_where_they_would_change_nothing(workload: str) -> None:
    with pytest.raises(InvalidConfiguration, match="via=lanes is for the workload append"):
        checked(Parameters(workload=workload, batch_events=1, event_bytes=600, via="lanes"))
