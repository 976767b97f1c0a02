"""Cursors move only forward, by their newest opener, and never past what the receiver has."""

import random
from collections import Counter

import pytest
from history_builder import call, history

from statebook_conformance.checkers import Answer, History, HistoryError, Operation
from statebook_conformance.checkers.cursor import check_cursor


def opened(span, epoch, acked, **more):
    return call(span, "open", {}, {"epoch": epoch, "acked": acked}, **more)


def advance(span, epoch, to, **more):
    return call(span, "advance", {"epoch": epoch, "to": to}, **more)


def reset(span, to, epoch, **more):
    return call(span, "reset", {"to": to}, None if more.get("unknown") else {"epoch": epoch}, **more)


def deliver(span, epoch, seq, *, event=None, **more):
    return call(span, "deliver", {"epoch": epoch, "seq": seq, "event": event or f"e{seq}"}, **more)


def skip(span, epoch, seq):
    return call(span, "skip", {"epoch": epoch, "seq": seq})


def end(span, last):
    return call(span, "end", {}, {"last_seq": last})


GOOD = {
    "nothing": (),
    "drained": (
        opened((1, 2), 1, 0),
        deliver((3, 4), 1, 1),
        deliver((5, 6), 1, 2),
        advance((7, 8), 1, 2),
        end((9, 10), 2),
        opened((11, 12), 2, 2),
    ),
    "retried advance is harmless": (opened((1, 2), 1, 0), advance((3, 4), 1, 2), advance((5, 6), 1, 2)),
    "unknown advance seen": (opened((1, 2), 1, 0), advance((3, 4), 1, 2, unknown=True), opened((5, 6), 2, 2)),
    "unknown advance not seen": (opened((1, 2), 1, 0), advance((3, 4), 1, 2, unknown=True), opened((5, 6), 2, 0)),
    "older opener fenced": (
        opened((1, 2), 1, 0),
        opened((3, 4), 2, 0),
        advance((5, 6), 1, 1, error="CursorFenced"),
        advance((7, 8), 2, 1),
    ),
    "delivered again after a crash": (
        opened((1, 2), 1, 0),
        deliver((3, 4), 1, 1),
        deliver((5, 6), 1, 2),
        opened((7, 8), 2, 0),
        deliver((9, 10), 2, 1),
        advance((11, 12), 2, 2),
    ),
    "failed, sent again": (
        opened((1, 2), 1, 0),
        deliver((3, 4), 1, 1, error="SinkError"),
        deliver((5, 6), 1, 1),
        advance((7, 8), 1, 1),
    ),
    "failure moves nothing": (
        opened((1, 2), 1, 0),
        deliver((3, 4), 1, 1),
        deliver((5, 6), 1, 2, error="SinkError"),
        deliver((7, 8), 1, 3),
        advance((9, 10), 1, 1),
        opened((11, 12), 2, 1),
    ),
    "skipped on purpose": (
        opened((1, 2), 1, 0),
        deliver((3, 4), 1, 1, error="SinkError"),
        skip((5, 6), 1, 1),
        deliver((7, 8), 1, 2),
        advance((9, 10), 1, 2),
    ),
    "reset and exported again": (
        opened((1, 2), 1, 0),
        deliver((3, 4), 1, 1),
        advance((5, 6), 1, 1),
        reset((7, 8), 0, 2),
        deliver((9, 10), 2, 1),
        advance((11, 12), 2, 1),
        opened((13, 14), 3, 1),
    ),
    "reset back explains an older place": (
        opened((1, 2), 1, 0),
        advance((3, 4), 1, 5),
        reset((5, 6), 3, 2),
        opened((7, 8), 3, 3),
    ),
    "going back refused": (
        opened((1, 2), 1, 0),
        advance((3, 4), 1, 3),
        advance((5, 6), 1, 2, error="CursorRegression"),
    ),
    "beyond the end refused": (opened((1, 2), 1, 0), end((3, 4), 2), advance((5, 6), 1, 3, error="JournalRegressed")),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_a_correct_cursor_may_do_is_accepted(name: str) -> None:
    verdict = check_cursor(history(*GOOD[name]))
    assert verdict.answer is Answer.YES, verdict


BROKEN: dict[str, tuple[str, tuple[Operation, ...]]] = {
    "goes back at an open": ("CURSOR-3", (opened((1, 2), 1, 0), advance((3, 4), 1, 5), opened((5, 6), 2, 4))),
    "starts again at nothing": ("CURSOR-3", (opened((1, 2), 1, 0), advance((3, 4), 1, 5), opened((5, 6), 2, 0))),
    "goes back at an advance": ("CURSOR-3", (opened((1, 2), 1, 0), advance((3, 4), 1, 5), advance((5, 6), 1, 4))),
    "goes back below a reset": (
        "CURSOR-3",
        (opened((1, 2), 1, 0), advance((3, 4), 1, 5), reset((5, 6), 3, 2), opened((7, 8), 3, 2)),
    ),
    "goes back after a reset": (
        "CURSOR-3",
        (opened((1, 2), 1, 0), reset((3, 4), 1, 2), advance((5, 6), 2, 5), opened((7, 8), 3, 1)),
    ),
    "moved by nobody": ("CURSOR-3", (opened((1, 2), 1, 0), opened((3, 4), 2, 7))),
    "beyond the end": ("CURSOR-3", (opened((1, 2), 1, 0), advance((3, 4), 1, 5), end((5, 6), 4))),
    "refused though it was there": (
        "CURSOR-3",
        (opened((1, 2), 1, 0), end((3, 4), 3), advance((5, 6), 1, 3, error="JournalRegressed")),
    ),
    "refused as going back, going forward": (
        "CURSOR-3",
        (opened((1, 2), 1, 0), advance((3, 4), 1, 2, error="CursorRegression")),
    ),
    "older opener advances": ("CURSOR-2", (opened((1, 2), 1, 0), opened((3, 4), 2, 0), advance((5, 6), 1, 1))),
    "older opener advances after a reset": (
        "CURSOR-2",
        (opened((1, 2), 1, 0), reset((3, 4), 0, 2), advance((5, 6), 1, 1)),
    ),
    "fenced by nobody": ("CURSOR-2", (opened((1, 2), 1, 0), advance((3, 4), 1, 1, error="CursorFenced"))),
    "epoch twice": ("CURSOR-2", (opened((1, 4), 1, 0), opened((2, 5), 1, 0))),
    "epoch goes back": ("CURSOR-2", (opened((1, 2), 2, 0), opened((3, 4), 1, 0))),
    "moved before the acknowledgement": (
        "CURSOR-4",
        (opened((1, 2), 1, 0), advance((3, 4), 1, 1), deliver((5, 6), 1, 1)),
    ),
    "moved past a failure": (
        "CURSOR-4",
        (
            opened((1, 2), 1, 0),
            deliver((3, 4), 1, 1, error="SinkError"),
            deliver((5, 6), 1, 2),
            advance((7, 8), 1, 2),
        ),
    ),
    "moved on an unknown delivery": (
        "CURSOR-4",
        (opened((1, 2), 1, 0), deliver((3, 4), 1, 1, unknown=True), advance((5, 6), 1, 1)),
    ),
    "left out": ("CURSOR-4", (opened((1, 2), 1, 0), deliver((3, 4), 1, 2))),
    "out of order": ("CURSOR-4", (opened((1, 2), 1, 0), deliver((3, 4), 1, 2), deliver((5, 6), 1, 1))),
    "not delivered again after a reset": (
        "CURSOR-4",
        (
            opened((1, 2), 1, 0),
            deliver((3, 4), 1, 1),
            advance((5, 6), 1, 1),
            reset((7, 8), 0, 2),
            advance((9, 10), 2, 1),
        ),
    ),
    "one seq, two events": (
        "CURSOR-4",
        (opened((1, 2), 1, 0), deliver((3, 4), 1, 1), deliver((5, 6), 1, 1, event="other")),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_promise_is_caught_by_its_rule(name: str) -> None:
    promise, operations = BROKEN[name]
    verdict = check_cursor(history(*operations))
    assert verdict.answer is Answer.NO
    assert promise in {fact.promise for fact in verdict.facts}, verdict.facts


def test_a_reset_of_unknown_outcome_leaves_the_delivery_open() -> None:
    judged = history(opened((1, 2), 1, 0), deliver((3, 4), 1, 1), reset((5, 6), 0, 2, unknown=True))
    assert check_cursor(judged).answer is Answer.UNKNOWN


def test_a_delivery_by_an_unknown_opener_is_not_confirmed() -> None:
    judged = history(call((1, 2), "open", unknown=True), deliver((3, 4), 1, 1))
    assert check_cursor(judged).answer is Answer.UNKNOWN


def simulate_export(seed: int, fault: str | None = None) -> History:
    """Run exporters one after the other over one cursor, with failing sinks, crashes, and a paused older exporter."""
    rng = random.Random(f"{seed}/{fault}")
    last, acked, epoch, now = 12, 0, 0, 0
    operations: list[Operation] = []

    def span() -> tuple[int, int]:
        nonlocal now
        now += 2
        return now - 1, now

    for _ in range(6):
        older, epoch = epoch, epoch + (0 if fault == "epoch reused" and epoch and rng.random() < 0.5 else 1)
        if fault == "opened at nothing" and rng.random() < 0.3:
            acked = 0
        operations.append(opened(span(), epoch, acked))
        contiguous = acked
        for seq in range(acked + 1, min(last, acked + rng.randint(2, 6)) + 1):
            failed = rng.random() < 0.2
            if fault == "events left out" and rng.random() < 0.2:
                continue
            operations.append(deliver(span(), epoch, seq, error="SinkError" if failed else None))
            if not failed and (contiguous == seq - 1 or fault == "moved past a failure"):
                contiguous = seq
        if fault == "older exporter accepted" and older and rng.random() < 0.5:
            operations.append(advance(span(), older, acked))
        elif older and older != epoch and rng.random() < 0.3:
            operations.append(advance(span(), older, acked + 1, error="CursorFenced"))
        fate = rng.random()
        if fate < 0.7:
            operations.append(advance(span(), epoch, contiguous))
            acked = contiguous
        elif fate < 0.85:
            operations.append(advance(span(), epoch, contiguous, unknown=True))
            acked = contiguous if rng.random() < 0.5 else acked
    operations.append(end(span(), last))
    return history(*operations, checker="cursor")


def test_good_exports_are_never_refused() -> None:
    counts: Counter[str] = Counter()
    for seed in range(300):
        verdict = check_cursor(simulate_export(seed))
        assert verdict.answer is Answer.YES, f"seed {seed}: {verdict.facts}"
        counts.update(dict(verdict.statistics))
    assert min(counts["sink_failures"], counts["cursor_fenced"], counts["advances"]) > 100


@pytest.mark.parametrize(
    ("fault", "share"),
    [
        ("epoch reused", 0.9),
        ("opened at nothing", 0.6),
        ("events left out", 0.6),
        ("moved past a failure", 0.6),
        ("older exporter accepted", 0.9),
    ],
)
def test_enough_exports_of_a_faulty_store_or_exporter_are_caught(fault: str, share: float) -> None:
    caught = sum(check_cursor(simulate_export(seed, fault)).answer is Answer.NO for seed in range(100))
    assert caught >= share * 100


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (call((1, 2), "paint"), "knows no such operation"),
        (call((1, 2), "open", {}, {"epoch": 1}), "acked must be an integer"),
        (call((1, 2), "advance", {"epoch": 1}), "to must be an integer"),
        (call((1, 2), "deliver", {"epoch": 1, "seq": "1"}), "seq must be an integer"),
    ],
)
def test_operations_that_the_checker_does_not_know_are_errors_and_no_pass(operation: Operation, message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        check_cursor(history(operation))
