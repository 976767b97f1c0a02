"""Check what readers of a journal saw: each view is a prefix of the one chain, and no view goes back.

A page says what stands behind a seq; if it has no more, it also says where the journal ended. A head says only that, as
does the head in a `HeadConflict`. All of them are answers of one moment between call and return, so the ends may not
go back in real time, whoever reads (READ-2; ATOM-5: a read is no cache and no frozen snapshot).
"""

from __future__ import annotations

from collections.abc import Iterable

from statebook_conformance.checkers.chain import REGRESSED, TRIMMED, Chain, JournalHistory, View
from statebook_conformance.checkers.fields import integer
from statebook_conformance.checkers.history import Operation
from statebook_conformance.checkers.verdict import Findings


def check_views(journal: JournalHistory, chain: Chain, findings: Findings) -> None:
    """Check every view of one journal (READ-1, READ-2, APPEND-2, ATOM-5).

    Args:
        journal: The history of the journal.
        chain: Its final chain, cut into batches.
        findings: Gets the facts and counts.
    """
    check = _ViewCheck(journal, chain, findings)
    for view in journal.views:
        check.page_is_contiguous(view)
    check.refusals_are_justified()
    check.views_agree()
    check.batches_are_whole()
    check.nothing_from_the_future()
    check.ends_never_go_back()
    findings.add("reads", len(journal.views))


class _ViewCheck:
    def __init__(self, journal: JournalHistory, chain: Chain, findings: Findings) -> None:
        self.journal = journal
        self.chain = chain
        self.findings = findings
        self.ends = _ends(journal)

    def _violation(self, promise: str, operations: Iterable[Operation], sentence: str) -> None:
        indices = [operation.index for operation in operations]
        self.findings.violation(promise, indices, f"journal {self.journal.key!r}: {sentence}")

    def page_is_contiguous(self, view: View) -> None:
        """Check that a page begins right behind its seq, ascends by one and keeps its limit."""
        if view is self.journal.final:
            return
        for position, (seq, _) in enumerate(view.events):
            if seq != view.after + 1 + position:
                sentence = f"a page after {view.after} has seq {seq} where {view.after + 1 + position} is expected"
                self._violation("READ-1", [view.operation], sentence)
                break
        if view.limit is not None and len(view.events) > view.limit:
            self._violation("READ-1", [view.operation], f"a page of at most {view.limit} has {len(view.events)} events")
        if not view.events and view.end is None:
            self._violation("READ-1", [view.operation], "an empty page says that there are more events")

    def refusals_are_justified(self) -> None:
        """Check that a head conflict names a head behind the base, and that only a trimmed journal says `Trimmed`."""
        for attempt in self.journal.attempts:
            if attempt.head is not None and attempt.head <= attempt.base_seq:
                sentence = f"a head conflict names head {attempt.head}, which is not behind base {attempt.base_seq}"
                self._violation("APPEND-1", [attempt.operation], sentence)
        for read in self.journal.refused_reads:
            if read.error == TRIMMED and all(read.precedes(trim) for trim in self.journal.trims):
                self._violation("READ-3", [read], "a read was refused as trimmed before anything was trimmed")

    def views_agree(self) -> None:
        """Check that one seq always shows one event, in every page and at the end."""
        shown: dict[int, tuple[str, Operation]] = {}
        final = self.journal.final
        for view in ([] if final is None else [final]) + [view for view in self.journal.views if view is not final]:
            for seq, event in view.events:
                first, source = shown.setdefault(seq, (event, view.operation))
                if first != event:
                    sentence = f"seq {seq} showed {first!r} to one reader and {event!r} to another"
                    self._violation("READ-2", [view.operation, source], sentence)
                    break

    def batches_are_whole(self) -> None:
        """Check that every end that was seen is the end of a batch: no reader sees a part of one."""
        if self.journal.final is None:
            return
        inside = {seq: stored.batch for stored in self.chain.stored for seq in range(stored.first, stored.last)}
        for operation, end in self.ends:
            if end in inside:
                sentence = f"the journal was seen to end at {end}, inside batch {inside[end]!r}"
                self._violation("APPEND-2", [operation], sentence)

    def nothing_from_the_future(self) -> None:
        """Check that no view shows a batch, or an end behind it, before anybody had sent it."""
        first_call: dict[str, Operation] = {}
        for attempt in self.journal.attempts:
            for event in attempt.events:
                first_call.setdefault(event, attempt.operation)
        for view in self.journal.views:
            for seq, event in view.events:
                sender = first_call.get(event)
                if sender is not None and view.operation.precedes(sender):
                    self._violation("READ-2", [view.operation, sender], f"seq {seq} was read before it was sent")
                    break
        latest: list[tuple[int, Operation]] = []
        for stored in self.chain.stored:
            sender = first_call[stored.events[0]]
            if not latest or sender.call_ns > latest[-1][1].call_ns:
                latest.append((stored.last, sender))
        pending = sorted(self.ends, key=lambda item: item[1])
        position = 0
        for operation, end in pending:
            while position < len(latest) and latest[position][0] <= end:
                position += 1
            if position and operation.precedes(latest[position - 1][1]):
                sentence = f"the journal was seen to end at {end} before all that stands up to there was sent"
                self._violation("READ-2", [operation, latest[position - 1][1]], sentence)

    def ends_never_go_back(self) -> None:
        """Check that no end lies before what had been acknowledged or seen when it was asked for."""
        known = sorted(self._reached(), key=lambda item: (_returned(item[0]), item[0].index))
        asked = self.ends + _denied_ends(self.journal)
        highest: tuple[Operation, int] | None = None
        waiting = list(reversed(known))
        for operation, end in sorted(asked, key=lambda item: (item[0].call_ns, item[0].index)):
            while waiting and _returned(waiting[-1][0]) < operation.call_ns:
                source, reached = waiting.pop()
                if highest is None or reached > highest[1]:
                    highest = (source, reached)
            if highest is not None and end < highest[1]:
                sentence = f"the journal was seen to end at {end}, after it had been known to reach {highest[1]}"
                self._violation("ATOM-5", [highest[0], operation], sentence)

    def _reached(self) -> list[tuple[Operation, int]]:
        """List what showed that the journal reaches at least some seq."""
        found = list(self.ends)
        found += [(receipt.operation, receipt.last) for _, receipt in self.journal.receipts()]
        found += [(view.operation, view.events[-1][0]) for view in self.journal.views if view.events]
        return found


def _ends(journal: JournalHistory) -> list[tuple[Operation, int]]:
    """List every end of the journal that an answer shows."""
    found = [(view.operation, view.end) for view in journal.views if view.end is not None]
    found += [(attempt.operation, attempt.head) for attempt in journal.attempts if attempt.head is not None]
    found += [(claim.operation, claim.last_seq) for claim in journal.claims if claim.last_seq is not None]
    return found


def _denied_ends(journal: JournalHistory) -> list[tuple[Operation, int]]:
    """List the refusals that say that the journal ends before a seq, as ends right before it."""
    found = [(a.operation, a.base_seq - 1) for a in journal.attempts if a.refusal == REGRESSED]
    found += [
        (read, integer(read, read.input, "after") - 1) for read in journal.refused_reads if read.error == REGRESSED
    ]
    return found


def _returned(operation: Operation) -> float:
    return float("inf") if operation.return_ns is None else operation.return_ns
