"""The state's side of the model: slots in dictionaries. Knows no backend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import assert_never

from statebook.keys import SessionKey, StateKey, ThreadKey
from statebook.model import SlotKind
from statebook_conformance.differential import steps as do
from statebook_conformance.differential.answers import Answer, Skipped, error_answer, key_fields


class StateModelPlayer:
    """The state's side: slots in dictionaries.

    Attributes:
        live: Items and version of each live slot; a document has one item.
        got: The version that a step got, as its rank.
    """

    def __init__(self) -> None:
        """Begin where nothing was saved."""
        self.live: dict[tuple[StateKey, SlotKind], tuple[tuple[str, ...], int]] = {}
        self.got: dict[int, int] = {}
        self._issued: dict[tuple[StateKey, SlotKind], int] = defaultdict(int)

    def play(self, step: do.StateStep) -> Answer:
        """Do one step."""
        match step:
            case do.Save():
                return self._write(step.number, (step.slot, SlotKind.DOCUMENT), (step.value,), step.expected)
            case do.ReplaceList():
                return self._write(step.number, (step.slot, SlotKind.LIST), step.items, step.expected)
            case do.AppendList():
                place = (step.slot, SlotKind.LIST)
                held = self.live.get(place, ((), 0))[0]
                if len(held) != step.length:
                    return self._conflict(place)
                return self._write(step.number, place, (*held, *step.items), "any")
            case do.Load():
                document = self.live.get((step.slot, SlotKind.DOCUMENT))
                return {"value": None} if document is None else {"value": document[0][0], "version": document[1]}
            case do.LoadList():
                items = self.live.get((step.slot, SlotKind.LIST))
                return {"items": None} if items is None else {"items": list(items[0]), "version": items[1]}
            case do.DeleteSlot():
                return self._delete(step)
            case do.DeleteSession():
                gone = [place for place in self.live if place[0].session == step.session]
                for place in gone:
                    del self.live[place]
                return {"deleted": len(gone)}
            case do.Exists():
                return {"exists": any(slot.session == step.session for slot, _ in self.live)}
            case do.ListKeys():
                return self._keys(step)
            case do.ListSessions():
                return self._sessions(step)
            case _:
                assert_never(step)

    def _holds(self, place: tuple[StateKey, SlotKind], expected: do.Expected) -> bool:
        version = self.live[place][1] if place in self.live else None
        if isinstance(expected, int):
            if expected not in self.got:
                raise Skipped(f"step {expected} got no version")
            return self.got[expected] == version
        return expected == "any" or (expected == "absent" and version is None)

    def _write(
        self, number: int, place: tuple[StateKey, SlotKind], items: tuple[str, ...], expected: do.Expected
    ) -> Answer:
        if not self._holds(place, expected):
            return self._conflict(place)
        self._issued[place] += 1
        self.live[place] = (items, self._issued[place])
        self.got[number] = self._issued[place]
        return {"version": self._issued[place]}

    def _conflict(self, place: tuple[StateKey, SlotKind]) -> Answer:
        live = self.live.get(place)
        length = None if place[1] is SlotKind.DOCUMENT else 0 if live is None else len(live[0])
        return error_answer("VersionConflict", version=None if live is None else live[1], length=length)

    def _delete(self, step: do.DeleteSlot) -> Answer:
        place = (step.slot, step.kind)
        if step.expected == "absent":
            return error_answer("ValueError")
        if not self._holds(place, step.expected):
            return self._conflict(place)
        return {"deleted": self.live.pop(place, None) is not None}

    def _keys(self, step: do.ListKeys) -> Answer:
        if step.after is not None and step.after.session != step.session:
            return error_answer("ValueError")
        keys = [slot for slot, kind in self.live if kind is step.kind and slot.session == step.session]
        chosen, more = page_of(keys, step.after, step.limit)
        return {"keys": chosen, "has_more": more}

    def _sessions(self, step: do.ListSessions) -> Answer:
        if step.after is not None and step.after.user_id != step.user:
            return error_answer("ValueError")
        sessions = {slot.session for slot, _ in self.live if slot.user_id == step.user}
        chosen, more = page_of(sessions, step.after, step.limit)
        return {"sessions": chosen, "has_more": more}


def page_of(
    keys: Iterable[ThreadKey] | Iterable[StateKey] | Iterable[SessionKey],
    after: ThreadKey | StateKey | SessionKey | None,
    limit: int,
) -> tuple[Sequence[object], bool]:
    """A page of keys as every listing gives it: ascending by name, behind `after`.

    Args:
        keys: All keys.
        after: The key that the page begins behind, or None.
        limit: The length of the page.

    Returns:
        The ids of its keys, and whether there are more behind it.
    """
    behind = sorted((key for key in keys if after is None or key.name > after.name), key=lambda key: key.name)
    return [key_fields(key) for key in behind[:limit]], len(behind) > limit
