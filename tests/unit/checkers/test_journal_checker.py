"""Each promise about batches has a good history that is accepted and a bad one that is caught by the right rule."""

from collections import Counter

import pytest
from history_builder import call, history
from journal_simulation import JOURNAL_FAULTS, simulate_journal

from statebook_conformance.checkers import Answer, HistoryError, Operation
from statebook_conformance.checkers.journal import check_journal

# Shares of histories of a store with the fault; in the others it never struck or stayed hidden. Measured: 0.12 to 0.93.
CAUGHT = {
    "acknowledged and lost": 0.7,
    "batch stored twice": 0.7,
    "batch stored in two parts": 0.8,
    "batch re-ordered": 0.8,
    "refused but written": 0.2,
    "stale view": 0.7,
    "settled by a read": 0.06,
    "dedupe forgets": 0.7,
    "event lost from a page": 0.8,
}


def test_good_journals_are_never_refused_and_hold_every_kind_of_answer() -> None:
    counts: Counter[str] = Counter()
    for seed in range(300):
        verdict = check_journal(simulate_journal(seed))
        assert verdict.answer is Answer.YES, f"seed {seed}: {verdict.facts} {verdict.reason}"
        counts.update(dict(verdict.statistics))
    for kind in ("replayed", "fenced_committed", "head_conflicts", "settled_absent", "unknown_present", "reads"):
        assert counts[kind] > 50, kind


@pytest.mark.parametrize("fault", JOURNAL_FAULTS)
def test_enough_journals_of_a_faulty_store_are_caught(fault: str) -> None:
    caught = sum(check_journal(simulate_journal(seed, fault=fault)).answer is Answer.NO for seed in range(100))
    assert caught >= CAUGHT[fault] * 100


def append(span, batch, base, count=2, *, epoch=1, first=None, replayed=False, events=None, submission=None, **more):
    names = events if events is not None else [f"{batch}{number}" for number in range(count)]
    inputs = {"batch": batch, "events": names, "base_seq": base, "epoch": epoch, "submission": submission}
    start = base + 1 if first is None else first
    output = {"first": start, "last": start + len(names) - 1, "replayed": replayed}
    if more.get("unknown") or more.get("error"):
        output = more.pop("output", None)
    return call(span, "append", inputs, output, **more)


def lost(span, batch, base, count=2, **more):
    return append(span, batch, base, count, unknown=True, **more)


def fenced(span, batch, base, count=2, committed=None, **more):
    return append(span, batch, base, count, error="WriterFenced", output={"committed": committed}, **more)


def moved(span, batch, base, head, count=2, **more):
    return append(span, batch, base, count, error="HeadConflict", output={"head": head}, **more)


def settle(span, batch, base, receipt=None):
    return call(span, "settle", {"batch": batch, "base_seq": base}, receipt)


def receipt(first, last):
    return {"first": first, "last": last, "replayed": True}


def read(span, after, names, *, more=False, limit=100, first=None, **options):
    start = after + 1 if first is None else first
    events = [[start + position, name] for position, name in enumerate(names)]
    return call(span, "read", {"after": after, "limit": limit}, {"events": events, "has_more": more}, **options)


def head(span, last):
    return call(span, "head", {}, {"last_seq": last})


def final(*names, first=1, time=100):
    events = [[first + position, name] for position, name in enumerate(names)]
    return call((time, time + 1), "final", {}, {"first_seq": first, "events": events})


GOOD = {
    "nothing": (),
    "two batches": (append((1, 2), "a", 0), append((3, 4), "b", 2), final("a0", "a1", "b0", "b1")),
    "unknown and there": (lost((1, 2), "a", 0), final("a0", "a1")),
    "unknown and not there": (lost((1, 2), "a", 0), final()),
    "unknown, retried, replayed": (
        lost((1, 2), "a", 0),
        append((3, 4), "a", 0, replayed=True),
        final("a0", "a1"),
    ),
    "retry after the head moved far": (
        append((1, 2), "a", 0),
        append((3, 4), "b", 2),
        append((5, 6), "a", 0, replayed=True),
        final("a0", "a1", "b0", "b1"),
    ),
    "fenced but committed": (lost((1, 2), "a", 0), fenced((3, 4), "a", 0, committed=receipt(1, 2)), final("a0", "a1")),
    "landed by its only call, which was fenced when it tried again": (
        fenced((1, 2), "a", 0, committed=receipt(1, 2)),
        final("a0", "a1"),
    ),
    "replay of what a fenced call had landed": (
        fenced((1, 2), "a", 0, committed=receipt(1, 2)),
        append((3, 4), "a", 0, epoch=2, replayed=True),
        final("a0", "a1"),
    ),
    "batch conflict with what a fenced call had landed": (
        fenced((1, 2), "a", 0, committed=receipt(1, 2)),
        append((3, 4), "a", 0, epoch=2, events=["x"], error="BatchConflict"),
        final("a0", "a1"),
    ),
    "fenced, then sent by the new owner": (
        fenced((1, 2), "a", 0),
        append((3, 4), "a", 0, epoch=2),
        final("a0", "a1"),
    ),
    "settled absent, then sent again": (
        lost((1, 2), "a", 0),
        settle((3, 4), "a", 0),
        append((5, 6), "a", 0),
        final("a0", "a1"),
    ),
    "settled present": (lost((1, 2), "a", 0), settle((3, 4), "a", 0, receipt(1, 2)), final("a0", "a1")),
    "head conflict, then with another base": (
        append((1, 2), "a", 0),
        moved((3, 4), "b", 0, 2),
        append((5, 6), "b", 2),
        final("a0", "a1", "b0", "b1"),
    ),
    "batch conflict over other content": (
        append((1, 2), "a", 0),
        append((3, 4), "a", 0, events=["a1", "a0"], error="BatchConflict"),
        final("a0", "a1"),
    ),
    "readers behind each other": (
        append((1, 2), "a", 0),
        read((3, 4), 0, ["a0"], more=True, limit=1),
        read((5, 6), 1, ["a1"]),
        read((7, 8), 2, []),
        final("a0", "a1"),
    ),
    "reader beside an append sees either": (
        append((1, 9), "a", 0),
        read((2, 3), 0, []),
        head((4, 5), 2),
        final("a0", "a1"),
    ),
    "trimmed in a batch": (
        append((1, 2), "a", 0, 3),
        append((3, 4), "b", 3),
        call((5, 6), "trim", {"before": 3}, {"first_seq": 3}),
        final("a2", "b0", "b1", first=3),
    ),
    "trimmed away before a late retry": (
        append((1, 2), "a", 0),
        append((3, 4), "b", 2),
        call((5, 6), "trim", {"before": 3}, {"first_seq": 3}),
        moved((7, 8), "a", 0, 4),
        call((9, 10), "read", {"after": 0}, {"first_seq": 3}, error="Trimmed"),
        final("b0", "b1", first=3),
    ),
    "the first submissions trimmed away": (
        append((1, 2), "a", 0, submission=1),
        lost((3, 4), "b", 2, submission=2),
        append((5, 6), "c", 4, submission=3),
        call((7, 8), "trim", {"before": 5}, {"first_seq": 5}),
        final("c0", "c1", first=5),
    ),
    "submissions behind a failed one not there": (
        append((1, 2), "a", 0, submission=1),
        append((3, 4), "b", 2, error="BackendUnavailable", submission=2),
        append((5, 6), "c", 2, error="LaneClosed", submission=3),
        final("a0", "a1"),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_a_correct_journal_may_do_is_accepted(name: str) -> None:
    verdict = check_journal(history(*GOOD[name]))
    assert verdict.answer is Answer.YES, verdict


BROKEN: dict[str, tuple[str, tuple[Operation, ...]]] = {
    "acknowledged and lost": ("APPEND-2", (append((1, 2), "a", 0), final())),
    "acknowledged and elsewhere": (
        "APPEND-2",
        (append((1, 2), "b", 0), append((1, 3), "a", 2), final("a0", "a1", "b0", "b1")),
    ),
    "acknowledged by a fence and lost": ("APPEND-2", (fenced((1, 2), "a", 0, committed=receipt(1, 2)), final())),
    "settled present and lost": (
        "APPEND-2",
        (lost((1, 2), "a", 0), settle((3, 4), "a", 0, receipt(1, 2)), final()),
    ),
    "stored twice": ("SETTLE-1", (lost((1, 2), "a", 0), append((3, 4), "a", 2), final("a0", "a1", "a0", "a1"))),
    "one event twice": ("SETTLE-1", (append((1, 2), "a", 0), final("a0", "a1", "a1"))),
    "half a batch": ("APPEND-2", (lost((1, 2), "a", 0), final("a0"))),
    "the end of a batch only": ("APPEND-2", (lost((1, 2), "a", 0), final("a1"))),
    "batch interrupted": ("APPEND-2", (lost((1, 9), "a", 0), lost((2, 8), "b", 0, 1), final("a0", "b0", "a1"))),
    "batch re-ordered": ("APPEND-2", (append((1, 2), "a", 0), final("a1", "a0"))),
    "event from nowhere": ("ID-5", (append((1, 2), "a", 0), final("a0", "a1", "zz"))),
    "gap in seq": (
        "HEAD-2",
        (lost((1, 2), "a", 0), call((9, 10), "final", {}, {"first_seq": 1, "events": [[1, "a0"], [3, "a1"]]})),
    ),
    "begins late without a trim": ("LIFE-2", (append((1, 2), "a", 0), final(first=3))),
    "unavailable but written": (
        "ERR-2",
        (append((1, 2), "a", 0, error="BackendUnavailable"), final("a0", "a1")),
    ),
    "fenced but written": ("APPEND-1", (fenced((1, 2), "a", 0), final("a0", "a1"))),
    "unknown, then fenced as absent, and there": (
        "APPEND-1",
        (lost((1, 2), "a", 0), fenced((3, 4), "a", 0), final("a0", "a1")),
    ),
    "head conflict but written": (
        "APPEND-1",
        (append((1, 2), "b", 0), moved((3, 4), "a", 0, 2), final("b0", "b1", "a0", "a1")),
    ),
    "retry of a committed batch refused": (
        "APPEND-1",
        (append((1, 2), "a", 0), moved((3, 4), "a", 0, 2), final("a0", "a1")),
    ),
    "settled absent, lands later": (
        "APPEND-1",
        (lost((1, 2), "a", 0), settle((3, 4), "a", 0), final("a0", "a1")),
    ),
    "settled absent after its acknowledgement": (
        "SETTLE-2",
        (append((1, 2), "a", 0), settle((3, 4), "a", 0), final("a0", "a1")),
    ),
    "two receipts": (
        "APPEND-1",
        (append((1, 2), "a", 0), append((3, 4), "a", 0, first=3, replayed=True), final("a0", "a1")),
    ),
    "two first commits": ("SETTLE-1", (append((1, 2), "a", 0), append((3, 4), "a", 0), final("a0", "a1"))),
    "replay of nothing": ("APPEND-1", (append((1, 2), "a", 0, replayed=True), final("a0", "a1"))),
    "receipt of another length": (
        "HEAD-2",
        (call((1, 2), "append", append((1, 2), "a", 0).input, {"first": 1, "last": 3}), final("a0", "a1")),
    ),
    "committed away from its base": (
        "APPEND-2",
        (lost((1, 2), "b", 0), append((3, 4), "a", 0, first=3), final("b0", "b1", "a0", "a1")),
    ),
    "batch conflict with nothing": ("APPEND-1", (append((1, 2), "a", 0, error="BatchConflict"), final())),
    "other content under one id": (
        "APPEND-2",
        (append((1, 2), "a", 0), append((3, 4), "a", 2, events=["x"], replayed=True, first=1), final("x", "a1")),
    ),
    "order against real time": (
        "HEAD-2",
        (append((1, 2), "a", 0), lost((3, 4), "b", 0), final("b0", "b1", "a0", "a1")),
    ),
    "submission skipped": (
        "APPEND-4",
        (lost((1, 2), "a", 0, submission=1), append((3, 4), "b", 0, submission=2), final("b0", "b1")),
    ),
    "submission behind a refused one in a trimmed journal": (
        "APPEND-4",
        (
            append((1, 2), "x", 0),
            append((3, 4), "a", 0, error="BackendUnavailable", submission=1),
            append((5, 6), "b", 2, submission=2),
            call((7, 8), "trim", {"before": 3}, {"first_seq": 3}),
            final("b0", "b1", first=3),
        ),
    ),
    "submissions changed places": (
        "APPEND-4",
        (lost((1, 9), "a", 2, submission=1), append((2, 8), "b", 0, submission=2), final("b0", "b1", "a0", "a1")),
    ),
    "page with a hole": (
        "READ-1",
        (append((1, 2), "a", 0), read((3, 4), 0, ["a1"], first=2), final("a0", "a1")),
    ),
    "page too long": ("READ-1", (append((1, 2), "a", 0), read((3, 4), 0, ["a0", "a1"], limit=1), final("a0", "a1"))),
    "empty page with more": ("READ-1", (append((1, 2), "a", 0), read((3, 4), 2, [], more=True), final("a0", "a1"))),
    "view of another chain": (
        "READ-2",
        (lost((1, 2), "a", 0), lost((1, 3), "b", 0), read((4, 5), 0, ["b0", "b1"]), final("a0", "a1")),
    ),
    "part of a batch seen": ("APPEND-2", (append((1, 9), "a", 0), read((2, 3), 0, ["a0"]), final("a0", "a1"))),
    "head inside a batch": ("APPEND-2", (append((1, 9), "a", 0), head((2, 3), 1), final("a0", "a1"))),
    "read before it was sent": ("READ-2", (read((1, 2), 0, ["a0", "a1"]), lost((3, 4), "a", 0), final("a0", "a1"))),
    "page before it was sent": (
        "READ-2",
        (read((1, 2), 0, ["a0"], more=True, limit=1), lost((3, 4), "a", 0), final("a0", "a1")),
    ),
    "head before it was sent": ("READ-2", (head((1, 2), 2), lost((3, 4), "a", 0), final("a0", "a1"))),
    "acknowledged and not seen": ("ATOM-5", (append((1, 2), "a", 0), read((3, 4), 0, []), final("a0", "a1"))),
    "views go back": (
        "ATOM-5",
        (append((1, 9), "a", 0), read((2, 3), 0, ["a0", "a1"]), read((4, 5), 0, []), final("a0", "a1")),
    ),
    "head goes back": ("ATOM-5", (append((1, 2), "a", 0), head((3, 4), 0), final("a0", "a1"))),
    "regressed to a reader": (
        "ATOM-5",
        (
            append((1, 2), "a", 0),
            call((3, 4), "read", {"after": 2}, {}, error="JournalRegressed"),
            final("a0", "a1"),
        ),
    ),
    "regressed to a writer": (
        "ATOM-5",
        (append((1, 2), "a", 0), append((3, 4), "b", 2, error="JournalRegressed"), final("a0", "a1")),
    ),
    "head conflict not behind its base": ("APPEND-1", (moved((1, 2), "a", 0, 0), final())),
    "trimmed by nobody": ("READ-3", (call((1, 2), "read", {"after": 0}, {}, error="Trimmed"), final())),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_promise_is_caught_by_its_rule(name: str) -> None:
    promise, operations = BROKEN[name]
    verdict = check_journal(history(*operations))
    assert verdict.answer is Answer.NO
    assert promise in {fact.promise for fact in verdict.facts}, verdict.facts
    assert all(fact.operations and fact.sentence for fact in verdict.facts)


def test_without_a_final_read_nothing_is_confirmed() -> None:
    verdict = check_journal(history(append((1, 2), "a", 0)))
    assert verdict.answer is Answer.UNKNOWN
    assert "final read" in verdict.reason


def test_a_final_read_before_an_acknowledgement_confirms_nothing() -> None:
    verdict = check_journal(history(append((1, 102), "a", 0), final(time=100)))
    assert verdict.answer is Answer.UNKNOWN


def test_without_a_final_read_what_is_certain_is_still_caught() -> None:
    assert check_journal(history(append((1, 2), "a", 0), head((3, 4), 0))).answer is Answer.NO


def test_journals_are_judged_one_by_one() -> None:
    ours = [
        append((1, 2), "a", 0, key="one"),
        call((9, 10), "final", {}, {"events": [[1, "a0"], [2, "a1"]]}, key="one"),
    ]
    theirs = [append((1, 2), "a", 0, key="two", process="q"), call((11, 12), "final", {}, {"events": []}, key="two")]
    assert check_journal(history(*ours)).answer is Answer.YES
    verdict = check_journal(history(*ours, *theirs))
    assert verdict.answer is Answer.NO
    assert all("'two'" in fact.sentence for fact in verdict.facts)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (call((1, 2), "paint"), "knows no such operation"),
        (call((1, 2), "append", {"batch": "a"}, {}), "first must be an integer"),
        (call((1, 2), "append", {"batch": 1}, None, error="BatchConflict"), "batch must be a string"),
        (call((1, 2), "read", {"after": 0}, {"events": []}), "has_more must be true or false"),
        (call((1, 2), "read", {"after": 0}, {"events": [[1]], "has_more": False}), "pair of seq and id"),
        (call((1, 2), "final", {}, None, error="StoreClosed"), "final read must have succeeded"),
        (call((1, 2), "claim", {"replacing": "me"}, {"epoch": 1}), "input.replacing must be"),
        (append((1, 2), "a", 0, error="WriterFenced", output={}), "committed is missing"),
    ],
)
def test_operations_that_the_checker_does_not_know_are_errors_and_no_pass(operation: Operation, message: str) -> None:
    with pytest.raises(HistoryError) as caught:
        check_journal(history(operation))
    assert message in str(caught.value)
