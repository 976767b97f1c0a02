"""What one operation costs, counted in a pass of its own beside the trials: round trips, bytes, calls to files.

Counting slows a call down, so nothing is timed here; and counts are the same on a fast and on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

import msgspec

from statebook_benchmarks.results import Cost
from statebook_benchmarks.workloads import Site, make_workload
from statebook_conformance.work import Meter, Work

COUNTED: Final = 40
"""How many operations are counted."""
_FIRST: Final = 4


def count_cost(site: Site) -> Cost:
    """Run some operations one after the other, and count what each is made of; the first ones are left out.

    Args:
        site: Where; its workload runs with one lane and one thread.

    Returns:
        The averages of an operation.

    Raises:
        StatebookError: The workload could not be prepared, or an operation failed.
    """
    parameters = msgspec.structs.replace(site.parameters, lanes=1, threads=1)
    alone = msgspec.structs.replace(site, parameters=parameters, name=f"{site.name}-cost")
    with Meter() as meter, closing(make_workload(alone)) as workload:
        workload.prepare()
        operations: list[Callable[[], object]] = [lambda: workload(0)] * COUNTED
        meter.work_of(*operations[:_FIRST])
        idle = meter.work_of(*[_nothing] * COUNTED)
        work = meter.work_of(*operations)
        workload.settle_down()
        return _average(work, idle, workload.events_per_op)


def _nothing() -> None:
    """What the meter itself costs is counted with it."""


def _average(work: Work, idle: Work, events: int) -> Cost:
    def each(name: str) -> float:
        return round(max(0.0, float(getattr(work, name) - getattr(idle, name))) / COUNTED, 2)

    return Cost(
        operations=COUNTED,
        events_per_op=events,
        round_trips=each("round_trips"),
        bytes_sent=each("bytes_sent"),
        bytes_received=each("bytes_received"),
        file_reads=each("reads"),
        file_writes=each("writes"),
        file_bytes_read=each("bytes_read"),
        file_bytes_written=each("bytes_written"),
        syncs=each("syncs"),
        python_calls=each("calls"),
    )
