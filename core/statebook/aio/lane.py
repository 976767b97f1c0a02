"""AsyncCommitLane: a commit lane for asyncio."""

from __future__ import annotations

from typing import Self

from statebook.aio.calls import outcome_of
from statebook.errors import OutcomeUnknown, StatebookError
from statebook.lanes.commit import CommitLane
from statebook.lanes.figures import LaneFigures
from statebook.model import Batch, Receipt, WriterClaim


class AsyncCommitLane:
    """A `CommitLane`, from asyncio.

    Guarantees LANE-1: a full lane is `Overloaded` at once. LANE-3: cancelling a waiter cancels no commit, and the
    others get their receipts.
    """

    def __init__(self, lane: CommitLane, *, deadline_s: float | None = None) -> None:
        """Make a facade.

        Args:
            lane: The lane.
            deadline_s: How long a call waits for its commit, in seconds, or None.

        Raises:
            ValueError: The deadline is not positive.
        """
        if deadline_s is not None and deadline_s <= 0:
            raise ValueError("deadline_s must be positive, or None")
        self._lane = lane
        self._deadline_s = deadline_s

    @property
    def claim(self) -> WriterClaim:
        """As `CommitLane.claim`."""
        return self._lane.claim

    @property
    def committed_seq(self) -> int:
        """As `CommitLane.committed_seq`."""
        return self._lane.committed_seq

    @property
    def error(self) -> StatebookError | None:
        """As `CommitLane.error`."""
        return self._lane.error

    def within(self, deadline_s: float | None) -> Self:
        """The same lane with another deadline.

        Args:
            deadline_s: How long a call waits for its commit, in seconds, or None.

        Returns:
            Another facade of the same lane.

        Raises:
            ValueError: The deadline is not positive.
        """
        return type(self)(self._lane, deadline_s=deadline_s)

    async def submit(self, batch: Batch) -> Receipt:
        """Hand in a batch and wait for its commit; see `CommitLane.submit`.

        Args:
            batch: The batch.

        Returns:
            Its receipt.

        Raises:
            Overloaded: The queue is full; nothing was accepted.
            LimitExceeded: The batch is too large; nothing was accepted.
            WriterFenced: The lane was closed by an error, or the claim is over.
            OutcomeUnknown: The deadline passed, and the commit goes on; or the lane could not settle it.
            StatebookError: As `ThreadJournalStore.append`.
        """
        return await outcome_of(self._lane.submit(batch), self._deadline_s, lambda: self._late(batch.batch_id))

    async def flush(self) -> Receipt | None:
        """Wait for everything handed in before this call; see `CommitLane.flush`.

        Returns:
            The last receipt; None where nothing was ever handed in.

        Raises:
            OutcomeUnknown: The deadline passed, and the commits go on.
            StatebookError: The error of the last batch of the prefix.
        """
        return await outcome_of(self._lane.flush(), self._deadline_s, lambda: self._late(None))

    def _late(self, batch_id: str | None) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"no answer within {self._deadline_s} s; the lane goes on with the commit",
            batch_id=batch_id,
            key=self._lane.claim.key.name,
        )

    def figures(self) -> LaneFigures:
        """As `CommitLane.figures`."""
        return self._lane.figures()

    def close(self) -> None:
        """As `CommitLane.close`."""
        self._lane.close()
