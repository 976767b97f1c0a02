"""Mutants of damage: stores that guess where they must refuse. They run over core's stores and a medium in memory."""

from __future__ import annotations

import json
import pickle
from typing import Final, Literal

from statebook.atomic import AtomicJournalStorage, HeadRecord, NamePage
from statebook.atomic_head import HEAD_KIND
from statebook.codec import seal
from statebook.errors import DataError, JournalCorrupt, StateCorrupt, UnsupportedFormat
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey, ThreadKey
from statebook.model import (
    ANY,
    PAGE_MAX,
    Batch,
    ClaimInfo,
    EventPage,
    Expect,
    ExpectedVersion,
    ExportCursor,
    JournalHead,
    ListValue,
    Receipt,
    RecordedEvent,
    StateValue,
    VerifyReport,
    WriterClaim,
)
from statebook_conformance.mutants.cursor import RepairsItself, wrapped
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardBackend, ForwardJournal, ForwardState
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.over_atomic import over_atomic

# ------------------------------------------------------------------------------------------- journals that guess


class _StartsEmpty(ForwardJournal):
    """Takes a head that it cannot read for one that is not there."""

    def head(self, key: ThreadKey) -> JournalHead | None:
        try:
            return super().head(key)
        except JournalCorrupt:
            return None

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        try:
            return super().read_after(key, seq, limit)
        except JournalCorrupt:
            return EventPage((), has_more=False, last_seq=0)


class _SkipsDamaged(ForwardJournal):
    """Leaves out what it cannot read, one event after the other."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        try:
            return super().read_after(key, seq, limit)
        except JournalCorrupt:
            head = self.inner.head(key)
            last_seq = 0 if head is None else head.last_seq
            events: list[RecordedEvent] = []
            for at in range(seq, min(last_seq, seq + limit)):
                try:
                    events.extend(self.inner.read_after(key, at, 1).events)
                except JournalCorrupt:
                    continue
            return EventPage(tuple(events), has_more=False, last_seq=last_seq)


class _Shortens(ForwardJournal):
    """Takes damage for the end of the journal."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        try:
            return super().read_after(key, seq, limit)
        except JournalCorrupt:
            if limit > 1:
                return self.read_after(key, seq, limit // 2)
            self.inner.head(key)
            return EventPage((), has_more=False, last_seq=seq)


class _SaysFine(ForwardJournal):
    """Reports what it could read, not what it could not."""

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        report = super().verify(key, deep=deep)
        return VerifyReport(key, (), report.batches, report.events)


class _WritesOver(ForwardJournal):
    """Claims whatever it finds: where the head is damaged, that of another, fresh journal."""

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        try:
            return super().claim(key, writer_id, replacing=replacing)
        except DataError:
            spare = ThreadKey(key.user_id, key.agent_id, key.session_id, f"{key.thread_id}-2")
            return super().claim(spare, writer_id)

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        try:
            return super().append(claim, batch, base_seq)
        except DataError:
            return super().append(self.claim(claim.key, claim.writer_id), batch, 0)


class _CursorStartsAgain(ForwardJournal):
    """Opens a cursor that it cannot read as a new one."""

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        try:
            return super().open_cursor(key, exporter)
        except JournalCorrupt:
            head = self.inner.head(key)
            return ExportCursor(key, exporter, "" if head is None else head.journal_id, 0, 1, "new", 1)


# --------------------------------------------------------------------------------------------- storages that misread


class _Unverified(ForwardAtomic):
    """Reads heads without a look at their length and digest."""

    def read_head(self, scope: str) -> HeadRecord | None:
        record = super().read_head(scope)
        if record is None:
            return None
        line, _, body = record.data.partition(b"\n")
        try:
            kind = json.loads(line)["kind"]
        except (ValueError, KeyError, TypeError):
            return record
        return HeadRecord(seal(str(kind), body), record.token)


class _CutsTheTail(_Unverified):
    """Drops the last, torn line of a head's tail, and ends the journal with the line before."""

    def read_head(self, scope: str) -> HeadRecord | None:
        whole = self.inner.read_head(scope)
        record = super().read_head(scope)
        if whole is None or record is None or whole.data == record.data or not scope.startswith("t/"):
            return whole
        lines = record.data.split(b"\n")[1:]
        try:
            head = json.loads(lines[0])
            kept = [line for line in lines[1:] if line.endswith(b"}}")]
            last = json.loads(kept[-1])
            head["head"]["last_seq"], head["head"]["chain"] = last["last"], last["chain"]
        except (ValueError, KeyError, TypeError, IndexError):
            return whole
        body = b"\n".join([json.dumps(head).encode(), *kept]) + b"\n"
        return HeadRecord(seal(HEAD_KIND, body), record.token)


class _AnyFormat(ForwardAtomic):
    """Reads records of any format as its own."""

    def read_head(self, scope: str) -> HeadRecord | None:
        record = super().read_head(scope)
        if record is None:
            return None
        return HeadRecord(record.data.replace(b'"statebook":3', b'"statebook":2', 1), record.token)


class _NoOrphans(ForwardAtomic):
    """Lists no blobs where there is no head."""

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        page = super().list_blobs(scope, after, limit)
        return NamePage((), has_more=False) if self.inner.read_head(scope) is None else page


class _Unpickles(ForwardAtomic):
    """Revives what it finds, if it can be revived."""

    def read_head(self, scope: str) -> HeadRecord | None:
        record = super().read_head(scope)
        if record is not None:
            try:
                pickle.loads(record.data)  # noqa: S301 - what is wrong with this mutant
            except Exception:  # noqa: BLE001 - whatever pickle raises for bytes that are none
                return record
        return record


# ------------------------------------------------------------------------------------------------------------- state


class _CorruptIsAbsent(ForwardState):
    """Takes a value that it cannot read for one that is not there."""

    def load(self, slot: StateKey) -> StateValue | None:
        try:
            return super().load(slot)
        except StateCorrupt:
            return None

    def load_list(self, slot: StateKey) -> ListValue | None:
        try:
            return super().load_list(slot)
        except StateCorrupt:
            return None


class _SavesOverDamage(ForwardState):
    """Says that it has saved over what it cannot read."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        try:
            return super().save(slot, value, expected=expected)
        except (StateCorrupt, UnsupportedFormat):
            return 1


# --------------------------------------------------------------------------------------------------------- leftovers


class _LeftoverIsDamage(ForwardJournal):
    """Takes what a failed commit left behind for damage."""

    def __init__(self, inner: ThreadJournalStore, storage: AtomicJournalStorage) -> None:
        super().__init__(inner)
        self._storage = storage

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        names = self._storage.list_blobs(f"t/{key.name}", None, PAGE_MAX).names
        if len(names) > page.last_seq // 7:
            raise JournalCorrupt("there are more blobs than segments", what="segment", key=key.name)
        return page


class _LeftoverIsDamageBackend(ForwardBackend):
    def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
        return _LeftoverIsDamage(super().journal_over(storage), storage)


class _ChecksNothing(ForwardJournal):
    """Verifies without reading."""

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        self.inner.head(key)
        return VerifyReport(key, (), 0, 0)


CORRUPT_HEAD_STARTS_EMPTY: Final = Mutant(
    "corrupt-head-starts-empty", "a head that cannot be read is an empty journal", over_atomic(journal=_StartsEmpty)
)
DAMAGED_BATCH_SKIPPED: Final = Mutant(
    "damaged-batch-skipped", "readers skip over a batch that they cannot read", over_atomic(journal=_SkipsDamaged)
)
JOURNAL_SHORTENED: Final = Mutant(
    "journal-shortened-at-the-damage", "damage counts as the end of the journal", over_atomic(journal=_Shortens)
)
VERIFY_SAYS_FINE: Final = Mutant(
    "verify-says-fine", "verify reports nothing, whatever it meets", over_atomic(journal=_SaysFine)
)
DAMAGE_IS_WRITTEN_OVER: Final = Mutant(
    "damage-is-written-over", "a writer goes on beside a head that cannot be read", over_atomic(journal=_WritesOver)
)
DAMAGED_CURSOR_STARTS_AGAIN: Final = Mutant(
    "damaged-cursor-starts-again",
    "a cursor that cannot be read starts again at 0",
    over_atomic(journal=_CursorStartsAgain),
)
DIGEST_NOT_VERIFIED: Final = Mutant(
    "digest-not-verified", "lengths and digests are stored and never compared", over_atomic(atomic=_Unverified)
)
TORN_TAIL_CUT_OFF: Final = Mutant(
    "torn-tail-cut-off",
    "a torn last record is dropped, and the next one is written in its place",
    over_atomic(atomic=_CutsTheTail),
)
UNKNOWN_FORMAT_IS_READ: Final = Mutant(
    "unknown-format-is-read", "records of a later format are read as if they were ours", over_atomic(atomic=_AnyFormat)
)
BLOBS_WITHOUT_A_HEAD: Final = Mutant(
    "blobs-without-a-head-are-empty", "a journal whose head was lost is an empty one", over_atomic(atomic=_NoOrphans)
)
UNPICKLES_WHAT_IT_FINDS: Final = Mutant(
    "unpickles-what-it-finds", "bytes in the medium are revived as objects", over_atomic(atomic=_Unpickles)
)
CORRUPT_STATE_READ_AS_ABSENT: Final = Mutant(
    "corrupt-state-read-as-absent", "a value that cannot be read is absent", over_atomic(state=_CorruptIsAbsent)
)
DAMAGED_STATE_SAVED_OVER: Final = Mutant(
    "damaged-state-saved-over", "a save over a value that cannot be read succeeds", over_atomic(state=_SavesOverDamage)
)
LEFTOVER_IS_DAMAGE: Final = Mutant(
    "leftover-is-damage", "what a failed commit left behind counts as damage", _LeftoverIsDamageBackend
)
VERIFY_CHECKS_NOTHING: Final = Mutant(
    "verify-checks-nothing", "verify reads nothing and finds nothing", wrapped(_ChecksNothing)
)
RESTORED_CURSOR_REPAIRS_ITSELF: Final = Mutant(
    "restored-cursor-repairs-itself",
    "a cursor that does not fit its journal is moved to where it fits",
    over_atomic(journal=RepairsItself),
)
