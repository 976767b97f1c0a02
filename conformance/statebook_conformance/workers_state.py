"""Worker functions of the state and atomic rules, run in other processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from statebook.atomic import CommitConflict
from statebook.errors import VersionConflict
from statebook.keys import StateKey
from statebook.model import ABSENT
from statebook_conformance.checkers.history import operation_fields
from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.registers import RegisterClient

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue
    from statebook_conformance.child import ChildContext

SLOT = StateKey("user", "session", "key")
"""The slot that processes fight for."""

SCOPE = "d/user/session/key"
"""The scope that processes fight for."""

_ATTEMPTS_MAX = 100_000


def slots(count: int) -> tuple[StateKey, ...]:
    """The slots of a history."""
    return tuple(StateKey("user", "session", f"slot {index}") for index in range(count))


def contend(child: ChildContext) -> int:
    """Save at each word of the rule under the version that it names; tell the new version, or None for a conflict."""
    state = child.open_state()
    state.load(SLOT)
    child.tell("ready")
    rounds = 0
    while True:
        order = child.hear()
        if "expected" not in order:
            return rounds
        rounds += 1
        version: int | None
        try:
            value = b'"%s"' % child.text("name").encode()
            version = state.save(SLOT, value, expected=int(cast("int", order["expected"])) or ABSENT)
        except VersionConflict:
            version = None
        child.tell("saved", version=version)


def register(child: ChildContext) -> JsonValue:
    """Work on a few documents at random, and give the operations."""
    recorder = Recorder(clock=time.monotonic_ns)
    client = RegisterClient(child.open_state(), recorder, child.text("name"), child.text("seed"))
    child.tell("ready")
    child.hear()
    client.documents(slots(child.number("slots")), child.number("steps"))
    return [cast("Mapping[str, JsonValue]", operation_fields(entry)) for entry in recorder.operations()]


def count_up(child: ChildContext) -> JsonValue:
    """Raise a counter in one head by compare-and-set, and give the tokens of the commits that succeeded."""
    atomic = child.open_atomic()
    child.tell("ready")
    child.hear()
    tokens: list[str] = []
    conflicts = 0
    for _ in range(_ATTEMPTS_MAX):
        if len(tokens) == child.number("commits"):
            break
        found = atomic.read_head(SCOPE)
        number = 0 if found is None else int(found.data)
        time.sleep(0.000_2)
        answer = atomic.commit(SCOPE, None if found is None else found.token, b"%d" % (number + 1))
        if isinstance(answer, CommitConflict):
            conflicts += 1
        else:
            tokens.append(answer)
    return {"tokens": tokens, "conflicts": conflicts}
