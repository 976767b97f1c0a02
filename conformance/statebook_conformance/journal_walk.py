"""One random walk over a journal, side by side with the model: each step is done by both, and the answers compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from statebook.errors import StatebookError, WriterBusy, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import ANY, NONE, Batch, Expect, JournalHead, Receipt, WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.journal_model import Held, JournalModel, Placed
from statebook_conformance.writing import batch, event

STEPS: Final = (
    "nothing",
    "claim",
    "append",
    "append",
    "append",
    "append",
    "append again",
    "append changed",
    "append overlapping",
    "heartbeat",
    "release",
    "settle",
    "read",
    "read",
    "trim",
    "trim",
    "reopen",
    "claim free",
    "claim replacing",
    "delete",
)
"""The kinds of steps, the frequent ones several times; the ones that a failure is reduced to come first."""


class Step(msgspec.Struct, frozen=True):
    """A step; which claim, batch or base is meant follows from the numbers and what there is.

    Attributes:
        kind: One of `STEPS`.
        who: Chooses a claim.
        what: Chooses a batch, a size, or a seq.
        where: Chooses a base or a limit.
    """

    kind: str
    who: int
    what: int
    where: int


class Walk:
    """A walk over one thread.

    Attributes:
        told: What was done, in words.
    """

    def __init__(self, ctx: Context, key: ThreadKey) -> None:
        """Begin where nothing was written."""
        self._ctx = ctx
        self._key = key
        self._journal = ctx.journal
        self._other = ctx.journal
        self._model = JournalModel()
        self._claims: list[tuple[WriterClaim, Held]] = []
        self._sent: list[tuple[Batch, int]] = []
        self._head: JournalHead | None = None
        self._generation = 0
        self.told: list[str] = []

    def use(self, other: ThreadJournalStore) -> None:
        """Give a second handle, which `reopen` changes to."""
        self._other = other

    def step(self, step: Step) -> None:
        """Do one step with both, and compare the answers and the heads."""
        does: dict[str, Callable[[Step], bool | None]] = {
            "claim": self._claim,
            "claim free": self._claim,
            "claim replacing": self._claim,
            "append": self._append,
            "append again": self._append,
            "append changed": self._append,
            "append overlapping": self._append,
            "heartbeat": self._heartbeat,
            "release": self._release,
            "settle": self._settle,
            "read": self._read,
            "trim": self._trim,
            "delete": self._delete,
            "reopen": self._reopen,
        }
        call = does.get(step.kind)
        if call is None:
            return
        wrote = call(step)
        if wrote is not None:
            self._compare(wrote=wrote)

    def finish(self) -> None:
        """Read everything at the end."""
        first = self._model.first - 1 if self._model.alive else 0
        page = self._journal.read_after(self._key, first, 10_000)
        found = [(e.seq, e.event_id, e.payload) for e in page.events]
        wanted = self._model.events(first) if self._model.alive else []
        self._ctx.equal(found, wanted, "the events at the end")
        self._ctx.equal(self._journal.verify(self._key, deep=True).findings, (), "findings at the end")

    def _compare(self, *, wrote: bool) -> None:
        model, head = self._model, self._journal.head(self._key)
        before, self._head = self._head, head
        if head is None or not model.alive:
            self._ctx.equal(head is not None, model.alive, "whether there is a journal")
            return
        found = (head.epoch, head.first_seq, head.last_seq, head.checkpoint_seq)
        self._ctx.equal(found, (model.epoch, model.first, model.last, model.checkpoint), "epoch, range and checkpoint")
        holder = next((claim.info for claim, held in self._claims if held == model.holder), None)
        self._ctx.equal(head.claim, holder, "who holds the journal")
        if wrote:
            self._ctx.check(head.generation > self._generation, "a write did not move the generation")
        else:
            self._ctx.equal(head, before, "the head after a call that writes nothing")
        self._generation = head.generation

    # -------------------------------------------------------------------------------------------------------- steps

    def _tell(self, words: str) -> None:
        self.told.append(words)

    def _answer(self, call: Callable[[], object]) -> tuple[str, object]:
        """The name of an answer, and the answer."""
        try:
            answer = call()
        except StatebookError as error:
            return type(error).__name__, error
        return "ok", answer

    def _claim(self, step: Step) -> bool:
        seen = None if self._head is None else self._head.claim
        replacing: Literal[Expect.ANY, Expect.NONE] = NONE if step.kind == "claim free" else ANY
        wanted: Held | str = "none" if step.kind == "claim free" else "any"
        name = f"writer-{step.who}"
        if step.kind == "claim replacing" and self._claims:
            claim, held = self._claims[-1 - step.what % len(self._claims)]
            self._tell(f"claim by {name} replacing epoch {held.epoch}")
            found, answer = self._answer(lambda: self._journal.claim(self._key, name, replacing=claim.info))
            wanted = held
        else:
            self._tell(f"{step.kind} by {name}")
            found, answer = self._answer(lambda: self._journal.claim(self._key, name, replacing=replacing))
        last = self._model.last if self._model.alive else 0
        expected = self._model.claim(wanted)
        if isinstance(expected, str):
            self._ctx.equal(found, expected, f"the answer to {self.told[-1]}")
            self._ctx.equal(answer.holder if isinstance(answer, WriterBusy) else None, seen, "the holder in WriterBusy")
            return False
        if not isinstance(answer, WriterClaim):
            self._ctx.fail(f"{self.told[-1]}: expected a claim, got {answer!r}")
        self._ctx.equal((answer.epoch, answer.last_seq), (expected.epoch, last), "epoch and last seq of the claim")
        known = {claim.journal_id: held.incarnation for claim, held in self._claims}
        incarnation = known.get(answer.journal_id)
        ids = {held.incarnation: claim.journal_id for claim, held in self._claims}
        self._ctx.equal(ids.get(expected.incarnation, answer.journal_id), answer.journal_id, "the journal's identity")
        self._ctx.check(incarnation in (None, expected.incarnation), "a new incarnation has an old identity")
        self._claims.append((answer, expected))
        return True

    def _held(self, step: Step) -> tuple[WriterClaim, Held] | None:
        """One of the claims that were given out, mostly a newer one."""
        return self._claims[-1 - step.who % len(self._claims)] if self._claims else None

    def _chosen(self, step: Step) -> tuple[Batch, int]:
        """What an append sends, and the base that belongs to it."""
        number = len(self._sent)
        last = self._model.last
        if step.kind == "append" or not self._sent:
            size = step.what % 3 + 1
            new = batch(f"batch-{number}", size, checkpoint=size - 1 if step.what in (5, 7) else None)
            base = max(0, last + (0, 0, 0, 0, 0, 0, 1, 1, -1, -1)[step.where])
            self._sent.append((new, base))
            return new, base
        sent, own = self._sent[step.what % len(self._sent)]
        base = (own, last, 0, own)[step.where % 4]
        if step.kind == "append changed":
            return Batch(sent.batch_id, (event(sent.events[0].event_id, b'"changed"'), *sent.events[1:])), base
        there = self._model.events(0)
        if step.kind == "append overlapping" and there:
            overlap = there[step.what % len(there)][1]
            return Batch(f"overlap-{number}", (event(f"fresh-{number}"), event(overlap))), base
        return sent, base

    def _append(self, step: Step) -> bool | None:
        held = self._held(step)
        if held is None:
            return None
        sent, base = self._chosen(step)
        claim, mine = held
        words = f"{step.kind} {sent.batch_id} ({len(sent.events)} events) behind {base} under epoch {mine.epoch}"
        self._tell(words)
        found, answer = self._answer(lambda: self._journal.append(claim, sent, base))
        expected, place = self._model.append(mine, sent, base)
        if expected in ("committed", "replayed") and place is not None:
            self._receipt(answer, place, replayed=expected == "replayed")
            return expected == "committed"
        self._ctx.equal(found, expected, f"the answer to {words}")
        if isinstance(answer, WriterFenced):
            self._ctx.equal(answer.committed is not None, place is not None, "whether WriterFenced carries a receipt")
            if place is not None:
                self._receipt(answer.committed, place, replayed=True)
        return False

    def _receipt(self, answer: object, place: Placed, *, replayed: bool) -> None:
        if not isinstance(answer, Receipt):
            self._ctx.fail(f"expected the receipt of {place.batch.batch_id}, got {answer!r}")
        found = (answer.batch_id, answer.first_seq, answer.last_seq, answer.epoch, answer.replayed)
        wanted = (place.batch.batch_id, place.first, place.last, place.epoch, replayed)
        self._ctx.equal(found, wanted, "the receipt")

    def _heartbeat(self, step: Step) -> bool | None:
        held = self._held(step)
        if held is None:
            return None
        self._tell(f"heartbeat of epoch {held[1].epoch}")
        found, _ = self._answer(lambda: self._journal.heartbeat(held[0]))
        expected = self._model.heartbeat(held[1])
        self._ctx.equal(found, expected, f"the answer to the {self.told[-1]}")
        return expected == "ok"

    def _release(self, step: Step) -> bool | None:
        held = self._held(step)
        if held is None:
            return None
        self._tell(f"release of epoch {held[1].epoch}")
        found, _ = self._answer(lambda: self._journal.release(held[0]))
        expected = self._model.release(held[1])
        self._ctx.equal(found, "ok" if expected == "harmless" else expected, f"the answer to the {self.told[-1]}")
        return expected == "ok"

    def _settle(self, step: Step) -> bool | None:
        held = self._held(step)
        if held is None:
            return None
        batch_id, base = f"never-{step.what}", max(0, self._model.last - step.where)
        if self._sent and step.what % 2:
            sent, base = self._sent[step.what % len(self._sent)]
            batch_id = sent.batch_id
        self._tell(f"settle {batch_id} behind {base} under epoch {held[1].epoch}")
        found, answer = self._answer(lambda: self._journal.settle(held[0], batch_id, base))
        expected, place = self._model.settle(held[1], batch_id, base)
        if place is not None:
            self._receipt(answer, place, replayed=True)
            return False
        self._ctx.equal(found, "ok" if expected == "absent" else expected, f"the answer to {self.told[-1]}")
        if expected == "absent":
            self._ctx.equal(answer, None, f"the answer to {self.told[-1]}")
        return expected == "absent"

    def _read(self, step: Step) -> bool:
        after, limit = step.what, step.where + 1
        self._tell(f"read {limit} behind {after}")
        found, answer = self._answer(lambda: self._page(after, limit))
        expected = self._model.read(after)
        self._ctx.equal(found, expected, f"the answer to {self.told[-1]}")
        if expected == "ok":
            there = self._model.events(after) if self._model.alive else []
            last = self._model.last if self._model.alive else 0
            self._ctx.equal(answer, (there[:limit], len(there) > limit, last), f"the page of {self.told[-1]}")
        return False

    def _page(self, after: int, limit: int) -> tuple[list[tuple[int, str, bytes]], bool, int]:
        page = self._journal.read_after(self._key, after, limit)
        return [(e.seq, e.event_id, e.payload) for e in page.events], page.has_more, page.last_seq

    def _trim(self, step: Step) -> bool:
        self._tell(f"trim before {step.what}")
        found, _ = self._answer(lambda: self._journal.trim(self._key, step.what))
        expected = self._model.trim(step.what)
        self._ctx.equal(found, "ok" if expected in ("moved", "stays") else expected, f"the answer to {self.told[-1]}")
        return expected == "moved"

    def _delete(self, _: Step) -> bool:
        self._tell("delete")
        found, answer = self._answer(lambda: self._journal.delete(self._key))
        self._ctx.equal((found, answer), ("ok", self._model.delete()), "the answer to delete")
        self._sent.clear()
        return True

    def _reopen(self, _: Step) -> bool:
        self._tell("use the other handle")
        self._journal, self._other = self._other, self._journal
        return False
