"""Level 1: reading pages (READ)."""

from __future__ import annotations

from functools import partial

from statebook.errors import JournalRegressed, Trimmed
from statebook.model import Batch, Event, EventPage, RecordedEvent
from statebook_conformance.adversary import Adversary
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.writing import (
    CHECKPOINT,
    Writer,
    as_read,
    batch,
    event,
    head_of,
    read_all,
    same_events,
    thread,
)


@rule(
    "READ-1.pages",
    level=1,
    hint="the limit counts batches, has_more is guessed from a full page, or the seq itself is read again",
    kills=("read-limit-ignored", "has-more-wrong", "page-edge-repeated", "page-from-other-end"),
)
def pages(ctx: Context) -> None:
    """A page holds the events right behind its seq, ascending, at most the limit, and says whether there are more.

    Cases: 14.
    """
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    for place, size in enumerate((1, 2, 1, 5, 1, 1, 3)):
        writer.append(batch(f"b{place}", size))
    expected = as_read(tuple(writer.batches))
    last = len(expected)
    reader = ctx.open_journal()
    for after in range(last + 1):
        for limit in (1, 2, 3, last - 1, last, last + 1, 10_000):
            page = reader.read_after(key, after, limit)
            same_events(ctx, page.events, expected[after : after + limit], f"the page of {limit} behind {after}")
            ctx.equal(page.has_more, after + limit < last, f"has_more of the page of {limit} behind {after}")
            ctx.equal(page.last_seq, last, f"last_seq of the page of {limit} behind {after}")
    same_events(ctx, reader.read_after(key, 0).events, expected, "the page without a limit")


@rule(
    "READ-1.arguments",
    level=1,
    hint="-1, 0 or None mean 'all' to the engine, or a negative seq is read as an empty page",
    kills=("negative-seq-accepted", "zero-limit-is-all"),
)
def arguments(ctx: Context) -> None:
    """A limit outside 1 to 10,000 or a seq that is no integer of at least 0 is ValueError; never written is empty.

    Cases: 14.
    """
    journal, key, absent = ctx.journal, thread(), thread("absent")
    Writer(journal, key).fill(3)
    limits: tuple[object, ...] = (0, -1, 10_001, 1 << 62, True, None, "10", 2.0)
    seqs: tuple[object, ...] = (-1, -10, True, None, "0", 0.0)
    for where in (key, absent):
        for limit in limits:
            ctx.raises(ValueError, partial(journal.read_after, where, 0, limit), f"a limit of {limit!r}")  # type: ignore[arg-type]
        for seq in seqs:
            ctx.raises(ValueError, partial(journal.read_after, where, seq, 10), f"a seq of {seq!r}")  # type: ignore[arg-type]
    for limit in (1, 10_000):
        ctx.equal(
            journal.read_after(absent, 0, limit),
            EventPage((), has_more=False, last_seq=0),
            f"a page of {limit} where nothing was written",
        )
    ctx.equal(journal.head(absent), None, "the head where nothing was written")
    journal.claim(absent, "writer")
    ctx.equal(journal.read_after(absent, 0), EventPage((), has_more=False, last_seq=0), "a page of an empty journal")


@rule(
    "READ-2.bytes",
    level=1,
    hint="payloads are parsed and written again, or optional fields are dropped",
    kills=("payload-reformatted", "event-fields-dropped"),
)
def bytes_equal(ctx: Context) -> None:
    """Events come back as they were appended: payloads byte by byte, every field, through any handle."""
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    payloads = (
        b'{"b":1,"a":2}',
        b'{"a":1, "a":2}',
        b"[1.0,1.50,1e3,-0.0,9007199254740993,1000000000000000000000000000000]",
        b'"\\u0000\\u00e9\xc3\xa9\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9"',
        b'{"":{"":[[],{},"",null,true,false]}}',
        b'"' + "☃".encode() * 5_000 + b'"',
        b"0",
    )
    for place, payload in enumerate(payloads):
        writer.append(Batch(f"plain {place}", (event(f"plain {place}", payload),)))
    full = event("full", b'{"x":1}', at=(1 << 53) - 1, kind="kind ☃")
    replaced = Event(
        event_id="é", type="t", occurred_at=0, payload=b"null", run_id="run é", turn_id="turn", required=True
    )
    writer.append(Batch("full", (full, replaced)))
    expected = as_read(tuple(writer.batches))
    for reader in (journal, ctx.open_journal()):
        same_events(ctx, read_all(ctx, reader, key), expected, "events as they were appended")
        same_events(ctx, read_all(ctx, reader, key, limit=1), expected, "events one by one")


@rule(
    "READ-2.poller",
    level=1,
    hint="a reader keeps a snapshot or a cached head, or an open page holds the writer up",
    kills=("reader-keeps-snapshot",),
)
def poller(ctx: Context) -> None:
    """A reader that goes on behind its last seq sees each event once, at the next call; a page holds nobody up.

    Cases: 13, 15.
    """
    key = thread()
    writer = Writer(ctx.journal, key)
    reader = ctx.open_journal()
    seen: list[RecordedEvent] = []
    held: list[EventPage] = []
    for turn in range(70):
        writer.fill(1, events=turn % 3 + 1)
        page = reader.read_after(key, len(seen), 2)
        held.append(page)
        seen += page.events
        ctx.equal(page.last_seq, writer.base, f"the last seq that the reader sees in turn {turn}")
        ctx.equal(page.has_more, len(seen) < writer.base, f"has_more in turn {turn}")
    seen += read_all(ctx, reader, key, len(seen))
    same_events(ctx, tuple(seen), as_read(tuple(writer.batches)), "everything that the reader saw")
    ctx.equal(len({page.last_seq for page in held}), len(held), "how many different ends the held pages show")


@rule(
    "READ-3",
    level=1,
    hint="a position that is not there reads as an empty page",
    kills=("regressed-reads-empty", "trimmed-reads-on"),
)
def positions(ctx: Context) -> None:
    """Behind the end is JournalRegressed, before the first event that is left is Trimmed; nothing moves.

    Cases: 50.
    """
    journal, key, absent = ctx.journal, thread(), thread("absent")
    for seq in (1, 5):
        error = ctx.raises(JournalRegressed, partial(journal.read_after, absent, seq), f"seq {seq} of no journal")
        ctx.equal((error.last_seq, error.seen_seq), (0, seq), "what JournalRegressed carries")
    writer = Writer(journal, key)
    writer.fill(10)
    for seq in (11, 1_000):
        error = ctx.raises(JournalRegressed, partial(journal.read_after, key, seq), f"seq {seq} of 10")
        ctx.equal((error.last_seq, error.seen_seq), (10, seq), "what JournalRegressed carries")
    first = journal.trim(key, 5).first_seq
    ctx.equal(first, 5, "first_seq after a trim before 5")
    for reader in (journal, ctx.open_journal()):
        for seq in (0, 1, 3):
            trimmed = ctx.raises(Trimmed, partial(reader.read_after, key, seq), f"seq {seq} after the trim")
            ctx.equal(trimmed.first_seq, 5, "the first seq that Trimmed carries")
        expected = as_read(tuple(writer.batches))
        same_events(ctx, reader.read_after(key, 4).events, expected[4:], "events behind seq 4")
        ctx.equal(reader.read_after(key, 10).events, (), "events behind the last one")
    journal.trim(key, 100)
    ctx.equal(head_of(ctx, journal, key).first_seq, 11, "first_seq where nothing is left")
    ctx.equal(journal.read_after(key, 10), EventPage((), has_more=False, last_seq=10), "the page where nothing is left")
    ctx.raises(Trimmed, lambda: journal.read_after(key, 9), "seq 9 where nothing is left")
    journal.delete(key)
    ctx.raises(JournalRegressed, lambda: journal.read_after(key, 10), "seq 10 of a deleted journal")
    ctx.equal(journal.read_after(key, 0), EventPage((), has_more=False, last_seq=0), "seq 0 of a deleted journal")


@rule(
    "READ-4",
    level=1,
    hint="the events behind the checkpoint are found by reading from the start",
    kills=("reads-from-start", "checkpoint-stays"),
)
def from_checkpoint(ctx: Context) -> None:
    """The head names the last checkpoint; from there a reader gets it and what follows, at the price of what follows.

    The price is seen through core's journal over the backend's storage: blobs read, however long the journal is.
    """
    payload = b'"' + b"x" * 30_000 + b'"'
    costs = []
    for length in (10, 50):
        adversary = Adversary(ctx.open_atomic())
        key = thread(f"length {length}")
        writer = Writer(ctx.backend.journal_over(adversary.client()), key)
        writer.fill(length, payload=payload)
        writer.append(batch("checkpoint", 2, checkpoint=1, payload=payload))
        writer.fill(4, prefix="after", payload=payload)
        reader = ctx.backend.journal_over(adversary.client())
        seq = head_of(ctx, reader, key).checkpoint_seq
        ctx.equal(seq, length + 2, "checkpoint_seq")
        adversary.blob_reads = 0
        events = read_all(ctx, reader, key, (seq or 1) - 1)
        costs.append(adversary.blob_reads)
        ctx.equal([e.seq for e in events], list(range(length + 2, length + 7)), "what is read from the checkpoint")
        ctx.equal(events[0].type, CHECKPOINT, "the first event from the checkpoint")
    ctx.check(
        costs[1] <= costs[0] + 1,
        f"blobs read behind the checkpoint: {costs[0]} of a short journal, {costs[1]} of a long",
    )
    own = Writer(ctx.journal, thread("own"))
    own.fill(30, events=3)
    own.append(batch("checkpoint", 2, checkpoint=0))
    own.fill(2, prefix="after")
    claim = ctx.open_journal().claim(own.key, "next")
    found = read_all(ctx, ctx.journal, own.key, (claim.checkpoint_seq or 1) - 1)
    ctx.equal([e.seq for e in found], [91, 92, 93, 94], "what the backend's own journal gives from the checkpoint")
