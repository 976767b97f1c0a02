"""The one writer connection of a file and process, and its group commit by leader and follower (APPEND-5).

The first caller to come leads: it takes what others have handed in meanwhile, runs all of it in one transaction,
commits once, and wakes each with its own outcome. There is no thread of the writer's own, and alone a caller pays for
one lock.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from statebook.errors import BackendUnavailable, DataError, OutcomeUnknown, StatebookError
from statebook_backends.sqlite.errors import DriverError, classify, is_harmless_at_commit

if TYPE_CHECKING:
    from sqlite3 import Connection, Cursor

T = TypeVar("T")

GROUP_OPERATIONS_MAX: Final = 256
"""A group takes no further caller once it has this many operations."""

GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
"""A group takes no further caller once it has this many bytes."""


class Operation(ABC):
    """One judgement and its writes.

    It decides first and writes then: one that raises an error of ours has written nothing, so that it harms no other
    operation of its group, and no savepoint is needed. It may be applied again after a rollback.

    Attributes:
        size: How many bytes it writes, roughly.
        answer: What it answers, once it is committed.
        error: Why it was refused, or what went wrong.
    """

    __slots__ = ("answer", "error", "size")

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.answer: object = None
        self.error: StatebookError | None = None

    @property
    @abstractmethod
    def key(self) -> str | None:
        """What it is about, for errors."""

    @property
    @abstractmethod
    def damage(self) -> type[DataError]:
        """The class for damage that it meets."""

    @abstractmethod
    def apply(self, cursor: Cursor) -> None:
        """Judge, write, and set the answer; inside a transaction that holds the write lock.

        Raises:
            StatebookError: It is refused; nothing was written.
        """

    def unknown(self) -> OutcomeUnknown:
        """The error for a commit that perhaps happened (ERR-2)."""
        return OutcomeUnknown(
            "the commit failed in a way that does not tell whether it happened; settle it, or read again",
            key=self.key,
            backend="sqlite",
        )


class Call(Operation, Generic[T]):
    """An operation made of a function that answers or raises."""

    __slots__ = ("_damage", "_function", "_key")

    def __init__(
        self, function: Callable[[Cursor], T], damage: type[DataError], key: str | None, size: int = 0
    ) -> None:
        super().__init__(size)
        self._function = function
        self._damage = damage
        self._key = key

    @property
    def key(self) -> str | None:
        """What it is about, for errors."""
        return self._key

    @property
    def damage(self) -> type[DataError]:
        """The class for damage that it meets."""
        return self._damage

    @property
    def result(self) -> T:
        """The answer.

        Raises:
            StatebookError: It was refused, or it failed.
        """
        if self.error is not None:
            raise self.error
        return cast(T, self.answer)

    def apply(self, cursor: Cursor) -> None:
        """Call the function."""
        self.answer = self._function(cursor)


class _Ticket:
    """Operations that wait for a leader, and the lock that their caller sleeps on."""

    __slots__ = ("leads", "operations", "ready")

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self.leads = False
        self.ready = Lock()
        self.ready.acquire()


class Writer:
    """Runs operations on one connection, in groups. Safe from many threads."""

    def __init__(self, connect: Callable[[], Connection], forget: Callable[[], None], patience_s: float) -> None:
        """Make a writer that has not connected yet.

        Args:
            connect: Opens the connection; called again after the old one was given up.
            forget: Called when a transaction was rolled back: what operations remembered does not hold.
            patience_s: How long a caller waits for a leader at most.
        """
        self._connect = connect
        self._forget = forget
        self._patience_s = patience_s
        self._connection: Connection | None = None
        self._cursor: Cursor | None = None
        self._pausing = False
        self._busy = Lock()
        self._queue: deque[_Ticket] = deque()

    # ---------------------------------------------------------------------------------------------------- callers

    def run(self, operation: Operation) -> None:
        """Apply an operation and commit it, perhaps together with others.

        Afterwards it has either an answer or an error.

        Args:
            operation: The operation.
        """
        if self._busy.acquire(blocking=False):
            self._lead((operation,))
        else:
            self._follow((operation,))

    def run_all(self, operations: Sequence[Operation]) -> None:
        """Apply operations in their order and commit them at once, perhaps together with others (APPEND-5).

        Args:
            operations: At least one.
        """
        if self._busy.acquire(blocking=False):
            self._lead(operations)
        else:
            self._follow(operations)

    def _follow(self, operations: Sequence[Operation]) -> None:
        ticket = _Ticket(operations)
        self._queue.append(ticket)
        if self._busy.acquire(blocking=False):
            # The leader had gone before it could see the ticket.
            self._hand_over()
        done = False
        try:
            if not ticket.ready.acquire(timeout=self._patience_s):
                self._give_up(ticket)
            done = True
        finally:
            if not done:
                self._withdraw(ticket)
        if ticket.leads:
            self._lead(ticket.operations)

    def _withdraw(self, ticket: _Ticket) -> None:
        """Take back a ticket whose caller was interrupted, so that the lock is never handed to nobody."""
        try:
            self._queue.remove(ticket)
        except ValueError:
            if ticket.ready.acquire(timeout=self._patience_s) and ticket.leads:
                self._hand_over()

    def _give_up(self, ticket: _Ticket) -> None:
        """End a wait that took too long: certainly not applied where the ticket is still in the queue (ERR-2)."""
        try:
            self._queue.remove(ticket)
        except ValueError:
            if ticket.ready.acquire(timeout=self._patience_s):
                return
            for operation in ticket.operations:
                operation.error = operation.unknown()
        else:
            for operation in ticket.operations:
                operation.error = BackendUnavailable(
                    "the writer of this process is stuck; nothing was applied", key=operation.key, backend="sqlite"
                )

    # ---------------------------------------------------------------------------------------------------- leaders

    def _lead(self, operations: Sequence[Operation]) -> None:
        """Commit a group; the lock is held. Wakes the followers and hands over, whatever happens."""
        if not self._queue:
            try:
                self._transact(operations)
            finally:
                self._hand_over()
            return
        group: list[Operation] = list(operations)
        tickets = self._gather(group)
        try:
            self._transact(group)
        finally:
            for ticket in tickets:
                ticket.ready.release()
            self._hand_over()

    def _gather(self, group: list[Operation]) -> list[_Ticket]:
        tickets: list[_Ticket] = []
        size = sum([operation.size for operation in group])
        queue = self._queue
        while queue and len(group) < GROUP_OPERATIONS_MAX and size < GROUP_BYTES_MAX:
            ticket = self._next()
            if ticket is None:
                break
            tickets.append(ticket)
            group.extend(ticket.operations)
            size += sum([operation.size for operation in ticket.operations])
        return tickets

    def _hand_over(self) -> None:
        """Give the lock to the first that waits, or let go of it."""
        while True:
            ticket = self._next() if self._queue and not self._pausing else None
            if ticket is not None:
                ticket.leads = True
                ticket.ready.release()
                return
            self._busy.release()
            # Someone may have queued up between the look into the queue and the release.
            if not self._queue or self._pausing or not self._busy.acquire(blocking=False):
                return

    def _next(self) -> _Ticket | None:
        try:
            return self._queue.popleft()
        except IndexError:
            # Its caller took it back.
            return None

    # ------------------------------------------------------------------------------------------------ transactions

    def _transact(self, group: Sequence[Operation]) -> None:
        """Run a group in one transaction; the lock is held. Each operation has an answer or an error afterwards."""
        settled = False
        try:
            self._try(group)
            settled = True
        finally:
            if not settled:
                # Interrupted, or a defect: nothing that is not committed may stay behind (ERR-4).
                self._poison()
                for operation in group:
                    operation.error = operation.error or operation.unknown()

    def _try(self, group: Sequence[Operation]) -> None:
        try:
            cursor = self._cursor or self._open()
            cursor.execute("BEGIN IMMEDIATE")
        except DriverError as error:
            self._forget_connection_in_error()
            for operation in group:
                operation.error = classify(error, operation.damage, operation.key)
            return
        except StatebookError as error:
            for operation in group:
                operation.error = copy.copy(error)
            return
        try:
            for operation in group:
                try:
                    operation.apply(cursor)
                except StatebookError as refusal:
                    operation.error = refusal
        except DriverError as error:
            self._undo(group, error)
            return
        try:
            cursor.execute("COMMIT")
        except DriverError as error:
            if is_harmless_at_commit(error) and self._roll_back():
                self._one_by_one(group, error)
                return
            self._poison()
            for operation in group:
                operation.answer = None
                operation.error = operation.unknown()
                operation.error.__cause__ = error

    def _undo(self, group: Sequence[Operation], error: DriverError) -> None:
        """Roll a group back that met an error before its commit: certainly not applied."""
        if not self._roll_back():
            self._poison()
        self._one_by_one(group, error)

    def _one_by_one(self, group: Sequence[Operation], error: DriverError) -> None:
        """Run the operations of a group that was rolled back by themselves, so that only the guilty one fails."""
        for operation in group:
            operation.answer = operation.error = None
            if len(group) == 1:
                operation.error = classify(error, operation.damage, operation.key)
            else:
                self._try((operation,))

    def _roll_back(self) -> bool:
        """Roll back; tell whether that worked. SQLite has done so by itself after some errors."""
        self._forget()
        connection = self._connection
        if connection is None:
            return False
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except DriverError:
            return False
        return True

    def _forget_connection_in_error(self) -> None:
        """After a BEGIN that failed: keep a connection that is only locked out, give up one that is still inside."""
        if self._connection is not None and self._connection.in_transaction:
            self._poison()

    # -------------------------------------------------------------------------------------------------- connection

    def _open(self) -> Cursor:
        self._forget()
        self._connection = self._connect()
        self._cursor = self._connection.cursor()
        return self._cursor

    def _poison(self) -> None:
        """Give the connection up: the next call opens a new one and reads again (SETTLE-4)."""
        self._forget()
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except DriverError:
                # What cannot even be closed is left to the interpreter.
                return

    def connect(self) -> None:
        """Open the connection now, so that what cannot be opened is told at once (ATOM-7)."""
        with self._busy:
            if self._connection is None:
                self._open()

    def pause(self, timeout_s: float) -> bool:
        """Wait until nobody writes, keep it so, and close the connection.

        Args:
            timeout_s: How long to wait at most.

        Returns:
            Whether nobody writes now; `resume` in either case.
        """
        self._pausing = True
        if not self._busy.acquire(timeout=timeout_s):
            return False
        self._poison()
        return True

    def resume(self, *, paused: bool) -> None:
        """End a pause.

        Args:
            paused: What `pause` returned.
        """
        self._pausing = False
        if paused or self._busy.acquire(blocking=False):
            self._hand_over()

    def resume_in_child(self) -> None:
        """End a pause in the child of a fork, where no other caller is left."""
        self._pausing = False
        self._busy = Lock()
        self._queue = deque()

    def abandon(self) -> tuple[object, ...]:
        """In the child of a fork that could not wait: let go of the connection without closing it.

        Returns:
            What must be kept alive, and never be touched.
        """
        left = (self._connection, self._cursor)
        self._connection = self._cursor = None
        return left
