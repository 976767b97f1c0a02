"""ATOM: one head and immutable blobs a scope, one caller at a time. For backends that have an atomic storage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage
from statebook.capabilities import Feature
from statebook.errors import DataError, LimitExceeded, StatebookError, StoreClosed
from statebook_conformance.context import Context
from statebook_conformance.rule import rule

_SCOPE: Final = "t/u/a/s/thread"


def committed(
    ctx: Context,
    atomic: AtomicJournalStorage,
    scope: str,
    expected: str | None,
    head: bytes,
    blobs: dict[str, bytes] | None = None,
) -> str:
    """Commit where nobody is in the way; a conflict fails the rule."""
    token = atomic.commit(scope, expected, head, blobs)
    ctx.check(isinstance(token, str) and token, f"a commit of {scope} with the current token gave {token!r}")
    return str(token)


def _head(atomic: AtomicJournalStorage, scope: str) -> tuple[bytes, str] | None:
    found = atomic.read_head(scope)
    return None if found is None else (found.data, found.token)


@rule(
    "ATOM-1.condition",
    level=1,
    part="atomic",
    hint="the head is replaced whatever the token is, or a create replaces what is there",
    kills=("commit-ignores-token", "create-overwrites", "commit-conflict-but-written"),
)
def condition(ctx: Context) -> None:
    """A commit replaces the head iff its token is the current one, None meaning that there is no head; else nothing.

    Cases: 1, 36.
    """
    atomic = ctx.atomic
    ctx.equal(atomic.read_head(_SCOPE), None, "the head of a scope that was never written")

    def conflicts(expected: str | None, what: str) -> None:
        before = _head(atomic, _SCOPE)
        ctx.equal(atomic.commit(_SCOPE, expected, b"refused"), COMMIT_CONFLICT, what)
        ctx.equal(_head(atomic, _SCOPE), before, f"the head after {what}")

    conflicts("no-token-of-ours", "a commit with a token where there is no head")
    first = committed(ctx, atomic, _SCOPE, None, b"1")
    ctx.equal(_head(atomic, _SCOPE), (b"1", first), "head and token after the first commit")
    conflicts(None, "a create where there is a head")
    conflicts("no-token-of-ours", "a commit with a made-up token")
    second = committed(ctx, atomic, _SCOPE, first, b"2")
    conflicts(first, "a commit with the token before")
    other = committed(ctx, atomic, _SCOPE + "2", None, b"other")
    conflicts(other, "a commit with another scope's token")
    third = committed(ctx, ctx.open_atomic(), _SCOPE, second, b"\x00\xff" * 1_000)
    ctx.equal(_head(atomic, _SCOPE), (b"\x00\xff" * 1_000, third), "the head that another handle has committed")
    committed(ctx, atomic, _SCOPE, third, b"")
    found = atomic.read_head(_SCOPE)
    ctx.equal(None if found is None else found.data, b"", "an empty head")


@rule(
    "ATOM-2.token",
    level=1,
    part="atomic",
    hint="the token is a digest of the content or a counter that starts again; put a fresh nonce into each write",
    kills=("token-by-content", "token-restarts"),
)
def token(ctx: Context) -> None:
    """A token names a write and never repeats: not for equal bytes, not for A, B, A, not after the head was removed.

    Cases: 5, 46.
    """
    atomic, other = ctx.atomic, ctx.open_atomic()
    tokens: list[str] = []
    current: str | None = None
    for data in (b"A", b"B", b"A", b"A", b"B", b"A"):
        current = committed(ctx, atomic if len(tokens) % 2 else other, _SCOPE, current, data)
        tokens.append(current)
    for stale in tokens[:-1]:
        ctx.equal(atomic.commit(_SCOPE, stale, b"stale"), COMMIT_CONFLICT, "a commit with a stale token of equal bytes")
    ctx.equal(_head(atomic, _SCOPE), (b"A", tokens[-1]), "the head after commits with stale tokens")
    if ctx.claims(Feature.PURGE):
        for _ in range(3):
            last = tokens[-1]
            ctx.equal(atomic.delete_head(_SCOPE, "no-token-of-ours"), False, "removing a head with a made-up token")
            ctx.equal(atomic.delete_head(_SCOPE, last), True, "removing the head with its token")
            ctx.equal(atomic.read_head(_SCOPE), None, "the head after it was removed")
            ctx.equal(atomic.delete_head(_SCOPE, last), False, "removing the head again")
            ctx.equal(atomic.commit(_SCOPE, last, b"A"), COMMIT_CONFLICT, "a commit with the removed head's token")
            tokens.append(committed(ctx, other, _SCOPE, None, b"A"))
            ctx.equal(atomic.commit(_SCOPE, last, b"B"), COMMIT_CONFLICT, "a commit with an earlier life's token")
    ctx.check(len(set(tokens)) == len(tokens), f"a token was given out twice: {tokens}")


@rule(
    "ATOM-3.blobs",
    level=1,
    part="atomic",
    hint="blobs are written after the head, in the background, or not at all where they are empty",
    kills=("blobs-lost", "empty-blob-dropped"),
)
def blobs(ctx: Context) -> None:
    """When a commit has returned, its blobs are readable byte for byte by every handle; a failed one's do no harm."""
    atomic, other = ctx.atomic, ctx.open_atomic()
    contents = {
        "g1-a": b"",
        "g1-b": b"\0",
        "g1-c": bytes(range(256)) * 300,
        "g1-d": b"plain",
        "g1-" + "x" * 61: b"long name",
    }
    first = committed(ctx, atomic, _SCOPE, None, b"1", contents)
    for name, content in contents.items():
        ctx.equal(other.read_blob(_SCOPE, name), content, f"blob {name} of {len(content)} bytes")
    ctx.equal(other.list_blobs(_SCOPE, None, 100).names, tuple(sorted(contents)), "the blobs listed")
    ctx.equal(other.read_blob(_SCOPE, "g1-e"), None, "a blob that was never written")
    ctx.equal(other.read_blob(_SCOPE + "2", "g1-a"), None, "a blob of another scope")
    answer = other.commit(_SCOPE, "no-token-of-ours", b"failed", {"g2-f": b"left behind"})
    ctx.equal(answer, COMMIT_CONFLICT, "a commit with blobs and a wrong token")
    ctx.equal(_head(atomic, _SCOPE), (b"1", first), "the head after the failed commit")
    left = atomic.read_blob(_SCOPE, "g2-f")
    ctx.check(left in (None, b"left behind"), f"a failed commit's blob is neither whole nor absent: {left!r}")
    second = committed(ctx, atomic, _SCOPE, first, b"2", {"g2-f": b"left behind"})
    ctx.equal(other.read_blob(_SCOPE, "g2-f"), b"left behind", "a blob that a failed commit may have left before")
    for name, content in contents.items():
        ctx.equal(other.read_blob(_SCOPE, name), content, f"blob {name} after the next commit")
    ctx.equal(_head(other, _SCOPE), (b"2", second), "the head at the end")


@rule(
    "ATOM-4.immutable",
    level=1,
    part="atomic",
    hint="a blob is put without a condition, or its content is tested for truth",
    kills=("blob-overwritten", "empty-blob-overwritten"),
)
def immutable(ctx: Context) -> None:
    """A blob's name with the same bytes is a no-op, with other bytes the commit fails; empty content included."""
    atomic = ctx.atomic
    last = committed(ctx, atomic, _SCOPE, None, b"1", {"full": b"content", "empty": b""})
    last = committed(ctx, atomic, _SCOPE, last, b"2", {"full": b"content", "empty": b""})
    for name, held, other in (
        ("full", b"content", b"other"),
        ("full", b"content", b""),
        ("full", b"content", b"contend"),
        ("full", b"content", b"content "),
        ("empty", b"", b"other"),
        ("empty", b"", b"\0"),
    ):
        call = partial(atomic.commit, _SCOPE, last, b"refused", {"new": b"new", name: other})
        ctx.raises(DataError, call, f"a commit that brings other bytes for blob {name}")
        ctx.equal(atomic.read_blob(_SCOPE, name), held, f"blob {name} after the refused commit")
        ctx.equal(_head(atomic, _SCOPE), (b"2", last), "the head after the refused commit")
    committed(ctx, atomic, _SCOPE, last, b"3", {"full": b"content", "later": b"x"})
    ctx.equal(atomic.read_blob(_SCOPE, "later"), b"x", "a new blob beside one that was there")


@rule(
    "ATOM-5.fresh",
    level=1,
    part="atomic",
    hint="the client caches heads, or reads a replica or an old snapshot",
    kills=("stale-head",),
)
def fresh(ctx: Context) -> None:
    """A handle that has read sees at its next call what another handle has committed.

    Cases: 33, 35.
    """
    reader, writer = ctx.open_atomic(), ctx.open_atomic()
    current: str | None = None
    for index in range(30):
        before = None if current is None else b"%d" % (index - 1)
        found = reader.read_head(_SCOPE)
        ctx.equal(None if found is None else found.data, before, f"the head before commit {index}")
        current = committed(ctx, writer, _SCOPE, current, b"%d" % index, {f"b{index:02d}": b"x"})
        ctx.equal(_head(reader, _SCOPE), (b"%d" % index, current), f"the head after commit {index} of another handle")
        ctx.equal(len(reader.list_blobs(_SCOPE, None, 100).names), index + 1, "blobs that the reader lists")
        ctx.equal(reader.list_scopes("t/", None, 10).names, (_SCOPE,), "scopes that the reader lists")


@rule(
    "VAL-4.atomic",
    level=1,
    part="atomic",
    hint="what the medium cannot take is found out by an error of the driver in the middle of the commit",
    kills=("blobs-cut",),
)
def large(ctx: Context) -> None:
    """Heads and blobs of the sizes that core writes are stored whole, or LimitExceeded changes nothing.

    Cases: 25.
    """
    atomic = ctx.atomic
    last = committed(ctx, atomic, _SCOPE, None, b"0")
    for size in (1, 65_535, 65_536, 128 * 1024, 1 << 20, 5 << 20):
        data = (b"%d-" % size) * (size // 4 + 1)
        blob = data[:size]
        head = data[: min(size, 256 * 1024)]
        before = _head(atomic, _SCOPE)
        try:
            answer = atomic.commit(_SCOPE, last, head, {f"blob-{size}": blob})
        except LimitExceeded:
            ctx.equal(_head(atomic, _SCOPE), before, f"the head after a blob of {size} bytes was refused")
            ctx.saw("sizes refused")
            continue
        ctx.check(isinstance(answer, str), f"a commit with a blob of {size} bytes conflicts with nobody")
        last = str(answer)
        ctx.check(_head(atomic, _SCOPE) == (head, last), f"a head of {len(head)} bytes came back changed")
        ctx.check(atomic.read_blob(_SCOPE, f"blob-{size}") == blob, f"a blob of {size} bytes came back changed")


@rule(
    "ERR-5.atomic",
    level=1,
    part="atomic",
    hint="close() only drops the connection and the next call quietly makes a new one",
    kills=("atomic-works-after-close",),
)
def closed(ctx: Context) -> None:
    """Any call on a closed atomic storage is StoreClosed; closing twice is harmless."""
    atomic = ctx.open_atomic()
    last = committed(ctx, atomic, _SCOPE, None, b"1", {"blob": b"1"})
    atomic.close()
    atomic.close()
    calls: dict[str, Callable[[], object]] = {
        "read_head": lambda: atomic.read_head(_SCOPE),
        "commit": lambda: atomic.commit(_SCOPE, last, b"2"),
        "read_blob": lambda: atomic.read_blob(_SCOPE, "blob"),
        "list_blobs": lambda: atomic.list_blobs(_SCOPE, None, 10),
        "delete_blobs": lambda: atomic.delete_blobs(_SCOPE, ("blob",)),
        "list_scopes": lambda: atomic.list_scopes("", None, 10),
    }
    for name, call in calls.items():
        ctx.raises(StoreClosed, call, f"{name} on a closed storage")
    other = ctx.open_atomic()
    ctx.equal(_head(other, _SCOPE), (b"1", last), "the head after calls on a closed storage")
    ctx.equal(other.read_blob(_SCOPE, "blob"), b"1", "the blob after calls on a closed storage")
    if not ctx.claims(Feature.PURGE):
        ctx.raises(StatebookError, lambda: other.delete_head(_SCOPE, last), "delete_head, which is not declared")
        ctx.equal(_head(other, _SCOPE), (b"1", last), "the head after a refused delete_head")
