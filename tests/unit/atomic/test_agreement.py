"""The stores over the atomic primitive answer as the native ones of the memory backend, call by call."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from honest_storage import KEY, HonestStorage, event

from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.atomic_state import AtomicAgentStateStore
from statebook.errors import StatebookError
from statebook.index_tree import Shape
from statebook.journal import ThreadJournalStore
from statebook.keys import SessionKey, StateKey, ThreadScope
from statebook.model import ABSENT, ANY, NONE, Batch, ExportCursor, Receipt, SlotKind, StateValue, WriterClaim
from statebook.state import AgentStateStore
from statebook_backends.memory.journal import MemoryThreadJournalStore
from statebook_backends.memory.options import MemoryOptions
from statebook_backends.memory.state import MemoryAgentStateStore

SMALL = Shape(tail_bytes_max=1_000, references_max=3)
# Fresh in each store, or counted differently: a trim over the atomic primitive is two writes of the head.
FRESH = {"journal_id", "nonce", "chain", "generation", "backend", "key"}


def plain(value: object) -> object:
    """A value without what is fresh in each store."""
    if isinstance(value, StatebookError):
        fields = {name: plain(field) for name, field in vars(value).items() if name not in FRESH}
        return type(value).__name__, fields
    if isinstance(value, msgspec.Struct) and not isinstance(value, (StateKey, SessionKey, type(KEY))):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name not in FRESH}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except StatebookError as error:
        return error


class Journals:
    """The same random calls on two stores."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stores: list[ThreadJournalStore] = [
            MemoryThreadJournalStore(MemoryOptions()),
            AtomicThreadJournalStore(HonestStorage(content_tokens=True), shape=SMALL),
        ]
        self.claims: list[tuple[WriterClaim, WriterClaim]] = []
        self.cursors: list[tuple[ExportCursor, ExportCursor]] = []
        self.batches: list[tuple[Batch, int]] = []
        self.last_seq = 0
        self.number = 0

    def both(self, call: Callable[[ThreadJournalStore, int], object]) -> tuple[object, object]:
        native, atomic = [outcome(lambda: call(store, index)) for index, store in enumerate(self.stores)]  # noqa: B023
        assert plain(native) == plain(atomic)
        return native, atomic

    def claim(self) -> None:
        writer = self.rng.choice("ab")
        replacing = self.rng.choice([None, ANY, ANY, NONE])
        held = self.rng.choice(self.claims) if self.claims else None
        if replacing is None and held is not None:
            made = self.both(lambda store, index: store.claim(KEY, writer, replacing=held[index].info))
        else:
            made = self.both(lambda store, _: store.claim(KEY, writer, replacing=replacing or ANY))
        if isinstance(made[0], WriterClaim):
            assert isinstance(made[1], WriterClaim)
            self.claims.append((made[0], made[1]))

    def append(self) -> None:
        if not self.claims:
            return
        claims = self.rng.choice([self.claims[-1], self.claims[-1], self.rng.choice(self.claims)])
        if self.batches and self.rng.random() < 0.3:
            batch, base = self.rng.choice(self.batches)
            if self.rng.random() < 0.3:
                batch = Batch(batch.batch_id, (*batch.events, event("extra")))
        else:
            self.number += 1
            ids = [f"e{self.number}.{index}" for index in range(self.rng.randrange(1, 4))]
            if self.batches and self.rng.random() < 0.1:
                ids.append(self.rng.choice(self.batches)[0].events[0].event_id)
            kind = "state/checkpoint" if self.rng.random() < 0.1 else "run/start"
            batch = Batch(f"b{self.number}", tuple(event(name, kind=kind) for name in ids))
            base = max(0, self.last_seq + self.rng.choice([0, 0, 0, 0, 0, -1, -3, 1]))
        made, _ = self.both(lambda store, index: store.append(claims[index], batch, base))
        if isinstance(made, Receipt) and not made.replayed:
            self.batches.append((batch, base))
            self.last_seq = made.last_seq

    def settle(self) -> None:
        if self.claims and self.batches:
            claims = self.rng.choice(self.claims)
            batch, base = self.rng.choice(self.batches)
            name = self.rng.choice([batch.batch_id, "never"])
            self.both(lambda store, index: store.settle(claims[index], name, base))

    def keep(self) -> None:
        if self.claims:
            claims = self.rng.choice(self.claims)
            if self.rng.random() < 0.7:
                self.both(lambda store, index: store.heartbeat(claims[index]))
            else:
                self.both(lambda store, index: store.release(claims[index]))

    def read(self) -> None:
        seq = self.rng.randrange(self.last_seq + 3)
        limit = self.rng.choice([1, 3, 10, 1_000])
        self.both(lambda store, _: store.read_after(KEY, seq, limit))
        self.both(lambda store, _: store.head(KEY))
        self.both(lambda store, _: store.list_threads(ThreadScope("user")))

    def export(self) -> None:
        to_seq = self.rng.randrange(self.last_seq + 2)
        version = self.rng.randrange(6)
        act = self.rng.randrange(4)
        if act == 0:
            made = self.both(lambda store, _: store.open_cursor(KEY, "exporter"))
        elif act == 1:
            made = self.both(lambda store, _: store.reset_cursor(KEY, "exporter", to_seq, expected_version=version))
        elif self.cursors:
            cursors = self.rng.choice([self.cursors[-1], self.rng.choice(self.cursors)])
            made = self.both(lambda store, index: store.advance_cursor(cursors[index], to_seq))
        else:
            return
        if isinstance(made[0], ExportCursor):
            assert isinstance(made[1], ExportCursor)
            self.cursors.append((made[0], made[1]))

    def trim(self) -> None:
        before = self.rng.randrange(self.last_seq + 3)
        head, _ = self.both(lambda store, _: store.trim(KEY, before))
        if not isinstance(head, StatebookError):
            # The event ids of trimmed batches are remembered by some stores and forgotten by others.
            self.batches = [(batch, base) for batch, base in self.batches if base + 1 >= head.first_seq]  # type: ignore[attr-defined]

    def remove(self) -> None:
        if self.rng.random() < 0.15:
            deleted, _ = self.both(lambda store, _: store.delete(KEY))
            if deleted is True:
                self.last_seq = 0
            if self.rng.random() < 0.3:
                self.both(lambda store, _: store.purge(KEY))
        if self.stores[0].head(KEY) is not None:
            self.both(lambda store, _: store.verify(KEY, deep=True).findings)


@pytest.mark.parametrize("seed", range(40))
def test_journals_agree(seed: int) -> None:
    journals = Journals(seed)
    calls = [journals.claim, *[journals.append] * 5, journals.settle, journals.keep, journals.read, journals.export]
    calls += [journals.trim, journals.remove]
    for _ in range(120):
        journals.rng.choice(calls)()


class States:
    """The same random calls on two stores."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stores: list[AgentStateStore] = [
            MemoryAgentStateStore(MemoryOptions()),
            AtomicAgentStateStore(HonestStorage(content_tokens=True, page_max=3), shape=SMALL),
        ]

    def both(self, call: Callable[[AgentStateStore], object]) -> object:
        native, atomic = [outcome(lambda: call(store)) for store in self.stores]  # noqa: B023
        assert plain(native) == plain(atomic)
        return native

    def step(self) -> None:
        rng = self.rng
        slot = StateKey(
            rng.choice([None, "u"]), rng.choice(["s", "s-", "s-1", "S", "t"]), rng.choice(["k", "K", "k-1"])
        )
        kind = rng.choice(list(SlotKind))
        loaded = self.both(lambda store: store.load(slot))
        items = self.both(lambda store: store.load_list(slot))
        current = loaded if kind is SlotKind.DOCUMENT else items
        version = getattr(current, "version", 1)
        expected = rng.choice([ANY, ABSENT, version, version + 1])
        values = [b"%d" % rng.randrange(1_000) * rng.randrange(1, 60) for _ in range(rng.randrange(6))]
        length = len(getattr(items, "items", ())) + rng.choice([0, 0, 0, 1])
        act = rng.randrange(9)
        if act == 0:
            self.both(lambda store: store.save(slot, b"".join(values), expected=expected))
        elif act in (1, 2, 3):
            self.both(lambda store: store.append_list(slot, values, expected_length=length))
        elif act == 4:
            self.both(lambda store: store.replace_list(slot, values, expected=expected))
        elif act == 5:
            self.both(lambda store: store.delete(slot, kind=kind, expected=ANY if expected is ABSENT else expected))
        elif act == 6 and rng.random() < 0.3:
            self.both(lambda store: store.delete_session(slot.session))
        limit = rng.choice([1, 2, 10])
        after = rng.choice([None, slot])
        self.both(lambda store: store.exists(slot.session))
        self.both(lambda store: store.list_keys(slot.session, kind=kind, after=after, limit=limit))
        session = None if after is None else after.session
        self.both(lambda store: store.list_sessions(slot.user_id, after=session, limit=limit))


@pytest.mark.parametrize("seed", range(20))
def test_states_agree(seed: int) -> None:
    states = States(seed)
    for _ in range(120):
        states.step()
    assert isinstance(states.both(lambda store: store.save(StateKey("u", "s", "k"), b"1")), int)
    assert isinstance(states.both(lambda store: store.load(StateKey("u", "s", "k"))), StateValue)
