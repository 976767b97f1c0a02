"""The table of events for reports on MySQL: each event once, whatever was delivered again (CURSOR-4)."""

import json
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from statebook import BackendUnavailable, InvalidConfiguration, JournalCorrupt, OutcomeUnknown, StoreClosed
from statebook.keys import ThreadKey
from statebook.model import Batch, Event, RecordedEvent
from statebook.options import StoreUrl
from statebook.threads import Delivery, JournalExporter, SkippedEvent
from statebook_backends.mysql.event_table import MysqlEventTableSink
from statebook_backends.mysql.options import MysqlOptions
from statebook_conformance.services.mysql_service import MysqlService

KEY = ThreadKey(None, "agent", "session", "main")


def event(seq: int, event_id: str | None = None) -> RecordedEvent:
    return RecordedEvent(seq, event_id or f"e{seq}", "model/chunk", 5, b'{"a": 1.50}', "run", None, False, 2)


def delivery(first: int, last: int, journal: str = "j") -> Delivery:
    return Delivery(KEY, journal, tuple(event(seq) for seq in range(first, last + 1)))


class Table:
    """Tables of a prefix of their own on the shared server."""

    def __init__(self, server: MysqlService) -> None:
        self.server = server
        self.prefix = f"r{secrets.token_hex(4)}_"
        self.url = StoreUrl.parse(server.url).with_option("table_prefix", self.prefix)

    def ask(self, columns: str, table: str = "event", where: str = "1=1") -> list[list[str]]:
        """The rows, by the client of the server and not through the driver."""
        name = f"{self.server.database}.{self.prefix}{table}"
        found = self.server.execute(f"SELECT {columns} FROM {name} WHERE {where} ORDER BY journal_id, seq")
        return [line.split("\t") for line in found.splitlines()]


@pytest.fixture
def table(server: MysqlService) -> Table:
    return Table(server)


@pytest.fixture
def sink(table: Table) -> Iterator[MysqlEventTableSink]:
    with MysqlEventTableSink(table.url) as made:
        yield made


def test_an_exporter_drains_a_journal_of_the_same_server_into_the_table(
    stores: Any, key: ThreadKey, batch: Any, table: Table, sink: MysqlEventTableSink
) -> None:
    journal = stores.journal()
    claim = journal.claim(key, "w")
    for number in range(5):
        journal.append(claim, batch(f"b{number}", 3), number * 3)
    exporter = JournalExporter(journal, key, "report", sink, page=4)
    assert exporter.drain().complete
    assert journal.open_cursor(key, "report").acked_seq == 15
    ids = [one.event_id for one in journal.read_after(key, 0).events]
    assert table.ask("event_id") == [[each] for each in ids]
    journal.append(claim, batch("later"), 15)
    with MysqlEventTableSink(table.url.unredacted()) as another:
        assert JournalExporter(journal, key, "second report", another).drain().acked_seq == 16
    assert table.ask("COUNT(*), COUNT(DISTINCT journal_id), MAX(seq)") == [["16", "1", "16"]]


def test_what_comes_again_adds_nothing_and_incarnations_do_not_meet(table: Table, sink: MysqlEventTableSink) -> None:
    assert sink.deliver(delivery(1, 3)) == 3
    assert sink.deliver(delivery(2, 5)) == 5
    assert sink.deliver(delivery(1, 2, "another incarnation")) == 2
    skip = SkippedEvent(KEY, "j", "x", 6, "e6", "model/chunk", "why", 9)
    sink.skipped(skip)
    sink.skipped(skip)
    assert table.ask("seq, event_id, payload, user_id, required", where="journal_id = 'j'") == [
        [str(seq), f"e{seq}", '{"a": 1.50}', "NULL", "0"] for seq in range(1, 6)
    ]
    assert table.ask("COUNT(*)", where="journal_id <> 'j'") == [["2"]]
    assert table.ask("seq, exporter, reason, skipped_at", "skipped") == [["6", "x", "why", "9"]]


@pytest.mark.parametrize("changed", [event(3, "other"), event(3, "e3 "), event(3, "E3"), event(6, "e3")])
def test_another_event_in_a_place_is_corrupt_and_nothing_of_its_delivery_is_written(
    table: Table, sink: MysqlEventTableSink, changed: RecordedEvent
) -> None:
    sink.deliver(delivery(1, 3))
    behind = event(changed.seq + 1)
    with pytest.raises(JournalCorrupt):
        sink.deliver(Delivery(KEY, "j", (changed, behind)))
    assert table.ask("seq, event_id") == [["1", "e1"], ["2", "e2"], ["3", "e3"]]
    assert sink.deliver(delivery(3, 4)) == 4


def test_ids_and_payloads_of_any_text_come_back_equal(stores: Any, table: Table, sink: MysqlEventTableSink) -> None:
    texts = ("é", "e\u0301", "ß' \\ \"; --", "日本", "😀" * 128, "x" * 512, "A", "a", "a ", "?~event", "line\nend")
    journal = stores.journal()
    key = ThreadKey("ü'\\", "агент", "s ", "😀")
    events = tuple(
        Event(
            event_id=text,
            type=text,
            occurred_at=1,
            payload=json.dumps([text], ensure_ascii=False).encode(),
            run_id=text,
        )
        for text in texts
    )
    journal.append(journal.claim(key, "w"), Batch("b", events), 0)
    assert JournalExporter(journal, key, "日本", sink).drain().acked_seq == len(texts)
    columns = ("event_id", "type", "run_id", "payload", "user_id", "agent_id", "session_id", "thread_id")
    found = table.ask(", ".join(f"HEX({column})" for column in columns))
    assert [[bytes.fromhex(cell).decode() for cell in row] for row in found] == [
        [text, text, text, json.dumps([text], ensure_ascii=False), "ü'\\", "агент", "s ", "😀"] for text in texts
    ]
    assert table.ask("turn_id", where="turn_id IS NOT NULL") == []


def test_without_create_missing_tables_are_named_and_those_of_an_operator_serve(table: Table) -> None:
    options = MysqlOptions.from_url(table.url.with_option("create", "false"))
    with MysqlEventTableSink(options) as sink:
        with pytest.raises(InvalidConfiguration, match=r"create=false; run .*event_table\.sql") as refused:
            sink.deliver(delivery(1, 1))
        assert refused.value.option == "create"
        MysqlEventTableSink(table.url).deliver(delivery(1, 1))
        assert sink.deliver(delivery(2, 2)) == 2
    found = table.server.execute(f"SHOW TABLES FROM {table.server.database} LIKE '{table.prefix}%'").split()
    assert found == [f"{table.prefix}event", f"{table.prefix}skipped"]


def test_a_lost_reply_to_a_commit_is_unknown_and_the_same_delivery_settles_it(
    stores: Any, proxy: Any, table: Table
) -> None:
    through = StoreUrl.parse(proxy.url(stores)).with_option("table_prefix", table.prefix)
    with MysqlEventTableSink(through) as sink:
        sink.deliver(delivery(1, 1))
        proxy.lose_reply = b"COMMIT"
        with pytest.raises(OutcomeUnknown):
            sink.deliver(delivery(2, 3))
        assert sink.deliver(delivery(2, 3)) == 3
    assert table.ask("seq") == [["1"], ["2"], ["3"]]


def test_a_server_that_is_not_there_is_unavailable_and_nothing_is_acknowledged(
    stores: Any, key: ThreadKey, batch: Any, server: MysqlService
) -> None:
    journal = stores.journal()
    journal.append(journal.claim(key, "w"), batch("b"), 0)
    nowhere = MysqlEventTableSink(f"mysql://{server.user}:{server.password}@127.0.0.1:1/x")
    with pytest.raises(BackendUnavailable):
        JournalExporter(journal, key, "report", nowhere, sleep=lambda _: None).drain()
    assert journal.open_cursor(key, "report").acked_seq == 0


def test_threads_and_sinks_that_deliver_the_same_at_once_write_each_event_once(table: Table) -> None:
    with MysqlEventTableSink(table.url) as one, MysqlEventTableSink(table.url) as two, ThreadPoolExecutor(6) as pool:
        acked = [pool.submit((one, two)[turn % 2].deliver, delivery(1 + turn // 2, 20)) for turn in range(12)]
        assert [each.result(60) for each in acked] == [20] * 12
    assert table.ask("seq, event_id") == [[str(seq), f"e{seq}"] for seq in range(1, 21)]


def test_the_child_of_a_fork_writes_through_a_connection_of_its_own(table: Table, sink: MysqlEventTableSink) -> None:
    sink.deliver(delivery(1, 1))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if sink.deliver(delivery(2, 2)) == 2 else 2
            sink.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sink.deliver(delivery(3, 3)) == 3
    assert table.ask("seq") == [["1"], ["2"], ["3"]]


def test_a_closed_sink_and_a_url_of_another_kind_are_refused(table: Table, sink: MysqlEventTableSink) -> None:
    sink.deliver(delivery(1, 1))
    sink.close()
    sink.close()
    with pytest.raises(StoreClosed):
        sink.deliver(delivery(2, 2))
    with pytest.raises(InvalidConfiguration):
        MysqlEventTableSink("sqlite:////file.db")
    with pytest.raises(InvalidConfiguration):
        MysqlEventTableSink(table.url.with_option("table_prefix", "no-prefix"))
