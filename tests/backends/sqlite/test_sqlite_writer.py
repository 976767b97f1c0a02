"""Group commit, failures of the engine, and what a call costs."""

import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from statebook import (
    AgentStateStore,
    AppendRequest,
    BackendUnavailable,
    BatchConflict,
    HeadConflict,
    Receipt,
    StateKey,
    StoreClosed,
    ThreadJournalStore,
    ThreadKey,
    VersionConflict,
    WriterFenced,
)
from statebook.plugins import open_journal, open_state


def _threads(count: int) -> list[ThreadKey]:
    return [ThreadKey("user", "agent", "session", f"thread-{number}") for number in range(count)]


def _database(store: Any) -> Any:
    return store._session.database


def _writer(store: Any) -> Any:
    return _database(store).writer


def test_a_refused_batch_in_a_group_writes_nothing_and_harms_no_other(
    journal: ThreadJournalStore, batch: Any, raw: Callable[..., list[Any]]
) -> None:
    keys = _threads(6)
    claims = [journal.claim(key, "w") for key in keys]
    journal.append(claims[1], batch("there"), 0)
    journal.append(claims[4], batch("other", payload=b"2"), 0)
    old = claims[2]
    journal.claim(keys[2], "newer")
    outcomes = journal.append_many(
        [
            AppendRequest(claims[0], batch("a", 3), 0),
            AppendRequest(claims[1], batch("late"), 0),
            AppendRequest(old, batch("fenced"), 0),
            AppendRequest(claims[3], batch("b", 2), 0),
            AppendRequest(claims[4], batch("other", payload=b"3"), 1),
            AppendRequest(claims[0], batch("c"), 3),
            AppendRequest(claims[0], batch("d"), 3),
            AppendRequest(claims[5], batch("e"), 0),
        ]
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Receipt, HeadConflict, WriterFenced, Receipt, BatchConflict, Receipt, HeadConflict, Receipt]
    assert {row[0] for row in raw("SELECT batch_id FROM batch")} == {"there", "other", "a", "b", "c", "e"}
    for key in keys:
        assert journal.verify(key, deep=True).findings == ()


def test_requests_of_one_thread_are_judged_in_their_order(
    journal: ThreadJournalStore, key: ThreadKey, batch: Any
) -> None:
    claim = journal.claim(key, "w")
    outcomes = journal.append_many([AppendRequest(claim, batch(f"b{number}"), number) for number in range(300)])
    assert [outcome.last_seq for outcome in outcomes if isinstance(outcome, Receipt)] == list(range(1, 301))
    again = journal.append_many([AppendRequest(claim, batch(f"b{number}"), number) for number in range(300)])
    assert all(isinstance(outcome, Receipt) and outcome.replayed for outcome in again)


def test_a_group_is_one_commit(url: str, batch: Any) -> None:
    store = open_journal(url)
    keys = _threads(64)
    claims = [store.claim(key, "w") for key in keys]
    statements: list[str] = []
    _writer(store)._connection.set_trace_callback(statements.append)
    store.append_many([AppendRequest(claim, batch("b", 8), 0) for claim in claims])
    assert statements.count("COMMIT") == 1
    store.close()


def test_threads_share_commits_and_each_event_is_there_once(url: str, batch: Any) -> None:
    stores = [open_journal(url) for _ in range(4)]
    keys = _threads(16)
    commits: list[str] = []
    _writer(stores[0])._connection.set_trace_callback(lambda text: commits.append(text) if text == "COMMIT" else None)

    def write(number: int) -> None:
        store = stores[number % 4]
        claim = store.claim(keys[number], "w")
        last = 0
        for turn in range(50):
            last = store.append(claim, batch(f"{turn}", 1 + turn % 3), last).last_seq

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(16)))
    assert len(commits) < 16 * 51
    for key in keys:
        report = stores[0].verify(key, deep=True)
        assert (report.findings, report.batches) == ((), 50)
    for store in stores:
        store.close()


def test_racing_saves_of_one_slot_have_one_winner_a_round(url: str) -> None:
    stores = [open_state(url) for _ in range(4)]
    slot = StateKey("u", "s", "k")
    start = threading.Barrier(4)
    first = stores[0].save(slot, b"0")

    def save(store: AgentStateStore) -> list[int]:
        won = []
        for number in range(50):
            start.wait(timeout=60)
            try:
                won.append(store.save(slot, b"1", expected=first + number))
            except VersionConflict:
                continue
        return won

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(save, stores))
    assert sorted(version for each in won for version in each) == list(range(first + 1, first + 51))
    for store in stores:
        store.close()


# ----------------------------------------------------------------------------------------------------------- full disk


def test_a_full_database_refuses_one_batch_leaves_nothing_of_it_and_takes_the_next(
    url: str, key: ThreadKey, batch: Any, raw: Callable[..., list[Any]]
) -> None:
    store = open_journal(url)
    claim = store.claim(key, "w")
    store.append(claim, batch("first"), 0)
    connection = _writer(store)._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(BackendUnavailable, match="full") as caught:
        store.append(claim, batch("large", payload=b'"' + b"x" * 100_000 + b'"'), 1)
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert raw("SELECT batch_id FROM batch") == [("first",)]
    assert store.append(claim, batch("small"), 1).last_seq == 2
    connection.execute("PRAGMA max_page_count = 1000000")
    assert store.append(claim, batch("large", payload=b'"' + b"x" * 100_000 + b'"'), 2).last_seq == 3
    assert store.verify(key, deep=True).findings == ()
    store.close()


def test_in_a_group_only_the_batch_that_does_not_fit_fails(url: str, batch: Any) -> None:
    store = open_journal(url)
    claims = [store.claim(key, "w") for key in _threads(5)]
    connection = _writer(store)._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    large = batch("large", payload=b'"' + b"x" * 100_000 + b'"')
    outcomes = store.append_many(
        [AppendRequest(claim, large if number == 2 else batch("small"), 0) for number, claim in enumerate(claims)]
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Receipt, Receipt, BackendUnavailable, Receipt, Receipt]
    heads = [store.head(claim.key) for claim in claims]
    assert [head.last_seq for head in heads if head is not None] == [1, 1, 0, 1, 1]
    store.close()


LIMITED = """
import resource, sys, os
from statebook import BackendUnavailable, Batch, Event, OutcomeUnknown, ThreadKey
from statebook.plugins import open_journal

def batch(name, size):
    return Batch(name, (Event(event_id=name, type="x", occurred_at=1, payload=b'"' + b"x" * size + b'"'),))

store = open_journal("sqlite:///" + sys.argv[1])
key = ThreadKey("u", "a", "s", "t")
claim = store.claim(key, "w")
assert store.append(claim, batch("first", 10), 0).last_seq == 1
log = os.stat(sys.argv[1] + "-wal").st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (log + 20_000, resource.RLIM_INFINITY))
try:
    store.append(claim, batch("second", 300_000), 1)
    print("committed")
except OutcomeUnknown as error:
    print("unknown", error.batch_id, error.base_seq)
except BackendUnavailable:
    print("unavailable")
head = store.head(key)
assert head.last_seq == 1, head
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert store.settle(claim, "second", 1) is None
receipt = store.append(claim, batch("second", 300_000), 1)
assert (receipt.last_seq, receipt.replayed) == (2, False)
assert store.verify(key, deep=True).findings == ()
print("done")
"""


def test_a_commit_that_the_file_system_cuts_off_is_unknown_and_settles(path: Path, python: Any) -> None:
    out, error = python(LIMITED, str(path)).communicate(timeout=60)
    assert out.splitlines() == ["unknown second 1", "done"], error


# --------------------------------------------------------------------------------------------------------------- locked


def test_a_database_that_stays_locked_is_unavailable_within_the_time_out_and_free_afterwards(
    path: Path, url: str, key: ThreadKey
) -> None:
    store = open_journal(f"{url}?busy_timeout_ms=50")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BackendUnavailable, match="busy_timeout_ms") as caught:
        store.claim(key, "w")
    assert "locked" not in caught.value.message
    assert store.head(key) is None
    other.execute("ROLLBACK")
    other.close()
    assert store.claim(key, "w").epoch == 1
    store.close()


def test_a_reader_that_holds_a_snapshot_blocks_no_writer(path: Path, url: str, key: ThreadKey, batch: Any) -> None:
    store = open_journal(f"{url}?busy_timeout_ms=0")
    claim = store.claim(key, "w")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM batch").fetchone() == (0,)
    for number in range(20):
        store.append(claim, batch(f"b{number}"), number)
    assert reader.execute("SELECT count(*) FROM batch").fetchone() == (0,)
    reader.close()
    assert len(store.read_after(key, 0).events) == 20
    store.close()


def test_another_process_that_wrote_is_met_by_judgement_and_not_by_what_is_remembered(
    url: str, key: ThreadKey, batch: Any, python: Any, path: Path
) -> None:
    store = open_journal(url)
    claim = store.claim(key, "w")
    store.append(claim, batch("a"), 0)
    program = (
        "import sys; from statebook import ThreadKey; from statebook.plugins import open_journal\n"
        "store = open_journal('sqlite:///' + sys.argv[1]); key = ThreadKey('user', 'agent', 'session', 'thread')\n"
        "print(store.claim(key, 'other').epoch)"
    )
    out, error = python(program, str(path)).communicate(timeout=60)
    assert out == "2\n", error
    with pytest.raises(WriterFenced) as caught:
        store.append(claim, batch("b"), 1)
    assert (caught.value.current_epoch, caught.value.committed) == (2, None)
    store.close()


# ---------------------------------------------------------------------------------------------------------------- cost


def test_an_append_takes_four_statements_whatever_the_length_of_the_journal(
    url: str, key: ThreadKey, batch: Any
) -> None:
    store = open_journal(f"{url}?synchronous=normal")
    claim = store.claim(key, "w")
    counts: dict[int, int] = {}
    last = 0
    for number in range(10_001):
        if number in (1, 100, 1_000, 10_000):
            statements: list[str] = []
            _writer(store)._connection.set_trace_callback(statements.append)
            last = store.append(claim, batch(f"b{number}"), last).last_seq
            _writer(store)._connection.set_trace_callback(None)
            counts[number] = len(statements)
        else:
            last = store.append(claim, batch(f"b{number}"), last).last_seq
    assert counts == {1: 4, 100: 4, 1_000: 4, 10_000: 4}
    store.close()


def test_an_append_to_a_list_stores_what_is_appended(url: str, raw: Callable[..., list[Any]]) -> None:
    store = open_state(url)
    slot = StateKey("u", "s", "k")
    for number in range(50):
        store.append_list(slot, [b"%d" % number], expected_length=number)
    assert raw("SELECT max(length(body)), count(*) FROM chunk") == [(2, 50)]
    loaded = store.load_list(slot)
    assert loaded is not None
    assert loaded.items == tuple(b"%d" % number for number in range(50))
    store.close()


def test_threads_that_end_leave_no_connection_behind(url: str, key: ThreadKey) -> None:
    store = open_journal(url)
    store.claim(key, "w")

    def read() -> None:
        store.head(key)

    for _ in range(40):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert _database(store).readers.opened == 1
    store.close()


def test_closing_amid_calls_refuses_those_that_wait_and_leaves_no_connection(path: Path, url: str, batch: Any) -> None:
    for _ in range(5):
        store = open_journal(url)
        database = _database(store)
        begun = threading.Barrier(5)

        def write(key: ThreadKey, store: ThreadJournalStore = store, begun: threading.Barrier = begun) -> int:
            claim = store.claim(key, "w")
            last = claim.last_seq
            begun.wait(timeout=60)
            for number in range(10_000):
                try:
                    last = store.append(claim, batch(f"{claim.epoch}-{number}"), last).last_seq
                    store.head(key)
                except StoreClosed:
                    break
            return last

        keys = _threads(4)
        with ThreadPoolExecutor(4) as pool:
            writing = [pool.submit(write, key) for key in keys]
            begun.wait(timeout=60)
            store.close()
            lasts = [each.result() for each in writing]
        assert (database.writer._connection, database.readers.opened) == (None, 0)
        again = open_journal(url)
        heads = [again.head(key) for key in keys]
        assert [head.last_seq for head in heads if head is not None] == lasts
        again.close()


# --------------------------------------------------------------------------------------------------------------- forks


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_opens_its_own_connections_and_both_go_on(url: str, batch: Any) -> None:
    store = open_journal(url)
    mine, childs = _threads(2)
    claim = store.claim(mine, "parent")
    last = store.append(claim, batch("before"), 0).last_seq
    assert len(store.read_after(mine, 0).events) == 1
    for round_ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                own = store.claim(childs, f"child-{round_}")
                store.append(own, batch(f"child-{round_}"), own.last_seq)
                assert len(store.read_after(mine, 0).events) >= 1
                code = 0
            finally:
                os._exit(code)
        last = store.append(claim, batch(f"parent-{round_}"), last).last_seq
        assert os.waitpid(child, 0)[1] == 0
    assert [event.event_id for event in store.read_after(childs, 0).events] == [f"child-{n}.0" for n in range(3)]
    assert [event.event_id for event in store.read_after(mine, 1).events] == [f"parent-{n}.0" for n in range(3)]
    assert store.verify(mine, deep=True).findings == ()
    store.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_amid_writing_threads_harms_neither_side(url: str, batch: Any) -> None:
    store = open_journal(url)
    keys = _threads(5)
    stop = threading.Event()
    counts = [0] * 4

    def write(number: int) -> None:
        claim = store.claim(keys[number], "w")
        while not stop.is_set():
            counts[number] = store.append(claim, batch(f"b{counts[number]}"), counts[number]).last_seq
            store.head(keys[number])

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, number) for number in range(4)]
        for round_ in range(5):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    own = store.claim(keys[4], f"child-{round_}")
                    store.append(own, batch(f"child-{round_}"), own.last_seq)
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for each in writing:
            each.result()
    for number in range(4):
        head = store.head(keys[number])
        assert head is not None
        assert head.last_seq == counts[number]
        assert store.verify(keys[number], deep=True).findings == ()
    assert len(store.read_after(keys[4], 0).events) == 5
    store.close()
