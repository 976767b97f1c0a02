"""Stores that lose answers, in a seeded order: over any atomic storage, and over any journal store.

The faults are those of a network between a process and its store. What happened to each write is known to the test,
and to nobody else: `landed` counts what was applied behind a lost answer.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict
from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError
from statebook.journal import ThreadJournalStore
from statebook.model import AppendOutcome, AppendRequest, Batch, Receipt, WriterClaim
from statebook_conformance.mutants.forward import ForwardAtomic, ForwardJournal

LATE_MAX: Final = 1_000
"""How many late requests can be on their way; further ones are lost."""


class Fault(Enum):
    """What happens to one write.

    `NONE`: nothing. `TIMES_OUT_AFTER`: applied, the answer is lost (`OutcomeUnknown`). `TIMES_OUT_BEFORE`: never
    applied, and the caller cannot know (`OutcomeUnknown`). `UNAVAILABLE`: refused, never applied
    (`BackendUnavailable`). `LATE`: `OutcomeUnknown` now, and the request lands when `land` is called, if its condition
    still holds then. `SLOW`: applied and answered after a wait. `CONFLICT`: not applied, and answered as if somebody
    else had written; of commits only, any other write meets `NONE`.
    """

    NONE = "none"
    TIMES_OUT_AFTER = "times out after"
    TIMES_OUT_BEFORE = "times out before"
    UNAVAILABLE = "unavailable"
    LATE = "late"
    SLOW = "slow"
    CONFLICT = "conflict without cause"


Fate: TypeAlias = Callable[[], Fault]
"""Says what happens to the next write."""


def planned(*faults: Fault) -> Fate:
    """These faults for the next writes, one each, then none."""
    waiting = iter(faults)
    lock = threading.Lock()

    def fate() -> Fault:
        with lock:
            return next(waiting, Fault.NONE)

    return fate


def drawn(rng: random.Random, faults: Sequence[Fault], *, rate: float) -> Fate:
    """Draw what happens to each write: the same seed and order of writes give the same faults.

    Args:
        rng: The only source of choice.
        faults: What can happen.
        rate: How often something does, 0 to 1.

    Returns:
        The fate.

    Raises:
        ValueError: There are no faults, or the rate is outside its range.
    """
    chosen = tuple(faults)
    if not chosen or not 0.0 <= rate <= 1.0:
        raise ValueError("there must be faults, and the rate must be 0 to 1")
    lock = threading.Lock()

    def fate() -> Fault:
        with lock:
            return rng.choice(chosen) if rng.random() < rate else Fault.NONE

    return fate


class FaultLine:
    """What the handles of one faulty store share: the fate of writes, and those that are on their way.

    Attributes:
        counts: How often each fault has happened.
        landed: How many late requests were applied when they landed.
    """

    def __init__(self, fate: Fate, *, sleep: Callable[[float], None] = time.sleep, slow_s: float = 0.01) -> None:
        """Make a line.

        Args:
            fate: Says what happens to each write.
            sleep: Waits, for `SLOW`.
            slow_s: How long a slow write takes, in seconds.
        """
        self.counts: Counter[Fault] = Counter()
        self.landed = 0
        self._fate = fate
        self._sleep = sleep
        self._slow_s = slow_s
        self._late: list[Callable[[], bool]] = []
        self._lock = threading.Lock()

    @property
    def late(self) -> int:
        """How many requests are on their way."""
        with self._lock:
            return len(self._late)

    def land(self, place: int = 0) -> bool:
        """Let a late request arrive.

        Args:
            place: Which one, the oldest first.

        Returns:
            Whether it was applied.

        Raises:
            IndexError: There is none.
        """
        with self._lock:
            request = self._late.pop(place)
        applied = request()
        with self._lock:
            self.landed += applied
        return applied

    def meet(self, what: str, late: Callable[[], bool]) -> Fault:
        """Draw the fate of a write, and raise where it is not to be applied now.

        Args:
            what: The scope or key, for the error.
            late: Applies the request later; tells whether it could.

        Returns:
            A fault with which the write is applied, or `CONFLICT`.

        Raises:
            BackendUnavailable: Refused.
            OutcomeUnknown: Lost, or late.
        """
        fault = self._fate()
        with self._lock:
            self.counts[fault] += 1
            if fault is Fault.LATE and len(self._late) < LATE_MAX:
                self._late.append(late)
        if fault is Fault.SLOW:
            self._sleep(self._slow_s)
        if fault is Fault.UNAVAILABLE:
            raise BackendUnavailable("the fault line refuses this write", key=what)
        if fault in (Fault.TIMES_OUT_BEFORE, Fault.LATE):
            raise OutcomeUnknown("the fault line keeps the answer", key=what)
        return fault


class FaultyAtomic(ForwardAtomic):
    """An atomic storage behind a fault line: commits of heads meet its faults, reads do not."""

    def __init__(self, inner: AtomicJournalStorage, line: FaultLine) -> None:
        """Wrap a storage, which is closed with this one.

        Args:
            inner: The storage.
            line: The line; several handles may share one.
        """
        super().__init__(inner)
        self.line = line

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        """Commit, and meet a fault (ERR-2)."""
        kept = dict(blobs or {})

        def later() -> bool:
            try:
                return not isinstance(self.inner.commit(scope, expected, head, kept), CommitConflict)
            except StatebookError:
                return False

        fault = self.line.meet(scope, later)
        if fault is Fault.CONFLICT:
            return COMMIT_CONFLICT
        answer = self.inner.commit(scope, expected, head, blobs)
        if fault is Fault.TIMES_OUT_AFTER:
            raise OutcomeUnknown("the fault line keeps the answer", key=scope)
        return answer


class FaultyJournal(ForwardJournal):
    """A journal store behind a fault line: appends meet its faults; other calls do not."""

    def __init__(self, inner: ThreadJournalStore, line: FaultLine) -> None:
        """Wrap a store, which is closed with this one.

        Args:
            inner: The store.
            line: The line; several handles may share one.
        """
        super().__init__(inner)
        self.line = line

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        """Append, and meet a fault (ERR-2)."""

        def later() -> bool:
            try:
                return not self.inner.append(claim, batch, base_seq).replayed
            except StatebookError:
                return False

        try:
            fault = self.line.meet(claim.key.name, later)
            receipt = self.inner.append(claim, batch, base_seq)
            if fault is Fault.TIMES_OUT_AFTER:
                raise OutcomeUnknown("the fault line keeps the answer", key=claim.key.name)
        except OutcomeUnknown as error:
            raise OutcomeUnknown(
                f"batch {batch.batch_id!r}: the fault line keeps the answer",
                batch_id=batch.batch_id,
                base_seq=base_seq,
                key=claim.key.name,
            ) from error
        return receipt

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        """One by one, so that each request meets its own fault."""
        self.capabilities.limits.check("group_batches_max", len(requests))
        outcomes: list[AppendOutcome] = []
        for request in requests:
            try:
                outcomes.append(self.append(request.claim, request.batch, request.base_seq))
            except StatebookError as error:
                outcomes.append(error)
        return tuple(outcomes)
