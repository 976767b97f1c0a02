"""Place in version order what shows no version: loads of an absent slot, and deletes.

Between one write and the next lies a gap: first the slot is live, then, if something deleted it, absent until the next
write. Gap 0 lies before the first write and is absent from the start. Each gap has four ranks: the write that opens
it, what was answered while it was live, the delete that ended that, and what was answered while it was absent.

What stands already bounds each rank in time: it cannot be reached before the latest call below it, nor after the
earliest deadline above it. So each operation fits an interval of gaps, found by bisection. A save that was
conditional on absence needs a delete before it; a save on a version forbids one. Deletes are placed first, those with
the earliest last gap first, then the absent answers go into the first gap that fits. An operation that fits nowhere
is a fact; a choice that does not work out is no fact, and the caller's check of the order finds it.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Mapping, Sequence

import msgspec

from statebook_conformance.checkers.cas import CasCall, Condition

RANKS = 4
WRITE, LIVE, DELETE, ABSENT = range(RANKS)

_INFINITY = float("inf")


class Standing(msgspec.Struct, frozen=True):
    """A call at its rank: `RANKS * gap + WRITE`, `LIVE`, `DELETE` or `ABSENT`."""

    rank: int
    call: CasCall

    @property
    def deadline(self) -> float:
        """The last instant at which the call can have taken effect."""
        return self.call.deadline


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """All calls on a slot, and its writes in version order."""

    calls: tuple[CasCall, ...]
    writes: tuple[CasCall, ...]


class Problem(msgspec.Struct, frozen=True):
    """Something that fits nowhere, with the rule it breaks."""

    promise: str
    calls: tuple[CasCall, ...]
    sentence: str


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """An order of all calls that took effect, or the problems that rule every order out."""

    order: tuple[CasCall, ...]
    problems: tuple[Problem, ...]


class _Supplier(msgspec.Struct, frozen=True, kw_only=True):
    """A delete that may end the live part of any gap from `low` to `high`."""

    call: CasCall
    low: int
    high: int


def place(slot: Slot, standing: Sequence[Standing], gap_of: Mapping[int, int]) -> Placement:
    """Place the calls that show no version.

    Args:
        slot: The calls and writes.
        standing: The calls that show a version, at their ranks.
        gap_of: The gap that each version opens.

    Returns:
        A full order to be checked, or problems.
    """
    return _Placer(slot, list(standing), gap_of).run()


class _Placer:
    def __init__(self, slot: Slot, standing: list[Standing], gap_of: Mapping[int, int]) -> None:
        self.slot = slot
        self.standing = standing
        self.gap_of = gap_of
        self.gaps = len(slot.writes) + 1
        following = [write.expected for write in slot.writes]
        self.allowed = (
            [False] + [not isinstance(expected, int) for expected in following[1:]] + [True] * bool(following)
        )
        self.required = [False] + [expected is Condition.ABSENT for expected in following[1:]] + [False]
        self.problems: list[Problem] = []
        self.taken: dict[int, CasCall] = {}
        self.earliest: list[list[float]] = []
        self.latest: list[list[float]] = []

    def run(self) -> Placement:
        self._pin_conditional_deletes()
        self._bound()
        absent = [call for call in self.slot.calls if call.absent]
        suppliers = self._suppliers()
        first_delete = self._first_deletes(suppliers)
        self._rule_out(absent, suppliers, first_delete)
        if not self.problems:
            self._place_deletes(absent, suppliers)
            self._place_absent(absent)
        self.standing.sort(key=lambda item: (item.rank, item.call.called, item.call.index))
        return Placement(order=tuple(item.call for item in self.standing), problems=tuple(self.problems))

    def _pin_conditional_deletes(self) -> None:
        """Put each successful delete on a version behind that version: one at most, and no save on it besides."""
        for call in self.slot.calls:
            if call.kind != "delete" or call.conflict or call.unknown or not isinstance(call.expected, int):
                continue
            gap = self.gap_of[call.expected]
            other = self.taken.get(gap)
            if other is None and not self.allowed[gap]:
                other = self.slot.writes[gap]
            if other is not None:
                sentence = f"version {call.expected} was deleted, and another change on it succeeded as well"
                self.problems.append(Problem("STATE-4", (other, call), sentence))
                continue
            self._take(gap, call)

    def _take(self, gap: int, call: CasCall) -> None:
        self.taken[gap] = call
        self.standing.append(Standing(RANKS * gap + DELETE, call))

    def _bound(self) -> None:
        """Compute for each rank the latest call at or below it and the earliest deadline at or above it."""
        size = RANKS * self.gaps
        earliest, latest = [-_INFINITY] * size, [_INFINITY] * size
        for item in self.standing:
            earliest[item.rank] = max(earliest[item.rank], item.call.called)
            latest[item.rank] = min(latest[item.rank], item.deadline)
        for rank in range(1, size):
            earliest[rank] = max(earliest[rank], earliest[rank - 1])
        for rank in range(size - 2, -1, -1):
            latest[rank] = min(latest[rank], latest[rank + 1])
        self.earliest = [earliest[part::RANKS] for part in range(RANKS)]
        self.latest = [latest[part::RANKS] for part in range(RANKS)]

    def _fits(self, call: CasCall, part: int) -> tuple[int, int]:
        """Give the first and last gap in whose `part` the call fits; the first is beyond the last if none does."""
        low = bisect.bisect_left(self.latest[part], call.called)
        high = bisect.bisect_right(self.earliest[part], call.deadline) - 1
        return low, high

    def _suppliers(self) -> list[_Supplier]:
        """List the deletes that may end a live part and stand nowhere yet, by their last gap."""
        placed = {call.index for call in self.taken.values()}
        found: list[_Supplier] = []
        for call in self.slot.calls:
            if call.kind != "delete" or call.conflict or call.absent or call.index in placed:
                continue
            low, high = self._fits(call, DELETE)
            if isinstance(call.expected, int):
                gap = self.gap_of.get(call.expected, -1)
                low, high = (gap, gap) if low <= gap <= high else (0, -1)
            found.append(_Supplier(call=call, low=low, high=high))
        return sorted(found, key=lambda supplier: (supplier.high, supplier.call.unknown, supplier.call.called))

    def _first_deletes(self, suppliers: Sequence[_Supplier]) -> list[float]:
        """Give for each gap the earliest time at which its slot can be absent: infinity if it never can."""
        first = [_INFINITY] * self.gaps
        first[0] = -_INFINITY
        for gap, call in self.taken.items():
            first[gap] = call.called
        waiting = sorted(suppliers, key=lambda supplier: supplier.low, reverse=True)
        heap: list[tuple[int, int, int]] = []
        for gap in range(1, self.gaps):
            while waiting and waiting[-1].low <= gap:
                supplier = waiting.pop()
                heapq.heappush(heap, (supplier.call.called, supplier.call.index, supplier.high))
            while heap and heap[0][2] < gap:
                heapq.heappop(heap)
            if heap and self.allowed[gap]:
                first[gap] = min(first[gap], heap[0][0])
        return first

    def _rule_out(self, absent: list[CasCall], suppliers: list[_Supplier], first: list[float]) -> None:
        """Report what fits nowhere, whatever is chosen elsewhere."""
        for gap in range(1, self.gaps):
            if self.required[gap] and first[gap] == _INFINITY:
                pair = (self.slot.writes[gap - 1], self.slot.writes[gap])
                sentence = "a save on absence succeeded, and nothing can have deleted the version before it"
                self.problems.append(Problem("STATE-4", pair, sentence))
        smallest = _RangeMinimum(first)
        for call in absent:
            low, high = self._fits(call, ABSENT)
            if smallest.between(low, high) > call.deadline:
                calls = (*self._neighbours(low, high), call)
                sentence = f"operation {call.index} was answered 'absent' while the slot cannot have been absent"
                self.problems.append(Problem("STATE-4", calls, sentence))
        possible = [0.0 if allowed else _INFINITY for allowed in self.allowed]
        openings = _RangeMinimum(possible)
        hidden = len(self.slot.writes) < sum(call.kind == "save" and not call.conflict for call in self.slot.calls)
        for supplier in suppliers:
            call = supplier.call
            if call.unknown or openings.between(supplier.low, supplier.high) == 0.0 or hidden:
                continue
            low, high = self._fits(call, ABSENT)
            if call.existed is None and smallest.between(low, high) <= call.deadline:
                continue
            sentence = (
                f"operation {call.index} deleted the slot, but all the time it was absent or a save found it unchanged"
            )
            self.problems.append(Problem("STATE-4", (*self._neighbours(low, high), call), sentence))

    def _neighbours(self, low: int, high: int) -> tuple[CasCall, ...]:
        """Give the writes that bound an interval of gaps, for a report."""
        gaps = {gap for gap in (min(low, high), max(low, high)) if 0 < gap < self.gaps}
        return tuple(self.slot.writes[gap - 1] for gap in sorted(gaps))

    def _place_deletes(self, absent: list[CasCall], suppliers: list[_Supplier]) -> None:
        """Choose the gaps that a delete ends: required ones, those that absent answers need, then for what is left."""
        unused = list(suppliers)
        for gap in range(1, self.gaps):
            if self.required[gap] and gap not in self.taken:
                self._supply(gap, unused, _INFINITY)
        fits = {call.index: self._fits(call, ABSENT) for call in absent}
        for call in sorted(absent, key=lambda call: fits[call.index][1]):
            low, high = fits[call.index]
            if not self._absent_gap(call, low, high):
                self._supply_between(max(low, 1), high, unused, call.deadline)
        for supplier in [item for item in unused if not item.call.unknown]:
            low, high = self._fits(supplier.call, ABSENT)
            if supplier.call.existed is None and self._absent_gap(supplier.call, low, high):
                continue
            opened = self._open_gap(supplier.low, supplier.high)
            if opened is not None:
                self._take(opened, supplier.call)

    def _supply(self, gap: int, unused: list[_Supplier], deadline: float) -> bool:
        """Let the first fitting delete end a gap; the list is ordered by the last gap that a delete fits."""
        for supplier in unused:
            if supplier.low <= gap <= supplier.high and supplier.call.called <= deadline:
                unused.remove(supplier)
                self._take(gap, supplier.call)
                return True
        return False

    def _supply_between(self, low: int, high: int, unused: list[_Supplier], deadline: float) -> None:
        """Let a delete end one of several gaps, the last one if possible: it serves most of the later answers too."""
        for gap in range(high, low - 1, -1):
            if self.allowed[gap] and gap not in self.taken and self._supply(gap, unused, deadline):
                return

    def _open_gap(self, low: int, high: int) -> int | None:
        return next((gap for gap in range(max(low, 1), high + 1) if self.allowed[gap] and gap not in self.taken), None)

    def _absent_gap(self, call: CasCall, low: int, high: int) -> bool:
        """Tell whether the slot is absent somewhere between two gaps, early enough for the call."""
        if low <= 0 <= high:
            return True
        return any(
            gap in self.taken and self.taken[gap].called <= call.deadline for gap in range(max(low, 1), high + 1)
        )

    def _place_absent(self, absent: list[CasCall]) -> None:
        """Put each absent answer, and each delete that is left, into the first absent part that fits."""
        placed = {item.call.index for item in self.standing}
        self._bound()
        left = [call for call in self.slot.calls if call.kind == "delete" and not call.unknown and not call.conflict]
        for call in {call.index: call for call in [*absent, *left]}.values():
            if call.index in placed:
                continue
            low, high = self._fits(call, ABSENT)
            gap = next((gap for gap in range(low, high + 1) if gap == 0 or gap in self.taken), low)
            self.standing.append(Standing(RANKS * gap + ABSENT, call))


class _RangeMinimum:
    """Minimum of a range of a fixed row in constant time, after O(n log n) to build (a sparse table)."""

    def __init__(self, row: Sequence[float]) -> None:
        self._rows = [list(row)]
        width = 1
        while 2 * width <= len(row):
            last = self._rows[-1]
            self._rows.append([min(last[i], last[i + width]) for i in range(len(row) - 2 * width + 1)])
            width *= 2

    def between(self, low: int, high: int) -> float:
        """Give the minimum from `low` to `high`, both included; infinity if the range is empty."""
        if low > high:
            return _INFINITY
        level = (high - low + 1).bit_length() - 1
        row = self._rows[level]
        return min(row[low], row[high - (1 << level) + 1])
