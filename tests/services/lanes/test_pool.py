"""Pools for calls, maintenance and leases: LANE-1, LANE-5."""

from __future__ import annotations

import threading

import pytest

from statebook import BackendUnavailable, Overloaded, StoreClosed
from statebook.lanes import WorkPool, WorkPools

WAIT = 20.0


def test_a_full_pool_refuses_at_once_and_runs_what_it_accepted() -> None:
    gate = threading.Event()
    with WorkPool("test", workers_max=1, queue_max=2) as pool:
        started = threading.Event()
        first = pool.submit(lambda: started.set() or gate.wait(WAIT))
        assert started.wait(WAIT)
        waiting = [pool.submit(lambda n=n: n) for n in range(2)]
        with pytest.raises(Overloaded):
            pool.submit(lambda: 0)
        figures = pool.figures()
        assert (figures.workers, figures.running, figures.queued, figures.refused) == (1, 1, 2, 1)
        gate.set()
        late = pool.submit(lambda: 7, wait_s=WAIT)
        assert first.result(WAIT)
        assert [future.result(WAIT) for future in (*waiting, late)] == [0, 1, 7]
    assert pool.figures().finished == 4


def test_a_waiter_that_cancels_changes_nothing() -> None:
    with WorkPool("test", workers_max=1) as pool:
        future = pool.submit(lambda: 1)
        assert not future.cancel()
        assert future.result(WAIT) == 1


def test_an_error_is_the_futures_and_the_thread_goes_on() -> None:
    with WorkPool("test", workers_max=1) as pool:
        with pytest.raises(ZeroDivisionError):
            pool.submit(lambda: 1 // 0).result(WAIT)
        assert pool.submit(lambda: 1).result(WAIT) == 1
        assert pool.figures().workers == 1


def test_closing_finishes_what_was_accepted_or_says_that_it_was_not_run() -> None:
    gate = threading.Event()
    pool = WorkPool("test", workers_max=1)
    started = threading.Event()
    running = pool.submit(lambda: started.set() or gate.wait(WAIT))
    assert started.wait(WAIT)
    waiting = pool.submit(lambda: 1)
    assert not pool.close(drain=False, deadline_s=0.01)
    assert isinstance(waiting.exception(WAIT), BackendUnavailable)
    gate.set()
    assert running.result(WAIT)
    with pytest.raises(StoreClosed):
        pool.submit(lambda: 1)
    assert pool.close()


def test_leases_never_wait_behind_maintenance() -> None:
    gate = threading.Event()
    with WorkPools(maintenance=WorkPool("maintenance", workers_max=1, queue_max=1)) as pools:
        pools.maintenance.submit(lambda: gate.wait(WAIT))
        pools.maintenance.submit(lambda: gate.wait(WAIT), wait_s=WAIT)
        assert pools.leases.submit(lambda: 1).result(WAIT) == 1
        gate.set()


def test_bounds_are_checked() -> None:
    for wrong in ({"workers_max": 0}, {"queue_max": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            WorkPool("test", **wrong)
