"""The names of all keys: made of encoded names only, one hash tag a thread and a session (ID-4, ID-5)."""

from __future__ import annotations

import binascii
import hashlib
from typing import Final

import msgspec

from statebook.keys import SessionKey, StateKey, ThreadKey, encode_id
from statebook.model import SlotKind
from statebook_backends.redis.resp import bulk

SLOTS: Final = 16_384
"""How many slots a cluster has."""

_KINDS: Final = {SlotKind.DOCUMENT: "d", SlotKind.LIST: "l"}


def slot_of(tag: bytes) -> int:
    """The slot of all keys with a hash tag."""
    return binascii.crc_hqx(tag, 0) % SLOTS


def _check(name: str) -> str:
    return hashlib.sha256(name.encode("ascii")).hexdigest()[:8]


def member_of(name: str) -> bytes:
    """The member of an index for a name: sorts as the name does, and shows where it was changed."""
    return f"{name} {_check(name)}".encode("ascii")


def name_of(member: bytes) -> str | None:
    """The name that a member of an index stands for, or None where it was changed by hand."""
    name, _, check = member.decode("ascii", "replace").partition(" ")
    return name if name.isascii() and _check(name) == check else None


class IndexKeys(msgspec.Struct, frozen=True):
    """A sorted set and the number of its members.

    Attributes:
        slot: Their slot.
        members: The set.
        count: The number.
        packed: Both as words of a command.
    """

    slot: int
    members: bytes
    count: bytes
    packed: bytes


def _index(tag: str, name: str) -> IndexKeys:
    members = f"sb:{{{tag}}}:{name}".encode("ascii")
    count = members + b":count"
    return IndexKeys(slot_of(tag.encode("ascii")), members, count, bulk(members) + bulk(count))


class ThreadKeys(msgspec.Struct, frozen=True):
    """The keys of one thread, all in one slot.

    Attributes:
        slot: The slot.
        name: The thread's name.
        head: The head.
        batches: The batches.
        stubs: The event ids of trimmed batches.
        cursors: The cursors.
        packed: Head and batches as words of a command.
    """

    slot: int
    name: str
    head: bytes
    batches: bytes
    stubs: bytes
    cursors: bytes
    packed: bytes


class SlotKeys(msgspec.Struct, frozen=True):
    """The keys of one slot of agent state.

    Attributes:
        slot: The hash slot.
        data: The record.
        items: The items of a list; for a document a key that is never written.
        member: The slot in the index of live slots.
        packed: Record, items and the two keys of that index, as words of a command.
    """

    slot: int
    data: bytes
    items: bytes
    member: bytes
    packed: bytes


class ScopeKeys(msgspec.Struct, frozen=True):
    """The keys of one scope of the atomic storage.

    Attributes:
        slot: The hash slot.
        head: The head.
        blobs: The blobs.
    """

    slot: int
    head: bytes
    blobs: bytes


class Layout:
    """The keys of one namespace.

    Attributes:
        pattern: What `SCAN` finds all keys of the namespace with.
    """

    def __init__(self, namespace: str) -> None:
        """Make the layout of a namespace."""
        self._space = encode_id(namespace)
        self.pattern = f"sb:{{[tsia]:{self._space}/*".encode("ascii")

    def thread(self, key: ThreadKey) -> ThreadKeys:
        """The keys of a thread."""
        name = key.name
        tag = f"t:{self._space}/{name}"
        head, batches, stubs, cursors = (
            f"sb:{{{tag}}}:{part}".encode("ascii") for part in ("head", "batches", "stubs", "cursors")
        )
        packed = bulk(head) + bulk(batches)
        return ThreadKeys(slot_of(tag.encode("ascii")), name, head, batches, stubs, cursors, packed)

    def head_named(self, name: str) -> tuple[int, bytes]:
        """The slot of a thread that is given by its name, and its head as a word of a command."""
        tag = f"t:{self._space}/{name}"
        return slot_of(tag.encode("ascii")), bulk(f"sb:{{{tag}}}:head".encode("ascii"))

    def threads(self, user_id: str | None) -> IndexKeys:
        """The index of a user's threads; its names leave out the user."""
        return _index(f"i:{self._space}/{encode_id(user_id)}", "threads")

    def sessions(self, user_id: str | None) -> IndexKeys:
        """The index of a user's sessions; its names leave out the user."""
        return _index(f"i:{self._space}/{encode_id(user_id)}", "sessions")

    def live(self, session: SessionKey) -> IndexKeys:
        """The index of a session's live slots; its names are `d/key` and `l/key`."""
        return _index(f"s:{self._space}/{session.name}", "live")

    def state(self, slot: StateKey, kind: SlotKind) -> SlotKeys:
        """The keys of a slot."""
        session, _, key = slot.name.rpartition("/")
        return self.state_named(self.live_named(session), f"{_KINDS[kind]}/{key}")

    def live_named(self, session: str) -> IndexKeys:
        """The index of the live slots of a session that is given by its name."""
        return _index(f"s:{self._space}/{session}", "live")

    @staticmethod
    def state_named(live: IndexKeys, name: str) -> SlotKeys:
        """The keys of a slot that is given by its session's index and its name in it."""
        data = live.members.removesuffix(b"live") + name.encode("ascii")
        items = data + b"/items"
        return SlotKeys(live.slot, data, items, member_of(name), bulk(data) + bulk(items) + live.packed)

    def scope(self, scope: str) -> ScopeKeys:
        """The keys of a scope of the atomic storage."""
        tag = f"a:{self._space}/{scope}"
        stem = f"sb:{{{tag}}}:"
        return ScopeKeys(slot_of(tag.encode("ascii")), f"{stem}head".encode("ascii"), f"{stem}blobs".encode("ascii"))

    def scopes(self) -> IndexKeys:
        """The index of all scopes."""
        return _index(f"i:{self._space}/", "scopes")


def prefix_of(kind: SlotKind) -> str:
    """What the names of slots of a kind begin with in a session's index."""
    return _KINDS[kind] + "/"
