"""The adversary does what it says, and a schedule is the same again from the same seed."""

from __future__ import annotations

import random

import pytest

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage
from statebook.errors import JournalCorrupt, OutcomeUnknown
from statebook.keys import ThreadKey
from statebook.plugins import Backend, load_backend
from statebook_conformance.adversary import Adversary, Fate, Scheduler, conflict_once, once, scripted
from statebook_conformance.adversary_world import World
from statebook_conformance.checkers.history import Header

SCOPE = "t/user"


@pytest.fixture
def backend() -> Backend:
    return load_backend(f"memory://adversary-{random.getrandbits(64):x}")


@pytest.fixture
def storage(backend: Backend) -> AtomicJournalStorage:
    return backend.open_atomic()


def test_a_fair_commit_is_applied_and_answered(storage: AtomicJournalStorage) -> None:
    client = Adversary(storage).client()
    token = client.commit(SCOPE, None, b"head", {"blob": b"content"})
    record = storage.read_head(SCOPE)
    assert record is not None
    assert (record.data, record.token) == (b"head", token)
    assert storage.read_blob(SCOPE, "blob") == b"content"


@pytest.mark.parametrize(("fate", "applied"), [(Fate.BEFORE, False), (Fate.AFTER, True), (Fate.LATE, False)])
def test_a_lost_answer_is_unknown_whether_applied_or_not(
    storage: AtomicJournalStorage, fate: Fate, applied: bool
) -> None:
    client = Adversary(storage).client(fate=scripted(fate))
    with pytest.raises(OutcomeUnknown):
        client.commit(SCOPE, None, b"head")
    assert (storage.read_head(SCOPE) is not None) is applied


def test_a_late_request_lands_only_on_the_head_that_it_was_built_on(storage: AtomicJournalStorage) -> None:
    adversary = Adversary(storage)
    client = adversary.client(fate=scripted(Fate.LATE, Fate.FAIR))
    with pytest.raises(OutcomeUnknown):
        client.commit(SCOPE, None, b"late")
    client.commit(SCOPE, None, b"first")
    assert adversary.land() is False
    record = storage.read_head(SCOPE)
    assert record is not None
    assert record.data == b"first"


def test_a_late_request_lands_where_nothing_has_changed(storage: AtomicJournalStorage) -> None:
    adversary = Adversary(storage)
    with pytest.raises(OutcomeUnknown):
        adversary.client(fate=scripted(Fate.LATE)).commit(SCOPE, None, b"late", {"blob": b"content"})
    assert adversary.land() is True
    assert storage.read_blob(SCOPE, "blob") == b"content"


def test_blobs_are_there_before_their_head_and_can_be_deleted_in_between(storage: AtomicJournalStorage) -> None:
    adversary = Adversary(storage)
    other = adversary.client()
    seen: list[tuple[str, ...]] = []

    def collect() -> None:
        seen.append(other.list_blobs(SCOPE, None, 10).names)
        other.delete_blobs(SCOPE, ["blob"])

    client = adversary.client(gate=once("commit", collect))
    client.commit(SCOPE, None, b"head", {"blob": b"content", "kept": b"more"})
    assert seen == [("blob", "kept")]
    assert (storage.read_blob(SCOPE, "blob"), storage.read_blob(SCOPE, "kept")) == (None, b"more")


def test_a_blob_is_never_replaced_also_before_its_head_is_there(storage: AtomicJournalStorage) -> None:
    adversary = Adversary(storage)
    with pytest.raises(OutcomeUnknown):
        adversary.client(fate=scripted(Fate.BEFORE)).commit(SCOPE, None, b"head", {"blob": b"content"})
    with pytest.raises(JournalCorrupt):
        adversary.client().commit(SCOPE, None, b"head", {"blob": b"other"})


def test_a_conflict_is_made_once(storage: AtomicJournalStorage) -> None:
    adversary = Adversary(storage)
    token = adversary.client().commit(SCOPE, None, b"head")
    assert isinstance(token, str)
    client = adversary.client(gate=conflict_once(storage, SCOPE))
    assert client.commit(SCOPE, token, b"next") == COMMIT_CONFLICT
    record = storage.read_head(SCOPE)
    assert record is not None
    assert isinstance(client.commit(SCOPE, record.token, b"next"), str)


def test_exactly_one_actor_goes_on_at_a_time_and_the_seed_says_which() -> None:
    def play(seed: int) -> list[str]:
        order: list[str] = []
        scheduler = Scheduler(random.Random(seed), steps=60, pause_rate=0.1, between=lambda: None)

        def actor(name: str) -> None:
            for _ in range(20):
                order.append(name)
                scheduler.gate("step")
                order.append(name)

        scheduler.run([(name, lambda name=name: actor(name)) for name in ("a", "b", "c")])
        return order

    first = play(7)
    assert first == play(7)
    assert first != play(8)
    assert sorted(first) == ["a"] * 40 + ["b"] * 40 + ["c"] * 40


def test_an_error_of_an_actor_ends_the_schedule_and_is_raised() -> None:
    scheduler = Scheduler(random.Random(1), steps=100, pause_rate=0.0, between=lambda: None)

    def fails() -> None:
        scheduler.gate("step")
        raise ValueError("of the actor")

    def goes_on() -> None:
        while not scheduler.over:
            scheduler.gate("step")

    with pytest.raises(ValueError, match="of the actor"):
        scheduler.run([("fails", fails), ("goes on", goes_on)])


def test_a_schedule_has_the_same_history_again(backend: Backend) -> None:
    def digest(name: str) -> str:
        key = ThreadKey("user", "agent", "session", name)
        world = World(backend.open_atomic(), backend.journal_over, key, seed=3, steps=150, fault_rate=0.25)
        world.run()
        assert world.adversary.lost > 0
        return world.recorder.history(Header(rule="rule", seed=3, checker="journal")).digest()

    assert digest("one") == digest("two")
