"""Level 4: each call keeps to a budget of round trips, bytes, syncs and connections (HEAD-5, READ-4, STATE-7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from statebook.keys import SessionKey, StateKey, ThreadScope
from statebook.model import Receipt
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch, thread
from statebook_conformance.work import Meter, Work

T = TypeVar("T")

KIB: Final = 1024
TIMES: Final = 4
"""How often a call may move what it is given or gives."""

ROUND_TRIPS: Final = 4
"""How often a call may wait for a server, where its budget says nothing else."""

SYNCS: Final = 6
"""How often a call may wait for a disk, as far as Python sees."""

WRITTEN: Final = 96 * KIB
"""What a call may write besides, in bytes: a head with its tail, pages of a log."""

READ: Final = 256 * KIB
"""What it may read besides: a head, a level of an index, the ends of two segments."""

_SIZE: Final = 600
_LARGE: Final = 1_000_000
_LISTED: Final = 100
_ITEMS: Final = 10_000
_TRIES: Final = 3


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a call may cost.

    Attributes:
        given: How many bytes of payload it is given.
        gives: How many it gives.
        commits: How many commits it is made of.
        round_trips: How many round trips each of them may be.
    """

    given: int = 0
    gives: int = 0
    commits: int = 1
    round_trips: int = ROUND_TRIPS

    def exceeded(self, work: Work) -> tuple[str, ...]:
        """What of some work is beyond it, a sentence each."""
        most = {
            "round_trips": self.round_trips * self.commits,
            "connections": 0,
            "syncs": SYNCS * self.commits,
            "bytes_written": self.given * TIMES + WRITTEN * self.commits,
            "bytes_sent": self.given * TIMES + WRITTEN * self.commits,
            "bytes_read": (self.given + self.gives) * TIMES + READ,
            "bytes_received": (self.given + self.gives) * TIMES + READ,
        }
        return tuple(
            f"{getattr(work, name)} {name.replace('_', ' ')}, at most {limit}"
            for name, limit in most.items()
            if getattr(work, name) > limit
        )


_PLAIN: Final = Budget()
"""The budget of a call without payload."""


class _Till:
    """Makes calls and holds each against its budget."""

    def __init__(self, ctx: Context, meter: Meter) -> None:
        self._ctx, self._meter = ctx, meter

    def read(self, name: str, call: Callable[[], T], budget: Budget = _PLAIN) -> T:
        """As a call; made once before, and again where that was the first time that several were under way."""
        call()
        return self(name, call, budget, tries=_TRIES)

    def __call__(self, name: str, call: Callable[[], T], budget: Budget = _PLAIN, *, tries: int = 1) -> T:
        """Make a call, check what it cost, and give its answer."""
        answer, work = self._meter.measure(call)
        beyond = budget.exceeded(work)
        while beyond and tries > 1:
            answer, work = self._meter.measure(call)
            beyond = budget.exceeded(work)
            tries -= 1
        self._ctx.check(not beyond, f"{name}: {'; '.join(beyond)}")
        self._ctx.saw("calls within their budget")
        written = work.bytes_written + work.bytes_sent
        for what, count in (("round trips", work.round_trips), ("bytes written", written), ("syncs", work.syncs)):
            if count:
                self._ctx.saw(f"{name}: {what}", count)
        return answer


# ---------------------------------------------------------------------------------------------------- writing a journal


@rule(
    "HEAD-5.budget",
    level=4,
    hint="a call asks before it writes, opens a connection each time, or writes more than what is new",
    kills=("chatty-append", "connection-a-call", "writes-many-times", "sync-an-event"),
    floor={"calls within their budget": 10},
)
def journal_budget(ctx: Context) -> None:
    """A writer's call costs at most four round trips, four times its payload and 96 KiB, six syncs, no new connection.

    Each call is made once before, with the same handle, and counted the second time: append of 600 bytes, of ten
    events, of 1 MB, of a batch that is there already; claim, heartbeat, settle, release; open and advance a cursor. A
    trim may be three commits. A connection is new where it sends for the first time.
    """
    key = thread("busy")
    with Meter() as meter:
        journal, till = ctx.open_journal(), _Till(ctx, meter)
        journal.append(journal.claim(thread("warm"), "writer"), make_batch("warm", size=_LARGE), 0)
        journal.release(journal.claim(key, "first"))
        claim = journal.claim(key, "writer")
        base = 0
        for number in range(40):
            base = journal.append(claim, make_batch(f"b{number}", size=_SIZE), base).last_seq
        journal.append(claim, make_batch("b39", size=_SIZE), base - 1)
        journal.heartbeat(claim)
        journal.settle(claim, "never sent", base)
        cursor = journal.advance_cursor(journal.open_cursor(key, "exporter"), 5)
        journal.trim(key, 2)

        def append(name: str, events: int, size: int, what: str) -> Receipt:
            batch = make_batch(name, events, size=size)
            return till(what, lambda: journal.append(claim, batch, base), Budget(given=events * (size + 100)))

        base = append("n1", 1, _SIZE, "append").last_seq
        base = append("n2", 10, _SIZE, "append of ten events").last_seq
        again = make_batch("n2", 10, size=_SIZE)
        till("append again", lambda: journal.append(claim, again, base - 10), Budget(given=10 * _SIZE))
        till("heartbeat", lambda: journal.heartbeat(claim))
        till("settle", lambda: journal.settle(claim, "never sent", base))
        till("advance a cursor", lambda: journal.advance_cursor(cursor, 10))
        till("open a cursor", lambda: journal.open_cursor(key, "exporter"))
        till("trim", lambda: journal.trim(key, 6), Budget(commits=3))
        base = append("n3", 1, _LARGE, "append of 1 MB").last_seq
        base = append("n4", 1, _SIZE, "append behind 1 MB").last_seq
        till("release", lambda: journal.release(claim))
        claim = till("claim", lambda: journal.claim(key, "next"))
        ctx.equal(claim.last_seq, base, "where the next writer begins")


@rule(
    "SETTLE-2.budget",
    level=4,
    hint="the batches of the window are fetched with their events, where their receipts say all",
    kills=("window-read-to-settle", "window-read-to-answer-again"),
    floor={"calls within their budget": 4},
)
def settling_budget(ctx: Context) -> None:
    """To settle, to answer a batch again and to claim cost the same whatever the newest batches hold.

    Three batches of 1 MB stand among the newest ones; each call keeps to the budget of HEAD-5.budget for a call without
    payload. The window may hold 64 batches of the largest size: fetching it could take gigabytes.
    """
    key = thread("heavy")
    with Meter() as meter:
        journal, till = ctx.open_journal(), _Till(ctx, meter)
        claim = journal.claim(key, "writer")
        base = 0
        for number in range(4):
            base = journal.append(claim, make_batch(f"b{number}", size=_SIZE), base).last_seq
        journal.append(claim, make_batch("b3", size=_SIZE), base - 1)
        journal.settle(claim, "never sent", base)
        for number in range(3):
            base = journal.append(claim, make_batch(f"heavy{number}", size=_LARGE), base).last_seq
        light = make_batch("light", size=_SIZE)
        base = journal.append(claim, light, base).last_seq
        again = till("append again", lambda: journal.append(claim, light, base - 1), Budget(given=_SIZE))
        ctx.check(again.replayed, "a batch that was sent again is taken for a new one")
        till("settle", lambda: journal.settle(claim, "never sent", base))
        found = till("settle what is there", lambda: journal.settle(claim, "light", base - 1))
        ctx.equal(None if found is None else found.digest, again.digest, "what settle says of a batch")
        till("claim", lambda: journal.claim(key, "next"))


# -------------------------------------------------------------------------------------------------------------- reading


@rule(
    "READ-4.budget",
    level=4,
    hint="a page is read event by event or batch by batch, or a listing asks for each name and again for its head",
    kills=("round-trip-an-event", "reads-many-times"),
    floor={"calls within their budget": 6},
)
def reading_budget(ctx: Context) -> None:
    """A reader's call costs at most four round trips, four times what it gives and 256 KiB, and no new connection.

    Counted with a handle that has made each call before, the best of three: head, of a journal and of none; 100 events
    at the beginning and at the end, the empty page behind the end. A listing may make two round trips for each thread
    that it lists. A store that reads in parallel may open connections the first times.
    """
    key, none, scope = thread("busy"), thread("none"), ThreadScope("user")
    with Meter() as meter:
        journal, till = ctx.open_journal(), _Till(ctx, meter)
        claim = journal.claim(key, "writer")
        base = 0
        for number in range(120):
            base = journal.append(claim, make_batch(f"b{number}", 2, size=_SIZE), base).last_seq
        for number in range(_LISTED):
            journal.claim(thread(f"listed-{number}"), "writer")
        page = Budget(gives=100 * (_SIZE + 100))
        till.read("head", lambda: journal.head(key))
        till.read("head of no journal", lambda: journal.head(none))
        first = till.read("read 100 at the beginning", lambda: journal.read_after(key, 0, 100), page)
        last = till.read("read 100 at the end", lambda: journal.read_after(key, base - 100, 100), page)
        till.read("read behind the end", lambda: journal.read_after(key, base, 100))
        listing = Budget(round_trips=ROUND_TRIPS + 2 * _LISTED, gives=_LISTED * KIB)
        listed = till.read("list 100 threads", lambda: journal.list_threads(scope, limit=_LISTED), listing)
        ctx.equal((len(first.events), len(last.events), len(listed.threads)), (100, 100, _LISTED), "what was read")


# ---------------------------------------------------------------------------------------------------------------- state


@rule(
    "STATE-7.budget",
    level=4,
    hint="a list is read or written as a whole where something is appended, or each save asks first",
    kills=("list-rewritten-whole", "chatty-save"),
    floor={"calls within their budget": 8},
)
def state_budget(ctx: Context) -> None:
    """A call of state costs at most four round trips, four times its payload and 96 KiB; an append to a list too.

    The list has 10,000 items, 1 MB, before one is appended. Counted with a handle that has made each call before: save,
    load, delete of a document; append to the list; exists, list_keys, list_sessions. A list that is loaded comes in at
    most 40 round trips.
    """
    document, items, session = StateKey("user", "s", "document"), StateKey("user", "s", "list"), SessionKey("user", "s")
    value, item = b'"%b"' % (b"x" * _SIZE), b'"%b"' % (b"y" * 98)
    with Meter() as meter:
        state, till = ctx.open_state(), _Till(ctx, meter)
        for number in range(20):
            state.append_list(items, (item,) * (_ITEMS // 20), expected_length=number * (_ITEMS // 20))
        other = StateKey("user", "s", "other")
        version = state.save(document, b"1")
        state.save(other, b"1")
        state.delete(other)
        given, gives = Budget(given=_SIZE), Budget(gives=_SIZE)
        state.save(other, b"1")
        version = till("save", lambda: state.save(document, value, expected=version), given)
        loaded = till.read("load", lambda: state.load(document), gives)
        ctx.equal(None if loaded is None else (loaded.value, loaded.version), (value, version), "what was loaded")
        till("append to a list", lambda: state.append_list(items, (value,), expected_length=_ITEMS), given)
        whole = Budget(gives=_ITEMS * 100, round_trips=10 * ROUND_TRIPS)
        found = till.read("load a list", lambda: state.load_list(items), whole)
        ctx.equal(None if found is None else found.items, ((item,) * _ITEMS + (value,)), "the list")
        till.read("exists", lambda: state.exists(session))
        till.read("list keys", lambda: state.list_keys(session))
        till.read("list sessions", lambda: state.list_sessions("user"))
        till("delete", lambda: state.delete(other))
