"""The options of `sqlite:///relative.db?synchronous=…`."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field

from statebook.errors import InvalidConfiguration
from statebook.options import BackendOptions, StoreUrl


class SqliteOptions(BackendOptions):
    """What a SQLite store is opened with.

    Attributes:
        path: The database file. It is made where there is none; its directory must exist.
        namespace: As for every backend.
        synchronous: `full`: an acknowledged write survives a loss of power. `normal`: it survives the end of the
            process only, and a commit costs a fifth. `extra`: as `full`.
        busy_timeout_ms: How long a call waits for another process that writes, 0 to 600,000.
    """

    scheme: ClassVar[str] = "sqlite"

    path: str = Field(min_length=1, max_length=4_096)
    synchronous: Literal["full", "normal", "extra"] = "full"
    busy_timeout_ms: int = Field(default=5_000, ge=0, le=600_000)

    @classmethod
    def from_url(cls, url: StoreUrl) -> Self:
        """Turn a URL into options. No I/O.

        Args:
            url: `sqlite:///relative.db` or `sqlite:////absolute/file.db`, and options.

        Returns:
            The options.

        Raises:
            InvalidConfiguration: The URL names no file, or an option is unknown or wrong (ERR-6).
        """
        if url.username is not None or url.password is not None or url.hosts:
            raise _refused("a SQLite store has no user, host or port; write three slashes: sqlite:///file.db")
        path = url.path[1:]
        if not path or path == ":memory:" or "\0" in path:
            raise _refused(
                "a SQLite store needs a file: sqlite:///relative.db or sqlite:////absolute/file.db; "
                "for a private store that keeps nothing use memory://"
            )
        values: dict[str, object] = dict(url.query)
        if "path" in values:
            raise _refused("the path stands in the URL itself: sqlite:///file.db")
        return cls.checked(values | {"path": path}, allowed=tuple(name for name in cls.model_fields if name != "path"))


def _refused(message: str) -> InvalidConfiguration:
    return InvalidConfiguration(message, option="path", backend=SqliteOptions.scheme)
