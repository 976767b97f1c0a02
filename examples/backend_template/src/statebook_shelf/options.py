"""The options of `shelf://`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from statebook import BackendOptions, InvalidConfiguration, StoreUrl


class ShelfOptions(BackendOptions):
    """The options of one shelf.

    Attributes:
        directory: Where the file is; created where it is absent.
    """

    scheme: ClassVar[str] = "shelf"

    directory: Path

    @classmethod
    def from_url(cls, url: StoreUrl) -> Self:
        """Turn `shelf:///absolute/dir?namespace=…` into options.

        Args:
            url: The parsed URL.

        Returns:
            The options.

        Raises:
            InvalidConfiguration: There is a host, no directory, or an option that is unknown.
        """
        if url.hosts or not url.path.startswith("/"):
            raise InvalidConfiguration(
                "name a directory with three slashes: shelf:///absolute/dir", option="url", backend=cls.scheme
            )
        return cls.checked({**dict(url.query), "directory": url.path}, allowed=("namespace",))
