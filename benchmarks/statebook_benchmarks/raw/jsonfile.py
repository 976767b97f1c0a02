"""Files: write a new file, fsync, rename over the old one, fsync the directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from statebook import StoreUrl
from statebook_benchmarks.raw.engine import RawEngine, RawLane


class FileEngine(RawEngine):
    """One file a thread, beside the store's directory on the same file system."""

    def __init__(self, url: StoreUrl, name: str, threads: int) -> None:
        root = Path(url.path or ".")
        self._directory = root.parent / f"{root.name}.{name}"
        self._directory.mkdir(parents=True)

    @property
    def work(self) -> str:
        """What one append does."""
        return "write, fsync, rename, fsync of the directory"

    def lane(self) -> RawLane:
        """A lane; files need no connection."""
        return _Lane(self._directory)

    def destroy(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._directory)


class _Lane(RawLane):
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0

    def append(self, thread: int, body: bytes) -> None:
        self._number += 1
        final = self._directory / f"{thread}.json"
        fresh = self._directory / f"{thread}.{id(self)}.{self._number}.new"
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, body)
            os.fsync(file)
        finally:
            os.close(file)
        fresh.replace(final)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def append_group(self, bodies: Sequence[bytes]) -> None:
        for thread, body in enumerate(bodies):
            self.append(thread, body)

    def close(self) -> None:
        """Nothing to close."""
