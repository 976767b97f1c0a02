"""A stage for the model check: real stores on threads, each storage step chosen by a seeded scheduler.

Each actor is a thread with a store of its own, as a process has. It stops before every step of the storage: a read, the
write of one blob, the conditional replacement of the head, a listing, a delete. The scheduler lets one go on at a time,
lets some sleep for long, loses requests and answers, and lets lost requests land late.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence

from honest_storage import HonestStorage

from statebook.atomic import COMMIT_CONFLICT, CommitConflict, HeadRecord, NamePage
from statebook.errors import OutcomeUnknown


class CurtainError(BaseException):
    """Ends an actor at its next step."""


class Actor:
    """One thread that moves only when it is told to."""

    def __init__(self, stage: Stage, play: Callable[[], None]) -> None:
        self.go = threading.Semaphore(0)
        self.over = False
        self.asleep_until = 0
        self.error: BaseException | None = None
        self._stage = stage
        self._play = play
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._stage.here.actor = self
        self.go.acquire()
        try:
            if not self._stage.closing:
                self._play()
        except CurtainError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the scheduler
            self.error = error
        self.over = True
        self._stage.back.release()

    def proceed(self) -> None:
        self.go.release()
        self._stage.back.acquire()
        if self.over:
            self._thread.join()


class Stage(HonestStorage):
    """A storage whose every step waits for the scheduler, and may be lost or late."""

    def __init__(self, seed: int, *, fault_rate: float = 0.2, content_tokens: bool = True) -> None:
        super().__init__(content_tokens=content_tokens)
        self.rng = random.Random(seed)
        self.fault_rate = fault_rate
        self.here = threading.local()
        self.back = threading.Semaphore(0)
        self.closing = False
        self.late: list[Callable[[], object]] = []

    def play(self, plays: Sequence[Callable[[], None]], steps: int) -> None:
        """Run the actors for so many steps, then let all that is under way land."""
        actors = [Actor(self, play) for play in plays]
        for now in range(steps):
            if self.late and self.rng.random() < 0.06:
                self.late.pop(self.rng.randrange(len(self.late)))()
            actor = self.rng.choice(actors)
            if actor.over or actor.asleep_until > now:
                continue
            if self.rng.random() < 0.02:
                actor.asleep_until = now + self.rng.randrange(10, 80)
            actor.proceed()
            if actor.over:
                break
        self.closing = True
        for actor in actors:
            while not actor.over:
                actor.proceed()
        while self.late:
            self.late.pop(0)()
        for actor in actors:
            if actor.error is not None:
                raise actor.error

    def _step(self) -> None:
        actor: Actor | None = getattr(self.here, "actor", None)
        if actor is None:
            return
        self.back.release()
        actor.go.acquire()
        if self.closing:
            raise CurtainError

    def _fault(self) -> str | None:
        playing = getattr(self.here, "actor", None) is not None
        if playing and self.rng.random() < self.fault_rate:
            return self.rng.choice(("before", "after", "delayed"))
        return None

    def read_head(self, scope: str) -> HeadRecord | None:
        self._step()
        return super().read_head(scope)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        for name, blob in (blobs or {}).items():
            self._step()
            self._send(lambda name=name, blob=blob: self.put(scope, name, blob))  # type: ignore[misc]
        self._step()
        token = self._send(lambda: self.apply(scope, expected, head))
        return COMMIT_CONFLICT if token is None else str(token)

    def _send(self, request: Callable[[], object]) -> object:
        fault = self._fault()
        if fault == "delayed":
            self.late.append(request)
        result = None if fault in ("before", "delayed") else request()
        if fault is not None:
            raise OutcomeUnknown(f"lost {fault}")
        return result

    def read_blob(self, scope: str, name: str) -> bytes | None:
        self._step()
        return super().read_blob(scope, name)

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        self._step()
        return super().list_blobs(scope, after, limit)

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        self._step()
        return super().list_scopes(prefix, after, limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        self._step()
        super().delete_blobs(scope, names)
