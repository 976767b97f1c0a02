"""Export cursors over atomic storage: one sealed record a cursor, in a scope of its own (CURSOR-1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from statebook.atomic import AtomicJournalStorage, CommitConflict
from statebook.atomic_head import StoredHead
from statebook.atomic_moves import Decision, JournalHeads, Write
from statebook.codec import seal, unseal
from statebook.contention import Contention
from statebook.errors import BackendUnavailable, JournalCorrupt, OutcomeUnknown, StatebookError
from statebook.keys import ThreadKey, encode_id
from statebook.model import PAGE_MAX, ExportCursor
from statebook.plan import Commit, Done, Refuse, touched
from statebook.plan_cursors import plan_advance_cursor, plan_open_cursor, plan_reset_cursor
from statebook.records import CursorState, HeadState

CURSOR_KIND: Final = "export-cursor"


class _WireCursor(msgspec.Struct, frozen=True):
    cursor: CursorState
    write: str


class StoredCursor(msgspec.Struct, frozen=True):
    """A cursor record as it was read.

    Attributes:
        state: What it says.
        write: The nonce of the write that made it (ATOM-2).
        token: Its token.
    """

    state: CursorState
    write: str
    token: str


_Decision: TypeAlias = "Commit[CursorState] | Done[ExportCursor] | Refuse"
_Judge: TypeAlias = Callable[[HeadState | None, CursorState | None], _Decision]

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_WireCursor)


def cursor_prefix(key: ThreadKey) -> str:
    """The scopes of a thread's cursors start with this."""
    return f"c/{key.name}/"


class CursorRecords:
    """Reads and moves the cursor records of journals."""

    def __init__(
        self,
        storage: AtomicJournalStorage,
        heads: JournalHeads,
        new_nonce: Callable[[], str],
        contention: Contention,
    ) -> None:
        """Work over a storage.

        Args:
            storage: The storage.
            heads: Reads the journals' heads.
            new_nonce: Fresh randomness.
            contention: Bounds lost attempts.
        """
        self._storage = storage
        self._heads = heads
        self._new_nonce = new_nonce
        self._contention = contention

    def open(self, key: ThreadKey, exporter: str) -> ExportCursor:
        """Open a cursor (CURSOR-2)."""
        nonce = self._new_nonce()
        created = False

        def judge(head: HeadState | None, record: CursorState | None) -> _Decision:
            nonlocal created
            if created and record is not None and head is not None and record.nonce == nonce:
                # A trim was quicker than the new cursor: it stands before the first event that is there.
                return Commit(msgspec.structs.replace(record, acked_seq=head.first_seq - 1, version=record.version + 1))
            created = record is None
            return plan_open_cursor(head, record, key, exporter, nonce=nonce)

        for _ in self._contention.attempts():
            cursor = self._move(key, exporter, judge)
            if not created or not self._passed_by_trim(cursor):
                return cursor
        raise BackendUnavailable("the journal is trimmed faster than a cursor can be opened", key=key.name)

    def advance(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        """Advance a cursor (CURSOR-3)."""
        return self._move(
            cursor.key, cursor.exporter, lambda head, record: plan_advance_cursor(head, record, cursor, to_seq)
        )

    def reset(self, key: ThreadKey, exporter: str, to_seq: int, expected_version: int) -> ExportCursor:
        """Set a cursor on purpose (CURSOR-3)."""
        nonce = self._new_nonce()
        cursor = self._move(
            key,
            exporter,
            lambda head, record: plan_reset_cursor(head, record, key, exporter, to_seq, expected_version, nonce=nonce),
        )
        # A trim that was over before the record was written is met by the next call on the cursor, as `Trimmed`.
        self._passed_by_trim(cursor)
        return cursor

    def _passed_by_trim(self, cursor: ExportCursor) -> bool:
        """Tell whether a trim was quicker than a cursor that was put to an earlier place; stop one that is not over.

        See `atomic_trim`: a trim that has announced itself may have read the cursors before this one was there.
        """

        def judge(head: StoredHead | None, _: OutcomeUnknown | None) -> Decision[bool]:
            if head is None or head.state.journal_id != cursor.journal_id:
                return Done(False)
            if head.state.first_seq - 1 > cursor.acked_seq:
                return Done(True)
            if head.trimming is None or head.trimming - 1 <= cursor.acked_seq:
                return Done(False)
            state = touched(head.state, self._new_nonce())
            return Write(msgspec.structs.replace(head, state=state, trimming=None), False)

        try:
            with self._heads.memory.hold(cursor.key.name) as slot:
                return self._heads.move(slot, cursor.key, judge, resends=1)
        except StatebookError as error:
            raise OutcomeUnknown(
                "the cursor is written, but a trim beside it may pass it; open or reset it again", key=cursor.key.name
            ) from error

    def read(self, key: ThreadKey, exporter: str) -> StoredCursor | None:
        """Read one record.

        Raises:
            JournalCorrupt: It is damaged or another cursor's.
            UnsupportedFormat: It is of another format version.
        """
        found = self.read_scope(cursor_prefix(key) + encode_id(exporter), key)
        if found is not None and found.state.exporter != exporter:
            raise JournalCorrupt(
                "the cursor belongs to another exporter",
                what="cursor",
                expected=exporter,
                found=found.state.exporter,
                key=key.name,
            )
        return found

    def read_scope(self, scope: str, key: ThreadKey) -> StoredCursor | None:
        """Read the record of a scope, and hold its full key against the thread's and its exporter against the name."""
        record = self._storage.read_head(scope)
        if record is None:
            return None
        try:
            wire = _decoder.decode(unseal(CURSOR_KIND, record.data, JournalCorrupt, key.name))
        except msgspec.DecodeError as error:
            raise JournalCorrupt("the cursor record cannot be read", what="cursor", key=key.name) from error
        state = wire.cursor
        if state.key != key or cursor_prefix(key) + encode_id(state.exporter) != scope:
            raise JournalCorrupt(
                "the cursor belongs to another journal or exporter",
                what="cursor",
                expected=scope,
                found=cursor_prefix(state.key) + encode_id(state.exporter),
                key=key.name,
            )
        return StoredCursor(state, wire.write, record.token)

    def scopes(self, key: ThreadKey) -> Iterator[str]:
        """The scopes of all cursors of a thread."""
        after: str | None = None
        more = True
        while more:
            page = self._storage.list_scopes(cursor_prefix(key), after, PAGE_MAX)
            yield from page.names
            more = page.has_more and bool(page.names)
            after = page.names[-1] if page.names else None

    def all(self, key: ThreadKey) -> list[StoredCursor]:
        """The records of all cursors of a thread, as a trim asks for them (LIFE-2)."""
        found = [self.read_scope(scope, key) for scope in self.scopes(key)]
        return [cursor for cursor in found if cursor is not None]

    def tokens(self, key: ThreadKey) -> list[tuple[str, str]]:
        """The scopes and tokens of all cursors of a thread, readable or not."""
        found = [(scope, self._storage.read_head(scope)) for scope in self.scopes(key)]
        return [(scope, record.token) for scope, record in found if record is not None]

    def _move(self, key: ThreadKey, exporter: str, judge: _Judge) -> ExportCursor:
        """Judge and commit until it is decided. The record is read before the head, so that it is never ahead of it."""
        scope = cursor_prefix(key) + encode_id(exporter)
        doubt: OutcomeUnknown | None = None
        for _ in self._contention.attempts():
            found = self.read(key, exporter)
            head, _ = self._heads.read(key)
            decision = judge(None if head is None else head.state, None if found is None else found.state)
            if isinstance(decision, Refuse):
                raise (doubt or decision.error) from decision.error
            if isinstance(decision, Done):
                return decision.answer
            write = self._new_nonce()
            data = seal(CURSOR_KIND, _encoder.encode(_WireCursor(decision.state, write)))
            expected = None if found is None else found.token
            try:
                if not isinstance(self._storage.commit(scope, expected, data), CommitConflict):
                    return decision.state.opened()
            except OutcomeUnknown as error:
                now = self._reread(key, exporter, error)
                if now is not None and now.write == write:
                    return decision.state.opened()
                if (None if now is None else now.token) == expected:
                    raise
                doubt = error
        raise doubt or BackendUnavailable("too much contention for the cursor; try again later", key=key.name)

    def _reread(self, key: ThreadKey, exporter: str, unknown: OutcomeUnknown) -> StoredCursor | None:
        try:
            return self.read(key, exporter)
        except StatebookError:
            raise unknown from unknown.__cause__
