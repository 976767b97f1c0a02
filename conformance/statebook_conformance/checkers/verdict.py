"""What a checker answers: yes, no or unknown, with the facts that show it.

Three values, because a checker that must answer would have to guess when its budget is spent or when the history does
not say enough; a guess of yes would be a pass that nobody earned.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from statebook_conformance.checkers.history import JsonValue

FACTS_MAX = 20
"""How many facts a verdict carries; all are counted."""


class Answer(enum.StrEnum):
    """The three answers."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Fact(msgspec.Struct, frozen=True):
    """One thing that cannot be: the fewest operations that show it, and one plain sentence.

    `promise` is the id of the contract rule that it breaks.
    """

    promise: str
    operations: tuple[int, ...]
    sentence: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one history.

    `facts` is empty unless the answer is no. `reason` says in one sentence why the answer is unknown, else it is
    empty. `statistics` are named counts: what was looked at, and how much of what matters was in it.
    """

    answer: Answer
    facts: tuple[Fact, ...] = ()
    reason: str = ""
    statistics: tuple[tuple[str, int], ...] = ()

    def count(self, name: str) -> int:
        """Give one statistic.

        Args:
            name: Its name.

        Returns:
            The count, 0 if the checker does not keep it.
        """
        return dict(self.statistics).get(name, 0)

    def as_json(self) -> dict[str, JsonValue]:
        """Give the verdict as a JSON object, for a report or a certificate."""
        return {
            "answer": self.answer.value,
            "facts": [
                {"promise": fact.promise, "operations": list(fact.operations), "sentence": fact.sentence}
                for fact in self.facts
            ],
            "reason": self.reason,
            "statistics": dict(self.statistics),
        }


class Findings:
    """Collect facts, doubts and counts while a checker reads a history."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self._violations = 0
        self._doubt = ""
        self._counts: dict[str, int] = {}

    @property
    def violations(self) -> int:
        """How many facts were reported, kept or not."""
        return self._violations

    def violation(self, promise: str, operations: Iterable[int], sentence: str) -> None:
        """Report something that cannot be.

        Args:
            promise: The id of the contract rule.
            operations: The indices of the operations that show it.
            sentence: One plain sentence.
        """
        self._violations += 1
        if len(self._facts) < FACTS_MAX:
            self._facts.append(Fact(promise, tuple(dict.fromkeys(operations)), sentence))

    def doubt(self, reason: str) -> None:
        """Report that something could not be decided; the first reason is kept."""
        self._doubt = self._doubt or reason

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a statistic; adding 0 makes it appear."""
        self._counts[name] = self._counts.get(name, 0) + amount

    def verdict(self) -> Verdict:
        """Give the verdict: no if anything was reported, else unknown if anything was in doubt, else yes."""
        self.add("violations", self._violations - self._counts.get("violations", 0))
        answer = Answer.NO if self._violations else Answer.UNKNOWN if self._doubt else Answer.YES
        return Verdict(
            answer=answer,
            facts=tuple(self._facts),
            reason=self._doubt if answer is Answer.UNKNOWN else "",
            statistics=tuple(sorted(self._counts.items())),
        )


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Join the verdicts about the parts of a history: the worst answer, all facts in order, the sums of the counts.

    Args:
        verdicts: The verdicts; none at all gives yes, as nothing was found wrong in nothing.

    Returns:
        One verdict.
    """
    answers: set[Answer] = set()
    facts: list[Fact] = []
    reason = ""
    counts: dict[str, int] = {}
    for verdict in verdicts:
        answers.add(verdict.answer)
        facts.extend(verdict.facts)
        reason = reason or verdict.reason
        for name, amount in verdict.statistics:
            counts[name] = counts.get(name, 0) + amount
    answer = Answer.NO if Answer.NO in answers else Answer.UNKNOWN if Answer.UNKNOWN in answers else Answer.YES
    return Verdict(
        answer=answer,
        facts=tuple(facts[:FACTS_MAX]),
        reason=reason if answer is Answer.UNKNOWN else "",
        statistics=tuple(sorted(counts.items())),
    )
