"""Patience is a time, pauses are for those that give way, and upkeep leaves room behind itself."""

from __future__ import annotations

import itertools

import pytest

from statebook.contention import FREE_TRIES, TRIES_MIN, Contention, Rests


class Clock:
    """A clock that moves when somebody sleeps, and by a step a look."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 100.0
        self.step = step
        self.slept: list[float] = []

    def __call__(self) -> float:
        self.now += self.step
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_call_goes_on_until_its_time_is_over_however_many_attempts_that_takes() -> None:
    clock = Clock(step=0.001)
    contention = Contention(patience_s=1.0, pause=lambda lost: None, clock=clock)
    assert 900 < len(list(contention.attempts(eager=True))) < 1_100


def test_a_slow_storage_gets_its_least_number_of_attempts() -> None:
    contention = Contention(patience_s=1.0, pause=lambda lost: None, clock=Clock(step=60.0))
    assert list(contention.attempts()) == list(range(TRIES_MIN))


def test_those_that_give_way_pause_and_an_append_does_not() -> None:
    paused: list[int] = []
    contention = Contention(patience_s=0, pause=paused.append)
    assert list(contention.attempts(eager=True)) == list(range(TRIES_MIN))
    assert paused == []
    assert list(contention.attempts()) == list(range(TRIES_MIN))
    assert paused == list(range(TRIES_MIN - 1))
    assert 0 < FREE_TRIES < TRIES_MIN


def test_patience_cannot_be_negative() -> None:
    with pytest.raises(ValueError, match="patience_s"):
        Contention(patience_s=-1)


def test_upkeep_rests_for_thrice_as_long_as_it_took_and_the_first_one_never_waits() -> None:
    clock = Clock()
    rests = Rests(clock=clock, sleep=clock.sleep)
    begun = rests.wait("a")
    clock.now += 0.01
    rests.wrote("a", begun)
    assert rests.wait("b") == clock.now
    assert clock.slept == []
    rests.wait("a")
    assert clock.slept == [pytest.approx(0.03)]


def test_of_several_that_wait_one_goes_at_a_time() -> None:
    clock = Clock()
    rests = Rests(clock=clock, sleep=clock.sleep)
    begun = rests.wait("a")
    clock.now += 0.01
    rests.wrote("a", begun)
    went = [rests.wait("a") for _ in range(3)]
    assert [round(later - earlier, 6) for earlier, later in itertools.pairwise(went)] == [0.03, 0.03]


def test_a_rest_is_bounded_however_long_a_write_took() -> None:
    clock = Clock()
    rests = Rests(clock=clock, sleep=clock.sleep)
    begun = rests.wait("a")
    clock.now += 3_600
    rests.wrote("a", begun)
    rests.wait("a")
    assert sum(clock.slept) <= 0.051
