"""What the rules of cursors and listings work with: exporters that record, walks that notice a bad page."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from statebook.errors import CursorFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import EventPage, ThreadPage
from statebook_conformance.checkers.history import Header
from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.checkers.registry import judge
from statebook_conformance.checkers.verdict import Answer
from statebook_conformance.context import Context, RuleFailure
from statebook_conformance.exporters import Exporter, race
from statebook_conformance.mutants.forward import ForwardJournal
from statebook_conformance.mutants.gallery import open_mutant
from statebook_conformance.rules.life_listing import listed
from statebook_conformance.scenes import fill, make_batch, names, read_all, there, thread
from statebook_conformance.target import Target

KEY = thread()


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[Context]:
    target = Target(f"memory://exporters-{random.getrandbits(64):x}")
    backend = target.backend("namespace")
    with_capabilities = backend.open_journal()
    context = Context(
        target,
        "namespace",
        rule_id="CURSOR-1",
        seed=1,
        effort=1,
        out=tmp_path,
        capabilities=with_capabilities.capabilities,
    )
    yield context
    with_capabilities.close()
    assert context.close() == ()


def make_exporter(journal: ThreadJournalStore, recorder: Recorder, name: str = "p1") -> Exporter:
    return Exporter(journal, KEY, "x", recorder=recorder, name=name)


def answer(recorder: Recorder) -> Answer:
    return judge(recorder.history(Header(rule="CURSOR-1", seed=1, checker="cursor"))).answer


def test_an_exporter_delivers_what_is_pending_and_goes_on_from_what_it_acknowledged(ctx: Context) -> None:
    recorder = Recorder(clock=time.monotonic_ns)
    fill(ctx.journal, KEY, [make_batch("b", 5)])
    exporter = make_exporter(ctx.journal, recorder)
    assert exporter.deliver(10, take=2) == 2
    assert exporter.acknowledge(2)
    exporter.open()
    assert exporter.deliver(2, take=9) == 4
    assert exporter.deliver(9, take=0) is None
    assert exporter.delivered == ["b.1", "b.2", "b.3", "b.4"]
    assert exporter.ended() == 5
    assert answer(recorder) is Answer.YES


def test_a_fenced_exporter_lets_go_of_its_cursor(ctx: Context) -> None:
    recorder = Recorder(clock=time.monotonic_ns)
    fill(ctx.journal, KEY, [make_batch("b", 5)])
    first, second = make_exporter(ctx.journal, recorder), make_exporter(ctx.open_journal(), recorder, "p2")
    assert first.deliver(3, take=3) == 3
    second.open()
    assert not first.acknowledge(3)
    assert (first.cursor, first.fenced) == (None, 1)
    assert second.acknowledge(3)
    assert answer(recorder) is Answer.YES


def test_a_race_is_right_on_the_reference_and_wrong_where_nobody_is_fenced(ctx: Context) -> None:
    fill(ctx.journal, KEY, [make_batch("b", 100)])
    for journal, expected in ((ctx.journal, Answer.YES), (unfenced(ctx), Answer.NO)):
        recorder = Recorder(clock=time.monotonic_ns)
        first, second = make_exporter(journal, recorder), make_exporter(journal, recorder, "p2")
        rng = random.Random(3)
        for _ in range(20):
            race(first, rng, 1)
            race(second, rng, 1)
        assert answer(recorder) is expected


def unfenced(ctx: Context) -> ThreadJournalStore:
    journal = open_mutant(
        f"unfenced-{random.getrandbits(64):x}", "cursor-not-fenced", "memory://mutants"
    ).open_journal()
    fill(journal, KEY, [make_batch("b", 100)])
    ctx.equal(journal.head(KEY) is None, False, "whether the mutant has no journal")
    return journal


def test_fencing_is_what_makes_the_difference(ctx: Context) -> None:
    fill(ctx.journal, KEY, [make_batch("b", 3)])
    old = ctx.journal.open_cursor(KEY, "x")
    ctx.journal.open_cursor(KEY, "x")
    with pytest.raises(CursorFenced):
        ctx.journal.advance_cursor(old, 1)


class Gap(ForwardJournal):
    """Leaves the second event of each page out."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        return EventPage(page.events[:1] + page.events[2:], page.has_more, page.last_seq)


class Endless(ForwardJournal):
    """Says that there is more, for ever."""

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        return EventPage(page.events, True, page.last_seq)

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        return ThreadPage(super().list_threads(scope, after=after, limit=limit).threads, True)


class Shuffled(ForwardJournal):
    """Lists backwards."""

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        page = super().list_threads(scope, after=after, limit=limit)
        return ThreadPage(page.threads[::-1], page.has_more)


def test_reading_all_notices_gaps_and_endless_pages(ctx: Context) -> None:
    fill(ctx.journal, KEY, [make_batch("b", 3), make_batch("c", 1)])
    assert names(read_all(ctx, ctx.journal, KEY)) == [(1, "b.1"), (2, "b.2"), (3, "b.3"), (4, "c.1")]
    assert names(read_all(ctx, ctx.journal, KEY, after=3)) == [(4, "c.1")]
    with pytest.raises(RuleFailure, match="not contiguous"):
        read_all(ctx, Gap(ctx.open_journal()), KEY)
    with pytest.raises(RuleFailure, match="page is empty"):
        read_all(ctx, Endless(ctx.open_journal()), KEY)
    with pytest.raises(RuleFailure, match="no journal"):
        there(ctx, ctx.journal, thread("never"))


def test_listing_notices_endless_and_shuffled_pages(ctx: Context) -> None:
    keys = [thread(f"t{number}") for number in range(5)]
    for key in keys:
        ctx.journal.claim(key, "writer")
    assert listed(ctx, ctx.journal, ThreadScope("user"), 2) == keys
    with pytest.raises(RuleFailure, match="is empty"):
        listed(ctx, Endless(ctx.open_journal()), ThreadScope("user"), 2)
    with pytest.raises(RuleFailure, match="after"):
        listed(ctx, Shuffled(ctx.open_journal()), ThreadScope("user"), 2)


def test_a_batch_of_a_scene_has_the_size_and_the_checkpoint_that_it_was_asked_for() -> None:
    batch = make_batch("b", 3, size=100, checkpoint=True)
    assert [event.event_id for event in batch.events] == ["b.1", "b.2", "b.3"]
    assert all(len(event.payload) > 100 for event in batch.events)
    assert batch.checkpoint_offset == 2
    assert make_batch("b").checkpoint_offset is None
