"""The acts of state, and reads; and all acts together. See `acts`."""

from __future__ import annotations

import time
from typing import Final

from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError
from statebook.keys import StateKey
from statebook.model import StateValue
from statebook_conformance.acts import (
    PATIENCE_S,
    Act,
    Advancing,
    Answer,
    Appending,
    Claiming,
    Grouping,
    Trimming,
    World,
)
from statebook_conformance.past import SeenEvent, SeenValue
from statebook_conformance.scenes import make_batch, thread


class Saving(Act):
    """`save` on a version: the store's own success is no conflict."""

    name = "save"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.slot = StateKey("user", "saving", "document")
        self.version = world.state.save(self.slot, b"0")
        self.value = b"0"

    def prepare(self) -> None:
        self.number += 1
        self.mark = b"saved number %d." % self.number
        self.value = b'{"text":"%s"}' % self.mark

    def call(self) -> Answer:
        return self.world.state.save(self.slot, self.value, expected=self.version)

    def applied(self) -> bool:
        saved = self.world.past.load(self.slot)
        if saved is None:
            self.ctx.fail("the document is gone")
        if saved.value == self.value:
            self.ctx.check(saved.version > self.version, f"version {saved.version} after {self.version}")
            return True
        self.ctx.equal(saved.version, self.version, "the version of a document that was not saved")
        return False

    def finish(self, before: bool | None) -> None:
        mine = self.world.until_known(lambda: self.world.state.load(self.slot), "load")
        found = self.world.past.load(self.slot)
        loaded = SeenValue(mine.value, mine.version) if isinstance(mine, StateValue) else None
        self.ctx.equal(loaded, found, "what the handle loads, against what the observer loads")
        if found is None:
            self.ctx.fail("the document is gone")
        self.version = found.version
        if found.value != self.value:
            self._save_again()

    def _save_again(self) -> None:
        """Save until it is there: an unknown outcome is settled by loading, as callers do."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                self.version = self.world.state.save(self.slot, self.value, expected=self.version)
            except (BackendUnavailable, OutcomeUnknown):
                found = self.world.past.load(self.slot)
                if found is None or found.value != self.value:
                    continue
                self.version = found.version
            return
        self.ctx.fail(f"save after a fault is refused for {PATIENCE_S:g} s")


class Listing(Act):
    """`append_list` on a length."""

    name = "append_list"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.slot = StateKey("user", "listing", "list")
        self.length = 1
        world.state.replace_list(self.slot, (b"0",))

    def prepare(self) -> None:
        self.number += 1
        self.mark = b"listed number %d." % self.number

    def call(self) -> Answer:
        return self.world.state.append_list(self.slot, (b'"%s"' % self.mark,), expected_length=self.length)

    def applied(self) -> bool:
        found = self.world.past.length(self.slot)
        self.ctx.check(found in (self.length, self.length + 1), f"{found} items, there were {self.length}")
        return found == self.length + 1

    def finish(self, before: bool | None) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.applied():
            if time.monotonic() > deadline:
                self.ctx.fail(f"append_list after a fault is refused for {PATIENCE_S:g} s")
            try:
                self.call()
            except (BackendUnavailable, OutcomeUnknown):
                continue
        self.length += 1


class Removing(Act):
    """`delete` of a document."""

    name = "delete"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.slot = StateKey("user", "removing", "document")
        self.version = world.state.save(self.slot, b"1")

    def prepare(self) -> None:
        self.number += 1

    def call(self) -> Answer:
        return self.world.state.delete(self.slot, expected=self.version)

    def applied(self) -> bool:
        return self.world.past.load(self.slot) is None

    def finish(self, before: bool | None) -> None:
        self.ctx.equal(self.world.past.exists(self.slot), not before, "whether the session exists after a delete")
        version = self.world.until_known(lambda: self.world.state.save(self.slot, b"1"), "save")
        saved = self.world.past.load(self.slot)
        if saved is None or not isinstance(version, int):
            self.ctx.fail("a document is not there after it was saved")
        self.ctx.check(saved.version > self.version, f"version {saved.version} was issued after {self.version}")
        self.version = saved.version


class Reading(Act):
    """Reads of a journal and of a slot: right, or refused; they have no other outcome."""

    name = "read"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.key = thread("reading")
        claim = world.journal.claim(self.key, "writer")
        for number in range(5):
            world.journal.append(claim, make_batch(f"b{number}", 3, size=900), number * 3)
        self.events = world.past.events(self.key, 0, 100)
        self.slot = StateKey("user", "reading", "document")
        world.state.save(self.slot, b"1" * 3_000)
        self.saved = world.past.load(self.slot)

    def prepare(self) -> None:
        self.number += 1

    def call(self) -> Answer:
        kind = self.number % 3
        if kind == 0:
            saved = self.world.state.load(self.slot)
            found = None if saved is None else SeenValue(saved.value, saved.version)
            self.ctx.equal(found, self.saved, "what load gives under a fault")
        elif kind == 1:
            page = self.world.journal.read_after(self.key, 0, 100)
            events = tuple(SeenEvent(event.seq, event.event_id, event.payload) for event in page.events)
            self.ctx.check(events == self.events, "read_after gives other events under a fault")
        else:
            head = self.world.journal.head(self.key)
            self.ctx.equal(None if head is None else head.last_seq, 15, "the head under a fault")
        return None

    def applied(self) -> None:
        return None

    def attempt(self, where: str) -> bool:
        try:
            self.call()
        except BackendUnavailable:
            self.ctx.saw("refused")
        except StatebookError as error:
            self.ctx.fail(f"a read, {where}: {type(error).__name__}, which is no outcome of a read: {error}")
        else:
            return True
        self.finish(None)
        return False

    def finish(self, before: bool | None) -> None:
        self.world.until_known(self.call, "a read")


WRITES: Final[tuple[type[Act], ...]] = (
    *(Appending, Grouping, Claiming, Saving, Listing, Removing, Advancing, Trimming),
)
"""The calls that change something."""

EVERY: Final[tuple[type[Act], ...]] = (*WRITES, Reading)
"""All calls."""
