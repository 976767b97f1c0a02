"""The figures: they run on every embedded backend, beside its raw engine, and say so when a store loses something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from statebook import StoreUrl
from statebook_benchmarks.cli import group
from statebook_benchmarks.content import payload_of
from statebook_benchmarks.environment import environment, parse_importtime
from statebook_benchmarks.figures import Effort, measure_backend
from statebook_benchmarks.interleave import Spent, interleave
from statebook_benchmarks.raw import raw_engine

SHORT = Effort(rounds=3, round_s=0.002)


def embedded(scheme: str, directory: Path) -> str:
    return {
        "memory": "memory://figures",
        "file": f"file://{directory}/store",
        "sqlite": f"sqlite:///{directory}/store.db?synchronous=normal",
    }[scheme]


def no_progress(case: str, done: int, of: int) -> None:
    assert done <= of, case


@pytest.mark.parametrize("scheme", ["memory", "file", "sqlite"])
def test_an_embedded_backend_is_measured_beside_its_raw_engine_and_leaves_nothing(scheme: str, tmp_path: Path) -> None:
    cases = ("append", "group", "writers")
    measured = measure_backend(embedded(scheme, tmp_path.resolve()), cases, SHORT, name="bench-x", progress=no_progress)
    assert measured.findings == ()
    assert [figure.case.name for figure in measured.figures] == list(cases)
    for figure in measured.figures:
        assert len(figure.ours.seconds_per_op) == SHORT.rounds
        assert figure.floor is not None
        assert figure.ratio is not None
        assert figure.ratio.low <= figure.ratio.estimate <= figure.ratio.high
        assert min(figure.ours.seconds_per_op) > 0
    assert not [path for path in tmp_path.rglob("*bench-x*") if path.is_file()]


@pytest.mark.parametrize("scheme", ["file", "sqlite"])
def test_the_raw_engine_refuses_a_head_that_somebody_else_moved(scheme: str, tmp_path: Path) -> None:
    engine = raw_engine(StoreUrl.parse(embedded(scheme, tmp_path)), "bench-y", 1)
    assert engine is not None
    one, other = engine.lane(), engine.lane()
    one.append(0, b"{}")
    with pytest.raises(RuntimeError, match="somebody else"):
        other.append(0, b"{}")
    one.close()
    other.close()
    engine.destroy()
    assert list(tmp_path.iterdir()) == []


def test_the_raw_engine_of_files_keeps_every_batch(tmp_path: Path) -> None:
    engine = raw_engine(StoreUrl.parse(embedded("file", tmp_path)), "bench-z", 1)
    assert engine is not None
    lane = engine.lane()
    bodies = [b'"%03d%s"' % (number, b"x" * 995) for number in range(150)]
    for body in bodies:
        lane.append(0, body)
    (directory,) = tmp_path.iterdir()
    segments = sorted(directory.glob("0.*.segment"), key=lambda path: int(path.name.split(".")[1]))
    _, _, tail = (directory / "0.json").read_bytes().partition(b"\n")
    assert b"".join([*(path.read_bytes() for path in segments), tail]).splitlines() == bodies
    assert len(segments) == 2
    lane.close()
    engine.destroy()


def test_the_command_prints_a_table_and_writes_json_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    arguments = ["figures", "memory://table", "--case", "append", "--rounds", "3", "--round-ms", "5"]
    done = CliRunner().invoke(group, [*arguments, "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert "valid: every acknowledged event was read back" in done.output
    written = json.loads(file.read_bytes())
    assert written["format"] == 1
    assert written["kind"] == "figures"
    assert written["figures"][0]["case"]["name"] == "append"
    assert written["environment"]["cores"] >= 1


@pytest.mark.parametrize("arguments", [["figures"], ["figures", "memory://x", "--case", "nothing"]])
def test_a_wrong_command_says_what_is_wrong(arguments: list[str]) -> None:
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 2
    assert "append" in done.output or "URL" in done.output


class Counting:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self._log = log

    def run(self, operations: int) -> Spent:
        self._log.append(self.name)
        return Spent(operations * 0.001, operations * 0.0005)


def test_rounds_take_turns_and_each_contender_is_in_each_round() -> None:
    log: list[str] = []
    timings = interleave([Counting("a", log), Counting("b", log)], rounds=20, round_s=0.01, seed=5)
    rounds = [tuple(log[-2 * n - 2 : len(log) - 2 * n]) for n in range(20)]
    assert {frozenset(one) for one in rounds} == {frozenset("ab")}
    assert len(set(rounds)) == 2
    assert [timing.seconds_per_op for timing in timings] == [pytest.approx((0.001,) * 20)] * 2
    assert [timing.cpu_s_per_op for timing in timings] == [pytest.approx((0.0005,) * 20)] * 2
    assert [timing.operations for timing in timings] == [10, 10]


class ColdStart(Counting):
    def run(self, operations: int) -> Spent:
        self._log.append(self.name)
        return Spent(0.5 if len(self._log) <= 2 else operations * 0.0001, 0.0001)


def test_a_slow_first_operation_does_not_make_the_rounds_short() -> None:
    (timing,) = interleave([ColdStart("cold", [])], rounds=3, round_s=0.1)
    assert timing.operations == 1_000


def test_a_payload_has_exactly_the_bytes_that_were_asked_for() -> None:
    for size in (2, 3, 256, 600, 2_048, 32_768):
        payload = payload_of(size)
        assert len(payload) == size
        assert isinstance(json.loads(payload), str)
    with pytest.raises(ValueError, match="2 bytes"):
        payload_of(1)


def test_the_import_time_is_the_cumulative_one_of_the_module() -> None:
    report = "import time: self [us] | cumulative | imported package\nimport time:       5 |          5 |   os\n"
    report += "import time:     120 |      12345 | statebook\n"
    assert parse_importtime(report, "statebook") == 12.345
    with pytest.raises(ValueError, match="nothing"):
        parse_importtime(report, "nothing")


def test_the_environment_names_no_host_and_no_directory() -> None:
    described = environment()
    assert described.python.startswith(("CPython", "PyPy"))
    assert "/" not in described.line().replace("GiB", "")
