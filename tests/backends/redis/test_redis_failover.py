"""A master is killed while eight writers append: each acknowledged event is there once, or its loss is reported.

Redis replicates behind its acknowledgements, so a failover may lose the last of them. Then the writer must meet
`JournalRegressed` or `WriterFenced`, and is never told success twice for one batch (case 52).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from statebook.errors import BackendUnavailable, JournalRegressed, OutcomeUnknown, StatebookError, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import Batch, WriterClaim
from statebook_backends.redis.layout import Layout
from statebook_conformance.services.redis_service import RedisClusterService, RedisSentinelService

if TYPE_CHECKING:
    from tests.backends.redis.conftest import Stores

MakeBatch = Callable[..., Batch]
WRITERS = 8
AFTER = 30
PATIENCE_S = 60.0


class Writer:
    """Appends batch after batch with one claim, sends what is unknown again, and stops at a reported loss."""

    def __init__(self, store: ThreadJournalStore, key: ThreadKey, make_batch: MakeBatch) -> None:
        self.store = store
        self.claim: WriterClaim = store.claim(key, "writer")
        self.make_batch = make_batch
        self.acked: dict[str, int] = {}
        self.fresh: list[str] = []
        self.loss: StatebookError | None = None
        self.errors = 0
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._guarded)
        self.enough = threading.Event()

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failure = error

    def _run(self) -> None:
        base, number = 0, 0
        deadline = time.monotonic() + PATIENCE_S
        while not self.enough.is_set():
            assert time.monotonic() < deadline, "the failover took too long"
            try:
                receipt = self.store.append(self.claim, self.make_batch(f"b{number}", 2), base)
            except (OutcomeUnknown, BackendUnavailable):
                self.errors += 1
                time.sleep(0.02)
                continue
            except (JournalRegressed, WriterFenced) as error:
                self.loss = error
                return
            if not receipt.replayed:
                self.fresh.append(receipt.batch_id)
            self.acked[receipt.batch_id] = receipt.last_seq
            base, number = receipt.last_seq, number + 1

    def check(self) -> None:
        """Everything acknowledged is there, once and in order, unless the loss was reported."""
        assert self.failure is None, repr(self.failure)
        assert len(self.fresh) == len(set(self.fresh)), "a batch was committed twice"
        key = self.claim.key
        head = self.store.head(key)
        events: list[str] = []
        while head is not None and len(events) < head.last_seq:
            events += [event.event_id for event in self.store.read_after(key, len(events), 1_000).events]
        assert len(events) == len(set(events)), "an event is there twice"
        assert events == [f"b{index // 2}.{index % 2}" for index in range(len(events))], "a gap, or another order"
        if self.loss is None:
            last = max(self.acked.values())
            assert len(events) >= last, f"events up to {last} were acknowledged, {len(events)} are there, no word of it"
        assert self.store.verify(key, deep=True).findings == ()


def _run(writers: list[Writer], kill: Callable[[], None]) -> None:
    for writer in writers:
        writer.thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while min(len(writer.acked) for writer in writers) < AFTER:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kill()
    counts = [len(writer.acked) for writer in writers]
    while any(
        writer.loss is None and writer.failure is None and len(writer.acked) < count + AFTER
        for writer, count in zip(writers, counts, strict=True)
    ):
        assert time.monotonic() < deadline, "no writer went on after the failover"
        time.sleep(0.05)
    for writer in writers:
        writer.enough.set()
    for writer in writers:
        writer.thread.join(timeout=PATIENCE_S)
        writer.check()


def test_a_failover_under_sentinels_loses_nothing_without_a_word(
    sentinel: RedisSentinelService, stores_at: Callable[[str], Stores], make_batch: MakeBatch
) -> None:
    """Case 52: what a master took along is met as a regression or a fence, never as success."""
    stores = stores_at(sentinel.url)
    journal = stores.journal(connect_timeout_s=1, read_timeout_s=2)
    keys = [ThreadKey("user", "agent", "session", f"t{index}") for index in range(WRITERS)]
    writers = [Writer(journal, key, make_batch) for key in keys]
    before = sentinel.master()
    _run(writers, before.kill)
    assert sentinel.master().port != before.port
    assert sum(writer.errors for writer in writers) > 0


def test_a_failover_in_a_cluster_loses_nothing_without_a_word(
    cluster: RedisClusterService, stores_at: Callable[[str], Stores], make_batch: MakeBatch
) -> None:
    stores = stores_at(cluster.url)
    journal = stores.journal(connect_timeout_s=1, read_timeout_s=2)
    keys = [ThreadKey("user", "agent", "session", f"t{index}") for index in range(WRITERS)]
    writers = [Writer(journal, key, make_batch) for key in keys]
    head = Layout(stores.namespace).thread(keys[0]).head.decode()
    before = cluster.owner(head)
    _run(writers, before.kill)
    assert cluster.owner(head).port != before.port
    assert sum(writer.errors for writer in writers) > 0


def test_slots_that_move_to_another_node_are_followed(
    cluster: RedisClusterService, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch
) -> None:
    """A redirection is the only reason for which a call is sent again: nothing is stored twice."""
    from statebook_conformance.services.redis_service import ask

    stores = stores_at(cluster.url)
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    journal.append(claim, make_batch("b0"), 0)
    layout = Layout(stores.namespace)
    keys = layout.thread(thread)
    source = cluster.owner(keys.head.decode()).port
    target = next(port for port in cluster.ports[:3] if port != source)
    ids = {port: ask(port, "CLUSTER", "MYID").split("\r\n")[1] for port in (source, target)}
    slot = str(keys.slot)
    ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    for key in (keys.head, keys.batches):
        assert "+OK" in ask(source, "MIGRATE", "127.0.0.1", str(target), key.decode(), "0", "5000")
    # all keys of the thread are at the target, the slot still at the source: ASK
    assert journal.append(claim, make_batch("b1"), 1).replayed is False
    assert journal.read_after(thread, 0).last_seq == 2
    for port in (target, source, *(port for port in cluster.ports[:3] if port not in (source, target))):
        ask(port, "CLUSTER", "SETSLOT", slot, "NODE", ids[target])
    # and now the slot is the target's: MOVED
    assert journal.append(claim, make_batch("b2"), 2).replayed is False
    assert [event.seq for event in journal.read_after(thread, 0).events] == [1, 2, 3]
