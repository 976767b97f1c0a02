"""ATOM-6: listings of scopes and blobs are complete, in order and apart, beyond any driver's page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, cast

from statebook.capabilities import Feature
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.rules.atomic import committed
from statebook_conformance.walking import all_blobs, all_scopes

_SCOPE: Final = "t/u/a/s/thread"
_MANY: Final = 1_200


@rule(
    "ATOM-6.scopes",
    level=1,
    part="atomic",
    hint="prefixes are matched across the separator, or a scope inside of another one's path is lost",
    kills=("scope-prefix-bleed", "scopes-unordered", "scope-edge-lost"),
)
def scopes(ctx: Context) -> None:
    """A listing gives the scopes that start with the prefix, each once, ascending, whatever else is stored.

    Cases: 14, 16, 18.
    """
    atomic = ctx.atomic
    names = (
        *("d/a", "d/a-", "d/a/b", "d/a/b/c", "d/a/bc", "d/a_2fb", "d/ab", "d/ab/c", "d/b", "d/_n/a", "d/_2e_2e"),
        *("da/a", "d-/a", "l/a", "l/a/b", "t/a/b/c/d", "t/ab/b/c/d", "c/a/b/c/d/e", "d/head", "d/blobs/x", "d/con"),
        *("d/" + "x" * 120, "d/" + "x" * 119, "d/0", "d/-"),
    )
    tokens = {name: committed(ctx, atomic, name, None, name.encode(), {"blob": b"1"}) for name in names}
    for prefix in ("", "d/", "d/a/", "d/a/b/", "d/ab/", "t/", "t/a/", "l/", "c/", "da/", "d-/", "x/", "d/x/"):
        expected = tuple(sorted(name for name in names if name.startswith(prefix)))
        for limit in (1, 2, len(expected) or 1, 10_000):
            ctx.equal(all_scopes(atomic, prefix, limit=limit), expected, f"scopes under {prefix!r} in pages of {limit}")
    for name in names:
        found = atomic.read_head(name)
        ctx.equal(None if found is None else found.data, name.encode(), f"the head of {name}")
    page = atomic.list_scopes("d/", "d/a0", 3)
    rest = sorted(name for name in names if name.startswith("d/") and name > "d/a0")
    ctx.equal((page.names, page.has_more), (tuple(rest[:3]), True), "a page behind a scope that was never there")
    if ctx.claims(Feature.PURGE):
        atomic.delete_head("d/a", tokens["d/a"])
        left = tuple(sorted(name for name in names if name.startswith("d/") and name != "d/a"))
        ctx.equal(all_scopes(atomic, "d/"), left, "scopes after one head was removed")


@rule(
    "ATOM-6.limits",
    level=1,
    part="atomic",
    hint="the limit goes to the driver as it is",
    kills=("scope-limit-clamped",),
)
def limits(ctx: Context) -> None:
    """A page's limit is 1 to 10,000, everything else is ValueError.

    Cases: 14.
    """
    committed(ctx, ctx.atomic, _SCOPE, None, b"1")
    for bad in (0, -1, 10_001, None, True, 1.0, "1"):
        limit = cast("int", bad)
        ctx.raises(ValueError, partial(ctx.atomic.list_scopes, "", None, limit), f"list_scopes with limit {bad!r}")
        ctx.raises(ValueError, partial(ctx.atomic.list_blobs, _SCOPE, None, limit), f"list_blobs with limit {bad!r}")
    ctx.equal(ctx.atomic.list_scopes("", None, 10_000).names, (_SCOPE,), "scopes in a page of 10,000")
    ctx.equal(ctx.atomic.list_blobs(_SCOPE, None, 10_000).names, (), "blobs of a scope without blobs")
    ctx.equal(ctx.atomic.list_blobs("t/never", None, 10).names, (), "blobs of a scope that was never written")


@rule(
    "ATOM-6.beyond-a-page",
    level=1,
    part="atomic",
    hint="the driver's page of 1,000, or a SCAN's, is taken for everything",
    kills=("scopes-stop-at-1000",),
    timeout_s=150,
)
def beyond_a_page(ctx: Context) -> None:
    """1,200 scopes are listed to the last one, beyond any driver's page.

    Cases: 14.
    """
    atomic = ctx.atomic
    names = [f"d/u/s/k{index}" for index in range(_MANY)]

    def some(part: int) -> Callable[[], None]:
        def run() -> None:
            for name in names[part::4]:
                committed(ctx, atomic, name, None, b"1")

        return run

    ctx.threads(tuple(some(part) for part in range(4)), timeout_s=120)
    expected = tuple(sorted(names))
    ctx.equal(all_scopes(atomic, "d/"), expected, "1,200 scopes in pages of 1,000")
    page = atomic.list_scopes("d/u/s/", None, 10_000)
    ctx.equal((page.names, page.has_more), (expected, False), "1,200 scopes in one page")


@rule(
    "ATOM-6.blobs",
    level=1,
    part="atomic",
    hint="a delete misses some names, or takes those of another scope along",
    kills=("blob-deletes-missed", "blobs-stop-at-1000"),
    timeout_s=150,
)
def blobs(ctx: Context) -> None:
    """1,200 blobs are listed to the last one; deleted ones are gone, and deleting again is harmless.

    Cases: 14, 20.
    """
    atomic = ctx.atomic
    names = [f"g{index:04d}-x" for index in range(_MANY)]
    last = committed(ctx, atomic, _SCOPE, None, b"1", dict.fromkeys(names[:600], b"x"))
    last = committed(ctx, atomic, _SCOPE, last, b"2", dict.fromkeys(names[600:], b"y"))
    for scope in ("t/u/a/s/thread2", "t/u/a/s/thread/b", "t/u/a/s/t"):
        committed(ctx, atomic, scope, None, b"1", {names[0]: b"other", "zzz": b"other"})
    ctx.equal(all_blobs(atomic, _SCOPE), tuple(names), "1,200 blobs in pages of 1,000")
    ctx.equal(all_blobs(atomic, _SCOPE, limit=7)[:30], tuple(names[:30]), "blobs in pages of 7")
    ctx.equal(atomic.list_blobs(_SCOPE, names[-2], 5).names, (names[-1],), "the last blob")
    atomic.delete_blobs(_SCOPE, (names[0],))
    atomic.delete_blobs(_SCOPE, (names[0], "never-there", *names[2::2]))
    atomic.delete_blobs(_SCOPE, ())
    atomic.delete_blobs("t/never", ("never-there",))
    ctx.equal(all_blobs(atomic, _SCOPE), tuple(names[1::2]), "the blobs that are left")
    ctx.equal(atomic.read_blob(_SCOPE, names[2]), None, "a deleted blob")
    ctx.equal(atomic.read_blob(_SCOPE, names[1]), b"x", "a blob that was not deleted")
    for scope in ("t/u/a/s/thread2", "t/u/a/s/thread/b", "t/u/a/s/t"):
        ctx.equal(atomic.read_blob(scope, names[0]), b"other", f"the blob of the same name of {scope}")
        ctx.equal(all_blobs(atomic, scope), (names[0], "zzz"), f"the blobs of {scope}")
    found = atomic.read_head(_SCOPE)
    ctx.equal(None if found is None else (found.data, found.token), (b"2", last), "the head after its blobs' delete")
