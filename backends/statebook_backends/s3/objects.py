"""Objects through fsspec: reading, listing, deleting. What must be conditional or linearizable is the writer's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import nsmallest
from typing import Protocol, runtime_checkable

from statebook.errors import BackendUnavailable, OutcomeUnknown
from statebook_backends.s3.names import BACKEND


@runtime_checkable
class FileSystem(Protocol):
    """What is used of an fsspec file system."""

    @abstractmethod
    def cat_file(self, path: str) -> bytes:
        """The bytes of an object."""

    @abstractmethod
    def pipe_file(self, path: str, value: bytes) -> object:
        """Put an object, whatever stands there."""

    @abstractmethod
    def find(self, path: str) -> Sequence[str]:
        """All objects below a directory."""

    @abstractmethod
    def rm_file(self, path: str) -> object:
        """Remove an object."""


class Objects(Protocol):
    """Reads, lists and deletes objects by fsspec's paths. `BackendUnavailable` where the store does not answer."""

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """The bytes of an object, or None where there is none."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Put an object, whatever stands there: for `medium` only."""

    @abstractmethod
    def pages(self, directory: str, after: str | None = None) -> Iterator[Sequence[str]]:
        """All objects below a directory, complete, page by page, in the store's order.

        Args:
            directory: A path that ends with `/`.
            after: Objects up to this path may be left out where the store lists in byte order.

        Yields:
            Their paths.
        """

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; absent ones are no error.

        Raises:
            BackendUnavailable: Certainly nothing was deleted.
            OutcomeUnknown: Some may have been.
        """


def in_order(objects: Objects, directory: str, after: str | None, wanted: int, *, ordered: bool) -> tuple[str, ...]:
    """The first objects of a directory behind a path, ascending, in bounded memory (LIFE-1, STATE-9).

    Args:
        objects: Where to list.
        directory: A path that ends with `/`.
        after: Only greater paths; None for all.
        wanted: How many at most.
        ordered: Whether the store lists in byte order: then the listing begins behind `after` and ends early. Where
            it does not, all of the directory is listed and the first are kept.

    Returns:
        Their paths.
    """
    if not ordered:
        return tuple(nsmallest(wanted, _behind(objects.pages(directory), after)))
    found: list[str] = []
    for page in objects.pages(directory, after):
        found += sorted(_behind([page], after))
        if len(found) >= wanted:
            break
    return tuple(found[:wanted])


def _behind(pages: Iterable[Sequence[str]], after: str | None) -> Iterator[str]:
    for page in pages:
        for path in page:
            if after is None or path > after:
                yield path


class FsspecObjects:
    """Objects of any fsspec file system, by its plain calls."""

    def __init__(self, filesystem: FileSystem) -> None:
        """Work on a file system, which must not cache."""
        self._filesystem = filesystem

    def read(self, path: str) -> bytes | None:
        try:
            return self._filesystem.cat_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unavailable(path) from error

    def put(self, path: str, data: bytes) -> None:
        try:
            self._filesystem.pipe_file(path, data)
        except OSError as error:
            raise _unavailable(path) from error

    def pages(self, directory: str, after: str | None = None) -> Iterator[Sequence[str]]:
        try:
            yield tuple(self._filesystem.find(directory.removesuffix("/")))
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unavailable(directory) from error

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                with suppress(FileNotFoundError):
                    self._filesystem.rm_file(path)
            except OSError as error:
                raise OutcomeUnknown(
                    "the file system failed between deletes; some objects may be gone, and calling again is harmless",
                    key=path,
                    backend=BACKEND,
                ) from error


def _unavailable(path: str) -> BackendUnavailable:
    return BackendUnavailable("the file system refused the call; try again", key=path, backend=BACKEND)
