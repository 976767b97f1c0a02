"""Level 2: claims at once, and writers that meet a takeover: in threads, in processes, stopped by a signal (CLAIM)."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Final

from statebook.capabilities import Sharing
from statebook.errors import StatebookError, WriterBusy, WriterFenced
from statebook.keys import ThreadScope
from statebook.model import NONE, ClaimInfo, Receipt, WriterClaim
from statebook_conformance.checkers.history import JsonValue, merge
from statebook_conformance.context import Context
from statebook_conformance.journal_clients import (
    JournalClient,
    claim_fields,
    claim_of,
    fine_switching,
    judge,
    make,
    undump,
)
from statebook_conformance.processes import Child
from statebook_conformance.rule import rule
from statebook_conformance.rules.journal_concurrent import (
    go,
    operations,
    pause_within_a_step,
    results,
    start,
    stoppable,
)
from statebook_conformance.walking import all_threads
from statebook_conformance.writing import thread

_PAUSES: Final = 12
_TRIES_MAX: Final = 40
_STANDS_S: Final = 0.3
"""How long a takeover may wait for a stopped writer that holds a lock of the engine's own, before it is let go on."""


def _one_winner(ctx: Context, answers: list[WriterClaim | WriterBusy | None], what: str) -> WriterClaim:
    """Check that exactly one claim succeeded, and that the others name it as the holder.

    Raises:
        RuleFailure: None or several did, or a loser names somebody else.
    """
    won = [answer for answer in answers if isinstance(answer, WriterClaim)]
    ctx.equal(len(won), 1, f"how many of {len(answers)} claims on condition that {what} succeeded at once")
    for answer in answers:
        if isinstance(answer, WriterBusy):
            ctx.equal(answer.holder, won[0].info, "the holder that a refused claim names")
    return won[0]


def _busy_or_claim(answer: WriterClaim | StatebookError) -> WriterClaim | WriterBusy | None:
    return answer if isinstance(answer, (WriterClaim, WriterBusy)) else None


@rule(
    "CLAIM-1.race-threads",
    level=2,
    hint="the epoch is read, raised and written back in separate steps",
    kills=("epoch-read-then-write",),
    floor={"overlapping operations": 10, "takeovers": 100},
)
def race_threads(ctx: Context) -> None:
    """Claims made at once all succeed, one after the other: each gets an epoch of its own, and epochs grow in time.

    Case: 5.
    """
    recorder = ctx.recorder()
    stores = [ctx.journal, ctx.journal, ctx.open_journal(), ctx.open_journal()]
    claims = 25 * ctx.effort

    def claim(number: int) -> list[WriterClaim]:
        client = JournalClient(stores[number % 4], recorder, f"w{number}", thread())
        got: list[WriterClaim] = []
        for number in range(claims):
            got.append(client.held())
            time.sleep(0.0002 if number % 5 == 0 else 0)
        return got

    with fine_switching():
        got = [item for part in ctx.threads([partial(claim, number) for number in range(8)]) for item in part]
    ctx.equal(sorted(item.epoch for item in got), list(range(1, 8 * claims + 1)), "the epochs that were given out")
    ctx.equal(len({item.nonce for item in got}), len(got), "how many different nonces they have")
    ctx.equal(len({item.journal_id for item in got}), 1, "how many journals there are")
    head = ctx.open_journal().head(thread())
    newest = max(got, key=lambda item: item.epoch)
    ctx.check(head is not None and head.claim == newest.info, "the newest epoch is not the one that holds the journal")
    judge(ctx, recorder)


@rule(
    "CLAIM-1.only-if-free-threads",
    level=2,
    hint="replacing=NONE looks whether the journal is free, and claims it in a second step",
    kills=("free-check-then-act",),
    floor={"refused claims": 100},
)
def only_if_free_threads(ctx: Context) -> None:
    """Of claims made at once on a free journal with replacing=NONE exactly one succeeds; the others name the winner.

    On a journal that was never written, and on one that was given back.
    """
    stores = [ctx.journal, ctx.journal, *(ctx.open_journal() for _ in range(4))]
    recorder = ctx.recorder()
    with fine_switching():
        for turn in range(20 * ctx.effort):
            key = thread() if turn % 2 else thread(f"new-{turn}")
            clients = [JournalClient(store, recorder, f"w{n}", key) for n, store in enumerate(stores)]
            answers = ctx.threads([partial(client.claim, NONE) for client in clients])
            won = _one_winner(ctx, [_busy_or_claim(answer) for answer in answers], "nobody holds the journal")
            ctx.saw("refused claims", sum(isinstance(answer, WriterBusy) for answer in answers))
            receipt = ctx.journal.append(won, make(f"b{turn}"), won.last_seq)
            ctx.equal(receipt.epoch, won.epoch, "the epoch of what the winner appended")
            ctx.check(clients[answers.index(won)].release(won), "the winner was fenced by claims that were refused")
    ctx.judge(merge(ctx.header("fencing"), [recorder.operations()]))


@rule(
    "CLAIM-1.observers-threads",
    level=2,
    hint="replacing=claim compares the holder before the claim and not in it",
    kills=("replacing-check-then-act", "replacing-ignored"),
    floor={"refused claims": 60},
)
def observers_threads(ctx: Context) -> None:
    """Of observers that saw one claim and replace it at once exactly one succeeds; an observer of an older one never.

    So a dead writer is replaced once, however many have seen it dead (CLAIM-5).
    """
    stores = [ctx.journal, ctx.journal, *(ctx.open_journal() for _ in range(4))]
    recorder = ctx.recorder()
    clients = [JournalClient(store, recorder, f"w{n}", thread()) for n, store in enumerate(stores)]
    holder = clients[0].held()
    older: ClaimInfo | None = None
    with fine_switching():
        for _ in range(20 * ctx.effort):
            head = clients[1].head()
            ctx.equal(None if head is None else head.claim, holder.info, "the holder that an observer sees")
            seen = [older if older is not None and number == 3 else holder.info for number in range(len(clients))]
            answers = ctx.threads([partial(client.claim, info) for client, info in zip(clients, seen, strict=True)])
            # The observer of an older claim may have been refused before the winner came.
            judged = [_busy_or_claim(answer) for info, answer in zip(seen, answers, strict=True) if info == holder.info]
            ctx.check(
                all(isinstance(answer, WriterBusy) for answer in answers[3:4] if older is not None),
                "an observer of a claim that had been replaced took the journal",
            )
            older, holder = holder.info, _one_winner(ctx, judged, "the same writer holds it")
            ctx.saw("refused claims", sum(isinstance(answer, WriterBusy) for answer in answers))
            ctx.check(holder.epoch == older.epoch + 1, f"epoch {holder.epoch} was given after {older.epoch}")
    ctx.judge(merge(ctx.header("fencing"), [recorder.operations()]))


@rule(
    "CLAIM-1.race-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="the condition is checked against what this process knows, or by a lock of this process",
    kills=("free-check-then-act-on-files", "epoch-in-process"),
    floor={"refused claims": 20},
)
def race_processes(ctx: Context) -> None:
    """Of processes that claim one free journal, or replace one claim, exactly one succeeds; the others name it."""
    children = start(ctx, "racing", 3)
    go(children)
    held: WriterClaim | None = None
    for turn in range(20 * ctx.effort):
        name = f"t{turn // 2}"
        message: dict[str, JsonValue] = {"thread": name}
        if turn % 2 and held is not None:
            message["claim"] = claim_fields(held)
        for child in children:
            child.tell(message)
        answers = [child.wait_for("answer") for child in children]
        won = [claim_of(answer["claim"]) for answer in answers if answer["claim"] is not None]
        ctx.equal(len(won), 1, f"how many of {len(children)} processes won {name}, held by {held and held.writer_id}")
        for answer in answers:
            if answer["claim"] is None:
                ctx.equal(answer["holder"], won[0].nonce, "the nonce of the holder that a refused claim names")
                ctx.saw("refused claims")
        held = won[0]
        ctx.equal(held.epoch, 1 + turn % 2, f"the epoch of the winner of {name}")
        ctx.equal(ctx.journal.append(held, make(f"b{turn}"), held.last_seq).replayed, False, "a replay of a new batch")
    for child in children:
        child.tell({"stop": True})


@rule(
    "CLAIM-1.first-claims-threads",
    level=2,
    hint="the first claim inserts where it found nothing, and fails, or starts a second journal, if another was faster",
    kills=("first-claim-fails", "first-claim-twice"),
)
def first_claims_threads(ctx: Context) -> None:
    """First claims of one new thread, and of many new threads, at once, on handles opened at once, all succeed.

    One new thread is one journal, whoever was first. Cases: 28, 31, 55.
    """
    opened = ctx.threads([ctx.open_journal for _ in range(16)])
    with fine_switching():
        for turn in range(6 * ctx.effort):
            key = thread(f"new-{turn}")
            claims = ctx.threads([partial(store.claim, key, f"w{n}") for n, store in enumerate(opened[:8])])
            ctx.equal(sorted(claim.epoch for claim in claims), list(range(1, 9)), "the epochs of first claims at once")
            ctx.equal(len({claim.journal_id for claim in claims}), 1, "how many journals one new thread has")
            last = max(claims, key=lambda claim: claim.epoch)
            ctx.equal(opened[0].append(last, make("b"), 0).last_seq, 1, "the seq of the first event")
        keys = [[thread(f"many-{number}-{place}") for place in range(5 * ctx.effort)] for number in range(16)]
        ctx.threads(
            [
                partial(lambda store, own: [store.claim(key, "writer") for key in own], store, own)
                for store, own in zip(opened, keys, strict=True)
            ]
        )
    expected = {key for own in keys for key in own} | {thread(f"new-{turn}") for turn in range(6 * ctx.effort)}
    listed = all_threads(ctx.journal, ThreadScope("user"))
    ctx.equal(
        sorted(key.thread_id for key in listed), sorted(key.thread_id for key in expected), "threads that are listed"
    )


@rule(
    "CLAIM-1.first-claims-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="two processes that create at once deadlock, fail, or each get a journal of their own",
    kills=("first-claim-twice-on-files",),
    floor={"overlapping operations": 1},
)
def first_claims_processes(ctx: Context) -> None:
    """The same over processes, each with the first handle of its life. Cases: 28, 31, 55."""
    children = (
        *start(ctx, "claiming", 2, prefix="up", threads="a b c d e f g h", rounds=3 * ctx.effort),
        *start(ctx, "claiming", 2, prefix="down", threads="h g f e d c b a", rounds=3 * ctx.effort),
    )
    go(children)
    values = results(children)
    claims: dict[str, list[WriterClaim]] = {}
    for value in values:
        listed = value["claims"]
        for fields in listed if isinstance(listed, list) else ():
            claim = claim_of(fields)
            claims.setdefault(claim.key.thread_id, []).append(claim)
    for name in "abcdefgh":
        ctx.equal(
            sorted(claim.epoch for claim in claims[name]),
            list(range(1, 12 * ctx.effort + 1)),
            f"the epochs that processes got for thread {name}",
        )
        ctx.equal(len({claim.journal_id for claim in claims[name]}), 1, f"how many journals thread {name} has")
    names = [key.thread_id for key in all_threads(ctx.journal, ThreadScope("user"))]
    ctx.equal(sorted(names), list("abcdefgh"), "the threads that are listed")
    judge(ctx, ctx.recorder(), [operations(value) for value in values])


@rule(
    "CLAIM-4.stale-handles",
    level=2,
    hint="a handle keeps what it has seen of the head, the claim or the newest batches, and trusts it",
    kills=("claim-checked-once", "reload-and-continue"),
    floor={"takeovers": 30, "fenced": 60, "replays": 10},
)
def stale_handles(ctx: Context) -> None:
    """Handles that take a journal from each other answer each call by the head as it is, never as they have seen it.

    Three handles in one thread, a random order of claims, appends, resends, heartbeats, releases and reads. Whoever is
    fenced stays so until it claims again. Cases: 4, 57.
    """
    recorder = ctx.recorder()
    clients = [JournalClient(ctx.open_journal(), recorder, f"h{number}", thread()) for number in range(3)]
    claims = [client.held() for client in clients]
    bases = [claim.last_seq for claim in claims]
    sent: list[tuple[Receipt, int]] = []
    holder: int | None = 2
    for step in range(600 * ctx.effort):
        who = ctx.random.randrange(3)
        client, act = clients[who], ctx.random.choice(("claim", "append", "append", "append", "again", "beat", "look"))
        last = sent[-1][0].last_seq if sent else 0
        if act == "claim":
            claims[who], holder = client.held(), who
            bases[who] = claims[who].last_seq
            ctx.equal(bases[who], last, f"step {step}: the last seq that a claim shows")
        elif act == "append":
            answer = client.append(claims[who], make(f"b{step}", 1 + step % 2), bases[who])
            if holder == who:
                ctx.check(isinstance(answer, Receipt), f"step {step}: the holder's append was answered {answer!r}")
            else:
                fenced = isinstance(answer, WriterFenced) and answer.committed is None
                ctx.check(fenced, f"step {step}: an append through a claim that was taken was answered {answer!r}")
            if isinstance(answer, Receipt):
                sent.append((answer, bases[who]))
                bases[who] = answer.last_seq
        elif act == "again" and sent:
            old, base = ctx.random.choice(sent[-20:])
            answer = client.append(claims[who], make(old.batch_id, old.last_seq - old.first_seq + 1), base)
            found = answer.committed if isinstance(answer, WriterFenced) else answer
            ctx.equal(isinstance(answer, Receipt), holder == who, f"step {step}: whether a resend gave a receipt")
            ctx.check(
                isinstance(found, Receipt) and (found.first_seq, found.replayed) == (old.first_seq, True),
                f"step {step}: a batch that is at {old.first_seq} was answered with {found!r}",
            )
        elif act == "beat":
            ctx.equal(client.heartbeat(claims[who]), holder == who, f"step {step}: whether a heartbeat was taken")
            if holder == who and ctx.random.random() < 0.3:
                ctx.check(client.release(claims[who]), f"step {step}: the holder's release was fenced")
                holder = None
        else:
            head, page = client.head(), client.read(max(0, last - 3), 10)
            ctx.equal(None if head is None else head.last_seq, last, f"step {step}: the last seq of the head")
            ctx.check(not isinstance(page, StatebookError) and page.last_seq == last, f"step {step}: the end of a page")
    clients[0].final(ctx)
    judge(ctx, recorder)


@rule(
    "CLAIM-2.paused-writer",
    level=2,
    needs=(Sharing.HOST,),
    hint="the fence is checked before the write and not in it: a writer that slept in between writes all the same",
    kills=("fence-before-write-on-files", "epoch-in-process", "claim-checked-once-on-files"),
    floor={"takeovers while it stood": 10, "fenced": 10},
    timeout_s=90.0,
)
def paused_writer(ctx: Context) -> None:
    """A writer stopped around its append, while another claims, appends, trims and collects, writes nothing afterwards.

    It runs in another process, is stopped by SIGSTOP before or within an append, and goes on after the takeover. It is
    told WriterFenced, with the receipt where its batch had landed before. Case: 42.
    """
    stoppable()
    (child,) = start(ctx, "stepping", 1)
    go((child,))
    recorder = ctx.recorder()
    client = JournalClient(ctx.journal, recorder, "other", thread())
    stood = 0
    tries = _TRIES_MAX * ctx.effort
    for turn in range(tries):
        child.wait_for("claimed")
        if turn % 3 == 2:
            pause_within_a_step(ctx, child, ctx.random.randint(1, 8))
        else:
            for _ in range(ctx.random.randint(1, 8)):
                child.wait_for("step")
            child.pause()
        free = _take_over(client, child, turn)
        answer = child.wait_for("stopped")["answer"]
        ctx.check(answer in ("WriterFenced", "Receipt"), f"a writer that was stopped across a takeover got {answer}")
        # It may have come to its own end before it was stopped: then there was nothing to be fenced.
        counts = free and answer == "WriterFenced"
        stood += counts
        ctx.saw("takeovers while it stood", counts)
        more = stood < _PAUSES and turn + 1 < tries
        child.tell({"again": more})
        if not more:
            break
    (value,) = results((child,))
    client.final(ctx)
    ctx.equal(ctx.journal.verify(thread(), deep=True).findings, (), "findings of a deep verification")
    judge(ctx, recorder, [undump(value["operations"])])


def _take_over(client: JournalClient, child: Child, turn: int) -> bool:
    """Claim, append, trim and collect while the child stands; True where all of it was done before it went on.

    A writer stopped within a commit may hold a lock of the engine, for which the takeover waits: then it goes on first.
    """
    done = threading.Event()
    errors: list[StatebookError] = []

    def run() -> None:
        try:
            claim = client.held()
            base = claim.last_seq
            for number in range(1 + turn % 3):
                answer = client.append(claim, make(f"other-{turn}-{number}", 2), base, submission=number)
                if not isinstance(answer, Receipt):
                    raise answer
                base = answer.last_seq
            client.trim(max(0, base - 20))
            client.journal.collect(client.key)
        except StatebookError as error:
            errors.append(error)
        finally:
            done.set()

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    free = done.wait(_STANDS_S)
    child.resume()
    worker.join(40.0)
    if errors:
        raise errors[0]
    return free
