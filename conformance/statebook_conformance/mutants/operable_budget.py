"""Mutants of budgets: calls that talk, connect, write or sync more often than they have to."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey, ThreadKey
from statebook.model import ANY, PAGE_MAX, Batch, EventPage, ExpectedVersion, Receipt, WriterClaim
from statebook.state import AgentStateStore
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, BadState, Memory, wrapping

_TOO_MUCH: Final = 300_000
_MANY: Final = 30
_FILES: Final = "file://{directory}"


class _Line:
    """A connection to somebody who answers each question."""

    def __init__(self) -> None:
        self._here, self._there = socket.socketpair()

    def ask(self, times: int = 1) -> None:
        """Ask and wait, so many times."""
        for _ in range(times):
            self._here.sendall(b"question")
            self._there.recv(64)
            self._there.sendall(b"answer")
            self._here.recv(64)

    def close(self) -> None:
        """Hang up."""
        self._here.close()
        self._there.close()


class _WithLine(BadJournal):
    """A journal with a connection."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self.line = _Line()
        self.line.ask()

    def close(self) -> None:
        self.line.close()
        self.inner.close()


class _ChattyAppend(_WithLine):
    """Asks for the head, the claim, the window, the batch, and says each of them again."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        self.line.ask(6)
        return self.inner.append(claim, batch, base_seq)


class _RoundTripAnEvent(_WithLine):
    """Asks for each event of a page."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = self.inner.read_after(key, seq, limit)
        self.line.ask(len(page.events))
        return page


class _ConnectsEachTime(BadJournal):
    """Makes a connection for each append."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        line = _Line()
        line.ask()
        line.close()
        return self.inner.append(claim, batch, base_seq)


class _WritesManyTimes(BadJournal):
    """Writes a block of a fixed size for each batch, however small that is."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(_TOO_MUCH))
        return self.inner.append(claim, batch, base_seq)


class _FlushesInVain(BadJournal):
    """Flushes a file of its own behind each event of a batch."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        with tempfile.TemporaryFile() as file:
            for _ in batch.events:
                os.fsync(file.fileno())
        return self.inner.append(claim, batch, base_seq)


class _OpensEveryTime(BadJournal):
    """Opens each of many files to look whether something has changed."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        for _ in range(_MANY):
            os.close(os.open(os.devnull, os.O_RDONLY))
        return self.inner.append(claim, batch, base_seq)


class _ReadWaitsForDisk(BadJournal):
    """Flushes before it reads, so that it reads nothing that may be lost."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        with tempfile.TemporaryFile() as file:
            os.fdatasync(file.fileno())
        return self.inner.read_after(key, seq, limit)


class _ReadsManyTimes(BadJournal):
    """Reads a file of a fixed size for each page."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self._file: Any = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the store
        self._file.write(bytes(4 * _TOO_MUCH))

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        self._file.seek(0)
        self._file.read()
        return self.inner.read_after(key, seq, limit)

    def close(self) -> None:
        self._file.close()
        self.inner.close()


class _WindowToSettle(BadJournal):
    """Fetches the newest batches with their events before it says what became of one."""

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        self.inner.read_after(claim.key, 0, PAGE_MAX)
        return self.inner.settle(claim, batch_id, base_seq)


class _WindowToAnswer(BadJournal):
    """Fetches the newest batches with their events where a batch comes behind its base."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        head = self.inner.head(claim.key)
        if head is not None and head.last_seq > base_seq:
            self.inner.read_after(claim.key, 0, PAGE_MAX)
        return self.inner.append(claim, batch, base_seq)


class _RewritesLists(BadState):
    """Appends by loading the list and replacing it."""

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        before = self.inner.load_list(slot)
        if before is None or len(before.items) != expected_length:
            return self.inner.append_list(slot, items, expected_length=expected_length)
        return self.inner.replace_list(slot, (*before.items, *items), expected=before.version)


class _ChattySave(BadState):
    """Asks for slot, session, user, index and limits before it saves."""

    def __init__(self, inner: AgentStateStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        self.line = _Line()
        self.line.ask()

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        self.line.ask(5)
        return self.inner.save(slot, value, expected=expected)

    def close(self) -> None:
        self.line.close()
        self.inner.close()


CHATTY_APPEND: Final = Mutant(
    "chatty-append", "an append asks six times before it writes", wrapping(journal=_ChattyAppend)
)
ROUND_TRIP_AN_EVENT: Final = Mutant(
    "round-trip-an-event", "a page is asked for event by event", wrapping(journal=_RoundTripAnEvent)
)
CONNECTS_EACH_TIME: Final = Mutant(
    "connection-a-call", "each append makes a connection of its own", wrapping(journal=_ConnectsEachTime)
)
WRITES_MANY_TIMES: Final = Mutant(
    "writes-many-times", "a small batch is written as a large block", wrapping(journal=_WritesManyTimes)
)
SYNCS_EACH_EVENT: Final = Mutant("sync-an-event", "a batch is synced event by event", wrapping(journal=_FlushesInVain))
READS_MANY_TIMES: Final = Mutant(
    "reads-many-times", "a page reads a large file as a whole", wrapping(journal=_ReadsManyTimes)
)
REWRITES_LISTS: Final = Mutant(
    "list-rewritten-whole",
    "an append to a list loads and replaces it",
    wrapping(state=_RewritesLists),
    base=_FILES,
)
CHATTY_SAVE: Final = Mutant("chatty-save", "a save asks five times before it writes", wrapping(state=_ChattySave))
FLUSHES_IN_VAIN: Final = Mutant(
    "flushes-in-vain", "a batch is flushed event by event", wrapping(journal=_FlushesInVain), base=_FILES
)
OPENS_EVERY_TIME: Final = Mutant(
    "opens-every-time", "each append opens many files", wrapping(journal=_OpensEveryTime), base=_FILES
)
READ_WAITS_FOR_DISK: Final = Mutant(
    "read-waits-for-disk", "a read flushes first", wrapping(journal=_ReadWaitsForDisk), base=_FILES
)
WINDOW_TO_SETTLE: Final = Mutant(
    "window-read-to-settle",
    "settle fetches the newest batches with their events",
    wrapping(journal=_WindowToSettle),
    base=_FILES,
)
WINDOW_TO_ANSWER: Final = Mutant(
    "window-read-to-answer-again",
    "a batch that is sent again has the newest batches fetched with their events",
    wrapping(journal=_WindowToAnswer),
    base=_FILES,
)
