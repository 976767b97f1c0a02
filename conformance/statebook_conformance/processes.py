"""Other processes that open the same namespace: started, paused, killed and asked by the rule."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from statebook_conformance.checkers.history import JsonValue


class ChildError(Exception):
    """A child process ended without its result, or did not answer in time."""


class Child:
    """One process that runs a worker function. Its events and its result come as JSON lines.

    Attributes:
        pid: Its process id.
    """

    def __init__(self, target: str, namespace: str, worker: str, params: Mapping[str, JsonValue]) -> None:
        """Start the process.

        Args:
            target: The target's text.
            namespace: The namespace.
            worker: `module:function`.
            params: Its parameters.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-m", "statebook_conformance.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )
        self.pid = self._process.pid
        self._worker = worker
        self._events: queue.Queue[dict[str, JsonValue] | None] = queue.Queue()
        self._stderr: list[str] = []
        self._readers = (
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        )
        for reader in self._readers:
            reader.start()
        self.tell({"target": target, "namespace": namespace, "worker": worker, "params": dict(params)})

    def _read_events(self) -> None:
        stream = self._process.stdout
        for line in stream or ():
            try:
                self._events.put(cast("dict[str, JsonValue]", json.loads(line)))
            except ValueError:
                self._stderr.append(line)
        self._events.put(None)

    def _read_errors(self) -> None:
        for line in self._process.stderr or ():
            self._stderr.append(line)

    def tell(self, message: Mapping[str, JsonValue]) -> None:
        """Send a message; the worker gets it from `ChildContext.hear`.

        Raises:
            ChildError: The process is gone.
        """
        stream = self._process.stdin
        try:
            if stream is not None:
                stream.write(json.dumps(message) + "\n")
                stream.flush()
        except (BrokenPipeError, ValueError) as error:
            raise ChildError(f"worker {self._worker} is gone: {self.errors()}") from error

    def wait_for(self, event: str, *, timeout_s: float = 30.0) -> dict[str, JsonValue]:
        """Wait for an event of this name; others before it are dropped.

        Args:
            event: The name.
            timeout_s: How long to wait, in seconds.

        Returns:
            The event.

        Raises:
            ChildError: It did not come, the worker failed, or the process ended.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                message = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise ChildError(f"worker {self._worker} sent no {event!r} within {timeout_s:g} s") from None
            if message is None:
                self._events.put(None)
                raise ChildError(f"worker {self._worker} ended without {event!r}: {self.errors()}")
            if message.get("event") == event:
                return message
            if message.get("event") == "failed":
                raise ChildError(f"worker {self._worker} failed: {message.get('error')}")

    def result(self, *, timeout_s: float = 45.0) -> JsonValue:
        """Wait for the worker's return value.

        Raises:
            ChildError: It failed, was killed or did not come back in time.
        """
        return self.wait_for("returned", timeout_s=timeout_s)["value"]

    def pause(self) -> None:
        """Stop the process with SIGSTOP, and wait until it stands."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a stopped process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait until it is gone."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=30)

    def end(self) -> None:
        """Kill the process if it still runs, and close its pipes."""
        self.kill()
        for reader in self._readers:
            reader.join(timeout=10)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def errors(self) -> str:
        """The end of what the process wrote to its error output."""
        return "".join(self._stderr)[-2_000:].strip() or "no error output"
