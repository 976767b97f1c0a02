"""What an operation is made of is counted, and is the same each time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from statebook import load_backend
from statebook_benchmarks.cost import COUNTED, count_cost
from statebook_benchmarks.results import Cost, Parameters, RunResult, read_run
from statebook_benchmarks.runner import RunOrder, run
from statebook_benchmarks.workloads import Site
from statebook_conformance.services.provide import provide


class Silent:
    def trial(self, point: str, number: int, rate: float | None) -> None: ...

    def part(self, part: float) -> None: ...


def cost_of(url: str, **parameters: object) -> Cost:
    chosen = msgspec.structs.replace(Parameters(workload="append"), **parameters)
    return count_cost(Site(load_backend(url), chosen, "counted"))


def test_an_append_in_memory_touches_no_file_and_no_server() -> None:
    cost = cost_of("memory://cost")
    assert (cost.operations, cost.events_per_op) == (COUNTED, 1)
    assert (cost.round_trips, cost.file_reads, cost.file_writes, cost.syncs) == (0, 0, 0, 0)
    assert cost.python_calls > 0


def test_an_append_to_files_is_written_and_flushed(tmp_path: Path) -> None:
    cost = cost_of(f"file://{tmp_path}/store", event_bytes=600)
    assert cost.syncs >= 2  # the file, and the directory behind the rename
    assert cost.file_bytes_written > 600
    assert cost.round_trips == 0


def test_counts_do_not_depend_on_the_machine(tmp_path: Path) -> None:
    costs = [cost_of(f"sqlite:///{tmp_path}/{name}.db") for name in ("a", "b")]
    assert costs[0].file_writes == pytest.approx(costs[1].file_writes, rel=0.05)
    assert costs[0].python_calls == pytest.approx(costs[1].python_calls, rel=0.05)


def test_an_append_on_redis_is_one_round_trip() -> None:
    with provide("redis") as provided:
        cost = cost_of(provided.url)
    assert cost.round_trips == 1
    assert cost.bytes_sent > 600


def test_a_run_keeps_the_cost_of_each_point(tmp_path: Path) -> None:
    parameters = Parameters(workload="append", lanes=1, threads=1, seconds=0.2, warm_up_s=0.05)
    order = RunOrder(
        url="memory://cost-of-points",
        parameters=parameters,
        sweep=(("batch_events", ("1", "8")),),
        name="points",
        command="test",
    )
    result = run(order, Silent())
    result.write(tmp_path / "run.json")
    back: RunResult = read_run(tmp_path / "run.json")
    assert [point.cost.events_per_op for point in back.points if point.cost is not None] == [1, 8]
    assert all("Python calls" in point.cost.line() for point in back.points if point.cost is not None)
