"""Level 3: each message of each call is lost, cut, reset, kept and dripped; the next call works all the same."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from statebook.capabilities import Sharing
from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError
from statebook_conformance.acts import Act, Appending, World
from statebook_conformance.acts_all import EVERY, WRITES, Listing, Reading, Saving
from statebook_conformance.context import Context, Inconclusive, NotClaimed
from statebook_conformance.fault_clients import FaultyWriter, kept, settle_accounts
from statebook_conformance.faults.network import Network
from statebook_conformance.faults.plans import (
    NO_FAULT,
    Plan,
    black_hole,
    cut_reply,
    cut_request,
    delay,
    drip,
    http_answer,
    reset,
    seeded,
)
from statebook_conformance.journal_clients import judge, make
from statebook_conformance.past import Observer
from statebook_conformance.rule import rule
from statebook_conformance.scenes import thread

_HTTP: Final = b" HTTP/1."
_MESSAGES_MAX: Final = 40
_DEADLINE_S: Final = 60.0
_NEXT_S: Final = 15.0
_STORM_BATCHES: Final = 25
_STORM_WRITERS: Final = 4
_STORM_S: Final = 60.0


def _warm(ctx: Context, network: Network, acts: Sequence[Act]) -> None:
    """Make each call once without a fault; a store that makes no connection here is not what these rules are about."""
    for act in acts:
        act.prepare()
        if not act.attempt("no fault"):
            ctx.fail(f"{act.name} fails without a fault")
    if not network.counts.requests:
        raise Inconclusive("no connection of the store was seen: it does not use Python's sockets, or shares old ones")


def _sweep(ctx: Context, network: Network, act: Act, fault: Plan) -> None:
    """Have the fault happen to the first message of the act's call, to the second, and so on to the last."""
    for place in range(_MESSAGES_MAX):
        act.prepare()
        before = network.counts.faults
        network.next(*[msgspec.structs.replace(NO_FAULT, match=fault.match)] * place, fault)
        succeeded = act.attempt(f"{fault.action.value} of message {place + 1}")
        happened = network.counts.faults > before
        network.clear()
        if not happened:
            ctx.check(succeeded, f"{act.name} fails where nothing happened to it")
            return
        ctx.saw("faults")
    raise Inconclusive(f"{act.name} takes more than {_MESSAGES_MAX} messages")


def _swept(ctx: Context, kinds: Sequence[type[Act]], faults: Sequence[Plan]) -> None:
    observer = Observer(ctx)
    network = ctx.network()
    world = World(ctx, observer)
    acts = [kind(world) for kind in kinds]
    _warm(ctx, network, acts)
    for act in acts:
        for fault in faults:
            for _ in range(ctx.effort):
                _sweep(ctx, network, act, fault)


@rule(
    "ERR-2.lost-reply",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="a lost reply is taken for a refusal, or a write is sent again and meets its own success",
    kills=("lost-reply-is-a-refusal", "keeps-a-broken-connection"),
    floor={"faults": 16},
    timeout_s=150.0,
)
def lost_reply(ctx: Context) -> None:
    """The reply to any message of any write is lost or cut: the outcome is told as it is, and the next call works.

    Cases: 32, 43, 44.
    """
    _swept(ctx, WRITES, (cut_reply(), cut_reply(after=7)))


@rule(
    "ERR-2.lost-request",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="a request that was cut is taken for applied, or what is left of it stays in the connection",
    kills=("ignores-a-lost-request",),
    floor={"faults": 24},
    timeout_s=150.0,
)
def lost_request(ctx: Context) -> None:
    """Any message of any write is cut, whole or behind some bytes, or reset: absent or unknown, and the next works.

    Cases: 32, 43.
    """
    _swept(ctx, WRITES, (cut_request(), cut_request(after=21), reset()))


@rule(
    "READ-2.lost-reply",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="a reply that was cut is taken for a whole one, or for an empty store",
    kills=("cut-reply-is-empty",),
    floor={"faults": 8},
    timeout_s=120.0,
)
def lost_page(ctx: Context) -> None:
    """Replies to reads are cut at many places: what comes back is right, or the read is refused; never less.

    Cases: 32.
    """
    observer = Observer(ctx)
    network = ctx.network()
    act = Reading(World(ctx, observer))
    _warm(ctx, network, (act, act, act))
    for fault in (cut_reply(), reset(), *(cut_reply(after=size) for size in (1, 12, 150, 1_000, 2_500))):
        for _ in range(3 * ctx.effort):
            _sweep(ctx, network, act, fault)


@rule(
    "ERR-3.sent-once",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="the driver sends a write again by itself after a lost reply, as redis-py and boto3 do by default",
    kills=("driver-sends-a-lost-request-again", "driver-default-retries"),
    floor={"faults": 3, "marks seen": 3},
    timeout_s=120.0,
)
def sent_once(ctx: Context) -> None:
    """A write whose reply is lost is sent to the server once: no driver below the store retries it.

    Cases: 43, 44.
    """
    observer = Observer(ctx)
    network = ctx.network()
    world = World(ctx, observer)
    for act in (Appending(world), Saving(world), Listing(world)):
        _warm(ctx, network, (act,))
        seen = 0
        for place in range(_MESSAGES_MAX):
            act.prepare()
            network.fates.watch(act.mark)
            before = network.counts.faults
            network.next(*[NO_FAULT] * place, cut_reply())
            try:
                act.call()
                said: bool | None = True
            except OutcomeUnknown:
                said = None
            except BackendUnavailable:
                said = False
            sent = network.fates.sent(act.mark)
            network.clear()
            ctx.check(sent <= 1, f"one {act.name} was sent {sent} times when a reply was lost")
            seen = max(seen, sent)
            act.judge(said, "a lost reply")
            if network.counts.faults == before:
                break
            ctx.saw("faults")
        ctx.saw("marks seen", seen)


@rule(
    "ERR-2.http-answers",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="any answer is taken for success, or a 409 or 5xx for a conflict that somebody else has won",
    kills=("any-answer-is-success",),
    floor={"faults": 20},
    timeout_s=150.0,
)
def http_answers(ctx: Context) -> None:
    """A server that speaks HTTP answers a message with 409, 500, 503 once: nothing is lost, doubled or taken for done.

    Where the server speaks something else, the rule is not claimed. Cases: 45.
    """
    observer = Observer(ctx)
    network = ctx.network()
    network.fates.watch(_HTTP)
    world = World(ctx, observer)
    acts = [kind(world) for kind in WRITES]
    _warm(ctx, network, acts)
    if not network.fates.sent(_HTTP):
        raise NotClaimed("the server does not speak HTTP")
    codes = ((409, b"OperationAborted"), (500, b"InternalError"), (503, b"SlowDown"))
    for act in acts:
        for status, code in codes:
            body = b"<Error><Code>%s</Code><Message>fault</Message></Error>" % code
            _sweep(ctx, network, act, http_answer(status, match=_HTTP, body=body))


@rule(
    "ERR-4.killed-between-calls",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="a connection that ended while it was idle is used for the next call",
    kills=("idle-connection-not-checked",),
    floor={"ended connections": 16},
    timeout_s=120.0,
)
def killed_between_calls(ctx: Context) -> None:
    """All connections end between two calls: the next call, of any kind, works without an error.

    Cases: 32.
    """
    observer = Observer(ctx)
    network = ctx.network()
    world = World(ctx, observer)
    acts = [kind(world) for kind in EVERY]
    _warm(ctx, network, acts)
    for _ in range(2 * ctx.effort):
        for act in acts:
            act.prepare()
            before = network.counts.open
            network.disconnect()
            ctx.saw("ended connections", before)
            ctx.check(act.attempt("connections ended before"), f"{act.name} fails after its idle connection has ended")


@rule(
    "ERR-4.black-hole",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="there is no time-out for a reply, or what was waited for in vain is taken for refused",
    kills=("no-time-out",),
    floor={"black holes": 8},
    timeout_s=240.0,
)
def black_hole_(ctx: Context) -> None:
    """Nothing comes back any more: each call ends within its time-out with the right outcome, and then the next works.

    Some requests still arrive, others do not. The bound is 60 s a call. Cases: 44.
    """
    observer = Observer(ctx)
    network = ctx.network()
    acts = [kind(World(ctx, observer)) for kind in EVERY]
    _warm(ctx, network, acts)
    for act in acts:
        act.prepare()
    holes = (black_hole(delivered=True), black_hole(delivered=False))
    network.fates.follow(seeded(ctx.random, holes, rate=1.0))
    answers = ctx.threads([partial(_timed, ctx, act) for act in acts], timeout_s=_DEADLINE_S + 10)
    network.fates.follow(None)
    for act, (said, seconds) in zip(acts, answers, strict=True):
        ctx.check(seconds < _DEADLINE_S, f"{act.name} took {seconds:.0f} s in a black hole")
        started = time.monotonic()
        act.judge(said, "a black hole")
        took = time.monotonic() - started
        ctx.check(took < _NEXT_S, f"the calls after a black hole took {took:.0f} s")
        ctx.saw("black holes")


def _timed(ctx: Context, act: Act) -> tuple[bool | None, float]:
    started = time.monotonic()
    said: bool | None = True
    try:
        act.call()
    except BackendUnavailable:
        said = False
    except OutcomeUnknown:
        said = None
    except StatebookError as error:
        ctx.fail(f"{act.name} in a black hole: {type(error).__name__}: {error}")
    return said, time.monotonic() - started


@rule(
    "ERR-2.slow-network",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="a reply that arrives in pieces is taken for a whole one",
    kills=("short-reads",),
    floor={"faults": 40},
    timeout_s=120.0,
)
def slow_network(ctx: Context) -> None:
    """Replies arrive some bytes at a time, and requests late: every call works as ever."""
    observer = Observer(ctx)
    network = ctx.network()
    world = World(ctx, observer)
    acts = [kind(world) for kind in EVERY]
    _warm(ctx, network, acts)
    slow = (drip(size=1, delay_s=0.001, growth=2), drip(size=3, delay_s=0.002, growth=5), delay(0.01))
    network.fates.follow(seeded(ctx.random, slow, rate=0.7))
    before = network.counts.faults
    for _ in range(3 * ctx.effort):
        for act in acts:
            act.prepare()
            ctx.check(act.attempt("a slow network"), f"{act.name} fails when its reply is slow")
    ctx.saw("faults", network.counts.faults - before)
    network.fates.follow(None)


# ---------------------------------------------------------------------------------------------------------- a storm


@rule(
    "APPEND-1.storm",
    level=3,
    needs=(Sharing.NETWORK,),
    hint="under many faults at once a batch is lost, doubled, or stored in part",
    kills=("ignores-a-lost-request",),
    floor={"faults": 30, "unknown": 8},
    timeout_s=150.0,
)
def storm(ctx: Context) -> None:
    """Four writers behind a network that fails at random: what was acknowledged is there, once, in order, and no more.

    Cases: 32, 43, 44.
    """
    network = ctx.network()
    recorder = ctx.recorder()
    writers = [FaultyWriter(ctx, recorder, thread(f"storm-{n}"), patience_s=_STORM_S) for n in range(_STORM_WRITERS)]
    faults = (cut_reply(), cut_reply(after=5), cut_request(), cut_request(after=30), reset(), delay(0.005))
    network.fates.follow(seeded(ctx.random, faults, rate=0.15))
    with kept(ctx, recorder):
        ctx.threads([partial(_send, writer, _STORM_BATCHES * ctx.effort) for writer in writers], timeout_s=120.0)
    network.fates.follow(None)
    network.disconnect()
    ctx.saw("faults", network.counts.faults)
    journal = ctx.open_journal()
    judged = partial(judge, ctx, recorder)
    settle_accounts(writers, journal, judged)


def _send(writer: FaultyWriter, batches: int) -> None:
    for number in range(batches):
        writer.send(make(f"b{number}", 1 + number % 3))
