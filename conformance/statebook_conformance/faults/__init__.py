"""Faults for tests of stores: faulty networks and storages, lying disks, dying processes, jumping clocks.

Each is seeded and can be replayed; none needs a container, and but for `full` none special rights. `plans` says what a
proxy can do, `proxy` does it to one server, `network` to all that this process connects to; `store` wraps any atomic
storage or journal store; `disk` damages media and fills disks, `full` makes one that is really full; `crash` kills
writers. `trace` sees the system calls of a process and has them fail, `powerloss` says what is left on a disk; `clock`
moves the clocks of a process; `awaits` cancels coroutines at a chosen await.
"""

from __future__ import annotations

from statebook_conformance.faults.awaits import Driven, ParkingPool, cancel_at
from statebook_conformance.faults.clock import MovedClock, injected
from statebook_conformance.faults.crash import CrashingAtomic, CrashPoint, Victim
from statebook_conformance.faults.disk import bit_flips, file_size_limit, old_copy, stale_records, truncations
from statebook_conformance.faults.full import SmallDisk, small_tmpfs
from statebook_conformance.faults.network import Network
from statebook_conformance.faults.plans import (
    Plan,
    black_hole,
    cut_reply,
    cut_request,
    delay,
    drip,
    http_answer,
    reset,
    seeded,
)
from statebook_conformance.faults.powerloss import PowerLoss, put_there
from statebook_conformance.faults.proxy import FaultProxy
from statebook_conformance.faults.store import Fault, FaultLine, FaultyAtomic, FaultyJournal, drawn, planned

__all__ = (
    "CrashPoint",
    "CrashingAtomic",
    "Driven",
    "Fault",
    "FaultLine",
    "FaultProxy",
    "FaultyAtomic",
    "FaultyJournal",
    "MovedClock",
    "Network",
    "ParkingPool",
    "Plan",
    "PowerLoss",
    "SmallDisk",
    "Victim",
    "bit_flips",
    "black_hole",
    "cancel_at",
    "cut_reply",
    "cut_request",
    "delay",
    "drawn",
    "drip",
    "file_size_limit",
    "http_answer",
    "injected",
    "old_copy",
    "planned",
    "put_there",
    "reset",
    "seeded",
    "small_tmpfs",
    "stale_records",
    "truncations",
)
