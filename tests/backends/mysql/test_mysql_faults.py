"""Lost connections, lost replies, dead servers: not applied, or unknown and settled; the next call works (ERR-2)."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from statebook.errors import BackendUnavailable, OutcomeUnknown, StatebookError, StateCorrupt, StoreClosed, WriterFenced
from statebook.keys import StateKey, ThreadKey
from statebook.model import AppendRequest
from statebook.plugins import open_journal, open_state
from statebook_conformance.services.mysql_service import MysqlService

SLOT = StateKey("u", "s", "k")


def _in_thread(function: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(function())
        except StatebookError as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcomes


class Holder:
    """Holds the lock of a head's row, as a transaction of somebody else would."""

    def __init__(self, server: MysqlService, key: ThreadKey) -> None:
        import pymysql

        self._connection = pymysql.connect(
            host="127.0.0.1", port=server.port, user=server.user, password=server.password, database=server.database
        )
        cursor = self._connection.cursor()
        cursor.execute("SELECT jid FROM sb_journal WHERE user_id = %s", (key.user_id,))
        cursor.execute("SELECT jid FROM sb_journal WHERE jid = %s FOR UPDATE", cursor.fetchall()[0])
        assert cursor.fetchall()

    def let_go(self) -> None:
        self._connection.close()


@pytest.fixture
def own_key(stores: Any) -> ThreadKey:
    """A thread of a user of its own, so that its row can be told by the user."""
    return ThreadKey(stores.namespace, "agent", "session", "thread")


def _waits(server: MysqlService) -> bool:
    text = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    return server.execute(text).strip() != "0"


# ------------------------------------------------------------------------------------------------------- between calls


def test_sessions_killed_between_calls_are_replaced_without_an_error(
    server: MysqlService, stores: Any, key: ThreadKey, batch: Any, kill: Any
) -> None:
    """Case 32: the server ends idle connections; the next call of each kind works."""
    journal, state, atomic = stores.journal(), stores.state(), stores.atomic()
    claim = journal.claim(key, "w")
    journal.append(claim, batch("b1"), 0)
    calls: tuple[Callable[[], object], ...] = (
        lambda: journal.append(claim, batch("b2"), 1).last_seq,
        lambda: journal.read_after(key, 0).last_seq,
        lambda: journal.head(key),
        lambda: journal.heartbeat(claim),
        lambda: state.save(SLOT, b"1"),
        lambda: state.load(SLOT),
        lambda: atomic.commit("t/x", None, b"1"),
        lambda: atomic.read_head("t/x"),
        lambda: journal.verify(key, deep=True).findings,
    )
    for call in calls:
        assert kill(server) > 0
        call()
    assert journal.append(claim, batch("b2"), 1).replayed is True


def test_a_session_that_was_idle_for_long_is_asked_before_it_is_used(
    server: MysqlService, stores: Any, key: ThreadKey, batch: Any, kill: Any
) -> None:
    journal = stores.journal(ping_after_s=0)
    claim = journal.claim(key, "w")
    kill(server)
    assert journal.append(claim, batch("b"), 0).last_seq == 1


def test_a_server_that_was_restarted_is_found_again(
    own_server: MysqlService, stores_at: Any, key: ThreadKey, batch: Any
) -> None:
    stores = stores_at(own_server.url)
    journal, state = stores.journal(), stores.state()
    claim = journal.claim(key, "w")
    journal.append(claim, batch("b1"), 0)
    own_server.servers[0].restart()
    assert journal.append(claim, batch("b2"), 1).last_seq == 2
    assert state.save(SLOT, b"1") == 1


def test_a_dead_server_is_unavailable_and_after_its_recovery_nothing_acknowledged_is_lost(
    own_server: MysqlService, stores_at: Any, key: ThreadKey, batch: Any
) -> None:
    journal = stores_at(own_server.url).journal()
    claim = journal.claim(key, "w")
    for number in range(20):
        journal.append(claim, batch(f"b{number}"), number)
    own_server.servers[0].kill()
    with pytest.raises(BackendUnavailable):
        journal.head(key)
    with pytest.raises(BackendUnavailable):
        journal.append(claim, batch("late"), 20)
    own_server.servers[0].start()
    assert [event.event_id for event in journal.read_after(key, 0).events] == [f"b{number}.0" for number in range(20)]
    assert journal.append(claim, batch("late"), 20).replayed is False


def test_writers_whose_server_is_killed_amid_their_appends_are_told_no_success_that_is_lost(
    own_server: MysqlService, stores_at: Any, batch: Any, eventually: Any
) -> None:
    journal = stores_at(own_server.url).journal()
    done: dict[int, int] = {}
    open_: dict[int, tuple[Any, int]] = {}
    claims = {number: journal.claim(ThreadKey("u", "a", "s", f"t{number}"), "w") for number in range(8)}

    def write(number: int) -> None:
        base = 0
        while True:
            sent = batch(f"{number}-{base}", events=3)
            try:
                base = done[number] = journal.append(claims[number], sent, base).last_seq
            except (OutcomeUnknown, BackendUnavailable):
                open_[number] = (sent, base)
                return

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(done) == 8 and min(done.values()) > 30)
    own_server.servers[0].kill()
    for thread in threads:
        thread.join(60)
    own_server.servers[0].start()
    assert open_.keys() == claims.keys()
    for number, (sent, base) in open_.items():
        receipt = journal.append(claims[number], sent, base)
        assert (receipt.first_seq, receipt.last_seq) == (base + 1, base + 3)
        assert base == done[number]
        events = journal.read_after(claims[number].key, 0, 10_000).events
        assert len({event.event_id for event in events}) == len(events) == base + 3
        assert journal.verify(claims[number].key, deep=True).findings == ()


def test_a_server_that_stands_still_costs_one_time_out_and_the_next_call_works(
    own_server: MysqlService, stores_at: Any, key: ThreadKey, batch: Any
) -> None:
    journal = stores_at(own_server.url).journal(read_timeout_s=2.0, lock_timeout_s=1, connect_timeout_s=1.0)
    claim = journal.claim(key, "w")
    journal.append(claim, batch("a"), 0)
    own_server.servers[0].pause()
    try:
        with pytest.raises(OutcomeUnknown) as caught:
            journal.append(claim, batch("b"), 1)
        assert (caught.value.batch_id, caught.value.base_seq) == ("b", 1)
        with pytest.raises(BackendUnavailable):
            journal.head(key)
    finally:
        own_server.servers[0].resume()
    assert journal.append(claim, batch("b"), 1).last_seq == 2


# -------------------------------------------------------------------------------------------------------- during writes


def test_a_session_killed_during_an_append_is_an_unknown_outcome_that_settles(
    server: MysqlService, stores: Any, own_key: ThreadKey, batch: Any, kill: Any, eventually: Any
) -> None:
    journal = stores.journal()
    claim = journal.claim(own_key, "w")
    journal.append(claim, batch("b1"), 0)
    holder = Holder(server, own_key)
    thread, outcomes = _in_thread(lambda: journal.append(claim, batch("b2"), 1))
    eventually(lambda: _waits(server))
    kill(server, "info LIKE '%UPDATE%'")
    thread.join(30)
    holder.let_go()
    assert isinstance(outcomes[0], (OutcomeUnknown, BackendUnavailable))
    assert journal.settle(claim, "b2", 1) is None
    assert journal.append(claim, batch("b2"), 1).replayed is False


def test_an_append_whose_reply_is_lost_has_landed_once(stores: Any, key: ThreadKey, batch: Any, proxy: Any) -> None:
    """Cases 37 and 43: the client is cut off behind the COMMIT; sending again gives the receipt."""
    journal = open_journal(proxy.url(stores))
    claim = journal.claim(key, "w")
    journal.append(claim, batch("b1"), 0)
    proxy.lose_reply = b"COMMIT"
    with pytest.raises(OutcomeUnknown) as caught:
        journal.append(claim, batch("b2", events=2), 1)
    assert (caught.value.batch_id, caught.value.base_seq, proxy.lost) == ("b2", 1, 1)
    receipt = journal.settle(claim, "b2", 1)
    assert receipt is not None
    assert (receipt.first_seq, receipt.last_seq) == (2, 3)
    assert journal.append(claim, batch("b2", events=2), 1).replayed is True
    assert journal.read_after(key, 0).last_seq == 3
    journal.close()


def test_an_append_whose_request_is_lost_is_unknown_and_never_lands_once_it_is_settled(
    stores: Any, key: ThreadKey, batch: Any, proxy: Any
) -> None:
    journal = open_journal(proxy.url(stores))
    claim = journal.claim(key, "w")
    proxy.lose_request = b"COMMIT"
    with pytest.raises(OutcomeUnknown):
        journal.append(claim, batch("b1"), 0)
    assert journal.settle(claim, "b1", 0) is None
    assert journal.append(claim, batch("b1"), 0).replayed is False
    journal.close()


def test_a_group_whose_reply_is_lost_is_unknown_for_each_and_lands_once(stores: Any, batch: Any, proxy: Any) -> None:
    journal = open_journal(proxy.url(stores))
    claims = [journal.claim(ThreadKey("u", "a", "s", f"t{number}"), "w") for number in range(5)]
    requests = [AppendRequest(claim, batch(f"b{number}"), 0) for number, claim in enumerate(claims)]
    for lose in ("lose_reply", "lose_request"):
        setattr(proxy, lose, b"COMMIT")
        outcomes = journal.append_many(requests)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 5
        landed = journal.append_many(requests)
        assert [(each.last_seq, each.replayed) for each in landed] == [
            (requests[0].base_seq + 1, lose == "lose_reply")
        ] * 5
        requests = [AppendRequest(claim, batch(f"c{number}"), 1) for number, claim in enumerate(claims)]
    journal.close()


def test_a_claim_whose_reply_is_lost_settles_itself_by_its_nonce(stores: Any, key: ThreadKey, proxy: Any) -> None:
    journal = open_journal(proxy.url(stores))
    for epoch, lose in enumerate((b"sb_journal` (", b"UPDATE `sb_journal`"), start=1):
        proxy.lose_reply = lose
        claim = journal.claim(key, "w")
        assert claim.epoch == epoch
        journal.heartbeat(claim)
    assert proxy.lost == 2
    journal.close()


def test_a_query_before_a_commit_that_is_lost_is_asked_again_and_nothing_is_applied_twice(
    stores: Any, key: ThreadKey, proxy: Any
) -> None:
    journal, state = open_journal(proxy.url(stores)), open_state(proxy.url(stores))
    claim = journal.claim(key, "w")
    state.save(SLOT, b"1")
    for lose in ("lose_request", "lose_reply"):
        setattr(proxy, lose, b"FOR UPDATE")
        journal.heartbeat(claim)
        setattr(proxy, lose, b"FOR UPDATE")
        before = state.load(SLOT)
        assert before is not None
        assert state.save(SLOT, b"2") == before.version + 1
    assert proxy.lost == 4
    head = journal.head(key)
    assert head is not None
    assert head.generation == 3
    journal.close()
    state.close()


def test_a_save_whose_reply_is_lost_is_unknown_and_the_version_tells(stores: Any, proxy: Any) -> None:
    state = open_state(proxy.url(stores))
    assert state.save(SLOT, b"1") == 1
    proxy.lose_reply = b"COMMIT"
    with pytest.raises(OutcomeUnknown):
        state.save(SLOT, b"2", expected=1)
    found = state.load(SLOT)
    assert found is not None
    assert (found.value, found.version) == (b"2", 2)
    state.close()


# ---------------------------------------------------------------------------------------------------------------- locks


def test_a_wait_for_a_lock_that_takes_too_long_leaves_nothing_behind(
    server: MysqlService, stores: Any, own_key: ThreadKey, batch: Any
) -> None:
    """Case 55: a lock-wait time-out ends the statement only; no half transaction is written by a later COMMIT."""
    journal = stores.journal(lock_timeout_s=1, pool_max=1)
    claim = journal.claim(own_key, "w")
    free = journal.claim(ThreadKey("other", "agent", "session", "thread"), "w")
    for request in (AppendRequest(claim, batch("b1"), 0), AppendRequest(free, batch("f1"), 0)):
        assert not isinstance(journal.append_many([request])[0], StatebookError)
    holder = Holder(server, own_key)
    held, other = journal.append_many([AppendRequest(claim, batch("b2"), 1), AppendRequest(free, batch("f2"), 1)])
    assert isinstance(held, BackendUnavailable)
    assert "lock_timeout_s" in str(held)
    assert other.last_seq == 2
    with pytest.raises(BackendUnavailable, match="lock_timeout_s"):
        journal.heartbeat(claim)
    holder.let_go()
    assert journal.append(free, batch("f3"), 2).last_seq == 3
    assert journal.read_after(own_key, 0).last_seq == 1
    assert journal.append(claim, batch("b2"), 1).replayed is False


def test_creators_of_different_journals_and_slots_never_deadlock(server: MysqlService, stores: Any, batch: Any) -> None:
    """Case 55: rows that are not there yet are not locked."""
    journal, state = stores.journal(pool_max=16), stores.state(pool_max=16)
    before = server.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").split()[1]
    failures: list[StatebookError] = []
    start = threading.Barrier(16)

    def create(number: int) -> None:
        start.wait(30)
        try:
            for turn in range(10):
                claim = journal.claim(ThreadKey("u", "a", "s", f"{number}-{turn}"), "w")
                journal.append(claim, batch("b"), 0)
                state.save(StateKey("u", f"s{turn}", f"{number}"), b"1")
        except StatebookError as error:
            failures.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert server.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").split()[1] == before


def test_creators_of_one_slot_and_one_journal_all_get_an_answer(stores: Any, key: ThreadKey) -> None:
    state, journal = stores.state(pool_max=16), stores.journal(pool_max=16)
    start = threading.Barrier(16)
    versions: list[int] = []
    epochs: list[int] = []

    def create() -> None:
        start.wait(30)
        versions.append(state.save(SLOT, b"1"))
        epochs.append(journal.claim(key, "w").epoch)

    threads = [threading.Thread(target=create) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(versions) == sorted(epochs) == list(range(1, 17))


# ---------------------------------------------------------------------------------------------------------------- forks


def test_the_child_of_a_fork_has_sessions_of_its_own(stores: Any, key: ThreadKey, batch: Any) -> None:
    journal, state = stores.journal(), stores.state()
    claim = journal.claim(key, "w")
    journal.append(claim, batch("b1"), 0)
    state.save(SLOT, b"1")
    child = os.fork()
    if child == 0:
        done = 1
        try:
            journal.append(claim, batch("b2"), 1)
            state.save(SLOT, b"2", expected=1)
            journal.close()
            state.close()
            done = 0
        finally:
            os._exit(done)
    assert os.waitpid(child, 0)[1] == 0
    assert journal.read_after(key, 0).last_seq == 2
    assert journal.append(claim, batch("b3"), 2).last_seq == 3
    assert state.save(SLOT, b"3", expected=2) == 3


def test_calls_that_wait_while_the_store_is_closed_are_refused(
    server: MysqlService, stores: Any, own_key: ThreadKey
) -> None:
    journal = stores.journal(pool_max=1)
    claim = journal.claim(own_key, "w")
    holder = Holder(server, own_key)
    first, one = _in_thread(lambda: journal.heartbeat(claim))
    second, two = _in_thread(lambda: journal.head(own_key))
    journal.close()
    holder.let_go()
    first.join(30)
    second.join(30)
    assert one[0] is None or isinstance(one[0], StoreClosed)
    assert not isinstance(two[0], StatebookError) or isinstance(two[0], StoreClosed)
    with pytest.raises(StoreClosed):
        journal.head(own_key)


# -------------------------------------------------------------------------------------------------------------- damage


def test_items_of_a_list_whose_slot_was_lost_are_damage_and_not_a_list_that_begins_anew(
    server: MysqlService, stores: Any
) -> None:
    state = stores.state()
    state.append_list(SLOT, (b"1", b"2"), expected_length=0)
    server.execute(f"DELETE FROM {server.database}.sb_slot WHERE namespace = '{stores.namespace}'")
    with pytest.raises(StateCorrupt):
        state.load_list(SLOT)
    with pytest.raises(StateCorrupt):
        state.append_list(SLOT, (b"3",), expected_length=0)


# ------------------------------------------------------------------------------------------------------ other processes

TAKE = """
import sys
from statebook import Batch, Event, StateKey, ThreadKey
from statebook.plugins import open_journal, open_state
url = sys.argv[1]
journal, state = open_journal(url), open_state(url)
key = ThreadKey("user", "agent", "session", "thread")
claim = journal.claim(key, "other")
found = state.load(StateKey("u", "s", "k"))
event = Event(event_id="theirs", type="x", occurred_at=1, payload=b"1")
journal.append(claim, Batch("theirs", (event,)), claim.last_seq)
print(claim.last_seq, found.value.decode(), state.save(StateKey("u", "s", "k"), b"theirs", expected=found.version))
"""


def test_another_process_resumes_session_and_thread_and_fences_the_writer(
    stores: Any, key: ThreadKey, batch: Any, python: Any
) -> None:
    journal, state = stores.journal(), stores.state()
    claim = journal.claim(key, "ours")
    journal.append(claim, batch("ours", events=3), 0)
    state.save(SLOT, b"1")
    out, errors = python(TAKE, stores.text).communicate(timeout=60)
    assert out == "3 1 2\n", errors
    with pytest.raises(WriterFenced) as caught:
        journal.append(claim, batch("late"), 3)
    assert caught.value.committed is None
    page = journal.read_after(key, 0)
    assert [event.event_id for event in page.events] == ["ours.0", "ours.1", "ours.2", "theirs"]
    assert state.load(SLOT).value == b"theirs"


WRITE = """
import sys
from statebook import Batch, Event, ThreadKey
from statebook.plugins import open_journal
journal = open_journal(sys.argv[1])
claim = journal.claim(ThreadKey("user", "agent", "session", "thread"), "w")
seq = 0
while True:
    events = tuple(Event(event_id=f"{seq}.{i}", type="x", occurred_at=1, payload=b"1") for i in range(3))
    seq = journal.append(claim, Batch(f"{seq}", events), seq).last_seq
    print(seq, flush=True)
"""


def test_a_writer_killed_amid_its_appends_leaves_whole_batches_and_all_that_it_was_told(
    stores: Any, key: ThreadKey, python: Any
) -> None:
    journal = stores.journal()
    writer = python(WRITE, stores.text)
    told = 0
    for _ in range(40):
        told = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    page = journal.read_after(key, 0, 10_000)
    assert page.last_seq >= told
    assert page.last_seq % 3 == 0
    assert journal.verify(key, deep=True).findings == ()
    claim = journal.claim(key, "next")
    assert claim.last_seq == page.last_seq
