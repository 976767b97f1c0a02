"""The words of a history of one journal, read once, and the final chain cut into the batches it is made of.

The key names one incarnation of one journal. Events go by their ids; a rule that wants contents compared too puts a
digest into the name it records.

| op | input | ok output | refused, output |
| --- | --- | --- | --- |
| `claim` | `{"writer": w, "replacing": "any" or "none" or epoch}` | `{"epoch": n, "last_seq": n}` | `WriterBusy` |
| `heartbeat`, `release` | `{"epoch": n}` | `null` | `WriterFenced` |
| `append` | `{"batch": b, "events": [id, ...], "base_seq": n, "epoch": n}` | receipt | `WriterFenced`: `{"committed": receipt or null}`; `HeadConflict`: `{"head": n}`; `BatchConflict`; `JournalRegressed` |
| `settle` | `{"batch": b, "base_seq": n}` | receipt or `null` | |
| `read` | `{"after": n, "limit": n}` | `{"events": [[seq, id], ...], "has_more": bool}` | `JournalRegressed`; `Trimmed` |
| `head` | `{}` | `null` or `{"last_seq": n, "epoch": n}` | |
| `trim` | `{"before": n}` | `{"first_seq": n}` | |
| `final` | `{}` | `{"first_seq": n, "events": [[seq, id], ...]}`: the whole journal, after everything | |

A receipt is `{"first": n, "last": n, "replayed": bool}`, and may name the `epoch` that the batch was committed under.
An append may carry `submission`, its place among the batches handed in through its claim. `claim` may leave out the
last seq, `head` the epoch, `final` the first seq. Any other refusal of any operation says only that it had no effect.
"""  # noqa: E501 (a table row is one line)

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from statebook_conformance.checkers.fields import (
    array,
    as_array,
    as_integer,
    as_object,
    as_text,
    integer,
    optional_flag,
    optional_integer,
    output_object,
    problem,
    required,
    text,
    unknown_operation,
)
from statebook_conformance.checkers.history import JsonValue, Operation, Outcome

FENCED = "WriterFenced"
HEAD_CONFLICT = "HeadConflict"
BATCH_CONFLICT = "BatchConflict"
REGRESSED = "JournalRegressed"
TRIMMED = "Trimmed"
BUSY = "WriterBusy"

Page: TypeAlias = tuple[tuple[int, str], ...]


class BatchReceipt(msgspec.Struct, frozen=True):
    """Where a batch is said to stand, and the operation that said so."""

    first: int
    last: int
    replayed: bool
    epoch: int | None
    operation: Operation


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One append. `receipt` is its answer, or what the fence carried (`fenced` is then true)."""

    operation: Operation
    batch: str
    events: tuple[str, ...]
    base_seq: int
    epoch: int
    submission: int | None
    receipt: BatchReceipt | None
    head: int | None

    @property
    def index(self) -> int:
        """The index of the operation."""
        return self.operation.index

    @property
    def acknowledged(self) -> bool:
        """Whether the append itself returned a receipt."""
        return self.operation.outcome is Outcome.OK

    @property
    def unknown(self) -> bool:
        """Whether nobody knows if the append took effect."""
        return self.operation.outcome is Outcome.UNKNOWN

    @property
    def refusal(self) -> str | None:
        """The name of the error that refused it."""
        return self.operation.error if self.operation.outcome is Outcome.REFUSED else None

    @property
    def in_doubt(self) -> bool:
        """Whether it may have committed the batch without saying so, as an answer was lost on the way.

        A fence that carries the receipt says that the batch is there, and not who put it there: a call that tried again
        after a lost reply may have put it there itself.
        """
        return self.unknown or (self.refusal == FENCED and self.receipt is not None)


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """One settle that answered."""

    operation: Operation
    batch: str
    base_seq: int
    receipt: BatchReceipt | None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What one reader saw: events behind `after`, and the end of the journal if the answer showed it."""

    operation: Operation
    after: int
    limit: int | None
    events: Page
    end: int | None


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, heartbeat or release.

    `epoch` is `None` for a claim that got none, `replacing` is `None` for any; `last_seq` is where a claim found the
    end of the journal.
    """

    operation: Operation
    epoch: int | None
    replacing: int | str | None = None
    last_seq: int | None = None


class JournalHistory(msgspec.Struct, frozen=True, kw_only=True):
    """All that a history says about one journal. `final` is the last full read."""

    key: str
    attempts: tuple[Attempt, ...]
    settlements: tuple[Settlement, ...]
    views: tuple[View, ...]
    claims: tuple[Holding, ...]
    heartbeats: tuple[Holding, ...]
    releases: tuple[Holding, ...]
    heads: tuple[Operation, ...]
    trims: tuple[Operation, ...]
    refused_reads: tuple[Operation, ...]
    final: View | None
    first_seq: int

    def receipts(self) -> tuple[tuple[str, BatchReceipt], ...]:
        """Give every receipt with its batch: of appends, of fences, of settlements."""
        found = [(attempt.batch, attempt.receipt) for attempt in self.attempts]
        found += [(settlement.batch, settlement.receipt) for settlement in self.settlements]
        return tuple((batch, receipt) for batch, receipt in found if receipt is not None)

    def attempts_by_batch(self) -> dict[str, tuple[Attempt, ...]]:
        """Group the appends by batch id, in call order."""
        groups: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            groups.setdefault(attempt.batch, []).append(attempt)
        return {batch: tuple(attempts) for batch, attempts in groups.items()}


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it stands in the final chain, from `first` to `last`."""

    batch: str
    events: tuple[str, ...]
    first: int
    last: int


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The final chain cut into batches; `strays` are places that belong to no whole batch, with what stands there."""

    stored: tuple[Stored, ...]
    strays: Page


def read_journal(key: str, operations: Iterable[Operation]) -> JournalHistory:
    """Read the operations on one journal.

    Args:
        key: The name of the journal in the history.
        operations: Its operations, in call order.

    Returns:
        What they say.

    Raises:
        HistoryError: An operation is not in the words above.
    """
    reader = _Reader()
    for operation in operations:
        reader.take(operation)
    return JournalHistory(
        key=key,
        attempts=tuple(reader.attempts),
        settlements=tuple(reader.settlements),
        views=tuple(reader.views),
        claims=tuple(reader.claims),
        heartbeats=tuple(reader.heartbeats),
        releases=tuple(reader.releases),
        heads=tuple(reader.heads),
        trims=tuple(reader.trims),
        refused_reads=tuple(reader.refused_reads),
        final=reader.final,
        first_seq=reader.first_seq,
    )


def cut(journal: JournalHistory) -> Chain:
    """Cut the final chain into the batches that were sent (HEAD-2: a batch is stored contiguously).

    Args:
        journal: The history of the journal, with its final read.

    Returns:
        The batches in chain order, and what is left over.
    """
    events = () if journal.final is None else journal.final.events
    contents: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for attempt in sorted(journal.attempts, key=lambda attempt: not attempt.acknowledged):
        content = (attempt.batch, attempt.events)
        known = contents.setdefault(attempt.events[0], []) if attempt.events else []
        if content not in known:
            known.append(content)
    names = tuple(name for _, name in events)
    position = _skip_trimmed_front(journal, names)
    stored: list[Stored] = []
    strays: list[tuple[int, str]] = []
    while position < len(names):
        for batch, sent in contents.get(names[position], ()):
            if names[position : position + len(sent)] == sent:
                first = events[position][0]
                stored.append(Stored(batch=batch, events=sent, first=first, last=first + len(sent) - 1))
                position += len(sent)
                break
        else:
            strays.append(events[position])
            position += 1
    return Chain(stored=tuple(stored), strays=tuple(strays))


def _skip_trimmed_front(journal: JournalHistory, names: Sequence[str]) -> int:
    """Give how many events at the front are the rest of a batch whose beginning was trimmed away."""
    if journal.first_seq <= 1 or not names:
        return 0
    for attempt in journal.attempts:
        if names[0] in attempt.events[1:]:
            rest = attempt.events[attempt.events.index(names[0]) :]
            if tuple(names[: len(rest)]) == rest:
                return len(rest)
    return 0


class _Reader:
    """Sort operations by what they are."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.settlements: list[Settlement] = []
        self.views: list[View] = []
        self.claims: list[Holding] = []
        self.heartbeats: list[Holding] = []
        self.releases: list[Holding] = []
        self.heads: list[Operation] = []
        self.trims: list[Operation] = []
        self.refused_reads: list[Operation] = []
        self.final: View | None = None
        self.first_seq = 1

    def take(self, operation: Operation) -> None:
        if operation.op == "append":
            self.attempts.append(_attempt(operation))
        elif operation.op == "settle":
            self._settle(operation)
        elif operation.op == "read":
            self._read(operation)
        elif operation.op == "head":
            self._head(operation)
        elif operation.op == "final":
            self._final(operation)
        elif operation.op == "claim":
            self.claims.append(_claim(operation))
        elif operation.op == "heartbeat":
            self.heartbeats.append(Holding(operation=operation, epoch=integer(operation, operation.input, "epoch")))
        elif operation.op == "release":
            self.releases.append(Holding(operation=operation, epoch=integer(operation, operation.input, "epoch")))
        elif operation.op == "trim":
            integer(operation, operation.input, "before")
            self.trims.append(operation)
        else:
            raise unknown_operation(operation, "journal")

    def _settle(self, operation: Operation) -> None:
        batch, base = text(operation, operation.input, "batch"), integer(operation, operation.input, "base_seq")
        if operation.outcome is Outcome.OK:
            receipt = _receipt(operation, operation.output)
            self.settlements.append(Settlement(operation=operation, batch=batch, base_seq=base, receipt=receipt))

    def _read(self, operation: Operation) -> None:
        after = integer(operation, operation.input, "after")
        limit = optional_integer(operation, operation.input, "limit")
        if operation.outcome is Outcome.REFUSED and operation.error in (REGRESSED, TRIMMED):
            self.refused_reads.append(operation)
        if operation.outcome is not Outcome.OK:
            return
        answer = output_object(operation)
        events = _page(operation, answer)
        has_more = optional_flag(operation, answer, "has_more")
        if has_more is None:
            raise problem(operation, "has_more must be true or false")
        end = None if has_more else events[-1][0] if events else after
        self.views.append(View(operation=operation, after=after, limit=limit, events=events, end=end))

    def _head(self, operation: Operation) -> None:
        if operation.outcome is not Outcome.OK:
            return
        self.heads.append(operation)
        last = 0 if operation.output is None else integer(operation, output_object(operation), "last_seq")
        self.views.append(View(operation=operation, after=last, limit=None, events=(), end=last))

    def _final(self, operation: Operation) -> None:
        if operation.outcome is not Outcome.OK:
            raise problem(operation, "the final read must have succeeded")
        answer = output_object(operation)
        events = _page(operation, answer)
        first = optional_integer(operation, answer, "first_seq")
        self.first_seq = first if first is not None else events[0][0] if events else 1
        end = events[-1][0] if events else self.first_seq - 1
        self.final = View(operation=operation, after=self.first_seq - 1, limit=None, events=events, end=end)
        self.views.append(self.final)


def _attempt(operation: Operation) -> Attempt:
    inputs = operation.input
    receipt: BatchReceipt | None = None
    head: int | None = None
    if operation.outcome is Outcome.OK:
        receipt = _receipt(operation, output_object(operation))
    elif operation.outcome is Outcome.REFUSED and operation.error == FENCED:
        receipt = _receipt(operation, required(operation, output_object(operation), "committed"))
    elif operation.outcome is Outcome.REFUSED and operation.error == HEAD_CONFLICT:
        head = integer(operation, output_object(operation), "head")
    return Attempt(
        operation=operation,
        batch=text(operation, inputs, "batch"),
        events=tuple(as_text(operation, event, "an event") for event in array(operation, inputs, "events")),
        base_seq=integer(operation, inputs, "base_seq"),
        epoch=integer(operation, inputs, "epoch"),
        submission=optional_integer(operation, inputs, "submission"),
        receipt=receipt,
        head=head,
    )


def _receipt(operation: Operation, value: JsonValue) -> BatchReceipt | None:
    if value is None:
        return None
    fields = as_object(operation, value, "the receipt")
    return BatchReceipt(
        integer(operation, fields, "first"),
        integer(operation, fields, "last"),
        optional_flag(operation, fields, "replayed") or False,
        optional_integer(operation, fields, "epoch"),
        operation,
    )


def _claim(operation: Operation) -> Holding:
    replacing = operation.input.get("replacing", "any")
    if replacing not in ("any", "none"):
        replacing = as_integer(operation, replacing, "input.replacing")
    if not isinstance(replacing, (int, str)):
        raise problem(operation, "input.replacing must be 'any', 'none' or an epoch")
    condition = None if replacing == "any" else replacing
    if operation.outcome is not Outcome.OK:
        return Holding(operation=operation, epoch=None, replacing=condition)
    answer = output_object(operation)
    return Holding(
        operation=operation,
        epoch=integer(operation, answer, "epoch"),
        replacing=condition,
        last_seq=optional_integer(operation, answer, "last_seq"),
    )


def _page(operation: Operation, answer: Mapping[str, JsonValue]) -> Page:
    events: list[tuple[int, str]] = []
    for item in array(operation, answer, "events"):
        pair = as_array(operation, item, "an event")
        if len(pair) != 2:
            raise problem(operation, "an event must be a pair of seq and id")
        events.append((as_integer(operation, pair[0], "a seq"), as_text(operation, pair[1], "an event id")))
    return tuple(events)
