"""How the facade makes a blocking call: in a bounded pool, shielded, with a deadline where one is wanted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, ref

from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError
from statebook.lanes.pool import WorkPool

T = TypeVar("T")


class _Mailbox:
    """Answers on their way from other threads into one event loop, which is woken once for those that come together.

    A group commit has many answers at once. To wake the loop for each is a system call for each, at which the threads
    take the interpreter's lock from each other.
    """

    __slots__ = ("__weakref__", "_answers", "_loop", "_waking")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # its box must not keep a loop alive
        self._answers: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._waking = False

    def post(self, waiter: asyncio.Future[T], answer: Future[T]) -> None:
        """Have a waiter take an answer that is there; from any thread."""
        self._answers.append((waiter, answer))
        # Two that come at once may both wake the loop, which is harmless. None is forgotten: it was put in before this
        # look, and the flag goes down before the box is emptied.
        if not self._waking:
            self._waking = True
            loop = self._loop()
            try:
                if loop is not None:
                    loop.call_soon_threadsafe(self._deliver)
                    return
            except RuntimeError:
                pass
            self._answers.clear()  # the loop is gone or closed: nobody waits there any more

    def _deliver(self) -> None:
        self._waking = False
        answers = self._answers
        for _ in range(len(answers)):  # what comes meanwhile has woken the loop again, which others share
            waiter, answer = answers.popleft()
            if waiter.done():
                continue  # it was cancelled, or its deadline has passed
            error = answer.exception()
            if error is None:
                waiter.set_result(answer.result())
            else:
                waiter.set_exception(error)


_MAILBOXES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Mailbox]]] = WeakKeyDictionary()
"""The mailbox of each event loop: what asyncio would keep in the loop.

It lives as long as somebody waits: what is under way holds it. Held from here, answers that a loop has not taken before
it ended would keep that loop for ever.
"""


def _mailbox(loop: asyncio.AbstractEventLoop) -> _Mailbox:
    known = _MAILBOXES.get(loop)
    box = None if known is None else known()
    if box is None:
        box = _Mailbox(loop)
        _MAILBOXES[loop] = ref(box)
    return box


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
    loop = asyncio.get_running_loop()
    box = _mailbox(loop)
    waiter: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(lambda answer: box.post(waiter, answer))
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
