"""ATOM-1, -3, -5, -7 under concurrency: one winner a token, heads that are never torn, blobs before heads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, cast

from statebook.atomic import AtomicJournalStorage, CommitConflict
from statebook.capabilities import Sharing
from statebook_conformance.context import Context
from statebook_conformance.registers import quick_switches
from statebook_conformance.rule import rule
from statebook_conformance.rules.atomic import committed
from statebook_conformance.workers_state import SCOPE

_ROUNDS: Final = 200
_READS: Final = 1_000
_WRITES: Final = 60
_ATTEMPTS_MAX: Final = 100_000


def _one_winner(ctx: Context, scope: str, answers: Sequence[str | CommitConflict], what: str) -> str:
    winners = [(index, answer) for index, answer in enumerate(answers) if isinstance(answer, str)]
    ctx.check(len(winners) == 1, f"{what}: {len(winners)} of {len(answers)} racing commits say that they succeeded")
    index, token = winners[0]
    found = ctx.atomic.read_head(scope)
    head = None if found is None else (found.data, found.token)
    ctx.equal(head, (b"c%d" % index, token), f"{what}: head and token after contender {index} has won")
    ctx.saw("conflicts", len(answers) - 1)
    return token


@rule(
    "ATOM-1.one-winner",
    level=2,
    part="atomic",
    hint="the token is compared before the write, not in it",
    kills=("commit-check-then-act",),
    floor={"conflicts": 600},
    timeout_s=90,
)
def one_winner(ctx: Context) -> None:
    """Of commits that race with one token, over threads and handles, exactly one succeeds, 200 times.

    Cases: 1, 36.
    """
    handles = tuple(ctx.open_atomic() for _ in range(3))
    token = committed(ctx, ctx.atomic, SCOPE, None, b"0")
    tokens = {token}
    with quick_switches():
        for number in range(_ROUNDS):
            calls: list[Callable[[], str | CommitConflict]] = [
                partial(handles[index % 3].commit, SCOPE, token, b"c%d" % index, {f"g{number}-{index}": b"blob"})
                for index in range(4)
            ]
            token = _one_winner(ctx, SCOPE, ctx.threads(calls), f"round {number}")
            tokens.add(token)
    ctx.equal(len(tokens), _ROUNDS + 1, "different tokens of all winners")


@rule(
    "ATOM-1.counter-of-processes",
    level=2,
    part="atomic",
    needs=(Sharing.HOST,),
    hint="the condition is kept by a lock of one process",
    kills=("commit-check-then-act-on-disk",),
    floor={"conflicts": 5},
    timeout_s=120,
)
def counter_of_processes(ctx: Context) -> None:
    """A counter in one head that several processes raise by compare-and-set loses no step, and no token repeats.

    Cases: 1, 28.
    """
    commits = 150 * ctx.effort
    children = [ctx.spawn("statebook_conformance.workers_state:count_up", {"commits": commits}) for _ in range(2)]
    for child in children:
        child.wait_for("ready", timeout_s=60)
    for child in children:
        child.tell({"go": True})
    tokens: list[str] = []
    for child in children:
        answer = cast("Mapping[str, object]", child.result(timeout_s=90))
        tokens.extend(cast("Sequence[str]", answer["tokens"]))
        ctx.saw("conflicts", int(cast("int", answer["conflicts"])))
    found = ctx.atomic.read_head(SCOPE)
    ctx.equal(None if found is None else int(found.data), 2 * commits, "the counter after all commits")
    ctx.equal(len(set(tokens)), 2 * commits, "different tokens of all commits")


@rule(
    "ATOM-7.first-opens",
    level=2,
    part="atomic",
    hint="a create is not conditional, or set-up at open is not safe beside other set-ups",
    kills=("create-overwrites", "commit-check-then-act"),
    floor={"conflicts": 60},
)
def first_opens(ctx: Context) -> None:
    """First opens of a new namespace at once all succeed, and of their racing creates exactly one does: none is lost.

    Cases: 31, 36.
    """

    def open_and_create(index: int, number: int) -> str | CommitConflict:
        atomic = ctx.open_atomic()
        try:
            return atomic.commit(f"d/u/s/k{number}", None, b"c%d" % index)
        finally:
            atomic.close()

    with quick_switches():
        for number in range(5):
            answers = ctx.threads([partial(open_and_create, index, number) for index in range(16)])
            _one_winner(ctx, f"d/u/s/k{number}", answers, f"creation {number} by 16 new handles")


class _Ledger:
    """The heads that writers have committed, and those that readers have seen."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.written: dict[str, bytes] = {}
        self.seen: list[tuple[str, bytes]] = []
        self.missing: list[str] = []
        self.stop = threading.Event()


def _write(atomic: AtomicJournalStorage, ledger: _Ledger, name: str) -> None:
    """Commit heads that repeat one number and name a blob, until the readers are done."""
    for number in range(_ATTEMPTS_MAX):
        if ledger.stop.is_set():
            return
        time.sleep(0)
        found = atomic.read_head(SCOPE)
        blob = f"{name}-{number}"
        head = f"{blob};".encode() * (1 + number % 300)
        token = None if found is None else found.token
        answer = atomic.commit(SCOPE, token, head, {blob: blob.encode()})
        if isinstance(answer, str):
            with ledger.lock:
                ledger.written[answer] = head


def _read(atomic: AtomicJournalStorage, ledger: _Ledger) -> None:
    """Read heads, and at once the blob that each one names."""
    try:
        for number in range(_ATTEMPTS_MAX):
            if number >= _READS // 2 and len(ledger.written) >= _WRITES:
                return
            time.sleep(0)
            found = atomic.read_head(SCOPE)
            if found is None:
                continue
            ledger.seen.append((found.token, found.data))
            blob = found.data.partition(b";")[0].decode()
            if atomic.read_blob(SCOPE, blob) != blob.encode():
                ledger.missing.append(blob)
    finally:
        ledger.stop.set()


@rule(
    "ATOM-5.whole",
    level=2,
    part="atomic",
    hint="head and token are read by two commands, or the head is visible before its blobs",
    kills=("torn-head", "blobs-after-head"),
    floor={"heads seen": 10},
    timeout_s=90,
)
def whole(ctx: Context) -> None:
    """Beside writers, 1,000 reads each show one head whole, with its own token, and the blobs that it names are there.

    Cases: 3, 29.
    """
    ledger = _Ledger()
    calls: list[Callable[[], None]] = [partial(_write, ctx.open_atomic(), ledger, f"w{index}") for index in range(2)]
    calls += [partial(_read, ctx.open_atomic(), ledger) for _ in range(2)]
    with quick_switches():
        ctx.threads(calls, timeout_s=80)
    ctx.check(not ledger.missing, f"heads were visible before their blobs: {ledger.missing[:5]}")
    for token, head in ledger.seen:
        parts = set(head.split(b";")) - {b""}
        ctx.check(len(parts) == 1, f"a reader saw a head made of {len(parts)} different ones")
        ctx.check(
            ledger.written.get(token) == head, f"a reader saw the token of one head with the bytes of another: {parts}"
        )
    ctx.saw("heads seen", len({token for token, _ in ledger.seen}))
