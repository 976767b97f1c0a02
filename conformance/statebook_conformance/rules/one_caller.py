"""Level 1: random histories of every call of one caller, each answer compared with the model's (ERR-1)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from statebook_conformance.context import Context, NotClaimed
from statebook_conformance.differential import steps as do
from statebook_conformance.differential.make import make_history, too_small
from statebook_conformance.differential.run import Shrunk, differing, play, shrink
from statebook_conformance.rule import rule

HISTORIES: Final = 2
"""How many histories are played for one unit of effort."""

STEPS: Final = 250
"""How many random steps a history has."""

_SHRINK_S: Final = 20.0
_SHOWN: Final = 160


@rule(
    "ERR-1.one-caller",
    level=1,
    hint="see the last step: the model is the contract in plain Python, and every field of an answer or error counts",
    kills=(
        "bare-conflict",
        "bare-journal-errors",
        "has-more-guessed",
        "generation-stays",
        "version-reused-after-delete",
        "listing-prefix-bleed",
        "base-ignored",
        "cas-ignores-condition",
    ),
    floor={"answers": 500},
    timeout_s=300.0,
)
def one_caller(ctx: Context) -> None:
    """Whatever one caller does through two handles, each answer and each error is the model's, field by field.

    Claims, appends, retries, overlaps, groups, settlements, cursors, trims, deletes, state, lists and listings, in
    random order; at the end everything is looked at. A history that differs is reduced to the fewest steps.
    """
    small = too_small(ctx.capabilities.limits)
    if small:
        raise NotClaimed(f"histories need more than the declared limits: {', '.join(small)}")
    for number in range(HISTORIES * ctx.effort):
        seed = ctx.random.randrange(1 << 31)
        history = make_history(seed, STEPS)
        played = play(history, [ctx.target])
        if played.differences:
            shorter = shrink(history, ctx.target, played.differences[0], seconds=_SHRINK_S)
            ctx.fail(f"{_told(shorter)}{_kept(ctx, shorter, seed)}")
        for _ in range(played.compared):
            ctx.check(condition=True, fact=f"an answer of history {number} is not the model's")
        ctx.saw("answers", played.compared)


def _told(shorter: Shrunk) -> str:
    steps = "; ".join(_words(step) for step in shorter.steps)
    return f"{differing(shorter.difference)}; at the last of these steps: {steps}"


def _words(step: do.Step) -> str:
    text = msgspec.json.encode(step).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _kept(ctx: Context, shorter: Shrunk, seed: int) -> str:
    if ctx.out is None:
        return ""
    path = Path(ctx.out) / "histories" / f"differential-{ctx.seed}.jsonl"
    difference = shorter.difference
    origin = do.Origin(
        statebook_differential=do.HISTORY_VERSION,
        seed=seed,
        made=STEPS,
        target=difference.target,
        step=difference.step.number,
        expected=difference.expected,
        found=difference.found,
    )
    do.save_history(path, origin, shorter.steps)
    return f" (history: {path}; repeat it with: statebook conformance differential --replay {path} URL)"
