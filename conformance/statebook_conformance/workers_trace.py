"""What traced processes do: a nursery that forks lives, and the lives that rules look at call by call."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from statebook.atomic_state import AtomicAgentStateStore
from statebook.capabilities import Feature
from statebook.errors import StatebookError
from statebook.journal import ThreadJournalStore
from statebook.keys import SessionKey, StateKey
from statebook.model import AppendRequest, Receipt
from statebook.plugins import Requirement
from statebook.state import AgentStateStore
from statebook_conformance.faults.trace import Marks, burn
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.scenes import make_batch, thread
from statebook_conformance.target import Target, TargetBackend

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue

SLOT: Final = StateKey("user", "session", "document")
"""The document that lives save."""
LIST: Final = StateKey("user", "session", "list")
"""The list that lives append to."""
EXPORTER: Final = "exporter"
"""Whose cursor lives move."""
LARGE: Final = 20_000
"""How many characters an event has that does not stay in the head."""
GROUP: Final = tuple(f"group {number}" for number in range(6))
"""The threads that lives append to in one call."""
_PAGE: Final = 1_000

Facts: TypeAlias = "dict[str, JsonValue]"
"""What was acknowledged, or what is found: see `NOTHING`."""


def nothing() -> Facts:
    """The facts of a namespace in which nothing was written.

    `first` and `events`: the first seq and the ids of the kept events. `epoch` and `holder`: of the head. `other`, and
    `group 0` and so on: the last seqs of other threads. `document`: value and version. `items`: of the list. `acked`:
    where the cursor stands.
    """
    return {
        "first": 1,
        "events": [],
        "epoch": 0,
        "holder": None,
        "other": None,
        "document": None,
        "items": None,
        "acked": 0,
        **dict.fromkeys(GROUP, None),
    }


def found(backend: TargetBackend) -> Facts:
    """Read the facts from a store, through handles of its own.

    Args:
        backend: The backend, with its namespace.

    Returns:
        The facts.

    Raises:
        StatebookError: A read failed.
        ValueError: `verify` has findings.
    """
    facts = nothing()
    with closing(backend.open_journal()) as journal:
        head, other = journal.head(thread()), journal.head(thread("other"))
        if head is not None:
            facts["first"], facts["epoch"] = head.first_seq, head.epoch
            facts["holder"] = None if head.claim is None else head.claim.writer_id
            page = journal.read_after(thread(), head.first_seq - 1, _PAGE)
            facts["events"] = [event.event_id for event in page.events]
            if head.last_seq:
                facts["acked"] = journal.open_cursor(thread(), EXPORTER).acked_seq
        if other is not None:
            facts["other"] = other.last_seq
        for name in GROUP:
            member = journal.head(thread(name))
            facts[name] = None if member is None else member.last_seq
        for key in map(thread, ("thread", "other", *GROUP)):
            findings = journal.verify(key, deep=True).findings
            if findings:
                raise ValueError(f"verify finds {findings[0].what}: {findings[0].detail}")
    with closing(backend.open_state()) as state:
        saved, items = state.load(SLOT), state.load_list(LIST)
        facts["document"] = None if saved is None else [saved.value.decode(), saved.version]
        facts["items"] = None if items is None else [item.decode() for item in items.items]
    return facts


class OverAtomic(ForwardBackend):
    """A backend whose stores are core's over its atomic storage, whatever stores it has itself."""

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        """Open core's journal over the atomic storage."""
        return self.journal_over(self.open_atomic(require))

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        """Open core's state store over the atomic storage."""
        return AtomicAgentStateStore(self.open_atomic(require))


class LifeContext:
    """What a life gets.

    Attributes:
        backend: The backend, moved into a directory of this life.
        params: What the rule gave.
        facts: What was acknowledged so far.
    """

    def __init__(self, backend: TargetBackend, params: Mapping[str, int], marks: Marks) -> None:
        """Make the context; opens nothing."""
        self.backend = backend
        self.params = params
        self.facts = nothing()
        self._marks = marks

    def acknowledged(self, step: str, **changed: JsonValue) -> None:
        """Tell that a step was acknowledged, and what holds since then."""
        self.facts.update(changed)
        self._marks({"step": step, "facts": dict(self.facts)})

    def tell(self, **fields: JsonValue) -> None:
        """Tell something else."""
        self._marks(fields)


# --------------------------------------------------------------------------------------------------- an ordinary life


def whole_life(life: LifeContext) -> None:
    """Write in every way there is, and tell each acknowledgement."""
    with closing(life.backend.open_journal()) as journal, closing(life.backend.open_state()) as state:
        _write_journal(life, journal)
        _write_state(life, state)
        _end(life, journal, state)


def _write_journal(life: LifeContext, journal: ThreadJournalStore) -> None:
    claim = journal.claim(thread(), "writer")
    life.acknowledged("claim", epoch=claim.epoch, holder="writer")
    events: list[JsonValue] = []
    for number, (count, size) in enumerate(((2, 0), (1, LARGE), (2, 0), (1, LARGE), (1, 4 * LARGE))):
        batch = make_batch(f"b{number}", count, size=size)
        journal.append(claim, batch, len(events))
        events += [event.event_id for event in batch.events]
        life.acknowledged(f"append {number}", events=list(events))
    other = journal.claim(thread("other"), "writer")
    life.acknowledged("claim of another thread", other=0)
    requests = [AppendRequest(claim, make_batch("m"), len(events)), AppendRequest(other, make_batch("m", 3), 0)]
    for number, name in enumerate(GROUP):
        batch = make_batch("m", 2, size=LARGE * (number % 2))
        requests.append(AppendRequest(journal.claim(thread(name), "writer"), batch, 0))
        life.acknowledged(f"claim of {name}", **{name: 0})
    answers = journal.append_many(requests)
    if not all(isinstance(answer, Receipt) for answer in answers):
        raise ValueError(f"append_many answered {answers}")
    life.acknowledged("append_many", events=[*events, "m.1"], other=3, **dict.fromkeys(GROUP, 2))
    cursor = journal.open_cursor(thread(), EXPORTER)
    life.acknowledged("open_cursor")
    journal.advance_cursor(cursor, 4)
    life.acknowledged("advance_cursor", acked=4)
    journal.settle(claim, "never sent", len(events))
    life.acknowledged("settle")


def _write_state(life: LifeContext, state: AgentStateStore) -> None:
    version = state.save(SLOT, b'"first"')
    life.acknowledged("save", document=['"first"', version])
    value = '"' + LARGE * "x" + '"'
    version = state.save(SLOT, value.encode(), expected=version)
    life.acknowledged("save again", document=[value, version])
    state.append_list(LIST, (b"1", b"2"), expected_length=0)
    life.acknowledged("append_list", items=["1", "2"])
    state.append_list(LIST, (value.encode(),), expected_length=2)
    life.acknowledged("append_list again", items=["1", "2", value])
    state.replace_list(LIST, (b"3",))
    life.acknowledged("replace_list", items=["3"])


def _end(life: LifeContext, journal: ThreadJournalStore, state: AgentStateStore) -> None:
    head = journal.trim(thread(), 4)
    kept = cast("list[JsonValue]", life.facts["events"])[head.first_seq - 1 :]
    life.acknowledged("trim", first=head.first_seq, events=kept)
    state.delete(SLOT)
    life.acknowledged("delete of a document", document=None)
    claim = journal.claim(thread(), "next")
    life.acknowledged("claim by the next writer", epoch=claim.epoch, holder="next")
    journal.collect(thread())
    life.acknowledged("collect")
    journal.release(claim)
    life.acknowledged("release", holder=None)
    journal.delete(thread("other"))
    life.acknowledged("delete of a journal", other=None)
    if Feature.PURGE in journal.capabilities.features:
        journal.purge(thread("other"))
        life.acknowledged("purge")
    state.delete_session(SessionKey("user", "session"))
    life.acknowledged("delete_session", items=None)


# ------------------------------------------------------------------------------------------------------------- nursery


def main() -> int:
    """Read the order from standard input, and fork its lives one after the other."""
    order = json.load(sys.stdin)
    module, _, name = str(order["worker"]).partition(":")
    worker = cast("Callable[[LifeContext], None]", getattr(import_module(module), name))
    for number, life in enumerate(order["lives"]):
        backend = Target(life["target"]).backend(order["namespace"])
        if number == 0:
            _warm(order["warm"], order["namespace"])
        pid = os.fork()
        if pid == 0:
            _live(worker, backend, life, number)
        _, status = os.waitpid(pid, 0)
        if status:
            return os.waitstatus_to_exitcode(status) & 0x7F or 1
    return 0


def _warm(target: str, namespace: str) -> None:
    """Import what a store imports when it is opened, once for all lives."""
    with suppress(StatebookError):
        Target(target).backend(namespace).open_journal().close()


def _live(
    worker: Callable[[LifeContext], None], backend: TargetBackend, life: Mapping[str, object], number: int
) -> None:
    """Run in the fork, and leave without the exit handlers of the nursery."""
    marks = Marks()
    marks({"life": number})
    try:
        burn(cast("Mapping[str, int]", life["burn"]))
        params = cast("Mapping[str, int]", life["params"])
        worker(LifeContext(OverAtomic(backend) if params.get("atomic") else backend, params, marks))
    except Exception as error:  # noqa: BLE001 - told to the rule, which fails with it
        marks({"failed": f"{type(error).__name__}: {error}"[:2_000]})
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
