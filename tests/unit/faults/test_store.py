"""Faulty stores do to each write what their fate says, and a test can know what became of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage
from statebook.errors import BackendUnavailable, OutcomeUnknown
from statebook.journal import ThreadJournalStore
from statebook.model import AppendRequest, Receipt
from statebook.plugins import load_backend
from statebook_conformance.faults import Fault, FaultLine, FaultyAtomic, FaultyJournal, drawn, planned
from statebook_conformance.scenes import make_batch, names, thread


@pytest.fixture
def atomic() -> Iterator[AtomicJournalStorage]:
    with closing(load_backend("memory://faults-atomic").open_atomic()) as storage:
        yield storage


@pytest.fixture
def journal() -> Iterator[ThreadJournalStore]:
    with closing(load_backend("memory://faults-journal").open_journal()) as store:
        yield store


def head_of(storage: AtomicJournalStorage, scope: str) -> bytes | None:
    record = storage.read_head(scope)
    return None if record is None else record.data


@pytest.mark.parametrize(
    ("fault", "error", "there"),
    [
        (Fault.TIMES_OUT_AFTER, OutcomeUnknown, b"head"),
        (Fault.TIMES_OUT_BEFORE, OutcomeUnknown, None),
        (Fault.UNAVAILABLE, BackendUnavailable, None),
        (Fault.LATE, OutcomeUnknown, None),
    ],
)
def test_a_commit_is_applied_or_not_as_its_fault_says(
    atomic: AtomicJournalStorage, fault: Fault, error: type[Exception], there: bytes | None
) -> None:
    line = FaultLine(planned(fault))
    scope = f"t/{fault.name.lower()}"
    with pytest.raises(error):
        FaultyAtomic(atomic, line).commit(scope, None, b"head", {"blob": b"content"})
    assert head_of(atomic, scope) == there
    assert line.counts == {fault: 1}
    assert (line.late, line.landed) == (int(fault is Fault.LATE), 0)


def test_a_late_commit_lands_once_where_nobody_has_written_since(atomic: AtomicJournalStorage) -> None:
    line = FaultLine(planned(Fault.LATE, Fault.LATE, Fault.LATE))
    faulty = FaultyAtomic(atomic, line)
    for scope in ("t/free", "t/taken", "t/free"):
        with pytest.raises(OutcomeUnknown):
            faulty.commit(scope, None, b"late", {"blob": b"content"})
    atomic.commit("t/taken", None, b"earlier")
    assert [line.land() for _ in range(3)] == [True, False, False]
    assert (head_of(atomic, "t/free"), head_of(atomic, "t/taken"), line.landed) == (b"late", b"earlier", 1)
    assert atomic.read_blob("t/free", "blob") == b"content"
    with pytest.raises(IndexError):
        line.land()


def test_a_conflict_without_cause_changes_nothing_and_a_slow_commit_waits(atomic: AtomicJournalStorage) -> None:
    waits: list[float] = []
    line = FaultLine(planned(Fault.CONFLICT, Fault.SLOW), sleep=waits.append, slow_s=0.5)
    faulty = FaultyAtomic(atomic, line)
    assert faulty.commit("t/slow", None, b"head") == COMMIT_CONFLICT
    assert (head_of(atomic, "t/slow"), waits) == (None, [])
    assert isinstance(faulty.commit("t/slow", None, b"head"), str)
    assert (head_of(atomic, "t/slow"), waits) == (b"head", [0.5])


def test_a_faulty_journal_names_the_batch_that_is_in_doubt_and_the_retry_lands_it_once(
    journal: ThreadJournalStore,
) -> None:
    key = thread("doubt")
    line = FaultLine(planned(Fault.TIMES_OUT_AFTER, Fault.NONE, Fault.LATE))
    faulty = FaultyJournal(journal, line)
    claim = faulty.claim(key, "writer")
    for name, base, replayed in (("a", 0, True), ("b", 1, False)):
        with pytest.raises(OutcomeUnknown) as caught:
            faulty.append(claim, make_batch(name), base)
        assert (caught.value.batch_id, caught.value.base_seq) == (name, base)
        assert faulty.append(claim, make_batch(name), base).replayed is replayed
    assert line.land() is False
    assert names(journal.read_after(key, 0).events) == [(1, "a.1"), (2, "b.1")]


def test_each_request_of_a_group_meets_its_own_fault(journal: ThreadJournalStore) -> None:
    faulty = FaultyJournal(journal, FaultLine(planned(Fault.NONE, Fault.UNAVAILABLE, Fault.TIMES_OUT_AFTER)))
    claims = [faulty.claim(thread(f"group-{number}"), "writer") for number in range(3)]
    outcomes = faulty.append_many([AppendRequest(claim, make_batch("a"), 0) for claim in claims])
    assert [type(outcome) for outcome in outcomes] == [Receipt, BackendUnavailable, OutcomeUnknown]
    ends = [head.last_seq for claim in claims if (head := journal.head(claim.key)) is not None]
    assert ends == [1, 0, 1]


def test_the_same_seed_draws_the_same_faults() -> None:
    def of(seed: int) -> list[Fault]:
        fate = drawn(random.Random(seed), (Fault.LATE, Fault.SLOW), rate=0.5)
        return [fate() for _ in range(40)]

    assert of(1) == of(1) != of(2)
    assert set(of(1)) == {Fault.NONE, Fault.LATE, Fault.SLOW}
    with pytest.raises(ValueError, match="rate"):
        drawn(random.Random(1), (Fault.LATE,), rate=1.5)
