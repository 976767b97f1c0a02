"""The raw objects of a namespace, one record an object, for conformance, forensics and tests; and their end.

A record's name is the object's key below the namespace: the names of `names`.
"""

from __future__ import annotations

from itertools import chain

from statebook.errors import OutcomeUnknown
from statebook.medium import Medium
from statebook_backends.s3.errors import opening
from statebook_backends.s3.names import BACKEND
from statebook_backends.s3.opening import SharedEngine
from statebook_backends.s3.options import S3Options

_ROUNDS_MAX = 100_000


class S3Medium(Medium):
    """Records named by key, through fsspec."""

    def __init__(self, options: S3Options) -> None:
        """Take a namespace of a bucket. Makes a client, and sends nothing.

        Args:
            options: Bucket, prefix, namespace and how to connect.

        Raises:
            InvalidConfiguration: No client can be made.
        """
        self._directory = options.settled().layout().root + "/"
        self._engines = SharedEngine(options)
        with opening(options.place):
            self._objects = self._engines.enter().objects
        self._closed = False

    def records(self) -> tuple[str, ...]:
        paths = chain.from_iterable(self._objects.pages(self._directory))
        return tuple(sorted(path.removeprefix(self._directory) for path in paths))

    def read(self, record: str) -> bytes:
        content = self._objects.read(self._path(record))
        if content is None:
            raise KeyError(record)
        return content

    def write(self, record: str, data: bytes) -> None:
        self._objects.put(self._path(record), data)

    def remove(self, record: str) -> None:
        self.read(record)
        self._objects.delete((self._path(record),))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._engines.leave()

    def _path(self, record: str) -> str:
        if not all(part not in ("", ".", "..") for part in record.split("/")):
            raise KeyError(record)
        return self._directory + record


def destroy_namespace(options: S3Options) -> None:
    """Delete every object of a namespace, while nobody writes to it.

    Args:
        options: Bucket, prefix, namespace and how to connect.

    Raises:
        InvalidConfiguration: There is no such bucket, or no access.
        BackendUnavailable: The endpoint does not answer; calling again is harmless.
        OutcomeUnknown: Some objects may be left; calling again is harmless.
    """
    directory = options.settled().layout().root + "/"
    engines = SharedEngine(options)
    with opening(options.place):
        objects = engines.enter().objects
        try:
            # Always the first page: a position in a listing is of no use once what stood there is gone.
            for _ in range(_ROUNDS_MAX):
                page = next(iter(objects.pages(directory)), ())
                if not page:
                    return
                objects.delete(page)
        finally:
            engines.leave()
    raise OutcomeUnknown("objects keep coming while the namespace is destroyed", key=directory, backend=BACKEND)
