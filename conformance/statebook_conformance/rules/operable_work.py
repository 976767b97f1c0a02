"""Level 4: what a call costs does not depend on how long the journal is: counted, never timed (HEAD-5, READ-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from statebook.capabilities import Feature
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import AppendRequest, Batch, Event, Receipt, WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch, thread
from statebook_conformance.work import Allowance, Meter, Work

SHORT: Final = 70
"""How many batches the short journal has: more than the window of 64 that every backend keeps (APPEND-1)."""

LONG: Final = 1_000
"""How many the long one has."""

EACH: Final = 100
"""How many events each batch has: 7,000 and 100,000 events."""

_GROUP: Final = 20
_APPENDS: Final = 12
_TRIMS: Final = 3

FACTOR: Final = 1.5
"""By how much the work may be more on the long journal."""

MORE: Final = Work(
    calls=400,
    memory=384 * 1024,
    reads=8,
    writes=8,
    bytes_read=80 * 1024,
    bytes_written=80 * 1024,
    round_trips=2,
    bytes_sent=80 * 1024,
    bytes_received=80 * 1024,
    connections=4,
    syncs=2,
)
"""What may come to that for each call: one more level of an index, a tail that happens to be fuller (HEAD-5)."""


class _Journal(msgspec.Struct, frozen=True):
    """One of the journals.

    Attributes:
        place: The context of its namespace.
        key: Its thread.
        last_seq: Its last seq.
    """

    place: Context
    key: ThreadKey
    last_seq: int


def _batches(count: int) -> Iterator[Batch]:
    """Batches that are equally long in both journals; the last one begins with a checkpoint."""
    for number in range(count):
        first = number * EACH
        yield Batch(
            f"batch-{number:06}",
            tuple(
                Event(
                    event_id=f"event-{seq:08}",
                    type="state/checkpoint" if seq == (count - 1) * EACH else "run/step",
                    occurred_at=1_700_000_000_000,
                    payload=b'{"step":"%08d"}' % seq,
                )
                for seq in range(first, first + EACH)
            ),
        )


def _filled(place: Context, name: str, count: int) -> _Journal:
    journal, key = place.open_journal(), thread(name)
    claim = journal.claim(key, "writer")
    grouped = place.claims(Feature.GROUP_COMMIT)
    waiting: list[AppendRequest] = []
    for number, batch in enumerate(_batches(count)):
        if not grouped:
            journal.append(claim, batch, number * EACH)
            continue
        waiting.append(AppendRequest(claim, batch, number * EACH))
        if len(waiting) == _GROUP or number == count - 1:
            for outcome in journal.append_many(waiting):
                if not isinstance(outcome, Receipt):
                    raise outcome
            waiting = []
    journal.close()
    return _Journal(place, key, count * EACH)


_Measured = Mapping[str, tuple[Work, int]]
"""For each step its work, and how many calls it is."""


def _compare(ctx: Context, steps: Callable[[Context, Meter, _Journal], _Measured]) -> None:
    """Measure the same steps on both journals, and hold the long one's work against the short one's.

    They are in namespaces of their own, so that opening one of them does not meet the other.
    """
    apart = ctx.other_namespace()
    warm, short, long = _filled(apart, "warm", 2), _filled(apart, "short", SHORT), _filled(ctx, "long", LONG)
    ctx.saw("events", short.last_seq + long.last_seq)
    with Meter() as meter:
        steps(ctx, meter, warm)
        on_short, on_long = steps(ctx, meter, short), steps(ctx, meter, long)
    for name, (work, calls) in on_long.items():
        allowed = Allowance(factor=FACTOR, more=MORE.times(calls))
        beyond = allowed.exceeded(on_short[name][0], work)
        ctx.check(not beyond, f"{name}, {LONG * EACH:,} events against {SHORT * EACH:,}: {'; '.join(beyond)}")
        counts = ("calls of Python", work.calls), ("round trips", work.round_trips), ("bytes", work.bytes_moved)
        for what, count in counts:
            if count:
                ctx.saw(f"{name}: {what}", count)


# -------------------------------------------------------------------------------------------------------------- writing


def _writing(ctx: Context, meter: Meter, on: _Journal) -> _Measured:
    found: dict[str, tuple[Work, int]] = {}

    def open_and_claim() -> tuple[ThreadJournalStore, WriterClaim]:
        fresh = on.place.open_journal()
        return fresh, fresh.claim(on.key, "next")

    (journal, claim), work = meter.measure(open_and_claim)
    found["open and claim"] = work, 1
    ctx.equal(claim.last_seq, on.last_seq, "the last seq that a claim finds")
    ends = [on.last_seq + number * 10 for number in range(_APPENDS)]
    batches = [make_batch(f"more-{number:02}", 10, size=600) for number in range(_APPENDS)]
    appends = [partial(journal.append, claim, batch, end) for batch, end in zip(batches, ends, strict=True)]
    found["append"] = meter.work_of(*appends), _APPENDS
    found["settle"] = meter.work_of(partial(journal.settle, claim, "never sent", ends[-1] + 10)), 1
    trims = [partial(journal.trim, on.key, number * EACH + 1) for number in range(1, _TRIMS + 1)]
    found["trim"] = meter.work_of(*trims), _TRIMS
    journal.close()
    return found


@rule(
    "HEAD-5.flat-writes",
    level=4,
    hint="a write reads, copies or rewrites what is there already: a file, a list, all ids for deduplication",
    kills=(
        "append-cost-grows",
        "journal-in-one-file",
        "journal-in-one-value",
        "claim-reads-all",
        "open-reads-all",
        "settle-searches-all",
        "trim-walks-over-all",
    ),
    floor={"events": (SHORT + LONG) * EACH},
    timeout_s=120.0,
)
def flat_writes(ctx: Context) -> None:
    """To open and claim, to append, to settle and to trim cost the same behind 100,000 events as behind 7,000.

    Counted are calls of Python functions, memory, system calls and bytes of files, round trips and bytes of
    connections. None may be more than half as much again, and for each call one level of an index: 400 calls, two round
    trips, 80 KiB, 384 KiB of memory. Both journals are longer than the window of 64 batches that is kept for retries.

    Cases: 41.
    """
    _compare(ctx, _writing)


# -------------------------------------------------------------------------------------------------------------- reading


def _reading(ctx: Context, meter: Meter, on: _Journal) -> _Measured:
    def fresh(read: Callable[[ThreadJournalStore], int]) -> Callable[[], object]:
        def call() -> None:
            journal = on.place.backend.open_journal()
            ctx.equal(read(journal), EACH, "how many events were read")
            journal.close()

        return call

    def at(seq: int) -> Callable[[ThreadJournalStore], int]:
        return lambda journal: len(journal.read_after(on.key, seq, EACH).events)

    def resume(journal: ThreadJournalStore) -> int:
        checkpoint = journal.claim(on.key, "resumed").checkpoint_seq
        return len(journal.read_after(on.key, (checkpoint or 0) - 1).events)

    found = {
        "read 100 at the end": (meter.work_of(fresh(at(on.last_seq - EACH))), 1),
        "read 100 in the middle": (meter.work_of(fresh(at(on.last_seq // 2 - EACH // 2))), 1),
        "read 100 at the beginning": (meter.work_of(fresh(at(0))), 1),
        "resume 100 behind a checkpoint": (meter.work_of(fresh(resume)), 1),
    }
    journal = on.place.open_journal()
    journal.read_after(on.key, 0, 1)
    found["read 100 with an open handle"] = meter.work_of(partial(journal.read_after, on.key, on.last_seq - EACH)), 1
    found["head"] = meter.work_of(partial(journal.head, on.key)), 1
    journal.close()
    return found


@rule(
    "READ-4.flat-reads",
    level=4,
    hint="a read begins at the start of the journal, or of a large file, and drops what nobody asked for",
    kills=("tail-reads-all", "claim-reads-all", "open-reads-all", "page-copies-all"),
    floor={"events": (SHORT + LONG) * EACH},
    timeout_s=120.0,
)
def flat_reads(ctx: Context) -> None:
    """To read 100 events, wherever they stand, and to resume at a checkpoint cost the same in a journal of 100,000.

    By fresh handles: 100 events at the end, in the middle, at the beginning; a claim and what follows the checkpoint
    that it names; and by an open one. Counted and held against 7,000 events as in HEAD-5.flat-writes.
    """
    _compare(ctx, _reading)
