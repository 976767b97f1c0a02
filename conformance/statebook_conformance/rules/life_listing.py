"""LIFE-1: listings are paged, ordered, complete, and never outside their scope."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from statebook.errors import InvalidKey
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope
from statebook_conformance.context import Context
from statebook_conformance.identifiers import telling_ids
from statebook_conformance.rule import rule

_LIMITS: Final = (1, 7, 1_000)
_THREADS: Final = 8


def listed(
    ctx: Context,
    journal: ThreadJournalStore,
    scope: ThreadScope,
    limit: int,
    *,
    between: Callable[[], object] | None = None,
) -> list[ThreadKey]:
    """List a scope page by page, and hold each page against its promises.

    Args:
        ctx: The rule's context.
        journal: The store.
        scope: The scope.
        limit: The page size.
        between: Called between two pages.

    Returns:
        The threads.
    """
    found: list[ThreadKey] = []
    after: ThreadKey | None = None
    while True:
        page = journal.list_threads(scope, after=after, limit=limit)
        ctx.check(len(page.threads) <= limit, f"a page of at most {limit} has {len(page.threads)} threads")
        outside = [key for key in page.threads if not scope.covers(key)]
        ctx.check(not outside, f"the listing of {scope} shows {outside[:1]}")
        for key in page.threads:
            if after is not None and key.name <= after.name:
                ctx.fail(f"the listing shows {key.name!r} after {after.name!r}")
            after = key
        found.extend(page.threads)
        if not page.has_more:
            return found
        if between is not None:
            between()
        ctx.check(page.threads, f"a page of {limit} says that there is more, and is empty")


def create(ctx: Context, keys: Sequence[ThreadKey]) -> None:
    """Make a journal for each key, from a few threads at once through one handle."""
    journal = ctx.journal

    def some(part: Iterable[ThreadKey]) -> None:
        for key in part:
            journal.claim(key, "writer")

    ctx.threads([partial(some, keys[start::_THREADS]) for start in range(min(_THREADS, len(keys)))])


def _expect(ctx: Context, scope: ThreadScope, keys: Iterable[ThreadKey], limits: Sequence[int] = _LIMITS) -> None:
    wanted = sorted((key for key in keys if scope.covers(key)), key=lambda key: key.name)
    for limit in limits:
        found = listed(ctx, ctx.journal, scope, limit)
        if found != wanted:
            lost = [key.name for key in wanted if key not in found]
            more = [key.name for key in found if key not in wanted]
            ctx.fail(f"{scope} in pages of {limit}: {len(lost)} are lost {lost[:3]}, {len(more)} too many {more[:3]}")
        ctx.equal(len(found), len(wanted), f"how many threads {scope} has in pages of {limit}")


@rule(
    "LIFE-1.scopes",
    level=1,
    hint="the scope is matched by a prefix of the name without its end, by a pattern, or under a collation",
    kills=(
        "listing-edge-lost",
        "listing-edge-repeated",
        "listing-prefix-bleed",
        "listing-none-is-everybody",
    ),
)
def scopes(ctx: Context) -> None:
    """Each scope lists its own threads, ordered by name, in pages of any size, with ids as they were given.

    Cases: 16, 18, 19.
    """
    ids = telling_ids()
    keys = [ThreadKey("a", "a", "a", name) for name in ids]
    keys += [ThreadKey(user, "a", "a", "t") for user in (None, *ids[1:])]
    keys += [ThreadKey("a", agent, "a", "t") for agent in ids[1:]]
    keys += [ThreadKey("a", "a", session, "t") for session in ids[1:]]
    keys += [ThreadKey(None, "None", "null", "_n"), ThreadKey("None", "None", "null", "_n")]
    create(ctx, keys)
    _expect(ctx, ThreadScope("a"), keys)
    _expect(ctx, ThreadScope(None), keys)
    for value in ("ab", "a_b", "a%", "*", "x" * 511 + "a", "nobody"):
        _expect(ctx, ThreadScope(value), keys, (1, 1_000))
        _expect(ctx, ThreadScope("a", value), keys, (1_000,))
        _expect(ctx, ThreadScope("a", "a", value), keys, (1_000,))
    _expect(ctx, ThreadScope("a", "a"), keys)
    _expect(ctx, ThreadScope("a", "a", "a"), keys)
    _expect(ctx, ThreadScope(None, "None", "null"), keys, (1_000,))


@rule(
    "LIFE-1.arguments",
    level=1,
    hint="the limit goes to the driver as it is; check it, and `after`, before any I/O",
    kills=("listing-takes-any-limit",),
)
def arguments(ctx: Context) -> None:
    """A limit outside 1 to 10,000 and an `after` outside the scope are ValueError; `after` need not exist.

    Cases: 14.
    """
    journal = ctx.journal
    keys = [ThreadKey("u", "a", "s", name) for name in ("b", "d", "f")]
    create(ctx, keys)
    scope = ThreadScope("u", "a", "s")
    for limit in (-1, 0, 10_001, True):
        ctx.raises(ValueError, partial(journal.list_threads, scope, limit=limit), f"a limit of {limit}")
    for outside in (ThreadKey("u", "a", "other", "b"), ThreadKey(None, "a", "s", "b"), ThreadKey("u", "b", "s", "b")):
        ctx.raises(ValueError, partial(journal.list_threads, scope, after=outside), f"after {outside.name}")
    for after, expected in (("a", keys), ("b", keys[1:]), ("c", keys[1:]), ("ezz", keys[2:]), ("f", []), ("z", [])):
        page = journal.list_threads(scope, after=ThreadKey("u", "a", "s", after), limit=10_000)
        ctx.equal((page.threads, page.has_more), (tuple(expected), False), f"the page after {after!r}")
    ctx.raises(InvalidKey, partial(ThreadScope, "u", None, "s"), "a scope with a session and no agent")


@rule(
    "LIFE-1.tombstones",
    level=1,
    hint="deleted journals are dropped after the page was cut, and a short page counts as the last one",
    kills=("listing-tombstones-cut-pages", "listing-shows-the-deleted"),
)
def tombstones(ctx: Context) -> None:
    """Deleted journals are not listed and cut no page short; a new incarnation is listed again."""
    journal = ctx.journal
    keys = [ThreadKey("u", "a", "s", f"t{number:03}") for number in range(120)]
    create(ctx, keys)
    gone = keys[:60] + keys[65:110]

    def delete(part: Iterable[ThreadKey]) -> None:
        for key in part:
            journal.delete(key)

    ctx.threads([partial(delete, gone[start::_THREADS]) for start in range(_THREADS)])
    left = [key for key in keys if key not in set(gone)]
    _expect(ctx, ThreadScope("u"), left)
    again = keys[40:43]
    create(ctx, again)
    _expect(ctx, ThreadScope("u", "a"), left + again, (7, 1_000))
    other = ctx.open_journal()
    ctx.equal(len(listed(ctx, other, ThreadScope("u"), 7)), len(left) + 3, "threads that another handle lists")


@rule(
    "LIFE-1.complete",
    level=1,
    hint="the driver pages by itself, usually at 1,000, and only its first page is read",
    kills=("listing-threads-stops-at-1000",),
)
def more_than_a_page(ctx: Context) -> None:
    """1,010 threads come back as 1,010, in one page and in several.

    Cases: 14.
    """
    keys = [ThreadKey("u", "a", f"s{number % 3}", f"t{number:04}") for number in range(1_010)]
    create(ctx, keys)
    _expect(ctx, ThreadScope("u"), keys, (10_000, 1_000))


@rule(
    "LIFE-1.beside-writers",
    level=2,
    hint="pages are cut by offset, or from a snapshot that writers move; page by the name of the last thread",
    kills=("listing-pages-by-offset",),
    floor={"listings": 5, "threads that came and went": 20},
)
def beside_writers(ctx: Context) -> None:
    """Threads that were there throughout are listed exactly once, whatever comes and goes beside the listing.

    Cases: 15.
    """
    stable = [ThreadKey("u", "a", "s", f"t{number:03}-stable") for number in range(60)]
    create(ctx, stable)
    done = threading.Event()
    writer, rounds = ctx.open_journal(), 20 * ctx.effort

    def come_and_go() -> None:
        try:
            for number in range(rounds):
                key = ThreadKey("u", "a", "s", f"t{number * 7 % 60:03}-{number}")
                writer.claim(key, "writer")
                writer.delete(key)
                ctx.saw("threads that came and went")
        finally:
            done.set()

    def appear() -> None:
        ctx.journal.claim(ThreadKey("u", "a", "s", f"a{ctx.evidence['threads that appeared']:04}"), "writer")
        ctx.saw("threads that appeared")

    def list_all() -> None:
        while True:
            last = done.is_set()
            found = listed(ctx, ctx.journal, ThreadScope("u"), 7, between=appear)
            ctx.equal([key for key in found if key in set(stable)], stable, "the threads that were there throughout")
            ctx.saw("listings")
            if last and ctx.evidence["listings"] >= 5:
                return

    ctx.threads([come_and_go, list_all])
