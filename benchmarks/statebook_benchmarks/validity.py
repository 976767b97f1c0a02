"""Was everything that was acknowledged stored, once and in order? A trial where it was not is INVALID."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final

import msgspec

from statebook import RecordedEvent, ThreadJournalStore, ThreadKey
from statebook.model import PAGE_MAX

EXAMPLES_MAX: Final = 3
"""How many ids a finding names."""


class Verdict(Enum):
    """What a check came to."""

    VALID = "valid"
    INVALID = "INVALID"


class Finding(msgspec.Struct, frozen=True):
    """One thing that makes a trial INVALID.

    Attributes:
        what: `loss`, `duplication`, `order`, `gap`, `unknown event` or `damage`.
        thread: The thread's name.
        count: How many events are concerned.
        detail: One sentence with examples.
    """

    what: str
    thread: str
    count: int
    detail: str


def check_journal(
    store: ThreadJournalStore,
    key: ThreadKey,
    acknowledged: Sequence[str],
    unknown: Iterable[str] = (),
) -> list[Finding]:
    """Read a journal back, and hold it against what was acknowledged.

    Args:
        store: The store.
        key: The thread.
        acknowledged: The ids of the events that were acknowledged, in the order of their commits.
        unknown: Ids whose outcome stayed unknown: they may be there or not.

    Returns:
        What is wrong; nothing where all is well.
    """
    head = store.head(key)
    last_seq = 0 if head is None else head.last_seq
    return compare(key.thread_id, tuple(_events(store, key)), last_seq, acknowledged, frozenset(unknown))


def _events(store: ThreadJournalStore, key: ThreadKey) -> Iterator[RecordedEvent]:
    seq = 0
    while True:
        page = store.read_after(key, seq, PAGE_MAX)
        yield from page.events
        if not page.has_more or not page.events:
            return
        seq = page.events[-1].seq


def compare(
    thread: str,
    events: Sequence[RecordedEvent],
    last_seq: int,
    acknowledged: Sequence[str],
    unknown: frozenset[str] = frozenset(),
) -> list[Finding]:
    """Hold the events of a journal against what was acknowledged. Pure.

    Args:
        thread: The thread's name, for the findings.
        events: What the journal gave, in its order.
        last_seq: The last seq of its head.
        acknowledged: The ids of the events that were acknowledged, in the order of their commits.
        unknown: Ids whose outcome stayed unknown.

    Returns:
        What is wrong.
    """
    found = Counter(event.event_id for event in events)
    expected = frozenset(acknowledged)
    findings = []
    lost = [event_id for event_id in acknowledged if event_id not in found]
    twice = [event_id for event_id, times in found.items() if times > 1]
    strange = [event_id for event_id in found if event_id not in expected and event_id not in unknown]
    for what, ids, sentence in (
        ("loss", lost, "acknowledged, and not in the journal"),
        ("duplication", twice, "in the journal more than once"),
        ("unknown event", strange, "in the journal, and never sent"),
    ):
        if ids:
            findings.append(Finding(what, thread, len(ids), f"{sentence}: {', '.join(ids[:EXAMPLES_MAX])}"))
    gaps = [event.seq for place, event in enumerate(events, 1) if event.seq != place]
    if gaps or last_seq != len(events):
        where = f"from seq {gaps[0]}" if gaps else f"{len(events)} events, but the head says {last_seq}"
        findings.append(Finding("gap", thread, max(1, len(gaps)), f"seqs are not 1 to the last one: {where}"))
    if not findings:
        there = [event.event_id for event in events if event.event_id in expected]
        moved = sum(1 for given, stored in zip(acknowledged, there, strict=True) if given != stored)
        if moved:
            findings.append(Finding("order", thread, moved, "events do not stand in the order of their commits"))
    return findings
