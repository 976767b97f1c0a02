"""Level 4: a process that opens, closes and fails a thousand times holds what it held before (ERR-4)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Final, cast

from statebook.capabilities import Sharing
from statebook.keys import StateKey
from statebook_conformance.context import Context
from statebook_conformance.leaks import SETTLE_S
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch, thread

OPENS: Final = 1_000
FAILURES: Final = 1_000
_WORKERS: Final = "statebook_conformance.workers_operable"
_WORKER_S: Final = 100.0
_FREE_S: Final = 15.0
_WARM: Final = 5
_PROXIED: Final = 50
_POLL_S: Final = 0.02
_KEY: Final = thread("kept")
_SLOT: Final = StateKey("user", "session", "kept")


def _params(ctx: Context, directory: str, count: int) -> dict[str, str | int]:
    return {"target": ctx.target.text, "namespace": ctx.namespace, "directory": directory, "count": count}


def _nothing_left(ctx: Context, answer: Mapping[str, object], what: str) -> None:
    beyond = cast("Sequence[str]", answer["beyond"])
    ctx.check(not beyond, f"after {answer['count']} {what}: {'; '.join(beyond)}")
    ctx.saw(what, cast("int", answer["count"]))


@rule(
    "ERR-4.no-leak-of-opens",
    level=4,
    hint="close() leaves a connection, a thread or a registration behind, or a probe at open leaves a file",
    kills=(
        "connection-left-at-close",
        "file-left-at-close",
        "thread-left-at-close",
        "temporary-file-left",
        "handle-kept-for-ever",
        "process-left-at-close",
    ),
    floor={"opens and closes": OPENS},
    timeout_s=120.0,
)
def opens(ctx: Context) -> None:
    """After 1,000 opens and closes a process holds no descriptor, thread, child, temporary file or handle more.

    All kinds of stores are opened in turn in a process of their own, each makes a call and is closed, beside two
    handles that stay open. What is held after the first rounds, when pools and caches are full, is what is held at the
    end; of objects in memory there may be one more for two opens. A server has no more connections, as a proxy before
    it sees: a process may keep some for the next store, not one for each.
    """
    with tempfile.TemporaryDirectory(prefix="statebook-leaks-") as directory:
        child = ctx.spawn(f"{_WORKERS}:open_and_close", _params(ctx, directory, OPENS))
        answer = cast("Mapping[str, object]", child.result(timeout_s=_WORKER_S))
        _nothing_left(ctx, answer, "opens and closes")
    _server_is_left(ctx)


def _server_is_left(ctx: Context) -> None:
    """Stores are opened and closed through a proxy that sees each connection from the server's side."""
    network = ctx.network()
    _open_and_close(ctx, _WARM)
    kept = network.counts.open
    _open_and_close(ctx, _PROXIED)
    deadline = time.monotonic() + SETTLE_S
    while network.counts.open > kept and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    counts = network.counts
    ctx.check(
        counts.open <= kept,
        f"a server has {counts.open} connections after {_PROXIED} opens and closes of two stores, {kept} before",
    )
    ctx.saw("connections to a server", counts.connections)
    ctx.saw("connections kept by the process", counts.open)


def _open_and_close(ctx: Context, rounds: int) -> None:
    for _ in range(rounds):
        journal, state = ctx.backend.open_journal(), ctx.backend.open_state()
        journal.head(_KEY)
        state.load(_SLOT)
        journal.close()
        state.close()


@rule(
    "ERR-4.no-leak-of-failures",
    level=4,
    hint="an error takes a way out on which a connection, a lock, a transaction or a half-open store is not given back",
    kills=(
        "file-left-after-a-failure",
        "lock-left-after-a-failure",
        "refused-open-stays-open",
        "thread-left-after-a-failure",
    ),
    floor={"failing calls": FAILURES},
    timeout_s=120.0,
)
def failures(ctx: Context) -> None:
    """After 1,000 failing calls and opens a process holds nothing more, and others can write at once.

    Conflicts, fenced writers and cursors, reads beyond the end, refused options and wishes, cancelled waiters, calls
    on closed handles, in turn, through handles that stay open and through fresh ones. Then a second handle of that
    process, and where the store is shared another process, claims, appends and saves.

    Cases: 38.
    """
    with tempfile.TemporaryDirectory(prefix="statebook-leaks-") as directory:
        child = ctx.spawn(f"{_WORKERS}:fail_and_fail", _params(ctx, directory, FAILURES))
        answer = child.wait_for("failed so often", timeout_s=_WORKER_S)
        ctx.equal(answer["wrong"], [], "calls that must fail, and did not")
        _nothing_left(ctx, answer, "failing calls")
        ctx.equal(answer["free"], "", "what a second handle is told that writes after them")
        if ctx.claims(Sharing.HOST):
            _another_process_writes(ctx)
        child.tell({"seen": True})
        child.result()
        ctx.saw("kinds of failures", cast("int", answer["kinds"]))


def _another_process_writes(ctx: Context) -> None:
    """This process writes beside the handles that have failed and are still open."""
    journal, state = ctx.open_journal(), ctx.open_state()
    started = time.monotonic()
    claim = journal.claim(_KEY, "another process")
    journal.append(claim, make_batch("another"), claim.last_seq)
    state.save(_SLOT, b"4")
    took = time.monotonic() - started
    ctx.check(took < _FREE_S, f"another process had to wait {took:.1f} s to write: something is still held")
