"""The raw files of a namespace, one record a file, for conformance and forensics.

A record's name is the file's path below the namespace's directory, with `/` between directories: the names of
`layout`. Heads, blobs and what a crash left half-written are records. The marker and the locks of the root, and the
marks that say what is perhaps not on the disk yet, hold no user data and are none. Links are not followed and are no
records.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from statebook.medium import Medium
from statebook_backends.jsonfile.layout import PENDING, namespace_directory
from statebook_backends.jsonfile.options import JsonFileOptions
from statebook_backends.jsonfile.root import root_path


class JsonFileMedium(Medium):
    """Records named by path. Removing one removes its file; directories stay, and come back with a written file."""

    def __init__(self, options: JsonFileOptions) -> None:
        """Take the directory of a namespace. Opens and makes nothing.

        Args:
            options: Root and namespace.

        Raises:
            InvalidConfiguration: The root is no absolute path.
        """
        self._directory = os.path.join(root_path(options, os.environ), namespace_directory(options.namespace))

    def records(self) -> tuple[str, ...]:
        return tuple(sorted(self._found(self._directory, "")))

    def read(self, record: str) -> bytes:
        try:
            with open(self._path(record), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise KeyError(record) from error

    def write(self, record: str, data: bytes) -> None:
        path = self._path(record)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def remove(self, record: str) -> None:
        try:
            os.unlink(self._path(record))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise KeyError(record) from error

    def close(self) -> None:
        """Nothing is held."""

    def _found(self, directory: str, prefix: str) -> Iterator[str]:
        try:
            entries = os.listdir(directory)
        except FileNotFoundError:
            return
        for name in entries:
            path = os.path.join(directory, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                yield from self._found(path, f"{prefix}{name}/")
            elif stat.S_ISREG(mode) and name != PENDING:
                yield prefix + name

    def _path(self, record: str) -> str:
        parts = record.split("/")
        if not all(parts) or any(part in (".", "..") or "\0" in part or os.sep in part for part in parts):
            raise KeyError(record)
        return os.path.join(self._directory, *parts)
