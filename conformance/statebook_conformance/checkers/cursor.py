"""Check export cursors: they move only forward, by their newest opener, and never past what the receiver has.

The key names one cursor of one incarnation of a journal.

| op | input | ok output | refused |
| --- | --- | --- | --- |
| `open` | `{}` | `{"epoch": n, "acked": n}` | |
| `advance` | `{"epoch": n, "to": n}` | `null` | `CursorFenced`, `CursorRegression`, `JournalRegressed` |
| `reset` | `{"to": n}` | `{"epoch": n}` | `CursorConflict` |
| `deliver` | `{"epoch": n, "seq": n, "event": id}` | `null`: the receiver has it | the receiver refused it |
| `skip` | `{"epoch": n, "seq": n}` | `null`: left out on purpose, and recorded | |
| `end` | `{}` | `{"last_seq": n}`: where the journal ended | |

`event` may be left out. The stored position is a register that a reset may put anywhere and everything else only moves
up; real time bounds it from below. For resets, which are rare, the bound is computed anew behind each one, so the time
is O(n log n) for each distinct reset.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable

import msgspec

from statebook_conformance.checkers.fields import (
    integer,
    optional_integer,
    output_object,
    unknown_operation,
)
from statebook_conformance.checkers.history import History, Operation, Outcome, canonical
from statebook_conformance.checkers.verdict import Findings, Verdict, combine

CURSOR_FENCED = "CursorFenced"
CURSOR_REGRESSION = "CursorRegression"
JOURNAL_REGRESSED = "JournalRegressed"

_INFINITY = float("inf")


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on a cursor, read. `place` is a seq: acked, to, or the delivered one."""

    operation: Operation
    op: str
    epoch: int | None
    place: int

    @property
    def called(self) -> int:
        return self.operation.call_ns

    @property
    def returned(self) -> float:
        return _INFINITY if self.operation.return_ns is None else self.operation.return_ns

    @property
    def ok(self) -> bool:
        return self.operation.outcome is Outcome.OK

    @property
    def possible(self) -> bool:
        """Whether it may have had an effect."""
        return self.operation.outcome is not Outcome.REFUSED


def check_cursor(history: History) -> Verdict:
    """Check each cursor of a history (CURSOR-2 to CURSOR-4).

    Args:
        history: Operations in the words above, the key names one cursor.

    Returns:
        No with the facts; unknown where a reset of unknown outcome leaves open what had to be delivered again.

    Raises:
        HistoryError: An operation is not in those words.
    """
    return combine(_CursorCheck(key, operations).run() for key, operations in history.by_key().items())


class _CursorCheck:
    """The check of one cursor."""

    def __init__(self, key: str, operations: tuple[Operation, ...]) -> None:
        self.key = key
        self.findings = Findings()
        steps = [_step(operation) for operation in operations]
        self.steps = [step for step in steps if step is not None]
        self.opens = [step for step in self.steps if step.op == "open"]
        self.advances = [step for step in self.steps if step.op == "advance"]
        self.resets = [step for step in self.steps if step.op == "reset" and step.possible]
        self.sent = [step for step in self.steps if step.op in ("deliver", "skip")]
        self.ends = [step for step in self.steps if step.op == "end"]
        self.epochs = sorted(
            ((step.epoch, step) for step in self.opens + self.resets if step.ok and step.epoch is not None),
            key=lambda item: item[0],
        )

    def run(self) -> Verdict:
        self._count()
        self._epochs_grow()
        self._old_openers_are_refused()
        self._never_goes_back()
        self._moved_by_somebody()
        self._never_beyond_the_end()
        self._delivered_in_order()
        self._acknowledged_first()
        return self.findings.verdict()

    def _violation(self, promise: str, steps: Iterable[_Step], sentence: str) -> None:
        self.findings.violation(promise, (step.operation.index for step in steps), f"cursor {self.key!r}: {sentence}")

    def _count(self) -> None:
        add = self.findings.add
        add("cursors")
        add("opens", sum(step.ok for step in self.opens))
        add("advances", sum(step.ok for step in self.advances))
        add("cursor_fenced", sum(step.operation.error == CURSOR_FENCED for step in self.advances))
        add("resets", sum(step.ok for step in self.resets))
        add("delivered", sum(step.ok for step in self.sent))
        add("sink_failures", sum(step.op == "deliver" and not step.ok for step in self.sent))
        add("skipped", sum(step.op == "skip" for step in self.sent))

    def _epochs_grow(self) -> None:
        """Check that openers get new epochs, growing in real time (CURSOR-2)."""
        for (epoch, step), (other, again) in itertools.pairwise(self.epochs):
            if epoch == other:
                self._violation("CURSOR-2", [step, again], f"epoch {epoch} was issued twice")
        last: _Step | None = None
        for epoch, step in reversed(self.epochs):
            if last is not None and last.returned < step.called:
                sentence = f"epoch {epoch} was issued after epoch {last.epoch}"
                self._violation("CURSOR-2", [last, step], sentence)
            if last is None or step.returned < last.returned:
                last = step

    def _old_openers_are_refused(self) -> None:
        """Check that only the newest opener advances, and that nobody is fenced without a newer one (CURSOR-2)."""
        for step in self.advances:
            newer = [opener for epoch, opener in self.epochs if step.epoch is not None and epoch > step.epoch]
            if step.ok:
                fence = next((opener for opener in newer if opener.returned < step.called), None)
                if fence is not None:
                    sentence = f"the opener of epoch {step.epoch} advanced after epoch {fence.epoch} was opened"
                    self._violation("CURSOR-2", [fence, step], sentence)
            elif step.operation.error == CURSOR_FENCED:
                lost = [opener for opener in self.opens + self.resets if opener.possible and not opener.ok]
                if not any(opener.called <= step.returned for opener in newer + lost):
                    sentence = f"the opener of epoch {step.epoch} was fenced, and nobody had opened the cursor since"
                    self._violation("CURSOR-2", [step], sentence)

    def _never_goes_back(self) -> None:
        """Check that no answer shows the cursor before where it was known to be, unless a reset put it there."""
        facts = [step for step in self.opens + self.advances + self.resets if step.ok]
        facts.sort(key=lambda step: step.returned)
        tables: dict[float, tuple[list[float], list[_Step]]] = {}
        for step in self.opens + self.advances:
            if not step.ok:
                continue
            explained = [r.returned if r.ok else _INFINITY for r in self.resets if self._may_explain(r, step)]
            bar = max(explained, default=-_INFINITY)
            if bar not in tables:
                tables[bar] = _running_maximum([fact for fact in facts if fact.called > bar])
            returns, highest = tables[bar]
            position = bisect.bisect_left(returns, step.called)
            if position and highest[position - 1].place > step.place:
                known = highest[position - 1]
                sentence = f"the cursor was at {step.place} after it had been at {known.place}"
                self._violation("CURSOR-3", [known, step], sentence)

    def _may_explain(self, reset: _Step, step: _Step) -> bool:
        """Tell whether a reset may have put the cursor where a later answer shows it."""
        return reset.called <= step.returned and reset.place <= step.place

    def _moved_by_somebody(self) -> None:
        """Check that an opened cursor stands where somebody put it, and that a regression was refused for a reason."""
        first = min((step for step in self.opens if step.ok), key=lambda step: step.epoch or 0, default=None)
        targets = sorted((s for s in self.advances + self.resets if s.possible), key=lambda step: step.called)
        for step in self.opens:
            moved = any(other.place == step.place for other in targets if other.called <= step.returned)
            if step.ok and first is not None and step.place != first.place and not moved:
                self._violation("CURSOR-3", [step], f"the cursor stands at {step.place}, where nobody put it")
        known = [step for step in self.opens if step.ok] + targets
        for step in self.advances:
            if step.operation.error == CURSOR_REGRESSION and not any(
                other.place > step.place and other.called <= step.returned for other in known
            ):
                sentence = f"moving to {step.place} was refused as going back, and the cursor was never beyond"
                self._violation("CURSOR-3", [step], sentence)

    def _never_beyond_the_end(self) -> None:
        """Check that no position lies behind the end of the journal as it was read later (CURSOR-3)."""
        ends = sorted(self.ends, key=lambda step: step.called)
        calls = [step.called for step in ends]
        lowest = list(ends)
        for position in range(len(lowest) - 2, -1, -1):
            if lowest[position + 1].place < lowest[position].place:
                lowest[position] = lowest[position + 1]
        for step in self.opens + self.advances + self.resets:
            position = bisect.bisect_right(calls, step.returned)
            if step.ok and position < len(ends) and lowest[position].place < step.place:
                sentence = f"the cursor was at {step.place}, and the journal ended at {lowest[position].place} later"
                self._violation("CURSOR-3", [step, lowest[position]], sentence)
        for step in self.advances:
            if step.operation.error != JOURNAL_REGRESSED:
                continue
            known = next((end for end in ends if end.returned < step.called and end.place >= step.place), None)
            if known is not None:
                sentence = f"moving to {step.place} was refused, though the journal had reached {known.place}"
                self._violation("CURSOR-3", [known, step], sentence)

    def _delivered_in_order(self) -> None:
        """Check that each opener starts its deliveries in order, from behind its position, and leaves none out."""
        started: dict[int, int] = {}
        for epoch, step in self.epochs:
            started[epoch] = step.place
        names: dict[int, _Step] = {}
        for step in sorted(self.sent, key=lambda step: (step.called, step.operation.index)):
            if step.epoch is None or step.epoch not in started:
                self.findings.doubt(f"cursor {self.key!r}: something was delivered by an opener that is not known")
                continue
            if step.place > started[step.epoch] + 1:
                sentence = f"seq {step.place} was delivered before seq {started[step.epoch] + 1}"
                self._violation("CURSOR-4", [step], sentence)
            started[step.epoch] = max(started[step.epoch], step.place)
            first = names.setdefault(step.place, step) if "event" in step.operation.input else step
            if canonical(first.operation.input.get("event")) != canonical(step.operation.input.get("event")):
                self._violation("CURSOR-4", [first, step], f"seq {step.place} was delivered as two events")

    def _acknowledged_first(self) -> None:
        """Check that the cursor moved only to what the receiver had acknowledged without a hole (CURSOR-4)."""
        if not self.sent or not self.epochs:
            return
        if any(not reset.ok for reset in self.resets):
            self.findings.doubt(f"cursor {self.key!r}: a reset of unknown outcome leaves open what had to be delivered")
            return
        first = min((step for _, step in self.epochs), key=lambda step: step.epoch or 0)
        contiguous = first.place
        acknowledged: set[int] = set()
        moments: list[tuple[float, int, _Step]] = [(step.returned, 0, step) for step in self.sent if step.ok]
        moments += [(float(reset.called), 1, reset) for reset in self.resets]
        moments += [(float(step.called), 2, step) for step in self.advances if step.possible]
        for _, kind, step in sorted(moments, key=lambda item: (item[0], item[1], item[2].operation.index)):
            if kind == 1:
                contiguous, acknowledged = step.place, set()
            elif kind == 0:
                acknowledged.add(step.place)
                while contiguous + 1 in acknowledged:
                    contiguous += 1
                    acknowledged.discard(contiguous)
            elif step.place > contiguous and not self._beside_a_reset(step):
                sentence = f"the cursor was moved to {step.place}, and the receiver had acknowledged up to {contiguous}"
                self._violation("CURSOR-4", [step], sentence)

    def _beside_a_reset(self, step: _Step) -> bool:
        return any(reset.called <= step.returned and step.called <= reset.returned for reset in self.resets)


def _running_maximum(facts: list[_Step]) -> tuple[list[float], list[_Step]]:
    """Give the return times of facts, in order, and for each the highest fact so far."""
    highest: list[_Step] = []
    for fact in facts:
        highest.append(fact if not highest or fact.place > highest[-1].place else highest[-1])
    return [fact.returned for fact in facts], highest


def _step(operation: Operation) -> _Step | None:
    """Read one operation; `None` for an answer that never came and had no effect to know of."""
    ok = operation.outcome is Outcome.OK
    if operation.op == "open":
        if not ok:
            return _Step(operation=operation, op="open", epoch=None, place=-1)
        answer = output_object(operation)
        epoch, place = integer(operation, answer, "epoch"), integer(operation, answer, "acked")
        return _Step(operation=operation, op="open", epoch=epoch, place=place)
    if operation.op == "end":
        last = integer(operation, output_object(operation), "last_seq") if ok else -1
        return _Step(operation=operation, op="end", epoch=None, place=last) if ok else None
    if operation.op == "reset":
        epoch_of = integer(operation, output_object(operation), "epoch") if ok else None
        return _Step(operation=operation, op="reset", epoch=epoch_of, place=integer(operation, operation.input, "to"))
    if operation.op not in ("advance", "deliver", "skip"):
        raise unknown_operation(operation, "cursor")
    place = integer(operation, operation.input, "to" if operation.op == "advance" else "seq")
    epoch_used = optional_integer(operation, operation.input, "epoch")
    return _Step(operation=operation, op=operation.op, epoch=epoch_used, place=place)
