"""Verdicts add up to the worst, checkers are found by name, and thin histories are told apart from good ones."""

import itertools
import json
import random

import pytest
from history_builder import call, history
from journal_simulation import simulate_journal
from slot_simulation import simulate

from statebook_conformance.checkers import (
    CHECKERS,
    Answer,
    Evidence,
    EvidenceFloor,
    Fact,
    HistoryError,
    Verdict,
    collect,
    combine,
    judge,
)
from statebook_conformance.checkers.evidence import overlapping_pairs
from statebook_conformance.checkers.verdict import FACTS_MAX, Findings

YES = Verdict(answer=Answer.YES, statistics=(("keys", 1),))
NO = Verdict(answer=Answer.NO, facts=(Fact("STATE-1", (3,), "no"),), statistics=(("keys", 1), ("violations", 1)))
UNKNOWN = Verdict(answer=Answer.UNKNOWN, reason="budget", statistics=(("keys", 1),))


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ((), Answer.YES),
        ((YES, YES), Answer.YES),
        ((YES, UNKNOWN), Answer.UNKNOWN),
        ((UNKNOWN, NO, YES), Answer.NO),
    ],
)
def test_the_worst_answer_wins(parts, answer) -> None:
    for order in itertools.permutations(parts):
        joined = combine(order)
        assert joined.answer is answer
        assert joined.count("keys") == len(parts)
        assert bool(joined.facts) is (answer is Answer.NO)
        assert bool(joined.reason) is (answer is Answer.UNKNOWN)


def test_a_verdict_keeps_few_facts_and_counts_all() -> None:
    findings = Findings()
    for number in range(FACTS_MAX + 5):
        findings.violation("STATE-1", [number, number], "no")
    findings.doubt("something else was open")
    verdict = findings.verdict()
    assert verdict.answer is Answer.NO
    assert len(verdict.facts) == FACTS_MAX
    assert verdict.facts[1].operations == (1,)
    assert verdict.count("violations") == FACTS_MAX + 5
    assert combine([verdict, verdict]).count("violations") == 2 * FACTS_MAX + 10


def test_a_verdict_is_json() -> None:
    text = json.dumps(NO.as_json())
    assert json.loads(text) == {
        "answer": "no",
        "facts": [{"promise": "STATE-1", "operations": [3], "sentence": "no"}],
        "reason": "",
        "statistics": {"keys": 1, "violations": 1},
    }


BAD_FOR = {
    "cursor": [call((1, 2), "open", {}, {"epoch": 1, "acked": 0}), call((3, 4), "open", {}, {"epoch": 1, "acked": 0})],
    "fencing": [call((1, 2), "claim", {}, {"epoch": 1}), call((3, 4), "claim", {}, {"epoch": 1})],
    "journal": [call((1, 2), "head", {}, {"last_seq": 2}), call((3, 4), "head", {}, {"last_seq": 1})],
    "linearizable": [call((1, 2), "load", {}, {"value": 1, "version": 1})],
    "slot": [call((1, 2), "load", {}, {"value": 1, "version": 1})],
    "versions": [call((1, 2), "load", {}, {"value": 1, "version": 1})],
}


def test_every_checker_says_no_to_something_and_yes_to_nothing_done() -> None:
    assert set(BAD_FOR) == set(CHECKERS)
    for name, operations in BAD_FOR.items():
        assert judge(history(*operations, checker=name)).answer is Answer.NO
        assert judge(history(checker=name)).answer is Answer.YES


@pytest.mark.parametrize(
    ("checker", "params", "message"),
    [
        ("guess", {}, "line 1: there is no checker 'guess'; known: cursor, fencing, journal"),
        ("journal", {"strict": True}, "line 1: parameter 'strict' is not known"),
        ("linearizable", {"model": "queue"}, "parameter 'model' must be"),
        ("linearizable", {"budget": 0}, "parameter 'budget' must be a positive integer"),
        ("slot", {"budget": True}, "parameter 'budget' must be a positive integer"),
    ],
)
def test_a_header_that_names_no_checker_or_parameter_is_refused(checker, params, message) -> None:
    with pytest.raises(HistoryError) as caught:
        judge(history(checker=checker, params=params))
    assert message in str(caught.value)


def test_the_slot_checker_decides_whatever_the_search_decides() -> None:
    for seed, fault in itertools.product(range(150), (None, "stale read", "lost update")):
        judged = simulate(seed, fault=fault)
        by_search = CHECKERS["linearizable"](judged, {})
        assert CHECKERS["slot"](judged, {}).answer is by_search.answer


def test_overlapping_pairs_are_counted_as_by_comparing_all() -> None:
    rng = random.Random(4)
    for _ in range(50):
        starts = [rng.randint(0, 40) for _ in range(20)]
        group = [call((start, start + rng.randint(0, 8)), "load", process=f"p{i}") for i, start in enumerate(starts)]
        compared = sum(
            not first.precedes(second) and not second.precedes(first)
            for first, second in itertools.combinations(group, 2)
        )
        assert overlapping_pairs(group) == compared


def test_a_call_that_never_came_back_is_no_evidence_of_overlap() -> None:
    assert collect(history(call((1, None), "load"), call((2, 3), "load"))).overlapping == 0
    assert collect(history(call((1, 4), "load"), call((2, 3), "load"))).overlapping == 1
    assert collect(history(call((1, 4), "load"), call((2, 3), "load", key="other"))).overlapping == 0


def test_evidence_counts_what_happened() -> None:
    judged = history(
        call((1, 2), "claim", {}, {"epoch": 1}, process="a"),
        call((3, 4), "release", {"epoch": 1}, process="a"),
        call((5, 6), "claim", {}, {"epoch": 2}, process="a"),
        call((7, 8), "claim", {}, {"epoch": 3}, process="b"),
        call((9, 10), "append", {}, {"committed": None}, error="WriterFenced", process="a"),
        call((11, 12), "append", {}, {"head": 1}, error="HeadConflict", process="b"),
        call((13, 14), "append", {}, {"replayed": True}, process="b"),
        call((15, 16), "append", {}, unknown=True, process="b"),
    )
    assert collect(judged) == Evidence(
        operations=8, processes=2, overlapping=0, conflicts=1, fenced=1, takeovers=1, replays=1, unknown=1
    )


def test_evidence_and_checker_count_the_same_takeovers() -> None:
    for seed in range(30):
        judged = simulate_journal(seed)
        assert collect(judged).takeovers == CHECKERS["fencing"](judged, {}).count("takeovers")


def test_a_floor_names_each_count_that_is_too_low() -> None:
    evidence = Evidence(operations=10, conflicts=2)
    assert EvidenceFloor().missing(evidence) == ()
    assert EvidenceFloor(operations=10, conflicts=2).missing(evidence) == ()
    assert EvidenceFloor(conflicts=3, takeovers=1).missing(evidence) == (
        "conflicts: 2 seen, 3 needed",
        "takeovers: 0 seen, 1 needed",
    )
