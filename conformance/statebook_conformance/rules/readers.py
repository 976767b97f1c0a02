"""Level 2: readers beside writers: nothing is missed, nothing is stale, nobody waits for a reader (READ, CLAIM-7)."""

from __future__ import annotations

import time
from functools import partial

from statebook.capabilities import Sharing
from statebook.errors import StatebookError
from statebook.keys import ThreadScope
from statebook.model import EventPage, WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.journal_clients import JournalClient, judge, make, poll, run_until_end
from statebook_conformance.rule import rule
from statebook_conformance.rules.journal_concurrent import (
    go,
    pause_within_a_step,
    randomness,
    results,
    start,
    stoppable,
    whole,
)
from statebook_conformance.walking import all_threads
from statebook_conformance.writing import thread

_READS_S_MAX = 5.0
"""How long a handful of reads may take beside a writer that stands still, in seconds."""

_WRITES_S_MAX = 10.0
"""How long a handful of writes may take beside a reader that stands still, in seconds."""


@rule(
    "READ-2.pollers",
    level=2,
    hint="a seq is given before its commit, so that a later one can be seen first; the poller then never sees it",
    kills=("seq-visible-out-of-order", "late-commit-missed", "batch-in-parts"),
    floor={"reads": 150, "overlapping operations": 50, "takeovers": 5},
)
def pollers(ctx: Context) -> None:
    """A poller that reads behind the last seq it has seen sees each event once, in order, and no part of a batch.

    Two writers that take turns, six pollers with pages of all lengths; each page agrees with its own `last_seq`.
    Case: 13.
    """
    recorder = ctx.recorder()
    stores = [ctx.journal, *(ctx.open_journal() for _ in range(3))]
    closer = JournalClient(ctx.journal, recorder, "closer", thread())
    readers = [JournalClient(stores[number % 4], recorder, f"r{number}", thread()) for number in range(6)]

    def write(number: int) -> None:
        client = JournalClient(stores[number], recorder, f"w{number}", thread())
        for turn in range(20 * ctx.effort):
            claim = client.held()
            base = claim.last_seq
            for place in range(4):
                answer = client.append(claim, make(f"{client.name}-{turn}-{place}", 1 + place % 3), base)
                if isinstance(answer, StatebookError):
                    break
                base = answer.last_seq
            time.sleep(0.001)

    seen = run_until_end(
        ctx,
        closer,
        [partial(write, number) for number in range(2)],
        [partial(poll, reader, randomness(ctx, reader.name)) for reader in readers],
    )
    final = closer.final(ctx)
    judge(ctx, recorder)
    for reader, view in zip(readers, seen, strict=True):
        whole(ctx, view, final)
        ctx.check(not reader.odd, f"{len(reader.odd)} pages disagree with their own end: {reader.odd[:1]}")


@rule(
    "READ-2.paused-reader",
    level=2,
    hint="a page is a cursor or a transaction that stays open until the next page is asked for",
    kills=("page-holds-lock",),
    floor={"pages read on": 5},
)
def paused_reader(ctx: Context) -> None:
    """A reader that has read one page and pauses blocks no writer, of this journal or another; it reads on afterwards.

    Pages of events and of threads, each with more behind it. Case: 15.
    """
    reader, writer = ctx.open_journal(), ctx.open_journal()
    for number in range(5):
        writer.claim(thread(f"t{number}"), "writer")
    claim = writer.claim(thread(), "writer")
    base = 0
    for number in range(6):
        base = writer.append(claim, make(f"b{number}", 2), base).last_seq
    scope = ThreadScope("user")
    events, threads = reader.read_after(thread(), 0, 3), reader.list_threads(scope, limit=2)
    ctx.equal((events.has_more, threads.has_more), (True, True), "has_more of pages with more behind them")

    def write() -> WriterClaim:
        at = base
        for number in range(10):
            at = writer.append(claim, make(f"late{number}", 2), at).last_seq
        newer = ctx.open_journal().claim(thread(), "other")
        ctx.open_journal().append(newer, make("other"), newer.last_seq)
        for number in range(5, 10):
            ctx.open_journal().claim(thread(f"t{number}"), "writer")
        return newer

    started = time.monotonic()
    (newer,) = ctx.threads([write], timeout_s=_WRITES_S_MAX)
    took = time.monotonic() - started
    ctx.check(took < _WRITES_S_MAX, f"writes took {took:.1f} s beside a reader that stood still")
    seen = [(event.seq, event.event_id) for event in events.events]
    while events.has_more:
        events = reader.read_after(thread(), seen[-1][0], 3)
        seen += [(event.seq, event.event_id) for event in events.events]
        ctx.saw("pages read on")
    ctx.equal([seq for seq, _ in seen], list(range(1, newer.last_seq + 2)), "the seqs that a paused reader saw in all")
    listed = [key.thread_id for key in threads.threads]
    while threads.has_more:
        threads = reader.list_threads(scope, after=threads.threads[-1], limit=2)
        listed += [key.thread_id for key in threads.threads]
        ctx.saw("pages read on")
    before = {"thread", *(f"t{number}" for number in range(5))}
    ctx.check(set(listed) >= before, f"a paused listing lost threads that were there before: {listed}")
    ctx.equal(len(set(listed)), len(listed), "how many different threads a paused listing gave")


@rule(
    "CLAIM-7.beside-a-paused-writer",
    level=2,
    needs=(Sharing.HOST,),
    hint="reads take the lock that a commit holds, and wait for whoever holds it",
    kills=("reads-wait-for-writer",),
    floor={"reads while it stood": 20},
    timeout_s=90.0,
)
def beside_a_paused_writer(ctx: Context) -> None:
    """Nothing blocks a reader: heads, pages and listings come back while a writer stands still within its append.

    It runs in another process and is stopped by SIGSTOP at a random moment, with whatever locks it holds then.
    """
    stoppable()
    (child,) = start(ctx, "stepping", 1)
    go((child,))
    journal, writer = ctx.open_journal(), ctx.open_journal()

    def look() -> int:
        head = journal.head(thread())
        page = journal.read_after(thread(), max(0, (0 if head is None else head.last_seq) - 5), 10)
        listed = journal.list_threads(ThreadScope("user"))
        ctx.equal([key.thread_id for key in listed.threads], ["thread"], "the threads that are listed")
        ctx.check(head is not None and page.last_seq >= head.last_seq, "a page ends before the head that was read")
        return page.last_seq

    for turn in range(12 * ctx.effort):
        child.wait_for("claimed")
        pause_within_a_step(ctx, child, ctx.random.randint(1, 6))
        try:
            first, second = (ctx.threads([look], timeout_s=_READS_S_MAX)[0] for _ in range(2))
        finally:
            child.resume()
        ctx.check(second >= first, f"while the writer stood the journal went back from {first} to {second}")
        ctx.saw("reads while it stood", 2)
        writer.claim(thread(), "writer")
        child.wait_for("stopped")
        child.tell({"again": turn + 1 < 12 * ctx.effort})
    results((child,))


@rule(
    "READ-2.other-handles",
    level=2,
    hint="a read stays in the snapshot of its connection's first read, or answers from a cache of this handle",
    kills=("frozen-snapshot", "cached-head", "cached-listing"),
    floor={"looks": 60},
)
def other_handles(ctx: Context) -> None:
    """What one handle has committed, every other one sees at its next call: events, heads, claims, listings.

    The others have read before, through the same calls. Cases: 33, 35.
    """
    recorder = ctx.recorder()
    writers = [JournalClient(ctx.open_journal(), recorder, f"w{n}", thread()) for n in range(2)]
    readers = [JournalClient(ctx.open_journal(), recorder, f"r{n}", thread()) for n in range(3)]
    names: set[str] = set()
    claim = writers[0].held()
    names.add("thread")
    base = 0
    for turn in range(30 * ctx.effort):
        for reader in readers:
            page, head = reader.read(max(0, base - 2), 1_000), reader.head()
            ctx.check(isinstance(page, EventPage) and page.last_seq == base, f"a page ends before seq {base}: {page!r}")
            ctx.equal(None if head is None else head.last_seq, base, "the last seq that another handle sees")
            ctx.equal(None if head is None else head.claim, claim.info, "the claim that another handle sees")
            listed = {key.thread_id for key in all_threads(reader.journal, ThreadScope("user"))}
            ctx.equal(listed, names, "the threads that another handle lists")
            ctx.saw("looks")
        writer = writers[turn % 2]
        if turn % 3 == 2:
            claim = writer.held()
        base = _appended(ctx, writer, claim, turn, base)
        if turn % 5 == 4:
            writer.journal.claim(thread(f"new-{turn}"), "writer")
            names.add(f"new-{turn}")
        if turn % 10 == 9:
            writer.journal.delete(thread(f"new-{turn}"))
            names.remove(f"new-{turn}")
    writers[0].final(ctx)
    judge(ctx, recorder)


def _appended(ctx: Context, writer: JournalClient, claim: WriterClaim, turn: int, base: int) -> int:
    answer = writer.append(claim, make(f"b{turn}", 1 + turn % 3), base)
    if isinstance(answer, StatebookError):
        ctx.fail(f"an append through the current claim was answered {answer!r}")
    return answer.last_seq


@rule(
    "READ-2.other-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="a connection's first snapshot, or a cache of the process, outlives a commit of another process",
    kills=("frozen-snapshot-on-files", "cached-listing-on-files"),
    floor={"looks": 40},
)
def other_processes(ctx: Context) -> None:
    """What one process has committed, others that have read before see at their next call. Cases: 33, 35."""
    children = start(ctx, "looking", 2)
    go(children)
    journal = ctx.journal
    claim = journal.claim(thread(), "writer")
    names, base = ["thread"], 0
    for turn in range(20 * ctx.effort):
        batch = make(f"b{turn}", 1 + turn % 3)
        receipt = journal.append(claim, batch, base)
        if turn % 4 == 3:
            names.append(f"new-{turn:03}")
            journal.claim(thread(names[-1]), "writer")
        for child in children:
            child.tell({"after": base})
        for child in children:
            seen = child.wait_for("seen")
            ctx.equal(seen["last_seq"], receipt.last_seq, "the last seq that another process sees")
            expected = [[receipt.first_seq + place, event.event_id] for place, event in enumerate(batch.events)]
            ctx.equal(seen["events"], expected, "the events that another process reads")
            ctx.equal(seen["threads"], sorted(names), "the threads that another process lists")
            ctx.saw("looks")
        base = receipt.last_seq
    for child in children:
        child.tell({"stop": True})
    results(children)
