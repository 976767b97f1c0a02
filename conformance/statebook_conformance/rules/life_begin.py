"""LIFE-3 and LIFE-6, one caller at a time: what a collection deletes, and how journals begin from a state or a fork."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Final

from statebook.atomic import COMMIT_CONFLICT, CommitConflict
from statebook.codec import Json
from statebook.errors import HeadConflict, JournalNotFound, WriterBusy
from statebook.model import PAGE_MAX
from statebook.provision import INITIALIZED, fork, initialize
from statebook_conformance.context import Context
from statebook_conformance.mutants.forward import ForwardAtomic
from statebook_conformance.rule import rule
from statebook_conformance.scenes import fill, make_batch, names, read_all, there, thread

_KEY: Final = thread()
_COLLECTS_MAX: Final = 4


class _Leaky(ForwardAtomic):
    """Leaves the blobs of some commits behind, and says truthfully that those commits met another head."""

    leaks = 0

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        """Commit, or lose a race that leaves blobs behind."""
        now = self.inner.read_head(scope)
        if not blobs or not self.leaks or now is None or now.token != expected:
            return super().commit(scope, expected, head, blobs)
        self.leaks -= 1
        self.inner.commit(scope, now.token, now.data, blobs)
        return COMMIT_CONFLICT


@rule(
    "LIFE-3",
    level=1,
    part="atomic",
    hint="the collector compares with a listing or an old head instead of with what the newest head refers to",
    kills=("collector-deletes-referenced", "collector-does-nothing"),
)
def collect(ctx: Context) -> None:
    """A collection deletes what failed commits left behind, and nothing that the head refers to; it fences nobody."""
    storage = _Leaky(ctx.open_atomic())
    scope = f"t/{_KEY.name}"
    with closing(ctx.backend.journal_over(storage)) as journal:
        claim = fill(journal, _KEY, [make_batch(f"a{number}", size=9_000) for number in range(9)])
        needed = storage.list_blobs(scope, None, PAGE_MAX).names
        ctx.equal(journal.collect(_KEY).deleted, 0, "blobs deleted where nothing is left behind")
        storage.leaks = 2
        base = 9
        for number in range(18):
            base = journal.append(claim, make_batch(f"b{number}", size=9_000), base).last_seq
        ctx.equal(storage.leaks, 0, "commits that were to leave blobs behind")
        full = storage.list_blobs(scope, None, PAGE_MAX).names
        events = read_all(ctx, journal, _KEY)
        before = there(ctx, journal, _KEY)
        deleted = 0
        for _ in range(_COLLECTS_MAX):
            report = journal.collect(_KEY)
            deleted += report.deleted
            if report.kept == 0:
                break
        left = storage.list_blobs(scope, None, PAGE_MAX).names
        ctx.equal(deleted, 2, f"blobs deleted of {len(full)}, of which two were left behind")
        ctx.equal(len(left), len(full) - 2, "blobs in the medium after the collection")
        ctx.check(set(needed) <= set(left), "a blob that was needed before is gone")
        after = there(ctx, journal, _KEY)
        ctx.equal((after.epoch, after.claim, after.chain), (before.epoch, before.claim, before.chain), "what stays")
        ctx.equal(read_all(ctx, journal, _KEY), events, "the events after the collection")
        ctx.equal(journal.verify(_KEY, deep=True).findings, (), "findings after the collection")
        ctx.equal(journal.append(claim, make_batch("c"), base).first_seq, base + 1, "an append by the same writer")
        ctx.equal(journal.collect(_KEY).deleted, 0, "blobs deleted by one more collection")
        journal.delete(_KEY)
        journal.collect(_KEY)
        ctx.equal(storage.list_blobs(scope, None, PAGE_MAX).names, (), "blobs after a delete and a collection")


@rule(
    "LIFE-6.initialize",
    level=1,
    hint="claim(replacing=NONE) takes a held journal, or an empty one counts as held",
    kills=("held-journal-is-taken",),
)
def initialization(ctx: Context) -> None:
    """A journal begins with a state only where it is empty and free; the same initialisation again writes nothing."""
    journal, other = ctx.open_journal(), ctx.open_journal()
    made = initialize(journal, _KEY, "setup", {"a": 1, "b": [2]}, provenance={"kind": "import", "id": "x"})
    ctx.equal((made.key, made.replayed), (_KEY, False), "the first initialisation")
    head = there(ctx, other, _KEY)
    ctx.equal((head.last_seq, head.checkpoint_seq, head.claim), (1, 1, None), "the head after it")
    event = other.read_after(_KEY, 0).events[0]
    ctx.equal((event.type, event.event_id), (INITIALIZED, made.event_id), "the first event")
    wanted = {"a": 1, "b": [2], "provenance": {"kind": "import", "id": "x"}}
    ctx.equal(json.loads(event.payload), wanted, "the payload of the first event")
    again = initialize(other, _KEY, "someone", {"b": [2], "a": 1}, provenance={"id": "x", "kind": "import"})
    ctx.equal((again.replayed, again.event_id, again.journal_id), (True, made.event_id, made.journal_id), "again")
    ctx.equal(there(ctx, journal, _KEY), head, "the head after the same initialisation again")
    others: tuple[Mapping[str, Json], ...] = ({"a": 2, "b": [2]}, {})
    for state in others:
        call = partial(initialize, journal, _KEY, "setup", state, provenance={"kind": "import", "id": "x"})
        ctx.equal(ctx.raises(HeadConflict, call, "another initialisation").last_seq, 1, "the last_seq that it carries")
    held = thread("held")
    claim = journal.claim(held, "somebody")
    busy = ctx.raises(WriterBusy, partial(initialize, other, held, "setup", {}, provenance={}), "of a held target")
    ctx.equal(busy.holder, claim.info, "the holder that WriterBusy carries")
    used = thread("used")
    journal.release(fill(journal, used, [make_batch("b")]))
    ctx.raises(HeadConflict, partial(initialize, other, used, "setup", {}, provenance={}), "of a used target")
    ctx.equal(names(read_all(ctx, journal, used)), [(1, "b.1")], "a used target after the refusal")
    ctx.equal(journal.append(claim, make_batch("c"), 0).first_seq, 1, "an append by the holder of a held target")
    journal.delete(_KEY)
    anew = initialize(other, _KEY, "setup", {"a": 1, "b": [2]}, provenance={"kind": "import", "id": "x"})
    ctx.equal((anew.replayed, anew.journal_id != made.journal_id), (False, True), "the same over a deleted journal")


@rule(
    "LIFE-6.fork",
    level=1,
    hint="cursors or receipts are found by name without the journal's identity",
    kills=("cursor-known-by-exporter-alone", "receipts-known-by-batch-alone"),
)
def forking(ctx: Context) -> None:
    """A fork begins with its source's last checkpoint, inherits no receipts or cursors, and leaves the source alone."""
    journal = ctx.journal
    source, target = thread("source"), thread("target")
    ctx.raises(JournalNotFound, partial(fork, journal, source, target, "forker"), "a fork of nothing")
    claim = fill(journal, source, [make_batch("b1", 2)])
    ctx.raises(WriterBusy, partial(fork, journal, source, target, "forker"), "a fork of a held source")
    journal.release(claim)
    ctx.raises(HeadConflict, partial(fork, journal, source, target, "forker"), "a fork without a last checkpoint")
    claim = fill(journal, source, [make_batch("b2", 2, checkpoint=True)])
    journal.advance_cursor(journal.open_cursor(source, "x"), 3)
    journal.release(claim)
    ctx.equal(journal.head(target), None, "the target after refused forks")
    before = there(ctx, journal, source)
    made = fork(journal, source, target, "forker")
    head, event = there(ctx, journal, target), journal.read_after(target, 0).events[0]
    ctx.equal((head.key, head.last_seq, head.checkpoint_seq, head.claim), (target, 1, 1, None), "the target's head")
    ctx.check(head.journal_id != before.journal_id, "the fork has the journal_id of its source")
    payload = json.loads(event.payload)
    origin = payload.pop("provenance")
    ctx.equal(payload, json.loads(make_batch("b2", 2).events[1].payload), "the checkpoint in the target")
    ctx.equal((origin["journal_id"], origin["as_of_seq"]), (before.journal_id, 4), "journal and seq of the origin")
    ctx.equal(there(ctx, journal, source), before, "the source after the fork")
    again = fork(ctx.open_journal(), source, target, "forker")
    ctx.equal((again.replayed, again.event_id), (True, made.event_id), "the same fork again")
    cursor = journal.open_cursor(target, "x")
    ctx.equal((cursor.acked_seq, cursor.version), (0, 1), "a cursor of the target, of an exporter of the source")
    writer = journal.claim(target, "writer")
    receipt = journal.append(writer, make_batch("b1", 2), 1)
    ctx.equal((receipt.first_seq, receipt.replayed), (2, False), "a batch of the source's first batch id in the target")
    ctx.equal(journal.open_cursor(source, "x").acked_seq, 3, "the source's cursor")
    ctx.equal(names(read_all(ctx, journal, source))[-1], (4, "b2.2"), "the source's last event")
