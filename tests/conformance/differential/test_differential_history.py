"""Histories and labels of the differential test: made from a seed, kept in a file, and free of nothing but chance."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final, get_args

import msgspec
import pytest

from statebook.capabilities import Limits
from statebook.codec import encode_batch
from statebook.keys import ThreadKey
from statebook.model import JournalHead, SlotKind
from statebook_conformance.differential import steps as do
from statebook_conformance.differential.answers import answer_of, text_of
from statebook_conformance.differential.labels import TRIMMED, HeadWatch, Incarnations, Ranks
from statebook_conformance.differential.make import NEEDED, make_history, too_small
from statebook_conformance.differential.model import ModelPlayer
from statebook_conformance.differential.patient import PatientCaller

KEY: Final = ThreadKey(None, "agent", "session", "thread")
ORIGIN: Final = do.Origin(
    statebook_differential=1, seed=7, made=3, target="memory://x", step=2, expected="{}", found='{"a":1}'
)
SEEN: Final = {
    "Claim": {"ok", "WriterBusy"},
    "Append": {"ok", "replayed", "BatchConflict", "HeadConflict", "JournalRegressed", "WriterFenced"},
    "AppendMany": {"ok", "HeadConflict", "JournalRegressed", "WriterFenced"},
    "Settle": {"ok", "Trimmed", "WriterFenced"},
    "Heartbeat": {"ok", "WriterFenced"},
    "Release": {"ok", "WriterFenced"},
    "Read": {"ok", "JournalRegressed", "Trimmed"},
    "OpenCursor": {"ok", "CursorInvalid", "JournalNotFound"},
    "AdvanceCursor": {"ok", "CursorFenced", "CursorInvalid", "CursorRegression", "JournalNotFound", "JournalRegressed"},
    "ResetCursor": {"ok", "CursorConflict", "JournalNotFound", "JournalRegressed", "Trimmed"},
    "Trim": {"ok", "JournalNotFound"},
    "Save": {"ok", "VersionConflict"},
    "ReplaceList": {"ok", "VersionConflict"},
    "AppendList": {"ok", "VersionConflict"},
    "DeleteSlot": {"ok", "VersionConflict", "ValueError"},
    "ListThreads": {"ok", "ValueError"},
    "ListKeys": {"ok", "ValueError"},
    "ListSessions": {"ok", "ValueError"},
}
"""What histories must contain, or they would compare little."""


def test_one_seed_makes_one_history_and_another_seed_another_one() -> None:
    assert make_history(5, 80) == make_history(5, 80)
    assert make_history(5, 80) != make_history(6, 80)
    numbers = [step.number for step in make_history(5, 80)]
    assert len(set(numbers)) == len(numbers)


def test_histories_contain_every_call_with_every_answer_that_matters() -> None:
    seen: dict[str, set[str]] = {}
    for seed in range(20):
        model = ModelPlayer()
        for step in make_history(seed, 400):
            answer = model.play(step)
            assert "skipped" not in answer
            for one in answer.get("outcomes", [answer]):  # type: ignore[attr-defined]
                said = one.get("error", "replayed" if one.get("replayed") else "ok")
                seen.setdefault(type(step).__name__, set()).add(said)
    every = {kind.__name__ for kind in (*get_args(do.JournalStep), *get_args(do.StateStep), do.Reopen)}
    assert set(seen) == every
    for name, wanted in SEEN.items():
        assert wanted <= seen[name], name


def test_histories_need_no_larger_limits_than_they_say() -> None:
    used: dict[str, int] = dict.fromkeys(NEEDED, 0)
    model = ModelPlayer()
    for step in (step for seed in range(10) for step in make_history(seed, 1_500)):
        if isinstance(step, (do.AppendList, do.ReplaceList)):
            model.play(step)
            items = model.state.live.get((step.slot, SlotKind.LIST), ((), 0))[0]
            used["list_bytes_max"] = max(used["list_bytes_max"], sum(len(item.encode()) for item in items))
        sendings: tuple[do.Sending, ...] = ()
        if isinstance(step, do.Append):
            sendings = (step.sending,)
        elif isinstance(step, do.AppendMany):
            sendings = step.sendings
            used["group_batches_max"] = max(used["group_batches_max"], len(sendings))
        for sending in sendings:
            batch = sending.batch.batch()
            used["batch_events_max"] = max(used["batch_events_max"], len(batch.events))
            used["batch_bytes_max"] = max(used["batch_bytes_max"], len(encode_batch(batch)))
            used["value_bytes_max"] = max(used["value_bytes_max"], *(len(event.payload) for event in batch.events))
    assert all(used[name] <= NEEDED[name] for name in NEEDED), used
    assert used["batch_events_max"] == NEEDED["batch_events_max"]
    assert used["group_batches_max"] == NEEDED["group_batches_max"]
    assert too_small(Limits()) == ()
    assert too_small(Limits(batch_events_max=3)) == ("batch_events_max is 3 of 4",)


def test_a_history_comes_back_from_its_file(tmp_path: Path) -> None:
    steps = make_history(3, 200)
    file = tmp_path / "kept" / "history.jsonl"
    do.save_history(file, ORIGIN, steps)
    assert do.load_history(file) == (ORIGIN, steps)
    assert len(file.read_bytes().splitlines()) == len(steps) + 1


@pytest.mark.parametrize(
    ("line", "text", "said"),
    [
        (2, b'{"op":"fly","number":1}', "line 2"),
        (1, b'{"statebook_differential":9}', "line 1"),
        (1, msgspec.json.encode(msgspec.structs.replace(ORIGIN, statebook_differential=9)), "version 9"),
        (3, b'{"op":"claim"}', "line 3"),
        (2, b"", "line 2"),
    ],
)
def test_a_file_that_is_no_history_is_refused_by_line(line: int, text: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    do.save_history(file, ORIGIN, make_history(3, 10))
    lines = file.read_bytes().splitlines()
    lines[line - 1] = text
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(do.HistoryFileError, match=said):
        do.load_history(file)


def test_a_step_whose_claim_was_left_out_is_skipped() -> None:
    model = ModelPlayer()
    assert model.play(do.Heartbeat(number=2, claim=1)) == {"skipped": "step 1 got no claim"}
    model.play(do.Claim(number=1, thread=KEY, writer="w"))
    assert model.play(do.Heartbeat(number=3, claim=1)) == {"done": "heartbeat"}


# ------------------------------------------------------------------------------------------------------------ labels


def test_versions_are_free_in_size_but_not_in_order() -> None:
    ranks = Ranks()
    assert [ranks.issued(value) for value in (3, 40, 41)] == [1, 2, 3]
    assert ranks.known(40) == 2
    assert ranks.known(None) is None
    assert ranks.known(39) == "never seen"
    assert ranks.issued(40) == "issued again: 40"
    assert ranks.issued(2) == "not grown: 2 after 41"
    assert ranks.issued(True) == "not grown: True after 41"
    assert ranks.seen(41) == 3
    assert ranks.seen(50) == 4


def test_a_journal_id_that_comes_back_shows() -> None:
    ids = Incarnations()
    assert [ids.label(name) for name in ("x", "y", "x")] == [1, 2, 1]


def head(generation: int, nonce: str, first: int = 1, journal_id: str = "id") -> JournalHead:
    return JournalHead(KEY, journal_id, generation, 1, None, first, 9, None, "c", nonce)


def test_writes_of_a_head_are_counted_by_generation_and_nonce() -> None:
    watch = HeadWatch()
    assert watch.moved(head(5, "a")) == "not seen before"
    assert watch.moved(head(5, "a")) == 0
    assert watch.moved(head(7, "b")) == 2
    assert watch.moved(head(7, "c")) == "0 by the generation, but the nonce is another"
    assert watch.moved(head(8, "c")) == "1 by the generation, but the nonce is the same"
    assert watch.moved(head(6, "d")) == -2
    assert watch.moved(head(9, "e", first=3)) == TRIMMED
    assert watch.moved(head(11, "f", first=1, journal_id="next")) == 2
    assert watch.moved(head(12, "g", first=2, journal_id="next")) == TRIMMED
    assert watch.moved(head(14, "h", first=2, journal_id="third")) == TRIMMED
    watch.forget()
    assert watch.moved(head(14, "h", first=2, journal_id="third")) == "not seen before"


def test_what_a_backend_raises_is_an_answer_too() -> None:
    def fails() -> dict[str, object]:
        raise KeyError("driver")

    assert answer_of(fails, lambda _: {}) == {"error": "builtins.KeyError", "text": "'driver'"}


def test_true_is_not_one_and_an_order_of_fields_is_none() -> None:
    assert text_of({"a": True}) != text_of({"a": 1})
    assert text_of({"a": 1, "b": 2}) == text_of({"b": 2, "a": 1})


def test_a_call_that_never_comes_back_is_an_answer() -> None:
    never = threading.Event()
    caller = PatientCaller(0.2)
    assert caller.call(lambda: {"a": 1}) == {"a": 1}
    assert caller.call(lambda: {"waited": never.wait(30)}) == {"hung": "no answer within 0.2 s"}
    assert caller.call(lambda: {"a": 1}) == {"hung": "an earlier call never came back"}
    never.set()
    caller.end()
