"""Listing slots and sessions: pages of indexes in the order of names (STATE-6, STATE-9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from statebook.errors import InvalidKey, StateCorrupt
from statebook.keys import SessionKey, StateKey, decode_name, encode_id, is_digest_name
from statebook.model import KeyPage, SessionPage, SlotKind
from statebook_backends.redis.layout import IndexKeys, member_of, name_of, prefix_of
from statebook_backends.redis.resp import bulk, words_in
from statebook_backends.redis.scripts import script
from statebook_backends.redis.slots import damaged

if TYPE_CHECKING:
    from statebook_backends.redis.client import Client
    from statebook_backends.redis.errors import Reply

_ids = msgspec.json.Decoder(tuple[str | None, str, str])


def live_members(
    client: Client, live: IndexKeys, session: str, start: bytes, end: bytes, limit: int
) -> list[tuple[bytes, str]]:
    """A page of a session's index.

    Returns:
        Members and the names that they stand for: `d/key` or `l/key`.

    Raises:
        StateCorrupt: The index is damaged (FORMAT-1).
    """
    members = client.page(live, start, end, limit, StateCorrupt, session)
    return [(member, _name(client, session, member)) for member in members]


def _name(client: Client, about: str, member: bytes) -> str:
    name = name_of(member)
    if name is None:
        raise damaged(about, "a name and its check in the index", repr(member), client.backend)
    return name


def list_keys(client: Client, session: SessionKey, kind: SlotKind, after: StateKey | None, limit: int) -> KeyPage:
    """List the live slots of a session. The ids of names that are digests are read from the slots.

    Args:
        client: The client.
        session: The session.
        kind: Which of the two namespaces.
        after: Only slots behind this one.
        limit: How many.

    Returns:
        A page.

    Raises:
        StateCorrupt: The index or a slot is damaged (FORMAT-1).
    """
    prefix = prefix_of(kind)
    start = b"[" + prefix.encode("ascii")
    if after is not None:
        start = b"(" + member_of(prefix + encode_id(after.key))
    end = b"(" + prefix[:-1].encode("ascii") + b"0"
    live = client.layout.live(session)
    keys: list[StateKey] = []
    while True:
        wanted = limit + 1 - len(keys)
        members = live_members(client, live, session.name, start, end, wanted)
        names = [name for _, name in members]
        ids = _stored_ids(client, live, [name for name in names if is_digest_name(name.partition("/")[2])])
        for name in names:
            key = name.partition("/")[2]
            if not is_digest_name(key):
                keys.append(StateKey(session.user_id, session.session_id, _decoded(client, session.name, key)))
                continue
            slot = ids.get(name)
            if slot is None:  # deleted since the page was read
                continue
            if slot.session != session or encode_id(slot.key) != key:
                raise damaged(session.name, f"{session.name}/{key}", slot.name, client.backend)
            keys.append(slot)
        if len(keys) > limit or len(members) < wanted:
            return KeyPage(tuple(keys[:limit]), len(keys) > limit)
        start = b"(" + members[-1][0]


def _decoded(client: Client, about: str, name: str) -> str:
    try:
        value = decode_name(name)
    except InvalidKey as error:
        raise damaged(about, "the name of an id in the index", repr(name), client.backend) from error
    if value is None:
        raise damaged(about, "the name of an id in the index", repr(name), client.backend)
    return value


def _stored_ids(client: Client, live: IndexKeys, names: list[str]) -> dict[str, StateKey]:
    """The ids of live slots, from the slots themselves."""
    calls = [
        (live.slot, script("listed", 1).call(1, bulk(client.layout.state_named(live, name).data))) for name in names
    ]
    found: dict[str, StateKey] = {}
    for name, reply in zip(names, client.read_all(calls, StateCorrupt), strict=True):
        key = _key_in(reply)
        if key is not None:
            found[name] = key
    return found


def _key_in(reply: Reply) -> StateKey | None:
    if not isinstance(reply, list) or len(reply) != 2 or reply[0] != b"live" or not isinstance(reply[1], bytes):
        return None
    try:
        return StateKey(*_ids.decode(reply[1]))
    except (msgspec.DecodeError, InvalidKey):
        return None


def list_sessions(client: Client, user_id: str | None, after: SessionKey | None, limit: int) -> SessionPage:
    """List the sessions of a user that have a live slot. Each is asked for one, in one round trip a server.

    Args:
        client: The client.
        user_id: The user, or None.
        after: Only sessions behind this one.
        limit: How many.

    Returns:
        A page.

    Raises:
        StateCorrupt: An index or a slot is damaged (FORMAT-1).
    """
    index, user = client.layout.sessions(user_id), encode_id(user_id)
    start = b"-" if after is None else b"(" + member_of(encode_id(after.session_id))
    sessions: list[SessionKey] = []
    wanted = limit + 1
    while True:
        members = client.page(index, start, b"+", wanted, StateCorrupt, user)
        names = [_name(client, user, member) for member in members]
        sessions += _live_ones(client, user_id, names)
        if len(sessions) > limit or len(members) < wanted:
            return SessionPage(tuple(sessions[:limit]), len(sessions) > limit)
        start = b"(" + members[-1]


def _live_ones(client: Client, user_id: str | None, names: list[str]) -> list[SessionKey]:
    """The sessions of those names that have a live slot, in order."""
    user = encode_id(user_id)
    lives = [client.layout.live_named(f"{user}/{name}") for name in names]
    calls = [(live.slot, script("page", 2).call(2, live.packed, b"-", b"+", b"1")) for live in lives]
    found: list[SessionKey] = []
    for name, live, reply in zip(names, lives, client.read_all(calls, StateCorrupt), strict=True):
        if not isinstance(reply, list) or len(reply) != 3:
            raise damaged(f"{user}/{name}", "an index of live slots", repr(reply)[:80], client.backend)
        there, count, members = reply[0], reply[1], words_in(reply[2])
        if not isinstance(there, int) or b"%d" % there != count:
            raise damaged(f"{user}/{name}", f"{count!r} live slots", f"{there!r}", client.backend)
        if not members:
            continue
        if not is_digest_name(name):
            found.append(SessionKey(user_id, _decoded(client, user, name)))
            continue
        slot = _name(client, f"{user}/{name}", members[0])
        key = _stored_ids(client, live, [slot]).get(slot)
        if key is None:  # deleted since; the session's other slots are not looked for, they would be listed first
            live_now = live_members(client, live, f"{user}/{name}", b"-", b"+", 1)
            key = _stored_ids(client, live, [live_now[0][1]]).get(live_now[0][1]) if live_now else None
            if key is None:
                continue
        if (key.user_id, encode_id(key.session_id)) != (user_id, name):
            raise damaged(f"{user}/{name}", name, key.name, client.backend)
        found.append(key.session)
    return found
