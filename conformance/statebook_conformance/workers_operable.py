"""Workers of the rules about leaks: they open, close and fail many times, and say what is left of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from statebook.aio import AsyncThreadJournalStore
from statebook.capabilities import Durability, Feature, Sharing
from statebook.errors import InvalidConfiguration, StatebookError, UnsupportedCapability
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey
from statebook.lanes import WorkPool, WorkPools
from statebook.model import ABSENT, NONE, WriterClaim
from statebook.state import AgentStateStore
from statebook_conformance.child import ChildContext
from statebook_conformance.leaks import holdings, settled
from statebook_conformance.scenes import make_batch, thread
from statebook_conformance.target import Target, TargetBackend

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue
    from statebook_conformance.workers_trace import LifeContext

WARM: Final = 12
"""How many rounds are made before the first look: caches and pools fill, modules are imported."""

_TRACED: Final = 8
_SIZE: Final = 600
_KEY: Final = thread("kept")
_SLOT: Final = StateKey("user", "session", "kept")
_WISHES: Final = (Durability.REPLICATED, Sharing.NETWORK, *Feature)


class _Store(Protocol):
    def close(self) -> None: ...


class _Rounds:
    """Something that is done again and again, and counts what it did.

    Attributes:
        target: The backend's name.
        backend: The backend.
        done: How often so far.
        at_once: How many connections a pool may open more when its calls happen to meet.
    """

    at_once = 0

    def __init__(self, target: Target, namespace: str) -> None:
        self.target = target
        self.backend: TargetBackend = target.backend(namespace)
        self.done = 0

    def round(self) -> None:
        """Once."""
        raise NotImplementedError

    def close(self) -> None:
        """At the end."""


def _watch(ctx: ChildContext, rounds: _Rounds) -> dict[str, JsonValue]:
    """Make rounds, and compare what this process holds after the first ones with what it holds after all."""
    watched = Path(ctx.text("directory"))
    tempfile.tempdir = str(watched)
    for _ in range(WARM):
        rounds.round()
    before, warm = holdings(watched), rounds.done
    while rounds.done - warm < ctx.number("count"):
        rounds.round()
    count = rounds.done - warm
    beyond = settled(watched, before, objects_more=count // 2, descriptors_more=rounds.at_once)
    return {"count": count, "beyond": list(beyond)}


# ---------------------------------------------------------------------------------------------------- opens and closes


class _Opens(_Rounds):
    """Opens each kind of store, makes a call, closes it."""

    def __init__(self, target: Target, namespace: str) -> None:
        super().__init__(target, namespace)
        journal, state = self.backend.open_journal(), self.backend.open_state()
        journal.append(journal.claim(_KEY, "writer"), make_batch("b"), 0)
        state.save(_SLOT, b"1")
        self._held: tuple[_Store, ...] = (journal, state)

    def round(self) -> None:
        journal = self.backend.open_journal()
        journal.head(_KEY)
        journal.close()
        state = self.backend.open_state()
        state.load(_SLOT)
        state.close()
        self.done += 2
        with suppress(UnsupportedCapability):
            atomic = self.backend.open_atomic()
            atomic.read_head("t/none")
            atomic.close()
            self.done += 1

    def close(self) -> None:
        for store in self._held:
            store.close()


def open_and_close(ctx: ChildContext) -> JsonValue:
    """Open and close stores, and say what is left of them."""
    rounds = _Opens(Target(ctx.text("target")), ctx.text("namespace"))
    answer = _watch(ctx, rounds)
    rounds.close()
    return answer


# ------------------------------------------------------------------------------------------------------------- failures


class _Failures(_Rounds):
    """Makes each call that fails, and opens that fail, through two handles that stay open."""

    at_once = 4

    def __init__(self, target: Target, namespace: str) -> None:
        super().__init__(target, namespace)
        self.journal: ThreadJournalStore = self.backend.open_journal()
        self.state: AgentStateStore = self.backend.open_state()
        self.fenced: WriterClaim = self.journal.claim(_KEY, "first")
        self.claim: WriterClaim = self.journal.claim(_KEY, "second")
        self.journal.append(self.claim, make_batch("b", 3), 0)
        self.lost = self.journal.open_cursor(_KEY, "exporter")
        self.cursor = self.journal.open_cursor(_KEY, "exporter")
        self.version = self.state.save(_SLOT, b"1")
        self.state.append_list(_SLOT, (b"1",), expected_length=0)
        self.wrong: dict[str, int] = {}
        self.kinds = 0
        offered = [self.journal.capabilities.offers(wish) for wish in _WISHES]
        self.wishes = tuple(wish for wish, there in zip(_WISHES, offered, strict=True) if not there)

    def round(self) -> None:
        calls = self._calls()
        self.kinds = len(calls)
        for name, call in calls.items():
            try:
                call()
            except (StatebookError, ValueError):
                self.done += 1
            else:
                self.wrong[name] = self.wrong.get(name, 0) + 1
        self._cancelled()
        self._through_another_handle()

    def _calls(self) -> dict[str, Callable[[], object]]:
        journal, state, batch = self.journal, self.state, make_batch("new")
        calls: dict[str, Callable[[], object]] = {
            "append at a wrong base": lambda: journal.append(self.claim, batch, 1),
            "append ahead of the end": lambda: journal.append(self.claim, batch, 99),
            "append by a fenced writer": lambda: journal.append(self.fenced, batch, 3),
            "heartbeat of a fenced writer": lambda: journal.heartbeat(self.fenced),
            "append of other content": lambda: journal.append(self.claim, make_batch("b", 2), 0),
            "claim of what is held": lambda: journal.claim(_KEY, "third", replacing=NONE),
            "read behind the end": lambda: journal.read_after(_KEY, 99),
            "advance of a fenced cursor": lambda: journal.advance_cursor(self.lost, 1),
            "advance behind the end": lambda: journal.advance_cursor(self.cursor, 99),
            "reset of another version": lambda: journal.reset_cursor(_KEY, "exporter", 1, expected_version=99),
            "cursor of no journal": lambda: journal.open_cursor(thread("none"), "exporter"),
            "trim of no journal": lambda: journal.trim(thread("none"), 1),
            "save of another version": lambda: state.save(_SLOT, b"2", expected=self.version + 1),
            "save of what is there": lambda: state.save(_SLOT, b"2", expected=ABSENT),
            "list of another length": lambda: state.append_list(_SLOT, (b"2",), expected_length=99),
            "delete of another version": lambda: state.delete(_SLOT, expected=self.version + 1),
            "an unknown option": self._unknown_option,
        }
        if self.wishes:
            calls["a wish that is not offered"] = lambda: self.backend.open_journal(require=self.wishes)
            calls["a wish of the state store"] = lambda: self.backend.open_state(require=self.wishes)
        return calls

    def _unknown_option(self) -> object:
        try:
            return self.target.open_with("no_such_option", "1").open_journal()
        except InvalidConfiguration as error:
            raise ValueError("refused") from error

    def _cancelled(self) -> None:
        """Three calls through the asyncio facade whose waiters are cancelled while they run."""

        async def scene(pools: WorkPools) -> None:
            facade = AsyncThreadJournalStore(self.journal, pools)
            waiters = [
                asyncio.ensure_future(facade.append(self.fenced, make_batch("new"), 3)),
                asyncio.ensure_future(facade.read_after(_KEY, 0)),
                asyncio.ensure_future(facade.heartbeat(self.claim)),
            ]
            await asyncio.sleep(0)
            for waiter in waiters:
                waiter.cancel()
            await asyncio.gather(*waiters, return_exceptions=True)

        pools = WorkPools(calls=WorkPool("calls", workers_max=2))
        try:
            asyncio.run(scene(pools))
        finally:
            pools.close()
        self.done += 3

    def _through_another_handle(self) -> None:
        """A handle that is opened, fails, is closed, and is called once more."""
        other = self.backend.open_journal()
        for _ in range(2):
            with suppress(StatebookError):
                other.append(self.fenced, make_batch("new"), 3)
            other.close()
        self.done += 2

    def check_free(self) -> str:
        """Whether another handle can write at once after each kind of failure.

        Returns:
            The first failure behind which it was refused, and with what; else an empty text.
        """
        journal, state = self.backend.open_journal(), self.backend.open_state()
        base = 3
        try:
            for number, (name, call) in enumerate(self._calls().items()):
                with suppress(StatebookError, ValueError):
                    call()
                try:
                    base = journal.append(self.claim, make_batch(f"free{number}"), base).last_seq
                    self.version = state.save(_SLOT, b"3", expected=self.version)
                    state.append_list(_SLOT, (b"2",), expected_length=number + 1)
                except StatebookError as error:
                    return f"after {name}: {type(error).__name__}: {error}"
        finally:
            journal.close()
            state.close()
        return ""

    def close(self) -> None:
        self.journal.close()
        self.state.close()


def fail_and_fail(ctx: ChildContext) -> JsonValue:
    """Make calls and opens that fail, and say what is left of them; then keep the handles until the rule has looked."""
    rounds = _Failures(Target(ctx.text("target")), ctx.text("namespace"))
    answer = _watch(ctx, rounds)
    ctx.tell("failed so often", **answer, wrong=sorted(rounds.wrong), kinds=rounds.kinds, free=rounds.check_free())
    ctx.hear()
    rounds.close()
    return None


# --------------------------------------------------------------------------------------------------- calls of a system


def traced_calls(life: LifeContext) -> None:
    """Make each writing call once to warm up, then again between two marks."""
    with closing(life.backend.open_journal()) as journal, closing(life.backend.open_state()) as state:
        claim = journal.claim(_KEY, "writer")
        base = 0
        for number in range(_TRACED):
            base = journal.append(claim, make_batch(f"warm{number}", size=_SIZE), base).last_seq
        journal.heartbeat(claim)
        cursor = journal.advance_cursor(journal.open_cursor(_KEY, "exporter"), 1)
        version = state.save(_SLOT, b"1")
        state.append_list(_SLOT, (b"1",), expected_length=0)
        calls: dict[str, Callable[[], object]] = {
            "append": lambda: journal.append(claim, make_batch("one", size=_SIZE), base),
            "append of ten events": lambda: journal.append(claim, make_batch("ten", 10, size=_SIZE), base + 1),
            "append of 1 MB": lambda: journal.append(claim, make_batch("large", size=1_000_000), base + 11),
            "heartbeat": lambda: journal.heartbeat(claim),
            "settle": lambda: journal.settle(claim, "never sent", base + 12),
            "advance a cursor": lambda: journal.advance_cursor(cursor, 2),
            "claim": lambda: journal.claim(_KEY, "next"),
            "save": lambda: state.save(_SLOT, b"2", expected=version),
            "append to a list": lambda: state.append_list(_SLOT, (b"2",), expected_length=1),
            "delete": lambda: state.delete(_SLOT),
            "head": lambda: journal.head(_KEY),
            "read": lambda: journal.read_after(_KEY, 0, 10),
        }
        for name, call in calls.items():
            life.tell(begins=name)
            call()
            life.tell(ends=name)
