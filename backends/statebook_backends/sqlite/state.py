"""AgentStateStore on SQLite: native rows, one transaction a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from statebook.capabilities import Capabilities
from statebook.codec import check_bytes, digest
from statebook.errors import StateCorrupt, VersionConflict
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
from statebook_backends.sqlite.database import Session
from statebook_backends.sqlite.options import SqliteOptions
from statebook_backends.sqlite.slots import (
    CHUNKS_START,
    SlotRow,
    add_chunk,
    damaged,
    delete_chunks,
    free_row,
    read_items,
    read_slot,
    verified,
    write_slot,
)

if TYPE_CHECKING:
    from sqlite3 import Cursor

T = TypeVar("T")

_DOCUMENT: Final = SlotKind.DOCUMENT
_LIST: Final = SlotKind.LIST
_OF_SESSION: Final = (
    "SELECT sid, user_id, session_id, key, format, version, live, length, bytes, digest, seal, kind FROM slot "
    "WHERE namespace = ? AND session = ? AND live = 1 LIMIT ?"
)
_KEYS: Final = (
    "SELECT sid, user_id, session_id, key, format, version, live, length, bytes, digest, seal, kind, name FROM slot "
    "WHERE namespace = ? AND session = ? AND kind = ? AND name > ? AND live = 1 ORDER BY name LIMIT ?"
)
_NEXT_OF_USER: Final = (
    "SELECT sid, user_id, session_id, key, format, version, live, length, bytes, digest, seal, kind, session FROM slot "
    "WHERE namespace = ? AND session > ? AND session < ? AND live = 1 ORDER BY session LIMIT 1"
)
_ALL: Final = -1


class SqliteAgentStateStore(AgentStateStore):
    """Slots in one table, items of lists in another; each write is judged and made in one transaction (STATE-1)."""

    def __init__(self, options: SqliteOptions) -> None:
        """Open the store.

        Args:
            options: What to open.

        Raises:
            InvalidConfiguration: The place or the file cannot be used; nothing was changed (ERR-6).
            UnsupportedFormat: The file is of another format.
            BackendUnavailable: It stayed locked, or the file system refused.
        """
        self._session = Session(options)
        self._namespace = options.namespace
        self._limits = self._session.capabilities.limits

    @property
    def capabilities(self) -> Capabilities:
        return self._session.capabilities

    # ----------------------------------------------------------------------------------------------------- documents

    def load(self, slot: StateKey) -> StateValue | None:
        with self._session.database.readers.reading(StateCorrupt, slot.name) as cursor:
            row = read_slot(cursor, self._namespace, _DOCUMENT, slot)
        return StateValue(row.value, row.version) if row is not None and row.value is not None else None

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        check_bytes(value, "a value")
        self._limits.check("value_bytes_max", len(value), slot.name)
        value_digest = digest(value)

        def decide(cursor: Cursor) -> int:
            row = self._judged(cursor, _DOCUMENT, slot, expected)
            new = SlotRow(row.sid, _DOCUMENT, slot, row.version + 1, True, 0, len(value), value_digest, value)
            write_slot(cursor, self._namespace, new)
            return new.version

        return self._run(decide, slot.name, len(value))

    # --------------------------------------------------------------------------------------------------------- lists

    def load_list(self, slot: StateKey) -> ListValue | None:
        with self._session.database.readers.reading(StateCorrupt, slot.name) as cursor:
            row = read_slot(cursor, self._namespace, _LIST, slot)
            if row is None or not row.live:
                return None
            items = read_items(cursor, row)
        return ListValue(items, row.version)

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        if type(expected_length) is not int or expected_length < 0:
            raise ValueError(f"expected_length must be an integer of at least 0, not {expected_length!r}")
        new = self._checked_items(slot, items)
        added = sum(map(len, new))

        def decide(cursor: Cursor) -> int:
            row = self._judged(cursor, _LIST, slot, ANY)
            if row.length != expected_length:
                raise _conflict(row, f"length {expected_length}")
            self._limits.check("list_bytes_max", row.size + added, slot.name)
            running = row.digest if row.live else CHUNKS_START
            running = add_chunk(cursor, row.sid, running, expected_length, new)
            length = expected_length + len(new)
            written = SlotRow(row.sid, _LIST, slot, row.version + 1, True, length, row.size + added, running)
            write_slot(cursor, self._namespace, written)
            return written.version

        return self._run(decide, slot.name, added)

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        new = self._checked_items(slot, items)
        size = sum(map(len, new))
        self._limits.check("list_bytes_max", size, slot.name)

        def decide(cursor: Cursor) -> int:
            row = self._judged(cursor, _LIST, slot, expected)
            delete_chunks(cursor, row.sid)
            running = add_chunk(cursor, row.sid, CHUNKS_START, 0, new)
            written = SlotRow(row.sid, _LIST, slot, row.version + 1, True, len(new), size, running)
            write_slot(cursor, self._namespace, written)
            return written.version

        return self._run(decide, slot.name, size)

    # ------------------------------------------------------------------------------------------------------ deleting

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        if expected is ABSENT:
            raise ValueError("expected must be ANY or a positive version: an absent slot cannot be deleted")
        _check_expected(expected)

        def decide(cursor: Cursor) -> bool:
            row = self._judged(cursor, kind, slot, expected)
            if not row.live:
                return False
            self._bury(cursor, row)
            return True

        return self._run(decide, slot.name)

    def delete_session(self, session: SessionKey) -> int:
        name = session.name

        def decide(cursor: Cursor) -> int:
            found = cursor.execute(_OF_SESSION, (self._namespace, name, _ALL)).fetchall()
            rows = [self._of_session(columns, session) for columns in found]
            for row in rows:
                self._bury(cursor, row)
            return len(rows)

        return self._run(decide, name)

    def _bury(self, cursor: Cursor, row: SlotRow) -> None:
        """Leave only the version of a slot (STATE-2)."""
        if row.kind is _LIST:
            delete_chunks(cursor, row.sid)
        write_slot(cursor, self._namespace, SlotRow(row.sid, row.kind, row.slot, row.version, False, 0, 0, ""))

    # ------------------------------------------------------------------------------------------------------- listing

    def exists(self, session: SessionKey) -> bool:
        name = session.name
        with self._session.database.readers.reading(StateCorrupt, name) as cursor:
            row = cursor.execute(_OF_SESSION, (self._namespace, name, 1)).fetchone()
            if row is None:
                return False
            self._of_session(row, session)
            return True

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
        name = session.name
        start = "" if after is None else after.name
        with self._session.database.readers.reading(StateCorrupt, name) as cursor:
            rows = cursor.execute(_KEYS, (self._namespace, name, kind.value, start, limit + 1)).fetchall()
            keys = [self._of_session(row, session).slot for row in rows[:limit]]
            for key, row in zip(keys, rows, strict=False):
                if key.name != row[12]:
                    raise damaged(str(row[12]), str(row[12]), key.name)
        return KeyPage(tuple(keys), len(rows) > limit)

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        if user_id is not None:
            check_id(user_id, "user_id")
        check_page(limit)
        if after is not None and after.user_id != user_id:
            raise ValueError("after must be a session of the user whose sessions are listed")
        user = encode_id(user_id)
        place = f"{user}/" if after is None else after.name
        sessions: list[SessionKey] = []
        with self._session.database.readers.reading(StateCorrupt, user) as cursor:
            while len(sessions) <= limit:
                row = cursor.execute(_NEXT_OF_USER, (self._namespace, place, f"{user}0")).fetchone()
                if row is None:
                    break
                session = verified(self._namespace, row).slot.session
                place = row[12]
                if session.name != place:
                    raise damaged(place, place, session.name)
                sessions.append(session)
        return SessionPage(tuple(sessions[:limit]), len(sessions) > limit)

    def close(self) -> None:
        self._session.close()

    # ------------------------------------------------------------------------------------------------------- judging

    def _run(self, decide: Callable[[Cursor], T], key: str, size: int = 0) -> T:
        return self._session.run(decide, StateCorrupt, key, size)

    def _judged(self, cursor: Cursor, kind: SlotKind, slot: StateKey, expected: ExpectedVersion) -> SlotRow:
        """The slot as it is, where it is as expected (STATE-1); a tombstone of version 0 where there is no row."""
        row = read_slot(cursor, self._namespace, kind, slot)
        if row is None:
            row = SlotRow(free_row(cursor, self._namespace, kind, slot), kind, slot, 0, False, 0, 0, "")
        if expected is not ANY:
            version = row.version if row.live else None
            if version != (None if expected is ABSENT else expected):
                raise _conflict(row, "absence" if expected is ABSENT else f"version {expected}")
        return row

    def _of_session(self, columns: Sequence[object], session: SessionKey) -> SlotRow:
        row = verified(self._namespace, columns)
        if row.slot.session != session:
            raise damaged(session.name, session.name, row.slot.session.name)
        return row

    def _checked_items(self, slot: StateKey, items: Sequence[bytes]) -> tuple[bytes, ...]:
        copy = tuple(items)
        for item in copy:
            check_bytes(item, "an item")
            self._limits.check("value_bytes_max", len(item), slot.name)
        return copy


def _conflict(row: SlotRow, wanted: str) -> VersionConflict:
    found = f"has version {row.version}" if row.live else "is absent"
    length = f" and {row.length} items" if row.live and row.kind is _LIST else ""
    return VersionConflict(
        f"the {row.kind.value} {found}{length}, but {wanted} was expected; load it and decide again",
        current_version=row.version if row.live else None,
        current_length=None if row.kind is _DOCUMENT else row.length,
        key=row.slot.name,
        backend="sqlite",
    )


def _check_expected(expected: object) -> None:
    if expected is ANY or expected is ABSENT:
        return
    if type(expected) is not int or expected < 1:
        raise ValueError(f"expected must be ANY, ABSENT or a positive version, not {expected!r}")
