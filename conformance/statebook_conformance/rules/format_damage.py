"""FORMAT-1: what is damaged in the medium is an error, never other data and never less data.

A scene with records of every kind is stored once. Then one record after the other is damaged behind the store's back,
and fresh handles are asked for everything. Each answer is exactly what was stored, or a `DataError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import Final

from statebook.errors import DataError, UnsupportedFormat
from statebook_conformance.context import Context
from statebook_conformance.damage import Damage, How, make, sample, take
from statebook_conformance.damage_trial import ACKED, EXPORTER, LONG, OTHER, SMALL, Scene, Trial, reads
from statebook_conformance.rule import rule

_DAMAGES: Final = 60
_LARGE: Final = 200
_LOOKS_MAX: Final = 12
"""After how many damages the whole medium is compared with what it was: the dear part."""


def _try_all(ctx: Context, scene: Scene, damages: Iterable[Damage]) -> None:
    """Do each damage, ask, undo it; at the end everything is as it was."""
    looks = 0
    for damage in damages:
        if not damage.apply(scene.medium):
            ctx.saw("refused by the medium")
            continue
        trial = Trial(ctx, scene, damage)
        trial.run(look=looks < _LOOKS_MAX)
        scene.put_back(damage)
        ctx.saw("damages")
        if trial.noticed:
            ctx.saw("damages noticed")
            looks += any(name.startswith("head") for name in trial.noticed)
    whole(ctx, scene)


def whole(ctx: Context, scene: Scene) -> None:
    """Check that the medium is what it was, and that all answers are."""
    ctx.check(take(scene.medium) == scene.whole, "the medium is not what it was, after everything was put back")
    with closing(ctx.backend.open_journal()) as journal, closing(ctx.backend.open_state()) as state:
        for name, call in reads(journal, state).items():
            ctx.equal(call(), scene.answers[name], f"{name} after everything was put back")
        for key in (SMALL, OTHER, LONG):
            ctx.equal(journal.verify(key, deep=True).findings, (), f"findings in {key.thread_id} as it was stored")


@rule(
    "FORMAT-1.damage",
    level=1,
    hint="a digest, length, key or chain is stored and not compared, or a decode error is read as absent",
    kills=(
        "corrupt-head-starts-empty",
        "damaged-batch-skipped",
        "journal-shortened-at-the-damage",
        "digest-not-verified",
        "corrupt-state-read-as-absent",
        "verify-says-fine",
        "damage-is-written-over",
        "damaged-state-saved-over",
    ),
    floor={"damages": 20, "damages noticed": 12},
)
def damage(ctx: Context) -> None:
    """Flip, cut, remove or swap any record: each read gives what was stored or a DataError, and writes are refused.

    Cases: 26, 53.
    """
    scene = Scene(ctx)
    records = {record: data for record, data in scene.whole.items() if record not in scene.cursor}
    _try_all(ctx, scene, sample(records, ctx.random, _DAMAGES * ctx.effort))


@rule(
    "FORMAT-1.torn",
    level=1,
    hint="a record that ends early is taken for the end of the journal, and the next one is written behind it",
    kills=("torn-tail-cut-off", "corrupt-head-starts-empty"),
    floor={"damages": 12, "damages noticed": 8},
)
def torn(ctx: Context) -> None:
    """Cut a record of a journal anywhere: it is JournalCorrupt and takes no batch, so that nothing is glued on.

    Cases: 26, 27.
    """
    scene = Scene(ctx)
    records = sorted((scene.groups["small"] | scene.groups["long"]) & scene.whole.keys() - scene.cursor)
    large = [record for record in records if len(scene.whole[record]) > _LARGE] or records
    cuts = [make(scene.whole, ctx.random.choice(large), How.CUT, ctx.random) for _ in range(30 * ctx.effort)]
    _try_all(ctx, scene, [cut for cut in cuts if cut is not None])


@rule(
    "FORMAT-1.lost-records",
    level=1,
    hint="a record that is missing is read as one that was never there; blobs without a head are no empty journal",
    kills=("blobs-without-a-head-are-empty", "journal-shortened-at-the-damage"),
    floor={"damages": 3, "damages noticed": 2},
)
def lost_records(ctx: Context) -> None:
    """Each record of a long journal is missed: without it the journal is JournalCorrupt, never empty, never shorter.

    Cases: 53.
    """
    scene = Scene(ctx)
    gone_together: set[str] = set()
    damages: list[Damage] = []
    for record in sorted(scene.groups["long"] - scene.cursor):
        if record in gone_together or record not in scene.whole:
            continue
        lost = make(scene.whole, record, How.REMOVE, ctx.random)
        if lost is not None and lost.apply(scene.medium):
            gone_together |= scene.whole.keys() - set(scene.medium.records())
            scene.put_back(lost)
            damages.append(lost)
    _try_all(ctx, scene, damages)


@rule(
    "FORMAT-1.cursor",
    level=1,
    hint="a cursor that cannot be read is opened as a new one",
    kills=("damaged-cursor-starts-again",),
    floor={"damages": 3},
)
def damaged_cursor(ctx: Context) -> None:
    """A damaged cursor is a DataError for its opener, and stays as it is; it neither skips nor starts again at 0.

    Cases: 53.
    """
    scene = Scene(ctx)
    records = {record: data for record, data in scene.whole.items() if record in scene.cursor}
    for each in sample(records, ctx.random, 24):
        if each.how is How.REMOVE or not each.apply(scene.medium):
            continue
        ctx.saw("damages")
        before = take(scene.medium)
        with closing(ctx.backend.open_journal()) as journal:
            try:
                found = journal.open_cursor(LONG, EXPORTER)
            except DataError:
                ctx.check(take(scene.medium) == before, f"a refused open_cursor has changed the medium: {each}")
                ctx.check(journal.verify(LONG).findings, f"verify finds nothing wrong with a damaged cursor: {each}")
                ctx.raises(DataError, partial(journal.trim, LONG, 20), f"trim beside a damaged cursor: {each}")
            else:
                ctx.equal(found.acked_seq, ACKED, f"where a damaged cursor stands: {each}")
        scene.reset()
    with closing(ctx.backend.open_journal()) as journal:
        ctx.equal(journal.open_cursor(LONG, EXPORTER).acked_seq, ACKED, "the cursor after everything was put back")


@rule(
    "FORMAT-1.version",
    level=1,
    hint="the format version is stored and never compared",
    kills=("unknown-format-is-read",),
    floor={"damages": 2},
)
def unknown_format(ctx: Context) -> None:
    """A record of a later format is UnsupportedFormat; it is neither read nor changed by any call."""
    scene = Scene(ctx)
    marked = [make(scene.whole, record, How.FORMAT, ctx.random) for record in sorted(scene.whole)]
    for each in marked:
        if each is None or not each.apply(scene.medium):
            continue
        ctx.saw("damages")
        before = take(scene.medium)
        noticed = 0
        with closing(ctx.backend.open_journal()) as journal, closing(ctx.backend.open_state()) as state:
            calls = dict(reads(journal, state))
            if each.record in scene.cursor:
                calls = {"cursor": lambda: journal.open_cursor(LONG, EXPORTER).acked_seq}
            for name, call in calls.items():
                try:
                    wanted = scene.answers.get(name, ACKED)
                    ctx.equal(call(), wanted, f"{name} with a record of format 3: {each.record}")
                except UnsupportedFormat as error:
                    ctx.check("3" in str(error), f"UnsupportedFormat does not say which format it met: {error}")
                    noticed += 1
        ctx.check(noticed, f"nobody notices that {each.record} is of format 3")
        ctx.check(take(scene.medium) == before, f"the medium has changed beside a record of format 3: {each.record}")
        scene.put_back(each)
    whole(ctx, scene)
