"""How the facade makes a blocking call: in a bounded pool, shielded, with a deadline where one is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError
from statebook.lanes.pool import WorkPool

T = TypeVar("T")


async def outcome_of(future: Future[T], deadline_s: float | None, late: Callable[[], StatebookError]) -> T:
    """Wait for a future that other threads fulfil, without blocking the event loop.

    Guarantees ERR-4 and LANE-3: cancelling this waiter cancels nothing of what was accepted.

    Args:
        future: The future; it is running already, so that it cannot be cancelled.
        deadline_s: How long to wait, in seconds, or None.
        late: Makes the error where the deadline passes first.

    Returns:
        Its result.

    Raises:
        StatebookError: What `late` makes, where the deadline passed first.
    """
    waiter = asyncio.wrap_future(future)
    if deadline_s is None:
        return await waiter
    await asyncio.wait((waiter,), timeout=deadline_s)
    if waiter.done():
        return waiter.result()
    # The late answer has nobody to go to: take it, so that it is not reported as never retrieved.
    waiter.add_done_callback(lambda late_answer: late_answer.cancelled() or late_answer.exception())
    raise late()


class Caller:
    """Makes blocking calls of one store in bounded pools, for one deadline.

    Attributes:
        deadline_s: How long a call may take from its submission, in seconds, or None.
    """

    def __init__(self, deadline_s: float | None) -> None:
        """Take a deadline.

        Raises:
            ValueError: It is not positive.
        """
        if deadline_s is not None and deadline_s <= 0:
            raise ValueError("deadline_s must be positive, or None")
        self.deadline_s = deadline_s

    async def read(self, pool: WorkPool, call: Callable[[], T]) -> T:
        """Make a call that changes nothing. Past the deadline it is `BackendUnavailable`."""
        return await outcome_of(pool.submit(call), self.deadline_s, self._no_answer)

    async def write(
        self, pool: WorkPool, call: Callable[[], T], *, batch_id: str | None = None, base_seq: int | None = None
    ) -> T:
        """Make a call that changes something. Past the deadline its outcome is unknown (ERR-2)."""

        def late() -> OutcomeUnknown:
            return OutcomeUnknown(
                f"no answer within {self.deadline_s} s; the call goes on and may be applied",
                batch_id=batch_id,
                base_seq=base_seq,
            )

        return await outcome_of(pool.submit(call), self.deadline_s, late)

    def _no_answer(self) -> BackendUnavailable:
        return BackendUnavailable(f"no answer within {self.deadline_s} s")
