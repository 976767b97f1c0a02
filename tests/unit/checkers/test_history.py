"""A history is kept exactly, and what cannot be judged is refused by line."""

import json
import threading
from itertools import count
from pathlib import Path

import msgspec
import pytest
from history_builder import call, history
from hypothesis import given, strategies as st
from journal_simulation import simulate_journal

from statebook_conformance.checkers import (
    Header,
    HistoryError,
    Outcome,
    Recorder,
    judge,
    load,
    load_spill,
    merge,
)

HEADER = Header(rule="STATE-4", seed=7, checker="slot", params={"budget": 10})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(inputs=st.dictionaries(st.text(), JSON, max_size=3), output=JSON, error=st.none() | st.text())
def test_a_dumped_history_loads_equal_and_has_the_same_digest(tmp_path_factory, inputs, output, error) -> None:
    path = tmp_path_factory.mktemp("history") / "history.jsonl"
    written = merge(HEADER, [[call((1, 2), "save", inputs, output, error=error), call((3, None), "load")]])
    written.dump(path)
    assert load(path) == written
    assert load(path).digest() == written.digest()


def test_a_loaded_history_gets_the_same_verdict_as_the_fresh_one(tmp_path: Path) -> None:
    for fault in (None, "stale view", "batch stored twice"):
        fresh = simulate_journal(3, fault=fault)
        fresh.dump(tmp_path / "history.jsonl")
        assert judge(load(tmp_path / "history.jsonl")) == judge(fresh)


def test_the_digest_changes_with_any_line() -> None:
    first = history(call((1, 2), "load"))
    others = [
        history(call((1, 3), "load")),
        history(call((1, 2), "load", output={"value": 1, "version": 1})),
        history(call((1, 2), "load"), checker="versions"),
    ]
    assert len({first.digest(), *(other.digest() for other in others)}) == 4


GOOD_HEADER = {
    "format": "statebook-history",
    "version": 1,
    "rule": "R",
    "seed": 1,
    "checker": "slot",
    "params": {},
    "operations": 1,
}
GOOD_LINE = {
    "index": 0,
    "process": "p",
    "op": "load",
    "key": "k",
    "input": {},
    "call_ns": 1,
    "return_ns": 2,
    "outcome": "ok",
    "output": None,
    "error": None,
}


@pytest.mark.parametrize(
    ("header", "line", "message"),
    [
        (None, None, "line 1: the file is empty"),
        ({"format": "other"}, {}, "line 1: not a history"),
        ({"version": 2}, {}, "line 1: format version 2 is not known"),
        ({"rule": 3}, {}, "line 1: field 'rule' must be a string"),
        ({"extra": 3}, {}, "line 1: field 'extra' is not known"),
        ({"params": []}, {}, "line 1: field 'params' must be an object"),
        ({"operations": 2}, {}, "line 2: the header announces 2 operations, the file has 1"),
        ({}, "{", "line 2: not JSON"),
        ({}, "[1]", "line 2: an object is expected, found list"),
        ({}, '{"index":NaN}', "line 2: not JSON: NaN is not JSON"),
        ({}, {"index": 1}, "line 2: index 1, expected 0"),
        ({}, {"call_ns": "1"}, "line 2: field 'call_ns' must be an integer"),
        ({}, {"call_ns": True}, "line 2: field 'call_ns' must be an integer"),
        ({}, {"input": []}, "line 2: field 'input' must be an object"),
        ({}, {"outcome": "maybe"}, "line 2: field 'outcome' must be ok, refused or unknown"),
        ({}, {"return_ns": None}, "line 2: operation 0: outcome ok without a return time"),
        ({}, {"return_ns": 0}, "line 2: operation 0: it returned before it was called"),
        ({}, {"more": 0}, "line 2: field 'more' is not known"),
    ],
)
def test_a_bad_file_is_refused_and_the_error_names_the_line(tmp_path: Path, header, line, message) -> None:
    path = tmp_path / "bad.jsonl"
    if header is None:
        path.write_text("")
    else:
        second = line if isinstance(line, str) else json.dumps({**GOOD_LINE, **line})
        path.write_text(json.dumps({**GOOD_HEADER, **header}) + "\n" + second + "\n")
    with pytest.raises(HistoryError) as caught:
        load(path)
    assert message in str(caught.value)


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    history(call((1, 2), "load"), call((3, 4), "load")).dump(whole)
    content = whole.read_bytes()
    for length in range(len(content) - 1):
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(content[:length])
        with pytest.raises(HistoryError):
            load(cut)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    line = {name: value for name, value in GOOD_LINE.items() if name != "key"}
    path.write_text(json.dumps(GOOD_HEADER) + "\n" + json.dumps(line) + "\n")
    with pytest.raises(HistoryError, match="line 2: field 'key' is missing"):
        load(path)


def test_one_process_cannot_have_two_operations_under_way() -> None:
    with pytest.raises(HistoryError, match="line 3: operation 1: process 'p' has another operation under way"):
        history(call((1, 5), "load", process="p"), call((3, 6), "load", process="p"))


def test_histories_of_several_recorders_merge_by_call_time() -> None:
    ours = [call((1, 4), "load", process="a"), call((9, 10), "load", process="a")]
    theirs = [call((2, 3), "load", process="b")]
    merged = merge(HEADER, [ours, theirs])
    assert [(operation.index, operation.process) for operation in merged.operations] == [(0, "a"), (1, "b"), (2, "a")]


def test_a_recorder_keeps_every_operation_of_many_threads() -> None:
    recorder = Recorder(clock=count().__next__)

    def client(name: str) -> None:
        for number in range(50):
            with recorder.operation(name, "save", "k", {"value": number}) as pending:
                pending.ok({"version": number})

    threads = [threading.Thread(target=client, args=(f"p{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorded = recorder.history(HEADER)
    assert len(recorded.operations) == 200
    for name in ("p0", "p1", "p2", "p3"):
        mine = [operation for operation in recorded.operations if operation.process == name]
        assert [operation.input["value"] for operation in mine] == list(range(50))


def test_what_the_caller_changes_later_does_not_change_the_history() -> None:
    recorder = Recorder(clock=count().__next__)
    given_value, answer = {"value": [1]}, {"value": [2]}
    with recorder.operation("p", "save", "k", given_value) as pending:
        pending.ok(answer)
    given_value["value"].append(9)
    answer["value"].append(9)
    (operation,) = recorder.operations()
    assert operation.input == {"value": [1]}
    assert operation.output == {"value": [2]}


def test_an_operation_left_by_an_exception_is_unknown_and_the_exception_goes_on() -> None:
    recorder = Recorder(clock=count().__next__)
    with pytest.raises(ZeroDivisionError), recorder.operation("p", "load", "k"):
        raise ZeroDivisionError
    (operation,) = recorder.operations()
    assert (operation.outcome, operation.error) == (Outcome.UNKNOWN, "ZeroDivisionError")


def test_an_operation_needs_exactly_one_outcome() -> None:
    recorder = Recorder(clock=count().__next__)
    with pytest.raises(HistoryError, match="without an outcome"), recorder.operation("p", "load", "k"):
        pass
    with recorder.operation("p", "load", "k") as pending:
        pending.refused("VersionConflict", {"current": None})
        with pytest.raises(HistoryError, match="second outcome"):
            pending.ok()
    assert [operation.outcome for operation in recorder.operations()] == [Outcome.UNKNOWN, Outcome.REFUSED]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1: 2}, {"a": {2: 3}}, object()])
def test_a_value_that_is_not_json_is_refused_before_the_call(value) -> None:
    recorder = Recorder(clock=count().__next__)
    with pytest.raises(HistoryError, match="not a JSON value"):
        recorder.operation("p", "save", "k", {"value": value})
    assert recorder.operations() == ()


def test_a_spill_cut_at_any_byte_gives_every_operation_that_had_begun(tmp_path: Path) -> None:
    path = tmp_path / "spill.jsonl"
    recorder = Recorder(clock=count().__next__, spill=path)
    with recorder.operation("p", "save", "k", {"value": 1}) as pending:
        pending.ok({"version": 1})
    recorder.operation("p", "save", "k", {"value": 2})
    recorder.close()
    recorder.close()
    content = path.read_bytes()
    assert load_spill(path) == recorder.operations()
    ends = [position + 1 for position, byte in enumerate(content) if byte == ord("\n")]
    for length in range(len(content)):
        path.write_bytes(content[:length])
        whole_lines = sum(end <= length for end in ends)
        left = load_spill(path)
        assert len(left) == (0, 1, 1, 2)[whole_lines]
        if whole_lines == 1:
            assert left[0].outcome is Outcome.UNKNOWN
            assert left[0].return_ns is None
        if whole_lines == 2:
            assert left[0].output == {"version": 1}


def test_a_spill_damaged_inside_is_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "spill.jsonl"
    recorder = Recorder(clock=count().__next__, spill=path)
    with recorder.operation("p", "load", "k") as pending:
        pending.ok()
    recorder.close()
    first, second = path.read_bytes().splitlines(keepends=True)
    for content, line in (
        (second + first, 1),
        (first + first, 2),
        (first + b"{}\n", 2),
        (first[:9] + b"\n" + second, 1),
    ):
        path.write_bytes(content)
        with pytest.raises(HistoryError, match=f"line {line}:"):
            load_spill(path)


def test_a_spill_never_overwrites_a_file(tmp_path: Path) -> None:
    path = tmp_path / "spill.jsonl"
    path.write_text("something\n")
    with pytest.raises(FileExistsError):
        Recorder(clock=count().__next__, spill=path)


def test_operations_are_frozen() -> None:
    operation = call((1, 2), "load")
    with pytest.raises(AttributeError):
        operation.call_ns = 3  # type: ignore[misc]
    assert msgspec.structs.asdict(operation)["call_ns"] == 1
