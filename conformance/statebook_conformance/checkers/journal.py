"""Check what a journal promised about batches against what is in it at the end, in time linear in the history.

A journal is easier to judge than a register: the order of all writes can be read from it at the end, and every receipt
names its place in it. So no search is needed (for queues and logs this is the idea of Jepsen's total-queue and Kafka
checkers): an acknowledged batch is there, whole, once, at the seqs of its receipt; a refused one is not; an unknown one
is there at most once; and the order of the chain agrees with real time. What readers saw on the way is judged by
`views`, epochs by `fencing`.

A refusal speaks of more than its own call. That a batch was not there and never will be excludes earlier attempts of
unknown outcome as well:

| answer | excludes, for the same batch and base |
| --- | --- |
| `WriterFenced(committed=None)` | every attempt of that epoch and of older ones |
| `HeadConflict` | every attempt: the head never comes back to that base |
| `settle` gave `None` | every attempt that had returned before |
"""

from __future__ import annotations

from collections.abc import Iterable

from statebook_conformance.checkers.chain import (
    BATCH_CONFLICT,
    FENCED,
    HEAD_CONFLICT,
    Attempt,
    BatchReceipt,
    Chain,
    JournalHistory,
    Settlement,
    Stored,
    cut,
    read_journal,
)
from statebook_conformance.checkers.history import History, Operation
from statebook_conformance.checkers.verdict import Findings, Verdict, combine
from statebook_conformance.checkers.views import check_views


def check_journal(history: History) -> Verdict:
    """Check each journal of a history (HEAD-2, APPEND-1 to APPEND-4, SETTLE-1, SETTLE-2, READ-1, READ-2).

    Args:
        history: Operations in the words of `chain`, the key names one incarnation of a journal. A final read after
            everything else is needed to say yes.

    Returns:
        No with the facts; unknown if there is no final read, or if it came before an acknowledgement it lacks.

    Raises:
        HistoryError: An operation is not in those words.
    """
    return combine(_check(read_journal(key, operations)) for key, operations in history.by_key().items())


def _check(journal: JournalHistory) -> Verdict:
    findings = Findings()
    chain = cut(journal)
    _JournalCheck(journal, chain, findings).run()
    check_views(journal, chain, findings)
    return findings.verdict()


class _JournalCheck:
    """The check of one journal, apart from its readers."""

    def __init__(self, journal: JournalHistory, chain: Chain, findings: Findings) -> None:
        self.journal = journal
        self.chain = chain
        self.findings = findings
        self.by_batch = journal.attempts_by_batch()
        self.settled: dict[str, list[Settlement]] = {}
        for settlement in journal.settlements:
            self.settled.setdefault(settlement.batch, []).append(settlement)
        self.stored: dict[str, Stored] = {}
        for stored in chain.stored:
            self.stored.setdefault(stored.batch, stored)

    def run(self) -> None:
        self._count()
        self._receipts_agree()
        self._replays_are_replays()
        self._batch_conflicts_are_justified()
        for batch, attempts in self.by_batch.items():
            self._denials_hold(batch, attempts)
        self._submissions_in_order()
        if self.journal.final is None:
            if self.journal.attempts:
                self.findings.doubt(f"journal {self.journal.key!r}: there is no final read")
            return
        self._final_is_one_chain(self.journal.final.operation)
        self._acknowledged_is_there(self.journal.final.operation)
        self._order_is_real_time()

    def _violation(self, promise: str, operations: Iterable[Operation], sentence: str) -> None:
        indices = [operation.index for operation in operations]
        self.findings.violation(promise, indices, f"journal {self.journal.key!r}: {sentence}")

    def _count(self) -> None:
        add, attempts = self.findings.add, self.journal.attempts
        add("journals")
        add("appends", len(attempts))
        add("acknowledged", sum(attempt.acknowledged for attempt in attempts))
        add("replayed", sum(attempt.receipt is not None and attempt.receipt.replayed for attempt in attempts))
        add("fenced", sum(attempt.refusal == FENCED for attempt in attempts))
        add("fenced_committed", sum(a.refusal == FENCED and a.receipt is not None for a in attempts))
        add("head_conflicts", sum(attempt.refusal == HEAD_CONFLICT for attempt in attempts))
        add("unknown", sum(attempt.unknown for attempt in attempts))
        add("settled", len(self.journal.settlements))
        add("settled_absent", sum(settlement.receipt is None for settlement in self.journal.settlements))
        add("events", 0 if self.journal.final is None else len(self.journal.final.events))
        only_unknown = [batch for batch, group in self.by_batch.items() if all(a.unknown for a in group)]
        add("unknown_present", sum(batch in self.stored for batch in only_unknown))

    def _receipts_agree(self) -> None:
        """Check that a batch has one receipt for ever, as long as the batch and right behind its base."""
        first_of: dict[str, BatchReceipt] = {}
        for batch, receipt in self.journal.receipts():
            first = first_of.setdefault(batch, receipt)
            if (first.first, first.last) != (receipt.first, receipt.last):
                operations = (first.operation, receipt.operation)
                self._violation("APPEND-1", operations, f"batch {batch!r} was given two different receipts")
        for attempt in self.journal.attempts:
            receipt_of = attempt.receipt
            if receipt_of is None:
                continue
            if receipt_of.last - receipt_of.first + 1 != len(attempt.events):
                sentence = f"the receipt of batch {attempt.batch!r} is not as long as the batch"
                self._violation("HEAD-2", [attempt.operation], sentence)
            elif attempt.acknowledged and not receipt_of.replayed and receipt_of.first != attempt.base_seq + 1:
                sentence = f"batch {attempt.batch!r} was committed at {receipt_of.first}, not behind its base"
                self._violation("APPEND-2", [attempt.operation], sentence)

    def _replays_are_replays(self) -> None:
        """Check that one append of a batch committed it, and that each replay repeats an earlier one."""
        for batch, attempts in self.by_batch.items():
            fresh = [attempt for attempt in attempts if _fresh(attempt)]
            if len(fresh) > 1:
                sentence = f"batch {batch!r} was committed by two appends, neither called a replay"
                self._violation("SETTLE-1", [attempt.operation for attempt in fresh[:2]], sentence)
            for attempt in attempts:
                if not attempt.acknowledged or attempt in fresh:
                    continue
                others = [a for a in attempts if a is not attempt and _may_come_before(a, attempt)]
                if not any(other.in_doubt or other in fresh for other in others):
                    sentence = f"batch {batch!r} was called a replay, and no earlier append can have committed it"
                    self._violation("APPEND-1", [attempt.operation], sentence)

    def _batch_conflicts_are_justified(self) -> None:
        """Check that a batch conflict has another content or another batch with one of its events to point at."""
        users: dict[str, list[Attempt]] = {}
        for attempt in self.journal.attempts:
            for event in attempt.events:
                users.setdefault(event, []).append(attempt)
        for attempt in self.journal.attempts:
            if attempt.refusal != BATCH_CONFLICT:
                continue
            rivals = list(self.by_batch[attempt.batch])
            for event in attempt.events:
                rivals.extend(users[event])
            if not any(_conflict(rival, attempt) for rival in rivals):
                sentence = f"batch {attempt.batch!r} was refused as a conflict, and nothing conflicts with it"
                self._violation("APPEND-1", [attempt.operation], sentence)

    def _denials_hold(self, batch: str, attempts: tuple[Attempt, ...]) -> None:
        """Check that what was said not to be there, and never to come, is neither acknowledged nor there."""
        denials = self._denials(batch, attempts)
        for attempt in attempts:
            if _fresh(attempt):
                denied = next((denial for denial in denials if _denies(denial, attempt)), None)
                if denied is not None:
                    operations = (attempt.operation, denied.operation)
                    sentence = f"batch {batch!r} was acknowledged, and also said never to be there"
                    self._violation("SETTLE-2" if isinstance(denied, Settlement) else "APPEND-1", operations, sentence)
        stored = self.stored.get(batch)
        if stored is None:
            return
        able = [attempt for attempt in attempts if attempt.events == stored.events]
        if any(_fresh(a) or (a.in_doubt and not any(_denies(d, a) for d in denials)) for a in able):
            return
        involved = [attempt.operation for attempt in attempts] + [denial.operation for denial in denials]
        sentence = f"batch {batch!r} is in the journal, although every append of it was refused or ruled out"
        self._violation("APPEND-1" if denials else "ERR-2", involved[:4], sentence)

    def _denials(self, batch: str, attempts: tuple[Attempt, ...]) -> list[Attempt | Settlement]:
        denials: list[Attempt | Settlement] = [
            attempt for attempt in attempts if attempt.refusal in (FENCED, HEAD_CONFLICT) and attempt.receipt is None
        ]
        denials += [settlement for settlement in self.settled.get(batch, ()) if settlement.receipt is None]
        return [denial for denial in denials if not self._trimmed_before(denial)]

    def _trimmed_before(self, denial: Attempt | Settlement) -> bool:
        """Tell whether the place of the batch may have been trimmed away before the answer: then nobody knows it."""
        for trim in self.journal.trims:
            before = trim.input["before"]
            if isinstance(before, int) and before > denial.base_seq + 1 and not denial.operation.precedes(trim):
                return True
        return False

    def _submissions_in_order(self) -> None:
        """Check that the batches handed in through one claim are in the journal in that order, without a hole."""
        claims: dict[int, list[Attempt]] = {}
        for attempt in self.journal.attempts:
            if attempt.submission is not None:
                claims.setdefault(attempt.epoch, []).append(attempt)
        for epoch, attempts in claims.items():
            attempts.sort(key=lambda attempt: attempt.submission or 0)
            missing: Attempt | None = None
            before: Attempt | None = None
            for attempt in attempts:
                place = self.stored.get(attempt.batch)
                if place is None:
                    if not self._may_be_trimmed(attempt):
                        missing = missing or attempt
                    continue
                if missing is not None and self.journal.final is not None:
                    sentence = f"batch {attempt.batch!r} of epoch {epoch} was committed behind one that was not"
                    self._violation("APPEND-4", [missing.operation, attempt.operation], sentence)
                if before is not None and self.stored[before.batch].first > place.first:
                    sentence = f"batches {before.batch!r} and {attempt.batch!r} of epoch {epoch} changed places"
                    self._violation("APPEND-4", [before.operation, attempt.operation], sentence)
                before = attempt

    def _may_be_trimmed(self, attempt: Attempt) -> bool:
        """Tell whether a batch that is not there at the end may have been committed, and trimmed away since."""
        return attempt.base_seq + 1 < self.journal.first_seq and (attempt.acknowledged or attempt.in_doubt)

    def _final_is_one_chain(self, final: Operation) -> None:
        """Check that the chain is contiguous, without doubles, made of whole batches, and complete at its front."""
        events = () if self.journal.final is None else self.journal.final.events
        for position, (seq, _) in enumerate(events):
            if seq != self.journal.first_seq + position:
                sentence = f"seq {seq} stands where {self.journal.first_seq + position} is expected"
                self._violation("HEAD-2", [final], sentence)
                break
        seen: dict[str, int] = {}
        for seq, event in events:
            if event in seen:
                self._violation("SETTLE-1", [final], f"event {event!r} is there twice, at {seen[event]} and {seq}")
            seen.setdefault(event, seq)
        requested = [trim.input["before"] for trim in self.journal.trims]
        limit = max((seq for seq in requested if isinstance(seq, int)), default=1)
        if self.journal.first_seq > limit:
            sentence = f"the journal begins at {self.journal.first_seq}, nothing from {limit} on was trimmed"
            self._violation("LIFE-2", [final], sentence)
        known = {event: attempt for attempt in self.journal.attempts for event in attempt.events}
        for seq, event in self.chain.strays:
            sender = known.get(event)
            if sender is None:
                self._violation("ID-5", [final], f"event {event!r} at {seq} was sent by nobody")
            elif seen[event] == seq:
                sentence = f"event {event!r} at {seq} stands without the rest of batch {sender.batch!r}"
                self._violation("APPEND-2", [sender.operation, final], sentence)

    def _acknowledged_is_there(self, final: Operation) -> None:
        """Check that each receipt's batch stands at the seqs of the receipt."""
        place = dict(() if self.journal.final is None else self.journal.final.events)
        for batch, receipt in self.journal.receipts():
            first = max(receipt.first, self.journal.first_seq)
            found = tuple(place.get(seq) for seq in range(first, min(receipt.last, first + len(place)) + 1))
            # Trimming away the front of a batch leaves its end.
            contents = {attempt.events[first - receipt.first :] for attempt in self.by_batch.get(batch, ())}
            if found in contents or receipt.last < self.journal.first_seq:
                continue
            if not receipt.operation.precedes(final) and all(event is None for event in found):
                self.findings.doubt(f"journal {self.journal.key!r}: the final read came before an acknowledgement")
                continue
            sentence = f"acknowledged batch {batch!r} is not at {receipt.first} to {receipt.last} at the end"
            self._violation("APPEND-2", [receipt.operation, final], sentence)

    def _order_is_real_time(self) -> None:
        """Check that no batch stands before one that was acknowledged before it was even called."""
        acknowledged: dict[str, BatchReceipt] = {}
        for batch, receipt in self.journal.receipts():
            known = acknowledged.get(batch)
            if known is None or _returned(receipt.operation) < _returned(known.operation):
                acknowledged[batch] = receipt
        later: Operation | None = None
        for stored in reversed(self.chain.stored):
            called = min(self.by_batch[stored.batch], key=lambda attempt: attempt.operation.call_ns).operation
            if later is not None and later.precedes(called):
                sentence = f"batch {stored.batch!r} stands before one that was acknowledged before it was called"
                self._violation("HEAD-2", [later, called], sentence)
            own = acknowledged.get(stored.batch)
            if own is not None and (later is None or _returned(own.operation) < _returned(later)):
                later = own.operation


def _fresh(attempt: Attempt) -> bool:
    """Tell whether an append says that it committed the batch itself."""
    return attempt.acknowledged and attempt.receipt is not None and not attempt.receipt.replayed


def _may_come_before(first: Attempt, second: Attempt) -> bool:
    return not second.operation.precedes(first.operation)


def _conflict(rival: Attempt, attempt: Attempt) -> bool:
    """Tell whether an append that may have taken effect before another is a reason to refuse that one as a conflict."""
    landed = rival.refusal is None or rival.in_doubt
    if rival is attempt or not landed or not _may_come_before(rival, attempt):
        return False
    return (rival.batch, rival.events) != (attempt.batch, attempt.events)


def _denies(denial: Attempt | Settlement, attempt: Attempt) -> bool:
    """Tell whether an answer excludes that an attempt of the same batch ever takes effect."""
    if denial.base_seq != attempt.base_seq or denial is attempt:
        return False
    if isinstance(denial, Settlement):
        return attempt.operation.precedes(denial.operation)
    if denial.events != attempt.events:
        return False
    return denial.refusal == HEAD_CONFLICT or attempt.epoch <= denial.epoch


def _returned(operation: Operation) -> float:
    return float("inf") if operation.return_ns is None else operation.return_ns
