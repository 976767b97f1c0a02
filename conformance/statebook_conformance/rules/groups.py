"""Level 2: groups of batches of many threads, handed in by many threads at once (APPEND-4, APPEND-5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from statebook.errors import BatchConflict, HeadConflict, JournalRegressed, StatebookError, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import AppendOutcome, AppendRequest, Receipt
from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.context import Context
from statebook_conformance.journal_clients import (
    JournalClient,
    append_fields,
    fine_switching,
    judge,
    make,
    record_outcome,
)
from statebook_conformance.rule import rule
from statebook_conformance.writing import thread

_KEYS = 16


class _Group:
    """A writer of many threads: hands in groups, records each request, keeps claim and base of each thread."""

    def __init__(self, ctx: Context, journal: ThreadJournalStore, recorder: Recorder, name: str) -> None:
        self.ctx = ctx
        self.journal = journal
        self.recorder = recorder
        self.name = name
        self.keys = [thread(f"{name}-{number}") for number in range(_KEYS)]
        self.claims = {key: JournalClient(journal, recorder, name, key).held() for key in self.keys}
        self.old = {key: self.claims[key] for key in self.keys[:2]}
        for key in self.old:
            self.claims[key] = JournalClient(journal, recorder, name, key).held()
        self.bases = dict.fromkeys(self.keys, 0)
        self.batches: dict[ThreadKey, list[str]] = {key: [] for key in self.keys}

    def hand_in(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        """Append all requests in one call, and record each as an append of a client of its own."""
        pending = [
            self.recorder.operation(
                f"{self.name}/{place}",
                "append",
                request.claim.key.thread_id,
                append_fields(request.claim, request.batch, request.base_seq, None),
            )
            for place, request in enumerate(requests)
        ]
        try:
            outcomes = self.journal.append_many(requests)
        except StatebookError as error:
            for item in pending:
                item.unknown(type(error).__name__)
            raise
        self.ctx.equal(len(outcomes), len(requests), "how many answers a group got")
        for item, outcome in zip(pending, outcomes, strict=True):
            record_outcome(item, outcome)
        return outcomes

    def good(self, key: ThreadKey, turn: int, base: int, *, place: int = 0) -> AppendRequest:
        """A request that is right."""
        return AppendRequest(self.claims[key], make(f"{self.name}-{turn}-{place}", 1 + turn % 2), base)

    def took(self, key: ThreadKey, outcome: AppendOutcome, what: str) -> None:
        """Check that a request was committed, and keep the new base."""
        if not isinstance(outcome, Receipt):
            self.ctx.fail(f"{what}: expected a receipt, got {outcome!r}")
        self.ctx.check(not outcome.replayed, f"{what}: a new batch was called a replay")
        self.ctx.equal(outcome.first_seq, self.bases[key] + 1, f"{what}: the first seq")
        self.bases[key] = outcome.last_seq
        self.batches[key].append(outcome.batch_id)


def _refused_requests(group: _Group, turn: int) -> list[tuple[AppendRequest, type[StatebookError] | None]]:
    """Requests of the first five threads that must be refused, or be replays, and with what."""
    fenced, mixed, stale, ahead, again = group.keys[:5]
    last = group.batches[again][-1]
    number = int(last.split("-")[1])
    resent = AppendRequest(group.claims[again], make(last, 1 + number % 2), 0)
    other = AppendRequest(group.claims[mixed], make(group.batches[mixed][-1], 5), group.bases[mixed])
    return [
        (AppendRequest(group.old[fenced], make(f"fenced-{turn}"), group.bases[fenced]), WriterFenced),
        (other, BatchConflict),
        (group.good(stale, turn, group.bases[stale] - 1), HeadConflict),
        (group.good(ahead, turn, group.bases[ahead] + 7), JournalRegressed),
        (resent, None),
    ]


def _round(group: _Group, turn: int) -> None:
    """A group with a batch for each of the other threads, and refused ones in the middle."""
    bad = _refused_requests(group, turn)
    good = [(group.good(key, turn, group.bases[key]), key) for key in group.keys[5:]]
    half = len(good) // 2
    requests = [request for request, _ in good[:half]] + [request for request, _ in bad]
    requests += [request for request, _ in good[half:]]
    outcomes = group.hand_in(requests)
    for (_, expected), outcome in zip(bad, outcomes[half : half + len(bad)], strict=True):
        if expected is None:
            replayed = isinstance(outcome, Receipt) and outcome.replayed
            group.ctx.check(replayed, f"a batch that was sent again in a group was answered {outcome!r}")
            group.ctx.saw("replayed members")
        else:
            group.ctx.check(type(outcome) is expected, f"expected {expected.__name__} in a group, got {outcome!r}")
            group.ctx.saw("refused members")
    for (_, key), outcome in zip(good, outcomes[:half] + outcomes[half + len(bad) :], strict=True):
        group.took(key, outcome, "a right request beside refused ones")


@rule(
    "APPEND-5.groups-at-once",
    level=2,
    hint="one member's error ends the transaction of the group, or the answers of a group are mixed up with another's",
    kills=("refused-spoils-group", "group-answers-mixed-up"),
    floor={"refused members": 100, "replayed members": 30},
)
def groups_at_once(ctx: Context) -> None:
    """In groups handed in by many threads at once each member keeps its own answer, the same as one by one.

    Sixteen threads, each with sixteen journals, on one handle and on several. In the middle of each group stand members
    that are fenced, in conflict, stale, ahead, and sent again; all others are committed.
    """
    recorder = ctx.recorder()
    stores = [ctx.journal, ctx.journal, ctx.journal, ctx.open_journal()]

    def run(number: int) -> _Group:
        group = _Group(ctx, stores[number % 4], recorder, f"g{number}")
        first = group.hand_in([group.good(key, 0, 0) for key in group.keys])
        for key, outcome in zip(group.keys, first, strict=True):
            group.took(key, outcome, "the first batch of a journal in a group")
        for turn in range(1, 2 + 2 * ctx.effort):
            _round(group, turn)
        return group

    with fine_switching():
        groups = ctx.threads([partial(run, number) for number in range(16)])
    for group in groups:
        for key in group.keys:
            client = JournalClient(ctx.journal, recorder, "reader", key)
            events = client.final(ctx)
            ctx.equal(len(events), group.bases[key], f"how many events {key.thread_id} has")
    judge(ctx, recorder)


@rule(
    "APPEND-4.behind-a-failure",
    level=2,
    hint="a group skips its failed member, and the next ones of the same thread are put where they fit",
    kills=("group-goes-on",),
    floor={"held back": 40},
)
def behind_a_failure(ctx: Context) -> None:
    """Batches of one claim commit in the order handed in; behind one that failed the later ones do not commit.

    Eight threads at once, each with groups of eight batches of one journal, of which the fourth fails: those before it
    are committed in order, none behind it is. Handed in again, they go on from there.
    """
    recorder = ctx.recorder()
    stores = [ctx.journal, ctx.journal, ctx.open_journal()]

    def run(number: int) -> None:
        group = _Group(ctx, stores[number % 3], recorder, f"o{number}")
        key = group.keys[0]
        older = group.old[key]
        for turn in range(4 * ctx.effort):
            requests: list[AppendRequest] = []
            base = group.bases[key]
            for place in range(8):
                request = group.good(key, turn, base, place=place)
                base += len(request.batch.events)
                requests.append(msgspec.structs.replace(request, claim=older) if place == 3 else request)
            outcomes = group.hand_in(requests)
            for outcome in outcomes[:3]:
                group.took(key, outcome, "a batch before one that fails")
            ctx.check(isinstance(outcomes[3], WriterFenced), f"a batch of an older claim was answered {outcomes[3]!r}")
            for outcome in outcomes[4:]:
                ctx.check(
                    isinstance(outcome, JournalRegressed), f"a batch behind one that failed was answered {outcome!r}"
                )
                ctx.saw("held back")
            rest = [msgspec.structs.replace(request, claim=group.claims[key]) for request in requests[3:]]
            for outcome in group.hand_in(rest):
                group.took(key, outcome, "a batch that was handed in again")

    with fine_switching():
        ctx.threads([partial(run, number) for number in range(8)])
    for number in range(8):
        client = JournalClient(ctx.journal, recorder, "reader", thread(f"o{number}-0"))
        events = [event for _, event in client.final(ctx)]
        expected = [
            f"o{number}-{turn}-{place}.{item}"
            for turn in range(4 * ctx.effort)
            for place in range(8)
            for item in range(1 + turn % 2)
        ]
        ctx.equal(events, expected, f"the events of {client.key.thread_id}")
    judge(ctx, recorder)
