"""Clients of one journal that record what they do: writers that take turns, writers that share a claim, pollers.

Used by rules in this process and by workers in others; the histories of both are merged and judged together.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal

import msgspec

from statebook.errors import (
    BatchConflict,
    HeadConflict,
    JournalRegressed,
    OutcomeUnknown,
    StatebookError,
    StoreClosed,
    Trimmed,
    WriterBusy,
    WriterFenced,
)
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import (
    ANY,
    AppendOutcome,
    Batch,
    ClaimInfo,
    Event,
    EventPage,
    Expect,
    JournalHead,
    Receipt,
    RecordedEvent,
    WriterClaim,
)
from statebook_conformance.checkers.evidence import collect
from statebook_conformance.checkers.history import (
    History,
    JsonValue,
    Operation,
    canonical,
    merge,
    operation_fields,
    parse_operation,
)
from statebook_conformance.checkers.recorder import PendingOperation, Recorder
from statebook_conformance.context import Context

END: Final = "the end"
"""The batch that ends a run: a poller that has seen it has seen everything."""

_POLLS_MAX: Final = 20_000
_RESENDS_MAX: Final = 2_000
_SWITCH_S: Final = 2e-5
_APPEND_REFUSALS: Final = (WriterFenced, HeadConflict, BatchConflict, JournalRegressed)


def _payload(event_id: str) -> bytes:
    return b'{"id":"' + event_id.encode() + b'"}'


def make(batch_id: str, count: int = 1) -> Batch:
    """A batch whose events, and their payloads, are named after it; the name must need no escaping in JSON."""
    names = [f"{batch_id}.{number}" for number in range(count)]
    return Batch(
        batch_id, tuple(Event(event_id=name, type="run/step", occurred_at=1, payload=_payload(name)) for name in names)
    )


def shown(events: Sequence[RecordedEvent]) -> list[JsonValue]:
    """What a history records of events: seq and id, with a mark where the payload is not the one that was sent."""
    pairs: list[JsonValue] = []
    for event in events:
        right = event.payload == _payload(event.event_id)
        pairs.append([event.seq, event.event_id if right else f"{event.event_id} with another payload"])
    return pairs


def receipt_fields(receipt: Receipt | None) -> JsonValue:
    """A receipt in the words of the checkers."""
    if receipt is None:
        return None
    return {
        "first": receipt.first_seq,
        "last": receipt.last_seq,
        "replayed": receipt.replayed,
        "epoch": receipt.epoch,
    }


class JournalClient:
    """One sequential client of one journal through one handle. Refusals of the contract are answers, not exceptions.

    Attributes:
        journal: The handle.
        name: The client's name: its process in the history, and its writer id.
        key: The thread.
        recorder: Where everything is recorded.
        odd: What was wrong with pages by themselves, one sentence each.
    """

    def __init__(self, journal: ThreadJournalStore, recorder: Recorder, name: str, key: ThreadKey) -> None:
        """Make a client; no two clients of one history may have one name."""
        self.journal = journal
        self.recorder = recorder
        self.name = name
        self.key = key
        self.odd: list[str] = []

    def _operation(self, op: str, inputs: dict[str, JsonValue]) -> PendingOperation:
        return self.recorder.operation(self.name, op, self.key.thread_id, inputs)

    def claim(
        self, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim | WriterBusy | StoreClosed:
        """Claim the journal."""
        condition: JsonValue = replacing.epoch if isinstance(replacing, ClaimInfo) else replacing.value
        with self._operation("claim", {"writer": self.name, "replacing": condition}) as pending:
            try:
                claim = self.journal.claim(self.key, self.name, replacing=replacing)
            except (WriterBusy, StoreClosed) as error:
                pending.refused(type(error).__name__)
                return error
            pending.ok({"epoch": claim.epoch, "last_seq": claim.last_seq})
            return claim

    def held(self) -> WriterClaim:
        """Claim the journal whoever holds it.

        Raises:
            StatebookError: It was refused, which nothing can justify.
        """
        claim = self.claim()
        if isinstance(claim, StatebookError):
            raise claim
        return claim

    def append(
        self, claim: WriterClaim, batch: Batch, base_seq: int, *, submission: int | None = None
    ) -> AppendOutcome:
        """Append a batch."""
        with self._operation("append", append_fields(claim, batch, base_seq, submission)) as pending:
            try:
                receipt = self.journal.append(claim, batch, base_seq)
            except (*_APPEND_REFUSALS, StoreClosed, OutcomeUnknown) as error:
                record_outcome(pending, error)
                return error
            pending.ok(receipt_fields(receipt))
            return receipt

    def release(self, claim: WriterClaim) -> bool:
        """Give a claim back; False where it was fenced."""
        with self._operation("release", {"epoch": claim.epoch}) as pending:
            try:
                self.journal.release(claim)
            except WriterFenced as error:
                pending.refused(type(error).__name__)
                return False
            pending.ok()
            return True

    def heartbeat(self, claim: WriterClaim) -> bool:
        """Show that the writer is alive; False where it was fenced."""
        with self._operation("heartbeat", {"epoch": claim.epoch}) as pending:
            try:
                self.journal.heartbeat(claim)
            except WriterFenced as error:
                pending.refused(type(error).__name__)
                return False
            pending.ok()
            return True

    def head(self) -> JournalHead | None:
        """Read the head."""
        with self._operation("head", {}) as pending:
            head = self.journal.head(self.key)
            pending.ok(None if head is None else {"last_seq": head.last_seq, "epoch": head.epoch})
            return head

    def read(self, after: int, limit: int) -> EventPage | Trimmed | StoreClosed:
        """Read a page."""
        with self._operation("read", {"after": after, "limit": limit}) as pending:
            try:
                page = self.journal.read_after(self.key, after, limit)
            except (Trimmed, StoreClosed) as error:
                pending.refused(type(error).__name__)
                return error
            pending.ok({"events": shown(page.events), "has_more": page.has_more})
        end = page.events[-1].seq if page.events else after
        if page.has_more != (page.last_seq > end) or page.last_seq < end:
            self.odd.append(f"a page that ends at {end} says last_seq {page.last_seq} and has_more {page.has_more}")
        return page

    def trim(self, before_seq: int) -> JournalHead:
        """Trim the journal."""
        with self._operation("trim", {"before": before_seq}) as pending:
            head = self.journal.trim(self.key, before_seq)
            pending.ok({"first_seq": head.first_seq})
            return head

    def final(self, ctx: Context) -> list[tuple[int, str]]:
        """Read everything, after everything else, for the checkers.

        Returns:
            Seq and id of all events that are there.
        """
        with self._operation("final", {}) as pending:
            head = self.journal.head(self.key)
            first = 1 if head is None else head.first_seq
            events: list[RecordedEvent] = []
            more = head is not None
            while more:
                page = self.journal.read_after(self.key, events[-1].seq if events else first - 1, 1_000)
                ctx.check(page.events or not page.has_more, "a page without events says that there is more")
                events += page.events
                more = page.has_more
            pending.ok({"first_seq": first, "events": shown(events)})
            return [(event.seq, event.event_id) for event in events]


def append_fields(claim: WriterClaim, batch: Batch, base_seq: int, submission: int | None) -> dict[str, JsonValue]:
    """The input of an append in the words of the checkers."""
    fields: dict[str, JsonValue] = {
        "batch": batch.batch_id,
        "events": [event.event_id for event in batch.events],
        "base_seq": base_seq,
        "epoch": claim.epoch,
    }
    if submission is not None:
        fields["submission"] = submission
    return fields


def record_outcome(pending: PendingOperation, outcome: AppendOutcome) -> None:
    """Record the answer of an append in the words of the checkers."""
    if isinstance(outcome, Receipt):
        pending.ok(receipt_fields(outcome))
    elif isinstance(outcome, WriterFenced):
        pending.refused("WriterFenced", {"committed": receipt_fields(outcome.committed)})
    elif isinstance(outcome, HeadConflict):
        pending.refused("HeadConflict", {"head": outcome.last_seq})
    elif isinstance(outcome, OutcomeUnknown):
        pending.unknown("OutcomeUnknown")
    else:
        pending.refused(type(outcome).__name__)


# -------------------------------------------------------------------------------------------------------- what they do


def take_turns(client: JournalClient, random_: random.Random, turns: int) -> Counter[str]:
    """Claim, append a few batches, be fenced or give back, and so on.

    Args:
        client: The writer.
        random_: Randomness.
        turns: How many claims.

    Returns:
        How often which answer came to an append. While a claim holds, nobody else moves the head: only receipts and
        `WriterFenced` can be right.
    """
    answers: Counter[str] = Counter()
    for turn in range(turns):
        claim = client.held()
        base = claim.last_seq
        for number in range(random_.randint(1, 6)):
            batch = make(f"{client.name}-{turn}-{number}", random_.choice((1, 1, 2, 3)))
            answer = client.append(claim, batch, base, submission=number)
            answers[type(answer).__name__] += 1
            if not isinstance(answer, Receipt):
                late = make(f"{client.name}-{turn}-late")
                answers[type(client.append(claim, late, base)).__name__] += 1
                break
            if random_.random() < 0.3:
                answers[type(client.append(claim, batch, base)).__name__] += 1
            base = answer.last_seq
            time.sleep(random_.choice((0, 0, 0.0002, 0.001)))
        if random_.random() < 0.2:
            client.release(claim)
        time.sleep(random_.random() * 0.003)
    return answers


def share_claim(client: JournalClient, claim: WriterClaim, random_: random.Random, appends: int) -> int:
    """Append through a claim that others use at the same time: read where the journal is, and try until it fits.

    Args:
        client: The writer.
        claim: The claim that all of them use.
        random_: Randomness.
        appends: How many batches.

    Returns:
        How many conflicts there were.

    Raises:
        StatebookError: A batch got another answer than a receipt or a conflict.
    """
    conflicts = 0
    base = claim.last_seq
    for number in range(appends):
        batch = make(f"{client.name}-{number}", random_.choice((1, 1, 2, 3)))
        for _ in range(_RESENDS_MAX):
            answer = client.append(claim, batch, base)
            if isinstance(answer, Receipt):
                base = answer.last_seq
                time.sleep(random_.random() * 0.001)
                break
            if not isinstance(answer, HeadConflict) or answer.last_seq is None:
                raise answer
            base = answer.last_seq
            conflicts += 1
            time.sleep(random_.random() * 0.001)
    return conflicts


def poll(client: JournalClient, random_: random.Random, *, timeout_s: float = 30.0) -> list[tuple[int, str]]:
    """Read behind the last seq that was seen until the end has been seen.

    Args:
        client: The reader.
        random_: Randomness.
        timeout_s: How long at most, in seconds.

    Returns:
        Seq and id of all events that were seen, in the order in which they came.
    """
    seen: list[tuple[int, str]] = []
    deadline = time.monotonic() + timeout_s
    for _ in range(_POLLS_MAX):
        page = client.read(seen[-1][0] if seen else 0, random_.choice((1, 3, 50, 1_000)))
        if isinstance(page, StatebookError):
            return seen
        seen += [(event.seq, event.event_id) for event in page.events]
        if (seen and seen[-1][1].startswith(END)) or time.monotonic() > deadline:
            return seen
        if random_.random() < 0.2:
            client.head()
        time.sleep(random_.random() * (0.0004 if page.events else 0.002))
    return seen


# ------------------------------------------------------------------------------------------------------- running them


@contextmanager
def fine_switching() -> Iterator[None]:
    """Let threads take turns far more often than usual, so that short calls overlap."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run_until_end(
    ctx: Context,
    client: JournalClient,
    writers: Sequence[Callable[[], object]],
    readers: Sequence[Callable[[], list[tuple[int, str]]]],
) -> list[list[tuple[int, str]]]:
    """Run writers and readers at once; when all writers are done, a last batch ends the readers.

    Args:
        ctx: The context.
        client: Who appends the last batch.
        writers: The writers.
        readers: The readers; they end when they have seen the last batch.

    Returns:
        What each reader saw.
    """
    done = threading.Semaphore(0)
    seen: list[list[tuple[int, str]]] = [[] for _ in readers]

    def writing(call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                call()
            finally:
                done.release()

        return run

    def reading(index: int, call: Callable[[], list[tuple[int, str]]]) -> Callable[[], None]:
        def run() -> None:
            seen[index] = call()

        return run

    def close() -> None:
        for _ in writers:
            done.acquire(timeout=40.0)
        claim = client.held()
        client.append(claim, make(END), claim.last_seq)

    with fine_switching():
        calls = [writing(call) for call in writers]
        ctx.threads([*calls, close, *(reading(index, call) for index, call in enumerate(readers))])
    return seen


def dump(recorder: Recorder) -> list[JsonValue]:
    """What a worker recorded, for the rule."""
    return [operation_fields(operation) for operation in recorder.operations()]


def undump(value: JsonValue) -> tuple[Operation, ...]:
    """What a worker recorded, as it came from the other process."""
    if not isinstance(value, list):
        return ()
    return tuple(parse_operation(canonical(fields).encode(), where="a worker's history") for fields in value)


def claim_fields(claim: WriterClaim) -> JsonValue:
    """A claim for another process."""
    fields: JsonValue = msgspec.to_builtins(claim)
    return fields


def claim_of(fields: JsonValue) -> WriterClaim:
    """A claim that came from another process."""
    return msgspec.convert(fields, WriterClaim)


def judge(ctx: Context, recorder: Recorder, others: Sequence[Sequence[Operation]] = ()) -> History:
    """Merge what was recorded here and elsewhere, count the evidence, and have it judged as a journal.

    Args:
        ctx: The context.
        recorder: What was recorded here.
        others: What was recorded in other processes.

    Returns:
        The history.
    """
    history = merge(ctx.header("journal"), [recorder.operations(), *others])
    evidence = collect(history)
    ctx.saw("overlapping operations", evidence.overlapping)
    ctx.saw("takeovers", evidence.takeovers)
    ctx.saw("fenced", evidence.fenced)
    ctx.saw("conflicts", evidence.conflicts)
    ctx.saw("replays", evidence.replays)
    ctx.saw("reads", sum(operation.op in ("read", "head") for operation in history.operations))
    ctx.judge(history)
    return history
