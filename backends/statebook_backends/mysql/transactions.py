"""Transactions in as few round trips as there are decisions, and the one place that runs them.

A transaction asks, judges in Python, and hands its changes in together with the COMMIT: the server runs them in order
and stops at the first error, so that a COMMIT behind a failed change is never reached. A session in which somebody has
written is left so that the next transaction begins by itself: a BEGIN costs the server as much as a tenth of an append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

from statebook.errors import DataError, OutcomeUnknown, StatebookError
from statebook_backends.mysql.errors import DEADLOCKS, DUPLICATE, Failure, classify
from statebook_backends.mysql.pool import Pool
from statebook_backends.mysql.sql import BEGIN, COMMIT, ROLLBACK, SINGLE, SNAPSHOT, Row, Sql, Value
from statebook_backends.mysql.store import Answer, Link

T = TypeVar("T")

Query: TypeAlias = "tuple[Value | tuple[Value, ...], ...]"
"""A statement's text, then its values."""

ROWS_AT_ONCE: Final = 5_000
"""How many rows one statement deletes at most."""

ATTEMPTS_MAX: Final = 9
"""How often a transaction is run that the server has rolled back for another's sake."""


class Failed(Exception):
    """A transaction failed below the contract.

    Attributes:
        failure: What happened; it is undecided where the transaction was perhaps committed.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


class Transaction:
    """One transaction on a borrowed session.

    Attributes:
        wrote: Whether a change has been handed in.
    """

    __slots__ = ("_begin", "_link", "_room", "_sent", "_size", "_waiting", "sql", "wrote")

    def __init__(self, link: Link, sql: Sql, begin: Sequence[bytes], room: int) -> None:
        """Prepare; nothing is sent yet.

        Args:
            link: The session, in no transaction.
            sql: Renders statements.
            begin: What begins the transaction.
            room: How many bytes one request may have.
        """
        self._link = link
        self._begin = tuple(begin)
        self._room = room
        self._sent = False
        self._size = 0
        self._waiting: list[bytes] = []
        self.sql = sql
        self.wrote = False

    def ask(self, text: str, *values: Value | tuple[Value, ...]) -> tuple[Row, ...]:
        """Run a query now: one round trip, together with what waits."""
        return self.ask_all([self.sql(text, *values)])[0].rows

    def ask_all(self, statements: Sequence[bytes]) -> list[Answer]:
        """Run rendered statements now, in as few round trips as they fit in."""
        for statement in statements:
            self._add(statement)
        return self._flush()[-len(statements) :]

    def change(self, text: str, *values: Value | tuple[Value, ...]) -> None:
        """Hand in a change, which travels with the next query or the COMMIT."""
        self.wrote = True
        self._add(self.sql(text, *values))

    def change_rendered(self, statement: bytes) -> None:
        """Hand in a change that was rendered already."""
        self.wrote = True
        self._add(statement)

    def insert(self, text: str, *values: Value | tuple[Value, ...]) -> int:
        """Insert a row now.

        Returns:
            The number that it was given.
        """
        self.wrote = True
        return self.ask_all([self.sql(text, *values)])[0].insert_id

    def change_many(self, text: str, *values: Value | tuple[Value, ...]) -> None:
        """Run a change with a `LIMIT ?` at its end until it meets fewer rows, so that no one takes too long."""
        self.wrote = True
        while self.ask_all([self.sql(text, *values, ROWS_AT_ONCE)])[0].count == ROWS_AT_ONCE:
            continue

    def _add(self, statement: bytes) -> None:
        self._waiting.append(statement)
        self._size += len(statement) + 1

    def _flush(self) -> list[Answer]:
        """Send what waits, in several requests where one would be too large."""
        return self._send(())

    def _send(self, end: Sequence[bytes]) -> list[Answer]:
        begin, waiting, size = self._begin, self._waiting, self._size
        self._begin, self._waiting, self._size, self._sent = (), [], 0, True
        if size <= self._room:
            answers = self._link.run([*begin, *waiting, *end], commits=bool(end))
            return answers[len(begin) : len(begin) + len(waiting)]
        answers = []
        part: list[bytes] = []
        held = 0
        for statement in waiting:
            if part and held + len(statement) > self._room:
                answers += self._link.run([*begin, *part])[len(begin) :]
                begin, part, held = (), [], 0
            part.append(statement)
            held += len(statement) + 1
        last = self._link.run([*begin, *part, *end], commits=bool(end))
        return answers + last[len(begin) : len(begin) + len(part)]

    def commit(self) -> list[int]:
        """Send what waits with a COMMIT behind it.

        Returns:
            How many rows each change that waited has met.
        """
        if self._size <= self._room:
            begin, waiting = self._begin, self._waiting
            self._begin, self._waiting, self._size, self._sent = (), [], 0, True
            return self._link.count([*begin, *waiting, COMMIT], commits=True)[len(begin) : -1]
        return [answer.count for answer in self._send((COMMIT,))]

    def end(self) -> None:
        """End a transaction that has changed nothing."""
        if self._sent:
            self._link.run((ROLLBACK,))


class Runner:
    """Runs transactions on a pool, and classifies their ends (ERR-2, ERR-4)."""

    def __init__(self, pool: Pool, sql: Sql, room: int) -> None:
        """Keep the parts.

        Args:
            pool: The sessions.
            sql: Renders statements.
            room: How many bytes one request may have.
        """
        self.pool = pool
        self.sql = sql
        self._room = room

    # ------------------------------------------------------------------------------------------------------- writes

    def run(self, function: Callable[[Transaction], T], damage: type[DataError], key: str | None) -> T:
        """Judge and write in one transaction, and commit.

        Args:
            function: Judges first and changes then; raises what it refuses. Called again after a rollback.
            damage: The class for damage.
            key: What it is about, for errors.

        Returns:
            What the function answered, committed.

        Raises:
            StatebookError: What the function raised, nothing written; or why it was not, or perhaps, committed (ERR-2).
        """
        try:
            return self.transact(lambda tx: (function(tx), tx.commit() if tx.wrote else ())[0])
        except Failed as failed:
            raise self.outcome(failed.failure, damage, key) from (failed.failure.__cause__ or failed)

    @staticmethod
    def outcome(failure: Failure, damage: type[DataError], key: str | None) -> StatebookError:
        """The error for a transaction that failed: unknown where it was perhaps committed, else not applied."""
        if failure.undecided:
            return OutcomeUnknown(
                "the server did not answer the commit, so that it is not known whether it happened; settle it, or read "
                "again",
                key=key,
                backend="mysql",
            )
        return classify(failure, damage, key)

    def transact(self, function: Callable[[Transaction], T], *, repeats_duplicates: bool = True) -> T:
        """Run a function that judges, changes and commits.

        A transaction that the server has rolled back for another's sake is run again, a bounded number of times; so is
        one whose session had left before anything was committed through it, once.

        Args:
            function: Commits by itself where it has changed something.
            repeats_duplicates: Whether a row that was there already means that another was first.

        Returns:
            What the function answered.

        Raises:
            Failed: It failed; the failure says whether it was perhaps committed.
            StatebookError: What the function raised; rolled back.
        """
        again = DEADLOCKS | {DUPLICATE} if repeats_duplicates else DEADLOCKS
        replaced = False
        attempt = 1
        while True:
            link, new = self.pool.take(fresh=replaced)
            try:
                return self._once(link, function)
            except Failed as failed:
                failure = failed.failure
                if failure.undecided:
                    raise
                if failure.dead:
                    if new or replaced or failure.timed_out:
                        raise
                    replaced = True
                elif failure.code not in again or attempt == ATTEMPTS_MAX:
                    raise
                else:
                    attempt += 1

    def _once(self, link: Link, function: Callable[[Transaction], T]) -> T:
        transaction = Transaction(link, self.sql, () if link.autocommits is False else (BEGIN,), self._room)
        clean = False
        try:
            answer = function(transaction)
            clean = transaction.wrote or self._ended(transaction)
            return answer
        except StatebookError:
            clean = self._rolled_back(link)
            raise
        except Failure as failure:
            clean = not failure.dead and not failure.undecided and self._rolled_back(link)
            raise Failed(failure) from failure.__cause__
        finally:
            self.pool.give(link, clean=clean)

    @staticmethod
    def _rolled_back(link: Link) -> bool:
        """Roll back whatever there is; tell whether the session is in no transaction now."""
        try:
            link.run((ROLLBACK,))
        except Failure:
            return False
        return True

    @staticmethod
    def _ended(transaction: Transaction) -> bool:
        """End a transaction that has changed nothing; its answer holds whether or not that works."""
        try:
            transaction.end()
        except Failure:
            return False
        return True

    # -------------------------------------------------------------------------------------------------------- reads

    def read(self, statements: Sequence[bytes], damage: type[DataError], key: str | None) -> list[Answer]:
        """Run queries in one round trip, all in one snapshot, which is no older than this call (ATOM-5, CLAIM-7).

        Args:
            statements: Rendered queries; one of them alone needs no transaction around it.
            damage: The class for damage.
            key: What is read, for errors.

        Returns:
            As many answers.

        Raises:
            BackendUnavailable: The server did not answer.
        """
        replaced = False
        while True:
            link, new = self.pool.take(fresh=replaced)
            clean = False
            try:
                answers = self._read(link, statements)
                clean = True
                return answers
            except Failure as failure:
                clean = not failure.dead and self._rolled_back(link)
                if not failure.dead or new or replaced or failure.timed_out:
                    raise classify(failure, damage, key) from failure.__cause__
                replaced = True
            finally:
                self.pool.give(link, clean=clean)

    @staticmethod
    def _read(link: Link, statements: Sequence[bytes]) -> list[Answer]:
        if len(statements) > 1:
            return link.run((*SNAPSHOT, *statements, COMMIT))[len(SNAPSHOT) : -1]
        return link.run(statements if link.autocommits else (SINGLE, *statements))[-1:]

    @contextmanager
    def reading(self, damage: type[DataError], key: str | None = None) -> Iterator[Transaction]:
        """Read in several round trips inside one snapshot.

        Args:
            damage: The class for damage.
            key: What is read, for errors.

        Yields:
            A transaction; whatever it asks is of one commit.

        Raises:
            BackendUnavailable: The server did not answer.
        """
        link, _ = self.pool.take()
        clean = False
        try:
            transaction = Transaction(link, self.sql, SNAPSHOT, self._room)
            yield transaction
            clean = self._ended(transaction)
        except StatebookError:
            clean = self._rolled_back(link)
            raise
        except Failure as failure:
            clean = not failure.dead and self._rolled_back(link)
            raise classify(failure, damage, key) from failure.__cause__
        finally:
            self.pool.give(link, clean=clean)
