"""Listing threads: a page of the user's index, and for each entry a look at the head that it names (LIFE-1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from statebook.errors import DataError, InvalidKey, JournalCorrupt
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import ThreadPage
from statebook.records import JournalState
from statebook_backends.redis.layout import member_of, name_of
from statebook_backends.redis.scripts import Call, script

if TYPE_CHECKING:
    from statebook_backends.redis.client import Client

_ids = msgspec.json.Decoder(tuple[str | None, str, str, str])


def list_threads(client: Client, scope: ThreadScope, after: ThreadKey | None, limit: int) -> ThreadPage:
    """List the threads of a scope that have a journal.

    Entries of deleted journals, and those that never came to a head, are skipped.

    Args:
        client: The client.
        scope: The scope.
        after: Only threads behind this one.
        limit: How many.

    Returns:
        A page.

    Raises:
        JournalCorrupt: The index or a head is damaged (FORMAT-1).
        BackendUnavailable: A server does not answer.
    """
    user, _, inside = scope.prefix.partition("/")
    index = client.layout.threads(scope.user_id)
    start = b"[" + inside.encode("ascii") if inside else b"-"
    end = b"(" + inside[:-1].encode("ascii") + b"0" if inside else b"+"
    if after is not None:
        start = b"(" + member_of(after.name.partition("/")[2])
    threads: list[ThreadKey] = []
    wanted = limit + 1
    while True:
        members = client.page(index, start, end, wanted, JournalCorrupt, scope.prefix)
        names = [_name(client, scope, member) for member in members]
        threads += _open_ones(client, [f"{user}/{name}" for name in names])
        if len(threads) > limit or len(members) < wanted:
            return ThreadPage(tuple(threads[:limit]), len(threads) > limit)
        start = b"(" + members[-1]


def _name(client: Client, scope: ThreadScope, member: bytes) -> str:
    name = name_of(member)
    if name is None:
        raise JournalCorrupt(
            "an entry of the listing was changed by hand",
            what="index",
            expected="a name and its check",
            found=repr(member),
            key=scope.prefix,
            backend=client.backend,
        )
    return name


def _open_ones(client: Client, names: list[str]) -> list[ThreadKey]:
    """The threads of those names that have an open journal, in order."""
    calls: list[tuple[int, Call]] = []
    for name in names:
        slot, head = client.layout.head_named(name)
        calls.append((slot, script("listed", 1).call(1, head)))
    found: list[ThreadKey] = []
    for name, fields in zip(names, client.read_all(calls, JournalCorrupt), strict=True):
        if not isinstance(fields, list) or len(fields) != 2 or (fields[0] is None and fields[1] is None):
            continue
        state, ids = fields
        if state == JournalState.DELETED.value.encode("ascii"):
            continue
        try:
            key = ThreadKey(*_ids.decode(ids)) if isinstance(ids, bytes) else None
        except (msgspec.DecodeError, InvalidKey):
            key = None
        if key is None or key.name != name or state != JournalState.OPEN.value.encode("ascii"):
            raise _damaged(client, name, f"{state!r} {ids!r}"[:200])
        found.append(key)
    return found


def _damaged(client: Client, name: str, found: str) -> DataError:
    return JournalCorrupt(
        "a head is damaged, or stands under another thread's name",
        what="head",
        expected=name,
        found=found,
        key=name,
        backend=client.backend,
    )
