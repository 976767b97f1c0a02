"""The ready sinks: each event is at the receiver once and in order, whatever was delivered again (CURSOR-4)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from statebook import (
    BackendUnavailable,
    InvalidConfiguration,
    JournalCorrupt,
    RecordedEvent,
    StoreClosed,
    ThreadKey,
    decode_value,
)
from statebook.threads import (
    CallableSink,
    Delivery,
    EventTableSink,
    JournalExporter,
    JsonLinesSink,
    SkippedEvent,
    ThreadTranscriptExport,
)

KEY = ThreadKey(None, "agent", "session", "main")


def event(seq: int, kind: str = "model/chunk", payload: bytes = b'{"a": 1.50}') -> RecordedEvent:
    return RecordedEvent(seq, f"e{seq}", kind, 5, payload, "run", None, False, 2)


def delivery(first: int, last: int, journal: str = "j") -> Delivery:
    return Delivery(KEY, journal, tuple(event(seq) for seq in range(first, last + 1)))


def skip(seq: int) -> SkippedEvent:
    return SkippedEvent(KEY, "j", "x", seq, f"e{seq}", "model/chunk", "why", 9)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_file_holds_one_line_an_event_whatever_comes_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert JsonLinesSink(path).deliver(delivery(1, 3)) == 3
    assert JsonLinesSink(path).deliver(delivery(2, 5)) == 5
    assert JsonLinesSink(path, durable=False).deliver(delivery(1, 4)) == 4
    assert [line["seq"] for line in lines(path)] == [1, 2, 3, 4, 5]
    assert b'"payload":{"a": 1.50}' in path.read_bytes()
    first = lines(path)[0]
    assert (first["event_id"], first["user_id"], first["thread_id"], first["run_id"]) == ("e1", None, "main", "run")
    JsonLinesSink(path).deliver(delivery(1, 2, "another incarnation"))
    assert [line["seq"] for line in lines(path)] == [1, 2, 3, 4, 5, 1, 2]


def test_what_a_crash_left_half_written_is_cut_at_every_length(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    JsonLinesSink(whole, durable=False).deliver(delivery(1, 3))
    data = whole.read_bytes()
    torn = tmp_path / "torn.jsonl"
    for length in range(len(data)):
        torn.write_bytes(data[:length])
        JsonLinesSink(torn, durable=False).deliver(delivery(1, 3))
        assert torn.read_bytes() == data


def test_lines_longer_than_a_block_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    big = tuple(event(seq, payload=b'"' + b"x" * 150_000 + b'"') for seq in (1, 2))
    for _ in range(2):
        assert JsonLinesSink(path).deliver(Delivery(KEY, "j", big)) == 2
    assert [line["seq"] for line in lines(path)] == [1, 2]


def test_a_skip_is_a_line_of_its_own_and_hides_no_event(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    sink = JsonLinesSink(path)
    sink.deliver(delivery(1, 2))
    for _ in range(2):
        sink.skipped(skip(2))
        sink.deliver(delivery(2, 2))
    sink.skipped(skip(3))
    sink.deliver(delivery(3, 4))
    assert [(line["seq"], line.get("skipped")) for line in lines(path)] == [
        (1, None), (2, None), (2, "why"), (3, "why"), (3, None), (4, None)
    ]  # fmt: skip


def test_a_file_that_is_no_export_and_one_that_is_in_use_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    with pytest.raises(JournalCorrupt):
        JsonLinesSink(path).deliver(delivery(1, 1))
    assert path.read_text() == "dear diary\n"
    other = tmp_path / "out.jsonl"
    JsonLinesSink(other).deliver(delivery(1, 1))
    changed = Delivery(KEY, "j", (RecordedEvent(1, "other", "x", 5, b"1", None, None, False, 2),))
    with pytest.raises(JournalCorrupt):
        JsonLinesSink(other).deliver(changed)
    held = os.open(other, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(BackendUnavailable):
        JsonLinesSink(other).deliver(delivery(2, 2))
    os.close(held)
    with pytest.raises(BackendUnavailable):
        JsonLinesSink(tmp_path / "no" / "such" / "dir.jsonl").deliver(delivery(1, 1))


def test_the_table_is_idempotent_by_event_id_and_can_be_asked_in_sql(tmp_path: Path) -> None:
    path = tmp_path / "report.db"
    with EventTableSink(path) as sink:
        assert sink.deliver(delivery(1, 3)) == 3
        assert sink.deliver(delivery(2, 5)) == 5
        sink.skipped(skip(6))
        sink.skipped(skip(6))
        with pytest.raises(JournalCorrupt):
            sink.deliver(Delivery(KEY, "j", (RecordedEvent(3, "other", "x", 5, b"1", None, None, True, 2),)))
    with EventTableSink(path) as sink:
        sink.deliver(delivery(5, 6))
    sink.close()
    with pytest.raises(StoreClosed):
        sink.deliver(delivery(7, 7))
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT seq, event_id, payload, user_id, required FROM event ORDER BY seq").fetchall()
    assert rows == [(seq, f"e{seq}", '{"a": 1.50}', None, 0) for seq in range(1, 7)]
    assert connection.execute("SELECT seq, exporter, reason FROM skipped").fetchall() == [(6, "x", "why")]
    connection.close()


def test_a_table_that_cannot_be_written_is_unavailable_and_works_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "report.db"
    sink = EventTableSink(path, timeout_s=0.01)
    sink.deliver(delivery(1, 1))
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BackendUnavailable):
        sink.deliver(delivery(2, 2))
    other.rollback()
    other.close()
    assert sink.deliver(delivery(2, 2)) == 2
    sink.close()
    with pytest.raises(BackendUnavailable):
        EventTableSink(tmp_path / "no" / "dir.db").deliver(delivery(1, 1))


def test_a_function_gets_each_event_and_skips_only_where_they_are_recorded() -> None:
    seen: list[Any] = []
    sink = CallableSink(seen.append)
    assert sink.deliver(delivery(1, 2)) == 2
    assert [one.seq for one in seen] == [1, 2]
    with pytest.raises(InvalidConfiguration):
        sink.skipped(skip(3))
    CallableSink(seen.append, on_skip=seen.append).skipped(skip(3))
    assert seen[2] == skip(3)


@pytest.mark.parametrize("kind", ["file", "table"])
def test_over_a_journal_with_random_failures_the_receiver_has_the_journal(
    faulty: Any, key: Any, make_batch: Any, tmp_path: Path, kind: str
) -> None:
    rng = random.Random(3)
    claim, base = faulty.claim(key, "w"), 0
    path = tmp_path / "out"
    for number in range(25):
        base = faulty.inner.append(claim, make_batch(f"b{number}", 2), base).last_seq
        sink = JsonLinesSink(path, durable=False) if kind == "file" else EventTableSink(path)
        faulty.fail("advance_cursor", *rng.choices(["unknown", "lost", OSError("died"), None], k=2))
        exporter = JournalExporter(faulty, key, "x", sink, page=rng.randint(1, 5), sleep=lambda _: None)
        with contextlib.suppress(OSError):
            exporter.drain()
        if isinstance(sink, EventTableSink):
            sink.close()
    faulty.faults.clear()
    last = JsonLinesSink(path) if kind == "file" else EventTableSink(path)
    JournalExporter(faulty, key, "x", last).drain()
    if isinstance(last, EventTableSink):
        last.close()
        connection = sqlite3.connect(path)
        ids = [row[0] for row in connection.execute("SELECT event_id FROM event ORDER BY seq")]
        connection.close()
    else:
        ids = [line["event_id"] for line in lines(path)]
    assert ids == faulty.ids(key)


class Words:
    """A reader that makes a word of letters up to a full stop."""

    def __init__(self) -> None:
        self._letters = ""
        self._since: int | None = None

    def feed(self, one: RecordedEvent) -> Sequence[str]:
        letter = str(decode_value(one.payload))
        if letter == ".":
            word, self._letters, self._since = self._letters, "", None
            return [word]
        self._since = one.seq if self._since is None else self._since
        self._letters += letter
        return []

    @property
    def open_since(self) -> int | None:
        return self._since


class WordSink:
    def __init__(self) -> None:
        self.words: list[tuple[str, int]] = []
        self.skips: list[SkippedEvent] = []
        self.fail = False

    def deliver(self, key: ThreadKey, messages: Sequence[str], as_of_seq: int) -> None:
        if self.fail:
            raise BackendUnavailable("down")
        self.words += [(word, as_of_seq) for word in messages]

    def skipped(self, skipped: SkippedEvent) -> None:
        self.skips.append(skipped)


def write(store: Any, claim: Any, base: int, text: str) -> int:
    from statebook import Batch, Event, encode_value

    events = tuple(
        Event(event_id=f"{base}-{place}", type="model/chunk", occurred_at=1, payload=encode_value(letter))
        for place, letter in enumerate(text)
    )
    last: int = store.inner.append(claim, Batch(f"b{base}", events), base).last_seq
    return last


def test_a_transcript_has_complete_messages_only_and_the_cursor_enters_none(faulty: Any, key: Any) -> None:
    claim, sink = faulty.claim(key, "w"), WordSink()

    def exporter(export: ThreadTranscriptExport[str] | None = None) -> JournalExporter:
        return JournalExporter(faulty, key, "t", export or ThreadTranscriptExport(Words, sink), page=2)

    same = exporter()
    base = write(faulty, claim, 0, "one.tw")
    assert same.drain().acked_seq == 4
    assert same.drain().acked_seq == 4
    base = write(faulty, claim, base, "o.three.f")
    sink.fail = True
    with pytest.raises(BackendUnavailable):
        same.drain()
    sink.fail = False
    assert same.drain().acked_seq == 14
    base = write(faulty, claim, base, "our.")
    assert exporter().drain().complete
    assert list(dict.fromkeys(word for word, _ in sink.words)) == ["one", "two", "three", "four"]
    assert sink.words[-1] == ("four", base)
    write(faulty, claim, base, "x.")
    again = exporter()
    assert again.skip(base + 1, "why").seq == base + 1
    assert again.drain().complete
    assert sink.skips[0].seq == base + 1
    assert sink.words[-1][0] == ""


def test_the_threads_own_messages_are_exported_as_they_complete(faulty: Any, key: Any) -> None:
    from statebook import ThreadJournal
    from statebook.threads.history import ThreadHistory, TranscriptMessages

    got: list[Any] = []

    class Sink(WordSink):
        def deliver(self, key: ThreadKey, messages: Sequence[Any], as_of_seq: int) -> None:
            got.extend(messages)

    with ThreadJournal(faulty, key) as journal:
        journal.claim("w")
        journal.append(journal.event("input/applied", {"input_id": "i", "message": {"role": "user", "content": "hi"}}))
        transcript = ThreadHistory().transcript(journal)
        JournalExporter(faulty, key, "t", ThreadTranscriptExport(TranscriptMessages, Sink())).drain()
    assert tuple(got) == transcript.messages
    assert len(got) == 1
