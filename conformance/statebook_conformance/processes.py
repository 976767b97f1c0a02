"""Other processes that open the same namespace: started, paused, killed and asked by the rule."""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from statebook_conformance.spawning import FreshProcess, start_process, wait_until_stopped
from statebook_conformance.target import is_url

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

    def __init__(
        self,
        target: str,
        namespace: str,
        worker: str,
        params: Mapping[str, JsonValue],
        *,
        command: Sequence[str] | None = None,
    ) -> None:
        """Start the process.

        Args:
            target: The target's text.
            namespace: The namespace.
            worker: `module:function`.
            params: Its parameters.
            command: Run this instead, as a fresh interpreter: a tracer and the worker's own words, for example.
        """
        known = target if is_url(target) else None  # what a function opens is its own affair
        self._process = start_process(known, namespace) if command is None else FreshProcess(command)
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
        for line in self._process.stdout:
            try:
                self._events.put(cast("dict[str, JsonValue]", json.loads(line)))
            except ValueError:
                self._stderr.append(line)
        self._events.put(None)

    def _read_errors(self) -> None:
        for line in self._process.stderr:
            self._stderr.append(line)

    def tell(self, message: Mapping[str, JsonValue]) -> None:
        """Send a message; the worker gets it from `ChildContext.hear`.

        Raises:
            ChildError: The process is gone.
        """
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
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
        self._process.signal(signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def resume(self) -> None:
        """Let a stopped process go on."""
        self._process.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait until it is gone."""
        if self._process.running():
            self._process.signal(signal.SIGKILL)
        self._process.wait(30.0)

    def end(self) -> None:
        """Kill the process if it still runs, and close its pipes."""
        self.kill()
        for reader in self._readers:
            reader.join(timeout=10)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                continue

    def errors(self) -> str:
        """The end of what the process wrote to its error output."""
        return "".join(self._stderr)[-2_000:].strip() or "no error output"
