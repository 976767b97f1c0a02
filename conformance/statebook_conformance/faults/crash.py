"""Processes that are killed with SIGKILL: at a numbered point of their storage calls, or soon after an answer.

A nursery is one worker process that forks a victim for each kill, so that a kill costs milliseconds. It opens no store
itself: what a victim uses, it opens itself, and dies with.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from statebook.atomic import AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook_conformance.mutants.forward import ForwardAtomic

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue

VICTIM_S: Final = 30.0
"""How long a victim may take to the answer after which it is killed, in seconds."""

Answer: TypeAlias = "Mapping[str, JsonValue]"
Say: TypeAlias = "Callable[[Answer], None]"
"""How a victim tells what was acknowledged to it."""


class CrashPoint:
    """Kills this process at the n-th step, as a loss of power would: nothing is flushed, nothing is closed.

    Attributes:
        step: How many steps were taken.
    """

    def __init__(self, number: int) -> None:
        """Choose the step; 0 for never."""
        self.number = number
        self.step = 0

    def reach(self) -> None:
        """Take a step."""
        self.step += 1
        if self.step == self.number:
            os.kill(os.getpid(), signal.SIGKILL)


class CrashingAtomic(ForwardAtomic):
    """An atomic storage with a crash point before and after each call that writes, and before each that reads."""

    def __init__(self, inner: AtomicJournalStorage, point: CrashPoint) -> None:
        """Wrap a storage."""
        super().__init__(inner)
        self.point = point

    def read_head(self, scope: str) -> HeadRecord | None:
        """Read, after a step."""
        self.point.reach()
        return super().read_head(scope)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        """Commit, between two steps."""
        self.point.reach()
        answer = super().commit(scope, expected, head, blobs)
        self.point.reach()
        return answer

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        """List, after a step."""
        self.point.reach()
        return super().list_blobs(scope, after, limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        """Delete, between two steps."""
        self.point.reach()
        super().delete_blobs(scope, names)
        self.point.reach()


class Victim:
    """A forked process that runs a function, and tells what was acknowledged to it."""

    def __init__(self, run: Callable[[Say], None]) -> None:
        """Fork and run.

        Args:
            run: Runs in the fork; gets the function with which it tells its answers.
        """
        self._pipe, writing = os.pipe()
        self._rest = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._pipe)
            _die_after(run, writing)
        os.close(writing)

    def answers(self, count: int, *, timeout_s: float = VICTIM_S) -> tuple[Answer, ...]:
        """Wait for so many answers, or for the end of the victim.

        Args:
            count: How many.
            timeout_s: How long to wait at most, in seconds.

        Returns:
            The answers that are there.

        Raises:
            TimeoutError: They did not come.
        """
        deadline = time.monotonic() + timeout_s
        while self._rest.count(b"\n") < count:
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the victim gave {self._rest.count(10)} of {count} answers in {timeout_s:g} s")
            data = os.read(self._pipe, 65_536)
            if not data:
                break
            self._rest += data
        return tuple(cast("Answer", json.loads(line)) for line in self._rest.split(b"\n")[:-1])

    def kill(self) -> tuple[tuple[Answer, ...], bool]:
        """Kill it where it still runs, and wait until it is gone.

        Returns:
            All its answers, and whether it died by SIGKILL.
        """
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self, *, timeout_s: float = VICTIM_S) -> tuple[tuple[Answer, ...], bool]:
        """Wait until it is gone; kill it where it takes too long.

        Args:
            timeout_s: How long to wait at most, in seconds.

        Returns:
            All its answers, and whether it died by SIGKILL.
        """
        try:
            answers = self.answers(1 << 30, timeout_s=timeout_s)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(self.pid, 0)
            os.close(self._pipe)
        return answers, os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _die_after(run: Callable[[Say], None], writing: int) -> None:
    """Run in the fork, and leave without the exit handlers of the process that was forked."""

    def say(answer: Answer) -> None:
        os.write(writing, json.dumps(answer).encode() + b"\n")

    code = 1
    try:
        run(say)
        code = 0
    except Exception as error:  # noqa: BLE001 - told to the nursery, which fails with it
        say({"failed": f"{type(error).__name__}: {error}"[:2_000]})
    finally:
        os._exit(code)
