"""The options of `file:///absolute/dir?agent_id=…&durability=…&namespace=…`."""

from __future__ import annotations

import os
from typing import ClassVar, Literal, Self

from pydantic import Field

from statebook.errors import InvalidConfiguration, InvalidKey
from statebook.keys import check_id
from statebook.options import BackendOptions, StoreUrl

HOME_VARIABLE = "STATEBOOK_HOME"
"""The environment variable that names the root where the URL does not."""


class JsonFileOptions(BackendOptions):
    """What a file store is opened with.

    The root is the URL's path; where there is none, the directory that the environment variable `STATEBOOK_HOME` names;
    where that is not set or empty, `~/.statebook/state`. With `agent_id` the store is in the agent's own directory
    below that root.

    Attributes:
        path: The root, an absolute path; or None for the default root.
        agent_id: The agent whose directory below the root is used, or None for the root itself.
        durability: `host`: each file and directory is flushed to the disk before it counts (fsync). `process`: it is
            not, so that a loss of power can take back what was acknowledged; the end of the process cannot.
        lock_timeout_s: How long a write waits for another process's write before it is `BackendUnavailable`.
        namespace: As for every backend; a directory of its own.
    """

    scheme: ClassVar[str] = "file"

    path: str | None = Field(default=None, min_length=1)
    agent_id: str | None = None
    durability: Literal["host", "process"] = "host"
    lock_timeout_s: float = Field(default=30.0, gt=0, le=3_600)

    @classmethod
    def from_url(cls, url: StoreUrl) -> Self:
        """Turn a URL into options.

        Args:
            url: `file:///absolute/dir`, or `file://` for the default root, and options.

        Returns:
            The options.

        Raises:
            InvalidConfiguration: The URL holds more than a path, or an option is unknown or wrong (ERR-6).
        """
        if url.username is not None or url.password is not None or url.hosts:
            raise InvalidConfiguration(
                "a file store is opened as file:///absolute/dir, with three slashes and no host",
                option="url",
                backend=cls.scheme,
            )
        values: dict[str, object] = dict(url.query)
        if "path" in values:
            raise InvalidConfiguration(
                "the directory of a file store stands in the URL itself: file:///absolute/dir",
                option="path",
                backend=cls.scheme,
            )
        if url.path:
            values["path"] = url.path.lstrip("/") if os.name == "nt" else url.path
        options = cls.checked(values, allowed=("agent_id", "durability", "lock_timeout_s", "namespace"))
        if options.agent_id is not None:
            try:
                check_id(options.agent_id, "agent_id")
            except InvalidKey as error:
                raise InvalidConfiguration(error.message, option="agent_id", backend=cls.scheme) from error
        return options
