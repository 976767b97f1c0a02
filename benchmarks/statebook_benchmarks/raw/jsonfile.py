"""Files: a locked head that is compared and replaced, with the batches since the last full segment in it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from statebook import StoreUrl
from statebook_benchmarks.raw.engine import RawEngine, RawLane, refused

_TAIL_BYTES_MAX: Final = 64 * 1024
_HEAD_BYTES: Final = 32


class FileEngine(RawEngine):
    """One head, one lock and some segments a thread, beside the store's directory on the same file system.

    Nothing that keeps every batch behind a conditional head takes fewer flushes: a file for each batch beside the head
    takes one more. An append to a log takes fewer, but there the log is the authority, and no head can be compared.
    """

    def __init__(self, url: StoreUrl, name: str, threads: int) -> None:
        root = Path(url.path or ".")
        self._directory = root.parent / f"{root.name}.{name}"
        self._directory.mkdir(parents=True)

    @property
    def work(self) -> str:
        """What one append does."""
        return "lock, compare the head, write head and tail (64 KiB at most), fsync, rename, fsync of the directory"

    def lane(self) -> RawLane:
        """A lane with descriptors of its own."""
        return _Lane(self._directory)

    def destroy(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._directory)


class _Thread:
    """What a lane knows of a thread that it writes."""

    def __init__(self, lock: int) -> None:
        self.lock = lock
        self.head = b""
        self.seq = 0
        self.tail = b""


class _Lane(RawLane):
    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory, os.O_RDONLY)
        self._threads: dict[int, _Thread] = {}

    def append(self, thread: int, body: bytes) -> None:
        known = self._threads.get(thread) or self._open(thread)
        fcntl.flock(known.lock, fcntl.LOCK_EX)
        try:
            if self._head(thread) != known.head:
                raise refused()
            seq, tail = known.seq + 1, known.tail + body + b"\n"
            if len(tail) > _TAIL_BYTES_MAX:
                self._write(f"{thread}.{seq}.segment", tail)
                os.fsync(self._fd)
                tail = b""
            head = f"1 {seq}".ljust(_HEAD_BYTES - 1).encode() + b"\n"
            fresh = f"{thread}.{seq}.new"
            self._write(fresh, head + tail)
            os.rename(fresh, f"{thread}.json", src_dir_fd=self._fd, dst_dir_fd=self._fd)
            os.fsync(self._fd)
            known.head, known.seq, known.tail = head, seq, tail
        finally:
            fcntl.flock(known.lock, fcntl.LOCK_UN)

    def _open(self, thread: int) -> _Thread:
        lock = os.open(f"{thread}.lock", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self._fd)
        known = self._threads[thread] = _Thread(lock)
        return known

    def _head(self, thread: int) -> bytes:
        try:
            file = os.open(f"{thread}.json", os.O_RDONLY, dir_fd=self._fd)
        except FileNotFoundError:
            return b""
        try:
            return os.read(file, _HEAD_BYTES)
        finally:
            os.close(file)

    def _write(self, name: str, content: bytes) -> None:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._fd)
        try:
            os.write(file, content)
            os.fsync(file)
        finally:
            os.close(file)

    def append_group(self, bodies: Sequence[bytes]) -> None:
        for thread, body in enumerate(bodies):
            self.append(thread, body)

    def close(self) -> None:
        """Close the descriptors."""
        for known in self._threads.values():
            os.close(known.lock)
        os.close(self._fd)
