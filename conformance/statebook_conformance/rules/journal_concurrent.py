"""Level 2: many writers of one journal at once, over threads, handles and processes (HEAD, APPEND)."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Final

from statebook.capabilities import Sharing
from statebook.errors import BatchConflict
from statebook.model import Receipt
from statebook_conformance.checkers.history import JsonValue, Operation
from statebook_conformance.context import Context, Unavailable
from statebook_conformance.journal_clients import (
    END,
    JournalClient,
    claim_fields,
    fine_switching,
    judge,
    make,
    poll,
    run_until_end,
    share_claim,
    take_turns,
    undump,
)
from statebook_conformance.processes import Child
from statebook_conformance.rule import rule
from statebook_conformance.writing import thread

_WORKERS: Final = "statebook_conformance.workers_journal"
_STEP_S_MAX: Final = 0.1
_RUN_UP_NS: Final = 30_000_000
_RIGHT: Final = frozenset({"Receipt", "WriterFenced"})


def randomness(ctx: Context, name: str) -> random.Random:
    """Randomness of one client, from the seed of the run."""
    return random.Random(f"{ctx.seed}:{ctx.rule_id}:{name}")


def start(ctx: Context, worker: str, count: int, *, prefix: str = "p", **params: JsonValue) -> tuple[Child, ...]:
    """Start processes of one worker, and wait until all of them are up."""
    children = tuple(
        ctx.spawn(f"{_WORKERS}:{worker}", {"name": f"{prefix}{number}", "seed": ctx.seed, **params})
        for number in range(count)
    )
    for child in children:
        child.wait_for("ready")
    return children


def go(children: tuple[Child, ...]) -> None:
    """Let processes go at one moment: the monotonic clock is the same in all of them."""
    at_ns = time.monotonic_ns() + _RUN_UP_NS
    for child in children:
        child.tell({"at_ns": at_ns})


def pause_within_a_step(ctx: Context, child: Child, steps: int) -> None:
    """Stop a process that announces its steps, at a random moment of one of them.

    Args:
        ctx: The context.
        child: The process.
        steps: How many steps it takes before.
    """
    child.wait_for("step")
    started = time.monotonic()
    for _ in range(steps):
        child.wait_for("step")
    step_s = (time.monotonic() - started) / steps
    time.sleep(ctx.random.random() * min(step_s, _STEP_S_MAX))
    child.pause()


def stoppable() -> None:
    """See that processes can be stopped on this system.

    Raises:
        Unavailable: They cannot.
    """
    if not hasattr(signal, "SIGSTOP"):
        raise Unavailable("processes cannot be stopped on this system; run the suite on Linux or macOS")


def results(children: tuple[Child, ...]) -> list[Mapping[str, JsonValue]]:
    """What the workers gave back, in order; an empty mapping for a worker that gave nothing."""
    values = [child.result() for child in children]
    return [value if isinstance(value, dict) else {} for value in values]


def operations(value: Mapping[str, JsonValue]) -> tuple[Operation, ...]:
    """The operations that a worker recorded."""
    return undump(value["operations"])


def right_answers(ctx: Context, answers: Mapping[str, int]) -> None:
    """Check that writers who claimed got nothing but receipts and fences.

    Raises:
        RuleFailure: There was another answer.
    """
    wrong = sorted(answers.keys() - _RIGHT)
    ctx.check(not wrong, f"an append at the head that its own claim had seen was answered with {', '.join(wrong)}")


def whole(ctx: Context, seen: list[tuple[int, str]], final: list[tuple[int, str]]) -> None:
    """Check that a poller has seen each event once, in order.

    Raises:
        RuleFailure: It has not.
    """
    ctx.check(seen and seen[-1][1].startswith(END), "a poller never saw the last event")
    if seen != final:
        place = next((n for n, pair in enumerate(zip(seen, final, strict=False)) if pair[0] != pair[1]), len(seen))
        ctx.fail(f"a poller saw {seen[place : place + 1]} where the journal has {final[place : place + 1]}")
    ctx.check(True, "")


@rule(
    "APPEND-2.turns-threads",
    level=2,
    hint="the claim is checked before the write and not in it, or seq is given before the commit",
    kills=(
        "fence-before-write",
        "seq-visible-out-of-order",
        "batch-in-parts",
        "driver-sends-again",
        "own-append-is-conflict",
    ),
    floor={"takeovers": 20, "fenced": 10, "overlapping operations": 50, "reads": 50, "replays": 2},
)
def turns_threads(ctx: Context) -> None:
    """Writers that take each other's claim lose nothing, leave nothing of an old epoch, and show no part of a batch.

    Four writers and two readers, half of them on one handle. Cases: 7, 12, 13, 57.
    """
    recorder = ctx.recorder()
    stores = [ctx.journal, ctx.journal, ctx.open_journal(), ctx.open_journal()]
    answers: list[Counter[str]] = []
    first = JournalClient(ctx.journal, recorder, "closer", thread())

    def write(number: int) -> None:
        client = JournalClient(stores[number], recorder, f"w{number}", thread())
        answers.append(take_turns(client, randomness(ctx, client.name), 25 * ctx.effort))

    def read(number: int) -> list[tuple[int, str]]:
        client = JournalClient(stores[number], recorder, f"r{number}", thread())
        return poll(client, randomness(ctx, client.name))

    seen = run_until_end(
        ctx,
        first,
        [partial(write, number) for number in range(4)],
        [partial(read, 0), partial(read, 3)],
    )
    final = first.final(ctx)
    judge(ctx, recorder)
    right_answers(ctx, sum(answers, Counter()))
    for view in seen:
        whole(ctx, view, final)


@rule(
    "APPEND-2.turns-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="the fence, the epoch or the next seq is kept in the process",
    kills=("epoch-in-process", "seq-cached-in-process", "fence-before-write-on-files"),
    floor={"takeovers": 20, "fenced": 10, "overlapping operations": 20, "reads": 50},
)
def turns_processes(ctx: Context) -> None:
    """The same over processes: three writers and a reader in processes of their own, a reader in this one.

    Cases: 7, 13, 28, 30.
    """
    writers = start(ctx, "turns", 3, turns=20 * ctx.effort)
    (far,) = start(ctx, "polling", 1, prefix="far")
    recorder = ctx.recorder()
    closer = JournalClient(ctx.journal, recorder, "closer", thread())
    near = JournalClient(ctx.open_journal(), recorder, "near", thread())
    values: list[Mapping[str, JsonValue]] = []

    def write() -> None:
        values.extend(results(writers))

    go((far, *writers))
    seen = run_until_end(ctx, closer, [write], [lambda: poll(near, randomness(ctx, "near"))])
    (read,) = results((far,))
    final = closer.final(ctx)
    judge(ctx, recorder, [operations(value) for value in (*values, read)])
    answers: Counter[str] = Counter()
    for value in values:
        told = value["answers"]
        answers.update({name: int(str(count)) for name, count in told.items()} if isinstance(told, dict) else {})
    right_answers(ctx, answers)
    for view in seen:
        whole(ctx, view, final)
    ctx.equal(read["seen"], [[seq, event] for seq, event in final], "what a poller in another process saw")


@rule(
    "HEAD-2.one-claim-threads",
    level=2,
    hint="the next seq is read, raised and written back in separate steps",
    kills=("seq-read-then-write",),
    floor={"conflicts": 20, "overlapping operations": 20, "reads": 50},
)
def one_claim_threads(ctx: Context) -> None:
    """Threads that append through one claim at once get each seq once, without a gap, and conflicts say where the head is.

    Eight threads, four handles, two pollers. Cases: 7, 12, 13.
    """  # noqa: E501 (a title is one line)
    recorder = ctx.recorder()
    stores = [ctx.journal, *(ctx.open_journal() for _ in range(3))]
    closer = JournalClient(ctx.journal, recorder, "closer", thread())
    claim = closer.held()

    def write(number: int) -> None:
        client = JournalClient(stores[number % 4], recorder, f"w{number}", thread())
        share_claim(client, claim, randomness(ctx, client.name), 12 * ctx.effort)

    def read(number: int) -> list[tuple[int, str]]:
        client = JournalClient(stores[number], recorder, f"r{number}", thread())
        return poll(client, randomness(ctx, client.name))

    seen = run_until_end(
        ctx,
        closer,
        [partial(write, number) for number in range(8)],
        [partial(read, 0), partial(read, 3)],
    )
    final = closer.final(ctx)
    judge(ctx, recorder)
    for view in seen:
        whole(ctx, view, final)


@rule(
    "HEAD-2.one-claim-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="each process keeps the next seq in its memory, or the engine counts it: AUTO_INCREMENT",
    kills=("seq-cached-in-process", "seq-from-auto-increment"),
    floor={"conflicts": 5, "overlapping operations": 20},
)
def one_claim_processes(ctx: Context) -> None:
    """Processes that append through one claim at once get each seq once, without a gap. Case: 28."""
    recorder = ctx.recorder()
    closer = JournalClient(ctx.journal, recorder, "closer", thread())
    claim = closer.held()
    children = start(ctx, "sharing", 3, claim=claim_fields(claim), appends=50 * ctx.effort)
    go(children)
    values = results(children)
    closer.final(ctx)
    judge(ctx, recorder, [operations(value) for value in values])
    fresh = [
        (item.output["first"], item.output["last"])
        for value in values
        for item in operations(value)
        if isinstance(item.output, dict) and item.output.get("replayed") is False
    ]
    ctx.equal(len(fresh), 3 * 50 * ctx.effort, "how many appends of all processes were acknowledged")
    ctx.equal(len(set(fresh)), len(fresh), "how many different seqs they were given")


@rule(
    "APPEND-1.same-batch-threads",
    level=2,
    hint="the look for the batch id and the write of the batch are two steps",
    kills=("dedupe-check-then-act",),
    floor={"replays": 40, "overlapping operations": 15},
)
def same_batch_threads(ctx: Context) -> None:
    """One batch sent by many threads at once is committed once; all get its receipt, all but one as a replay.

    Where one id is sent with two contents at once, one content wins and the other is a BatchConflict. Cases: 10, 37.
    """
    recorder = ctx.recorder()
    stores = [ctx.journal, ctx.journal, *(ctx.open_journal() for _ in range(4))]
    clients = [JournalClient(store, recorder, f"w{number}", thread()) for number, store in enumerate(stores)]
    claim = clients[0].held()
    base = claim.last_seq
    with fine_switching():
        for turn in range(20 * ctx.effort):
            batch, other = make(f"same-{turn}", 2), make(f"same-{turn}", 3)
            two = turn % 3 == 2
            sent = [other if two and number % 2 else batch for number in range(len(clients))]
            answers = ctx.threads(
                [partial(client.append, claim, item, base) for client, item in zip(clients, sent, strict=True)]
            )
            receipts = [answer for answer in answers if isinstance(answer, Receipt)]
            refused = [answer for answer in answers if not isinstance(answer, Receipt)]
            ctx.equal(
                len({(r.first_seq, r.last_seq, r.digest) for r in receipts}), 1, "different receipts of one batch"
            )
            ctx.equal(sum(not r.replayed for r in receipts), 1, "how many of them committed it")
            ctx.check(
                all(isinstance(error, BatchConflict) for error in refused) and (two or not refused),
                f"a batch that others send as well was refused with {[type(error).__name__ for error in refused]}",
            )
            ctx.equal(len(receipts), len(clients) // 2 if two else len(clients), "how many got a receipt")
            ctx.saw("rival contents", len(refused))
            base = receipts[0].last_seq
    ctx.equal(len(clients[0].final(ctx)), base, "how many events there are")
    judge(ctx, recorder)


@rule(
    "APPEND-1.same-batch-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="receipts are remembered by the process that wrote the batch, not by the store",
    kills=("dedupe-in-process",),
    floor={"replays": 20},
)
def same_batch_processes(ctx: Context) -> None:
    """One batch sent by several processes at once is committed once, and all get its receipt. Cases: 10, 37."""
    recorder = ctx.recorder()
    client = JournalClient(ctx.journal, recorder, "this", thread())
    claim = client.held()
    batches = 30 * ctx.effort
    children = start(ctx, "resending", 3, claim=claim_fields(claim), batches=batches)
    go(children)
    values = results(children)
    ctx.equal(len(client.final(ctx)), 2 * batches, "how many events there are")
    judge(ctx, recorder, [operations(value) for value in values])


@rule(
    "HEAD-2.many-threads",
    level=2,
    hint="one journal's writer waits for, or fails with, another's: a busy error leaks, or a lock is too wide",
    kills=("busy-leaks", "journals-mixed-up"),
    floor={"overlapping operations": 1},
)
def many_threads(ctx: Context) -> None:
    """Sixteen writers on sixteen journals at once, on one handle and on their own, all commit all; nobody is refused.

    Case: 30.
    """
    recorder = ctx.recorder()
    stores = [ctx.journal if number % 2 else ctx.open_journal() for number in range(16)]
    clients = [JournalClient(store, recorder, f"w{n}", thread(f"t{n}")) for n, store in enumerate(stores)]
    appends = 10 * ctx.effort

    def write(client: JournalClient) -> None:
        claim = client.held()
        base = claim.last_seq
        for number in range(appends):
            answer = client.append(claim, make(f"{client.name}-{number}"), base, submission=number)
            if not isinstance(answer, Receipt):
                raise answer
            base = answer.last_seq

    with fine_switching():
        ctx.threads([partial(write, client) for client in clients])
    for client in clients:
        expected = [(number + 1, f"{client.name}-{number}.0") for number in range(appends)]
        ctx.equal(client.final(ctx), expected, f"the events of {client.key.thread_id}")
    spans = sorted((item.call_ns, item.return_ns or 0) for item in recorder.operations())
    ctx.saw("overlapping operations", sum(before[1] > after[0] for before, after in pairwise(spans)))
    judge(ctx, recorder)


@rule(
    "HEAD-2.many-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="`database is locked` or a lock time-out of another process's commit reaches the caller",
    kills=("busy-leaks-between-processes",),
)
def many_processes(ctx: Context) -> None:
    """Four processes that append fifty batches each to journals of their own all commit all. Case: 30."""
    recorder = ctx.recorder()
    children = start(ctx, "own_thread", 4, appends=50)
    go(children)
    values = results(children)
    for number in range(4):
        client = JournalClient(ctx.journal, recorder, f"reader-{number}", thread(f"p{number}"))
        expected = [(place + 1, f"p{number}-{place}.0") for place in range(50)]
        ctx.equal(client.final(ctx), expected, f"the events of {client.key.thread_id}")
    judge(ctx, recorder, [operations(value) for value in values])
