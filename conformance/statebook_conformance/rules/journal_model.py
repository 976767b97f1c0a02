"""Level 1: random histories of one journal against a model that was written from the contract (APPEND, CLAIM, READ)."""

from __future__ import annotations

from typing import Final

from statebook_conformance.context import Context, RuleFailure, Unavailable
from statebook_conformance.journal_walk import STEPS, Step, Walk
from statebook_conformance.rule import rule
from statebook_conformance.writing import thread

EXAMPLES: Final = 40
"""How many walks are made for one unit of effort."""

LENGTH: Final = 30
"""How many steps a walk has."""


@rule(
    "CLAIM-2.model",
    level=1,
    hint="the steps are as few as they can be: replay them by hand against one journal",
    kills=(
        "released-may-write",
        "epoch-reused-after-release",
        "replacing-ignored",
        "base-ahead-accepted",
        "checkpoint-first-of-batch",
        "fenced-receipt-lost",
    ),
    timeout_s=240.0,
)
def model(ctx: Context) -> None:
    """Whatever a few writers do one after the other, the journal answers as a plain model of the contract does.

    Claims, heartbeats, releases, new, repeated, changed and overlapping batches, settlements, pages, trims and deletes,
    over two handles. A history that differs is reduced to the fewest steps.
    """
    try:
        from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings, strategies
    except ImportError as error:
        raise Unavailable("hypothesis is missing; install it with: pip install 'statebook[conformance]'") from error
    small = strategies.integers(0, 9)
    program = strategies.lists(
        strategies.builds(Step, strategies.sampled_from(STEPS), strategies.integers(0, 3), small, small),
        min_size=LENGTH,
        max_size=LENGTH,
    )
    other = ctx.open_journal()
    walks = 0

    def walk_once(steps: list[Step]) -> None:
        nonlocal walks
        walks += 1
        walk = Walk(ctx, thread(f"walk {walks}"))
        walk.use(other)
        try:
            for step in steps:
                walk.step(step)
            walk.finish()
        except RuleFailure as failure:
            raise RuleFailure(f"{failure}; the steps: {'; '.join(walk.told)}") from None

    run = given(program)(walk_once)
    quiet = settings(
        max_examples=EXAMPLES * ctx.effort,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large),
    )
    seed(ctx.seed)(quiet(run))()
    ctx.saw("walks", walks)
