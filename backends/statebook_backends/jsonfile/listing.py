"""Which scopes have a head: a walk over the directories in the order of the scopes' names (ATOM-6)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from statebook_backends.jsonfile.layout import COMPONENT, HEAD, scope_part
from statebook_backends.jsonfile.tree import Directory


def scopes_in(start: Directory | None, prefix: str, after: str | None, limit: int) -> tuple[tuple[str, ...], bool]:
    """List scopes.

    Args:
        start: The directory of the prefix, or None where there is none.
        prefix: The start of all names in that directory: empty, or ending with `/`.
        after: Only greater names; None for all.
        limit: How many at most.

    Returns:
        The scopes, ascending, and whether there are more.
    """
    if start is None:
        return (), False
    found = tuple(islice(_walk(start, prefix, after or ""), limit + 1))
    return found[:limit], len(found) > limit


def _walk(directory: Directory, prefix: str, after: str) -> Iterator[str]:
    """Yield the scopes below a directory in the order of their whole names, entering only what may hold one.

    Each child stands twice among the candidates: as a scope, and, with a `/`, as the start of others. In between may
    come a sibling, since `-` sorts before `/`: `a`, `a-b`, `a-b/c`, `a/c`.
    """
    children = [part for name in directory.names() if (part := scope_part(name)) is not None]
    for candidate in sorted([name + end for name in children for end in ("", "/")]):
        whole = prefix + candidate
        if not candidate.endswith("/"):
            if whole <= after:
                continue
            inner = directory.child(COMPONENT + candidate)
            if inner is not None and inner.has_file(HEAD):
                yield whole
        elif whole > after or after.startswith(whole):
            inner = directory.child(COMPONENT + candidate[:-1])
            if inner is not None:
                yield from _walk(inner, whole, after)
