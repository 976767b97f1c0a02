"""Mutants of reading."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from statebook import atomic_reader
from statebook.atomic_head import StoredHead
from statebook.errors import JournalRegressed, Trimmed
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import EventPage
from statebook_conformance.mutants.core_copy import changed_core
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, Memory, wrapping


class _LimitIgnored(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        super().read_after(key, seq, limit)
        return super().read_after(key, seq, 10_000)


READ_LIMIT_IGNORED: Final = Mutant(
    "read-limit-ignored", "a page holds more events than were asked for", wrapping(journal=_LimitIgnored)
)


class _FullPageMeansMore(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        return EventPage(page.events, len(page.events) == limit, page.last_seq)


HAS_MORE_WRONG: Final = Mutant(
    "has-more-wrong",
    "a full page is taken to mean that there are more",
    wrapping(journal=_FullPageMeansMore),
)


class _NewestFirst(BadJournal):
    """Gives the newest events that fit the limit."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        if not page.has_more:
            return page
        return EventPage(super().read_after(key, page.last_seq - limit, limit).events, page.has_more, page.last_seq)


PAGE_FROM_OTHER_END: Final = Mutant(
    "page-from-other-end",
    "a page holds the newest events that fit, not those behind its seq",
    wrapping(journal=_NewestFirst),
)


class _NegativeSeq(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        return super().read_after(key, 0 if type(seq) is int and seq < 0 else seq, limit)


NEGATIVE_SEQ_ACCEPTED: Final = Mutant(
    "negative-seq-accepted", "a negative seq reads from the start", wrapping(journal=_NegativeSeq)
)


class _ZeroIsAll(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        return super().read_after(key, seq, 10_000 if limit == 0 else limit)


ZERO_LIMIT_IS_ALL: Final = Mutant("zero-limit-is-all", "a limit of 0 means all", wrapping(journal=_ZeroIsAll))


class _Reformats(BadJournal):
    """Parses payloads and writes them again."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        events = (
            msgspec.structs.replace(event, payload=json.dumps(json.loads(event.payload), sort_keys=True).encode())
            for event in page.events
        )
        return EventPage(tuple(events), page.has_more, page.last_seq)


PAYLOAD_REFORMATTED: Final = Mutant(
    "payload-reformatted", "payloads are parsed and written again", wrapping(journal=_Reformats)
)


class _DropsFields(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        events = (msgspec.structs.replace(event, turn_id=None, required=False) for event in page.events)
        return EventPage(tuple(events), page.has_more, page.last_seq)


EVENT_FIELDS_DROPPED: Final = Mutant(
    "event-fields-dropped", "a field of the event has no column", wrapping(journal=_DropsFields)
)


class _Snapshot(BadJournal):
    """Reads each journal as it was when this handle first read it to its end."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._ends: dict[ThreadKey, int] = {}

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        if page.last_seq == 0:
            return page
        end = max(seq, self._ends.setdefault(key, page.last_seq))
        events = tuple(event for event in page.events if event.seq <= end)
        return EventPage(events, (events[-1].seq if events else seq) < end, end)


READER_KEEPS_SNAPSHOT: Final = Mutant(
    "reader-keeps-snapshot",
    "a reader's connection stays in its first snapshot and never sees what is new",
    wrapping(journal=_Snapshot),
)


class _EmptyBehindTheEnd(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        try:
            return super().read_after(key, seq, limit)
        except JournalRegressed as error:
            return EventPage((), has_more=False, last_seq=error.last_seq or 0)


REGRESSED_READS_EMPTY: Final = Mutant(
    "regressed-reads-empty",
    "a position behind the end reads as an empty page, so that lost data goes unnoticed",
    wrapping(journal=_EmptyBehindTheEnd),
)


class _ReadsOn(BadJournal):
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        try:
            return super().read_after(key, seq, limit)
        except Trimmed as error:
            return super().read_after(key, (error.first_seq or 1) - 1, limit)


TRIMMED_READS_ON: Final = Mutant(
    "trimmed-reads-on",
    "a position that has been trimmed away is moved to what is left, without a word",
    wrapping(journal=_ReadsOn),
)


class _FromStart(atomic_reader.JournalReader):
    """Reads everything to find the place."""

    def page(self, head: StoredHead, seq: int, limit: int) -> EventPage:
        for _ in self.batches(head, head.state.first_seq):
            pass
        return super().page(head, seq, limit)


READS_FROM_START: Final = Mutant(
    "reads-from-start", "a page is found by reading the journal from its start", changed_core(JournalReader=_FromStart)
)
