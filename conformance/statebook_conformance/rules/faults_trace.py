"""Level 3: what the disk is told and what it refuses, seen call by call; the power that is lost in between."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, cast

import msgspec

from statebook.capabilities import Durability
from statebook.errors import StatebookError
from statebook_conformance.context import Context, Inconclusive, NotClaimed
from statebook_conformance.faults.powerloss import PowerLoss, Tree, put_there
from statebook_conformance.faults.trace import (
    FLUSHES,
    WRITES,
    Life,
    Traced,
    failing_at,
    injecting,
    moved_target,
    trace,
)
from statebook_conformance.rule import rule
from statebook_conformance.target import Target
from statebook_conformance.workers_disk import same
from statebook_conformance.workers_trace import Facts, OverAtomic, found, nothing

_WORKERS: Final = "statebook_conformance.workers_trace"
_MEMORY: Final = "/dev/shm"  # noqa: S108 - a directory of our own is made in it
_BETWEEN: Final = 24


@contextmanager
def directory_of_lives() -> Iterator[str]:
    """A fresh directory for moved stores, in memory where that is offered: what is durable is judged by calls."""
    base = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="statebook-lives-", dir=base) as directory:
        yield os.path.realpath(directory)


# ------------------------------------------------------------------------------------------------------- loss of power


def must_be_seen(disk: PowerLoss) -> None:
    """Look whether a store has written files, and in ways that can be judged.

    Args:
        disk: The disk behind all that the store has done.

    Raises:
        NotClaimed: It has written no file: its data lies elsewhere.
        Inconclusive: It has written in ways that no call shows.
    """
    if disk.changes == 0:
        raise NotClaimed("the writing process writes no file below the place that the target names")
    if disk.unseen:
        raise Inconclusive(f"the store writes in ways that no call shows: {', '.join(sorted(disk.unseen))}")


class PowerTrial:
    """Follows a life call by call, takes the power away, and looks at what a fresh store finds then."""

    def __init__(self, ctx: Context, target: str, root: str, life: Traced, *, atomic: bool = False) -> None:
        """Take what was seen of a life.

        Args:
            ctx: The rule's context.
            target: The target text of the store in the root.
            root: The directory in which the life has written.
            life: The life.
            atomic: Whether it has written through core's stores over the atomic storage.
        """
        self._ctx = ctx
        self._root = root
        self._life = life
        backend = Target(target).backend(ctx.namespace)
        self._backend = OverAtomic(backend) if atomic else backend
        self.disk = PowerLoss(root)
        self._facts: Facts = nothing()

    def run(self, *, between: int, at: Collection[int] | None = None) -> None:
        """Take the power away at acknowledgements, and at some flushes between them.

        Args:
            between: At how many flushes at most.
            at: At which acknowledgements, counted from 0; None for each of them.
        """
        flushes = self._flushes() if between else []
        chosen = frozenset(self._ctx.random.sample(flushes, min(between, len(flushes))))
        marks = iter(mark for mark in self._life.marks if "step" in mark.fields)
        mark = next(marks, None)
        passed = 0
        for number, call in enumerate((*self._life.calls, None)):
            while mark is not None and mark.at <= number:
                self._facts = cast("Facts", mark.fields["facts"])
                if at is None or passed in at:
                    self._acknowledged(str(mark.fields["step"]))
                passed += 1
                mark = next(marks, None)
            if call is None:
                return
            self.disk.apply(call)
            if number in chosen:
                after = self._facts if mark is None else cast("Facts", mark.fields["facts"])
                step = "the end" if mark is None else str(mark.fields["step"])
                self._ctx.saw("power losses between acknowledgements")
                tree = self.disk.flushed() if self._ctx.random.random() < 0.5 else self._scattered()
                self._judge(tree, (self._facts, after), f"at call {number} on the way to {step}")

    def _flushes(self) -> list[int]:
        disk = PowerLoss(self._root)
        flushes = [number for number, call in enumerate(self._life.calls) if disk.apply(call)]
        must_be_seen(disk)
        self._ctx.saw("flushes", len(flushes))
        return flushes

    def _acknowledged(self, step: str) -> None:
        self._ctx.saw("acknowledgements")
        self._judge(self.disk.flushed(), (self._facts,), f"behind the acknowledged {step}, only what was flushed left")
        self._judge(self._scattered(), (self._facts,), f"behind the acknowledged {step}, some of the rest there too")

    def _scattered(self) -> Tree:
        return self.disk.scattered(random.Random(self._ctx.random.random()))

    def _judge(self, tree: Tree, allowed: Sequence[Facts], where: str) -> None:
        put_there(tree, self._root)
        found_facts = self._found(where)
        for name, value in found_facts.items():
            wanted = [facts[name] for facts in allowed]
            self._ctx.check(
                value in wanted,
                f"after a loss of power {where}: {name} is {_shown(value)}, acknowledged was {_shown(wanted[0])}",
            )

    def _found(self, where: str) -> Facts:
        """Read the facts through fresh handles; a store that cannot be read fails the rule."""
        try:
            return found(self._backend)
        except (StatebookError, ValueError) as error:
            self._ctx.fail(f"after a loss of power {where}: {type(error).__name__}: {error}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:60]}…{text[-40:]}"


@rule(
    "DUR-1.synced",
    level=3,
    needs=(Durability.HOST,),
    hint="a file is renamed before it is flushed, or the directory of a new, renamed or removed name is never flushed",
    kills=("files-not-flushed", "directories-not-flushed", "log-not-flushed"),
    floor={"acknowledgements": 15, "flushes": 15, "power losses between acknowledgements": 10},
)
def synced(ctx: Context) -> None:
    """At each acknowledgement all that it needs is flushed, names included: a loss of power takes nothing back.

    A process writes in every way there is, seen call by call, in a directory of its own. Behind each acknowledgement,
    and at flushes in between, the directory is put back as a disk has it that lost its power: only what was flushed,
    then with any part of the rest. A fresh store must find what was acknowledged, and no part of a write. So it is with
    the backend's own stores, and with core's over its atomic storage. A store whose server writes the files is not
    claimed: they are the server's.

    Cases: 26.
    """
    ways = (False, True) if ctx.has_atomic else (False,)
    with directory_of_lives() as root:
        lives: list[Life] = []
        for atomic in ways:
            os.mkdir(f"{root}/{int(atomic)}")
            lives.append(Life(moved_target(ctx.target.text, f"{root}/{int(atomic)}"), params={"atomic": int(atomic)}))
        seen = trace(f"{_WORKERS}:whole_life", ctx.namespace, lives)
        for atomic, life, traced in zip(ways, lives, seen, strict=True):
            trial = PowerTrial(ctx, life.target, f"{root}/{int(atomic)}", traced, atomic=atomic)
            trial.run(between=_BETWEEN * ctx.effort)


# ------------------------------------------------------------------------------------------------ a disk that refuses

_REFUSING: Final = "statebook_conformance.workers_disk:on_a_refusing_disk"
_LIVES: Final = 30
_PATIENCE_S: Final = 80.0
_FULL_FOR: Final = 3
_SHORT: Final = 12
_FITS: Final = (64, 1_000_000)


class _Refused:
    """What was seen of one life whose n-th call of a kind was refused."""

    def __init__(self, ctx: Context, life: Traced, what: str, calls: Sequence[str]) -> None:
        self.ctx, self.life, self.what = ctx, life, what
        self.at = next((n for n, call in enumerate(life.calls) if call.name in calls and call.error), None)

    @property
    def was_told(self) -> bool:
        """Whether a call was refused."""
        return any("tried" in mark.fields for mark in self.life.marks)

    def check_answers(self) -> None:
        """Each refused call has left all or nothing of itself, nothing where it says so, and is there once at last."""
        outcome = ""
        probed = False
        for mark in self.life.marks:
            fields = mark.fields
            if "tried" in fields:
                outcome, probed = str(fields["outcome"]), False
                self.ctx.saw(outcome)
                self.ctx.check(
                    outcome in ("unknown", "refused"), f"{self.what}: {fields['tried']} was answered with a {outcome}"
                )
            elif "probe" in fields:
                probed = fields["outcome"] == "done"
            elif fields.get("truth") is not None:
                self._check_truth(fields, refused=outcome == "refused" and not probed)
            elif "settled" in fields:
                self.ctx.equal(fields["settled"], fields["landed"], f"{self.what}: what settle says of a batch")
            elif "replayed" in fields:
                self.ctx.equal(
                    fields["replayed"], fields["landed"], f"{self.what}: whether a batch sent again was there"
                )
        self._check_end()

    def _check_truth(self, fields: dict[str, object], *, refused: bool) -> None:
        step, truth = fields["looked"], cast("Facts", fields["truth"])
        before, after = cast("Facts", fields["before"]), cast("Facts", fields["after"])
        landed = all(same(name, truth[name], after[name]) for name in after)
        absent = all(same(name, truth[name], before[name]) for name in before)
        self.ctx.check(landed or absent, f"{self.what}: behind a refused {step} a part of it is there: {_shown(truth)}")
        if refused:
            self.ctx.check(absent, f"{self.what}: {step} was refused as not applied, and is there")
        self.ctx.saw("landed" if landed else "not landed")

    def _check_end(self) -> None:
        steps = [mark.fields["facts"] for mark in self.life.marks if "step" in mark.fields]
        ends = [mark.fields["end"] for mark in self.life.marks if "end" in mark.fields]
        for name, value in cast("Facts", ends[-1]).items():
            wanted = cast("Facts", steps[-1])[name]
            self.ctx.check(value == wanted, f"{self.what}: at the end {name} is {_shown(value)}, not {_shown(wanted)}")

    def check_handle(self) -> None:
        """No write is acknowledged through a descriptor whose flush has failed."""
        if self.at is None:
            return
        failed = self.life.calls[self.at]
        descriptor = failed.arguments.partition("<")[0] + "<"
        for mark in self.life.marks:
            if mark.at <= self.at or "probe" not in mark.fields or mark.fields["outcome"] != "done":
                continue
            behind = self.life.calls[self.at + 1 : mark.at]
            closed = any(call.name == "close" and call.arguments.startswith(descriptor) for call in behind)
            used = any(call.arguments.startswith(descriptor) for call in behind if call.result >= 0)
            self.ctx.check(
                closed or not used,
                f"{self.what}: the next {mark.fields['probe']} went through the descriptor whose flush failed",
            )

    def behind(self) -> tuple[int, ...]:
        """The first two acknowledgements behind the refused call, and the last one."""
        steps = [mark for mark in self.life.marks if "step" in mark.fields]
        later = [number for number, mark in enumerate(steps) if self.at is not None and mark.at > self.at]
        return tuple(dict.fromkeys((*later[:2], *later[-1:])))


def _lives(
    ctx: Context, root: str, calls: Sequence[str], error: str, *, count: int, reopens: bool
) -> Iterator[tuple[_Refused, str, str]]:
    """Live on a good disk, count the calls of the kinds, and live again with each of them refused, one life each."""
    target = moved_target(ctx.target.text, f"{root}/good")
    os.mkdir(f"{root}/good")
    params = {"reopens": int(reopens)}
    (good,) = trace(_REFUSING, ctx.namespace, [Life(target, params=params)])
    disk = PowerLoss(f"{root}/good")
    for call in good.calls:
        disk.apply(call)
    mine = good.calls[: max(mark.at for mark in good.marks if "step" in mark.fields)]
    must_be_seen(disk)
    _Refused(ctx, good, "on a good disk", calls).check_answers()
    points = [(name, number) for name in calls for number in range(1, sum(call.name == name for call in mine) + 1)]
    chosen = sorted(ctx.random.sample(points, min(_LIVES * ctx.effort, len(points))))
    lives: list[Life] = []
    for place, (name, number) in enumerate(chosen):
        os.mkdir(f"{root}/{place}")
        there = moved_target(ctx.target.text, f"{root}/{place}")
        lives.append(Life(there, burn=failing_at(name, number), params={**params, "settles": place % 2}))
    seen = trace(
        _REFUSING, ctx.namespace, lives, inject=injecting(calls, error, count), timeout_s=_PATIENCE_S * ctx.effort
    )
    for place, (life, (name, number)) in enumerate(zip(seen, chosen, strict=True)):
        refused = _Refused(ctx, _without_burn(life), f"{name} {number} refused with {error}", calls)
        yield refused, lives[place].target, f"{root}/{place}"


def _short_lives(ctx: Context, root: str) -> Iterator[_Refused]:
    """Live where no file grows beyond some size: a write that meets it is cut short, the next one refused."""
    sizes = [round(_FITS[0] * (_FITS[1] / _FITS[0]) ** ctx.random.random()) for _ in range(_SHORT * ctx.effort)]
    lives: list[Life] = []
    for place, size in enumerate(sizes):
        os.mkdir(f"{root}/short-{place}")
        lives.append(Life(moved_target(ctx.target.text, f"{root}/short-{place}"), params={"fits": size}))
    seen = trace(_REFUSING, ctx.namespace, lives, timeout_s=_PATIENCE_S * ctx.effort)
    for life, size in zip(seen, sizes, strict=True):
        yield _Refused(ctx, life, f"no file beyond {size} bytes", WRITES)


@rule(
    "SETTLE-4.fsync-error",
    level=3,
    needs=(Durability.HOST,),
    hint="an error of a flush is dropped, taken for a refusal, or the flush is tried again on the same descriptor",
    kills=("flush-error-dropped", "goes-on-behind-a-flush-error"),
    floor={"failed flushes": 8, "unknown": 1},
    timeout_s=120.0,
)
def flush_error(ctx: Context) -> None:
    """An error of any flush makes the outcome unknown or the call refused, and never loses or acknowledges anything.

    A process writes in every way there is, again and again, each time with another flush refused with EIO. The call is
    told `OutcomeUnknown`, or `BackendUnavailable` where it is certainly not applied; a later call through the same
    handle does not use what failed. Fresh handles find it whole or not at all, settle it, and go on; what is
    acknowledged from then on survives a loss of power.

    Cases: 54.
    """
    with directory_of_lives() as root:
        for refused, target, place in _lives(ctx, root, FLUSHES, "EIO", count=1, reopens=True):
            if refused.at is None:
                continue
            ctx.saw("failed flushes")
            refused.check_answers()
            refused.check_handle()
            PowerTrial(ctx, target, place, refused.life).run(between=0, at=refused.behind())


@rule(
    "ERR-2.no-space",
    level=3,
    needs=(Durability.PROCESS,),
    hint="an error of a write is dropped, or leaves half a record, a lock or a transaction that stops the next call",
    kills=("space-error-dropped", "short-write-taken-for-whole"),
    floor={"refused writes": 6, "refused": 5, "files kept short": 5},
    timeout_s=120.0,
)
def no_space(ctx: Context) -> None:
    """A disk without space refuses any write: the call is told so, nothing is lost, and with space it works.

    A process appends, saves, claims, exports and deletes, again and again, each time with another of its writes refused
    with ENOSPC, and the two behind it; then where files grow to some size only, so that a write is cut short. What is
    refused is whole or absent, what was acknowledged stays, and the same handles go on when there is space. A store
    whose server writes the files is not claimed.
    """
    with directory_of_lives() as root:
        for refused, _, _ in _lives(ctx, root, WRITES, "ENOSPC", count=_FULL_FOR, reopens=False):
            if refused.at is None:
                continue
            ctx.saw("refused writes")
            refused.check_answers()
        for refused in _short_lives(ctx, root):
            ctx.saw("files kept short", int(refused.was_told or refused.at is not None))
            refused.check_answers()


def _without_burn(life: Traced) -> Traced:
    """A life without the calls that it has made to no end at its begin."""
    burnt = next((n for n, call in enumerate(life.calls) if call.error != "EBADF"), len(life.calls))
    marks = tuple(msgspec.structs.replace(mark, at=mark.at - burnt) for mark in life.marks)
    return Traced(life.calls[burnt:], marks)
