"""Fixtures of stored data: what earlier releases wrote, kept so that each later one is shown to read it (FORMAT-4).

A fixture is a file of package data, written once by the release that it is named after and never changed. It holds raw
records and what a reader must find in them. A backend keeps the fixtures of its own records; core keeps those of its
layout over any atomic storage.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Final, TypeAlias

import msgspec

from statebook.medium import Medium

DIRECTORY: Final = "fixtures"
"""The directory of a package in which its fixtures are."""

SUFFIX: Final = ".json.gz"
"""What the files are called, behind the release."""

CORE: Final = "statebook"
"""The package that keeps the fixtures of core's layout."""


Cell: TypeAlias = "str | bytes | int | None"
"""What a column of a row holds."""


class StoredRecord(msgspec.Struct, frozen=True):
    """One raw record of a namespace, with all that it takes to store it in an empty one.

    Attributes:
        name: Where it stands. What that means is the backend's.
        data: Its bytes.
    """

    name: str
    data: bytes


def kept_releases(package: str) -> tuple[str, ...]:
    """The releases of which a package keeps fixtures.

    Args:
        package: The package, such as `statebook`.

    Returns:
        Their names, sorted.
    """
    directory = files(package).joinpath(DIRECTORY)
    if not directory.is_dir():
        return ()
    names = (entry.name for entry in directory.iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)))


def kept_fixture(package: str, release: str) -> bytes:
    """The fixture of a release, as its file holds it.

    Args:
        package: The package.
        release: One of `kept_releases`.

    Returns:
        The file: gzip, in the form that the conformance suite writes.

    Raises:
        KeyError: There is none.
    """
    if release not in kept_releases(package):
        raise KeyError(release)
    return files(package).joinpath(DIRECTORY, release + SUFFIX).read_bytes()


class _Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row as a record's data: bytes apart, in base64, since JSON has none."""

    columns: dict[str, str | int | None]
    bytes: dict[str, str] = {}


def pack_row(row: Mapping[str, Cell]) -> bytes:
    """A row of a table as the data of a record: one line of JSON.

    Args:
        row: The columns.

    Returns:
        The data.
    """
    plain = {name: value for name, value in row.items() if not isinstance(value, bytes)}
    raw = {name: base64.b64encode(value).decode("ascii") for name, value in row.items() if isinstance(value, bytes)}
    return msgspec.json.encode(_Row(plain, raw))


def unpack_row(data: bytes) -> dict[str, Cell]:
    """The row that `pack_row` packed.

    Raises:
        ValueError: It is none.
    """
    row = msgspec.json.decode(data, type=_Row)
    return {**row.columns, **{name: base64.b64decode(text) for name, text in row.bytes.items()}}


class FormatFixtures(ABC):
    """The fixtures of a backend, and the way of their records into an empty namespace and out of a full one.

    It goes around the store, as a `Medium` does: not for applications. The bytes are those of the release that wrote
    them; nothing is made anew on the way.

    Attributes:
        package: The package that keeps the files.
        bound: Whether records hold the name of their namespace, or numbers that mean something there: then they can be
            planted only into a namespace of the name that they were taken from.
    """

    bound: bool = False

    def __init__(self, package: str) -> None:
        """Name the package.

        Args:
            package: The package, with a directory `fixtures`.
        """
        self.package = package

    def releases(self) -> tuple[str, ...]:
        """The releases of which there is a fixture, sorted."""
        return kept_releases(self.package)

    def load(self, release: str) -> bytes:
        """The fixture of a release, as its file holds it.

        Raises:
            KeyError: There is none.
        """
        return kept_fixture(self.package, release)

    def prepare(self) -> None:  # noqa: B027 - most backends have nothing to prepare
        """Called in an empty namespace before the data of a new fixture is written."""

    @abstractmethod
    def take(self) -> tuple[StoredRecord, ...]:
        """All records of the namespace, complete, in an order in which they can be planted.

        Raises:
            BackendUnavailable: The engine does not answer.
        """

    @abstractmethod
    def plant(self, records: Sequence[StoredRecord]) -> None:
        """Store records, as they are, in an empty namespace.

        Args:
            records: What `take` gave, in this or an earlier release.

        Raises:
            ValueError: They are no records of this backend; nothing was stored.
            StatebookError: The engine refuses them, or does not answer.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the engine; a second call is harmless."""


class MediumFixtures(FormatFixtures):
    """Fixtures of a backend whose medium takes each record into an empty namespace, such as files and objects."""

    def __init__(self, package: str, medium: Medium) -> None:
        """Take an open medium.

        Args:
            package: The package that keeps the files.
            medium: The medium of the namespace; closed with this.
        """
        super().__init__(package)
        self._medium = medium

    def take(self) -> tuple[StoredRecord, ...]:
        """Each record of the medium under its name there."""
        return tuple([StoredRecord(name, self._medium.read(name)) for name in self._medium.records()])

    def plant(self, records: Sequence[StoredRecord]) -> None:
        """Write each record."""
        for record in records:
            self._medium.write(record.name, record.data)

    def close(self) -> None:
        """Close the medium."""
        self._medium.close()
