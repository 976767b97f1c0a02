"""Count what makes a history worth judging: a concurrency rule that met no concurrency has shown nothing.

A rule states a floor of evidence. A history below it is INCONCLUSIVE, whatever its checker says.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping

import msgspec

from statebook_conformance.checkers.history import History, Operation, Outcome

CONFLICTS = frozenset({"VersionConflict", "HeadConflict", "CursorConflict"})
FENCES = frozenset({"WriterFenced", "CursorFenced"})


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a history contains.

    `overlapping` counts pairs of operations on one key that were under way at once; an operation whose client never got
    the call back is in no pair. `takeovers` counts claims that a newer one replaced without a release between them.
    `replays` counts appends that returned an earlier receipt.
    """

    operations: int = 0
    processes: int = 0
    overlapping: int = 0
    conflicts: int = 0
    fenced: int = 0
    takeovers: int = 0
    replays: int = 0
    unknown: int = 0


class EvidenceFloor(msgspec.Struct, frozen=True, kw_only=True):
    """The least that a history must contain; 0 asks for nothing. The fields are those of `Evidence`."""

    operations: int = 0
    processes: int = 0
    overlapping: int = 0
    conflicts: int = 0
    fenced: int = 0
    takeovers: int = 0
    replays: int = 0
    unknown: int = 0

    def missing(self, evidence: Evidence) -> tuple[str, ...]:
        """Say what is missing.

        Args:
            evidence: What the history contains.

        Returns:
            One short sentence for each count below the floor; empty if the history is worth judging.
        """
        found = _counts(evidence)
        return tuple(
            f"{name}: {found[name]} seen, {least} needed"
            for name, least in _counts(self).items()
            if found[name] < least
        )


def collect(history: History) -> Evidence:
    """Count the evidence in a history, in O(n log n).

    Args:
        history: Any history.

    Returns:
        The counts.
    """
    operations = history.operations
    return Evidence(
        operations=len(operations),
        processes=len({operation.process for operation in operations}),
        overlapping=sum(overlapping_pairs(group) for group in history.by_key().values()),
        conflicts=_refused(operations, CONFLICTS),
        fenced=_refused(operations, FENCES),
        takeovers=sum(_takeovers(group) for group in history.by_key().values()),
        replays=sum(_output_flag(operation, "replayed") for operation in operations if operation.op == "append"),
        unknown=sum(operation.outcome is Outcome.UNKNOWN for operation in operations),
    )


def overlapping_pairs(operations: Iterable[Operation]) -> int:
    """Count the pairs of operations that were under way at once: all pairs but those where one preceded the other.

    Args:
        operations: Operations of one key.

    Returns:
        The number of pairs.
    """
    spans = [(operation.call_ns, operation.return_ns) for operation in operations]
    finished = sorted(end for _, end in spans if end is not None)
    calls = [start for start, end in spans if end is not None]
    apart = sum(bisect.bisect_left(finished, start) for start in calls)
    return len(calls) * (len(calls) - 1) // 2 - apart


def _refused(operations: Iterable[Operation], errors: frozenset[str]) -> int:
    return sum(operation.outcome is Outcome.REFUSED and operation.error in errors for operation in operations)


def _takeovers(operations: tuple[Operation, ...]) -> int:
    """Count neighbouring epochs where nothing gave the older one back before the newer claim was answered."""
    claims: list[tuple[int, Operation]] = []
    releases: dict[int, int] = {}
    for operation in operations:
        if operation.op == "claim" and operation.outcome is Outcome.OK and isinstance(operation.output, Mapping):
            epoch = operation.output.get("epoch")
            if isinstance(epoch, int):
                claims.append((epoch, operation))
        if operation.op == "release" and operation.outcome is not Outcome.REFUSED:
            epoch = operation.input.get("epoch")
            if isinstance(epoch, int):
                releases.setdefault(epoch, operation.call_ns)
    claims.sort(key=lambda item: item[0])
    return sum(
        claim.return_ns is not None and releases.get(before, claim.return_ns + 1) > claim.return_ns
        for (before, _), (_, claim) in itertools.pairwise(claims)
    )


def _output_flag(operation: Operation, name: str) -> bool:
    return isinstance(operation.output, Mapping) and operation.output.get(name) is True


def _counts(source: Evidence | EvidenceFloor) -> dict[str, int]:
    return {name: int(getattr(source, name)) for name in source.__struct_fields__}
