"""Level 3: waiters that give up at each await, with the call queued, begun, or done and not yet answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from statebook.aio import AsyncAgentStateStore, AsyncCommitLane, AsyncThreadJournalStore
from statebook.errors import StatebookError
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey, ThreadKey
from statebook.lanes import CommitLanes
from statebook.lanes.pool import WorkPools
from statebook.model import AppendRequest, Receipt, SlotKind
from statebook.state import AgentStateStore
from statebook_conformance.context import Context
from statebook_conformance.faults.awaits import Driven, ParkingPool, cancel_at
from statebook_conformance.rule import rule
from statebook_conformance.scenes import fill, make_batch, names, read_all, there, thread

_AT_ONCE_S: Final = 10.0
_ENTERS_S: Final = 0.5
_SUSPENSIONS_MAX: Final = 40
_STARTED: Final = ("before", "behind")


@runtime_checkable
class HasFacades(Protocol):
    """A backend that brings asyncio stores of its own; else they are core's facades over its stores."""

    def journal_facade(self, store: ThreadJournalStore, pools: WorkPools) -> AsyncThreadJournalStore:
        """The journal store for asyncio."""
        ...

    def state_facade(self, store: AgentStateStore, pools: WorkPools) -> AsyncAgentStateStore:
        """The state store for asyncio."""
        ...


class _Stage:
    """Stores and facades of one run, with a pool in which calls can be held."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.pool = ParkingPool()
        self.pools = WorkPools(calls=self.pool, maintenance=self.pool, leases=self.pool)
        backend = ctx.backend
        if isinstance(backend, HasFacades):
            self.journal = backend.journal_facade(ctx.journal, self.pools)
            self.state = backend.state_facade(ctx.state, self.pools)
        else:
            self.journal = AsyncThreadJournalStore(ctx.journal, self.pools)
            self.state = AsyncAgentStateStore(ctx.state, self.pools)
        self.lanes = CommitLanes(ctx.journal, workers=1)
        self.other_journal, self.other_state = ctx.open_journal(), ctx.open_state()
        self.witness = fill(ctx.journal, thread("witness"), [])
        self.witnessed = 0


class _Verb:
    """One call that is cancelled: its scene, and what is there afterwards.

    Attributes:
        where: The try in words.
        key: The thread that it is about.
        accepted_lands: Whether it lands wherever it was when its waiter gave up.
    """

    accepted_lands = False

    def __init__(self, stage: _Stage, name: str) -> None:
        self.stage, self.ctx, self.where = stage, stage.ctx, name
        self.key = thread(name)
        self.slot = StateKey("user", name, "slot")
        self.claim = fill(stage.ctx.journal, self.key, [make_batch("first", 2)])

    def start(self) -> Coroutine[Any, Any, object]:
        """The call."""
        raise NotImplementedError

    def landed(self) -> bool | None:
        """Whether it was applied, as another handle sees it; None where it changes nothing."""
        return None

    async def after(self, *, landed: bool | None) -> None:
        """Call again: nothing may stand in the way."""
        await self.start()

    def _length(self, key: ThreadKey, count: int) -> bool:
        """Whether a batch of so many events is there behind the first two; a part of it fails the rule."""
        found = names(read_all(self.ctx, self.stage.other_journal, key))
        self.ctx.check(len(found) in (2, 2 + count), f"{self.where}: {len(found) - 2} events of a batch of {count}")
        self.ctx.equal(self.stage.other_journal.verify(key, deep=True).findings, (), f"{self.where}: findings")
        return len(found) > 2


class _Append(_Verb):
    def start(self) -> Coroutine[Any, Any, Receipt]:
        return self.stage.journal.append(self.claim, make_batch("b", 3), 2)

    def landed(self) -> bool:
        return self._length(self.key, 3)

    async def after(self, *, landed: bool | None) -> None:
        receipt = await self.stage.journal.settle(self.claim, "b", 2)
        self.ctx.equal(receipt is not None, landed, f"{self.where}: what settle says")
        again = await self.start()
        self.ctx.equal(again.replayed, landed, f"{self.where}: whether the batch sent again was there")


class _Submit(_Verb):
    """A batch that is handed in to a commit lane."""

    accepted_lands = True

    def __init__(self, stage: _Stage, name: str) -> None:
        super().__init__(stage, name)
        self.lane = stage.lanes.open(stage.ctx.journal.claim(self.key, "lane"))

    def start(self) -> Coroutine[Any, Any, Receipt]:
        return AsyncCommitLane(self.lane).submit(make_batch("b", 3))

    def landed(self) -> bool:
        self.lane.flush().result(_AT_ONCE_S)
        return self._length(self.key, 3)

    async def after(self, *, landed: bool | None) -> None:
        again = await AsyncCommitLane(self.lane).submit(make_batch("c"))
        self.ctx.equal(again.first_seq, 6 if landed else 3, f"{self.where}: where the next batch of the lane stands")


class _AppendMany(_Verb):
    def __init__(self, stage: _Stage, name: str) -> None:
        super().__init__(stage, name)
        self.second = thread(name + "-second")
        self.claims = (self.claim, fill(stage.ctx.journal, self.second, [make_batch("first", 2)]))

    def start(self) -> Coroutine[Any, Any, object]:
        return self.stage.journal.append_many([AppendRequest(claim, make_batch("b", 3), 2) for claim in self.claims])

    def landed(self) -> bool | None:
        one, two = self._length(self.key, 3), self._length(self.second, 3)
        return one and two

    async def after(self, *, landed: bool | None) -> None:
        answers = await self.stage.journal.append_many(
            [AppendRequest(claim, make_batch("b", 3), 2) for claim in self.claims]
        )
        for answer in answers:
            self.ctx.check(isinstance(answer, Receipt), f"{self.where}: the group sent again was answered {answer!r}")


class _Claim(_Verb):
    def start(self) -> Coroutine[Any, Any, object]:
        return self.stage.journal.claim(self.key, "next")

    def landed(self) -> bool:
        head = there(self.ctx, self.stage.other_journal, self.key)
        self.ctx.check(head.epoch in (1, 2), f"{self.where}: one claim has raised the epoch to {head.epoch}")
        holder = None if head.claim is None else head.claim.writer_id
        self.ctx.equal(holder, "next" if head.epoch == 2 else "writer", f"{self.where}: who holds the journal")
        return head.epoch == 2


class _Settle(_Verb):
    def start(self) -> Coroutine[Any, Any, object]:
        return self.stage.journal.settle(self.claim, "never sent", 2)

    def landed(self) -> None:
        self._length(self.key, 0)


class _Read(_Verb):
    def start(self) -> Coroutine[Any, Any, object]:
        return self.stage.journal.read_after(self.key, 0)


class _OpenCursor(_Verb):
    def start(self) -> Coroutine[Any, Any, object]:
        return self.stage.journal.open_cursor(self.key, "x")


class _Advance(_Verb):
    def __init__(self, stage: _Stage, name: str) -> None:
        super().__init__(stage, name)
        self.cursor = stage.ctx.journal.open_cursor(self.key, "x")

    def start(self) -> Coroutine[Any, Any, object]:
        return self.stage.journal.advance_cursor(self.cursor, 2)

    def landed(self) -> bool:
        acked = self.stage.other_journal.open_cursor(self.key, "x").acked_seq
        self.cursor = self.stage.other_journal.open_cursor(self.key, "x")
        self.ctx.check(acked in (0, 2), f"{self.where}: the cursor stands at {acked}")
        return acked == 2


class _Save(_Verb):
    def start(self) -> Coroutine[Any, Any, object]:
        return self.stage.state.save(self.slot, b'"saved"')

    def landed(self) -> bool:
        saved = self.stage.other_state.load(self.slot)
        self.ctx.check(saved is None or saved.value == b'"saved"', f"{self.where}: a part of a document is there")
        return saved is not None


class _AppendList(_Verb):
    def start(self) -> Coroutine[Any, Any, object]:
        return self.stage.state.append_list(self.slot, (b"1", b"2"), expected_length=0)

    def landed(self) -> bool:
        items = self.stage.other_state.load_list(self.slot)
        self.ctx.check(items is None or items.items == (b"1", b"2"), f"{self.where}: a part of the items is there")
        return items is not None

    async def after(self, *, landed: bool | None) -> None:
        await self.stage.state.append_list(self.slot, (b"3",), expected_length=2 if landed else 0)


class _Delete(_Verb):
    def __init__(self, stage: _Stage, name: str) -> None:
        super().__init__(stage, name)
        stage.ctx.state.save(self.slot, b"1")

    def start(self) -> Coroutine[Any, Any, object]:
        return self.stage.state.delete(self.slot, kind=SlotKind.DOCUMENT)

    def landed(self) -> bool:
        return self.stage.other_state.load(self.slot) is None


_VERBS: Final[dict[str, Callable[[_Stage, str], _Verb]]] = {
    "append": _Append,
    "submit": _Submit,
    "append_many": _AppendMany,
    "claim": _Claim,
    "settle": _Settle,
    "read_after": _Read,
    "open_cursor": _OpenCursor,
    "advance_cursor": _Advance,
    "save": _Save,
    "append_list": _AppendList,
    "delete": _Delete,
}


class _Others:
    """Waiters that do not give up: a read of the same journal, and an append to another one."""

    def __init__(self, stage: _Stage, key: ThreadKey) -> None:
        self.stage, self.key = stage, key
        self.tasks: list[asyncio.Task[object]] = []

    def read(self) -> None:
        """Begin to read the same journal."""
        self.tasks.append(asyncio.ensure_future(self.stage.journal.read_after(self.key, 0)))

    def append(self) -> None:
        """Begin to append to another one."""
        stage = self.stage
        batch, base = make_batch(f"w{stage.witnessed}"), stage.witnessed
        stage.witnessed += 1
        self.tasks.append(asyncio.ensure_future(stage.journal.append(stage.witness, batch, base)))

    async def check(self, where: str) -> None:
        """Each of them gets its answer."""
        ctx = self.stage.ctx
        done, late = await asyncio.wait(self.tasks, timeout=_AT_ONCE_S) if self.tasks else (set(), set())
        ctx.check(not late, f"{where}: {len(late)} other waiters got no answer within {_AT_ONCE_S:g} s")
        for task in done:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            ctx.check(error is None, f"{where}: another waiter was answered {type(error).__name__}: {error}")
            ctx.saw("other waiters")


async def _try(stage: _Stage, verb: _Verb, place: str, number: int) -> Driven[object]:
    """Cancel one call at one of its suspensions, with the call in one place; then look, and call again."""
    ctx, pool = stage.ctx, stage.pool
    others = _Others(stage, verb.key)
    if place in _STARTED:
        pool.park(place)
    elif place == "queued":
        pool.park("before")
        others.read()
        await asyncio.sleep(0)
    held = False

    def at_it() -> None:
        nonlocal held
        held = place != "free" and pool.entered.wait(_ENTERS_S)
        if place in _STARTED:
            others.append()

    driven = await cancel_at(verb.start(), number, at_it=at_it, release=pool.let_go)
    reached = driven.suspensions >= number
    ctx.check(driven.error is None, f"{verb.where}: ended with {type(driven.error).__name__}: {driven.error}")
    if number == 0:
        ctx.check(driven.cancelled, f"{verb.where}: a task that was cancelled before its first step has run")
    await others.check(verb.where)
    await asyncio.wait_for(stage.journal.head(verb.key), _AT_ONCE_S)  # the one thread has done all before
    landed = verb.landed()
    if landed is not None:
        accepted = reached and number > 0
        started = accepted and held and place in _STARTED
        ctx.check(landed or not started, f"{verb.where}: a call that had begun was given up with its waiter")
        ctx.check(landed or not (accepted and verb.accepted_lands), f"{verb.where}: what was accepted is given up")
        ctx.check(landed or driven.cancelled, f"{verb.where}: the call was answered, and is not there")
        ctx.check(not landed or number > 0, f"{verb.where}: a call that was never begun is there")
        ctx.saw("landed" if landed else "not landed")
        ctx.saw("begun and cancelled", int(started and driven.cancelled))
    ctx.saw("cancelled", int(driven.cancelled))
    try:
        await asyncio.wait_for(verb.after(landed=landed), _AT_ONCE_S)
    except TimeoutError:
        ctx.fail(f"{verb.where}: the next call is not answered within {_AT_ONCE_S:g} s: something is still held")
    except StatebookError as error:
        ctx.fail(f"{verb.where}: the next call was answered {type(error).__name__}: {error}")
    return driven


async def _each(stage: _Stage, name: str, make: Callable[[_Stage, str], _Verb], place: str, numbers: range) -> int:
    """Cancel a call at each of its suspensions, until it is not suspended so often; how often it is suspended."""
    for number in numbers:
        verb = make(stage, f"{name}-{place}-{number}")
        verb.where = f"{name}, {place}, cancelled at suspension {number}"
        try:
            driven = await _try(stage, verb, place, number)
        except TimeoutError as error:
            stage.ctx.fail(f"{verb.where}: {error}")
        if driven.suspensions < number:
            return driven.suspensions
    if place == "free":
        stage.ctx.fail(f"{name} is suspended more than {len(numbers)} times")
    return len(numbers)


async def _all(ctx: Context) -> None:
    stage = _Stage(ctx)
    try:
        for name, make in _VERBS.items():
            suspensions = await _each(stage, name, make, "free", range(_SUSPENSIONS_MAX))
            for place in ("queued", *_STARTED):
                await _each(stage, name, make, place, range(1, suspensions + 1))
    finally:
        stage.pool.let_go()
        ctx.check(await asyncio.to_thread(stage.lanes.close), "commits that were accepted never came back")
        ctx.check(await asyncio.to_thread(stage.pools.close), "calls that were accepted never came back")


@rule(
    "ERR-4.cancelled-at-each-await",
    level=3,
    hint="a lock or connection is taken before an await and given back behind it, or a write is made in several awaits",
    kills=("lock-left-after-cancellation", "cancelled-half-way", "cancelled-with-its-neighbour"),
    floor={"cancelled": 40, "begun and cancelled": 12, "other waiters": 25, "not landed": 5},
    timeout_s=120.0,
)
def cancelled_at_each_await(ctx: Context) -> None:
    """Cancelled at any await, a call lands whole or not at all, settle tells, and the next call works at once.

    Each call of the asyncio stores is cancelled before it begins and at each of its suspensions: while it waits, has
    begun, or is done and not answered. One that had begun lands. The next call works at once, on this handle and on
    another; other waiters get their answers; no thread stays.

    Cases: 38.
    """
    before = set(threading.enumerate())
    asyncio.run(_all(ctx))
    left = [entry for entry in threading.enumerate() if entry not in before and entry.name.startswith("statebook-")]
    for entry in left:
        entry.join(_AT_ONCE_S)
    ctx.equal([entry.name for entry in left if entry.is_alive()], [], "threads that are left")
    ctx.threads([partial(_last_look, ctx)], timeout_s=_AT_ONCE_S)


def _last_look(ctx: Context) -> None:
    """A handle of its own gets on with the journals at once: no lock of a cancelled call is left in the storage."""
    journal = ctx.open_journal()
    for name in ("append-before-1", "append-queued-1", "claim-behind-1"):
        claim = journal.claim(thread(name), "last")
        journal.append(claim, make_batch("last"), claim.last_seq)
        ctx.equal(journal.verify(thread(name), deep=True).findings, (), f"findings of {name}")
