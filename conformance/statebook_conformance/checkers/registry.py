"""Find a checker by its name, so that a saved history can be judged again without the backend that produced it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from statebook_conformance.checkers.cursor import check_cursor
from statebook_conformance.checkers.fencing import check_fencing
from statebook_conformance.checkers.history import History, HistoryError, JsonValue
from statebook_conformance.checkers.journal import check_journal
from statebook_conformance.checkers.models import document, list_of_items
from statebook_conformance.checkers.verdict import Answer, Verdict, combine
from statebook_conformance.checkers.versions import check_versions
from statebook_conformance.checkers.wgl import DEFAULT_BUDGET, check_linearizable

Params: TypeAlias = Mapping[str, JsonValue]
Checker: TypeAlias = Callable[[History, Params], Verdict]


def versions(history: History, params: Params) -> Verdict:
    """Judge documents by the order of their versions; no parameters. See `check_versions`."""
    _expect(params)
    return check_versions(history)


def linearizable(history: History, params: Params) -> Verdict:
    """Search a linearization. Parameters: `model` (`document`, the default, or `list`), `budget`."""
    _expect(params, "model", "budget")
    model = params.get("model", "document")
    if model == "document":
        return check_linearizable(history, document, budget=_budget(params))
    if model == "list":
        return check_linearizable(history, list_of_items, promise="STATE-7", budget=_budget(params))
    raise HistoryError(f"parameter 'model' must be 'document' or 'list', found {model!r}")


def slot(history: History, params: Params) -> Verdict:
    """Judge documents by their versions, and search only where that leaves a slot undecided. Parameter: `budget`."""
    _expect(params, "budget")
    budget = _budget(params)
    verdicts: list[Verdict] = []
    for operations in history.by_key().values():
        part = History(header=history.header, operations=operations)
        verdict = check_versions(part)
        if verdict.answer is Answer.UNKNOWN:
            verdict = check_linearizable(part, document, budget=budget)
            budget = max(0, budget - verdict.count("explored"))
        verdicts.append(verdict)
    return combine(verdicts)


def journal(history: History, params: Params) -> Verdict:
    """Judge batches, readers and epochs of journals; no parameters. See `check_journal` and `check_fencing`."""
    _expect(params)
    return combine([check_journal(history), _without_shared_counts(check_fencing(history))])


def fencing(history: History, params: Params) -> Verdict:
    """Judge the epochs of journals alone; no parameters. See `check_fencing`."""
    _expect(params)
    return check_fencing(history)


def cursor(history: History, params: Params) -> Verdict:
    """Judge export cursors; no parameters. See `check_cursor`."""
    _expect(params)
    return check_cursor(history)


CHECKERS: Final[Mapping[str, Checker]] = MappingProxyType(
    {
        "cursor": cursor,
        "fencing": fencing,
        "journal": journal,
        "linearizable": linearizable,
        "slot": slot,
        "versions": versions,
    }
)
"""Every checker by the name that a history's header gives."""


def judge(history: History) -> Verdict:
    """Run the checker that the header names, with its parameters.

    Args:
        history: A history, fresh or loaded.

    Returns:
        The verdict.

    Raises:
        HistoryError: There is no such checker, a parameter is wrong, or the operations are not in its words.
    """
    checker = CHECKERS.get(history.header.checker)
    if checker is None:
        known = ", ".join(sorted(CHECKERS))
        raise HistoryError(f"line 1: there is no checker {history.header.checker!r}; known: {known}")
    return checker(history, history.header.params)


def _expect(params: Params, *names: str) -> None:
    unknown = sorted(set(params) - set(names))
    if unknown:
        raise HistoryError(f"line 1: parameter {unknown[0]!r} is not known to this checker")


def _budget(params: Params) -> int:
    budget = params.get("budget", DEFAULT_BUDGET)
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
        raise HistoryError(f"line 1: parameter 'budget' must be a positive integer, found {budget!r}")
    return budget


def _without_shared_counts(verdict: Verdict) -> Verdict:
    """Drop the counts that the journal checker keeps as well, so that they are not added up twice."""
    kept = tuple(item for item in verdict.statistics if item[0] in ("claims", "takeovers", "violations"))
    return Verdict(answer=verdict.answer, facts=verdict.facts, reason=verdict.reason, statistics=kept)
