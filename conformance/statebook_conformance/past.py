"""An observer: another process that sees what is stored past whatever network this one has."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import msgspec

from statebook.keys import StateKey, ThreadKey
from statebook_conformance.context import Context
from statebook_conformance.processes import ChildError

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue
    from statebook_conformance.child import ChildContext

_ANSWER_S: Final = 60.0


class SeenHead(msgspec.Struct, frozen=True):
    """A head, as far as rules look at it.

    Attributes:
        epoch: Its epoch.
        first_seq: Its first seq.
        last_seq: Its last seq.
    """

    epoch: int
    first_seq: int
    last_seq: int


class SeenEvent(msgspec.Struct, frozen=True):
    """An event.

    Attributes:
        seq: Its seq.
        event_id: Its id.
        payload: Its payload.
    """

    seq: int
    event_id: str
    payload: bytes


class SeenValue(msgspec.Struct, frozen=True):
    """A document.

    Attributes:
        value: Its bytes.
        version: Its version.
    """

    value: bytes
    version: int


class Observer:
    """Asks the observing process. Each answer is of the moment in which it is asked."""

    def __init__(self, ctx: Context) -> None:
        """Start it."""
        self._ctx = ctx
        self._child = ctx.spawn(f"{__name__}:observe")
        self._child.wait_for("ready", timeout_s=_ANSWER_S)

    def head(self, key: ThreadKey) -> SeenHead | None:
        """The head of a journal, or None."""
        found = self._ask("head", thread=_words(key))
        return None if found is None else msgspec.convert(found, SeenHead)

    def events(self, key: ThreadKey, seq: int, limit: int) -> tuple[SeenEvent, ...]:
        """Events behind a seq."""
        found = self._ask("events", thread=_words(key), seq=seq, limit=limit)
        return tuple(msgspec.convert(found, list[SeenEvent]))

    def load(self, slot: StateKey) -> SeenValue | None:
        """A document, or None."""
        found = self._ask("load", slot=_words(slot))
        return None if found is None else msgspec.convert(found, SeenValue)

    def length(self, slot: StateKey) -> int:
        """How many items a list has; 0 where there is none."""
        return cast("int", self._ask("length", slot=_words(slot)))

    def exists(self, slot: StateKey) -> bool:
        """Whether the session of a slot exists."""
        return bool(self._ask("exists", slot=_words(slot)))

    def _ask(self, what: str, **words: JsonValue) -> JsonValue:
        try:
            self._child.tell({"ask": what, **words})
            return self._child.wait_for("seen", timeout_s=_ANSWER_S)["answer"]
        except ChildError as error:
            return self._ctx.fail(f"another process cannot read the store: {error}")


def observe(child: ChildContext) -> None:
    """The worker: answers until the rule is gone."""
    journal, state = child.open_journal(), child.open_state()
    child.tell("ready")
    while order := child.hear():
        what = order["ask"]
        answer: JsonValue
        if what in ("head", "events"):
            key = ThreadKey(*cast("list[str]", order["thread"]))
            if what == "head":
                head = journal.head(key)
                answer = None if head is None else _fields(SeenHead(head.epoch, head.first_seq, head.last_seq))
            else:
                page = journal.read_after(key, cast("int", order["seq"]), cast("int", order["limit"]))
                answer = [_fields(SeenEvent(event.seq, event.event_id, event.payload)) for event in page.events]
        else:
            slot = StateKey(*cast("list[str]", order["slot"]))
            if what == "load":
                saved = state.load(slot)
                answer = None if saved is None else _fields(SeenValue(saved.value, saved.version))
            elif what == "length":
                items = state.load_list(slot)
                answer = 0 if items is None else len(items.items)
            else:
                answer = state.exists(slot.session)
        child.tell("seen", answer=answer)


def _words(key: ThreadKey | StateKey) -> list[JsonValue]:
    if isinstance(key, ThreadKey):
        return [key.user_id, key.agent_id, key.session_id, key.thread_id]
    return [key.user_id, key.session_id, key.key]


def _fields(value: SeenHead | SeenEvent | SeenValue) -> Mapping[str, JsonValue]:
    found = {name: getattr(value, name) for name in value.__struct_fields__}
    return {
        name: base64.b64encode(field).decode() if isinstance(field, bytes) else field for name, field in found.items()
    }
