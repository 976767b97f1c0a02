"""Mutants that ask a clock where no clock may decide."""

from __future__ import annotations

import time
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from statebook.keys import StateKey, ThreadKey
from statebook.model import ANY, ClaimInfo, EventPage, Expect, ExpectedVersion, StateValue, WriterClaim
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, BadState, wrapping

_FILES: Final = "file://{directory}"
_LEASE_S: Final = 3_600.0

Replacing: TypeAlias = ClaimInfo | Literal[Expect.ANY, Expect.NONE]


class _LeaseOfAnHour(BadJournal):
    """A claim that runs out an hour after its last use: no test is so patient."""

    def claim(self, key: ThreadKey, writer_id: str, *, replacing: Replacing = ANY) -> WriterClaim:
        with self.memory.lock:
            silent = time.time() - self.memory.kept.get(key, time.time()) > _LEASE_S
            claim = super().claim(key, writer_id, replacing=ANY if silent else replacing)
            self.memory.kept[key] = time.time()
            return claim


class _VersionByClock(BadState):
    """Versions are the microsecond of the save."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        with self.memory.lock:
            if isinstance(expected, int):
                expected = self.memory.kept.get((slot, expected), expected)
            version = super().save(slot, value, expected=expected)
            shown = time.time_ns() // 1_000
            self.memory.kept[slot, shown] = version
            self.memory.kept[slot] = shown
            return shown

    def load(self, slot: StateKey) -> StateValue | None:
        saved = super().load(slot)
        shown = self.memory.kept.get(slot)
        return saved if saved is None or shown is None else replace(saved, version=shown)


class _EventsByTime(BadJournal):
    """Gives events in the order of the times that their writers have written into them."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        return replace(page, events=tuple(sorted(page.events, key=lambda event: event.occurred_at)))


LEASE_OF_AN_HOUR: Final = Mutant(
    "lease-of-an-hour",
    "a claim runs out an hour after it was made, by the wall clock of the next claimant",
    wrapping(journal=_LeaseOfAnHour),
    base=_FILES,
)
VERSION_BY_WALL_CLOCK: Final = Mutant(
    "version-by-wall-clock",
    "a version is the time of the save, so that it goes back with the clock",
    wrapping(state=_VersionByClock),
    base=_FILES,
)
EVENTS_BY_TIME: Final = Mutant(
    "events-by-time",
    "events are given in the order of their times, which is that of their seqs as long as clocks are right",
    wrapping(journal=_EventsByTime),
    base=_FILES,
)
