"""The clocks of a process are moved wherever Python code has them, and are the true ones afterwards."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime as by_name
from time import monotonic as steady_by_name, time as wall_by_name

import pytest

from statebook_conformance.faults.clock import YEAR_S, MovedClock, injected


def keeps(
    clock: Callable[[], float] = time.time, *, steady: Callable[[], float] = time.monotonic
) -> tuple[float, float]:
    return clock(), steady()


class Still:
    """True clocks that a test moves."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000_000

    def __call__(self) -> int:
        return self.now_ns


def test_the_wall_clock_jumps_and_the_monotonic_clock_does_not() -> None:
    true = Still()
    clock = MovedClock(true, true)
    clock.jump(-10 * YEAR_S)
    assert (clock.time(), clock.monotonic()) == (5 - 10 * YEAR_S, 5)
    clock.jump(20 * YEAR_S)
    assert clock.time_ns() == 5_000_000_000 + int(10 * YEAR_S) * 1_000_000_000
    assert clock.monotonic_ns() == 5_000_000_000


def test_the_monotonic_clock_stands_still_and_goes_on_from_there() -> None:
    true = Still()
    clock = MovedClock(true, true)
    clock.stand_still()
    true.now_ns += 60_000_000_000
    assert clock.monotonic() == 5
    clock.stand_still()
    clock.go_on()
    assert clock.monotonic() == 5
    true.now_ns += 1_000_000_000
    clock.go_on()
    assert clock.monotonic() == 6


def test_each_way_to_a_clock_gives_the_moved_one_and_the_true_one_afterwards() -> None:
    before = (time.time, time.monotonic, wall_by_name, steady_by_name, dt.datetime, by_name)
    parsed = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    clock = MovedClock()
    clock.jump(10 * YEAR_S)
    year = dt.datetime.now(dt.UTC).year
    with injected(clock):
        clock.stand_still()
        stands = clock.monotonic()
        for wall in (
            time.time(),
            wall_by_name(),
            keeps()[0],
            time.time_ns() / 1e9,
            by_name.now(dt.UTC).timestamp(),
        ):
            assert 10 * YEAR_S - 60 < wall - clock._wall_ns() / 1e9 < 10 * YEAR_S + 60
        assert {time.monotonic(), steady_by_name(), keeps()[1], time.monotonic_ns() / 1e9} == {stands}
        for today in (dt.datetime.now(), by_name.utcnow(), by_name.today()):  # noqa: DTZ003, DTZ005, DTZ002
            assert today.year - year in (9, 10, 11)
        assert isinstance(parsed, dt.datetime)
        assert isinstance(by_name.now(dt.UTC) - parsed, dt.timedelta)
    assert before == (time.time, time.monotonic, wall_by_name, steady_by_name, dt.datetime, by_name)
    assert abs(keeps()[0] - time.time()) < 60


def test_the_true_clocks_are_back_behind_an_error() -> None:
    true = time.time
    with pytest.raises(ValueError, match="of the body"), injected(MovedClock()):
        raise ValueError("of the body")
    assert time.time is true


def test_a_whole_process_lives_ten_years_ago() -> None:
    program = """
import datetime, logging, time
from statebook.thread import wall_clock_ms
from statebook_conformance.faults.clock import YEAR_S, MovedClock, injected
true = time.time()
with injected(MovedClock()) as clock:
    clock.jump(-10 * YEAR_S)
    record = logging.makeLogRecord({})
    print(round((wall_clock_ms() / 1000 - true) / YEAR_S), round((record.created - true) / YEAR_S))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-10", "-10"]
