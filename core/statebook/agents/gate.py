"""The gate of sessions, sans waiting: one call a session at a time, in the order in which they came.

It gives out futures. `AgentSessions` awaits them, `BlockingAgentSessions` waits for them.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from threading import Lock

from statebook.errors import Overloaded, StoreClosed
from statebook.keys import SessionKey

CLOSED = "the sessions are shutting down or have ended; nothing of this was stored"


class Turn:
    """One call's place in the queue of its session.

    Attributes:
        session: The session.
        future: Fulfilled when it is this call's turn; nobody can cancel it.
    """

    __slots__ = ("future", "session")

    def __init__(self, session: SessionKey) -> None:
        self.session = session
        self.future: Future[None] = Future()
        self.future.set_running_or_notify_cancel()


class SessionGate:
    """A bounded queue of turns for each session. Safe from many threads; blocks in none.

    The first turn of a queue has the session; the others wait behind it.
    """

    def __init__(self, waiters_max: int) -> None:
        """Begin without a queue.

        Args:
            waiters_max: How many turns may wait for one session.
        """
        self._waiters_max = waiters_max
        self._queues: dict[SessionKey, deque[Turn]] = {}
        self._lock = Lock()
        self._closed = False
        self._idle: list[Future[None]] = []

    @property
    def closed(self) -> bool:
        """Whether the gate lets nobody in any more."""
        return self._closed

    def enter(self, session: SessionKey) -> Turn:
        """Stand behind everybody who came before.

        Args:
            session: The session.

        Returns:
            The turn; give it back with `leave`, whether its future was fulfilled or not.

        Raises:
            Overloaded: Too many wait for this session.
            StoreClosed: The gate was closed.
        """
        turn = Turn(session)
        with self._lock:
            if self._closed:
                raise StoreClosed(CLOSED, key=session.name)
            queue = self._queues.setdefault(session, deque())
            if len(queue) > self._waiters_max:
                raise Overloaded(f"{len(queue) - 1} calls wait for this session already", key=session.name)
            queue.append(turn)
            first = len(queue) == 1
        if first:
            turn.future.set_result(None)
        return turn

    def leave(self, turn: Turn) -> None:
        """Give a turn back: its call has ended, or it waits no longer.

        Args:
            turn: The turn; one that the gate has refused already is none.
        """
        following: Turn | None = None
        idle: list[Future[None]] = []
        with self._lock:
            queue = self._queues.get(turn.session)
            if queue is None or turn not in queue:
                return
            was_first = queue[0] is turn
            queue.remove(turn)
            if not queue:
                del self._queues[turn.session]
            elif was_first:
                following = queue[0]
            if not self._queues:
                idle, self._idle = self._idle, []
        if following is not None:
            following.future.set_result(None)
        for future in idle:
            future.set_result(None)

    def close(self) -> None:
        """Let nobody in any more, and refuse those who wait; those who have their turn keep it. Harmless again."""
        refused: list[Turn] = []
        with self._lock:
            self._closed = True
            for queue in self._queues.values():
                while len(queue) > 1:
                    refused.append(queue.pop())
        for turn in refused:
            turn.future.set_exception(StoreClosed(CLOSED, key=turn.session.name))

    def idle(self) -> Future[None]:
        """A future that is fulfilled when nobody has a turn."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._queues:
                self._idle.append(future)
                return future
        future.set_result(None)
        return future
