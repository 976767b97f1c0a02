"""FORMAT-2 and FORMAT-3, and what is planted in a medium: leftovers are no damage, what is damaged can be rescued."""

from __future__ import annotations

import os
import pickle
import tempfile
from contextlib import closing
from typing import Final

from statebook.errors import DataError, StatebookError, Trimmed
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey
from statebook.model import PAGE_MAX, RecordedEvent
from statebook.provision import SalvageReport, salvage
from statebook_conformance.context import Context, RuleFailure
from statebook_conformance.damage import Damage, How, make, take
from statebook_conformance.damage_trial import LONG, Scene, reads, stored_events
from statebook_conformance.rule import rule
from statebook_conformance.scenes import fill, make_batch, read_all, thread

_KEY: Final = thread()
_RESCUED: Final = thread("rescued")
_COLLECTS_MAX: Final = 4
_REVIVED: Final = (
    b'{"lc":2,"type":"constructor","id":["os","mkdir"],"kwargs":{"path":"%s"}}',
    b'{"__reduce__":["os.mkdir",["%s"]],"py/object":"os.mkdir","$type":"os.mkdir"}',
)


@rule(
    "FORMAT-2",
    level=1,
    part="atomic",
    hint="what lies beside the referenced blobs is compared with a listing, or counts as damage",
    kills=("leftover-is-damage",),
)
def leftovers(ctx: Context) -> None:
    """Blobs that nothing refers to are no damage: reads, writes and verify go on, and a collection removes them."""
    storage = ctx.open_atomic()
    scope = f"t/{_KEY.name}"
    with closing(ctx.backend.journal_over(storage)) as journal:
        claim = fill(journal, _KEY, [make_batch(f"b{number}", size=9_000) for number in range(10)])
        events = read_all(ctx, journal, _KEY)
        blobs = storage.list_blobs(scope, None, PAGE_MAX).names
        head = storage.read_head(scope)
        if head is None:
            ctx.fail("the journal over the atomic storage has no head")
        left = {f"{number:016x}-{'0' * 16}": b"left behind %d" % number for number in (1, 2)}
        storage.commit(scope, head.token, head.data, left)
        ctx.equal(read_all(ctx, journal, _KEY), events, "the events beside leftovers")
        for deep in (False, True):
            ctx.equal(journal.verify(_KEY, deep=deep).findings, (), "findings beside leftovers")
        ctx.equal(journal.append(claim, make_batch("c"), 10).first_seq, 11, "an append beside leftovers")
        deleted = sum(journal.collect(_KEY).deleted for _ in range(_COLLECTS_MAX))
        ctx.equal(deleted, 2, "leftovers that collections have deleted")
        ctx.equal(storage.list_blobs(scope, None, PAGE_MAX).names, blobs, "the blobs after the collections")


@rule(
    "FORMAT-3.verify",
    level=1,
    hint="verify looks at the head only, or raises where it should report",
    kills=("verify-checks-nothing",),
)
def verification(ctx: Context) -> None:
    """A sound journal has no findings, and a deep verification says that it has checked every batch and event."""
    journal = ctx.journal
    ctx.equal(journal.verify(_KEY, deep=True).findings, (), "findings where there is no journal")
    fill(journal, _KEY, [make_batch(f"b{number}", 3, size=3_000) for number in range(12)])
    journal.advance_cursor(journal.open_cursor(_KEY, "x"), 20)
    for store in (journal, ctx.open_journal()):
        report = store.verify(_KEY, deep=True)
        ctx.equal((report.key, report.findings), (_KEY, ()), "findings in a sound journal")
        ctx.equal((report.batches, report.events), (12, 36), "batches and events of a deep verification")
        shallow = store.verify(_KEY)
        ctx.equal(shallow.findings, (), "findings of a quick verification")
        ctx.check(shallow.events <= 36, f"a quick verification says that it has checked {shallow.events} of 36 events")
    journal.trim(_KEY, 19)
    trimmed = journal.verify(_KEY, deep=True)
    ctx.equal((trimmed.findings, trimmed.events), ((), 18), "findings and events after a trim")
    journal.delete(_KEY)
    ctx.equal(journal.verify(_KEY, deep=True).findings, (), "findings in a deleted journal")


def _readable_to(ctx: Context, journal: ThreadJournalStore, events: tuple[RecordedEvent, ...]) -> int | None:
    """How far a damaged journal can be read, one event a page; None where its head cannot, or all of it can."""
    try:
        journal.head(LONG)
    except DataError:
        return None
    for event in events:
        try:
            page = journal.read_after(LONG, event.seq - 1, 1).events
        except (DataError, Trimmed):
            return event.seq - 1
        ctx.check(page == (event,), f"a damaged journal gives something else after seq {event.seq - 1}: {page}"[:300])
    return None


@rule(
    "FORMAT-3.salvage",
    level=1,
    hint="readers skip what they cannot read, so that a copy has holes",
    kills=("damaged-batch-skipped",),
    floor={"salvages": 1},
)
def salvaging(ctx: Context) -> None:
    """A damaged journal is copied to a new key up to the damage, with ids and bytes; the source is not touched."""
    scene = Scene(ctx)
    with closing(ctx.backend.open_journal()) as journal:
        events = stored_events(journal, LONG)
    records = sorted(scene.groups["long"] & scene.whole.keys())
    ctx.random.shuffle(records)
    for record in records[:30]:
        damage = make(scene.whole, record, How.FLIP, ctx.random)
        if damage is None or not damage.apply(scene.medium):
            continue
        with closing(ctx.backend.open_journal()) as journal:
            end = _readable_to(ctx, journal, events)
            if end:
                report = _rescue(ctx, scene, journal, damage)
                copy = stored_events(journal, _RESCUED)
                ctx.check(copy == events[:end], f"the copy up to {end} is other: {damage}")
                ctx.equal((report.first_seq, report.last_seq, report.complete), (1, end, False), "what the report says")
                ctx.check(report.findings, f"a salvage of a damaged journal has found nothing: {damage}")
                ctx.saw("salvages")
                journal.delete(_RESCUED)
        scene.put_back(damage)
        if ctx.evidence["salvages"] >= 2:
            return


def _rescue(ctx: Context, scene: Scene, journal: ThreadJournalStore, damage: Damage) -> SalvageReport:
    before = take(scene.medium)
    report = salvage(journal, LONG, journal, _RESCUED, "rescuer")
    after = take(scene.medium)
    touched = [record for record in before if after.get(record) != before[record] and record in scene.groups["long"]]
    ctx.equal(touched, [], f"records of the source that a salvage has changed: {damage}")
    return report


class _Planted:
    """Makes a directory where it is revived."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


@rule(
    "FORMAT-1.planted",
    level=1,
    hint="a decoder that revives objects reads the medium: pickle, or JSON with constructors",
    kills=("unpickles-what-it-finds",),
    floor={"planted": 5},
)
def planted(ctx: Context) -> None:
    """What is planted in the medium is data or an error: nothing is imported, revived or run.

    Cases: 21.
    """
    scene = Scene(ctx)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "run")
        with closing(ctx.backend.open_state()) as state:
            for number, text in enumerate(_REVIVED):
                slot = StateKey("user", "planted", f"k{number}")
                state.save(slot, text % path.encode())
                found = state.load(slot)
                ctx.equal(None if found is None else found.value, text % path.encode(), "a value with a constructor")
        plants = [pickle.dumps(_Planted(path), protocol) for protocol in (0, 4)] + [t % path.encode() for t in _REVIVED]
        for record in sorted(scene.whole):
            for plant in plants:
                damage = Damage(record, How.SWAP, scene.whole[record], plant)
                if not damage.apply(scene.medium):
                    continue
                ctx.saw("planted")
                _read_everything(ctx, scene, damage)
                ctx.check(not os.path.exists(path), f"what was planted in {record} was run")
            scene.medium.write(record, scene.whole[record])
            if ctx.evidence["planted"] >= 120:
                return


def _read_everything(ctx: Context, scene: Scene, damage: Damage) -> None:
    with closing(ctx.backend.open_journal()) as journal, closing(ctx.backend.open_state()) as state:
        for name, call in reads(journal, state).items():
            try:
                answer = call()
            except StatebookError:
                continue
            if answer != scene.answers[name]:
                raise RuleFailure(f"{name} gives what was planted in {damage.record}")
