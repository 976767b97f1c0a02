"""Every error that statebook raises, as one tree for all backends.

A class exists only where the caller would act differently; `retry` says how. The driver's own error, where there is
one, is the `__cause__` (ERR-1). Details are keyword fields, so that every error can be pickled between processes.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from statebook.model import ClaimInfo, Receipt


class Retry(Enum):
    """What a caller may do after an error.

    `NEVER`: the same call fails again. `AFTER_REREAD`: read the current state, decide anew. `BACKOFF`: the same call,
    later. `SETTLE`: the outcome is unknown; send the same call again or settle it.
    """

    NEVER = "never"
    AFTER_REREAD = "after_reread"
    BACKOFF = "backoff"
    SETTLE = "settle"


def _rebuild(cls: type[StatebookError], message: str, fields: dict[str, object]) -> StatebookError:
    error = cls.__new__(cls, message)
    error.args = (message,)
    error.__dict__.update(fields)
    return error


class StatebookError(Exception):
    """The root of the tree (ERR-1).

    Attributes:
        message: One sentence, with the remedy where there is one. Never holds credentials or payloads.
        key: The thread, slot, scope or cursor the call was about, as text, or None.
        backend: The URL scheme of the backend, or None where no backend was involved.
    """

    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, message: str = "", *, key: str | None = None, backend: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.backend = backend

    @property
    def message(self) -> str:
        """The sentence given at construction."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        """The message, then what it is about."""
        about = " ".join(
            f"{name}={value}" for name, value in (("key", self.key), ("backend", self.backend)) if value is not None
        )
        return f"{self.message} [{about}]" if about else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by message and fields, whatever a subclass's constructor takes."""
        return _rebuild, (type(self), self.message, dict(self.__dict__))


# ---------------------------------------------------------------------------------------------------- configuration


class InvalidConfiguration(StatebookError):
    """The store cannot be opened as asked; the message names the option and the remedy (ERR-6).

    Attributes:
        option: The option at fault, or None.
    """

    def __init__(
        self, message: str = "", *, option: str | None = None, key: str | None = None, backend: str | None = None
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.option = option


class UnknownBackend(InvalidConfiguration):
    """No installed backend answers to the URL's scheme.

    Attributes:
        installed: The schemes that are installed.
    """

    def __init__(
        self,
        message: str = "",
        *,
        installed: tuple[str, ...] = (),
        option: str | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, option=option, key=key, backend=backend)
        self.installed = installed


class MissingDriver(InvalidConfiguration):
    """The backend is known, but the client library that it needs is not installed; the message has the command.

    Attributes:
        install: The command that installs the driver.
    """

    def __init__(
        self,
        message: str = "",
        *,
        install: str | None = None,
        option: str | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, option=option, key=key, backend=backend)
        self.install = install


class UnsupportedCapability(InvalidConfiguration):
    """The backend does not declare what the call or the `require=` argument needs (DUR).

    Attributes:
        capability: What is missing.
    """

    def __init__(
        self,
        message: str = "",
        *,
        capability: str | None = None,
        option: str | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, option=option, key=key, backend=backend)
        self.capability = capability


# ------------------------------------------------------------------------------------------------------------ input


class InvalidInput(StatebookError, ValueError):
    """The arguments are wrong; nothing was read or written."""


class InvalidKey(InvalidInput):
    """An identifier is outside ID-1."""


class InvalidValue(InvalidInput):
    """A value is not one JSON document that comes back equal (VAL-1)."""


class InvalidBatch(InvalidInput):
    """A batch is empty, holds an event id twice, or is of another schema version (APPEND)."""


class LimitExceeded(InvalidInput):
    """Something is larger than the backend declares; refused before any effect (VAL-4).

    Attributes:
        limit: The name of the limit, as in `Limits`.
        maximum: The declared maximum.
        actual: What was given.
    """

    def __init__(
        self,
        message: str = "",
        *,
        limit: str | None = None,
        maximum: int | None = None,
        actual: int | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.limit = limit
        self.maximum = maximum
        self.actual = actual


# -------------------------------------------------------------------------------------------------------- conflicts


class Conflict(StatebookError):
    """Somebody else was first; the call was not applied and never will be (ERR-2)."""

    retry = Retry.AFTER_REREAD


class VersionConflict(Conflict):
    """A slot is not at the expected version (STATE-1).

    Attributes:
        current_version: The version of the live slot, or None where there is none.
        current_length: For lists, the current number of items, else None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        current_version: int | None = None,
        current_length: int | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.current_version = current_version
        self.current_length = current_length


class HeadConflict(Conflict):
    """The journal has moved past the base of the batch (APPEND).

    Attributes:
        last_seq: The journal's last seq.
        base_seq: The base of the refused batch.
    """

    def __init__(
        self,
        message: str = "",
        *,
        last_seq: int | None = None,
        base_seq: int | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.last_seq = last_seq
        self.base_seq = base_seq


class CursorConflict(Conflict):
    """A cursor is not at the version that a reset expected (CURSOR-3).

    Attributes:
        current_version: The version of the cursor record, 0 where there is none.
    """

    def __init__(
        self,
        message: str = "",
        *,
        current_version: int | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.current_version = current_version


class WriterBusy(StatebookError):
    """Someone else holds the claim (CLAIM-1).

    Attributes:
        holder: Who holds it, or None where the expected holder has released it.
    """

    retry = Retry.BACKOFF

    def __init__(
        self,
        message: str = "",
        *,
        holder: ClaimInfo | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.holder = holder


class WriterFenced(StatebookError):
    """A newer claim, a release or a delete has ended this claim; claim again and read again (CLAIM-2, CLAIM-4).

    Attributes:
        current_epoch: The epoch of the journal now, of its tombstone too; None where there is neither.
        committed: The receipt of the batch if it had landed; None says that it has not and never will (APPEND).
    """

    def __init__(
        self,
        message: str = "",
        *,
        current_epoch: int | None = None,
        committed: Receipt | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.current_epoch = current_epoch
        self.committed = committed


class CursorFenced(StatebookError):
    """A newer opener holds this cursor (CURSOR-2).

    Attributes:
        current_epoch: The epoch of the cursor now.
    """

    def __init__(
        self,
        message: str = "",
        *,
        current_epoch: int | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.current_epoch = current_epoch


class BatchConflict(StatebookError):
    """The batch id is in the journal with other content, or an event id of it is already there (APPEND).

    Attributes:
        batch_id: The batch that was refused.
        event_id: The event id that is already in the journal, or None where the batch id is.
    """

    def __init__(
        self,
        message: str = "",
        *,
        batch_id: str | None = None,
        event_id: str | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.batch_id = batch_id
        self.event_id = event_id


# -------------------------------------------------------------------------------------------------- absent, damaged


class NotFound(StatebookError):
    """What the call needs is not there."""


class JournalNotFound(NotFound):
    """There is no open journal under this key."""


class Trimmed(NotFound):
    """The events asked for have been trimmed away (READ-3).

    Attributes:
        first_seq: The first seq that is still there.
    """

    def __init__(
        self, message: str = "", *, first_seq: int | None = None, key: str | None = None, backend: str | None = None
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.first_seq = first_seq


class DataError(StatebookError):
    """What is stored is damaged, too new, or less than was acknowledged; the store refuses to guess (FORMAT-1)."""

    def __init__(
        self,
        message: str = "",
        *,
        what: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.what = what
        self.expected = expected
        self.found = found


class JournalCorrupt(DataError):
    """A record of a journal or cursor does not match its digest, length, key, chain or place (FORMAT-1)."""


class StateCorrupt(DataError):
    """A record of a state slot does not match its digest, length or key (FORMAT-1)."""


class UnsupportedFormat(DataError):
    """The data was written by a format version that this release does not read (FORMAT-1, FORMAT-4)."""


class JournalRegressed(DataError):
    """The journal is shorter than what was already seen or acknowledged (APPEND, READ-3, CURSOR-5).

    Attributes:
        last_seq: The journal's last seq now.
        seen_seq: The seq that was seen before.
    """

    def __init__(
        self,
        message: str = "",
        *,
        last_seq: int | None = None,
        seen_seq: int | None = None,
        what: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, what=what, expected=expected, found=found, key=key, backend=backend)
        self.last_seq = last_seq
        self.seen_seq = seen_seq


class CursorRegression(DataError):
    """An advance would move a cursor back; use `reset_cursor` to do that on purpose (CURSOR-3)."""


class CursorInvalid(DataError):
    """The cursor belongs to another incarnation of the journal (CURSOR-5).

    Attributes:
        version: The version of the cursor record: what `reset_cursor` takes as `expected_version`.
    """

    def __init__(
        self,
        message: str = "",
        *,
        version: int | None = None,
        what: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, what=what, expected=expected, found=found, key=key, backend=backend)
        self.version = version


# --------------------------------------------------------------------------------------------------------- outcomes


class BackendUnavailable(StatebookError):
    """The backend did not apply the call and never will (ERR-2)."""

    retry = Retry.BACKOFF


class Overloaded(BackendUnavailable):
    """A queue, lane or pool of ours is full; nothing was accepted (LANE-1)."""


class OutcomeUnknown(StatebookError):
    """The call was applied, or was not, or will be later; send it again or settle it (ERR-2, SETTLE-1).

    Attributes:
        batch_id: The batch to settle, or None where the call was no append.
        base_seq: The base of that batch.
    """

    retry = Retry.SETTLE

    def __init__(
        self,
        message: str = "",
        *,
        batch_id: str | None = None,
        base_seq: int | None = None,
        key: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, key=key, backend=backend)
        self.batch_id = batch_id
        self.base_seq = base_seq


class StoreClosed(StatebookError):
    """The store was closed (ERR-5)."""
