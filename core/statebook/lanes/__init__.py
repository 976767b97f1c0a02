"""Commit lanes, and pools for maintenance and leases: bounded queues between many callers and few threads (LANE)."""

from __future__ import annotations

from statebook.lanes.bounds import LaneBounds
from statebook.lanes.commit import CommitLane, CommitLanes
from statebook.lanes.figures import CommitFigures, LaneFigures, LatencyFigures, PoolFigures
from statebook.lanes.pool import WorkPool, WorkPools

__all__ = [
    "CommitFigures",
    "CommitLane",
    "CommitLanes",
    "LaneBounds",
    "LaneFigures",
    "LatencyFigures",
    "PoolFigures",
    "WorkPool",
    "WorkPools",
]
