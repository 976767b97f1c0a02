"""A storage that serves many calls at once is asked so: groups over threads, pages over blobs, each in its order."""

from __future__ import annotations

import threading

import pytest
from tests.unit.atomic.honest_storage import HonestStorage

from statebook.at_once import at_once
from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.errors import HeadConflict, LimitExceeded
from statebook.index_tree import Shape
from statebook.keys import ThreadKey
from statebook.model import AppendRequest, Batch, Event, Receipt

WIDTH = 4


class Wide(HonestStorage):
    """A storage whose calls of one kind wait until so many of them are under way: one after the other they never end.

    Attributes:
        meeting: The kind of call.
        meets: Where they wait.
    """

    def __init__(self, meeting: str) -> None:
        super().__init__()
        self.meeting = meeting
        self.meets = threading.Barrier(WIDTH, timeout=10)
        self.waits = False
        self.before_call = self._meet

    @property
    def requests_at_once(self) -> int:
        return WIDTH

    def _meet(self, call: str) -> None:
        if self.waits and call == self.meeting:
            self.meets.wait()


def _key(name: str) -> ThreadKey:
    return ThreadKey("user", "agent", "session", name)


def _batch(name: str, payload: bytes = b"{}") -> Batch:
    return Batch(name, (Event(event_id=f"{name}.0", type="x", occurred_at=1, payload=payload),))


def test_the_threads_of_a_group_commit_at_once_and_each_thread_in_its_order() -> None:
    storage = Wide("commit")
    store = AtomicThreadJournalStore(storage)
    claims = [store.claim(_key(f"t{place}"), "writer") for place in range(WIDTH)]
    requests = [AppendRequest(claim, _batch(f"b{turn}"), turn) for turn in range(3) for claim in claims]
    requests.append(AppendRequest(claims[0], _batch("late"), 1))
    storage.waits = True
    *outcomes, refused = store.append_many(requests)
    assert isinstance(refused, HeadConflict)
    receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    assert [(receipt.batch_id, receipt.last_seq) for receipt in receipts] == [
        (f"b{turn}", turn + 1) for turn in range(3) for _ in claims
    ]


def test_a_group_over_the_limit_is_refused_as_a_whole() -> None:
    storage = Wide("none")
    store = AtomicThreadJournalStore(storage)
    claim = store.claim(_key("t"), "writer")
    most = store.capabilities.limits.group_batches_max
    with pytest.raises(LimitExceeded):
        store.append_many([AppendRequest(claim, _batch(f"b{place}"), place) for place in range(most + 1)])
    assert store.head(_key("t")).last_seq == 0  # type: ignore[union-attr]


def test_the_blobs_of_a_page_are_read_at_once_and_no_further_ones() -> None:
    storage = Wide("read_blob")
    store = AtomicThreadJournalStore(storage, shape=Shape(400, 64))
    claim = store.claim(_key("t"), "writer")
    for place in range(24):
        store.append(claim, _batch(f"b{place}", b'"%s"' % (b"x" * 300)), place)
    storage.waits = True
    before = storage.calls["read_blob"]
    page = store.read_after(_key("t"), 0, WIDTH)
    assert [event.seq for event in page.events] == [1, 2, 3, 4]
    assert storage.calls["read_blob"] - before == WIDTH


def test_the_first_error_is_told_when_all_have_ended() -> None:
    ended: list[int] = []

    def call(item: int) -> int:
        ended.append(item)
        if item % 2:
            raise ValueError(item)
        return item

    with pytest.raises(ValueError, match="1"):
        at_once(3, call, range(6))
    assert sorted(ended) == list(range(6))
    assert at_once(1, str, range(3)) == ["0", "1", "2"]
