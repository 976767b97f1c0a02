"""Check a compare-and-set history by the order of its versions, in O(n log n).

A register whose store issues growing versions tells its own write order: what a general checker has to search for is
written in the answers. This is the version-order idea of Elle (Kingsbury and Alvaro 2020) and of Jepsen's checkers,
taken to its simplest case. Each write stands at its version, each answer that shows a version stands right behind that
write, and the history is linearizable if no operation that stands later returned before one that stands earlier was
called.

What shows no version (a load of an absent slot, an unconditional delete, an unknown delete) has to be placed in one of
the gaps between writes. `absence` finds the places; where several are possible it tries one.

So the answers are sound both ways: *no* is given only for a fact that no order explains, *yes* only for an order that
was written down and checked step by step. In between the answer is *unknown*, and the linearizability search decides.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from statebook_conformance.checkers.absence import LIVE, RANKS, WRITE, Placement, Slot, Standing, place
from statebook_conformance.checkers.cas import CasCall, Condition, read_calls
from statebook_conformance.checkers.history import History
from statebook_conformance.checkers.models import VersionedSlot
from statebook_conformance.checkers.verdict import Findings, Verdict, combine


class _Write(msgspec.Struct, frozen=True, kw_only=True):
    """A write in version order; `call` is `None` while nobody knows which unknown save it was."""

    version: int
    call: CasCall | None


def check_versions(history: History) -> Verdict:
    """Check each slot of a history: versions, values, conditions, conflicts and real-time order (STATE-1 to STATE-4).

    Args:
        history: Operations in the words of `cas`, the key names the slot.

    Returns:
        No with the facts, yes if an order was found and checked, else unknown.

    Raises:
        HistoryError: An operation is not in those words.
    """
    return combine(_SlotCheck(key, read_calls(operations)).run() for key, operations in history.by_key().items())


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A version that was seen but issued to nobody: who saw it first, with which content, and the version before it."""

    version: int
    before: int | None
    content: tuple[str, ...] | None
    observer: CasCall

    def possible(self, call: CasCall, known: frozenset[int]) -> bool:
        """Tell whether an unknown save may have got this version, as far as version, value and time can tell."""
        if self.content not in (None, call.content) or call.called > self.observer.deadline:
            return False
        expected = call.expected
        return isinstance(expected, Condition) or expected == self.before or expected not in known


class _SlotCheck:
    """The check of one slot."""

    def __init__(self, key: str, calls: tuple[CasCall, ...]) -> None:
        self.key = key
        self.calls = calls
        self.findings = Findings()
        self.unknown_saves = [call for call in calls if call.kind == "save" and call.unknown]
        self.chosen = False  # an unknown save was chosen where others were possible: nothing built on it is a fact

    def run(self) -> Verdict:
        self._count()
        issued = self._issued()
        self._answers_agree(issued)
        self._conflicts_are_justified()
        writes = self._version_order(issued)
        self._conditions_held(writes)
        if not self.findings.violations:
            self._order_holds(writes)
        return self.findings.verdict()

    def _count(self) -> None:
        self.findings.add("keys")
        self.findings.add("operations", len(self.calls))
        self.findings.add("conflicts", sum(call.conflict for call in self.calls))
        self.findings.add("unknown", sum(call.unknown for call in self.calls))

    def _violation(self, promise: str, calls: Iterable[CasCall], sentence: str) -> None:
        self.findings.violation(promise, (call.index for call in calls), f"slot {self.key!r}: {sentence}")

    def _order_violation(self, promise: str, calls: Iterable[CasCall], sentence: str) -> None:
        """Report a fact about the order, or only a doubt where the order rests on a choice."""
        if self.chosen:
            self.findings.doubt(f"slot {self.key!r}: which unknown save made which version is not clear")
        else:
            self._violation(promise, calls, sentence)

    def _issued(self) -> dict[int, CasCall]:
        """Collect the issued versions: positive, and none twice (STATE-2)."""
        issued: dict[int, CasCall] = {}
        for call in self.calls:
            if call.version is None:
                continue
            if call.version <= 0:
                self._violation("STATE-2", [call], f"version {call.version} was issued, versions are positive")
            if call.version in issued:
                self._violation("STATE-2", [issued[call.version], call], f"version {call.version} was issued twice")
            issued.setdefault(call.version, call)
        return issued

    def _answers_agree(self, issued: dict[int, CasCall]) -> None:
        """Check that a version has one value, the one that was saved under it (STATE-3)."""
        shown: dict[int, CasCall] = {}
        for call in self.calls:
            if call.seen_version is None:
                continue
            writer = issued.get(call.seen_version)
            if writer is not None and writer.content != call.seen_content:
                sentence = f"the value read with version {call.seen_version} is not the one saved under it"
                self._violation("STATE-3", [writer, call], sentence)
            first = shown.setdefault(call.seen_version, call)
            if first.seen_content != call.seen_content:
                sentence = f"version {call.seen_version} was read with two values"
                self._violation("STATE-3", [first, call], sentence)

    def _conflicts_are_justified(self) -> None:
        """Check that the version in a conflict breaks the condition (STATE-1)."""
        for call in self.calls:
            if call.conflict and call.accepts(call.current):
                expected = call.expected.value if isinstance(call.expected, Condition) else call.expected
                sentence = f"refused although the current version {call.current} meets the condition {expected!r}"
                self._violation("STATE-1", [call], sentence)

    def _version_order(self, issued: dict[int, CasCall]) -> list[_Write]:
        """Put all writes in the order of their versions, and find the unknown save behind each other version."""
        observers: dict[int, CasCall] = {}
        contents: dict[int, tuple[str, ...]] = {}
        for call in self.calls:
            version = call.observed
            if version is None or version in issued:
                continue
            if version not in observers or call.deadline < observers[version].deadline:
                observers[version] = call
            if call.seen_version is not None:
                contents[version] = call.seen_content
        writes = [_Write(version=version, call=call) for version, call in issued.items()]
        writes += [_Write(version=version, call=None) for version in observers]
        writes.sort(key=lambda write: write.version)
        known = frozenset(write.version for write in writes)
        free = list(self.unknown_saves)
        for position, write in enumerate(writes):
            if write.call is None:
                seen = _Seen(
                    version=write.version,
                    before=writes[position - 1].version if position else None,
                    content=contents.get(write.version),
                    observer=observers[write.version],
                )
                found = self._explain(seen, known, free)
                writes[position] = msgspec.structs.replace(write, call=found)
        return writes

    def _explain(self, seen: _Seen, known: frozenset[int], free: list[CasCall]) -> CasCall | None:
        """Find an unknown save that may have got a version that somebody saw; the most particular one first."""
        version = seen.version
        possible = [call for call in self.unknown_saves if version > 0 and seen.possible(call, known)]
        if not possible:
            self._violation("STATE-3", [seen.observer], f"version {version} was seen, and no save can have made it")
            return None
        candidates = [call for call in possible if call in free and call.expected in (*Condition, seen.before)]
        if not candidates:
            self.findings.doubt(f"slot {self.key!r}: which unknown save made version {version} is not clear")
            return None
        self.chosen = self.chosen or len(possible) > 1
        chosen = min(candidates, key=lambda call: (isinstance(call.expected, Condition), call.called))
        free.remove(chosen)
        return chosen

    def _conditions_held(self, writes: list[_Write]) -> None:
        """Check that a save or delete on a version followed right after it (STATE-1, STATE-4): no lost update."""
        for position, write in enumerate(writes):
            call = write.call
            if call is None or call.unknown or isinstance(call.expected, Condition):
                continue
            before = writes[position - 1] if position else None
            if before is None or before.version != call.expected:
                other = [before.call] if before is not None and before.call is not None else []
                found = "nothing" if before is None else f"version {before.version}"
                sentence = f"a save on version {call.expected} made version {call.version}, but {found} came before it"
                self._violation("STATE-4", [*other, call], sentence)

    def _order_holds(self, writes: list[_Write]) -> None:
        """Place everything that shows its version, check real time, then place the rest and check the whole order."""
        if any(write.call is None for write in writes):
            return
        slot = Slot(calls=self.calls, writes=tuple(write.call for write in writes if write.call is not None))
        gap_of = {write.version: gap for gap, write in enumerate(writes, start=1)}
        made = {write.call.index: write.version for write in writes if write.call is not None}
        standing: list[Standing] = []
        for call in self.calls:
            if call.index in made:
                standing.append(Standing(RANKS * gap_of[made[call.index]] + WRITE, call))
            elif call.observed is not None and (call.kind != "delete" or call.conflict):
                standing.append(Standing(RANKS * gap_of[call.observed] + LIVE, call))
        if not self._real_time(standing):
            return
        placement = place(slot, standing, gap_of)
        for problem in placement.problems:
            self._order_violation(problem.promise, problem.calls, problem.sentence)
        if not placement.problems:
            self._witness(placement, made)

    def _real_time(self, standing: list[Standing]) -> bool:
        """Check that nothing that stands later returned before something that stands earlier was called."""
        later: Standing | None = None
        level: Standing | None = None
        for item in sorted(standing, key=lambda item: -item.rank):
            if level is not None and level.rank != item.rank and (later is None or level.deadline < later.deadline):
                later = level
            if level is None or level.rank != item.rank or item.deadline < level.deadline:
                level = item
            if later is not None and later.deadline < item.call.called:
                self._order_violation("STATE-4", [later.call, item.call], _backward(later, item))
                return False
        return True

    def _witness(self, placement: Placement, made: dict[int, int]) -> None:
        """Accept the order only if the sequential slot gives these answers and real time is kept."""
        model = VersionedSlot(self.calls)
        state = model.initial()
        latest = float("-inf")
        for call in placement.order:
            following = list(model.step(state, call.operation))
            version = made.get(call.index)
            if call.kind == "save" and version is not None:
                following = [after for after in following if after.version == version]
            if not following or call.deadline < latest:
                self.findings.doubt(f"slot {self.key!r}: no order was found, and none was ruled out")
                return
            latest = max(latest, call.called)
            state = following[0]


def _backward(later: Standing, earlier: Standing) -> str:
    """Say in one sentence what two operations out of order mean."""
    shown = "wrote" if earlier.rank % RANKS == WRITE else "answered by"
    after = "wrote" if later.rank % RANKS == WRITE else "answered by"
    first, second = _version(earlier.call), _version(later.call)
    return (
        f"operation {earlier.call.index} {shown} version {first}, although operation {later.call.index}, which "
        f"{after} version {second}, had returned before it was called"
    )


def _version(call: CasCall) -> str:
    version = call.version if call.version is not None else call.observed
    return "of an unknown save" if version is None else str(version)
