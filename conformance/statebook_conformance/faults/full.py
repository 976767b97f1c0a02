"""File systems that are really full: a small one of their own in memory, where the user may mount it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_CHUNK: Final = 1 << 16
_BALLAST: Final = "ballast"
_HOW: Final = "a file system of a few MB is needed: run as root on Linux, in a container with --cap-add SYS_ADMIN"


class SmallDisk:
    """A file system of its own that can be filled and freed.

    Attributes:
        path: Where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        """Take a mounted file system; `small_tmpfs` makes one."""
        self.path = path

    @property
    def free(self) -> int:
        """How many bytes are free."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, *, leave: int = 0) -> int:
        """Write until nothing more fits.

        Args:
            leave: How many bytes are left free, rounded down to whole blocks.

        Returns:
            How many bytes are free now.
        """
        with (self.path / _BALLAST).open("ab", buffering=0) as ballast, suppress(OSError):
            while self.free > leave:
                ballast.write(bytes(min(_CHUNK, max(1, self.free - leave))))
        return self.free

    def make_room(self) -> None:
        """Remove what `fill` has written."""
        (self.path / _BALLAST).unlink(missing_ok=True)


@contextmanager
def small_tmpfs(size: int) -> Iterator[SmallDisk]:
    """Mount a file system in memory of a size; it is gone at the end, whatever is still open on it.

    Args:
        size: Its size, in bytes.

    Yields:
        The file system.

    Raises:
        Unavailable: It cannot be mounted here; says what it takes.
    """
    from statebook_conformance.context import Unavailable

    if not sys.platform.startswith("linux"):
        raise Unavailable(_HOW)
    directory = tempfile.mkdtemp(prefix="statebook-small-")
    try:
        mounted = _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "statebook-small", directory)
        if mounted is not None:
            raise Unavailable(f"{_HOW} ({mounted})")
        try:
            yield SmallDisk(Path(directory))
        finally:
            left = _run("umount", "--lazy", directory)
            if left is not None:
                raise OSError(errno.EBUSY, f"{directory} is still mounted: {left}")
    finally:
        os.rmdir(directory)


def _run(*command: str) -> str | None:
    """Run a command; None where it succeeds, else what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip() or f"status {done.returncode}")
