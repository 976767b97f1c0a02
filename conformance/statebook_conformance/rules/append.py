"""Level 1: batches (APPEND), beside the table."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from statebook.capabilities import Feature
from statebook.codec import digest, encode_batch
from statebook.errors import (
    BatchConflict,
    HeadConflict,
    InvalidBatch,
    JournalRegressed,
    LimitExceeded,
    StatebookError,
    WriterFenced,
)
from statebook.model import AppendRequest, Batch, Event, Receipt
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.writing import (
    CHECKPOINT,
    Writer,
    answer_of,
    as_read,
    batch,
    event,
    head_of,
    read_all,
    same_events,
    same_head,
    thread,
)

_WINDOW: Final = 64
_BYTES_TRIED_MAX: Final = 80 * 1024 * 1024


@rule(
    "APPEND-1.window",
    level=1,
    hint="receipts are kept in the handle that wrote them, or fewer than 64 of them",
    kills=("window-too-short", "receipts-lost-on-reopen", "window-without-anchor", "replayed-receipt-differs"),
)
def window(ctx: Context) -> None:
    """Any of the last 64 batches is recognised on any base, any older one on its own, through any handle.

    Cases: 10.
    """
    key = thread()
    writer = Writer(ctx.journal, key)
    writer.fill(_WINDOW + 20, events=2)
    before = head_of(ctx, ctx.journal, key)
    kept = Feature.RECEIPTS_KEPT in ctx.capabilities.features
    for name, journal in (("the same handle", ctx.journal), ("another handle", ctx.open_journal())):
        for place in (0, 1, 19, 20, 21, 50, len(writer.batches) - 1):
            own = writer.receipts[place].first_seq - 1
            near = place >= len(writer.batches) - _WINDOW
            for base in (own, 0, writer.base, writer.base + 9) if near or kept else (own,):
                receipt = answer_of(journal, writer.claim, writer.batches[place], base)
                original = msgspec.structs.replace(writer.receipts[place], replayed=True)
                ctx.equal(receipt, original, f"batch {place} of {len(writer.batches)} again on base {base}, {name}")
    same_head(ctx, ctx.journal, before, key, "retries")


@rule(
    "APPEND-1.content",
    level=1,
    hint="batches are compared by id, or by the ids or the number of their events",
    kills=("other-content-accepted", "content-by-event-ids"),
)
def content(ctx: Context) -> None:
    """The same batch id with any other content is BatchConflict and changes nothing; the true content is a replay.

    Cases: 10, 51.
    """
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    a, b, c = event("a", b'{"n":1}'), event("b", b'{"n":2}'), event("c", b'{"n":3}')
    true = Batch("batch", (a, b, c))
    original = writer.append(true)
    replace = msgspec.structs.replace
    others: dict[str, tuple[Event, ...]] = {
        "two events swapped": (b, a, c),
        "an event left out": (a, b),
        "an event added": (a, b, c, event("d")),
        "a payload changed": (a, replace(b, payload=b'{"n":4}'), c),
        "a payload written otherwise": (a, replace(b, payload=b'{"n": 2}'), c),
        "a type changed": (a, replace(b, type="other"), c),
        "a time changed": (a, replace(b, occurred_at=2), c),
        "a run added": (a, replace(b, run_id="run"), c),
        "a turn added": (a, replace(b, turn_id="turn"), c),
        "an event made required": (a, replace(b, required=True), c),
        "an event id changed": (a, b, event("e", b'{"n":3}')),
    }
    for base in (0, original.last_seq):
        for what, events in others.items():
            before = head_of(ctx, journal, key)
            error = ctx.raises(
                BatchConflict,
                partial(journal.append, writer.claim, Batch("batch", events), base),
                f"the same batch id with {what}, base {base}",
            )
            ctx.equal(error.batch_id, "batch", "the batch id in the error")
            same_head(ctx, journal, before, key, f"a conflict with {what}")
        receipt = journal.append(writer.claim, true, base)
        ctx.equal(receipt, replace(original, replayed=True), f"the true batch again on base {base}")
    same_events(ctx, read_all(ctx, journal, key), as_read((true,)), "what the journal holds")


@rule(
    "APPEND-1.invalid",
    level=1,
    hint="limits are left to the engine, which refuses halfway or cuts",
    kills=("limits-ignored", "negative-base-accepted"),
)
def invalid(ctx: Context) -> None:
    """Empty, repeated, of another schema version, over a limit, a base that is no seq: refused, nothing written."""
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    writer.fill(1)
    before = head_of(ctx, journal, key)
    one = event("one")
    ctx.raises(InvalidBatch, lambda: Batch("empty", ()), "a batch without events")
    ctx.raises(InvalidBatch, lambda: Batch("twice", (one, event("two"), one)), "a batch with an event id twice")
    ctx.raises(InvalidBatch, lambda: msgspec.structs.replace(one, schema_version=1), "an event of schema version 1")
    bases: tuple[object, ...] = (-1, True, "1", 1.0, None)
    for base in bases:
        new = Batch(f"base {base!r}", (one,))
        ctx.raises(ValueError, partial(journal.append, writer.claim, new, base), f"a base of {base!r}")  # type: ignore[arg-type]
    limits = ctx.capabilities.limits
    refused: list[Batch] = []
    if limits.batch_events_max <= 100_000:
        refused.append(batch("too many", limits.batch_events_max + 1))
    if limits.value_bytes_max <= _BYTES_TRIED_MAX:
        refused.append(Batch("too large", (one, event("two", b'"' + b"x" * (limits.value_bytes_max - 1) + b'"'))))
    if limits.batch_bytes_max <= _BYTES_TRIED_MAX:
        size = min(limits.value_bytes_max, limits.batch_bytes_max // 2 + 1) - 2
        count = limits.batch_bytes_max // size + 1
        refused.append(batch("too heavy", count, payload=b'"' + b"x" * size + b'"'))
    for new in refused:
        ctx.raises(LimitExceeded, partial(journal.append, writer.claim, new, 1), f"a batch that is {new.batch_id}")
        same_head(ctx, journal, before, key, f"a batch that is {new.batch_id}")
        ctx.equal(journal.settle(writer.claim, new.batch_id, 1), None, f"whether {new.batch_id} is there")
        before = head_of(ctx, journal, key)
    ctx.saw("limits tried", len(refused))
    ctx.equal(writer.append(batch("next")).last_seq, 2, "the append after all the refusals")


@rule(
    "APPEND-2.whole",
    level=1,
    hint="events are inserted one by one, and an error in the middle leaves the first ones and an open transaction",
    kills=("batch-one-by-one",),
)
def whole(ctx: Context) -> None:
    """A batch is committed whole and at once: one write of the head; where one event cannot be stored, none is.

    Cases: 9.
    """
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    before = head_of(ctx, journal, key)
    receipt = writer.append(batch("whole", 7))
    head = head_of(ctx, ctx.open_journal(), key)
    ctx.equal((receipt.first_seq, receipt.last_seq), (1, 7), "seqs of a batch of 7")
    ctx.equal(head.generation, before.generation + 1, "the generation after one batch")
    limit = ctx.capabilities.limits.value_bytes_max
    if limit <= _BYTES_TRIED_MAX:
        bad = Batch("bad", (event("x"), event("y"), event("z", b'"' + b"x" * limit + b'"')))
        ctx.raises(
            LimitExceeded, lambda: journal.append(writer.claim, bad, 7), "a batch whose third event is too large"
        )
        same_head(ctx, journal, head, key, "a batch whose third event is too large")
    new = Batch("overlapping", (event("x"), event("y"), event("whole.3")))
    ctx.raises(BatchConflict, lambda: journal.append(writer.claim, new, 7), "a batch whose third event is there")
    same_head(ctx, journal, head, key, "a batch whose third event is there")
    same_events(ctx, read_all(ctx, journal, key), as_read((batch("whole", 7),)), "what the journal holds")
    ctx.equal(writer.append(Batch("good", (event("x"), event("y")))).last_seq, 9, "the append after the refusals")


@rule(
    "APPEND-2.order",
    level=1,
    hint="events are ordered by time or id",
    kills=("batch-reordered",),
)
def order(ctx: Context) -> None:
    """Events come back in the order in which they were appended, whatever their times and ids say.

    Cases: 12.
    """
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    names = [f"event-{n}" for n in range(50)]
    ctx.random.shuffle(names)
    same_tick = tuple(Batch(f"tick-{n}", tuple(event(e) for e in names[n * 10 : n * 10 + 10])) for n in range(5))
    backwards = Batch("backwards", tuple(event(f"back-{n}", at=1_000 - n) for n in range(20)))
    for new in (*same_tick, backwards):
        writer.append(new)
    expected = as_read((*same_tick, backwards))
    for journal_of in (journal, ctx.open_journal()):
        same_events(ctx, read_all(ctx, journal_of, key), expected, "events in append order")
        same_events(ctx, read_all(ctx, journal_of, key, limit=7), expected, "events in append order in pages of 7")


@rule(
    "APPEND-2.receipt",
    level=1,
    hint="the receipt is made from what was sent and not from what was committed",
    kills=("replayed-receipt-differs", "receipt-without-digest"),
)
def receipt_is_true(ctx: Context) -> None:
    """A receipt tells where the batch is, under which epoch and with which content; sent again it is the same."""
    journal, key = ctx.journal, thread()
    base = 0
    given: list[tuple[Batch, Receipt]] = []
    for name in ("first", "second"):
        writer = Writer(journal, key, name)
        for place in range(3):
            new = batch(f"{name} {place}", place + 1, payload=b'{"text":"\xe2\x98\x83"}')
            receipt = writer.append(new)
            claim = writer.claim
            expected = Receipt(
                new.batch_id, claim.journal_id, base + 1, base + place + 1, claim.epoch, digest(encode_batch(new))
            )
            ctx.equal(receipt, expected, f"the receipt of {new.batch_id}")
            base = receipt.last_seq
            given.append((new, expected))
            for sent, original in given:
                again = journal.append(claim, sent, original.first_seq - 1)
                replay = msgspec.structs.replace(original, replayed=True)
                ctx.equal(again, replay, f"the receipt of {sent.batch_id} sent again after {new.batch_id}")
            page = journal.read_after(key, receipt.first_seq - 1, 10)
            same_events(ctx, page.events, as_read((new,), receipt.first_seq), f"what stands at the receipt of {name}")


@rule(
    "APPEND-3",
    level=1,
    hint="a batch is looked up under the epoch of the claim that sends it",
    kills=("retry-of-others-refused", "replayed-receipt-differs"),
)
def retry_by_others(ctx: Context) -> None:
    """A new owner that sends the old one's batch learns that it landed, and where; or commits it, where it had not."""
    key = thread()
    old = Writer(ctx.journal, key, "old")
    old.fill(3, events=2)
    new = Writer(ctx.open_journal(), key, "new")
    for place, original in enumerate(old.receipts):
        for base in (original.first_seq - 1, new.base):
            receipt = answer_of(new.journal, new.claim, old.batches[place], base)
            ctx.equal(receipt, msgspec.structs.replace(original, replayed=True), f"batch {place} from the new owner")
    lost = batch("lost", 2)
    receipt = new.append(lost)
    ctx.equal((receipt.epoch, receipt.replayed), (new.claim.epoch, False), "a batch that had not landed")
    error = ctx.raises(WriterFenced, lambda: old.journal.append(old.claim, lost, 6), "the old owner's late attempt")
    ctx.equal(error.committed, msgspec.structs.replace(receipt, replayed=True), "the receipt that it gets")
    ctx.equal(head_of(ctx, old.journal, key).last_seq, 8, "the last seq at the end")


@rule(
    "APPEND-4",
    level=1,
    hint="the base is not compared, or only that it is not behind the head",
    kills=("base-ahead-accepted", "base-ignored"),
)
def none_behind_a_failed_one(ctx: Context) -> None:
    """Batches of one claim commit in the order of their bases: behind one that failed, later ones do not commit."""
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    writer.fill(2)
    before = head_of(ctx, journal, key)
    first = Batch("failed", (event("new"), event("b0.0")))
    ctx.raises(BatchConflict, lambda: journal.append(writer.claim, first, 2), "a batch that overlaps")
    error = ctx.raises(JournalRegressed, lambda: journal.append(writer.claim, batch("next"), 4), "the batch behind it")
    ctx.equal((error.last_seq, error.seen_seq), (2, 4), "what JournalRegressed carries")
    ctx.raises(HeadConflict, lambda: journal.append(writer.claim, batch("old"), 1), "a batch on an old base")
    ctx.raises(HeadConflict, lambda: journal.append(writer.claim, batch("oldest"), 0), "a batch on base 0")
    same_head(ctx, journal, before, key, "refused batches")
    requests = [
        AppendRequest(writer.claim, first, 2),
        AppendRequest(writer.claim, batch("next"), 4),
        AppendRequest(writer.claim, batch("after"), 5),
    ]
    kinds = [type(outcome) for outcome in journal.append_many(requests)]
    ctx.equal(kinds, [BatchConflict, JournalRegressed, JournalRegressed], "the same in one call")
    same_head(ctx, journal, before, key, "refused batches in one call")


def _outcome(outcome: Receipt | StatebookError) -> object:
    """What must be equal of two answers, whichever journal gave them."""
    if isinstance(outcome, Receipt):
        return (outcome.batch_id, outcome.first_seq, outcome.last_seq, outcome.replayed, outcome.digest, outcome.epoch)
    committed = outcome.committed if isinstance(outcome, WriterFenced) else None
    return type(outcome).__name__, None if committed is None else _outcome(committed)


@rule(
    "APPEND-5.same",
    level=1,
    hint="the requests share one transaction, so that one refusal undoes or stops the others",
    kills=("many-all-or-nothing", "many-stops", "many-loses-order"),
)
def many(ctx: Context) -> None:
    """append_many gives each request its own answer, the same as one by one; a refused one harms no other."""
    answers = []
    heads = []
    for together in (True, False):
        journal = ctx.open_journal()
        requests: list[AppendRequest] = []
        keys = [thread(f"{together} {n}") for n in range(12)]
        for number, key in enumerate(keys):
            writer = Writer(journal, key)
            writer.fill(2, prefix=f"{number}-")
            if number == 3:
                journal.claim(key, "newer")
            bad = Batch("bad", (event("ok"), event(f"{number}-0.0")))
            behind = 0 if number == 5 else 9 if number == 6 else writer.base
            requests.append(AppendRequest(writer.claim, bad if number == 4 else batch("new", 2), behind))
            if number % 2:
                requests.append(AppendRequest(writer.claim, writer.batches[0], 0))
                requests.append(AppendRequest(writer.claim, batch("more", 3), writer.base + 2))
        requests.sort(key=lambda request: request.base_seq)
        if together:
            outcomes = journal.append_many(requests)
        else:
            outcomes = tuple(answer_of(journal, r.claim, r.batch, r.base_seq) for r in requests)
        ctx.equal(len(outcomes), len(requests), "how many answers there are")
        answers.append([_outcome(outcome) for outcome in outcomes])
        heads.append([(head_of(ctx, journal, key).last_seq, head_of(ctx, journal, key).chain) for key in keys])
        for key in keys:
            ctx.equal(journal.verify(key, deep=True).findings, (), f"findings in {key.thread_id}")
    for place, pair in enumerate(zip(*answers, strict=True)):
        ctx.equal(pair[0], pair[1], f"answer {place} of one call, and one by one")
    ctx.equal(heads[0], heads[1], "last seqs and chains after one call, and one by one")
    kinds = {answer[0] for answer in answers[0] if isinstance(answer, tuple)}
    wanted = {"WriterFenced", "BatchConflict", "HeadConflict", "JournalRegressed"}
    ctx.check(wanted <= kinds, f"the call was to meet {wanted}, and met {kinds}")


@rule(
    "APPEND-5.limits",
    level=1,
    hint="the limit is checked request by request, when the first ones are committed already",
    kills=("many-limit-ignored", "many-loses-order"),
)
def many_limits(ctx: Context) -> None:
    """One call takes up to its limit, of one thread in order; no requests are no answers; one more is refused whole."""
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    limit = ctx.capabilities.limits.group_batches_max
    count = min(limit, 200)
    ctx.equal(journal.append_many([]), (), "the answers to no request")
    requests = [AppendRequest(writer.claim, batch(f"b{n}", 2), n * 2) for n in range(count)]
    outcomes = journal.append_many(requests)
    places = [(o.first_seq, o.last_seq) if isinstance(o, Receipt) else o for o in outcomes]
    ctx.equal(places, [(n * 2 + 1, n * 2 + 2) for n in range(count)], "the receipts of one call on one thread")
    same_events(ctx, read_all(ctx, journal, key), as_read(tuple(r.batch for r in requests)), "what the journal holds")
    before = head_of(ctx, journal, key)
    if limit <= 20_000:
        new = batch("over")
        over = [AppendRequest(writer.claim, new, before.last_seq)] * (limit + 1)
        error = ctx.raises(LimitExceeded, lambda: journal.append_many(over), f"a call with {limit + 1} requests")
        ctx.equal((error.limit, error.maximum), ("group_batches_max", limit), "the limit that the error names")
        same_head(ctx, journal, before, key, "a call over the limit")
    again = journal.append_many(requests[-3:])
    ctx.equal([getattr(o, "replayed", o) for o in again], [True, True, True], "whether sent again they are replays")


@rule(
    "APPEND-6",
    level=1,
    hint="the checkpoint is noted in a second write, or the first of a batch counts",
    kills=("checkpoint-stays", "checkpoint-first-of-batch"),
)
def checkpoint(ctx: Context) -> None:
    """A batch with a checkpoint moves `checkpoint_seq` to its last one in the same commit; others and retries do not.

    Cases: 11.
    """
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    moved: list[int | None] = []
    generations = [head_of(ctx, journal, key).generation]
    three = (event("x", kind="state/initialized"), event("y", kind=CHECKPOINT), event("z"))
    for new in (batch("plain", 2), batch("one", 3, checkpoint=1), batch("plain again"), Batch("two", three)):
        writer.append(new)
        head = head_of(ctx, ctx.open_journal(), key)
        moved.append(head.checkpoint_seq)
        generations.append(head.generation)
    ctx.equal(moved, [None, 4, 4, 8], "checkpoint_seq after each batch")
    ctx.equal(generations, list(range(generations[0], generations[0] + 5)), "generations: one write a batch")
    journal.append(writer.claim, writer.batches[1], 2)
    ctx.raises(HeadConflict, lambda: journal.append(writer.claim, batch("late", checkpoint=0), 0), "a late checkpoint")
    head = head_of(ctx, journal, key)
    ctx.equal(head.checkpoint_seq, 8, "checkpoint_seq after a retry and a refused batch")
    ctx.equal(Writer(journal, key, "next").claim.checkpoint_seq, 8, "the checkpoint that the next claim tells")
    there = journal.read_after(key, 7, 1).events[0]
    ctx.equal((there.event_id, there.type), ("y", CHECKPOINT), "the event at checkpoint_seq")
