"""What an error of the operating system means for a call: certainly not applied, or unknown (ERR-2)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from statebook.errors import BackendUnavailable, InvalidConfiguration, OutcomeUnknown
from statebook_backends.jsonfile.layout import BACKEND, damaged

T = TypeVar("T")

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No room: of disk, quota or file size."""

REFUSED: Final = FULL | {errno.EACCES, errno.EPERM, errno.EROFS}
"""With these a rename has certainly not happened. Closed: every other error of a rename is unknown."""


class Unsettled(Exception):
    """An fsync, rename or removal failed: nobody knows what is on the disk (SETTLE-4). The cause is the `OSError`."""


class Planted(Exception):
    """Something below the root is a link or no plain file or directory; it was not followed.

    Attributes:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Classified(Generic[T]):
    """Turns every error of the file system in one call into ours (ERR-1, ERR-2), from beginning to end of a `with`.

    Raises:
        BackendUnavailable: Certainly not applied.
        OutcomeUnknown: Perhaps applied.
        DataError: A link, or something else that is not ours, stands in the way.
    """

    __slots__ = ("_given", "_poison", "_scope")

    def __init__(self, scope: str, poison: Callable[[], None], given: T) -> None:
        """Begin a call.

        Args:
            scope: What it is about.
            poison: Called before an unknown outcome is raised: the handle must not be used again (SETTLE-4).
            given: What the `with` gives.
        """
        self._scope = scope
        self._poison = poison
        self._given = given

    def __enter__(self) -> T:
        """Give what was given."""
        return self._given

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Raise what an error means."""
        if error is not None:
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        if isinstance(error, Unsettled):
            self._poison()
            raise OutcomeUnknown(
                f"the disk reported an error ({error.__cause__}); nobody knows whether the write is on it. Reopen the "
                "store, read again, and send the call again or settle it",
                key=self._scope,
                backend=BACKEND,
            ) from error.__cause__
        if isinstance(error, Planted):
            raise damaged(self._scope, "a plain file or directory of ours", "something else", error.name) from error
        if isinstance(error, OSError):
            remedy = "make room" if error.errno in FULL else "see that the directory is there and writable"
            raise BackendUnavailable(
                f"the file system refused the call ({error.strerror or error}); nothing was applied. First {remedy}, "
                "then try again",
                key=self._scope,
                backend=BACKEND,
            ) from error


@contextmanager
def opening(root: str) -> Iterator[None]:
    """Turn every error of the file system while a root is opened into ours (ERR-6).

    Args:
        root: The root, for the message.

    Yields:
        Nothing.

    Raises:
        InvalidConfiguration: The directory cannot be used as it is.
        BackendUnavailable: It perhaps can be used later.
    """
    try:
        yield
    except Planted as error:
        raise InvalidConfiguration(
            f"{error.name!r} in {root!r} is a link, or no plain file or directory; it was not followed. Give the real "
            "path, or remove it",
            option="path",
            backend=BACKEND,
        ) from error
    except (PermissionError, FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        raise _unusable(root, error) from error
    except (OSError, Unsettled) as error:
        if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP):
            raise _unusable(root, error) from error
        raise BackendUnavailable(
            f"the directory {root!r} cannot be opened now ({error.__cause__ or error}); try again", backend=BACKEND
        ) from error


def _unusable(root: str, error: OSError) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"the directory {root!r} cannot be used ({error.strerror or error}); give a directory that this user may make "
        "and write, in the URL's path or in STATEBOOK_HOME",
        option="path",
        backend=BACKEND,
    )
