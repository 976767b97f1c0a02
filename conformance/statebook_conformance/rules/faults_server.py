"""Level 3: the server itself is killed with kill -9, shut down, and stopped in the middle of calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from statebook.capabilities import Durability, Sharing
from statebook.errors import BackendUnavailable, OutcomeUnknown, VersionConflict
from statebook.keys import StateKey
from statebook_conformance.acts import Act, Appending, World, until_known
from statebook_conformance.acts_all import EVERY, Saving
from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.context import Context
from statebook_conformance.fault_clients import FaultyWriter, kept, settle_accounts
from statebook_conformance.journal_clients import judge, make
from statebook_conformance.past import Observer
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch, names, read_all, thread

T = TypeVar("T")

_WRITERS: Final = 4
_KILLS: Final = 2
_ANSWERS: Final = 12
_DEADLINE_S: Final = 75.0
_BACK_S: Final = 90.0
_WAIT_S: Final = 60.0


class _Writer:
    """Appends and saves until it is told to stop; what the server's end leaves open, it settles."""

    def __init__(self, ctx: Context, recorder: Recorder, number: int) -> None:
        self.ctx = ctx
        self.appends = FaultyWriter(ctx, recorder, thread(f"writer-{number}"), patience_s=_BACK_S)
        self.slot = StateKey("user", f"writer-{number}", "document")
        self.state = ctx.open_state()
        self.answers = self.number = self.saved = 0
        self.version = self.state.save(self.slot, b"0")

    def run(self, stop: threading.Event) -> None:
        """Go on until told to stop."""
        while not stop.is_set():
            self.number += 1
            self.appends.send(make(f"b{self.number}", 1 + self.number % 3))
            self._save(self.number)
            self.answers += 1

    def _save(self, number: int) -> None:
        def save() -> int:
            try:
                return self.state.save(self.slot, b"%d" % number, expected=self.version)
            except VersionConflict:
                found = self.state.load(self.slot)
                if found is None or found.value != b"%d" % number:
                    self.ctx.fail(f"a save conflicts with {found!r}, and nobody else writes")
                return found.version

        self.version = _until_known(self.ctx, save, "save")
        self.saved = number


def _until_known(ctx: Context, call: Callable[[], T], what: str) -> T:
    """Make a call until it is answered, as long as a server may take to come back."""
    return until_known(ctx, call, f"{what} after the server's end", patience_s=_BACK_S)


@rule(
    "DUR-1.server-killed",
    level=3,
    needs=(Durability.PROCESS, Sharing.NETWORK),
    hint="the server acknowledges from memory: a setting that the backend does not check",
    kills=("server-forgets-the-newest",),
    floor={"kills": _KILLS, "answers": _ANSWERS},
    timeout_s=300.0,
)
def server_killed(ctx: Context) -> None:
    """Kill -9 the server under four writers, and start it again: what it had acknowledged is there, once, in order.

    The writers go on with their handles and claims. Cases: 26, 32, 43.
    """
    server = ctx.server
    recorder = ctx.recorder()
    writers = [_Writer(ctx, recorder, number) for number in range(_WRITERS)]
    for _ in range(_KILLS * ctx.effort):
        stop = threading.Event()
        before = [writer.answers for writer in writers]

        def kill(stop: threading.Event = stop, before: Sequence[int] = tuple(before)) -> None:
            try:
                _wait_for(ctx, lambda: all(w.answers > old + 3 for w, old in zip(writers, before, strict=True)))
                time.sleep(ctx.random.random() * 0.02)
                server.kill()
                server.recover()
                ctx.saw("kills")
                met = [writer.answers for writer in writers]
                _wait_for(ctx, lambda: all(w.answers > old + 1 for w, old in zip(writers, met, strict=True)))
            finally:
                stop.set()

        calls: list[Callable[[], None]] = [kill, *(partial(writer.run, stop) for writer in writers)]
        with kept(ctx, recorder):
            ctx.threads(calls, timeout_s=_BACK_S * 2)
    state = ctx.open_state()
    for writer in writers:
        ctx.saw("answers", writer.answers)
        saved = state.load(writer.slot)
        ctx.equal(None if saved is None else saved.value, b"%d" % writer.saved, "the document that was saved last")
    settle_accounts([writer.appends for writer in writers], ctx.open_journal(), partial(judge, ctx, recorder))


def _wait_for(ctx: Context, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not ready():
        if time.monotonic() > deadline:
            ctx.fail(f"writers made no progress for {_WAIT_S:g} s")
        time.sleep(0.005)


@rule(
    "ERR-4.server-restarted",
    level=3,
    needs=(Durability.PROCESS, Sharing.NETWORK),
    hint="a handle keeps connections, scripts or sessions that ended with the server",
    kills=("gives-up-after-a-restart",),
    floor={"refused": 1},
    timeout_s=240.0,
)
def server_restarted(ctx: Context) -> None:
    """The server is shut down and started again: calls meanwhile are refused in time, and then every handle goes on.

    Claims, cursors, versions and bases from before hold. Cases: 32.
    """
    observer = Observer(ctx)
    acts = [kind(World(ctx, observer)) for kind in EVERY]
    for act in acts:
        act.prepare()
        ctx.check(act.attempt("no fault"), f"{act.name} fails before the server was shut down")
        act.prepare()
    server = ctx.server
    server.shut_down()
    for said, seconds, act in ctx.threads([partial(_meanwhile, act) for act in acts], timeout_s=_DEADLINE_S + 10):
        ctx.check(seconds < _DEADLINE_S, f"{act.name} took {seconds:.0f} s while the server was down")
        ctx.check(not said, f"{act.name} succeeded while the server was down")
        ctx.saw("refused")
    server.recover()
    for act in acts:
        act.judge(None, "a restart")
        act.prepare()
        ctx.check(act.attempt("after a restart"), f"{act.name} fails after the server has come back")


def _meanwhile(act: Act) -> tuple[bool, float, Act]:
    started = time.monotonic()
    try:
        answer = act.call()
    except (BackendUnavailable, OutcomeUnknown):
        return False, time.monotonic() - started, act
    refused = isinstance(answer, tuple) and all(isinstance(each, Exception) for each in answer)
    return not refused, time.monotonic() - started, act


@rule(
    "SETTLE-2.server-paused",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="a request that is still on its way is settled by a read, or its late reply answers the next request",
    kills=("late-reply-answers-the-next",),
    floor={"unknown": 2},
    timeout_s=240.0,
)
def server_paused(ctx: Context) -> None:
    """The server stands still (SIGSTOP) during calls, which end in time; it goes on, and late requests land or not.

    Settling tells the truth for ever after, and nothing is there twice. Cases: 44.
    """
    server = ctx.server
    observer = Observer(ctx)
    acts: list[Act] = [Appending(World(ctx, observer)), Saving(World(ctx, observer))]
    senders = [_Paused(ctx, number) for number in range(3)]
    for act in acts:
        act.prepare()
        ctx.check(act.attempt("no fault"), f"{act.name} fails before the server was stopped")
        act.prepare()
    server.pause()
    try:
        calls: list[Callable[[], object]] = [partial(_meanwhile, act) for act in acts]
        calls += [sender.send for sender in senders]
        started = time.monotonic()
        ctx.threads(calls, timeout_s=_DEADLINE_S + 10)
        took = time.monotonic() - started
    finally:
        server.resume()
    ctx.check(took < _DEADLINE_S, f"calls took {took:.0f} s while the server stood still")
    for sender in senders:
        sender.settle()
    for act in acts:
        act.judge(None, "a stopped server")
        act.prepare()
        ctx.check(act.attempt("after a stop"), f"{act.name} fails after the server went on")
    journal = ctx.open_journal()
    for sender in senders:
        found = names(read_all(ctx, journal, sender.key))
        ctx.equal(found, [(1, "first.1"), *sender.wanted], f"events of {sender.key.thread_id} at the end")


class _Paused:
    """Sends one batch to a server that stands still, and settles it when the server goes on."""

    def __init__(self, ctx: Context, number: int) -> None:
        self.ctx, self.key = ctx, thread(f"paused-{number}")
        self.journal = ctx.open_journal()
        self.claim = self.journal.claim(self.key, "writer")
        self.journal.append(self.claim, make_batch("first"), 0)
        self.batch = make_batch("late", 2)
        self.wanted: list[tuple[int, str]] = []

    def send(self) -> None:
        try:
            self.journal.append(self.claim, self.batch, 1)
        except OutcomeUnknown:
            self.ctx.saw("unknown")
        except BackendUnavailable:
            self.ctx.saw("refused")
        else:
            self.ctx.fail("an append was acknowledged by a server that stood still")

    def settle(self) -> None:
        receipt = _until_known(self.ctx, lambda: self.journal.settle(self.claim, "late", 1), "settle")
        self.ctx.saw("landed late", int(receipt is not None))
        batch = make_batch("instead") if receipt is None else make_batch("next")
        base = 1 if receipt is None else receipt.last_seq
        _until_known(self.ctx, lambda: self.journal.append(self.claim, batch, base), "append")
        late = [] if receipt is None else [(2, "late.1"), (3, "late.2")]
        self.wanted = [*late, (base + 1, f"{batch.batch_id}.1")]
