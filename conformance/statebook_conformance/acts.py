"""One call of each kind, made again and again while the network or the server fails, and judged each time (ERR-2).

An act prepares something new, makes its call, and judges the answer by what an observer sees who connects past the
faults: an acknowledged call is there, a refused one is not, an unknown one is there whole or not at all, and made again
it comes to the same. Judging ends with the same call made to its end, so the next attempt begins on firm ground, and
the handle that met the fault is the one that has to go on (ERR-4).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeAlias, TypeVar

import msgspec

from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError
from statebook.model import AppendRequest, Batch, ExportCursor, Receipt, WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.past import Observer
from statebook_conformance.scenes import make_batch, thread

T = TypeVar("T")
Answer: TypeAlias = object
PATIENCE_S: Final = 30.0
"""How long a call is repeated that is refused after a fault, before the store counts as broken, in seconds."""


class World:
    """The handles of acts, which meet the faults, and an observer, who does not.

    Attributes:
        ctx: The rule's context.
        past: The observer.
        journal: The handle that meets the faults.
        state: The same for state.
    """

    def __init__(self, ctx: Context, observer: Observer) -> None:
        """Open the handles.

        Args:
            ctx: The rule's context.
            observer: The observer.
        """
        self.ctx = ctx
        self.past = observer
        self.journal, self.state = ctx.open_journal(), ctx.open_state()

    def until_known(self, call: Callable[[], Answer], what: str) -> Answer:
        """Make a call until it is answered: what was refused is made again, and what is unknown too (SETTLE-1).

        Raises:
            RuleFailure: It is not answered in time.
        """
        return until_known(self.ctx, call, f"{what} after a fault", patience_s=PATIENCE_S)


def until_known(ctx: Context, call: Callable[[], T], what: str, *, patience_s: float) -> T:
    """Make a call until it is answered: what was refused is made again, and what is unknown too (SETTLE-1).

    Args:
        ctx: The rule's context.
        call: The call.
        what: The call in words, for the fact.
        patience_s: For how long it is made again, in seconds.

    Returns:
        Its answer.

    Raises:
        RuleFailure: It is not answered in time.
    """
    deadline = time.monotonic() + patience_s
    pause, last = 0.0, ""
    while time.monotonic() < deadline:
        try:
            return call()
        except (BackendUnavailable, OutcomeUnknown) as error:
            last = f"{type(error).__name__}: {error}"
            time.sleep(pause)
            pause = min(1.0, pause * 2 + 0.01)
    return ctx.fail(f"{what} is refused for {patience_s:g} s: {last}")


class Act(ABC):
    """One kind of call.

    Attributes:
        name: What it is called in facts.
        mark: Bytes that its call sends to the server exactly once, or empty.
    """

    name: ClassVar[str]

    def __init__(self, world: World) -> None:
        """Take the world; makes calls, so faults come later."""
        self.world = world
        self.ctx = world.ctx
        self.number = 0
        self.mark = b""

    @abstractmethod
    def prepare(self) -> None:
        """Make ready for another call. Makes no call itself."""

    @abstractmethod
    def call(self) -> Answer:
        """The call."""

    @abstractmethod
    def applied(self) -> bool | None:
        """Whether the observer sees the call's effect, whole; None where only the store can tell."""

    @abstractmethod
    def finish(self, before: bool | None) -> None:
        """Make the same call to its end, and check that its effect is there once.

        Args:
            before: What the observer saw before: True, False, or None for unknown.
        """

    def attempt(self, where: str) -> bool:
        """Make the call under whatever fault is planned, and judge the answer.

        Args:
            where: The fault, for facts.

        Returns:
            Whether the call was answered with success.
        """
        said: bool | None
        try:
            self.call()
        except OutcomeUnknown:
            self.ctx.saw("unknown")
            said = None
        except BackendUnavailable:
            self.ctx.saw("refused")
            said = False
        except StatebookError as error:
            self.ctx.fail(f"{self.name}, {where}: {type(error).__name__} instead of an outcome: {error}")
        else:
            said = True
        return self.judge(said, where)

    def judge(self, said: bool | None, where: str) -> bool:
        """Judge an answer: True for success, False for refused, None for unknown. Returns whether it was success."""
        seen = self.applied()
        if said is not None and seen is not None:
            words = "acknowledged" if said else "refused as not applied"
            self.ctx.equal(seen, said, f"{self.name}, {where}: {words}; whether its effect is there")
        self.finish(seen if seen is not None else said)
        return said is True


class Appending(Act):
    """`append`, settled now by sending again and now by `settle`."""

    name = "append"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.key = thread("appending")
        self.claim: WriterClaim = world.journal.claim(self.key, "writer")
        self.base = self.claim.last_seq
        self.batch: Batch = make_batch("none")

    def prepare(self) -> None:
        self.number += 1
        self.mark = b"appended number %d." % self.number
        first, second = make_batch(f"b{self.number}", 2).events
        marked = msgspec.structs.replace(second, payload=b'{"text":"%s"}' % self.mark)
        self.batch = Batch(f"b{self.number}", (first, marked))

    def call(self) -> Answer:
        return self.world.journal.append(self.claim, self.batch, self.base)

    def applied(self) -> bool:
        found = [event.event_id for event in self.world.past.events(self.key, self.base, 10)]
        wanted = [event.event_id for event in self.batch.events]
        self.ctx.check(found in ([], wanted), f"behind seq {self.base} there is {found}, sent was {wanted}")
        return bool(found)

    def finish(self, before: bool | None) -> None:
        journal, there = self.world.journal, bool(before)
        if self.number % 2:
            settled = self.world.until_known(
                lambda: journal.settle(self.claim, self.batch.batch_id, self.base), "settle"
            )
            self.ctx.equal(settled is not None, there, f"whether settle finds {self.batch.batch_id}")
        receipt = self.world.until_known(self.call, "append")
        if not isinstance(receipt, Receipt):
            self.ctx.fail(f"append returned {receipt!r}")
        self.ctx.equal(receipt.first_seq, self.base + 1, f"where {self.batch.batch_id} stands")
        self.ctx.check(self.applied(), f"{self.batch.batch_id} is not there after it was sent again")
        self.base = receipt.last_seq


class Grouping(Act):
    """`append_many` of three threads: each has its own answer."""

    name = "append_many"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.keys = tuple(thread(f"group-{number}") for number in range(3))
        self.claims = tuple(world.journal.claim(key, "writer") for key in self.keys)
        self.bases = [claim.last_seq for claim in self.claims]
        self.requests: tuple[AppendRequest, ...] = ()

    def prepare(self) -> None:
        self.number += 1
        self.requests = tuple(
            AppendRequest(claim, make_batch(f"g{self.number}", 2), base)
            for claim, base in zip(self.claims, self.bases, strict=True)
        )

    def call(self) -> Answer:
        return self.world.journal.append_many(self.requests)

    def applied(self) -> None:
        return None

    def attempt(self, where: str) -> bool:
        outcomes: Sequence[object]
        try:
            outcomes = self.world.journal.append_many(self.requests)
        except BackendUnavailable as error:
            outcomes = [error] * len(self.requests)
        except StatebookError as error:
            self.ctx.fail(f"{self.name}, {where}: raised {type(error).__name__} for all of its requests: {error}")
        for key, base, outcome in zip(self.keys, self.bases, outcomes, strict=True):
            found = len(self.world.past.events(key, base, 10))
            self.ctx.check(found in (0, 2), f"{found} events of a batch of 2 are there behind seq {base} ({where})")
            if isinstance(outcome, Receipt):
                self.ctx.equal(found, 2, f"append_many, {where}: acknowledged; events that are there")
            elif isinstance(outcome, BackendUnavailable):
                self.ctx.equal(found, 0, f"append_many, {where}: refused; events that are there")
                self.ctx.saw("refused")
            elif isinstance(outcome, OutcomeUnknown):
                self.ctx.saw("unknown")
            else:
                self.ctx.fail(f"append_many, {where}: {outcome!r} instead of an outcome")
        self.finish(None)
        return all(isinstance(outcome, Receipt) for outcome in outcomes)

    def finish(self, before: bool | None) -> None:
        for place, request in enumerate(self.requests):
            answer = self.world.until_known(
                lambda request=request: self.world.journal.append(request.claim, request.batch, request.base_seq),  # type: ignore[misc]
                "append",
            )
            if not isinstance(answer, Receipt):
                self.ctx.fail(f"append returned {answer!r}")
            self.ctx.equal(answer.first_seq, request.base_seq + 1, "where a batch of a group stands")
            self.bases[place] = answer.last_seq


class Claiming(Act):
    """`claim`: after a lost answer the next claim works, and its epoch is greater than any before."""

    name = "claim"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.key = thread("claiming")
        self.epoch = world.journal.claim(self.key, "writer 0").epoch

    def prepare(self) -> None:
        self.number += 1

    def call(self) -> Answer:
        return self.world.journal.claim(self.key, f"writer {self.number}")

    def applied(self) -> bool:
        head = self.world.past.head(self.key)
        return head is not None and head.epoch > self.epoch

    def finish(self, before: bool | None) -> None:
        seen = self.world.past.head(self.key)
        claim = self.world.until_known(self.call, "claim")
        if not isinstance(claim, WriterClaim) or seen is None:
            self.ctx.fail(f"claim returned {claim!r}, the head was {seen!r}")
        self.ctx.check(claim.epoch > seen.epoch, f"epoch {claim.epoch} was given after {seen.epoch} was seen")
        now = self.world.past.head(self.key)
        self.ctx.equal(None if now is None else now.epoch, claim.epoch, "the epoch in the head")
        self.epoch = claim.epoch


class Advancing(Act):
    """`advance_cursor`: retrying is harmless (CURSOR-3)."""

    name = "advance_cursor"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.key = thread("advancing")
        claim = world.journal.claim(self.key, "writer")
        world.journal.append(claim, make_batch("all", 400), claim.last_seq)
        self.cursor: ExportCursor = world.journal.open_cursor(self.key, "exporter")

    def prepare(self) -> None:
        self.number += 1

    def call(self) -> Answer:
        return self.world.journal.advance_cursor(self.cursor, self.number)

    def applied(self) -> None:
        return None

    def finish(self, before: bool | None) -> None:
        moved = self.world.until_known(self.call, "advance_cursor")
        if not isinstance(moved, ExportCursor):
            self.ctx.fail(f"advance_cursor returned {moved!r}")
        self.ctx.equal(moved.acked_seq, self.number, "where the cursor stands after it was advanced again")
        self.cursor = moved


class Trimming(Act):
    """`trim`."""

    name = "trim"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.key = thread("trimming")
        claim = world.journal.claim(self.key, "writer")
        self.base = claim.last_seq
        for number in range(100):
            self.base = world.journal.append(claim, make_batch(f"b{number}", 4), self.base).last_seq
        self.first = 1

    def prepare(self) -> None:
        self.number += 1
        self.first = 1 + 4 * self.number

    def call(self) -> Answer:
        return self.world.journal.trim(self.key, self.first)

    def applied(self) -> bool:
        head = self.world.past.head(self.key)
        if head is None:
            self.ctx.fail("the journal is gone")
        self.ctx.check(head.first_seq <= self.first, f"trimmed to {head.first_seq}, asked was {self.first}")
        return head.first_seq == self.first

    def finish(self, before: bool | None) -> None:
        self.world.until_known(self.call, "trim")
        left = self.world.past.events(self.key, self.first - 1, 1_000)
        self.ctx.equal(len(left), self.base - self.first + 1, "events that a trim has left")
