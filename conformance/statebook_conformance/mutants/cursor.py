"""Mutants of export cursors: wrappers that any backend can carry."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from statebook.errors import (
    CursorConflict,
    CursorFenced,
    CursorInvalid,
    CursorRegression,
    JournalNotFound,
    JournalRegressed,
    Trimmed,
)
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import ANY, ClaimInfo, Expect, ExportCursor, WriterClaim
from statebook_conformance.mutants.forward import ForwardBackend, ForwardJournal
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import Memory, wrapping
from statebook_conformance.target import TargetBackend


def wrapped(maker: Callable[[ThreadJournalStore], ThreadJournalStore]) -> Callable[[TargetBackend], ForwardBackend]:
    """What `Mutant` takes as `wrap`, for journal stores that are wrapped one by one and share nothing."""
    return wrapping(journal=lambda inner, _: maker(inner))


# ---------------------------------------------------------------------------------------------------------- CURSOR-1


class _MovesTheHead(ForwardJournal):
    """Writes the head with each advance, as stores do that keep cursors inside it."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._claims: dict[ThreadKey, WriterClaim] = {}

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        claim = self._claims[key] = super().claim(key, writer_id, replacing=replacing)
        return claim

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        moved = super().advance_cursor(cursor, to_seq)
        if cursor.key in self._claims:
            self.inner.heartbeat(self._claims[cursor.key])
        return moved


class _FoldsCase(ForwardJournal):
    """Finds cursors through a collation that knows no case."""

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        return msgspec.structs.replace(super().open_cursor(key, exporter.lower()), exporter=exporter)

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        folded = msgspec.structs.replace(cursor, exporter=cursor.exporter.lower())
        return msgspec.structs.replace(super().advance_cursor(folded, to_seq), exporter=cursor.exporter)


# ---------------------------------------------------------------------------------------------------------- CURSOR-2


class _NotFenced(ForwardJournal):
    """Opens the cursor again for whoever was fenced."""

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        try:
            return super().advance_cursor(cursor, to_seq)
        except CursorFenced:
            moved = super().advance_cursor(self.inner.open_cursor(cursor.key, cursor.exporter), to_seq)
            return msgspec.structs.replace(moved, epoch=cursor.epoch, nonce=cursor.nonce)


class _FencedInMemory(_NotFenced):
    """Knows only the openers that came through the same handle."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._newest: dict[tuple[ThreadKey, str], int] = {}

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        cursor = super().open_cursor(key, exporter)
        self._newest[key, exporter] = cursor.epoch
        return cursor

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        newest = self._newest.get((cursor.key, cursor.exporter), cursor.epoch)
        if cursor.epoch < newest:
            raise CursorFenced("a newer opener came through this handle", current_epoch=newest, key=cursor.key.name)
        return super().advance_cursor(cursor, to_seq)


class _FenceCheckedFirst(_NotFenced):
    """Looks at the epoch first and writes then: whoever opens between the two is overwritten."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner)
        self._memory = memory

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        cursor = super().open_cursor(key, exporter)
        with self._memory.lock:
            newest = int(self._memory.kept.get((key, exporter), 0))
            self._memory.kept[key, exporter] = max(newest, cursor.epoch)
        return cursor

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        newest = int(self._memory.kept.get((cursor.key, cursor.exporter), 0))
        if cursor.epoch < newest:
            raise CursorFenced("the look has shown a newer opener", current_epoch=newest, key=cursor.key.name)
        time.sleep(0.002)
        try:
            return super().advance_cursor(cursor, to_seq)
        except CursorRegression:
            now = self.inner.open_cursor(cursor.key, cursor.exporter)
            try:
                self.inner.reset_cursor(cursor.key, cursor.exporter, to_seq, expected_version=now.version)
            except CursorConflict:
                return cursor
            return msgspec.structs.replace(cursor, acked_seq=to_seq)


# ---------------------------------------------------------------------------------------------------------- CURSOR-3


class _GoesBack(ForwardJournal):
    """Writes the position as it is given."""

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        try:
            return super().advance_cursor(cursor, to_seq)
        except CursorRegression:
            now = self.inner.open_cursor(cursor.key, cursor.exporter)
            return self.inner.reset_cursor(cursor.key, cursor.exporter, to_seq, expected_version=now.version)


class _PassesTheEnd(ForwardJournal):
    """Takes any position for acknowledged, and stands at the end meanwhile."""

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        try:
            return super().advance_cursor(cursor, to_seq)
        except JournalRegressed as error:
            moved = super().advance_cursor(cursor, error.last_seq or 0)
            return msgspec.structs.replace(moved, acked_seq=to_seq)


class _AdvancesByVersion(ForwardJournal):
    """Makes an advance conditional on the version of the record."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._versions: dict[tuple[ThreadKey, str], int] = {}

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        place = cursor.key, cursor.exporter
        if self._versions.get(place, cursor.version) > cursor.version:
            raise CursorFenced("the record has another version", current_epoch=cursor.epoch, key=cursor.key.name)
        moved = super().advance_cursor(cursor, to_seq)
        self._versions[place] = moved.version
        return moved


class _ResetUnconditional(ForwardJournal):
    """Ignores the version that a reset expects."""

    def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        try:
            return super().reset_cursor(key, exporter, to_seq, expected_version=expected_version)
        except CursorConflict as error:
            return super().reset_cursor(key, exporter, to_seq, expected_version=error.current_version or 0)


class _ResetFencesNobody(_NotFenced):
    """Moves the position of a cursor and leaves its opener in place."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._opened: dict[tuple[ThreadKey, str], int] = {}

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        cursor = super().open_cursor(key, exporter)
        self._opened[key, exporter] = cursor.epoch
        return cursor

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        if self._opened.get((cursor.key, cursor.exporter), 0) > cursor.epoch:
            return self.inner.advance_cursor(cursor, to_seq)
        return super().advance_cursor(cursor, to_seq)


# ---------------------------------------------------------------------------------------------------------- CURSOR-4


class _KeptByBatch(ForwardJournal):
    """Stores the end of what was read as the position."""

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        super().advance_cursor(cursor, to_seq)
        head = self.inner.head(cursor.key)
        end = to_seq if head is None else min(head.last_seq, -(-to_seq // 5) * 5)
        moved = super().advance_cursor(cursor, end)
        return msgspec.structs.replace(moved, acked_seq=to_seq)


class _MovedBeforeTheAcknowledgement(ForwardJournal):
    """Takes for acknowledged what an opener is about to read."""

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        opened = super().open_cursor(key, exporter)
        head = self.inner.head(key)
        if head is not None and head.last_seq > opened.acked_seq:
            super().advance_cursor(opened, head.last_seq)
        return opened

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        try:
            return super().advance_cursor(cursor, to_seq)
        except CursorRegression:
            return msgspec.structs.replace(cursor, acked_seq=to_seq)


# ---------------------------------------------------------------------------------------------------------- CURSOR-5


class _SurvivesDelete(ForwardJournal):
    """Keys cursors by exporter alone, so that an old one counts in the next incarnation."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._acked: dict[tuple[ThreadKey, str], int] = {}

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        moved = super().advance_cursor(cursor, to_seq)
        self._acked[cursor.key, cursor.exporter] = moved.acked_seq
        return moved

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        try:
            return super().open_cursor(key, exporter)
        except CursorInvalid as error:
            acked = self._acked.get((key, exporter), 0)
            return self.inner.reset_cursor(key, exporter, acked, expected_version=error.version or 0)


class RepairsItself(ForwardJournal):
    """Starts again at the beginning, at the end or behind a trim, wherever a cursor does not fit."""

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        try:
            return super().open_cursor(key, exporter)
        except CursorInvalid as error:
            return self.inner.reset_cursor(key, exporter, 0, expected_version=error.version or 0)
        except JournalRegressed as error:
            return self._reset(key, exporter, error.last_seq or 0)
        except Trimmed as error:
            return self._reset(key, exporter, (error.first_seq or 1) - 1)

    def _reset(self, key: ThreadKey, exporter: str, to_seq: int) -> ExportCursor:
        try:
            return self.inner.reset_cursor(key, exporter, to_seq, expected_version=0)
        except CursorConflict as error:
            return self.inner.reset_cursor(key, exporter, to_seq, expected_version=error.current_version or 0)


class _CreatesTheJournal(ForwardJournal):
    """Makes a journal where there is none, so that there is something to open a cursor on."""

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        try:
            return super().open_cursor(key, exporter)
        except JournalNotFound:
            self.inner.release(self.inner.claim(key, "exporter"))
            return super().open_cursor(key, exporter)


class _IgnoresTheTrim(ForwardJournal):
    """Shows a new cursor at 0, whatever was trimmed."""

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        cursor = super().open_cursor(key, exporter)
        return msgspec.structs.replace(cursor, acked_seq=0) if cursor.version == 1 else cursor


CURSOR_MOVES_THE_HEAD: Final = Mutant(
    "cursor-moves-the-head",
    "cursors are kept inside the head, so that exporters contend with the writer",
    wrapped(_MovesTheHead),
)
CURSOR_NAMES_FOLD_CASE: Final = Mutant(
    "cursor-names-fold-case", "two exporters whose names differ by case share one cursor", wrapped(_FoldsCase)
)
CURSOR_NOT_FENCED: Final = Mutant(
    "cursor-not-fenced", "an old exporter overwrites a newer one's cursor", wrapped(_NotFenced), canary=True
)
CURSOR_FENCED_IN_MEMORY: Final = Mutant(
    "cursor-fenced-in-memory",
    "each handle fences the openers that it knows, and heals itself where another handle was faster",
    wrapped(_FencedInMemory),
    base="file://{directory}",
)
CURSOR_FENCE_CHECKED_FIRST: Final = Mutant(
    "cursor-fence-checked-first",
    "the fence is checked, and the position is written in a second step",
    wrapping(journal=_FenceCheckedFirst),
)
CURSOR_GOES_BACK: Final = Mutant(
    "cursor-goes-back", "a late acknowledgement moves the cursor back", wrapped(_GoesBack), canary=True
)
CURSOR_PASSES_THE_END: Final = Mutant(
    "cursor-passes-the-end", "a cursor moves past the end, and what is written next is skipped", wrapped(_PassesTheEnd)
)
CURSOR_ADVANCES_BY_VERSION: Final = Mutant(
    "cursor-advances-by-version",
    "a retried advance fails, because the first attempt has changed the version",
    wrapped(_AdvancesByVersion),
)
CURSOR_RESET_UNCONDITIONAL: Final = Mutant(
    "cursor-reset-unconditional", "a reset does not look at what it replaces", wrapped(_ResetUnconditional)
)
CURSOR_RESET_FENCES_NOBODY: Final = Mutant(
    "cursor-reset-fences-nobody",
    "after a reset the running exporter goes on and undoes it",
    wrapped(_ResetFencesNobody),
)
CURSOR_KEPT_BY_BATCH: Final = Mutant(
    "cursor-kept-by-batch", "the position is rounded up to the end of a batch of five", wrapped(_KeptByBatch)
)
CURSOR_MOVED_BEFORE_THE_ACKNOWLEDGEMENT: Final = Mutant(
    "cursor-moved-before-the-acknowledgement",
    "the cursor moves when events are handed out, and a crash skips them",
    wrapped(_MovedBeforeTheAcknowledgement),
)
CURSOR_SURVIVES_DELETE: Final = Mutant(
    "cursor-survives-delete", "a cursor of a deleted journal skips events of the next one", wrapped(_SurvivesDelete)
)
CURSOR_REPAIRS_ITSELF: Final = Mutant(
    "cursor-repairs-itself",
    "a cursor that does not fit starts again somewhere, without a word",
    wrapped(RepairsItself),
)
CURSOR_CREATES_THE_JOURNAL: Final = Mutant(
    "cursor-creates-the-journal", "opening a cursor creates the journal", wrapped(_CreatesTheJournal)
)
CURSOR_IGNORES_THE_TRIM: Final = Mutant(
    "cursor-ignores-the-trim", "a new cursor starts at 0 and fails at its first read", wrapped(_IgnoresTheTrim)
)
