"""What a process holds: descriptors, threads, child processes, temporary files, objects. Compared before and after."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

SETTLE_S: Final = 5.0
"""How long threads and connections may take to end after a close, in seconds."""

_POLL_S: Final = 0.02
_NUMBERED: Final = "0123456789"


class Holdings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process holds at one moment.

    Attributes:
        descriptors: Open descriptors by kind: `socket`, `pipe`, a file's path without numbers, and so on.
        threads: Threads.
        processes: Child processes, ended ones that nobody waited for too.
        files: Files below the directory that was watched.
        objects: Objects that the garbage collector follows, after it ran.
    """

    descriptors: Mapping[str, int]
    threads: int
    processes: int
    files: int
    objects: int

    def beyond(self, before: Holdings, *, objects_more: int, descriptors_more: int = 0) -> tuple[str, ...]:
        """What is held beyond an earlier moment.

        Args:
            before: The earlier moment.
            objects_more: How many more objects there may be.
            descriptors_more: How many more descriptors of each kind there may be, for pools that were not full then.

        Returns:
            A sentence for each kind of which there is more.
        """
        found = [
            f"{self.descriptors[kind]} open descriptors of kind {kind}, {before.descriptors.get(kind, 0)} before"
            for kind in sorted(self.descriptors)
            if self.descriptors[kind] > before.descriptors.get(kind, 0) + descriptors_more
        ]
        for name, what in (("threads", "threads"), ("processes", "child processes"), ("files", "temporary files")):
            if getattr(self, name) > getattr(before, name):
                found.append(f"{getattr(self, name)} {what}, {getattr(before, name)} before")
        if self.objects > before.objects + objects_more:
            found.append(f"{self.objects - before.objects} more objects in memory, at most {objects_more} are expected")
        return tuple(found)


def holdings(watched: Path) -> Holdings:
    """What this process holds now.

    Args:
        watched: A directory in which temporary files would be.

    Returns:
        It. Of a system without `/proc` descriptors are one kind, and children none.
    """
    gc.collect()
    return Holdings(
        descriptors=_descriptors(),
        threads=threading.active_count(),
        processes=_children(),
        files=sum(1 for path in watched.rglob("*") if path.is_file()),
        objects=len(gc.get_objects()),
    )


def settled(watched: Path, before: Holdings, *, objects_more: int, descriptors_more: int = 0) -> tuple[str, ...]:
    """What this process holds beyond an earlier moment, once that has been waited for to end.

    Args:
        watched: As for `holdings`.
        before: The earlier moment.
        objects_more: As for `Holdings.beyond`.
        descriptors_more: As for `Holdings.beyond`.

    Returns:
        A sentence for each kind of which there is more after all.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        beyond = holdings(watched).beyond(before, objects_more=objects_more, descriptors_more=descriptors_more)
        if not beyond or time.monotonic() > deadline:
            return beyond
        time.sleep(_POLL_S)


def _descriptors() -> dict[str, int]:
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    found: Counter[str] = Counter()
    for name in os.listdir(directory):
        try:
            target = os.readlink(f"{directory}/{name}")
        except FileNotFoundError:  # the one that was used for the listing
            continue
        except OSError:  # a system on which these are no links
            target = "descriptor:"
        kind, colon, _ = target.partition(":")
        found[kind if colon else target.translate({ord(digit): "#" for digit in _NUMBERED})] += 1
    return dict(found)


def _children() -> int:
    total = 0
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            total += len(task.read_text(encoding="ascii").split())
        except OSError:  # a thread that has just ended
            continue
    return total
