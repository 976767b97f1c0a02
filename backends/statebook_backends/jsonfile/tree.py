"""Directories that are entered one by one, never through a link, and the few operations on files in them.

Where the system can, a directory is held by a descriptor and every operation is relative to it, so that nothing that is
renamed or linked in between leads out of the root. Elsewhere (Windows) each step is checked before it is taken.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from statebook_backends.jsonfile.errors import FULL, REFUSED, Planted, Unsettled

_RELATIVE: Final = os.open in os.supports_dir_fd
_MODES: Final = hasattr(os, "fchmod")
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_BINARY: Final = getattr(os, "O_BINARY", 0)
_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY
_READ: Final = os.O_RDONLY | _NOFOLLOW | _BINARY | getattr(os, "O_NONBLOCK", 0)
_CHUNK: Final = 1 << 20

_IN_USE: Final = frozenset({5, 32, 33})
"""Windows: access denied, sharing violation, lock violation, as long as a reader has the file open."""
_RENAME_ATTEMPTS: Final = 60


class Disk:
    """How writes reach the disk. Arguments, so that a test can make each of them fail.

    Attributes:
        fsync: Flushes a file or directory.
        replace: As `os.replace`.
        sleep: Waits, between attempts to rename under a reader on Windows, and for locks.
        monotonic: A clock for time-outs.
    """

    def __init__(
        self,
        *,
        fsync: Callable[[int], None] | None = os.fsync,
        replace: Callable[..., None] = os.replace,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Choose the operations.

        Args:
            fsync: None: nothing is flushed (durability `process`).
            replace: Renames over what is there.
            sleep: Waits for a number of seconds.
            monotonic: Seconds since some moment.
        """
        self.fsync = fsync
        self.replace = replace
        self.sleep = sleep
        self.monotonic = monotonic


class File:
    """A file that this process has written and keeps open. Closed with the last reference.

    As long as it is open, the system gives its number to no other file: what is found under that number is this file.
    """

    __slots__ = ("_fd", "_found")

    def __init__(self, fd: int) -> None:
        """Keep a file.

        Args:
            fd: Its descriptor, which belongs to this object from now on.
        """
        self._fd = fd
        self._found = os.fstat(fd)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close the descriptor."""
        try:
            close(self._fd)
        except OSError:
            return

    def is_at(self, found: os.stat_result) -> bool:
        """Tell whether this is the file that was found, and nobody has written into it since."""
        mine = self._found
        return (
            found.st_ino == mine.st_ino
            and found.st_dev == mine.st_dev
            and found.st_size == mine.st_size
            and found.st_mtime_ns == mine.st_mtime_ns
        )


class Mark:
    """A file that stays, and whose mode says something: owner may write it, or not. Under its directory's lock.

    To change a mode takes a tenth of the time that it takes to make and remove a file. Where modes are not kept, the
    mark stands always.
    """

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        """Take over the descriptor of a file."""
        self._fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close the descriptor."""
        try:
            close(self._fd)
        except OSError:
            return

    @property
    def there(self) -> bool:
        """Whether the file still has a name: somebody may have removed it."""
        return os.fstat(self._fd).st_nlink > 0

    def set(self, *, standing: bool) -> None:
        """Let it stand, or not."""
        os.fchmod(self._fd, 0o600 if standing else 0o400)


class Directory:
    """One open directory. Its descriptor is closed with the last reference, so a cache may drop it while it is used.

    Attributes:
        prepared: Whether a writer has seen to it, since it was opened, that it is durable and holds no leftovers.
    """

    __slots__ = ("_disk", "_fd", "_marks", "_path", "prepared")

    def __init__(self, path: str, disk: Disk, *, parent_fd: int | None = None) -> None:
        """Open a directory, and refuse a link in its place.

        Args:
            path: Its path.
            disk: How writes reach the disk.
            parent_fd: The descriptor of the directory that it is in, or None.

        Raises:
            OSError: It is not there, or not readable.
            Planted: It is a link or no directory.
        """
        self._disk = disk
        self._path = path
        self._fd: int | None = None
        self._marks: dict[str, Mark] = {}
        self.prepared = False
        name = path if parent_fd is None else os.path.basename(path)
        try:
            if _RELATIVE:
                self._fd = os.open(name, _DIRECTORY, dir_fd=parent_fd)
            elif not _is_plain_directory(os.lstat(name)):
                raise Planted(os.path.basename(path))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise Planted(os.path.basename(path)) from error
            raise

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close the descriptor."""
        fd = getattr(self, "_fd", None)
        if fd is not None:
            with suppress(OSError):
                close(fd)

    def _at(self, name: str) -> tuple[str, int | None]:
        """What the functions of `os` take: a name and a descriptor, or a path."""
        return (name, self._fd) if self._fd is not None else (os.path.join(self._path, name), None)

    # --------------------------------------------------------------------------------------------------- directories

    def child(self, name: str) -> Directory | None:
        """Enter a directory, or None where there is none."""
        try:
            return self._enter(name)
        except FileNotFoundError:
            return None

    def make_child(self, name: str) -> Directory:
        """Enter a directory; make it where there is none.

        It is durable then, whoever made it: another process may have, and may not have come to flush it yet (ATOM-3).
        """
        path, at = self._at(name)
        found = self.child(name)
        if found is None:
            with suppress(FileExistsError):
                os.mkdir(path, 0o700, dir_fd=at)
            found = self._enter(name)
        self.sync()
        return found

    def _enter(self, name: str) -> Directory:
        return Directory(os.path.join(self._path, name), self._disk, parent_fd=self._fd)

    def names(self) -> list[str]:
        """What is in the directory, in no order."""
        return os.listdir(self._path if self._fd is None else self._fd)

    def remove_child(self, name: str) -> bool:
        """Remove a directory where it is empty; False where it is not there or not empty."""
        path, at = self._at(name)
        try:
            os.rmdir(path, dir_fd=at)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def sync(self) -> None:
        """Make what was made, renamed and removed in here durable.

        Raises:
            Unsettled: The disk reported an error.
        """
        if self._disk.fsync is None or self._fd is None:
            return
        try:
            self._disk.fsync(self._fd)
        except OSError as error:
            raise Unsettled from error

    # --------------------------------------------------------------------------------------------------------- files

    def set_mark(self, name: str, *, is_there: bool = False) -> None:
        """Let a mark stand: an empty file that its owner may write. Not durable by itself.

        Args:
            name: Its name.
            is_there: Whether one that was set here before is known to have its name still.
        """
        mark = self._marks.get(name)
        if mark is None or not (is_there or mark.there):
            path, at = self._at(name)
            flags = (os.O_RDONLY if _MODES else os.O_WRONLY) | os.O_CREAT | _NOFOLLOW
            fd = os.open(path, flags, 0o600, dir_fd=at)
            if at is None or not _MODES:
                os.close(fd)
                return
            mark = self._marks[name] = Mark(fd)
        mark.set(standing=True)

    def clear_mark(self, name: str) -> None:
        """Let a mark that was set here stand no longer.

        Raises:
            OSError: The system refused; the mark stands.
            Unsettled: Perhaps the mark stands.
        """
        mark = self._marks.get(name)
        if mark is None:
            self.remove(name)
        else:
            mark.set(standing=False)

    def remove_mark(self, name: str) -> None:
        """Remove a mark; raises as `remove`."""
        self._marks.pop(name, None)
        self.remove(name)

    def forget_marks(self) -> None:
        """Close the marks; where one stands, its writer removes the file instead of changing its mode."""
        self._marks.clear()

    def has_mark(self, name: str) -> bool:
        """Tell whether a mark stands."""
        found = self._stat(name)
        return found is not None and stat.S_ISREG(found.st_mode) and bool(found.st_mode & stat.S_IWUSR)

    def has_file(self, name: str) -> bool:
        """Tell whether there is a plain file of this name."""
        found = self._stat(name)
        return found is not None and stat.S_ISREG(found.st_mode)

    def holds(self, name: str, file: File) -> bool:
        """Tell whether a name is that of a file which this process has written, as it was written."""
        found = self._stat(name)
        return found is not None and file.is_at(found)

    def _stat(self, name: str) -> os.stat_result | None:
        path, at = self._at(name)
        try:
            return os.lstat(path, dir_fd=at)
        except FileNotFoundError:
            return None

    def read(self, name: str, limit: int | None = None) -> tuple[bytes, int] | None:
        """Read a file.

        Args:
            name: Its name.
            limit: How many bytes at most; None for all.

        Returns:
            Its content, or the start of it, and its size; None where there is none.

        Raises:
            Planted: It is a link or no plain file.
        """
        path, at = self._at(name)
        try:
            fd = os.open(path, _READ, dir_fd=at)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                raise Planted(name) from error
            raise
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise Planted(name)
            wanted = found.st_size if limit is None else min(limit, found.st_size)
            content = os.read(fd, wanted)
            if len(content) < wanted:
                content = _read_rest(fd, content, wanted)
        finally:
            os.close(fd)
        return content, found.st_size

    def write_new(self, name: str, content: bytes) -> File | None:
        """Write a file that is not there yet, and flush it; where that fails, nothing is left.

        Returns:
            The file, kept open; None where open files are in the way of renames (Windows).

        Raises:
            OSError: Certainly nothing is there.
            Unsettled: The disk reported an error while it was flushed.
        """
        path, at = self._at(name)
        fd = os.open(path, _NEW, 0o600, dir_fd=at)
        file = None
        try:
            try:
                _write_all(fd, content)
                self._flush(fd)
                file = File(fd) if at is not None else None
            finally:
                if file is None:
                    os.close(fd)
        except (OSError, Unsettled):
            with suppress(OSError):
                os.unlink(path, dir_fd=at)
            raise
        return file

    def _flush(self, fd: int) -> None:
        if self._disk.fsync is None:
            return
        try:
            self._disk.fsync(fd)
        except OSError as error:
            if error.errno in FULL:
                raise
            raise Unsettled from error

    def rename(self, source: str, target: str) -> None:
        """Put a file in the place of another; readers see the one or the other, whole (ATOM-5).

        Raises:
            OSError: Certainly not done.
            Unsettled: Perhaps done.
        """
        (old, at), (new, _) = self._at(source), self._at(target)
        for attempt in range(_RENAME_ATTEMPTS):
            try:
                self._disk.replace(old, new, src_dir_fd=at, dst_dir_fd=at)
            except OSError as error:
                in_use = getattr(error, "winerror", None) in _IN_USE
                if in_use and attempt + 1 < _RENAME_ATTEMPTS:
                    self._disk.sleep(min(0.001 * (attempt + 1), 0.05))
                    continue
                if in_use or error.errno in REFUSED:
                    raise
                raise Unsettled from error
            return

    def remove(self, name: str) -> bool:
        """Remove a file or a link, which is not followed; False where there is none.

        Raises:
            OSError: Certainly not done.
            Unsettled: Perhaps done.
        """
        path, at = self._at(name)
        try:
            os.unlink(path, dir_fd=at)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno in REFUSED or error.errno in (errno.EISDIR, errno.EBUSY):
                raise
            raise Unsettled from error
        return True

    def open_lock_file(self, name: str) -> int:
        """Open a lock file for the caller, who closes it; make it where there is none."""
        path, at = self._at(name)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | _NOFOLLOW | _BINARY, 0o600, dir_fd=at)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                raise Planted(name) from error
            raise


def _is_plain_directory(found: os.stat_result) -> bool:
    reparse = getattr(found, "st_file_attributes", 0) & getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)
    return stat.S_ISDIR(found.st_mode) and not reparse


def _read_rest(fd: int, start: bytes, wanted: int) -> bytes:
    parts, length = [start], len(start)
    while length < wanted:
        part = os.read(fd, min(wanted - length, _CHUNK))
        if not part:
            break
        parts.append(part)
        length += len(part)
    return b"".join(parts)


def _write_all(fd: int, content: bytes) -> None:
    written = os.write(fd, content)
    view = memoryview(content)
    while written < len(content):
        written += os.write(fd, view[written:])
