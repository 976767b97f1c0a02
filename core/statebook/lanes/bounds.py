"""The bounds of commit lanes: every queue, group, wait and thread count has one (LANE-1)."""

from __future__ import annotations

import msgspec


class LaneBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much lanes take in, and how large their groups grow.

    Attributes:
        lane_batches_max: Batches of one lane that are accepted and not yet answered.
        lane_bytes_max: Their bytes.
        queue_batches_max: Batches of all lanes together that are accepted and not yet answered.
        queue_bytes_max: Their bytes.
        group_batches_max: Batches of one physical commit; the store's own limit holds too.
        group_bytes_max: Their bytes; a larger batch goes alone.
        lanes_max: Open lanes.
        linger_s: How long a worker waits for more before it commits, in seconds. 0 but where a commit is priced or
            rate-limited (LANE-2).

    Raises:
        ValueError: A bound is below 1, or the linger is negative.
    """

    lane_batches_max: int = 256
    lane_bytes_max: int = 32 * 1024 * 1024
    queue_batches_max: int = 4_096
    queue_bytes_max: int = 128 * 1024 * 1024
    group_batches_max: int = 256
    group_bytes_max: int = 4 * 1024 * 1024
    lanes_max: int = 100_000
    linger_s: float = 0.0

    def __post_init__(self) -> None:
        bounds = (
            self.lane_batches_max,
            self.lane_bytes_max,
            self.queue_batches_max,
            self.queue_bytes_max,
            self.group_batches_max,
            self.group_bytes_max,
            self.lanes_max,
        )
        if min(bounds) < 1 or self.linger_s < 0:
            raise ValueError("every bound of lanes must be at least 1, and the linger at least 0")
