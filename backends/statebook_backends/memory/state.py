"""AgentStateStore in memory."""

from __future__ import annotations

from collections.abc import Sequence

from statebook.capabilities import Capabilities
from statebook.codec import check_bytes
from statebook.errors import VersionConflict
from statebook.keys import SessionKey, StateKey, check_id, encode_id
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
from statebook_backends.memory.options import MemoryOptions
from statebook_backends.memory.registry import SHARED
from statebook_backends.memory.store import CAPABILITIES, MemoryData, Slot, closed

_DOCUMENT = SlotKind.DOCUMENT
_LIST = SlotKind.LIST


class MemoryAgentStateStore(AgentStateStore):
    """Slots in dictionaries; each call is judged and applied under the lock (STATE-1 to STATE-5)."""

    def __init__(self, options: MemoryOptions) -> None:
        """Open the store.

        Args:
            options: Name and namespace.
        """
        self._options = options
        self._data: MemoryData | None = SHARED.enter(options.name, options.namespace)

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    # ----------------------------------------------------------------------------------------------------- documents

    def load(self, slot: StateKey) -> StateValue | None:
        data = self._open()
        with data.lock:
            entry = data.slots[_DOCUMENT].get(slot)
            return StateValue(entry.items[0], entry.version) if entry is not None and entry.live else None

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        check_bytes(value, "a value")
        CAPABILITIES.limits.check("value_bytes_max", len(value), slot.name)
        data = self._open()
        with data.lock:
            _judge(data, slot, _DOCUMENT, expected)
            return _put(data, slot, _DOCUMENT, [value])

    # --------------------------------------------------------------------------------------------------------- lists

    def load_list(self, slot: StateKey) -> ListValue | None:
        data = self._open()
        with data.lock:
            entry = data.slots[_LIST].get(slot)
            return ListValue(tuple(entry.items), entry.version) if entry is not None and entry.live else None

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        if type(expected_length) is not int or expected_length < 0:
            raise ValueError(f"expected_length must be an integer of at least 0, not {expected_length!r}")
        new = _checked_items(slot, items)
        data = self._open()
        with data.lock:
            entry = data.slots[_LIST].get(slot)
            if entry is None or not entry.live:
                if expected_length != 0:
                    raise _conflict(slot, _LIST, entry, f"length {expected_length}")
                CAPABILITIES.limits.check("list_bytes_max", _size(new), slot.name)
                return _put(data, slot, _LIST, new)
            if len(entry.items) != expected_length:
                raise _conflict(slot, _LIST, entry, f"length {expected_length}")
            CAPABILITIES.limits.check("list_bytes_max", entry.size + _size(new), slot.name)
            entry.items.extend(new)
            entry.size += _size(new)
            entry.version += 1
            return entry.version

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        new = _checked_items(slot, items)
        CAPABILITIES.limits.check("list_bytes_max", _size(new), slot.name)
        data = self._open()
        with data.lock:
            _judge(data, slot, _LIST, expected)
            return _put(data, slot, _LIST, new)

    # ------------------------------------------------------------------------------------------------------ deleting

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        if expected is ABSENT:
            raise ValueError("expected must be ANY or a positive version: an absent slot cannot be deleted")
        _check_expected(expected)
        data = self._open()
        with data.lock:
            _judge(data, slot, kind, expected)
            return _drop(data, slot, kind)

    def delete_session(self, session: SessionKey) -> int:
        data = self._open()
        prefix = session.name + "/"
        with data.lock:
            dropped = 0
            for kind in SlotKind:
                slots, _ = data.keys[kind].page(prefix, None, data.live.get(session, 0))
                for slot in slots:
                    _drop(data, slot, kind)
                dropped += len(slots)
            return dropped

    # ------------------------------------------------------------------------------------------------------- listing

    def exists(self, session: SessionKey) -> bool:
        data = self._open()
        with data.lock:
            return session in data.live

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
        data = self._open()
        with data.lock:
            return KeyPage(*data.keys[kind].page(session.name + "/", None if after is None else after.name, limit))

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        if user_id is not None:
            check_id(user_id, "user_id")
        check_page(limit)
        if after is not None and after.user_id != user_id:
            raise ValueError("after must be a session of the user whose sessions are listed")
        data = self._open()
        with data.lock:
            return SessionPage(
                *data.sessions.page(encode_id(user_id) + "/", None if after is None else after.name, limit)
            )

    def close(self) -> None:
        data, self._data = self._data, None
        if data is not None:
            SHARED.leave(self._options.name, self._options.namespace)

    def _open(self) -> MemoryData:
        data = self._data
        if data is None:
            raise closed()
        return data


# ------------------------------------------------------------------------------------------- judging, under the lock


def _judge(data: MemoryData, slot: StateKey, kind: SlotKind, expected: ExpectedVersion) -> None:
    """Raise the conflict where a slot is not as expected (STATE-1)."""
    if expected is ANY:
        return
    entry = data.slots[kind].get(slot)
    version = entry.version if entry is not None and entry.live else None
    if version != (None if expected is ABSENT else expected):
        raise _conflict(slot, kind, entry, "absence" if expected is ABSENT else f"version {expected}")


def _conflict(slot: StateKey, kind: SlotKind, entry: Slot | None, wanted: str) -> VersionConflict:
    live = entry if entry is not None and entry.live else None
    found = "is absent" if live is None else f"has version {live.version}"
    length = f" and {len(live.items)} items" if live is not None and kind is _LIST else ""
    return VersionConflict(
        f"the {kind.value} {found}{length}, but {wanted} was expected; load it and decide again",
        current_version=None if live is None else live.version,
        current_length=None if kind is _DOCUMENT else 0 if live is None else len(live.items),
        key=slot.name,
        backend=CAPABILITIES.backend,
    )


def _put(data: MemoryData, slot: StateKey, kind: SlotKind, items: list[bytes]) -> int:
    """Set a slot's value, at the next version (STATE-2)."""
    entry = data.slots[kind].get(slot)
    if entry is None:
        entry = data.slots[kind][slot] = Slot()
    if not entry.live:
        session = slot.session
        data.keys[kind].add(slot.name, slot)
        data.live[session] = data.live.get(session, 0) + 1
        data.sessions.add(session.name, session)
    entry.live = True
    entry.items = items
    entry.size = _size(items)
    entry.version += 1
    return entry.version


def _drop(data: MemoryData, slot: StateKey, kind: SlotKind) -> bool:
    """Delete a slot's value; its version stays (STATE-2)."""
    entry = data.slots[kind].get(slot)
    if entry is None or not entry.live:
        return False
    entry.live, entry.items, entry.size = False, [], 0
    session = slot.session
    data.keys[kind].discard(slot.name)
    data.live[session] -= 1
    if data.live[session] == 0:
        del data.live[session]
        data.sessions.discard(session.name)
    return True


# ---------------------------------------------------------------------------------------------------------- arguments


def _check_expected(expected: object) -> None:
    if expected is ANY or expected is ABSENT:
        return
    if type(expected) is not int or expected < 1:
        raise ValueError(f"expected must be ANY, ABSENT or a positive version, not {expected!r}")


def _checked_items(slot: StateKey, items: Sequence[bytes]) -> list[bytes]:
    copy = list(items)
    for item in copy:
        check_bytes(item, "an item")
        CAPABILITIES.limits.check("value_bytes_max", len(item), slot.name)
    return copy


def _size(items: Sequence[bytes]) -> int:
    return sum(map(len, items))
