"""The decisions about export cursors, and about trims, which must not pass them. Pure, as in `plan`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from statebook.errors import (
    CursorConflict,
    CursorFenced,
    CursorInvalid,
    CursorRegression,
    JournalNotFound,
    StatebookError,
)
from statebook.keys import ThreadKey
from statebook.model import ExportCursor, JournalHead
from statebook.plan import Commit, Done, Refuse, regressed, touched, trimmed
from statebook.records import CursorState, HeadState, JournalState


def _judge_position(head: HeadState | None, key: ThreadKey, acked_seq: int) -> StatebookError | None:
    if head is None or head.state is JournalState.DELETED:
        return JournalNotFound("there is no journal to export", key=key.name)
    if acked_seq > head.last_seq:
        return regressed(head, acked_seq)
    if acked_seq < head.first_seq - 1:
        return trimmed(head)
    return None


def _foreign(key: ThreadKey, exporter: str, version: int) -> CursorInvalid:
    return CursorInvalid(
        f"the cursor of exporter {exporter!r} belongs to another incarnation of the journal; set it on purpose with "
        f"reset_cursor(..., expected_version={version})",
        version=version,
        what="cursor",
        key=key.name,
    )


def plan_open_cursor(
    head: HeadState | None, record: CursorState | None, key: ThreadKey, exporter: str, *, nonce: str
) -> Commit[CursorState] | Refuse:
    """Decide the opening of a cursor (CURSOR-2, CURSOR-5).

    Args:
        head: The journal's head, or None.
        record: The cursor's record, or None.
        key: The thread.
        exporter: The exporter.
        nonce: Fresh, for the opening.

    Returns:
        What to write, or the refusal.
    """
    if head is None or head.state is JournalState.DELETED:
        return Refuse(JournalNotFound("there is no journal to export", key=key.name))
    if record is None:
        return Commit(CursorState(key, exporter, head.journal_id, head.first_seq - 1, 1, nonce, 1))
    if record.journal_id != head.journal_id:
        return Refuse(_foreign(key, exporter, record.version))
    wrong = _judge_position(head, key, record.acked_seq)
    if wrong is not None:
        return Refuse(wrong)
    return Commit(msgspec.structs.replace(record, epoch=record.epoch + 1, nonce=nonce, version=record.version + 1))


def plan_advance_cursor(
    head: HeadState | None, record: CursorState | None, cursor: ExportCursor, to_seq: int
) -> Commit[CursorState] | Done[ExportCursor] | Refuse:
    """Decide an advance (CURSOR-2, CURSOR-3, CURSOR-5).

    Args:
        head: The journal's head, or None.
        record: The cursor's record, or None.
        cursor: The cursor as its opener holds it.
        to_seq: Where to.

    Returns:
        What to write, the cursor where it already stands there, or the refusal.
    """
    key = cursor.key
    if head is None or head.state is JournalState.DELETED:
        return Refuse(JournalNotFound("there is no journal to export", key=key.name))
    if record is None or head.journal_id != cursor.journal_id or record.journal_id != head.journal_id:
        return Refuse(_foreign(key, cursor.exporter, 0 if record is None else record.version))
    if (record.epoch, record.nonce) != (cursor.epoch, cursor.nonce):
        return Refuse(
            CursorFenced(
                f"exporter {cursor.exporter!r} of epoch {cursor.epoch} is fenced: the cursor was opened or reset since",
                current_epoch=record.epoch,
                key=key.name,
            )
        )
    wrong = _judge_position(head, key, record.acked_seq)
    if wrong is not None:
        return Refuse(wrong)
    if to_seq < record.acked_seq:
        return Refuse(
            CursorRegression(
                f"the cursor stands at {record.acked_seq}, {to_seq} is before it; "
                "use reset_cursor to go back on purpose",
                what="cursor",
                expected=f"at least {record.acked_seq}",
                found=str(to_seq),
                key=key.name,
            )
        )
    if to_seq > head.last_seq:
        return Refuse(regressed(head, to_seq))
    if to_seq == record.acked_seq:
        return Done(record.opened())
    return Commit(msgspec.structs.replace(record, acked_seq=to_seq, version=record.version + 1))


def plan_reset_cursor(
    head: HeadState | None,
    record: CursorState | None,
    key: ThreadKey,
    exporter: str,
    to_seq: int,
    expected_version: int,
    *,
    nonce: str,
) -> Commit[CursorState] | Refuse:
    """Decide a reset: explicit, conditional on the record's version, and an opening as well (CURSOR-3).

    Args:
        head: The journal's head, or None.
        record: The cursor's record, or None.
        key: The thread.
        exporter: The exporter.
        to_seq: Where to.
        expected_version: The version that the record must have; 0 for none.
        nonce: Fresh, for the opening.

    Returns:
        What to write, or the refusal.
    """
    version = 0 if record is None else record.version
    wrong = _judge_position(head, key, to_seq)
    if wrong is not None or head is None:
        return Refuse(wrong or JournalNotFound("there is no journal to export", key=key.name))
    if version != expected_version:
        return Refuse(
            CursorConflict(
                f"the cursor of exporter {exporter!r} is at version {version}, not {expected_version}",
                current_version=version,
                key=key.name,
            )
        )
    epoch = 1 if record is None else record.epoch + 1
    return Commit(CursorState(key, exporter, head.journal_id, to_seq, epoch, nonce, version + 1))


def plan_trim(
    head: HeadState | None, key: ThreadKey, before_seq: int, cursors: Iterable[CursorState], *, nonce: str
) -> Commit[HeadState] | Done[JournalHead] | Refuse:
    """Decide a trim (LIFE-2).

    Args:
        head: The journal's head, or None.
        key: The thread.
        before_seq: The first seq to keep.
        cursors: The records of all cursors of this thread.
        nonce: Fresh, for the write of the head.

    Returns:
        The head to write, the head where there is nothing to do, or the refusal.
    """
    public = None if head is None else head.public()
    if head is None or public is None:
        return Refuse(JournalNotFound("there is no journal to trim", key=key.name))
    first = min(before_seq, head.last_seq + 1)
    if head.checkpoint_seq is not None:
        first = min(first, head.checkpoint_seq)
    for cursor in cursors:
        if cursor.journal_id == head.journal_id:
            first = min(first, cursor.acked_seq + 1)
    if first <= head.first_seq:
        return Done(public)
    return Commit(msgspec.structs.replace(touched(head, nonce), first_seq=first))
