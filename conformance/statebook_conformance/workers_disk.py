"""Lives on a disk that refuses: every way to write, what each was answered, and what is there afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from statebook.errors import BackendUnavailable, LimitExceeded, OutcomeUnknown, StatebookError, VersionConflict
from statebook.journal import ThreadJournalStore
from statebook.model import ABSENT, Batch, ExpectedVersion, StateValue, WriterClaim
from statebook.state import AgentStateStore
from statebook_conformance.faults.disk import file_size_limit
from statebook_conformance.scenes import make_batch, thread
from statebook_conformance.workers_trace import EXPORTER, LARGE, LIST, SLOT, Facts, LifeContext, found

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue

T = TypeVar("T")

TRIES: Final = 8
"""How often a call is made again through the same handles until the disk takes it."""

_REFUSALS: Final = (BackendUnavailable, LimitExceeded, OutcomeUnknown)
_VALUES: Final = ('"first"', '"' + LARGE * "x" + '"')


def same(field: str, left: JsonValue, right: JsonValue) -> bool:
    """Tell whether a fact is as another one; a document is compared by its value, whose version may be unknown.

    Args:
        field: The name of the fact.
        left: The one.
        right: The other.

    Returns:
        Whether they say the same.
    """
    if field == "document" and isinstance(left, list) and isinstance(right, list):
        left, right = left[0], right[0]
    return bool(left == right)


class _Handles:
    """A journal store and a state store that are closed and opened again together."""

    def __init__(self, life: LifeContext) -> None:
        self._life = life
        self._open = ExitStack()
        self.journal: ThreadJournalStore
        self.state: AgentStateStore

    def open(self) -> None:
        """Open both."""
        journal = self._open.enter_context(closing(self._life.backend.open_journal()))
        self.journal, self.state = journal, self._open.enter_context(closing(self._life.backend.open_state()))

    def close(self) -> None:
        """Close both."""
        with suppress(StatebookError):
            self._open.close()
        self._open = ExitStack()


class _Life:
    """Takes steps; each is tried, and where it is refused, looked at and taken again."""

    def __init__(self, life: LifeContext) -> None:
        self.life = life
        self.handles = _Handles(life)
        self.reopens = bool(life.params.get("reopens"))
        self.settles = bool(life.params.get("settles"))
        self._limit = ExitStack()
        if life.params.get("fits"):
            self._limit.enter_context(file_size_limit(life.params["fits"]))
        self.claim: WriterClaim
        self.version: ExpectedVersion = ABSENT
        self._number = 0

    def run(self) -> None:
        """Open, take all steps, close, and tell what is there at the end."""
        self._tried("open", self.handles.open, lambda: self._again("open", self.handles.open))
        self._step("claim", self._claim, epoch=1, holder="writer")
        events: list[JsonValue] = []
        for number, (count, size) in enumerate(((2, 0), (1, LARGE), (3, 0), (1, 3 * LARGE))):
            batch, base = make_batch(f"b{number}", count, size=size), len(events)
            events += [event.event_id for event in batch.events]
            self._append(batch, base, list(events))
        for value in _VALUES:
            self._step("save", partial(self._save, value), document=[value, 0])
        items: list[JsonValue] = []
        for size in (1, LARGE):
            item, length = f'"{"y" * size}"', len(items)
            items.append(item)
            self._step("append_list", partial(self._append_list, item, length), items=list(items))
        self._step("cursor", self._cursor, acked=3)
        self._step("delete", self._delete, document=None)
        self.handles.close()
        self.life.tell(end=_until_read(lambda: found(self.life.backend)))

    # ---------------------------------------------------------------------------------------------------------- steps

    def _claim(self) -> None:
        self.claim = self.handles.journal.claim(thread(), "writer")
        self.life.facts["epoch"] = self.claim.epoch

    def _save(self, value: str) -> None:
        self.version = self.handles.state.save(SLOT, value.encode(), expected=self.version)

    def _append_list(self, item: str, length: int) -> None:
        self.handles.state.append_list(LIST, (item.encode(),), expected_length=length)

    def _cursor(self) -> None:
        journal = self.handles.journal
        journal.advance_cursor(journal.open_cursor(thread(), EXPORTER), 3)

    def _delete(self) -> None:
        self.handles.state.delete(SLOT)

    def _append(self, batch: Batch, base: int, events: list[JsonValue]) -> None:
        def call() -> None:
            self.handles.journal.append(self.claim, batch, base)

        def again(landed: bool) -> None:  # noqa: FBT001 - private
            journal = self.handles.journal
            if self.settles:
                receipt = journal.settle(self.claim, batch.batch_id, base)
                self.life.tell(settled=receipt is not None, landed=landed)
            receipt = journal.append(self.claim, batch, base)
            self.life.tell(replayed=receipt.replayed, landed=landed)

        self._step("append", call, again, events=events)

    # --------------------------------------------------------------------------------------------------------- trying

    def _step(
        self, name: str, call: Callable[[], None], again: Callable[[bool], None] | None = None, **wanted: JsonValue
    ) -> None:
        """Take a step: call, and where it is refused, look, and take it again where it has not landed."""
        before: Facts = dict(self.life.facts)

        def recover() -> None:
            landed = self._look(name, before, wanted)
            if name == "claim":
                self._again(name, call)
            elif again is not None:
                self._again(name, partial(again, landed))
            elif not landed:
                self._again(name, call)

        done = self._tried(name, call, recover)
        if name == "claim":
            wanted["epoch"] = self.life.facts["epoch"]
        elif name == "save":
            if not done:
                self._learn_version()
            wanted["document"] = [cast("list[str]", wanted["document"])[0], cast("int", self.version)]
        self.life.acknowledged(f"{name} {self._number}", **wanted)
        self._number += 1

    def _tried(self, name: str, call: Callable[[], None], recover: Callable[[], None]) -> bool:
        """Call; where it is refused, recover. Whether it was done at once."""
        outcome = _outcome(call)
        if outcome == "done":
            return True
        self.life.tell(tried=name, outcome=outcome)
        self._limit.close()
        if self.reopens:
            if name != "open":
                self.life.tell(probe=name, outcome=_outcome(call))
            self.handles.close()
            if name != "open":
                self._again("open", self.handles.open)
        recover()
        return False

    def _again(self, name: str, call: Callable[[], None]) -> None:
        """Make a call until the disk takes it; then through fresh handles."""
        for attempt in range(2 * TRIES):
            outcome = _outcome(call)
            if outcome in ("done", "conflict"):  # a conflict: an attempt before has landed, as the end will show
                return
            if name == "open":
                self.handles.close()
            if attempt == TRIES and name != "open":
                self.life.tell(stuck=name)
                self.handles.close()
                self.handles.open()
        raise RuntimeError(f"{name} is still refused after {2 * TRIES} attempts")

    def _look(self, name: str, before: Facts, wanted: Facts) -> bool:
        """Tell what fresh handles find behind a refusal; whether the step has landed."""
        try:
            truth = found(self.life.backend)
        except _REFUSALS:
            self.life.tell(looked=name, truth=None)
            return False
        self.life.tell(looked=name, truth=truth, before=before, after={**before, **wanted})
        return name != "claim" and all(same(field, truth[field], value) for field, value in wanted.items())

    def _learn_version(self) -> None:
        saved = _until_read(self._load)
        if saved is not None:
            self.version = saved.version

    def _load(self) -> StateValue | None:
        with closing(self.life.backend.open_state()) as state:
            return state.load(SLOT)


def _until_read(read: Callable[[], T]) -> T:
    """Read; the disk refuses only a few times."""
    for _ in range(TRIES):
        with suppress(*_REFUSALS):
            return read()
    return read()


def _outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except OutcomeUnknown:
        return "unknown"
    except (BackendUnavailable, LimitExceeded):
        return "refused"
    except VersionConflict:
        return "conflict"
    return "done"


def on_a_refusing_disk(life: LifeContext) -> None:
    """Write in every way; where a call is refused, look, take it again, and go on."""
    _Life(life).run()
