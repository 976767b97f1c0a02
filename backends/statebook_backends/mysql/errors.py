"""What each error of the driver and the server means: not applied, or unknown. Nothing else in this backend decides it.

Statements are sent several at once and answered in order. An error that the server *answers* ends the rest of them, so
that the COMMIT behind it was not reached. A connection that is *lost* proves nothing once a COMMIT has been sent.
"""

from __future__ import annotations

import ssl
from collections.abc import Sized
from types import TracebackType
from typing import Final, Self, TypeAlias

import pymysql  # type: ignore[import-untyped]

from statebook.errors import BackendUnavailable, DataError, InvalidConfiguration, LimitExceeded, StatebookError

DriverError: TypeAlias = pymysql.MySQLError
"""What the driver raises."""

NULL_REFUSED: Final = 1048
DUPLICATE: Final = 1062
NO_TABLE: Final = 1146
LOCK_WAIT: Final = 1205
DEADLOCKS: Final = frozenset({1213, 1020})
"""The server has rolled the whole transaction back; the same one may be run again."""

_GONE_WHILE_SENDING: Final = 2006
_TLS_FAILED: Final = 2026
_KILLED: Final = frozenset({1053, 1077, 1079, 1152, 1153, 1158, 1159, 1160, 1161, 1927, 4031})
_HARMLESS_AT_COMMIT: Final = frozenset({1213, 1290, 1836, 3100, 3101})
_DAMAGE: Final = frozenset({DUPLICATE, NO_TABLE, 1051, 1054, 1030, 1034, 1035, 126, 127, 145})
_TOO_LARGE: Final = frozenset({1118, 1153, 1301, 1406, 139})
_BUSY: Final = frozenset({1040, 1203, 1226})
_REMEDIES: Final = {
    1021: "the server's disk is full; make room",
    1040: "the server has no connection left; raise max_connections or lower pool_max",
    1041: "the server's memory ran out",
    1044: "this user may not use the database; grant it SELECT, INSERT, UPDATE and DELETE",
    1045: "the server refused user or password; correct them in the URL, special characters percent-encoded",
    1049: "the database does not exist; create it, or name another",
    1114: "a table is full; make room on the server's disk",
    1142: "this user lacks a right on the tables; grant it SELECT, INSERT, UPDATE and DELETE",
    1143: "this user lacks a right on a column; grant it SELECT, INSERT, UPDATE and DELETE",
    1203: "this user has too many connections; raise max_user_connections or lower pool_max",
    LOCK_WAIT: "another transaction held a lock for longer than lock_timeout_s; try again, or wait longer",
    1213: "the server met a deadlock again and again; try again",
    1226: "this user has used up a limit of the server; raise it or lower pool_max",
    1290: "the server is read-only, as a replica is; name the primary",
    1665: "the server's binlog_format is STATEMENT, which READ COMMITTED does not allow; set it to ROW",
    1792: "the transaction is read-only",
    1836: "the server is in read-only mode; name the primary",
    3100: "a plugin of the server's replication refused the commit",
    3101: "the group of servers refused the commit: another member was first; try again",
    3159: "the server takes only connections with TLS; set ssl=true",
}
_AT_OPENING: Final = {
    1044: "database",
    1045: "password",
    1049: "database",
    1142: "create",
    1251: "user",
    1290: "host",
    1698: "password",
    1836: "host",
    _TLS_FAILED: "ssl",
    3118: "user",
    3159: "ssl",
}


class Failure(Exception):
    """What went wrong on a connection.

    Attributes:
        code: The server's code, or the driver's.
        undecided: Whether the transaction was perhaps committed (ERR-2).
        dead: Whether the connection is of no more use.
        timed_out: Whether the server took too long.
    """

    def __init__(self, code: int, *, undecided: bool, dead: bool, timed_out: bool = False) -> None:
        super().__init__(code)
        self.code = code
        self.undecided = undecided
        self.dead = dead
        self.timed_out = timed_out


class Refused(Failure):
    """The server answered a statement with an error; those behind it were not run."""


class Lost(Failure):
    """The connection broke: undecided where a COMMIT had been sent."""


class driver_errors:  # noqa: N801 - a context manager, named as it reads in a with statement
    """Turn every error of the driver into `Refused` or `Lost`."""

    __slots__ = ("_answers", "_commits", "_statements")

    def __init__(self, statements: int, *, commits: bool, answers: Sized = ()) -> None:
        """Describe what is sent.

        Args:
            statements: How many statements.
            commits: Whether the last one is a COMMIT.
            answers: What the block fills, one for each statement that has been answered.
        """
        self._statements = statements
        self._commits = commits
        self._answers = answers

    def __enter__(self) -> Self:
        """Begin the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise ours in the place of the driver's (ERR-1)."""
        if not isinstance(error, (pymysql.Error, OSError)):
            return
        code = code_of(error)
        if 1_000 <= code < 2_000 or code >= 3_000:
            at_commit = self._commits and len(self._answers) == self._statements - 1
            undecided = at_commit and code not in _HARMLESS_AT_COMMIT
            raise Refused(code, undecided=undecided, dead=code in _KILLED) from error
        # What could not be sent whole was never run: the server runs a request when it has all of it.
        unsent = code == _GONE_WHILE_SENDING or isinstance(error, pymysql.err.InterfaceError)
        undecided = self._commits and not unsent
        timed_out = isinstance(error.__context__, TimeoutError)
        raise Lost(code, undecided=undecided, dead=True, timed_out=timed_out) from error


def code_of(error: BaseException) -> int:
    """The code of an error of the driver; 0 where it has none."""
    if isinstance(getattr(error, "original_exception", None), ssl.SSLError):
        return _TLS_FAILED
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def classify(failure: Failure, damage: type[DataError], key: str | None) -> StatebookError:
    """Turn a failure that proves that nothing was applied into an error of ours (ERR-1, ERR-2).

    Args:
        failure: What happened.
        damage: The class for damage: `JournalCorrupt` or `StateCorrupt`.
        key: What the call was about.

    Returns:
        The error, with the driver's as its cause.
    """
    made = _made(failure, damage, key)
    made.__cause__ = failure.__cause__ or failure
    return made


def _made(failure: Failure, damage: type[DataError], key: str | None) -> StatebookError:
    if isinstance(failure, Lost):
        why = "the server did not answer in time" if failure.timed_out else "the connection to the server broke"
        return BackendUnavailable(f"{why}; nothing was applied", key=key, backend="mysql")
    code = failure.code
    if code in _DAMAGE:
        return damage(
            f"the tables are damaged or were changed by hand (error {code}); nothing was changed. Restore a copy",
            what="database",
            expected="rows as statebook wrote them",
            found=f"error {code}",
            key=key,
            backend="mysql",
        )
    if code in _TOO_LARGE:
        return LimitExceeded(
            f"the value is larger than this server takes (error {code}); nothing was changed. Raise max_allowed_packet "
            "and open the store anew",
            limit="value_bytes_max",
            key=key,
            backend="mysql",
        )
    remedy = _REMEDIES.get(code, "the server refused the call")
    return BackendUnavailable(f"{remedy} (error {code}); nothing was applied", key=key, backend="mysql")


def classify_opening(failure: Failure, where: str) -> StatebookError:
    """Turn a failure met while a store is opened into an error of ours (ERR-6).

    Args:
        failure: What happened.
        where: The server and database, without credentials.

    Returns:
        `InvalidConfiguration` where trying again cannot help, else `BackendUnavailable`.
    """
    code = failure.code
    if code in _AT_OPENING:
        remedy = _REMEDIES.get(code, "the server does not take this user, or not this way")
        if code == _TLS_FAILED:
            remedy = "TLS could not be agreed on; check ssl_ca, ssl_verify and the server's certificate"
        made: StatebookError = InvalidConfiguration(
            f"{remedy} (error {code}, at {where})", option=_AT_OPENING[code], backend="mysql"
        )
    elif code in _BUSY:
        made = BackendUnavailable(f"{_REMEDIES[code]} (error {code}, at {where})", backend="mysql")
    elif isinstance(failure, Refused):
        made = BackendUnavailable(
            f"{_REMEDIES.get(code, 'the server refused')} (error {code}, at {where})", backend="mysql"
        )
    else:
        made = BackendUnavailable(f"the server at {where} does not answer; nothing was applied", backend="mysql")
    made.__cause__ = failure.__cause__ or failure
    return made
