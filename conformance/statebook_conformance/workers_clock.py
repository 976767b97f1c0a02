"""A worker whose clocks jump and stand still between its calls."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from statebook.errors import BackendUnavailable, WriterBusy
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey
from statebook.model import ABSENT, NONE, Batch, ExpectedVersion, WriterClaim
from statebook.state import AgentStateStore
from statebook_conformance.faults.clock import MovedClock, injected
from statebook_conformance.scenes import make_batch, thread

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue
    from statebook_conformance.child import ChildContext

SLOT: Final = StateKey("user", "session", "document")
"""The document that the worker saves."""
LIST: Final = StateKey("user", "session", "list")
"""The list that the worker appends to."""
EXPORTER: Final = "exporter"
"""Whose cursor the worker moves."""
FOREIGN: Final = "foreign"
"""The thread that the rule holds, with a true clock."""
KEPT: Final = 4
"""How many events a trim leaves at least."""


class _Worker:
    def __init__(self, journal: ThreadJournalStore, other: ThreadJournalStore, state: AgentStateStore) -> None:
        self.journal, self.other, self.state = journal, other, state
        self.claim: WriterClaim = journal.claim(thread(), "writer")
        self.cursor = None if self.claim.last_seq == 0 else journal.open_cursor(thread(), EXPORTER)
        self.base = self.claim.last_seq
        self.version: ExpectedVersion = ABSENT
        self.length = self.list_version = 0
        self.batch = make_batch("none yet")

    def work(self, number: int) -> dict[str, JsonValue]:
        """Call everything once; what was answered. Called again with its number where a call of it was refused."""
        before = time.monotonic()
        if self.batch.batch_id != f"b{number}":
            self.batch = _at_this_moment(make_batch(f"b{number}", 2))
        self.journal.heartbeat(self.claim)
        self.base = self.journal.append(self.claim, self.batch, 2 * number).last_seq
        if self.cursor is None:
            self.cursor = self.journal.open_cursor(thread(), EXPORTER)
        self.cursor = self.journal.advance_cursor(self.cursor, self.base - 1)
        self.version = self.state.save(SLOT, b"%d" % number, expected=self.version)
        saved = self.state.load(SLOT)
        if self.length == number:
            self.list_version = self.state.append_list(LIST, (b"%d" % number,), expected_length=number)
            self.length += 1
        first = self.journal.trim(thread(), max(1, self.base - KEPT)).first_seq
        events = self.journal.read_after(thread(), first - 1).events
        answers: dict[str, JsonValue] = {
            "last_seq": self.base,
            "acked": self.cursor.acked_seq,
            "version": self.version,
            "loaded": None if saved is None else [int(saved.value), saved.version],
            "list_version": self.list_version,
            "first_seq": first,
            "events": [[event.seq, event.event_id] for event in events],
            "mine": _holder(self.other, "other"),
            "foreign": _holder(self.other, "thief", FOREIGN),
            "monotonic": time.monotonic() >= before,
            "wall_s": time.time(),
        }
        if number % 3 == 2:
            self.state.delete(SLOT)
            self.version = ABSENT
            self.claim = self.journal.claim(thread(), "writer", replacing=self.claim.info)
        return {**answers, "epoch": self.claim.epoch}


def _at_this_moment(batch: Batch) -> Batch:
    now = time.time_ns() // 1_000_000
    return replace(batch, events=tuple(replace(event, occurred_at=now) for event in batch.events))


def _holder(journal: ThreadJournalStore, writer: str, name: str = "thread") -> str | None:
    """Who keeps a claim out; None where it was let in."""
    try:
        journal.claim(thread(name), writer, replacing=NONE)
    except WriterBusy as error:
        return None if error.holder is None else error.holder.writer_id
    return None


def work_through_jumps(child: ChildContext) -> int:
    """At each order of the rule move the clocks, work, and tell the answers; until there is no order."""
    with injected(MovedClock()) as clock:
        worker = _Worker(child.open_journal(), child.open_journal(), child.open_state())
        foreign = bool(child.number("shared"))
        if not foreign:
            child.open_journal().claim(thread(FOREIGN), "rule")
        child.tell("ready")
        number = 0
        while order := child.hear():
            clock.jump(float(cast("float", order["jump_s"])))
            if order["still"]:
                clock.stand_still()
            else:
                clock.go_on()
            try:
                answers = worker.work(cast("int", order["number"]))
            except BackendUnavailable as refusal:
                child.tell("worked", refused=refusal.message)
                continue
            number = cast("int", order["number"])
            child.tell("worked", **answers, ahead_s=clock.ahead_s)
        return number
