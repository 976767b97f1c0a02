"""Group commit by leader and follower: the first to come commits for all who wait meanwhile (APPEND-5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

from statebook.errors import BackendUnavailable
from statebook_backends.mysql.append import Append

GROUP_APPENDS_MAX: Final = 256
"""A group takes no further caller once it has this many appends."""

GROUP_BYTES_MAX: Final = 8 * 1_024 * 1_024
"""A group takes no further caller once it has this many bytes."""


class _Ticket:
    """Appends that wait for a leader, and the lock that their caller sleeps on."""

    __slots__ = ("appends", "leads", "woken")

    def __init__(self, appends: Sequence[Append]) -> None:
        self.appends = appends
        self.leads = False
        self.woken = Lock()
        self.woken.acquire()


class Groups:
    """Hands appends to a function, one group at a time. Safe from many threads; alone a caller pays for one lock."""

    def __init__(self, commit: Callable[[Sequence[Append]], None], patience_s: float) -> None:
        """Make it.

        Args:
            commit: Gives each append an answer or an error.
            patience_s: How long a caller waits for a leader at most.
        """
        self._commit = commit
        self._busy = Lock()
        self._patience_s = patience_s
        self._queue: deque[_Ticket] = deque()

    def run(self, appends: Sequence[Append]) -> None:
        """Commit appends, perhaps together with others; each has an answer or an error afterwards.

        Args:
            appends: At least one; they stay in their order and in one group.
        """
        if self._busy.acquire(blocking=False):
            self._lead(appends)
            return
        ticket = _Ticket(appends)
        self._queue.append(ticket)
        if self._busy.acquire(blocking=False):
            self._pass_on()  # the leader had gone before it could see the ticket
        woken = waited = False
        try:
            woken = ticket.woken.acquire(timeout=self._patience_s)
            waited = True
        finally:
            if not woken:
                self._withdraw(ticket)
            if not waited and ticket.leads:
                self._pass_on()
        if ticket.leads:
            self._lead(appends)

    def _withdraw(self, ticket: _Ticket) -> None:
        """End a wait that was interrupted or took too long: certainly not applied where nobody has taken the ticket."""
        try:
            self._queue.remove(ticket)
        except ValueError:
            if not ticket.woken.acquire(timeout=self._patience_s):
                for append in ticket.appends:
                    append.unknown()
        else:
            for append in ticket.appends:
                append.error = BackendUnavailable(
                    "other appends of this process took too long; nothing was applied",
                    key=append.claim.key.name,
                    backend="mysql",
                )

    def _lead(self, appends: Sequence[Append]) -> None:
        """Commit a group while the lock is held; wake the followers and pass the lock on, whatever happens."""
        tickets: list[_Ticket] = []
        group = list(appends)
        try:
            if self._queue:
                self._gather(group, tickets)
            self._commit(group)
        finally:
            for append in group:
                if append.answer is None and append.error is None:
                    append.unknown()  # interrupted, or a defect
            for ticket in tickets:
                ticket.woken.release()
            self._pass_on()

    def _gather(self, group: list[Append], tickets: list[_Ticket]) -> None:
        size = sum([len(append.batch.body) for append in group])
        while self._queue and len(group) < GROUP_APPENDS_MAX and size < GROUP_BYTES_MAX:
            ticket = self._queue.popleft()
            tickets.append(ticket)
            group.extend(ticket.appends)
            size += sum([len(append.batch.body) for append in ticket.appends])

    def _pass_on(self) -> None:
        """Give the lock to the first that waits, or let go of it."""
        while True:
            try:
                ticket = self._queue.popleft()
            except IndexError:
                self._busy.release()
                # Someone may have queued up between the look into the queue and the release.
                if not self._queue or not self._busy.acquire(blocking=False):
                    return
            else:
                ticket.leads = True
                ticket.woken.release()
                return
