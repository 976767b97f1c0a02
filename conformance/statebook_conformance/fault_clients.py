"""Clients of one journal under faults that record what they were told: checkers judge it, and anybody can replay it.

A writer sends each batch until its outcome is known: what was refused is sent again, what is unknown is sent again or
settled. Nothing else about it is patient, so each answer is one operation of the history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import AppendOutcome, Batch, Receipt, WriterClaim
from statebook_conformance.checkers.history import merge
from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.context import Context, RuleFailure
from statebook_conformance.journal_clients import JournalClient, append_fields, receipt_fields, record_outcome

_PAUSE_S: Final = 0.02


class FaultyClient(JournalClient):
    """A client whose calls may meet faults: outcomes of all kinds are answers."""

    def append(
        self, claim: WriterClaim, batch: Batch, base_seq: int, *, submission: int | None = None
    ) -> AppendOutcome:
        """Append a batch; every error of the contract is an answer."""
        with self._operation("append", append_fields(claim, batch, base_seq, submission)) as pending:
            try:
                receipt = self.journal.append(claim, batch, base_seq)
            except StatebookError as error:
                record_outcome(pending, error)
                return error
            pending.ok(receipt_fields(receipt))
            return receipt

    def settle(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt | StatebookError | None:
        """Settle a batch; every error of the contract is an answer."""
        with self._operation("settle", {"batch": batch.batch_id, "base_seq": base_seq}) as pending:
            try:
                receipt = self.journal.settle(claim, batch.batch_id, base_seq)
            except OutcomeUnknown as error:
                pending.unknown(type(error).__name__)
                return error
            except StatebookError as error:
                pending.refused(type(error).__name__)
                return error
            pending.ok(receipt_fields(receipt))
            return receipt


class FaultyWriter:
    """The one writer of a thread, who knows where the journal must stand.

    Attributes:
        client: Its client.
        key: The thread.
        acked: Seq and id of each event that was acknowledged, in order.
    """

    def __init__(self, ctx: Context, recorder: Recorder, key: ThreadKey, *, patience_s: float) -> None:
        """Open a handle and claim the journal; faults come later.

        Args:
            ctx: The rule's context.
            recorder: Where everything is recorded.
            key: The thread.
            patience_s: For how long a batch is sent again, in seconds.
        """
        self.ctx, self.key = ctx, key
        self.client = FaultyClient(ctx.open_journal(), recorder, f"writer of {key.thread_id}", key)
        self.acked: list[tuple[int, str]] = []
        self._patience_s = patience_s
        self._claim = self.client.held()

    @property
    def journal(self) -> ThreadJournalStore:
        """Its handle."""
        return self.client.journal

    def send(self, batch: Batch) -> None:
        """Send a batch until its outcome is known; settle every other time that it is not.

        Raises:
            RuleFailure: It is not known in time, or is none that the contract has for a lone writer.
        """
        base, deadline, unknown = len(self.acked), time.monotonic() + self._patience_s, 0
        while time.monotonic() < deadline:
            answer = self.client.append(self._claim, batch, base)
            if isinstance(answer, Receipt):
                self.ctx.equal(answer.last_seq, base + len(batch.events), f"the receipt of {batch.batch_id}")
                self.acked += [(base + at, event.event_id) for at, event in enumerate(batch.events, 1)]
                return
            if isinstance(answer, OutcomeUnknown):
                self.ctx.saw("unknown")
                unknown += 1
                if unknown % 2 == 0:
                    self._settle(batch, base)
            elif isinstance(answer, BackendUnavailable):
                self.ctx.saw("refused")
                time.sleep(_PAUSE_S)
            else:
                self.ctx.fail(f"{batch.batch_id} of a lone writer: {type(answer).__name__}: {answer}")
        self.ctx.fail(f"batch {batch.batch_id} has no outcome after {self._patience_s:g} s")

    def _settle(self, batch: Batch, base: int) -> None:
        answer = self.client.settle(self._claim, batch, base)
        if isinstance(answer, BackendUnavailable | OutcomeUnknown):
            return
        if isinstance(answer, StatebookError):
            self.ctx.fail(f"settle of a lone writer: {type(answer).__name__}: {answer}")
        self.ctx.saw("settled")
        if answer is not None:
            self.ctx.equal(answer.first_seq, base + 1, f"where settle finds {batch.batch_id}")

    def final(self, journal: ThreadJournalStore) -> None:
        """Read the journal to its end through another handle, and hold it against what was acknowledged.

        Raises:
            RuleFailure: It is not the same.
        """
        reader = JournalClient(journal, self.client.recorder, f"reader of {self.key.thread_id}", self.key)
        self.ctx.equal(reader.final(self.ctx), self.acked, f"events of {self.key.thread_id}, against the receipts")
        self.ctx.equal(journal.verify(self.key, deep=True).findings, (), f"findings in {self.key.thread_id}")


@contextmanager
def kept(ctx: Context, recorder: Recorder) -> Iterator[None]:
    """Keep the history of what runs inside where it fails before it can be judged."""
    try:
        yield
    except RuleFailure as failure:
        raise RuleFailure(f"{failure}{ctx.keep(merge(ctx.header('journal'), [recorder.operations()]))}") from failure


def settle_accounts(writers: Sequence[FaultyWriter], journal: ThreadJournalStore, judge: Callable[[], object]) -> None:
    """Hold each journal against its writer's receipts, and have the history judged, whichever of them fails first.

    Args:
        writers: The writers.
        journal: A fresh handle.
        judge: Has the whole history judged, which keeps it where it is not as it must be.

    Raises:
        RuleFailure: Something is lost, doubled, torn or out of order.
    """
    failed: RuleFailure | None = None
    for writer in writers:
        try:
            writer.final(journal)
        except RuleFailure as failure:
            failed = failed or failure
    judge()
    if failed is not None:
        raise failed
