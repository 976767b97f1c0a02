"""Faults for tests of stores: a proxy, storages that lose answers, disks that lie, processes that die.

Each is seeded and can be replayed; none needs a container or special rights. `plans` says what a proxy can do, `proxy`
does it to one server, `network` to all that this process connects to; `store` wraps any atomic storage or journal
store; `disk` damages media and fills disks; `crash` kills writers.
"""

from __future__ import annotations

from statebook_conformance.faults.crash import CrashingAtomic, CrashPoint, Victim
from statebook_conformance.faults.disk import bit_flips, file_size_limit, old_copy, stale_records, truncations
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
from statebook_conformance.faults.proxy import FaultProxy
from statebook_conformance.faults.store import Fault, FaultLine, FaultyAtomic, FaultyJournal, drawn, planned

__all__ = (
    "CrashPoint",
    "CrashingAtomic",
    "Fault",
    "FaultLine",
    "FaultProxy",
    "FaultyAtomic",
    "FaultyJournal",
    "Network",
    "Plan",
    "Victim",
    "bit_flips",
    "black_hole",
    "cut_reply",
    "cut_request",
    "delay",
    "drawn",
    "drip",
    "file_size_limit",
    "http_answer",
    "old_copy",
    "planned",
    "reset",
    "seeded",
    "stale_records",
    "truncations",
)
