"""Level 2: maintenance, refusals and closing beside writers: nobody is harmed, nothing hangs (LIFE-4, ERR-4, ERR-5)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from statebook.errors import (
    BatchConflict,
    HeadConflict,
    InvalidKey,
    JournalRegressed,
    OutcomeUnknown,
    StatebookError,
    StoreClosed,
    Trimmed,
    WriterFenced,
)
from statebook.journal import ThreadJournalStore
from statebook.model import Receipt
from statebook_conformance.context import Context
from statebook_conformance.journal_clients import END, JournalClient, fine_switching, judge, make
from statebook_conformance.rule import rule
from statebook_conformance.rules.journal_concurrent import randomness
from statebook_conformance.writing import thread

_BATCHES: Final = 60
_LOOPS_MAX: Final = 400
_APPENDS_MAX: Final = 500
_CALL_S_MAX: Final = 10.0
"""How long a call may take while its handle is being closed, in seconds."""


class _Yard:
    """One journal under maintenance: the clients, where its exporter may be, and whether the writers are done."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.recorder = ctx.recorder()
        self.done = threading.Event()
        self.reached = 0

    def client(self, name: str, journal: ThreadJournalStore) -> JournalClient:
        return JournalClient(journal, self.recorder, name, thread())

    def loop(self, step: Callable[[random.Random], object], name: str) -> None:
        """Repeat a step until the writers are done, at most `_LOOPS_MAX` times."""
        random_ = randomness(self.ctx, name)
        for _ in range(_LOOPS_MAX):
            if self.done.is_set():
                return
            step(random_)
            time.sleep(random_.random() * 0.004)


@rule(
    "LIFE-4.all-at-once",
    level=2,
    hint="a reader or verifier takes a trim or a collection that came between its two reads for damage",
    kills=("verify-false-alarm", "trim-taken-for-damage", "maintenance-claims"),
    floor={"trims": 5, "collections": 5, "verifications": 5, "reads": 30, "takeovers": 2},
)
def all_at_once(ctx: Context) -> None:
    """Writers, a reader, an exporter, a trimmer, a collector and a verifier at once: no loss, no false alarm.

    What was acknowledged from `first_seq` on is there; no trim passes the exporter's cursor; maintenance fences nobody.
    """
    yard = _Yard(ctx)
    yard.client("first", ctx.journal).held()
    exporter = ctx.open_journal()
    cursor = [exporter.open_cursor(thread(), "exporter")]
    trimmer = yard.client("trimmer", ctx.open_journal())
    reader = yard.client("reader", ctx.open_journal())
    keeper = ctx.open_journal()

    def export(random_: random.Random) -> None:
        page = exporter.read_after(thread(), cursor[0].acked_seq, random_.choice((1, 5, 20)))
        if page.events:
            yard.reached = page.events[-1].seq
            cursor[0] = exporter.advance_cursor(cursor[0], page.events[-1].seq)
            ctx.saw("exported events", len(page.events))

    def trim(random_: random.Random) -> None:
        passed = trimmer.trim(random_.choice((cursor[0].acked_seq, 10_000)))
        ctx.saw("trims")
        reached = yard.reached
        ctx.check(passed.first_seq <= reached + 1, f"a trim went to {passed.first_seq}, a cursor to {reached} at most")

    def read(random_: random.Random) -> None:
        head = reader.head()
        first = 1 if head is None else head.first_seq
        reader.read(first - 1, random_.choice((1, 7, 1_000)))

    def collect(_: random.Random) -> None:
        keeper.collect(thread())
        ctx.saw("collections")

    def verify(random_: random.Random) -> None:
        report = ctx.journal.verify(thread(), deep=random_.random() < 0.5)
        ctx.equal(report.findings, (), "what a verification found beside writers and trims")
        ctx.saw("verifications")

    def write() -> None:
        try:
            _two_writers(ctx, yard)
        finally:
            yard.done.set()

    steps = {"export": export, "trim": trim, "read": read, "collect": collect, "verify": verify}
    with fine_switching():
        calls: list[Callable[[], None]] = [write, *(partial(yard.loop, step, name) for name, step in steps.items())]
        ctx.threads(calls)
    closer = yard.client("closer", ctx.journal)
    claim = closer.held()
    closer.append(claim, make(END), claim.last_seq)
    closer.final(ctx)
    ctx.equal(ctx.journal.verify(thread(), deep=True).findings, (), "findings of a deep verification at the end")
    judge(ctx, yard.recorder)


def _two_writers(ctx: Context, yard: _Yard) -> None:
    """Two writers, one after the other for a while each, so that nobody is fenced but by the other's claim."""
    clients = [yard.client(f"w{number}", ctx.open_journal()) for number in range(2)]
    for turn in range(4 * ctx.effort):
        client = clients[turn % 2]
        claim = client.held()
        base = claim.last_seq
        for number in range(_BATCHES // 4):
            answer = client.append(claim, make(f"{client.name}-{turn}-{number}", 1 + number % 3), base)
            if not isinstance(answer, Receipt):
                ctx.fail(f"beside maintenance, an append through the current claim was answered {answer!r}")
            base = answer.last_seq
            time.sleep(0.001)


@rule(
    "ERR-4.refused-beside-good",
    level=2,
    hint="a refused call leaves its lock, transaction or connection behind, and the next ones wait for it",
    kills=("refusal-keeps-lock",),
    floor={"refusals": 100},
)
def refused_beside_good(ctx: Context) -> None:
    """Calls that are refused hold up nobody: beside them, and right behind them, good calls on one handle succeed.

    Four threads with calls that are refused for five reasons, four with appends, all on one handle. Cases: 9, 38.
    """
    journal, recorder = ctx.journal, ctx.recorder()
    old = journal.claim(thread("shared"), "old")
    claim = journal.claim(thread("shared"), "new")
    journal.append(claim, make("there", 3), 0)
    refusals: tuple[tuple[type[Exception], Callable[[], object]], ...] = (
        (WriterFenced, lambda: journal.append(old, make("x"), 3)),
        (HeadConflict, lambda: journal.append(claim, make("x"), 2)),
        (BatchConflict, lambda: journal.append(claim, make("there", 2), 3)),
        (JournalRegressed, lambda: journal.append(claim, make("x"), 30)),
        (InvalidKey, lambda: journal.claim(thread("shared"), "")),
        (JournalRegressed, lambda: journal.read_after(thread("shared"), 30)),
    )

    def refuse() -> None:
        for turn in range(30 * ctx.effort):
            error, call = refusals[turn % len(refusals)]
            ctx.raises(error, call, "a call that must be refused")
            ctx.saw("refusals")

    def write(number: int) -> None:
        client = JournalClient(journal, recorder, f"w{number}", thread(f"t{number}"))
        own = client.held()
        base = own.last_seq
        for place in range(20 * ctx.effort):
            answer = client.append(own, make(f"{client.name}-{place}"), base)
            if not isinstance(answer, Receipt):
                ctx.fail(f"an append beside refused calls was answered {answer!r}")
            base = answer.last_seq

    with fine_switching():
        calls: list[Callable[[], None]] = [*([refuse] * 4), *(partial(write, number) for number in range(4))]
        ctx.threads(calls)
    ctx.equal(journal.append(claim, make("next"), 3).first_seq, 4, "the seq of the first append after the refusals")
    ctx.equal(ctx.open_journal().claim(thread("shared"), "newest").last_seq, 4, "the last seq that a new handle claims")
    for number in range(4):
        client = JournalClient(ctx.journal, recorder, "reader", thread(f"t{number}"))
        ctx.equal(len(client.final(ctx)), 20 * ctx.effort, "how many events of a writer beside refused calls are there")
    judge(ctx, recorder)


@rule(
    "ERR-5.closing",
    level=2,
    hint="close() takes the connection away under a call, or waits for ever for a call that waits for it",
    kills=("close-breaks-calls", "close-drops-buffered"),
    floor={"calls that met a close": 8, "acknowledged": 20},
)
def closing(ctx: Context) -> None:
    """A call on a handle that is being closed is answered, or is StoreClosed; it never hangs; other handles go on.

    What was acknowledged on the handle before is there. A write that was under way may be OutcomeUnknown.
    """
    recorder = ctx.recorder()
    beside = JournalClient(ctx.journal, recorder, "beside", thread("beside"))
    claim = beside.held()
    base = claim.last_seq
    with fine_switching():
        for turn in range(5 * ctx.effort):
            handle = ctx.open_journal()
            clients = [
                JournalClient(handle, recorder, f"c{turn}-{number}", thread(f"t{turn}-{number}")) for number in range(4)
            ]
            acked = threading.Semaphore(0)
            calls = [partial(_until_closed, client, acked) for client in clients]
            close = partial(_close, handle, acked, ctx.random.randint(4, 20))
            answers = ctx.threads([*calls, close], timeout_s=_CALL_S_MAX)
            ctx.saw("calls that met a close", sum(answer == "closed" for answer in answers))
            answer = beside.append(claim, make(f"beside-{turn}"), base)
            if not isinstance(answer, Receipt):
                ctx.fail(f"after another handle was closed, an append was answered {answer!r}")
            base = answer.last_seq
            ctx.raises(StoreClosed, partial(handle.head, thread("beside")), "head() on a handle that was closed")
            for client in clients:
                later = JournalClient(ctx.journal, recorder, f"later-{client.name}", client.key)
                ctx.saw("acknowledged", len(later.final(ctx)))
    beside.final(ctx)
    judge(ctx, recorder)


def _close(handle: ThreadJournalStore, acked: threading.Semaphore, count: int) -> str:
    """Close a handle when so many appends were acknowledged on it, while others are under way."""
    for _ in range(count):
        acked.acquire(timeout=1.0)
    handle.close()
    handle.close()
    return "closing"


def _until_closed(client: JournalClient, acked: threading.Semaphore) -> str:
    """Claim, append and read until the handle is closed."""
    try:
        claim = client.claim()
    except OutcomeUnknown:
        return "unknown"
    if isinstance(claim, StatebookError):
        return "closed"
    base = claim.last_seq
    for number in range(_APPENDS_MAX):
        answer = client.append(claim, make(f"{client.name}-{number}"), base)
        if isinstance(answer, Receipt):
            acked.release()
            base = answer.last_seq
            page = client.read(max(0, base - 2), 10) if number % 4 == 3 else None
            if isinstance(page, StoreClosed):
                return "closed"
            if isinstance(page, Trimmed):
                raise page
        elif isinstance(answer, StoreClosed):
            return "closed"
        else:
            return type(answer).__name__
    return "open"
