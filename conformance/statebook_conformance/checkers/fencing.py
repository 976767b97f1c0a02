"""Check that epochs fence: they only grow, and nothing of an old epoch comes after a newer one's first event.

A fence is a number that the storage itself compares, in the same atomic step as the write (CLAIM-2). So two things must
hold, and both can be read from a history: in time, nothing of an old epoch is accepted once a newer claim was returned;
in the chain, epochs never go down. The second catches what the first cannot: a writer paused just before its write,
whose request lands after the takeover while its own outcome stays unknown.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

from statebook_conformance.checkers.chain import (
    BUSY,
    FENCED,
    Chain,
    Holding,
    JournalHistory,
    Stored,
    cut,
    read_journal,
)
from statebook_conformance.checkers.fields import optional_integer, output_object
from statebook_conformance.checkers.history import History, Operation, Outcome
from statebook_conformance.checkers.verdict import Findings, Verdict, combine

_INFINITY = float("inf")


def check_fencing(history: History) -> Verdict:
    """Check the epochs of each journal of a history (CLAIM-1 to CLAIM-3, CLAIM-8).

    Args:
        history: Operations in the words of `chain`, the key names one incarnation of a journal. With a final read the
            order in the chain is checked too.

    Returns:
        No with the facts; unknown if there are appends and no final read. The statistics count takeovers: claims that
        replaced one that had not been released.

    Raises:
        HistoryError: An operation is not in those words.
    """
    return combine(_FencingCheck(read_journal(key, ops)).run() for key, ops in history.by_key().items())


class _FencingCheck:
    """The check of one journal."""

    def __init__(self, journal: JournalHistory) -> None:
        self.journal = journal
        self.findings = Findings()
        self.claims = sorted(
            ((claim.epoch, claim) for claim in journal.claims if claim.epoch is not None),
            key=lambda item: (item[0], item[1].operation.index),
        )
        self.epochs = [epoch for epoch, _ in self.claims]
        self.unknown_claims = [c.operation for c in journal.claims if c.operation.outcome is Outcome.UNKNOWN]

    def run(self) -> Verdict:
        self._count()
        self._epochs_are_new()
        self._epochs_grow_in_time()
        self._conditions_held()
        self._old_epochs_are_refused()
        self._refusals_are_justified()
        if self.journal.final is not None:
            self._epochs_grow_in_chain(cut(self.journal))
        elif self.journal.attempts:
            self.findings.doubt(f"journal {self.journal.key!r}: there is no final read")
        return self.findings.verdict()

    def _violation(self, promise: str, operations: Iterable[Operation], sentence: str) -> None:
        indices = [operation.index for operation in operations]
        self.findings.violation(promise, indices, f"journal {self.journal.key!r}: {sentence}")

    def _count(self) -> None:
        self.findings.add("journals")
        self.findings.add("claims", len(self.claims))
        self.findings.add("appends", len(self.journal.attempts))
        self.findings.add("fenced", sum(operation.error == FENCED for operation, _ in self._used()))
        takeovers = sum(
            not self._released(before, claim.operation) for (before, _), (_, claim) in itertools.pairwise(self.claims)
        )
        self.findings.add("takeovers", takeovers)

    def _used(self) -> list[tuple[Operation, int]]:
        """List every use of an epoch: appends, heartbeats, releases."""
        used = [(attempt.operation, attempt.epoch) for attempt in self.journal.attempts]
        holdings = (*self.journal.heartbeats, *self.journal.releases)
        used.extend((holding.operation, holding.epoch) for holding in holdings if holding.epoch is not None)
        return used

    def _released(self, epoch: int, before: Operation) -> bool:
        """Tell whether a claim may have been given back before an operation took effect."""
        return any(
            release.epoch == epoch
            and release.operation.outcome is not Outcome.REFUSED
            and not before.precedes(release.operation)
            for release in self.journal.releases
        )

    def _epochs_are_new(self) -> None:
        for (epoch, claim), (other, again) in itertools.pairwise(self.claims):
            if epoch == other:
                self._violation("CLAIM-3", [claim.operation, again.operation], f"epoch {epoch} was issued twice")
        for epoch, claim in self.claims:
            if epoch <= 0:
                self._violation("CLAIM-3", [claim.operation], f"epoch {epoch} was issued, epochs are positive")

    def _epochs_grow_in_time(self) -> None:
        """Check that no claim and no head shows an older epoch than one that was known when it was called."""
        shown = [(claim.operation, epoch, True) for epoch, claim in self.claims]
        for head in self.journal.heads:
            epoch_of = None if head.output is None else optional_integer(head, output_object(head), "epoch")
            if epoch_of is not None:
                shown.append((head, epoch_of, False))
        waiting = sorted(shown, key=lambda item: -_returned(item[0]))
        highest: tuple[Operation, int] | None = None
        for operation, epoch, is_claim in sorted(shown, key=lambda item: item[0].call_ns):
            while waiting and _returned(waiting[-1][0]) < operation.call_ns:
                source, known, _ = waiting.pop()
                if highest is None or known > highest[1]:
                    highest = (source, known)
            if highest is not None and (epoch < highest[1] or (is_claim and epoch == highest[1])):
                sentence = f"epoch {epoch} was given after epoch {highest[1]} was known"
                self._violation("CLAIM-3", [highest[0], operation], sentence)

    def _conditions_held(self) -> None:
        """Check what a claim says that it replaced, as far as every claim's epoch is known."""
        first = min((claim.operation.call_ns for claim in self.journal.claims if not _refused(claim)), default=None)
        for claim in self.journal.claims:
            busy = _refused(claim) and claim.operation.error == BUSY
            if busy and (first is None or _returned(claim.operation) < first):
                self._violation("CLAIM-1", [claim.operation], "a claim was refused as busy before anybody had claimed")
        if self.unknown_claims:
            return
        for position, (epoch, claim) in enumerate(self.claims):
            before = self.claims[position - 1] if position else None
            if claim.replacing == "none" and before is not None and not self._released(before[0], claim.operation):
                sentence = f"epoch {epoch} was claimed on condition that nobody holds the journal, but {before[0]} did"
                self._violation("CLAIM-1", [before[1].operation, claim.operation], sentence)
            if isinstance(claim.replacing, int) and (before is None or before[0] != claim.replacing):
                sentence = f"epoch {epoch} was to replace {claim.replacing} only, and replaced another"
                others = [] if before is None else [before[1].operation]
                self._violation("CLAIM-1", [*others, claim.operation], sentence)

    def _old_epochs_are_refused(self) -> None:
        """Check that nothing of an old epoch was accepted if it was called after a newer claim was returned."""
        earliest = _suffix_minimum([_returned(claim.operation) for _, claim in self.claims])
        known = set(self.epochs)
        for operation, epoch in self._used():
            if operation.outcome is not Outcome.OK:
                continue
            newer = bisect.bisect_right(self.epochs, epoch)
            if earliest[newer] < operation.call_ns:
                claim = next(c.operation for _, c in self.claims[newer:] if c.operation.precedes(operation))
                sentence = f"{operation.op} of epoch {epoch} was accepted after a newer claim had been returned"
                self._violation("CLAIM-2", [claim, operation], sentence)
            if epoch not in known and not self.unknown_claims and self.journal.claims:
                sentence = f"{operation.op} was accepted for epoch {epoch}, which was never issued"
                self._violation("CLAIM-2", [operation], sentence)
        given_back = {
            release.epoch: release.operation
            for release in reversed(self.journal.releases)
            if release.operation.outcome is Outcome.OK
        }
        for attempt in self.journal.attempts:
            release_of = given_back.get(attempt.epoch)
            if attempt.acknowledged and release_of is not None and release_of.precedes(attempt.operation):
                sentence = f"an append of epoch {attempt.epoch} was accepted after its claim had been given back"
                self._violation("CLAIM-2", [release_of, attempt.operation], sentence)

    def _refusals_are_justified(self) -> None:
        """Check that a fenced writer was fenced by a claim or by its own release (CLAIM-8: not by maintenance)."""
        if not self.journal.claims:
            return
        first_call = _suffix_minimum([float(claim.operation.call_ns) for _, claim in self.claims])
        unknown_from = min((float(operation.call_ns) for operation in self.unknown_claims), default=_INFINITY)
        for operation, epoch in self._used():
            if operation.outcome is not Outcome.REFUSED or operation.error != FENCED:
                continue
            since = min(first_call[bisect.bisect_right(self.epochs, epoch)], unknown_from)
            if since > _returned(operation) and not self._released(epoch, operation):
                sentence = f"{operation.op} of epoch {epoch} was fenced, and nobody had claimed since"
                self._violation("CLAIM-8", [operation], sentence)

    def _epochs_grow_in_chain(self, chain: Chain) -> None:
        """Check that the batches can be given epochs that never go down, each one an epoch it was sent under."""
        possible = self._possible_epochs(chain.stored)
        by_end = sorted(
            ((claim.last_seq, epoch, claim) for epoch, claim in self.claims if claim.last_seq is not None),
            key=lambda item: item[0],
        )
        newest: tuple[int, Operation] | None = None
        position = 0
        for stored, epochs in zip(chain.stored, possible, strict=True):
            while position < len(by_end) and by_end[position][0] < stored.first:
                _, epoch, claim = by_end[position]
                newest = (epoch, claim.operation) if newest is None or epoch > newest[0] else newest
                position += 1
            fitting = [item for item in epochs if newest is None or item[0] >= newest[0]]
            if fitting:
                newest = min(fitting, key=lambda item: item[0])
            elif epochs and newest is not None:
                oldest = max(epochs, key=lambda item: item[0])
                sentence = f"batch {stored.batch!r} of epoch {oldest[0]} stands behind the first of epoch {newest[0]}"
                self._violation("CLAIM-2", [newest[1], oldest[1]], sentence)

    def _possible_epochs(self, chain: Sequence[Stored]) -> list[list[tuple[int, Operation]]]:
        """Give for each batch the epochs under which it may have been committed, with the operation that says so."""
        told: dict[str, tuple[int, Operation]] = {}
        sent: dict[str, list[tuple[int, Operation]]] = {}
        for attempt in self.journal.attempts:
            if attempt.acknowledged and attempt.receipt is not None and not attempt.receipt.replayed:
                told.setdefault(attempt.batch, (attempt.epoch, attempt.operation))
                if attempt.receipt.epoch not in (None, attempt.epoch):
                    sentence = f"batch {attempt.batch!r} was sent under one epoch and its receipt names another"
                    self._violation("CLAIM-2", [attempt.operation], sentence)
            elif attempt.in_doubt:
                sent.setdefault(attempt.batch, []).append((attempt.epoch, attempt.operation))
        for batch, receipt in self.journal.receipts():
            if receipt.epoch is not None:
                told.setdefault(batch, (receipt.epoch, receipt.operation))
        return [[told[s.batch]] if s.batch in told else sent.get(s.batch, []) for s in chain]


def _suffix_minimum(row: Sequence[float]) -> list[float]:
    """Give for each position the minimum from there on, and infinity at the end."""
    found = [_INFINITY]
    for value in reversed(row):
        found.append(min(value, found[-1]))
    return found[::-1]


def _refused(claim: Holding) -> bool:
    return claim.operation.outcome is Outcome.REFUSED


def _returned(operation: Operation) -> float:
    return _INFINITY if operation.return_ns is None else operation.return_ns
