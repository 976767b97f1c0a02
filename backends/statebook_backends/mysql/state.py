"""AgentStateStore on MySQL and MariaDB: native rows, one transaction a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

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
from statebook_backends.mysql.database import Database
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.slots import (
    CHUNKS_START,
    COLUMNS,
    HAS_ORPHANS,
    SELECT_CHUNKS,
    SELECT_SLOT,
    SlotRow,
    add_items,
    damaged,
    delete_chunks,
    items_of,
    locked_slot,
    lost_slot,
    row_number,
    slot_of,
    verified,
    write_slot,
)
from statebook_backends.mysql.sql import Row
from statebook_backends.mysql.transactions import Transaction

T = TypeVar("T")

_DOCUMENT: Final = SlotKind.DOCUMENT
_LIST: Final = SlotKind.LIST
_ONE_OF_SESSION: Final = f"SELECT {COLUMNS} FROM ~slot WHERE namespace = ? AND live = 1 AND session = ? LIMIT 1"  # noqa: S608
_NUMBERS_OF_SESSION: Final = "SELECT sid FROM ~slot WHERE namespace = ? AND live = 1 AND session = ? ORDER BY sid"
_LOCK_NUMBERS: Final = f"SELECT {COLUMNS} FROM ~slot WHERE sid IN (?) ORDER BY sid FOR UPDATE"  # noqa: S608
_KEYS: Final = (
    f"SELECT {COLUMNS}, name FROM ~slot WHERE namespace = ? AND live = 1 AND session = ? AND kind = ? AND name > ? "  # noqa: S608
    "ORDER BY name LIMIT ?"
)
_SESSIONS: Final = (
    "SELECT s.sid, s.user_id, s.session_id, s.slot_key, s.format, s.version, s.live, s.items, s.size, s.digest, "
    "s.seal, s.kind, s.session FROM (SELECT session, MIN(sid) AS sid FROM ~slot WHERE namespace = ? AND live = 1 "
    "AND session > ? AND session < ? GROUP BY session ORDER BY session LIMIT ?) AS f "
    "JOIN ~slot AS s ON s.sid = f.sid ORDER BY s.session"
)
_SLOTS_AT_ONCE: Final = 500


class MysqlAgentStateStore(AgentStateStore):
    """Slots in one table, items of lists in another; each write is judged and made in one transaction (STATE-1)."""

    def __init__(self, options: MysqlOptions) -> None:
        """Open the store.

        Args:
            options: What to open.

        Raises:
            InvalidConfiguration: The server, the user or the tables cannot be used; nothing was changed (ERR-6).
            UnsupportedFormat: The tables are of another format.
            BackendUnavailable: The server does not answer.
        """
        self._database = Database(options)
        self._namespace = self._database.namespace
        self._limits = self._database.capabilities.limits

    @property
    def capabilities(self) -> Capabilities:
        return self._database.capabilities

    # ----------------------------------------------------------------------------------------------------- documents

    def load(self, slot: StateKey) -> StateValue | None:
        name = slot.name
        rows = self._database.ask(StateCorrupt, name, SELECT_SLOT, self._namespace, _DOCUMENT.value, name.encode())
        if not rows:
            return None
        row = slot_of(self._namespace, rows[0], slot)
        return StateValue(row.value, row.version) if row.value is not None else None

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        check_bytes(value, "a value")
        self._limits.check("value_bytes_max", len(value), slot.name)
        value_digest = digest(value)

        def decide(tx: Transaction) -> int:
            row = self._judged(tx, _DOCUMENT, slot, expected)
            new = SlotRow(row.sid, _DOCUMENT, slot, row.version + 1, True, 0, len(value), value_digest, value)
            write_slot(tx, self._namespace, row, new)
            return new.version

        return self._run(decide, slot.name)

    # --------------------------------------------------------------------------------------------------------- lists

    def load_list(self, slot: StateKey) -> ListValue | None:
        name = slot.name
        where = (self._namespace, _LIST.value, name.encode())
        sql = self._database.sql
        sid = row_number(self._namespace, _LIST, slot)
        found, chunks, orphans = self._database.read(
            (sql(SELECT_SLOT, *where), sql(SELECT_CHUNKS, *where), sql(HAS_ORPHANS, sid, sid)), StateCorrupt, name
        )
        if not found.rows:
            if orphans.rows[0][0] == 1:
                raise lost_slot(slot)
            return None
        row = slot_of(self._namespace, found.rows[0], slot)
        return ListValue(items_of(row, chunks.rows), row.version) if row.live else None

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        if type(expected_length) is not int or expected_length < 0:
            raise ValueError(f"expected_length must be an integer of at least 0, not {expected_length!r}")
        new = self._checked_items(slot, items)
        added = sum(map(len, new))

        def decide(tx: Transaction) -> int:
            row = self._judged(tx, _LIST, slot, ANY)
            if row.length != expected_length:
                raise _conflict(row, f"length {expected_length}")
            self._limits.check("list_bytes_max", row.size + added, slot.name)
            running = row.digest if row.live else CHUNKS_START
            running = add_items(tx, row.sid, running, expected_length, new)
            length = expected_length + len(new)
            written = SlotRow(row.sid, _LIST, slot, row.version + 1, True, length, row.size + added, running)
            write_slot(tx, self._namespace, row, written)
            return written.version

        return self._run(decide, slot.name)

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        _check_expected(expected)
        new = self._checked_items(slot, items)
        size = sum(map(len, new))
        self._limits.check("list_bytes_max", size, slot.name)

        def decide(tx: Transaction) -> int:
            row = self._judged(tx, _LIST, slot, expected)
            delete_chunks(tx, row.sid)
            running = add_items(tx, row.sid, CHUNKS_START, 0, new)
            written = SlotRow(row.sid, _LIST, slot, row.version + 1, True, len(new), size, running)
            write_slot(tx, self._namespace, row, written)
            return written.version

        return self._run(decide, slot.name)

    # ------------------------------------------------------------------------------------------------------ deleting

    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        if expected is ABSENT:
            raise ValueError("expected must be ANY or a positive version: an absent slot cannot be deleted")
        _check_expected(expected)

        def decide(tx: Transaction) -> bool:
            row = self._judged(tx, kind, slot, expected)
            if not row.live:
                return False
            self._bury(tx, row)
            return True

        return self._run(decide, slot.name)

    def delete_session(self, session: SessionKey) -> int:
        name = session.name

        def decide(tx: Transaction) -> int:
            # Found without locks, and locked in the order of their numbers: two who delete do not wait for each other.
            numbers = [number for (number,) in tx.ask(_NUMBERS_OF_SESSION, self._namespace, name.encode())]
            deleted = 0
            for start in range(0, len(numbers), _SLOTS_AT_ONCE):
                for columns in tx.ask(_LOCK_NUMBERS, tuple(numbers[start : start + _SLOTS_AT_ONCE])):
                    row = self._of_session(columns, session)
                    if row.live:
                        self._bury(tx, row)
                        deleted += 1
            return deleted

        return self._run(decide, name)

    def _bury(self, tx: Transaction, row: SlotRow) -> None:
        """Leave only the version of a slot (STATE-2)."""
        if row.kind is _LIST:
            delete_chunks(tx, row.sid)
        write_slot(tx, self._namespace, row, SlotRow(row.sid, row.kind, row.slot, row.version, False, 0, 0, ""))

    # ------------------------------------------------------------------------------------------------------- listing

    def exists(self, session: SessionKey) -> bool:
        name = session.name
        rows = self._database.ask(StateCorrupt, name, _ONE_OF_SESSION, self._namespace, name.encode())
        for row in rows:
            self._of_session(row, session)
        return bool(rows)

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
        rows = self._database.ask(
            StateCorrupt, name, _KEYS, self._namespace, name.encode(), kind.value, start.encode(), limit + 1
        )
        keys: list[StateKey] = []
        for row in rows[:limit]:
            key = self._of_session(row, session).slot
            _check_name(key.name, row)
            keys.append(key)
        return KeyPage(tuple(keys), len(rows) > limit)

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        if user_id is not None:
            check_id(user_id, "user_id")
        check_page(limit)
        if after is not None and after.user_id != user_id:
            raise ValueError("after must be a session of the user whose sessions are listed")
        user = encode_id(user_id)
        place = f"{user}/" if after is None else after.name
        rows = self._database.ask(
            StateCorrupt, user, _SESSIONS, self._namespace, place.encode(), f"{user}0".encode(), limit + 1
        )
        sessions: list[SessionKey] = []
        for row in rows[:limit]:
            session = verified(self._namespace, row).slot.session
            _check_name(session.name, row)
            sessions.append(session)
        return SessionPage(tuple(sessions), len(rows) > limit)

    def close(self) -> None:
        self._database.close()

    # ------------------------------------------------------------------------------------------------------- judging

    def _run(self, decide: Callable[[Transaction], T], key: str) -> T:
        return self._database.run(decide, StateCorrupt, key)

    def _judged(self, tx: Transaction, kind: SlotKind, slot: StateKey, expected: ExpectedVersion) -> SlotRow:
        """The slot as it is, locked, where it is as expected (STATE-1)."""
        row = locked_slot(tx, self._namespace, kind, slot)
        if expected is not ANY:
            version = row.version if row.live else None
            if version != (None if expected is ABSENT else expected):
                raise _conflict(row, "absence" if expected is ABSENT else f"version {expected}")
        return row

    def _of_session(self, columns: Row, session: SessionKey) -> SlotRow:
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
        backend="mysql",
    )


def _check_name(name: str, row: Row) -> None:
    """Compare a name that was made of the ids in a row with the one by which the row was found (FORMAT-1)."""
    stored = row[12]
    if stored != name.encode():
        raise damaged(name, repr(stored), name)


def _check_expected(expected: object) -> None:
    if expected is ANY or expected is ABSENT:
        return
    if type(expected) is not int or expected < 1:
        raise ValueError(f"expected must be ANY, ABSENT or a positive version, not {expected!r}")
