"""Level 3: records cut at byte after byte and with bits flipped all over, as disks and broken copies leave them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from statebook_conformance.context import Context
from statebook_conformance.damage import Damage
from statebook_conformance.damage_trial import Scene, Trial
from statebook_conformance.faults.disk import bit_flips, truncations
from statebook_conformance.rule import rule
from statebook_conformance.rules.format_damage import whole

_CUTS: Final = 60
_FLIPS: Final = 30
_TAIL: Final = 6
"""How many bytes of each record's end are cut off one by one."""


def _damages(ctx: Context, scene: Scene) -> Iterator[Damage]:
    """Cuts of each record of a short journal and of a document, evenly and at each byte of the tail; then flips."""
    records = sorted((scene.groups["small"] | scene.groups["document"]) & scene.whole.keys() - scene.cursor)
    large = [record for record in records if len(scene.whole[record]) > _TAIL * 2]
    budget = _CUTS * ctx.effort // max(1, len(large))
    for record in large:
        size = len(scene.whole[record])
        evenly = truncations(scene.whole, record, step=max(1, size // max(1, budget - _TAIL)))
        tail = (cut for cut in truncations(scene.whole, record) if len(cut.after or b"") >= size - _TAIL)
        flips = bit_flips(scene.whole, record, ctx.random, count=_FLIPS * ctx.effort // len(large))
        yield from chain(evenly, tail, flips)


@rule(
    "FORMAT-1.each-byte",
    level=3,
    hint="a record that ends early is read as far as it goes, or a byte of it is covered by no digest",
    kills=("torn-tail-cut-off", "digest-not-verified"),
    floor={"damages": 60, "damages noticed": 40},
    timeout_s=90.0,
)
def each_byte(ctx: Context) -> None:
    """Cut a record at byte after byte, flip bits all over it: reads give what was stored or a DataError, never less.

    Cases: 26, 53.
    """
    scene = Scene(ctx)
    for damage in _damages(ctx, scene):
        if not damage.apply(scene.medium):
            ctx.saw("refused by the medium")
            continue
        trial = Trial(ctx, scene, damage)
        trial.run(look=False)
        scene.put_back(damage)
        ctx.saw("damages")
        ctx.saw("damages noticed", int(bool(trial.noticed)))
    whole(ctx, scene)
