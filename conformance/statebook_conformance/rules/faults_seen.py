"""Level 3: what readers see while a writer waits for its disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from typing import Final, cast

from statebook.capabilities import Durability, Sharing
from statebook.errors import StatebookError
from statebook_conformance.context import Context, NotClaimed
from statebook_conformance.faults.powerloss import PowerLoss, put_there
from statebook_conformance.faults.trace import FLUSHES, Life, Traced, failing_at, moved_target, slowing, trace
from statebook_conformance.rule import rule
from statebook_conformance.rules.faults_trace import directory_of_lives, must_be_seen
from statebook_conformance.target import Target, TargetBackend
from statebook_conformance.workers_seen import sight

_WORKER: Final = "statebook_conformance.workers_seen:read_beside_a_slow_flush"
_SLOW_S: Final = 0.1
_LIVES: Final = 16


@rule(
    "DUR-1.seen",
    level=3,
    needs=(Durability.HOST, Sharing.HOST),
    hint="a change is visible as soon as it is written, and durable only when the writer's flush has come back",
    kills=("shown-before-it-is-flushed",),
    floor={"slow flushes": 10, "sights": 40},
    timeout_s=120.0,
)
def seen(ctx: Context) -> None:
    """What a reader has seen survives a loss of power, also while its writer still waits for the disk.

    A writer claims, appends and saves, again and again, each time with another flush that takes long. A reader in
    another process looks all the time. At each new sight the power is taken away: a fresh store finds that much at
    least. A store whose server writes the files is not claimed.
    """
    with directory_of_lives() as root:
        os.mkdir(f"{root}/good")
        (good,) = trace(_WORKER, ctx.namespace, [Life(moved_target(ctx.target.text, f"{root}/good"))])
        whole = PowerLoss(f"{root}/good")
        for call in good.calls:
            whole.apply(call)
        must_be_seen(whole)
        _check(ctx, good, f"{root}/good", "with a good disk")
        writer = _writer(good)
        points = [
            (name, number)
            for name in FLUSHES
            for number in range(1, sum(call.name == name and call.pid == writer for call in good.calls) + 1)
        ]
        chosen = sorted(ctx.random.sample(points, min(_LIVES * ctx.effort, len(points))))
        lives: list[Life] = []
        for place, (name, number) in enumerate(chosen):
            os.mkdir(f"{root}/{place}")
            lives.append(Life(moved_target(ctx.target.text, f"{root}/{place}"), params=failing_at(name, number)))
        slow = trace(_WORKER, ctx.namespace, lives, inject=slowing(FLUSHES, _SLOW_S), timeout_s=80.0 * ctx.effort)
        for place, (life, (name, number)) in enumerate(zip(slow, chosen, strict=True)):
            _check(ctx, life, f"{root}/{place}", f"while {name} {number} of the writer took {_SLOW_S:g} s")
            ctx.saw("slow flushes")


def _writer(life: Traced) -> int:
    """The process of a life that has flushed most."""
    flushed: dict[int, int] = {}
    for call in life.calls:
        if call.name in FLUSHES:
            flushed[call.pid] = flushed.get(call.pid, 0) + 1
    if not flushed:
        raise NotClaimed("the writing process flushes no file")
    return max(flushed, key=lambda pid: flushed[pid])


def _check(ctx: Context, life: Traced, root: str, where: str) -> None:
    disk = PowerLoss(root)
    backend = Target(moved_target(ctx.target.text, root)).backend(ctx.namespace)
    number = 0
    for mark in life.marks:
        while number < mark.at:
            disk.apply(life.calls[number])
            number += 1
        if "ended" in mark.fields:
            ctx.equal(mark.fields["ended"], 0, f"{where}: the status of the writer")
        if "seen" not in mark.fields:
            continue
        put_there(disk.flushed(), root)
        there = _found(ctx, backend, where)
        for name, count in cast("Mapping[str, int]", mark.fields["seen"]).items():
            ctx.check(
                there[name] >= count,
                f"{where}: a reader saw {name} {count}, and a loss of power just then leaves {name} {there[name]}",
            )
        ctx.saw("sights")


def _found(ctx: Context, backend: TargetBackend, where: str) -> dict[str, int]:
    try:
        with closing(backend.open_journal()) as journal, closing(backend.open_state()) as state:
            return sight(journal, state)
    except StatebookError as error:
        ctx.fail(f"{where}: after a loss of power: {type(error).__name__}: {error}")
