"""All lanes, sans I/O: what is accepted, which lanes are ready, and which batches go into the next physical commit.

No lock, no thread: `CommitLanes` brings these, and the time as an argument. Nothing here is public.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from statebook.errors import LimitExceeded, Overloaded, StatebookError, StoreClosed, WriterFenced
from statebook.keys import ThreadKey
from statebook.lanes.bounds import LaneBounds
from statebook.lanes.figures import Counters, LaneFigures
from statebook.lanes.lane import Done, Entry, Lane
from statebook.model import AppendOutcome, AppendRequest, Batch, Receipt, WriterClaim
from statebook.patience import Patience


class Group(msgspec.Struct, frozen=True):
    """One physical commit.

    Attributes:
        parts: The lanes in it, and how many requests of each, in the order of the requests.
        requests: The requests.
    """

    parts: tuple[tuple[Lane, int], ...]
    requests: tuple[AppendRequest, ...]


class Question(msgspec.Struct, frozen=True):
    """One call of `settle`, about the first batch of a lane."""

    lane: Lane
    entry: Entry


Work: TypeAlias = Group | Question


class LaneQueue:
    """The ready lanes, in the order of their turns (LANE-5), and the bounds (LANE-1). Its owner's lock guards it.

    Attributes:
        counters: The counts of all lanes together.
        ending: Whether nothing more is accepted.
    """

    def __init__(self, bounds: LaneBounds, patience: Patience, *, group_batches_max: int, group_lanes_max: int) -> None:
        self.counters = Counters()
        self.ending = False
        self._bounds = bounds
        self._patience = patience
        self._group_batches_max = group_batches_max
        self._group_lanes_max = group_lanes_max
        self._by_key: dict[ThreadKey, Lane] = {}
        self._ready: deque[Lane] = deque()
        self._ready_since = 0.0
        self._pausing: list[tuple[float, int, Lane]] = []
        self._pauses = 0
        self._flying = 0

    @property
    def lanes(self) -> int:
        """How many lanes are open."""
        return len(self._by_key)

    @property
    def flying(self) -> int:
        """How many physical commits and questions are in flight."""
        return self._flying

    # ------------------------------------------------------------------------------------------------------- intake

    def open(self, claim: WriterClaim) -> tuple[Lane, list[Done]]:
        """The lane of a claim; an older claim's lane of the same thread is retired."""
        if self.ending:
            raise StoreClosed("the lanes were closed", key=claim.key.name)
        done: list[Done] = []
        old = self._by_key.get(claim.key)
        if old is None:
            if len(self._by_key) >= self._bounds.lanes_max:
                raise Overloaded(f"{self._bounds.lanes_max} lanes are open; close some", key=claim.key.name)
        elif old.claim.info == claim.info:
            if old.closed is not None:
                raise old.refusal()
            return old, done
        else:
            if old.claim.journal_id == claim.journal_id and old.claim.epoch > claim.epoch:
                raise WriterFenced(
                    "a lane of a newer claim of this thread is open here",
                    current_epoch=old.claim.epoch,
                    key=claim.key.name,
                )
            newer = WriterFenced("a newer claim opened a lane.", current_epoch=claim.epoch, key=claim.key.name)
            done = self._count(old, old.retire(newer), None)
        lane = self._by_key[claim.key] = Lane(claim, self._patience)
        if old is not None:
            lane.before = old.before if old.idle else old
        return lane, done

    def accept(self, lane: Lane, batch: Batch, size: int, now: float) -> Entry:
        """Take a batch in, or refuse it (LANE-1, LANE-4)."""
        if lane.closed is not None:
            raise lane.refusal()
        if self.ending:
            raise StoreClosed("the lanes were closed", key=lane.claim.key.name)
        bounds = self._bounds
        if size > bounds.lane_bytes_max or size > bounds.queue_bytes_max:
            raise self._never_fits(lane, size)
        full = self._full(lane, size)
        if full is not None:
            raise Overloaded(f"{full}; nothing was accepted, hand it in again later", key=lane.claim.key.name)
        entry = Entry(batch, size, now)
        lane.entries.append(entry)
        lane.counters.accept(size)
        self.counters.accept(size)
        self._wake(lane, now)
        return entry

    def _never_fits(self, lane: Lane, size: int) -> LimitExceeded:
        bounds = self._bounds
        limit = "lane_bytes_max" if size > bounds.lane_bytes_max else "queue_bytes_max"
        maximum: int = getattr(bounds, limit)
        return LimitExceeded(
            f"{limit} is {maximum}, and a batch of {size} bytes never fits; give the lanes more",
            limit=limit,
            maximum=maximum,
            actual=size,
            key=lane.claim.key.name,
        )

    def _full(self, lane: Lane, size: int) -> str | None:
        bounds, own, all_ = self._bounds, lane.counters, self.counters
        if own.queued_batches >= bounds.lane_batches_max:
            return f"{own.queued_batches} batches wait in this lane"
        if own.queued_bytes + size > bounds.lane_bytes_max:
            return f"{own.queued_bytes} bytes wait in this lane"
        if all_.queued_batches >= bounds.queue_batches_max:
            return f"{all_.queued_batches} batches wait in all lanes"
        if all_.queued_bytes + size > bounds.queue_bytes_max:
            return f"{all_.queued_bytes} bytes wait in all lanes"
        return None

    def refuse(self, lane: Lane) -> None:
        """Count a submission that met a full queue."""
        lane.counters.refused += 1
        self.counters.refused += 1

    # -------------------------------------------------------------------------------------------------------- turns

    def _wake(self, lane: Lane, now: float) -> None:
        """Give a lane its turn, if it has something to send and nothing in flight."""
        if lane.ready or lane.busy or not lane.entries:
            return
        if lane.before is not None:
            if not lane.before.idle:
                return
            lane.before = None
        lane.ready = True
        if lane.not_before > now:
            self._pauses += 1
            heapq.heappush(self._pausing, (lane.not_before, self._pauses, lane))
            return
        if not self._ready:
            self._ready_since = now
        self._ready.append(lane)

    def _rested(self, now: float) -> None:
        while self._pausing and (self._pausing[0][0] <= now or self.ending):
            if not self._ready:
                self._ready_since = now
            self._ready.append(heapq.heappop(self._pausing)[2])

    def take(self, now: float) -> Work | None:
        """The next physical commit: everything that ready lanes have, up to the bounds, in turns (LANE-2, LANE-5)."""
        self._rested(now)
        if self._ready and self._lingers(now):
            return None
        parts: list[Lane] = []
        size = 0
        while self._ready and len(parts) < min(self._group_lanes_max, self._group_batches_max):
            lane = self._ready[0]
            if not lane.entries:  # what it had was answered while it waited
                self._ready.popleft().ready = False
                continue
            if lane.settling:
                if parts:
                    break
                self._ready.popleft().ready = False
                lane.sent, lane.busy = 1, True
                self._flying += 1
                return Question(lane, lane.entries[0])
            if parts and size + lane.entries[0].size > self._bounds.group_bytes_max:
                break
            self._ready.popleft().ready = False
            parts.append(lane)
            size += lane.entries[0].size
        return self._group(parts, size) if parts else None

    def _group(self, lanes: list[Lane], size: int) -> Group:
        counts = [1] * len(lanes)
        batches = len(lanes)
        growing = [place for place, lane in enumerate(lanes) if lane.trouble is None]
        while growing:
            still: list[int] = []
            for place in growing:
                entries, count = lanes[place].entries, counts[place]
                if count >= len(entries) or batches >= self._group_batches_max:
                    continue
                if size + entries[count].size > self._bounds.group_bytes_max:
                    continue
                counts[place] += 1
                batches += 1
                size += entries[count].size
                still.append(place)
            growing = still
        requests: list[AppendRequest] = []
        for lane, count in zip(lanes, counts, strict=True):
            if lane.trouble is not None:
                lane.counters.resent += 1
                self.counters.resent += 1
            lane.counters.group(count)
            requests += lane.requests(count)
        self.counters.group(batches)
        self._flying += 1
        return Group(tuple(zip(lanes, counts, strict=True)), tuple(requests))

    def _lingers(self, now: float) -> bool:
        linger = self._bounds.linger_s
        if linger <= 0 or self.ending or self.counters.queued_batches >= self._group_batches_max:
            return False
        return now < self._ready_since + linger

    def wake_in(self, now: float) -> float | None:
        """After how many seconds `take` may have something without anything new being accepted; None for never."""
        times = [self._pausing[0][0]] if self._pausing else []
        if self._ready:
            times.append(self._ready_since + self._bounds.linger_s)
        return max(0.0, min(times) - now) if times else None

    @property
    def more(self) -> bool:
        """Whether lanes are ready."""
        return bool(self._ready)

    # ------------------------------------------------------------------------------------------------------ answers

    def answered(self, group: Group, outcomes: Sequence[AppendOutcome], now: float) -> list[Done]:
        """Hand each lane its answers. The lanes keep their turn until `release`."""
        done: list[Done] = []
        start = 0
        for lane, count in group.parts:
            done += self._count(lane, lane.answered(outcomes[start : start + count], now), now)
            start += count
        return done

    def settled(self, question: Question, outcome: AppendOutcome | None, now: float) -> list[Done]:
        """Hand a lane the store's answer to a question."""
        self.counters.settled += 1
        return self._count(question.lane, question.lane.settled(outcome, now), now)

    def lost(self, work: Work, cause: BaseException) -> list[Done]:
        """The store broke the contract: every lane in flight ends with an unknown outcome."""
        lanes = [lane for lane, _ in work.parts] if isinstance(work, Group) else [work.lane]
        done: list[Done] = []
        for lane in lanes:
            done += self._count(lane, lane.lost(cause), None)
        return done

    def release(self, work: Work, now: float) -> None:
        """End the turn of the lanes in flight: their answers have been given out."""
        self._flying -= 1
        for lane in [lane for lane, _ in work.parts] if isinstance(work, Group) else [work.lane]:
            lane.busy = False
            self._wake(lane, now)
            self._leave(lane, now)

    def _leave(self, lane: Lane, now: float) -> None:
        """Forget a lane that its owner closed once it has nothing to wait for; let a retired lane's successor go on."""
        if not lane.idle:
            return
        current = self._by_key.get(lane.claim.key)
        if current is lane:
            if lane.dropped:
                del self._by_key[lane.claim.key]
        elif current is not None:
            self._wake(current, now)

    def close_lane(self, lane: Lane, now: float) -> None:
        """Accept nothing more into a lane; what was accepted is committed."""
        lane.closed = lane.closed or StoreClosed("this lane was closed", key=lane.claim.key.name)
        lane.dropped = True
        self._leave(lane, now)

    def retire_all(self, reason: StatebookError) -> list[Done]:
        """Answer everything that was never sent."""
        done: list[Done] = []
        for lane in self._by_key.values():
            done += self._count(lane, lane.retire(reason), None)
        return done

    def abandon_all(self) -> list[Done]:
        """Answer everything that is not in flight, whatever it takes: the end."""
        done: list[Done] = []
        for lane in self._by_key.values():
            done += self._count(lane, lane.abandon(), None)
        return done

    def _count(self, lane: Lane, done: list[Done], now: float | None) -> list[Done]:
        for entry, outcome in done:
            seconds = 0.0 if now is None else now - entry.accepted_at
            for counters in (lane.counters, self.counters):
                counters.answer(entry.size, seconds, committed=isinstance(outcome, Receipt))
        return done

    def figures(self, lane: Lane) -> LaneFigures:
        """The figures of one lane."""
        own = lane.counters
        return LaneFigures(
            accepted=own.accepted,
            committed=own.committed,
            failed=own.failed,
            refused=own.refused,
            queued_batches=own.queued_batches,
            queued_bytes=own.queued_bytes,
            groups=own.groups,
            group_batches_max=own.group_batches_max,
            resent=own.resent,
            latency=own.latency.figures(),
        )
