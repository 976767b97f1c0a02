"""A hostile storage under core's journal: lost replies, lost and late requests, pauses, in a seeded order.

It wraps a real AtomicJournalStorage and shows every handle as a client behind a bad network. As object stores do, it
writes the blobs of a commit first and the head in a second step, so that anything may happen between the two.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from threading import Lock
from typing import Final

import msgspec

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities
from statebook.errors import JournalCorrupt, OutcomeUnknown
from statebook_conformance.together import HungError


class Fate(Enum):
    """What becomes of one commit.

    `FAIR`: applied if its token is current, and answered. `BEFORE`: never applied, the client sees `OutcomeUnknown`.
    `AFTER`: the same as fair, but the answer is lost. `LATE`: the answer is `OutcomeUnknown`, and the request lands at
    some later time, if its token is still the current one then.
    """

    FAIR = "fair"
    BEFORE = "before"
    AFTER = "after"
    LATE = "late"


class Commit(msgspec.Struct, frozen=True):
    """A request to commit, as it was sent.

    Attributes:
        scope: The scope.
        expected: The token that it is conditional on.
        head: The head.
        blobs: The names of its blobs.
    """

    scope: str
    expected: str | None
    head: bytes
    blobs: tuple[str, ...]


def _pass(_: str) -> None:
    """No gate: every step goes on at once."""


def _fair() -> Fate:
    return Fate.FAIR


class Adversary:
    """The side of a hostile storage that all its clients share.

    Attributes:
        sent: Every commit that a client sent, in order.
        late: The commits that are still on their way.
        landed: How many of these were applied when they landed.
        lost: How many answers were `OutcomeUnknown`.
        reads: How many heads were read.
        blob_reads: How many blobs were read.
        deleted: The names of the blobs that clients deleted.
    """

    def __init__(self, storage: AtomicJournalStorage) -> None:
        """Stand before a storage, which stays the caller's to close."""
        self.storage = storage
        self.sent: list[Commit] = []
        self.late: list[Commit] = []
        self.landed = 0
        self.lost = 0
        self.reads = 0
        self.blob_reads = 0
        self.deleted: list[str] = []
        self._waiting: dict[tuple[str, str], bytes] = {}
        self._lock = Lock()

    def client(self, *, gate: Callable[[str], None] = _pass, fate: Callable[[], Fate] = _fair) -> AtomicJournalStorage:
        """A handle of one client.

        Args:
            gate: Called with the step's name before each step; may wait, and may do something of its own.
            fate: Decides what becomes of each commit.

        Returns:
            The handle; closing it closes nothing else.
        """
        return _Client(self, gate, fate)

    def land(self, place: int = 0) -> bool:
        """Let a late request land.

        Args:
            place: Which one.

        Returns:
            Whether it was applied: its token was still the current one.
        """
        with self._lock:
            request = self.late.pop(place)
        applied = not isinstance(self.apply(request), CommitConflict)
        self.landed += applied
        return applied

    def apply(self, request: Commit) -> str | CommitConflict:
        """Commit with those of its blobs that nobody has deleted since they were written."""
        with self._lock:
            blobs = {
                name: self._waiting[request.scope, name]
                for name in request.blobs
                if (request.scope, name) in self._waiting
            }
        answer = self.storage.commit(request.scope, request.expected, request.head, blobs)
        if not isinstance(answer, CommitConflict):
            with self._lock:
                for name in blobs:
                    self._waiting.pop((request.scope, name), None)
        return answer

    def write_blobs(self, scope: str, blobs: Mapping[str, bytes]) -> None:
        """Write the blobs of a commit, before its head (ATOM-3, ATOM-4)."""
        for name, content in blobs.items():
            there = self.read_blob(scope, name)
            if there is not None and there != content:
                raise JournalCorrupt(f"blob {name!r} is there with other content", what="blob", key=scope)
            if there is None:
                with self._lock:
                    self._waiting[scope, name] = content

    def read_blob(self, scope: str, name: str) -> bytes | None:
        """Read a blob, of a commit under way too."""
        with self._lock:
            waiting = self._waiting.get((scope, name))
        return self.storage.read_blob(scope, name) if waiting is None else waiting

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        """List the blobs, those of commits under way too."""
        page = self.storage.list_blobs(scope, after, limit)
        with self._lock:
            waiting = [name for where, name in self._waiting if where == scope and (after is None or name > after)]
        names = sorted({*page.names, *waiting})
        return NamePage(tuple(names[:limit]), page.has_more or len(names) > limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        """Delete blobs, those of commits under way too."""
        with self._lock:
            self.deleted.extend(names)
            for name in names:
                self._waiting.pop((scope, name), None)
        self.storage.delete_blobs(scope, names)


class _Client(AtomicJournalStorage):
    """One client's handle of an adversary."""

    def __init__(self, adversary: Adversary, gate: Callable[[str], None], fate: Callable[[], Fate]) -> None:
        self._adversary = adversary
        self._gate = gate
        self._fate = fate

    @property
    def capabilities(self) -> Capabilities:
        """The storage's."""
        return self._adversary.storage.capabilities

    def read_head(self, scope: str) -> HeadRecord | None:
        """Read, after the gate."""
        self._gate("read_head")
        self._adversary.reads += 1
        return self._adversary.storage.read_head(scope)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        """Write the blobs, then the head, and meet the fate."""
        adversary = self._adversary
        request = Commit(scope, expected, head, tuple(blobs or {}))
        adversary.sent.append(request)
        if blobs:
            self._gate("write_blobs")
            adversary.write_blobs(scope, blobs)
        self._gate("commit with blobs" if blobs else "commit")
        fate = self._fate()
        if fate is Fate.LATE:
            adversary.late.append(request)
        if fate in (Fate.FAIR, Fate.AFTER):
            answer = adversary.apply(request)
            if fate is Fate.FAIR:
                return answer
        adversary.lost += 1
        raise OutcomeUnknown("the adversary kept the answer", key=scope)

    def read_blob(self, scope: str, name: str) -> bytes | None:
        """Read, after the gate."""
        self._gate("read_blob")
        self._adversary.blob_reads += 1
        return self._adversary.read_blob(scope, name)

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        """List, after the gate."""
        self._gate("list_blobs")
        return self._adversary.list_blobs(scope, after, limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        """Delete, after the gate."""
        self._gate("delete_blobs")
        self._adversary.delete_blobs(scope, names)

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        """List, after the gate."""
        self._gate("list_scopes")
        return self._adversary.storage.list_scopes(prefix, after, limit)

    def delete_head(self, scope: str, expected: str) -> bool:
        """Remove, after the gate."""
        self._gate("delete_head")
        return self._adversary.storage.delete_head(scope, expected)

    def close(self) -> None:
        """Nothing of its own to close."""


def scripted(*fates: Fate) -> Callable[[], Fate]:
    """Fates one after the other, then fair ones."""
    script = iter(fates)
    return lambda: next(script, Fate.FAIR)


def once(step: str, action: Callable[[], object]) -> Callable[[str], None]:
    """A gate that does something before the first step whose name begins so: while a client is paused there."""
    actions = [action]

    def gate(name: str) -> None:
        if name.startswith(step) and actions:
            actions.pop()()

    return gate


def conflict_once(storage: AtomicJournalStorage, scope: str) -> Callable[[str], None]:
    """A gate that writes the head again before the first commit, as a barrier of somebody else does: it must retry."""

    def write_again() -> None:
        record = storage.read_head(scope)
        if record is not None and storage.commit(scope, record.token, record.data) == COMMIT_CONFLICT:
            raise AssertionError("nobody else writes this scope")

    return once("commit", write_again)


# --------------------------------------------------------------------------------------------------------- schedules

TURN_TIMEOUT_S: Final = 60.0
"""How long an actor waits for its turn before the schedule counts as hung."""


DANGER: Final = 10
"""So much more often is an actor stopped where it has decided something and is about to write or delete."""


class _Actor:
    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self.name = name
        self.call = call
        self.turn = threading.Semaphore(0)
        self.resumes = 0
        self.done = False
        self.error: BaseException | None = None


class Scheduler:
    """Runs actors in threads of which exactly one goes on at a time; a seeded choice at each step says which.

    Attributes:
        step: How many steps have been taken: the clock of the schedule.
        pauses: How many times an actor was stopped for long.
    """

    def __init__(self, rng: random.Random, *, steps: int, pause_rate: float, between: Callable[[], None]) -> None:
        """Make a schedule.

        Args:
            rng: The only source of choice.
            steps: After so many steps `over` is True and nobody is paused any more, so that actors come to an end.
            pause_rate: How often an actor is stopped for 10 to 80 steps of the others.
            between: Called before each step.
        """
        self._rng = rng
        self._steps = steps
        self._pause_rate = pause_rate
        self._between = between
        self._actors: tuple[_Actor, ...] = ()
        self._running: _Actor | None = None
        self._finished = threading.Event()
        self._favoured = ("", 0)
        self.step = 0
        self.pauses = 0
        self.alone = False

    @property
    def over(self) -> bool:
        """Whether actors should begin nothing new."""
        return self.step >= self._steps or any(actor.error is not None for actor in self._actors)

    @property
    def running(self) -> str:
        """Who is running."""
        return "" if self._running is None else self._running.name

    def favour(self, name: str, steps: int) -> None:
        """Let one actor go on alone for some steps, unless it is stopped or done: what a hostile scheduler does."""
        self._favoured = (name, self.step + steps)

    def gate(self, step: str) -> None:
        """A step of the actor that is running: the next one to go on is chosen, and the others wait."""
        me = self._running
        if me is None or self.alone:
            return
        self.step += 1
        self._between()
        rate = self._pause_rate * (DANGER if step in ("commit with blobs", "delete_blobs") else 1)
        if not self.over and self._rng.random() < rate:
            me.resumes = self.step + self._rng.randrange(10, 80)
            self.pauses += 1
        chosen = self._choose()
        if chosen is not None and chosen is not me:
            self._running = chosen
            chosen.turn.release()
            if not me.turn.acquire(timeout=TURN_TIMEOUT_S):
                raise HungError(f"{me.name} was never given its turn again")

    def run(self, actors: Iterable[tuple[str, Callable[[], None]]]) -> None:
        """Run actors to their end.

        Args:
            actors: Names and functions; all their storage calls must go through `gate`.

        Raises:
            HungError: One of them did not come back.
            BaseException: The first error of an actor.
        """
        self._actors = tuple(_Actor(name, call) for name, call in actors)
        threads = [threading.Thread(target=self._play, args=(actor,), daemon=True) for actor in self._actors]
        for each in threads:
            each.start()
        self._hand_on()
        finished = self._finished.wait(TURN_TIMEOUT_S)
        for actor in self._actors:
            if actor.error is not None:
                raise actor.error
        if not finished:
            raise HungError(f"the schedule stands still at step {self.step}")
        for each in threads:
            each.join(TURN_TIMEOUT_S)

    def _play(self, actor: _Actor) -> None:
        if not actor.turn.acquire(timeout=TURN_TIMEOUT_S):
            return
        try:
            actor.call()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that runs the schedule
            actor.error = error
        finally:
            actor.done = True
            self._hand_on()

    def _hand_on(self) -> None:
        self._running = self._choose()
        if self._running is None:
            self._finished.set()
        else:
            self._running.turn.release()

    def _choose(self) -> _Actor | None:
        living = [actor for actor in self._actors if not actor.done]
        if not living:
            return None
        ready = living if self.over else [actor for actor in living if actor.resumes <= self.step]
        if not ready:
            first = min(living, key=lambda actor: actor.resumes)
            self.step = first.resumes
            return first
        name, until = self._favoured
        if self.step < until:
            ready = [actor for actor in ready if actor.name == name] or ready
        return self._rng.choice(ready)
