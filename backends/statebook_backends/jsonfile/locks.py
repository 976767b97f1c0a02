"""One writer at a time for a scope, between threads, stores and processes.

The operating system's lock belongs to an open file: two stores hold two of them and exclude each other, in one process
as between processes; it goes with the process, kill -9 included. The threads of one store share its open files, so each
stripe has a lock for them too.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import AbstractContextManager, suppress
from threading import Lock
from typing import Final

from statebook.errors import BackendUnavailable
from statebook_backends.jsonfile.layout import BACKEND, STRIPES
from statebook_backends.jsonfile.tree import Directory, Disk

_PAUSE_MAX_S: Final = 0.005

if sys.platform == "win32":
    import msvcrt

    def try_lock(fd: int) -> bool:
        """Take the lock of an open file, or return False where another one has it."""
        os.lseek(fd, 0, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        return True

    def unlock(fd: int) -> None:
        """Give the lock of an open file back."""
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def try_lock(fd: int) -> bool:
        """Take the lock of an open file, or return False where another one has it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(fd: int) -> None:
        """Give the lock of an open file back: for forked children that hold the same open file, too."""
        fcntl.flock(fd, fcntl.LOCK_UN)


class _Stripe:
    __slots__ = ("fd", "lock", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock = Lock()
        self.fd: int | None = None


class _Held:
    """One lock, from the beginning to the end of a `with`: first among threads, then among open files."""

    __slots__ = ("_key", "_locks", "_stripe")

    def __init__(self, locks: StripeLocks, stripe: _Stripe, key: str) -> None:
        self._locks = locks
        self._stripe = stripe
        self._key = key

    def __enter__(self) -> None:
        """Take it."""
        self._locks.take(self._stripe, self._key)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Give it back."""
        stripe = self._stripe
        try:
            if stripe.fd is not None:
                unlock(stripe.fd)
        finally:
            stripe.lock.release()


class StripeLocks:
    """The locks of one store in one process."""

    def __init__(self, directory: Directory, timeout_s: float, disk: Disk) -> None:
        """Hold no lock yet.

        Args:
            directory: Where the lock files are.
            timeout_s: How long to wait for a lock.
            disk: A clock and how to wait.
        """
        self._directory = directory
        self._timeout_s = timeout_s
        self._disk = disk
        self._stripes = tuple(map(_Stripe, range(STRIPES)))

    def __del__(self) -> None:
        """Close the lock files."""
        for stripe in self._stripes:
            if stripe.fd is not None:
                with suppress(OSError):
                    os.close(stripe.fd)

    def held(self, number: int, key: str) -> AbstractContextManager[None]:
        """Hold a lock, from the beginning to the end of a `with`.

        Args:
            number: Which one.
            key: What for, in errors.

        Returns:
            What is entered; raises `BackendUnavailable` then, where others hold the lock all the time.
        """
        return _Held(self, self._stripes[number], key)

    def take(self, stripe: _Stripe, key: str) -> None:
        """Take a lock, and wait for it where others have it; its owner gives it back.

        Raises:
            BackendUnavailable: Others held it all the time.
        """
        lock, deadline = stripe.lock, None
        if not lock.acquire(blocking=False):
            deadline = self._disk.monotonic() + self._timeout_s
            if not lock.acquire(timeout=self._timeout_s):
                raise self._busy(key)
        try:
            fd = stripe.fd
            if fd is None:
                fd = stripe.fd = self._directory.open_lock_file(f"{stripe.number:02x}")
            if not try_lock(fd):
                self._wait(fd, deadline, key)
        except BaseException:
            lock.release()
            raise

    def _wait(self, fd: int, deadline: float | None, key: str) -> None:
        if deadline is None:
            deadline = self._disk.monotonic() + self._timeout_s
        pause = 0.0001
        while self._disk.monotonic() < deadline:
            self._disk.sleep(pause)
            if try_lock(fd):
                return
            pause = min(pause * 1.5, _PAUSE_MAX_S)
        raise self._busy(key)

    def _busy(self, key: str) -> BackendUnavailable:
        return BackendUnavailable(
            f"another process has held the lock for {self._timeout_s:g} s (lock_timeout_s); nothing was applied. Look "
            "for a stopped process, or try again",
            key=key,
            backend=BACKEND,
        )


def exclusive_between_files(directory: Directory, name: str) -> bool:
    """Tell whether a lock belongs to an open file: whether a second opening of one lock file is kept out (ATOM-7).

    It is not where the file system turns it into one lock a process, as network file systems do.
    """
    first = directory.open_lock_file(name)
    try:
        second = directory.open_lock_file(name)
        try:
            return try_lock(first) and not try_lock(second)
        finally:
            os.close(second)
    finally:
        os.close(first)
        directory.remove(name)
