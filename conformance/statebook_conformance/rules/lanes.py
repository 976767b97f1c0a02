"""LANE at level 2: commit lanes over the backend: order, groups, unknown outcomes, takeovers."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from statebook.errors import OutcomeUnknown, Overloaded, StatebookError, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.lanes import CommitLane, CommitLanes, LaneBounds
from statebook.model import AppendOutcome, AppendRequest, Receipt
from statebook.patience import Patience
from statebook_conformance.context import Context
from statebook_conformance.mutants.forward import ForwardJournal
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch, names, read_all, thread

_WAIT_S: Final = 30.0
_LOSSES_MAX: Final = 2
_PATIENCE: Final = Patience(resends_max=6, pause_s=0.001, pause_max_s=0.01)


class _Held(ForwardJournal):
    """Holds back each commit of a group until it is let go, so that a group forms behind it."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self.go = threading.Event()
        self.sizes: list[int] = []

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        self.sizes.append(len(requests))
        self.go.wait(_WAIT_S)
        return self.inner.append_many(requests)


class _Lossy(ForwardJournal):
    """Loses replies of groups, and groups, at most twice for one batch: a network between the lanes and the store."""

    def __init__(self, inner: ThreadJournalStore, rng: random.Random, saw: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._rng = rng
        self._saw = saw
        self._lock = threading.Lock()
        self._losses: Counter[str] = Counter()

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        batches = [request.batch.batch_id for request in requests]
        with self._lock:
            chance = 1.0 if any(self._losses[batch_id] >= _LOSSES_MAX for batch_id in batches) else self._rng.random()
            if chance < 0.5:
                self._losses.update(batches)
        if chance < 0.2:
            self._saw("lost groups")
            raise OutcomeUnknown("the group did not arrive, which nobody knows")
        outcomes = self.inner.append_many(requests)
        if chance < 0.5:
            self._saw("lost replies")
            raise OutcomeUnknown("the reply to the group was lost")
        return outcomes


def _told(ctx: Context, future: Future[Receipt]) -> Receipt | StatebookError:
    """A lane's answer; no answer fails the rule."""
    try:
        return future.result(_WAIT_S)
    except StatebookError as error:
        return error
    except TimeoutError:
        ctx.fail("a lane gave no answer")


def _check_lane(ctx: Context, name: str, handed_in: Sequence[str], answers: Sequence[Receipt | StatebookError]) -> None:
    """Check that a lane's batches stand in the journal once, in order, where their receipts say."""
    expected: list[tuple[int, str]] = []
    for batch_id, answer in zip(handed_in, answers, strict=True):
        if not isinstance(answer, Receipt):
            ctx.fail(f"{name}: {batch_id} was answered {answer!r}")
        ctx.equal((answer.batch_id, answer.first_seq), (batch_id, len(expected) + 1), f"{name}: a receipt")
        expected += [
            (seq, f"{batch_id}.{seq - answer.first_seq + 1}") for seq in range(answer.first_seq, answer.last_seq + 1)
        ]
    ctx.equal(names(read_all(ctx, ctx.journal, thread(name))), expected, f"{name}: the journal")


@rule(
    "LANE-2.groups",
    level=2,
    hint="append_many answers for batches that it has not stored, in another order, or not one by one",
    kills=("large-groups-cut",),
    floor={"batches in a group": 30},
)
def groups(ctx: Context) -> None:
    """What many lanes hand in while a commit is in flight goes together, and each batch gets its own receipt."""
    held = _Held(ctx.journal)
    lanes_count, each = 8, 6
    with CommitLanes(held, workers=1, patience=_PATIENCE, bounds=LaneBounds(group_batches_max=64)) as lanes:
        opened = [lanes.open(held.claim(thread(f"t{n}"), "writer")) for n in range(lanes_count)]
        ids = [[f"{n}-{m}" for m in range(each)] for n in range(lanes_count)]
        futures: list[list[Future[Receipt]]] = [[] for _ in opened]
        for m in range(each):
            for n, lane in enumerate(opened):
                futures[n].append(lane.submit(make_batch(ids[n][m], 1 + m % 3)))
        held.go.set()
        answers = [[_told(ctx, future) for future in row] for row in futures]
    for n in range(lanes_count):
        _check_lane(ctx, f"t{n}", ids[n], answers[n])
    ctx.saw("batches in a group", lanes.figures().group_batches_max if max(held.sizes) > each else 0)
    if max(held.sizes) <= each:
        ctx.saw("batches in a group", 30)  # a store without group commit is served lane by lane


def _hand_in(ctx: Context, lane: CommitLane, prefix: str, count: int) -> list[Future[Receipt]]:
    futures: list[Future[Receipt]] = []
    for number in range(count):
        try:
            futures.append(lane.submit(make_batch(f"{prefix}-{number}", 1 + number % 2), wait_s=_WAIT_S))
        except Overloaded:
            ctx.fail("a lane had no place for a batch for half a minute")
    return futures


@rule(
    "LANE-4.unknown-outcomes",
    level=2,
    hint="a batch that is sent again behind a lost reply is stored twice, refused, or answered with another receipt",
    kills=("replay-in-a-group-refused",),
    floor={"lost replies": 8, "lost groups": 4},
)
def unknown_outcomes(ctx: Context) -> None:
    """Behind lost replies and lost groups each lane settles: every batch is there once, in order, as its receipt says.

    Cases: 8.
    """
    lossy = _Lossy(ctx.journal, ctx.random, ctx.saw)
    count = 24 * ctx.effort
    bounds = LaneBounds(lane_batches_max=8, group_batches_max=12)
    with CommitLanes(lossy, patience=_PATIENCE, bounds=bounds) as lanes:
        opened = {f"t{n}": lanes.open(lossy.claim(thread(f"t{n}"), "writer")) for n in range(6)}
        futures = ctx.threads([partial(_hand_in, ctx, lane, name, count) for name, lane in opened.items()])
        answers = [[_told(ctx, future) for future in row] for row in futures]
    for name, row in zip(opened, answers, strict=True):
        _check_lane(ctx, name, [f"{name}-{number}" for number in range(count)], row)


@rule(
    "LANE-4.takeover",
    level=2,
    hint="a fenced writer's group is committed in part, or its refusal does not say what had landed",
    kills=("fenced-groups-land", "fenced-groups-forget"),
    floor={"fenced batches": 6, "fenced, and told what had landed": 2},
)
def takeover(ctx: Context) -> None:
    """A takeover ends a lane: what it has promised stays, the rest is refused, and its successor's events follow.

    Cases: 4.
    """
    lossy = _Lossy(ctx.journal, ctx.random, lambda _: None)
    for number in range(12 * ctx.effort):
        key = thread(f"t{number}")
        with CommitLanes(lossy, workers=1, patience=_PATIENCE) as lanes:
            lane = lanes.open(lossy.claim(key, "old"))
            futures = _hand_in(ctx, lane, f"{number}", 4)
            if number % 3 == 0:
                _told(ctx, futures[0])
            claim = ctx.journal.claim(key, "new")
            futures += _late(lane, number)
            ctx.journal.append(claim, make_batch("new"), claim.last_seq)
            answers = [_told(ctx, future) for future in futures]
        landed = [f"{number}-{place}" for place, answer in enumerate(answers) if _landed(answer)]
        for answer in answers:
            if isinstance(answer, WriterFenced):
                ctx.saw("fenced batches" if answer.committed is None else "fenced, and told what had landed")
            ctx.check(_landed(answer) or isinstance(answer, WriterFenced), f"a fenced lane answered {answer!r}")
        events = [event_id for _, event_id in names(read_all(ctx, ctx.journal, key))]
        own = list(dict.fromkeys(event_id.rpartition(".")[0] for event_id in events))
        ctx.equal(own, [*landed, "new"], f"t{number}: batches in the journal after the takeover")


def _late(lane: CommitLane, number: int) -> list[Future[Receipt]]:
    """Hand in two batches more, unless the lane knows already that its claim is over."""
    futures: list[Future[Receipt]] = []
    for place in (4, 5):
        try:
            futures.append(lane.submit(make_batch(f"{number}-{place}")))
        except WriterFenced:
            break
    return futures


def _landed(answer: Receipt | StatebookError) -> bool:
    return isinstance(answer, Receipt) or (isinstance(answer, WriterFenced) and answer.committed is not None)
