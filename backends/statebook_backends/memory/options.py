"""The options of `memory://name?namespace=…`."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field

from statebook.errors import InvalidConfiguration
from statebook.options import BackendOptions, StoreUrl


class MemoryOptions(BackendOptions):
    """What a memory store is opened with.

    Attributes:
        name: Stores of one name and one namespace are one store within this process, and keep what they hold when they
            are closed. None: a private store for each opening, gone when it is closed.
        namespace: As for every backend.
    """

    scheme: ClassVar[str] = "memory"

    name: str | None = Field(default=None, min_length=1, max_length=512)

    @classmethod
    def from_url(cls, url: StoreUrl) -> Self:
        """Turn a URL into options.

        Args:
            url: `memory://`, or `memory://name`, and options.

        Returns:
            The options.

        Raises:
            InvalidConfiguration: The URL holds more than a name, or an option is unknown or wrong (ERR-6).
        """
        if url.username is not None or url.password is not None or len(url.hosts) > 1 or url.path not in ("", "/"):
            raise _not_a_name()
        values: dict[str, object] = dict(url.query)
        if "name" in values:
            raise InvalidConfiguration(
                "the name of a memory store stands in the URL itself: memory://name", option="name", backend=cls.scheme
            )
        if url.hosts:
            if url.hosts[0].port is not None:
                raise _not_a_name()
            values["name"] = url.hosts[0].name
        return cls.checked(values, allowed=("namespace",))


def _not_a_name() -> InvalidConfiguration:
    return InvalidConfiguration(
        "a memory store is opened as memory://name, or as memory:// for a private one; it has no user, port or path",
        option="url",
        backend=MemoryOptions.scheme,
    )
