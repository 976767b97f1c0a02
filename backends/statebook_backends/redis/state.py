"""AgentStateStore on Redis: native keys, one script a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from statebook.capabilities import Capabilities
from statebook.codec import check_bytes
from statebook.errors import BackendUnavailable, LimitExceeded, OutcomeUnknown, StateCorrupt, StoreClosed
from statebook.keys import SessionKey, StateKey, check_id
from statebook.model import (
    ABSENT,
    ANY,
    ExpectedVersion,
    KeyPage,
    ListValue,
    SessionPage,
    SlotKind,
    StateValue,
    check_page,
)
from statebook.state import AgentStateStore
from statebook_backends.redis.client import Client
from statebook_backends.redis.errors import Reply
from statebook_backends.redis.layout import IndexKeys, SlotKeys, member_of
from statebook_backends.redis.options import RedisOptions
from statebook_backends.redis.resp import text
from statebook_backends.redis.scripts import Call, script
from statebook_backends.redis.sessions import list_keys, list_sessions, live_members
from statebook_backends.redis.slots import (
    IS_ABSENT,
    NEEDS_INDEX,
    condition,
    damaged,
    ids_of,
    items_digest,
    refused,
    value_digest,
)

_DOCUMENT: Final = SlotKind.DOCUMENT
_LIST: Final = SlotKind.LIST
_SESSION_PAGE: Final = 1_000


class RedisAgentStateStore(AgentStateStore):
    """A hash a slot; each write is judged and made in one script (STATE-1).

    The first live slot of a session takes two scripts more: its session is put into the user's index before.
    """

    def __init__(self, options: RedisOptions) -> None:
        """Open the store.

        Args:
            options: What to open.

        Raises:
            InvalidConfiguration: The servers are not what the options say, or unfit for state (ERR-6, ATOM-7).
            BackendUnavailable: A server does not answer.
        """
        self._client = Client(options)
        self._limits = self._client.capabilities.limits

    @property
    def capabilities(self) -> Capabilities:
        return self._client.capabilities

    # ----------------------------------------------------------------------------------------------------- documents

    def load(self, slot: StateKey) -> StateValue | None:
        found = self._load(slot, _DOCUMENT)
        if found is None:
            return None
        version, _, size, digest, value, _ = found
        if not isinstance(value, bytes) or b"%d" % len(value) != size or value_digest(value) != digest:
            raise damaged(slot.name, text(digest), "another value", self._client.backend)
        return StateValue(value, int(text(version)))

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        check_bytes(value, "a value")
        self._limits.check("value_bytes_max", len(value), slot.name)
        mode, version = condition(expected)
        ids, digest = ids_of(slot), value_digest(value)
        self._client.servers()
        keys = self._client.layout.state(slot, _DOCUMENT)
        return self._save(
            keys,
            slot,
            _DOCUMENT,
            lambda indexed: script("save", 4).call(
                4, keys.packed, mode, version, ids, keys.member, indexed, value, digest
            ),
            _wanted(expected),
        )

    # --------------------------------------------------------------------------------------------------------- lists

    def load_list(self, slot: StateKey) -> ListValue | None:
        found = self._load(slot, _LIST)
        if found is None:
            return None
        version, length, _, digest, _, stored = found
        items = tuple([item for item in stored if isinstance(item, bytes)]) if isinstance(stored, list) else ()
        if b"%d" % len(items) != length or items_digest(items) != digest:
            raise damaged(slot.name, f"{text(length)} items, {text(digest)}", "other items", self._client.backend)
        return ListValue(items, int(text(version)))

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        if type(expected_length) is not int or expected_length < 0:
            raise ValueError(f"expected_length must be an integer of at least 0, not {expected_length!r}")
        new = self._checked_items(slot, items)
        return self._save_items(slot, b"append", b"%d" % expected_length, new, f"length {expected_length}")

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        new = self._checked_items(slot, items)
        return self._save_items(slot, *condition(expected), new, _wanted(expected))

    def _save_items(self, slot: StateKey, mode: bytes, given: bytes, items: tuple[bytes, ...], wanted: str) -> int:
        self._limits.check("list_bytes_max", sum(map(len, items)), slot.name)
        self._client.servers()
        keys, ids = self._client.layout.state(slot, _LIST), ids_of(slot)
        room = b"%d" % self._limits.list_bytes_max
        return self._save(
            keys,
            slot,
            _LIST,
            lambda indexed: script("items", 4).call(
                4, keys.packed, mode, given, ids, keys.member, indexed, room, *items
            ),
            wanted,
        )

    def _checked_items(self, slot: StateKey, items: Sequence[bytes]) -> tuple[bytes, ...]:
        copy = tuple(items)
        for item in copy:
            check_bytes(item, "an item")
            self._limits.check("value_bytes_max", len(item), slot.name)
        return copy

    def _save(self, keys: SlotKeys, slot: StateKey, kind: SlotKind, call: Callable[[bytes], Call], wanted: str) -> int:
        """Run a writing script; where its session is not indexed yet, index it and run the script again."""
        client = self._client
        reply = client.write(keys.slot, call(b"0"), StateCorrupt, slot.name)
        if reply == NEEDS_INDEX:
            session = slot.session
            member = member_of(session.name.partition("/")[2])
            client.index(client.layout.sessions(slot.user_id), b"add", member, StateCorrupt, slot.name)
            reply = client.write(keys.slot, call(b"1"), StateCorrupt, slot.name)
        if isinstance(reply, bytes):
            return int(reply)
        if isinstance(reply, list) and len(reply) == 2 and reply[0] == b"limit":
            raise LimitExceeded(
                f"list_bytes_max is {self._limits.list_bytes_max}, but the list would have {text(reply[1])}; "
                "store less in one list",
                limit="list_bytes_max",
                maximum=self._limits.list_bytes_max,
                actual=int(text(reply[1])),
                key=slot.name,
                backend=client.backend,
            )
        raise refused(reply, slot.name, kind, wanted, client.backend)

    # ------------------------------------------------------------------------------------------------------ deleting

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        if expected is ABSENT:
            raise ValueError("expected must be ANY or a positive version: an absent slot cannot be deleted")
        _check_expected(expected)
        client = self._client
        client.servers()
        keys = client.layout.state(slot, kind)
        reply = client.write(keys.slot, _bury(keys, *condition(expected), ids_of(slot)), StateCorrupt, slot.name)
        if reply == 1:
            return True
        if reply == IS_ABSENT:
            return False
        raise refused(reply, slot.name, kind, _wanted(expected), client.backend)

    def delete_session(self, session: SessionKey) -> int:
        client = self._client
        live = client.layout.live(session)
        deleted, start = 0, b"-"
        try:
            while True:
                members = live_members(client, live, session.name, start, b"+", _SESSION_PAGE)
                for _, name in members:
                    deleted += self._bury_named(session, live, name)
                if len(members) < _SESSION_PAGE:
                    return deleted
                start = b"(" + members[-1][0]
        except (BackendUnavailable, StoreClosed) as error:
            if not deleted:
                raise
            raise OutcomeUnknown(
                f"{deleted} slots were deleted, the others were not reached; delete the session again",
                key=session.name,
                backend=client.backend,
            ) from error

    def _bury_named(self, session: SessionKey, live: IndexKeys, name: str) -> int:
        """Delete a slot of a session; tell how many that was."""
        client = self._client
        keys = client.layout.state_named(live, name)
        reply = client.write(keys.slot, _bury(keys, b"any", b"", b""), StateCorrupt, session.name)
        if reply == 1 or reply == IS_ABSENT:
            return int(reply == 1)
        raise refused(reply, f"{session.name}/{name}", _DOCUMENT, "a slot", client.backend)

    # ------------------------------------------------------------------------------------------------------- listing

    def exists(self, session: SessionKey) -> bool:
        client = self._client
        return bool(live_members(client, client.layout.live(session), session.name, b"-", b"+", 1))

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        check_page(limit)
        if after is not None and after.session != session:
            raise ValueError("after must be a slot of the session that is listed")
        return list_keys(self._client, session, kind, after, limit)

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        if user_id is not None:
            check_id(user_id, "user_id")
        check_page(limit)
        if after is not None and after.user_id != user_id:
            raise ValueError("after must be a session of the user whose sessions are listed")
        return list_sessions(self._client, user_id, after, limit)

    def close(self) -> None:
        self._client.close()

    # ------------------------------------------------------------------------------------------------------- reading

    def _load(self, slot: StateKey, kind: SlotKind) -> list[Reply] | None:
        """What `load.lua` gives of a live slot behind the word that it is one."""
        client = self._client
        client.servers()
        keys = client.layout.state(slot, kind)
        call = script("load", 4).call(4, keys.packed, ids_of(slot), keys.member)
        reply = client.read(keys.slot, call, StateCorrupt, slot.name)
        if reply == IS_ABSENT:
            return None
        if isinstance(reply, list) and len(reply) == 7 and reply[0] == b"live":
            return reply[1:]
        raise refused(reply, slot.name, kind, "a slot", client.backend)


def _bury(keys: SlotKeys, mode: bytes, version: bytes, ids: bytes) -> Call:
    return script("bury", 4).call(4, keys.packed, mode, version, ids, keys.member)


def _wanted(expected: ExpectedVersion) -> str:
    return "absence" if expected is ABSENT else f"version {expected}"


def _check_expected(expected: object) -> None:
    if expected is ANY or expected is ABSENT:
        return
    if type(expected) is not int or expected < 1:
        raise ValueError(f"expected must be ANY, ABSENT or a positive version, not {expected!r}")
