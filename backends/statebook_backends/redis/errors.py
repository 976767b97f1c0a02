"""What each error of the driver means: not sent, refused, or unknown. Nothing else in this backend decides that.

A command that was not handed over whole is never run. An error *reply* of the closed list below is a refusal before any
effect, since every script of ours fails, if at all, at its first write. A connection that breaks or stays silent
behind a whole command, and any other error reply to a write, leaves the outcome unknown (ERR-2).
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Final, Self, TypeAlias

from redis import exceptions as driver

from statebook.errors import BackendUnavailable, DataError, InvalidConfiguration, OutcomeUnknown, StatebookError

Reply: TypeAlias = "bytes | int | list[Reply] | driver.RedisError | None"
"""What a server answers; errors are values."""

DriverError: TypeAlias = driver.RedisError
"""What the driver raises."""

REFUSALS: Final = (driver.ResponseError, driver.BusyLoadingError, driver.AuthenticationError)
"""Replies that the driver raises: the connection is sound, and the reply belongs to one command."""

_BROKEN: Final = (driver.RedisError, OSError)
_CODES: Final[tuple[tuple[type[driver.RedisError], str], ...]] = (
    (driver.BusyLoadingError, "LOADING"),
    (driver.AuthenticationError, "NOAUTH"),
    (driver.NoScriptError, "NOSCRIPT"),
    (driver.ReadOnlyError, "READONLY"),
    (driver.OutOfMemoryError, "OOM"),
    (driver.NoPermissionError, "NOPERM"),
    (driver.MasterDownError, "MASTERDOWN"),
    (driver.ClusterDownError, "CLUSTERDOWN"),
    (driver.ClusterCrossSlotError, "CROSSSLOT"),
    (driver.TryAgainError, "TRYAGAIN"),
    (driver.MovedError, "MOVED"),
    (driver.AskError, "ASK"),
)
_INSIDE_A_SCRIPT: Final = re.compile(r"(?:^|[ :-])(OOM|READONLY|MISCONF|NOREPLICAS|MASTERDOWN|NOPERM|WRONGTYPE) ")
_REMEDIES: Final = {
    "LOADING": "the server is loading its data; try again when it is done",
    "READONLY": "the server is a replica now; the master is looked for at the next call",
    "OOM": "the server has no memory left for writes; raise maxmemory or remove data",
    "MISCONF": "the server cannot write its file, so it takes no writes; check its disk",
    "NOREPLICAS": "the server has fewer replicas than min-replicas-to-write asks for",
    "MASTERDOWN": "the server is a replica whose master is down",
    "CLUSTERDOWN": "the cluster has a slot without a master; wait for its failover, or repair it",
    "TRYAGAIN": "the slot is being moved to another node; try again",
    "MOVED": "the slot went from node to node; try again",
    "ASK": "the slot is being moved to another node; try again",
    "CROSSSLOT": "the server takes keys to be in different slots; it is not reached as a cluster",
    "BUSY": "the server is running somebody's long script; try again",
    "NOAUTH": "the server asks for a password, or for another one",
    "NOPERM": "the user may not run a command that statebook needs, or not on keys that begin with sb:",
    "NOSCRIPT": "the server forgot a script twice; try again",
    "EXECABORT": "the server refused a command",
}


class NotSent(Exception):
    """A command was not handed over whole; it is not run and never will be.

    Attributes:
        connecting: Whether there was no connection at all, or only of no use.
        demoted: Whether the server is there, but is no master.
    """

    def __init__(self, message: str, *, connecting: bool = False, demoted: bool = False) -> None:
        super().__init__(message)
        self.connecting = connecting
        self.demoted = demoted


class ReplyLost(Exception):
    """A command was handed over, and its reply did not come.

    Attributes:
        replies: The replies that came before.
        broken: Whether the connection broke; False where the time ran out.
    """

    def __init__(self, message: str, replies: list[Reply], *, broken: bool) -> None:
        super().__init__(message)
        self.replies = replies
        self.broken = broken


class driver_errors:  # noqa: N801 - a context manager, named as it reads in a with statement
    """Classify every error of the driver inside a block by how far the block has come.

    Attributes:
        sent: Set by the block as soon as the commands are handed over.
        replies: The replies that came.
    """

    __slots__ = ("connecting", "replies", "sent")

    def __init__(self, *, connecting: bool = False) -> None:
        self.sent = False
        self.replies: list[Reply] = []
        self.connecting = connecting

    def __enter__(self) -> Self:
        """Begin the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise ours in the place of the driver's (ERR-1)."""
        if error is None or not isinstance(error, _BROKEN):
            return
        if self.sent:
            broken = not isinstance(error, (driver.TimeoutError, TimeoutError))
            raise ReplyLost(_named(error), self.replies, broken=broken) from error
        raise NotSent(_named(error), connecting=self.connecting) from error


def code_of(error: DriverError) -> str:
    """The code of an error reply, such as `LOADING`; `ERR` where it says no more."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    text = str(error)
    first = text.partition(" ")[0].lstrip("-")
    if first == "ERR" or not first.isupper():
        inside = _INSIDE_A_SCRIPT.search(text)
        return inside[1] if inside else "ERR"
    return "NOAUTH" if first == "WRONGPASS" else first


def is_credentials(error: BaseException | None) -> bool:
    """Tell whether a connection failed because of user or password."""
    return isinstance(error, REFUSALS) and code_of(error) in ("NOAUTH", "NOPERM")


def refusal(error: DriverError, damage: type[DataError], key: str | None, backend: str) -> StatebookError | None:
    """Turn an error reply that proves that nothing was done into ours; None where it proves nothing (ERR-2).

    Args:
        error: The reply.
        damage: The class for damage: `JournalCorrupt` or `StateCorrupt`.
        key: What the call was about.
        backend: The scheme.

    Returns:
        The error, with the driver's as its cause, or None.
    """
    code = code_of(error)
    made: StatebookError
    if code == "WRONGTYPE":
        made = damage(
            "a key of statebook's holds another type of value; it was changed by hand",
            what="key",
            expected="the type that statebook wrote",
            found="another type",
            key=key,
            backend=backend,
        )
    elif code in _REMEDIES:
        made = BackendUnavailable(f"{_REMEDIES[code]} ({code}); nothing was applied", key=key, backend=backend)
    else:
        return None
    made.__cause__ = error
    return made


def unavailable(error: BaseException, key: str | None, backend: str) -> BackendUnavailable:
    """The error for a call that was certainly not applied."""
    made = BackendUnavailable(
        f"the server did not take the call ({error}); nothing was applied", key=key, backend=backend
    )
    made.__cause__ = error.__cause__ or error
    return made


def unknown(
    reason: str, key: str | None, backend: str, *, batch_id: str | None = None, base_seq: int | None = None
) -> OutcomeUnknown:
    """The error for a write that was perhaps applied, or will be; carries what `settle` needs."""
    return OutcomeUnknown(
        f"the write was handed to the server, but {reason}; send it again, or settle it",
        batch_id=batch_id,
        base_seq=base_seq,
        key=key,
        backend=backend,
    )


def refused_at_open(error: NotSent, backend: str) -> StatebookError:
    """Turn a failure to connect at open into ours: wrong credentials are a wrong configuration (ERR-6)."""
    cause = error.__cause__
    made: StatebookError
    if is_credentials(cause):
        made = InvalidConfiguration(
            "the server refuses user or password; check both in the URL, percent-encoded where needed",
            option="password",
            backend=backend,
        )
    elif error.demoted:
        made = InvalidConfiguration(
            "the server is a replica and takes no writes; name the master, or use redis+sentinel:// to follow it",
            option="url",
            backend=backend,
        )
    else:
        return unavailable(error, None, backend)
    made.__cause__ = cause
    return made


def _named(error: BaseException) -> str:
    """The class of an error and the first words of its text; texts of the driver hold addresses, no secrets."""
    return f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__
