"""The workloads by name. Each is a class that prepares, operates, and checks what it left behind."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from statebook_benchmarks.results import Parameters
from statebook_benchmarks.workloads.appending import AppendWorkload, StreamWorkload, TurnWorkload
from statebook_benchmarks.workloads.exporting import ExportWorkload
from statebook_benchmarks.workloads.resuming import ResumeWorkload, TakeoverWorkload
from statebook_benchmarks.workloads.saving import CasWorkload
from statebook_benchmarks.workloads.workload import Site, Workload

HOT_SLOTS: Final = 1
SPREAD_SLOTS: Final = 10_000

WORKLOADS: Final = MappingProxyType(
    {
        "append": (AppendWorkload, "idempotent batches: the facts of a step"),
        "turn": (TurnWorkload, "load state, append 8 events with a checkpoint, save state: one agent turn"),
        "stream": (StreamWorkload, "many 1-event appends through a recorder and a flush: streaming chunks"),
        "cas_hot": (lambda site: CasWorkload(site, HOT_SLOTS), "compare-and-set on 1 slot: the conflict rate"),
        "cas_spread": (lambda site: CasWorkload(site, SPREAD_SLOTS), "compare-and-set on 10,000 slots: sessions"),
        "resume": (ResumeWorkload, "open a journal, load the last checkpoint, read the tail: restart"),
        "export": (ExportWorkload, "an exporter behind writers, and its lag"),
        "takeover": (TakeoverWorkload, "a writer is gone; time to the next writer's first receipt: failover"),
        "soak": (AppendWorkload, "the load of `append` for long, and the drift of latency, memory and files"),
    }
)
"""Each workload with what it stands for."""

__all__ = ["WORKLOADS", "Parameters", "Site", "Workload", "make_workload"]


def make_workload(site: Site) -> Workload:
    """Make the workload that a site's parameters name. Opens stores.

    Args:
        site: Where it works.

    Returns:
        The workload, not prepared.

    Raises:
        KeyError: There is no such workload.
    """
    made: Callable[[Site], Workload] = WORKLOADS[site.parameters.workload][0]
    return made(site)
