"""Workloads on agent state: counters that are read and saved with compare-and-set, on one slot or on many."""

from __future__ import annotations

import random
from threading import Lock

import msgspec

from statebook import ABSENT, StatebookError, StateKey, VersionConflict
from statebook_benchmarks.content import payload_of
from statebook_benchmarks.load import Outcome
from statebook_benchmarks.validity import Finding
from statebook_benchmarks.workloads.workload import Site, Workload


class _Counter(msgspec.Struct, frozen=True):
    count: int
    pad: msgspec.Raw


class CasWorkload(Workload):
    """One load and one save an operation; a lost race is a conflict, and is not tried again."""

    def __init__(self, site: Site, slots: int) -> None:
        self._store = site.backend.open_state()
        self._name = site.name
        self._slots = slots
        self._pad = msgspec.Raw(payload_of(site.parameters.event_bytes))
        self._rngs = [random.Random(f"{site.parameters.seed}-{n}") for n in range(site.parameters.threads)]
        self._encode = msgspec.json.Encoder().encode
        self._lock = Lock()
        self._saved: dict[int, int] = {}
        self._unknown: dict[int, int] = {}

    def prepare(self) -> None:
        """Slots are made by their first save."""

    def _slot(self, number: int) -> StateKey:
        return StateKey("bench", f"{self._name}-{number}", "counter")

    def __call__(self, thread: int) -> Outcome:
        number = self._rngs[thread].randrange(self._slots)
        slot = self._slot(number)
        loaded = self._store.load(slot)
        count = 0 if loaded is None else msgspec.json.decode(loaded.value, type=_Counter).count
        value = self._encode(_Counter(count + 1, self._pad))
        try:
            self._store.save(slot, value, expected=ABSENT if loaded is None else loaded.version)
        except VersionConflict:
            raise
        except StatebookError:
            self._add(self._unknown, number)
            raise
        self._add(self._saved, number)
        return Outcome.DONE

    def _add(self, counts: dict[int, int], number: int) -> None:
        with self._lock:
            counts[number] = counts.get(number, 0) + 1

    def check(self) -> list[Finding]:
        findings = []
        for number in sorted(self._saved | self._unknown):
            saved, unknown = self._saved.get(number, 0), self._unknown.get(number, 0)
            loaded = self._store.load(self._slot(number))
            count = 0 if loaded is None else msgspec.json.decode(loaded.value, type=_Counter).count
            if not saved <= count <= saved + unknown:
                what = "loss" if count < saved else "duplication"
                detail = f"{saved} saves were acknowledged, {unknown} unknown, and the counter says {count}"
                findings.append(Finding(what, self._slot(number).session_id, abs(count - saved), detail))
        return findings

    def close(self) -> None:
        self._store.close()
