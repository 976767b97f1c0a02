"""What a process holds is seen: each kind of leftover shows, and what ends in time is none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from statebook_conformance.leaks import holdings, settled

KEPT: list[object] = []


def descriptor(stack: ExitStack, directory: Path) -> str:
    stack.callback(os.close, os.open(directory.parent / "log-17", os.O_CREAT | os.O_WRONLY))
    return "log-##"


def connection(stack: ExitStack, directory: Path) -> str:
    for end in socket.socketpair():
        stack.enter_context(end)
    return "open descriptors of kind socket"


def thread(stack: ExitStack, directory: Path) -> str:
    stop = threading.Event()
    waiting = threading.Thread(target=stop.wait)
    stack.callback(waiting.join)
    stack.callback(stop.set)
    waiting.start()
    return "threads"


def child(stack: ExitStack, directory: Path) -> str:
    process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
    stack.callback(process.kill)
    return "child processes"


def scratch(stack: ExitStack, directory: Path) -> str:
    with tempfile.NamedTemporaryFile(dir=directory, delete=False):
        return "1 temporary files"


def objects(stack: ExitStack, directory: Path) -> str:
    KEPT.extend([number] for number in range(500))
    stack.callback(KEPT.clear)
    return "more objects in memory, at most 100"


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    (tmp_path / "watched").mkdir()
    return tmp_path / "watched"


@pytest.mark.parametrize("leave", [descriptor, connection, thread, child, scratch, objects])
def test_each_leftover_is_seen_and_named(leave: Callable[[ExitStack, Path], str], watched: Path) -> None:
    before = holdings(watched)
    with ExitStack() as stack:
        named = leave(stack, watched)
        assert named in "; ".join(holdings(watched).beyond(before, objects_more=100))


def test_what_ends_in_time_is_none(watched: Path) -> None:
    before = holdings(watched)
    ending = threading.Timer(0.2, lambda: None)
    ending.start()
    assert settled(watched, before, objects_more=1_000) == ()
    ending.join()


def test_a_pool_that_was_not_full_may_grow_by_what_is_allowed(watched: Path) -> None:
    before = holdings(watched)
    with ExitStack() as stack:
        connection(stack, watched)
        assert holdings(watched).beyond(before, objects_more=1_000, descriptors_more=2) == ()
        assert len(holdings(watched).beyond(before, objects_more=1_000, descriptors_more=1)) == 1
