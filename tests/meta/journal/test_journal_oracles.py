"""The oracles of the journal rules agree with each other, and their tools refuse what they cannot do."""

from __future__ import annotations

import pytest

from statebook.model import Receipt
from statebook_conformance.checkers.history import Header, History, Operation, Outcome
from statebook_conformance.checkers.journal import check_journal
from statebook_conformance.checkers.verdict import Answer
from statebook_conformance.journal_model import Held, JournalModel
from statebook_conformance.mutants.core_copy import core_copy
from statebook_conformance.rules.append_table import Held as ClaimKind, Known, Row, expected, rows
from statebook_conformance.writing import batch


def prepared(kind: ClaimKind) -> tuple[JournalModel, Held]:
    model = JournalModel()
    claim = model.claim("any")
    assert isinstance(claim, Held)
    _fill(model, claim)
    if kind is ClaimKind.FENCED:
        model.claim("any")
    elif kind is ClaimKind.RELEASED:
        assert model.release(claim) == "ok"
    elif kind is ClaimKind.GONE:
        assert model.delete()
        newer = model.claim("any")
        assert isinstance(newer, Held)
        _fill(model, newer)
    return model, claim


def _fill(model: JournalModel, claim: Held) -> None:
    for number in range(70):
        answer, _ = model.append(claim, batch(f"b{number}", 2), number * 2)
        assert answer == "committed"


@pytest.mark.parametrize("kind", list(ClaimKind))
def test_the_table_and_the_model_give_the_same_answers(kind: ClaimKind) -> None:
    for row in rows(kind, receipts_kept=True):
        model, claim = prepared(kind)
        answer, _ = model.append(claim, row.batch(), row.base)
        wanted = expected(row, 140)
        found = "Receipt" if answer in ("committed", "replayed") else answer
        assert found == wanted.__name__, str(row)


def test_the_table_has_every_combination_of_its_columns() -> None:
    made = [row for kind in ClaimKind for row in rows(kind, receipts_kept=False)]
    assert {(row.known, row.held) for row in made} == {(known, held) for known in Known for held in ClaimKind}
    for known in Known:
        bases = {row.base for row in made if row.known is known}
        assert min(bases) < 140 < max(bases)
        assert 140 in bases
    assert expected(Row(Known.NEW, ClaimKind.CURRENT, 0, 140), 140) is Receipt


def _history(fence_output: dict[str, object]) -> History:
    given = {"batch": "b", "events": ["e"], "base_seq": 0, "epoch": 1}
    append = Operation(
        index=0,
        process="writer",
        op="append",
        key="journal",
        input=given,
        call_ns=1,
        return_ns=4,
        outcome=Outcome.REFUSED,
        output=fence_output,
        error="WriterFenced",
    )
    final = Operation(
        index=1,
        process="reader",
        op="final",
        key="journal",
        input={},
        call_ns=5,
        return_ns=6,
        outcome=Outcome.OK,
        output={"first_seq": 1, "events": [[1, "e"]]},
        error=None,
    )
    return History(header=Header(rule="rule", seed=1, checker="journal"), operations=(append, final))


def test_a_fence_with_a_receipt_says_that_its_own_append_may_have_landed() -> None:
    receipt = {"first": 1, "last": 1, "replayed": True, "epoch": 1}
    assert check_journal(_history({"committed": receipt})).answer is Answer.YES


def test_a_fence_without_a_receipt_says_that_it_has_not_landed() -> None:
    assert check_journal(_history({"committed": None})).answer is Answer.NO


def test_a_mutant_of_code_that_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match="follow the code"):
        core_copy("statebook.plan", no_such_function=None)


def test_a_copy_of_a_module_leaves_the_module_alone() -> None:
    from statebook import plan

    copy = core_copy("statebook.plan", is_current=None)
    assert copy.is_current is None
    assert plan.is_current is not None
    assert copy.plan_append is not plan.plan_append
