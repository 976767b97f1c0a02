"""A scene with records of every kind, and what fresh handles say of it after one of them was damaged (FORMAT-1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Final, TypeAlias

from statebook.errors import DataError, StatebookError, Trimmed
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey, ThreadKey
from statebook.medium import Medium
from statebook.model import Batch, RecordedEvent, WriterClaim
from statebook.state import AgentStateStore
from statebook_conformance.context import Context, RuleFailure
from statebook_conformance.damage import Damage, How, Snapshot, changed, medium_of, restore, take
from statebook_conformance.scenes import fill, make_batch, thread

SMALL: Final = thread("small")
"""A journal of three batches."""
OTHER: Final = thread("other")
"""Another one, for records to be swapped with."""
LONG: Final = thread("long")
"""A journal of ten batches and 180 KB."""
DOCUMENT: Final = StateKey("user", "session", "document")
LIST: Final = StateKey("user", "session", "list")
LONG_LIST: Final = StateKey("user", "session", "long-list")
"""A list of 50 items and 100 KB."""
EXPORTER: Final = "exporter"
"""The exporter whose cursor on `LONG` stands at `ACKED`."""
ACKED: Final = 7

Reads: TypeAlias = Mapping[str, Callable[[], object]]


def stored_events(journal: ThreadJournalStore, key: ThreadKey) -> tuple[RecordedEvent, ...]:
    """All events as the pages give them, without a look whether they are right."""
    events: list[RecordedEvent] = []
    more = True
    while more:
        page = journal.read_after(key, events[-1].seq if events else 0, 1_000)
        events.extend(page.events)
        more = page.has_more and bool(page.events)
    return tuple(events)


def reads(journal: ThreadJournalStore, state: AgentStateStore) -> Reads:
    """Everything that can be asked without writing: `head`, `events` of journals, `value` of slots."""
    calls: dict[str, Callable[[], object]] = {}
    for key in (SMALL, OTHER, LONG):
        calls[f"head {key.thread_id}"] = partial(journal.head, key)
        calls[f"events {key.thread_id}"] = partial(stored_events, journal, key)
    calls["value document"] = partial(state.load, DOCUMENT)
    calls["value list"] = partial(state.load_list, LIST)
    calls["value long-list"] = partial(state.load_list, LONG_LIST)
    return calls


class Scene:
    """What is stored before it is damaged.

    Attributes:
        medium: The raw records.
        whole: All of them, undamaged.
        answers: What each read gives.
        claims: For each journal its claim and its last seq.
        groups: The records of each journal and slot.
        cursor: The records that hold the cursor.
    """

    def __init__(self, ctx: Context) -> None:
        """Store journals with and without segments, documents, lists, and a cursor."""
        self.medium: Medium = medium_of(ctx)
        self.claims: dict[ThreadKey, tuple[WriterClaim, int]] = {}
        self.groups: dict[str, frozenset[str]] = {}
        with closing(ctx.backend.open_journal()) as journal, closing(ctx.backend.open_state()) as state:
            short = [make_batch("s1", 3), make_batch("s2", 2), make_batch("s3", 1, checkpoint=True)]
            self._store("small", lambda: self._fill(journal, SMALL, short))
            self._store("other", lambda: self._fill(journal, OTHER, [make_batch(f"o{n}", 2) for n in range(3)]))
            long = [make_batch(f"l{number:02}", 3, size=6_000) for number in range(10)]
            self._store("long", lambda: self._fill(journal, LONG, long))
            self._store("document", lambda: state.save(DOCUMENT, b'{"text":"%s"}' % (b"document " * 50)))
            self._store("list", lambda: state.append_list(LIST, (b"1", b'"two"', b"[3]"), expected_length=0))
            items = [tuple(b'"%03d %s"' % (i, b"item " * 400) for i in range(n, n + 10)) for n in range(0, 50, 10)]
            for number, chunk in enumerate(items):
                append = partial(state.append_list, LONG_LIST, chunk, expected_length=number * 10)
                self._store("long-list", append)
            opened = journal.open_cursor(LONG, EXPORTER)
            before = take(self.medium)
            journal.advance_cursor(opened, ACKED)
            self.whole: Snapshot = take(self.medium)
            self.cursor = changed(before, self.whole)
            self.answers = {name: call() for name, call in reads(journal, state).items()}

    def _fill(self, journal: ThreadJournalStore, key: ThreadKey, batches: Sequence[Batch]) -> None:
        self.claims[key] = fill(journal, key, batches), sum(len(batch.events) for batch in batches)

    def put_back(self, damage: Damage) -> None:
        """Undo a damage."""
        if damage.after is None:
            restore(self.medium, self.whole)
        else:
            self.medium.write(damage.record, damage.before)

    def reset(self) -> None:
        """Undo everything that happened to the medium."""
        restore(self.medium, self.whole)

    def _store(self, name: str, write: Callable[[], object]) -> None:
        before = take(self.medium)
        write()
        self.groups[name] = self.groups.get(name, frozenset()) | changed(before, take(self.medium))


class Trial:
    """One damage, asked about through fresh handles."""

    def __init__(self, ctx: Context, scene: Scene, damage: Damage) -> None:
        """Take the handles; opened by `run`."""
        self.ctx, self.scene, self.damage = ctx, scene, damage
        self.noticed: list[str] = []

    def run(self, *, look: bool) -> None:
        """Read everything, and try to write where reading is refused.

        Args:
            look: Whether to compare the whole medium after the attempts to write.
        """
        with ExitStack() as stack:
            journal = stack.enter_context(closing(self.ctx.backend.open_journal()))
            state = stack.enter_context(closing(self.ctx.backend.open_state()))
            for name, call in reads(journal, state).items():
                self._read(name, call)
            self._verified(journal)
            damaged = take(self.scene.medium) if look else {}
            tries = self._writes(journal, state)
            for name, write in tries.items():
                self._refused(name, write)
            if look and tries:
                after = changed(damaged, take(self.scene.medium))
                self.ctx.check(not after, f"refused writes have changed {sorted(after)[:3]} with {self.damage}")

    def _read(self, name: str, call: Callable[[], object]) -> None:
        try:
            answer = call()
        except (DataError, Trimmed):
            self.noticed.append(name)
            return
        wanted = self.scene.answers[name]
        if answer == wanted:
            return
        if self._only_trace(name) and answer in (None, ()):
            self.ctx.saw("only trace removed")
            return
        raise RuleFailure(f"{name} is {_gist(answer)} instead of {_gist(wanted)}, without an error: {self.damage}")

    def _refused(self, name: str, write: Callable[[], object]) -> None:
        """A claim or a save must say that the data is damaged; whatever follows from that is refused as well."""
        if name.startswith(("claim", "save")):
            self.ctx.raises(DataError, write, f"{name} with {self.damage}")
            return
        try:
            answer = write()
        except StatebookError:
            answer = False
        self.ctx.check(answer is False, f"{name} succeeds with {self.damage}")

    def _only_trace(self, name: str) -> bool:
        """Whether what was removed was all that there was: then nobody can know."""
        kind, _, what = name.partition(" ")
        if self.damage.how is not How.REMOVE or self.damage.record not in self.scene.groups[what]:
            return False
        return kind == "value" or len(self.scene.groups[what]) == 1

    def _verified(self, journal: ThreadJournalStore) -> None:
        for key in (SMALL, OTHER, LONG):
            if f"head {key.thread_id}" in self.noticed or f"events {key.thread_id}" in self.noticed:
                report = journal.verify(key, deep=True)
                self.ctx.check(
                    report.findings, f"verify({key.thread_id}) finds nothing where reading is refused: {self.damage}"
                )

    def _writes(self, journal: ThreadJournalStore, state: AgentStateStore) -> dict[str, Callable[[], object]]:
        """The writes that must be refused: those on what cannot be read."""
        calls: dict[str, Callable[[], object]] = {}
        for key, (claim, base) in self.scene.claims.items():
            if f"head {key.thread_id}" in self.noticed:
                calls[f"claim {key.thread_id}"] = partial(journal.claim, key, "another")
                calls[f"append {key.thread_id}"] = partial(journal.append, claim, make_batch("new"), base)
                calls[f"trim {key.thread_id}"] = partial(journal.trim, key, 2)
                calls[f"delete {key.thread_id}"] = partial(journal.delete, key)
        if "value document" in self.noticed:
            calls["save document"] = partial(state.save, DOCUMENT, b"{}")
        return calls


def _gist(answer: object) -> str:
    text = repr(answer)
    return text if len(text) < 120 else f"{text[:120]}… ({len(text)} characters)"
