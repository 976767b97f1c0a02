"""What calls cost in round trips, and that groups, pools and snapshots keep their bounds (APPEND-5, HEAD-5, ERR-4)."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from statebook.errors import (
    BatchConflict,
    HeadConflict,
    JournalRegressed,
    Overloaded,
    StatebookError,
    Trimmed,
    WriterFenced,
)
from statebook.keys import StateKey, ThreadKey
from statebook.model import AppendRequest, Receipt
from statebook.plugins import open_journal, open_state
from statebook_conformance.services.mysql_service import MysqlService

SLOT = StateKey("u", "s", "k")


class Trips:
    """Counts the round trips of a call: requests that pass the proxy."""

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy

    def __call__(self, call: Callable[[], object]) -> int:
        before = self._proxy.requests
        call()
        return int(self._proxy.requests - before)


@pytest.fixture
def trips(proxy: Any) -> Trips:
    return Trips(proxy)


# ------------------------------------------------------------------------------------------------------------- budgets


def test_an_append_is_one_round_trip_where_its_writer_wrote_last_and_at_most_three_ever(
    stores: Any, proxy: Any, trips: Trips, key: ThreadKey, batch: Any
) -> None:
    journal, other = open_journal(proxy.url(stores)), stores.journal()
    claim = journal.claim(key, "w")
    assert trips(lambda: journal.append(claim, batch("first"), 0)) <= 3
    costs = [
        trips(lambda number=number: journal.append(claim, batch(f"b{number}"), number)) for number in range(1, 101)
    ]
    assert costs == [1] * 100
    other.heartbeat(claim)
    assert trips(lambda: journal.append(claim, batch("behind another's write"), 101)) <= 3
    assert trips(lambda: journal.append(claim, batch("b7"), 7)) <= 3
    cold = open_journal(proxy.url(stores))
    assert trips(lambda: cold.append(claim, batch("from a cold store"), 102)) <= 3
    cold.close()
    journal.close()


def test_a_group_of_64_threads_costs_a_few_round_trips_and_not_one_for_each(
    stores: Any, proxy: Any, trips: Trips, batch: Any
) -> None:
    journal = open_journal(proxy.url(stores))
    claims = [journal.claim(ThreadKey("u", "a", "s", f"t{number}"), "w") for number in range(64)]

    def send(base: int) -> None:
        requests = [AppendRequest(claim, batch(f"{n}-{base}"), base) for n, claim in enumerate(claims)]
        assert [outcome.last_seq for outcome in journal.append_many(requests)] == [base + 1] * 64

    # A large request may pass the proxy in pieces.
    assert trips(lambda: send(0)) <= 6
    assert trips(lambda: send(1)) <= 4
    journal.close()


def test_reads_are_one_round_trip(stores: Any, proxy: Any, trips: Trips, key: ThreadKey, batch: Any) -> None:
    journal, state = open_journal(proxy.url(stores)), open_state(proxy.url(stores))
    claim = journal.claim(key, "w")
    for number in range(30):
        journal.append(claim, batch(f"b{number}", events=3), 3 * number)
    state.save(SLOT, b"1")
    state.append_list(SLOT, (b"1",), expected_length=0)
    for call in (
        lambda: journal.head(key),
        lambda: journal.read_after(key, 40, 20),
        lambda: journal.read_after(key, 90),
        lambda: state.load(SLOT),
        lambda: state.load_list(SLOT),
        lambda: state.list_keys(SLOT.session),
        lambda: state.list_sessions("u"),
        lambda: state.exists(SLOT.session),
    ):
        assert trips(call) == 1
    assert trips(lambda: state.save(SLOT, b"2")) == 2
    journal.close()
    state.close()


def test_a_page_brings_no_more_batches_than_its_events_need(
    server: MysqlService, stores: Any, key: ThreadKey, batch: Any
) -> None:
    """READ-4: 100 events of batches of 100 are one batch, however long the journal is."""
    journal = stores.journal()
    claim = journal.claim(key, "w")
    for number in range(60):
        journal.append(claim, batch(f"b{number}", events=100), 100 * number)

    def rows() -> int:
        names = "'Handler_read_next', 'Handler_read_rnd_next', 'Handler_read_key'"
        found = server.execute(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})").split()
        return sum(int(value) for value in found[1::2])

    idle = rows()
    own_cost = rows() - idle
    before = rows()
    page = journal.read_after(key, 2_050, 100)
    cost = rows() - before - own_cost
    assert [event.seq for event in page.events] == list(range(2_051, 2_151))
    assert cost < 20


# -------------------------------------------------------------------------------------------------------------- groups


def test_refused_members_of_a_group_write_nothing_and_harm_nobody(stores: Any, batch: Any) -> None:
    journal = stores.journal()
    claims = [journal.claim(ThreadKey("u", "a", "s", f"t{number}"), "w") for number in range(4)]
    for claim in claims:
        journal.append(claim, batch("b1", events=2), 0)
    stores.journal().claim(claims[0].key, "other")
    requests = [
        AppendRequest(claims[0], batch("b2"), 2),
        AppendRequest(claims[1], batch("b2"), 1),
        AppendRequest(claims[2], batch("b1", events=3), 0),
        AppendRequest(claims[3], batch("b2"), 2),
        AppendRequest(claims[3], batch("b1", events=2), 0),
        AppendRequest(claims[3], batch("b3"), 3),
    ]
    outcomes = journal.append_many(requests)
    assert [type(outcome) for outcome in outcomes] == [
        *(WriterFenced, HeadConflict, BatchConflict),
        *(Receipt, Receipt, Receipt),
    ]
    assert [outcome.replayed for outcome in outcomes[3:]] == [False, True, False]
    assert [journal.head(claim.key).last_seq for claim in claims] == [2, 2, 2, 4]
    for claim in claims:
        assert journal.verify(claim.key, deep=True).findings == ()


def test_two_stores_that_group_the_same_threads_in_opposite_order_never_deadlock(
    server: MysqlService, stores: Any, batch: Any
) -> None:
    """Heads are locked in the order of their names, whatever the order of the requests is."""
    first, second = stores.journal(), stores.journal()
    keys = [ThreadKey("u", "a", "s", f"t{number}") for number in range(12)]
    claims = [first.claim(key, "w") for key in keys]
    before = server.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").split()[1]
    landed = [0] * 12
    lock = threading.Lock()

    def write(journal: Any, order: list[int], name: str) -> None:
        for turn in range(25):
            requests = [AppendRequest(claims[n], batch(f"{name}{turn}"), landed[n]) for n in order]
            for number, outcome in zip(order, journal.append_many(requests), strict=True):
                if isinstance(outcome, Receipt):
                    with lock:
                        landed[number] = max(landed[number], outcome.last_seq)
                else:
                    assert isinstance(outcome, HeadConflict), outcome

    threads = [
        threading.Thread(target=write, args=(first, list(range(12)), "a")),
        threading.Thread(target=write, args=(second, list(reversed(range(12))), "b")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert server.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").split()[1] == before
    for key, last in zip(keys, landed, strict=True):
        assert first.head(key).last_seq == last >= 25
        assert first.verify(key, deep=True).findings == ()


def test_appends_of_many_threads_share_commits(server: MysqlService, stores: Any, batch: Any) -> None:
    journal = stores.journal()
    claims = [journal.claim(ThreadKey("u", "a", "s", f"t{number}"), "w") for number in range(16)]
    start = threading.Barrier(16)

    def write(number: int) -> None:
        start.wait(30)
        for turn in range(20):
            journal.append(claims[number], batch(f"b{turn}"), turn)

    def commits() -> int:
        return int(server.execute("SHOW GLOBAL STATUS LIKE 'Com_commit'").split()[1])

    before = commits()
    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [journal.head(claim.key).last_seq for claim in claims] == [20] * 16
    assert commits() - before < 160


def test_a_group_larger_than_a_packet_is_one_transaction_in_several_requests(
    odd_server: MysqlService, stores_at: Any, batch: Any
) -> None:
    journal = stores_at(odd_server.url).journal()
    claims = [journal.claim(ThreadKey("u", "a", "s", f"t{number}"), "w") for number in range(12)]
    value = b'"' + b"x" * 1_000_000 + b'"'
    for base in (0, 1):
        requests = [AppendRequest(claim, batch(f"b{base}", payload=value), base) for claim in claims]
        assert [outcome.last_seq for outcome in journal.append_many(requests)] == [base + 1] * 12
    assert journal.read_after(claims[5].key, 1).events[0].payload == value


# --------------------------------------------------------------------------------------------------------------- pools


def test_the_pool_keeps_its_bound_and_says_when_it_is_empty(server: MysqlService, stores: Any, key: ThreadKey) -> None:
    journal = stores.journal(pool_max=2, pool_timeout_s=0.2)
    journal.claim(key, "w")
    pool = journal._database.process.pool
    held = [pool.take()[0] for _ in range(2)]
    with pytest.raises(Overloaded, match="raise pool_max"):
        journal.head(key)
    for link in held:
        pool.give(link, clean=True)
    assert journal.head(key) is not None
    assert len(pool.idle) == 2


def test_no_session_is_left_in_a_transaction_by_answers_refusals_or_errors(
    server: MysqlService, stores: Any, key: ThreadKey, batch: Any
) -> None:
    journal, state = stores.journal(), stores.state()
    claim = journal.claim(key, "w")
    journal.append(claim, batch("b1"), 0)
    journal.append(claim, batch("b1"), 0)
    journal.release(claim)
    journal.release(claim)
    state.save(SLOT, b"1")
    for call in (
        lambda: journal.append(claim, batch("b2"), 1),
        lambda: journal.heartbeat(claim),
        lambda: state.save(SLOT, b"2", expected=9),
        lambda: journal.open_cursor(ThreadKey("n", "o", "n", "e"), "x"),
    ):
        with pytest.raises(Exception):  # noqa: B017, PT011 - which error it is stands elsewhere
            call()
    journal.read_after(key, 0)
    journal.verify(key, deep=True)
    assert state.delete(StateKey("u", "s", "absent")) is False
    open_transactions = server.execute(
        "SELECT COUNT(*) FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p "
        f"ON p.id = t.trx_mysql_thread_id WHERE p.user = '{server.user}'"
    )
    assert open_transactions.split() == ["0"]


def test_a_session_that_has_written_reads_without_beginning_a_transaction(
    server: MysqlService, stores: Any, key: ThreadKey, batch: Any
) -> None:
    """Writers leave their sessions so that the next write begins by itself; reads set them back first."""
    journal = stores.journal(pool_max=1)
    claim = journal.claim(key, "w")

    def modes() -> list[bool | None]:
        return [link.autocommits for link in journal._database.process.pool.idle]

    for turn in range(3):
        assert journal.append(claim, batch(f"b{turn}"), turn).last_seq == turn + 1
        assert modes() == [False]
        assert journal.read_after(key, turn).last_seq == turn + 1
        assert journal.head(key).last_seq == turn + 1
        assert modes() == [True]
    with pytest.raises(HeadConflict):
        journal.append(claim, batch("late"), 0)
    assert journal.head(key).last_seq == 3
    open_transactions = server.execute(
        "SELECT COUNT(*) FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p "
        f"ON p.id = t.trx_mysql_thread_id WHERE p.user = '{server.user}'"
    )
    assert open_transactions.split() == ["0"]


def test_a_group_whose_head_was_moved_by_another_writes_nothing_before_it_is_judged_by_rows(
    stores: Any, batch: Any
) -> None:
    """One statement inserts all rows of a group, and only where each head before it was met."""
    journal, other = stores.journal(), stores.journal()
    claims = [journal.claim(ThreadKey("u", "a", "s", f"t{number}"), "w") for number in range(5)]

    def send(name: str, base: int) -> list[Any]:
        return list(journal.append_many([AppendRequest(claim, batch(name, events=2), base) for claim in claims]))

    send("b1", 0)
    for moved in (0, 2, 4):
        other.heartbeat(claims[moved])
    assert [outcome.last_seq for outcome in send("b2", 2)] == [4] * 5
    other.claim(claims[3].key, "thief")
    outcomes = send("b3", 4)
    assert [type(outcome) for outcome in outcomes] == [Receipt, Receipt, Receipt, WriterFenced, Receipt]
    for claim in claims:
        assert journal.verify(claim.key, deep=True).findings == ()
        assert journal.head(claim.key).last_seq == (4 if claim is claims[3] else 6)


def test_pages_are_of_one_moment_beside_appends_trims_deletes_and_purges(
    stores: Any, key: ThreadKey, batch: Any
) -> None:
    """A page is one statement; the number of the thread that a reader remembers is not believed."""
    writer, reader = stores.journal(), stores.journal()
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        at = 0
        while not done.is_set():
            try:
                page = reader.read_after(key, at, 7)
            except (Trimmed, JournalRegressed):
                at = 0 if at else 20
                continue
            except StatebookError as error:
                wrong.append(error)
                return
            runs = {event.event_id.partition("-")[0] for event in page.events}
            if [event.seq for event in page.events] != list(range(at + 1, at + 1 + len(page.events))) or len(runs) > 1:
                wrong.append(page)
            at += len(page.events)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for run in range(12):
        claim = writer.claim(key, "w")
        for turn in range(16):
            writer.append(claim, batch(f"r{run}-{turn}", events=3), 3 * turn)
            if turn % 6 == 5:
                writer.trim(key, 3 * turn - 10)
        writer.delete(key)
        if run % 2:
            writer.purge(key)
    done.set()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_a_reader_that_polls_sees_what_was_written_since_its_last_call(stores: Any, key: ThreadKey, batch: Any) -> None:
    """Cases 13 and 33: no call reads in the snapshot of an earlier one, and no seq appears behind a later one."""
    writer, reader = stores.journal(), stores.journal(pool_max=1)
    claim = writer.claim(key, "w")
    for number in range(20):
        writer.append(claim, batch(f"b{number}"), number)
        page = reader.read_after(key, number)
        assert [event.seq for event in page.events] == [number + 1]
