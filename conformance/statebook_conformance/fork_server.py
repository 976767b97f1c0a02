"""A process that has imported everything and forks workers from itself: a worker starts in milliseconds.

Started as `python -m statebook_conformance.fork_server FD` with a socket. Each order comes with three descriptors, the
worker's standard streams; the answer is the worker's process id. The server is the parent: it reaps a worker when it is
told that nobody watches it any more.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final

MESSAGE_MAX: Final = 1 << 20
"""The size of the longest message, in bytes: names of modules to import."""

_STREAMS: Final = 3


def preload(modules: Sequence[str]) -> None:
    """Import modules; what cannot be imported here is imported by the worker that needs it, or fails there."""
    for name in modules:
        with suppress(Exception):
            import_module(name)
    gc.collect()
    gc.freeze()


def warm_up(target: str, namespace: str) -> None:
    """Open a target and close it again, so that workers find what a process does once: a driver's set-up, a probe.

    Where it does not open, the worker that needs it says why. A thread that a closed store leaves behind waits for
    work, and holds no lock that a fork would copy: so it is in every program that forks behind a store.
    """
    from statebook_conformance.target import Target

    with suppress(Exception):
        Target(target).backend(namespace).open_journal().close()
    gc.collect()
    gc.freeze()


def serve(line: socket.socket) -> bool:
    """Take orders until the other end is closed.

    Args:
        line: The socket.

    Returns:
        Whether this is a worker now, with its streams in place; False in the server, at the end.
    """
    while True:
        data, descriptors, _, _ = socket.recv_fds(line, MESSAGE_MAX, _STREAMS)
        if not data:
            return False
        order = json.loads(data)
        if "modules" in order:
            preload(order["modules"])
            # A second thread would make a fork unsafe: then workers are started afresh.
            line.sendall(json.dumps({"threads": threading.active_count()}).encode() + b"\n")
        elif "target" in order:
            warm_up(order["target"], order["namespace"])
            line.sendall(b"{}\n")
        elif "gone" in order:
            with suppress(ChildProcessError):
                os.waitpid(int(order["gone"]), 0)
            line.sendall(b"{}\n")
        elif _forked(line, descriptors):
            return True


def _forked(line: socket.socket, descriptors: Sequence[int]) -> bool:
    """Fork a worker. Returns whether this is it."""
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        line.sendall(json.dumps({"pid": pid}).encode() + b"\n")
        return False
    line.close()
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        if descriptor >= _STREAMS:
            os.close(descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    return True


def main() -> int:
    """Serve, and be a worker where this is one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Python 3.12 and newer say so at each fork beside a thread; see `warm_up`.
    warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)
    with socket.socket(fileno=int(sys.argv[1])) as line:
        worker = serve(line)
    if not worker:
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from statebook_conformance.child import main as work

    return work()


if __name__ == "__main__":
    sys.exit(main())
