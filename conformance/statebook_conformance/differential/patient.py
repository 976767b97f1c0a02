"""One thread that makes one call after the other, so that a call that never comes back is an answer and not a hang."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from statebook_conformance.differential.answers import Answer


class PatientCaller:
    """Makes calls in a thread of its own, each with a deadline.

    Attributes:
        hung: Whether a call did not come back; later calls are not made.
    """

    def __init__(self, timeout_s: float) -> None:
        """Start the thread.

        Args:
            timeout_s: How long a call may take, in seconds.
        """
        self.hung = False
        self._timeout_s = timeout_s
        self._calls: queue.SimpleQueue[Callable[[], Answer] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._answers.put(call())
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                self._answers.put(error)

    def call(self, call: Callable[[], Answer]) -> Answer:
        """Make a call and wait for its answer.

        Args:
            call: The call.

        Returns:
            Its answer; one that says so where it did not come back in time.

        Raises:
            BaseException: What the call raised.
        """
        if self.hung:
            return {"hung": "an earlier call never came back"}
        self._calls.put(call)
        try:
            answer = self._answers.get(timeout=self._timeout_s)
        except queue.Empty:
            self.hung = True
            return {"hung": f"no answer within {self._timeout_s:g} s"}
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def end(self) -> None:
        """Let the thread end behind its last call."""
        self._calls.put(None)
