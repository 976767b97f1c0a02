"""What a file system must offer beyond fsspec to carry journals: conditional writes. And which ones offer it.

fsspec has no call that creates or replaces an object iff it is in a known state. A `ConditionalWriter` adds three for
one file system, and is registered by the file system's fsspec protocol; a file system without one is refused by name
(ATOM-7). Everything else that a store does goes through fsspec (`objects.FsspecObjects`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from statebook.errors import InvalidConfiguration
from statebook_backends.s3.objects import FileSystem, Objects
from statebook_backends.s3.turns import Turns

ENTRY_POINT_GROUP: Final = "statebook.conditional_writers"
"""The entry-point group in which writers are found: the name is the fsspec protocol, the target a `WriterFactory`."""


class Found(msgspec.Struct, frozen=True):
    """An object as it was read.

    Attributes:
        data: Its bytes.
        version: The store's name for this version of it, such as an ETag. Equal bytes may have equal names.
    """

    data: bytes
    version: str


class Unchanged(msgspec.Struct, frozen=True):
    """The object still is of the version that the reader knows."""


class Lost(msgspec.Struct, frozen=True):
    """The condition of a write was not met, and the store says so."""


UNCHANGED: Final = Unchanged()
LOST: Final = Lost()


class Unsure(Exception):
    """A write was perhaps applied, or will be (ERR-2): what stands there must be read. The driver's error is the cause.

    Attributes:
        again: Whether the store has answered that it did not decide, so that the same bytes may be sent again.
    """

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class ConditionalWriter(Protocol):
    """Reads, writes and removes single objects, each by one request that is sent once (ERR-3).

    Paths are fsspec's: `bucket/key`. Every call is safe from many threads and raises `BackendUnavailable` where it was
    certainly not applied.
    """

    @abstractmethod
    def read(self, path: str, known: str | None = None) -> Found | Unchanged | None:
        """Read an object from its one authoritative copy (ATOM-5).

        Args:
            path: The object.
            known: A version that the reader has; the answer may be `UNCHANGED` where it is still that one.

        Returns:
            The object, `UNCHANGED`, or None where there is none.

        Raises:
            BackendUnavailable: It could not be read.
        """

    @abstractmethod
    def write(self, path: str, data: bytes, expected: str | None) -> str | Lost:
        """Create an object iff there is none, or replace it iff it is of a version.

        Args:
            path: The object.
            data: Its bytes.
            expected: The version to replace, or None where there must be none.

        Returns:
            The new version, or `LOST`.

        Raises:
            BackendUnavailable: Certainly not applied.
            Unsure: Perhaps applied.
        """

    @abstractmethod
    def remove(self, path: str, expected: str) -> bool:
        """Remove an object iff it is of a version.

        Args:
            path: The object.
            expected: The version.

        Returns:
            Whether it was removed.

        Raises:
            BackendUnavailable: Certainly not applied; also where the store cannot do it.
            Unsure: Perhaps applied.
        """


class ObjectEngine(msgspec.Struct, frozen=True):
    """What a storage works with.

    Attributes:
        writer: Conditional writes.
        objects: Reads, listings and deletes through fsspec.
        server: Says what the store calls itself, once something has been read.
        close: Lets go of connections that were made for it.
        turns: In which writers of this process write one object.
    """

    writer: ConditionalWriter
    objects: Objects
    server: Callable[[], str] = lambda: ""
    close: Callable[[], None] = lambda: None
    turns: Turns = msgspec.field(default_factory=Turns)


class WriterFactory(Protocol):
    """Makes an engine over a file system."""

    @abstractmethod
    def __call__(self, filesystem: FileSystem) -> ObjectEngine:
        """Make the engine; no I/O."""


class ConditionalWriters:
    """Which fsspec protocols have a conditional writer. Immutable."""

    def __init__(self, factories: Mapping[str, Callable[[], WriterFactory]]) -> None:
        """Take factories by protocol.

        Args:
            factories: For each protocol a function that imports and returns its factory.
        """
        self._factories = MappingProxyType(dict(factories))

    @classmethod
    def installed(cls) -> ConditionalWriters:
        """Those that installed packages name in the entry-point group; imports none of them."""
        return cls({point.name: point.load for point in entry_points(group=ENTRY_POINT_GROUP)})

    def adding(self, protocol: str, factory: WriterFactory) -> ConditionalWriters:
        """The same with one more, or with another one for a protocol."""
        return ConditionalWriters({**self._factories, protocol: lambda: factory})

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols, sorted."""
        return tuple(sorted(self._factories))

    def find(self, protocol: str) -> WriterFactory:
        """The factory of a protocol.

        Args:
            protocol: The fsspec protocol, such as `s3`.

        Returns:
            The factory.

        Raises:
            InvalidConfiguration: None is registered: without conditional writes the last writer would win (ATOM-7).
        """
        if protocol not in self._factories:
            raise InvalidConfiguration(
                f"the fsspec file system {protocol!r} has no conditional writer, without which the last writer would "
                f"silently win; there are writers for {', '.join(self.protocols) or 'none'}. Register one in the "
                f"entry-point group {ENTRY_POINT_GROUP!r}",
                option="filesystem",
                backend=protocol,
            )
        return self._factories[protocol]()
