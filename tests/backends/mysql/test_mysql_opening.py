"""Opening: what a server, a user or tables lack is told with its remedy; nothing stored is changed (ATOM-7, ERR-6)."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pymysql
import pytest

from statebook.capabilities import Durability, Feature, Sharing
from statebook.errors import (
    BackendUnavailable,
    InvalidConfiguration,
    LimitExceeded,
    StatebookError,
    UnsupportedFormat,
)
from statebook.keys import StateKey, ThreadKey
from statebook.options import StoreUrl
from statebook.plugins import load_backend, open_journal, open_state
from statebook_conformance.services.mysql_service import MysqlService

PASSWORD = "correct-horse"


def _changed(url: str, **parts: object) -> StoreUrl:
    return StoreUrl.parse(url).model_copy(update=parts)


def _texts(error: BaseException | None) -> str:
    seen: list[str] = []
    while error is not None:
        seen += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(seen)


def test_the_server_is_declared_as_it_is(stores: Any) -> None:
    found = stores.journal().capabilities
    assert (found.backend, found.durability, found.sharing) == ("mysql", Durability.HOST, Sharing.NETWORK)
    assert found.durability_setting == "innodb_flush_log_at_trx_commit=1"
    assert found.features == {Feature.PURGE, Feature.GROUP_COMMIT, Feature.RECEIPTS_KEPT}
    assert dict(found.server)["isolation"] == "READ-COMMITTED"


def test_a_wrong_password_is_refused_and_shown_nowhere(server: MysqlService) -> None:
    with pytest.raises(InvalidConfiguration, match="refused user or password") as caught:
        load_backend(_changed(server.url, password=PASSWORD)).open_journal()
    assert caught.value.option == "password"
    assert PASSWORD not in _texts(caught.value)


def test_a_database_that_does_not_exist_is_named(server: MysqlService) -> None:
    server.execute(f"GRANT ALL ON nowhere.* TO '{server.user}'@'%'")
    with pytest.raises(InvalidConfiguration, match="create it, or name another") as caught:
        load_backend(_changed(server.url, path="/nowhere")).open_journal()
    assert caught.value.option == "database"


def test_a_server_that_is_not_there_is_unavailable_within_the_time_out(server: MysqlService) -> None:
    with pytest.raises(BackendUnavailable, match="does not answer"):
        load_backend(f"mysql://me:x@127.0.0.1:{_closed_port()}/a?connect_timeout_s=1").open_state()


def _closed_port() -> int:
    from statebook_conformance.services.server import free_port

    return free_port()


def test_tls_that_the_server_does_not_talk_is_refused_before_the_password_is_sent(server: MysqlService) -> None:
    with pytest.raises(InvalidConfiguration, match="TLS") as caught:
        load_backend(server.url + "?ssl=true&ssl_verify=false").open_state()
    assert caught.value.option == "ssl"


def test_a_user_without_the_right_to_make_tables_is_told_so_and_works_on_tables_that_are_there(
    server: MysqlService,
) -> None:
    """The operator runs schema.sql by hand; the application only reads and writes rows."""
    server.execute(
        "CREATE DATABASE handmade; CREATE USER plain IDENTIFIED BY 'x';"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON handmade.* TO plain"
    )
    url = f"mysql://plain:x@127.0.0.1:{server.port}/handmade"
    with pytest.raises(InvalidConfiguration, match=r"grant it CREATE .*schema\.sql .* create=false") as caught:
        open_state(url)
    assert caught.value.option == "create"
    with pytest.raises(InvalidConfiguration, match=r"missing or older .*run .*schema\.sql"):
        open_state(url + "?create=false")
    assert server.execute("SHOW TABLES FROM handmade") == ""
    schema = files("statebook_backends.mysql").joinpath("schema.sql").read_text(encoding="utf-8")
    server.execute(f"USE handmade;\n{schema}")
    server.execute(f"USE handmade;\n{schema}")
    state = open_state(url + "?create=false")
    assert state.save(StateKey(None, "s", "k"), b"1") == 1
    state.close()


def test_tables_of_a_newer_format_or_schema_are_left_alone(server: MysqlService, stores: Any) -> None:
    stores.journal(table_prefix="new_")
    for name, value in (("format", "3"), ("schema", "2")):
        server.execute(f"UPDATE {server.database}.new_meta SET value = '{value}' WHERE name = '{name}'")
        with pytest.raises(UnsupportedFormat, match=f"{name} {value}") as caught:
            stores.journal(table_prefix="new_")
        assert caught.value.found == value
        server.execute(f"UPDATE {server.database}.new_meta SET value = '{int(value) - 1}' WHERE name = '{name}'")
    stores.journal(table_prefix="new_", create=False)


def test_a_table_without_transactions_is_refused(server: MysqlService, stores: Any) -> None:
    stores.journal(table_prefix="eng_")
    server.execute(f"ALTER TABLE {server.database}.eng_batch ENGINE=Aria")
    with pytest.raises(InvalidConfiguration, match="ALTER TABLE eng_batch ENGINE=InnoDB"):
        stores.state(table_prefix="eng_")


def test_a_migration_that_was_ended_half_way_is_finished_by_the_next_opening(server: MysqlService, stores: Any) -> None:
    stores.journal(table_prefix="half_")
    server.execute(f"USE {server.database}; DROP TABLE half_slot; DELETE FROM half_meta")
    assert stores.state(table_prefix="half_").save(StateKey("u", "s", "k"), b"1") == 1


def test_prefixes_and_namespaces_never_meet(stores: Any, key: ThreadKey, batch: Any) -> None:
    first, second = stores.journal(), stores.journal(table_prefix="other_")
    first.append(first.claim(key, "w"), batch("b"), 0)
    assert second.head(key) is None
    assert stores.journal(namespace="elsewhere").head(key) is None


def test_a_replica_is_refused(server: MysqlService, stores: Any) -> None:
    server.execute("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(InvalidConfiguration, match=r"read_only .* name the primary") as caught:
            stores.journal()
        assert caught.value.option == "host"
    finally:
        server.execute("SET GLOBAL read_only = 0")


def test_a_server_that_turns_read_only_refuses_writes_and_says_why(
    server: MysqlService, stores: Any, key: ThreadKey, batch: Any
) -> None:
    journal = stores.journal()
    claim = journal.claim(key, "w")
    server.execute("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(BackendUnavailable, match="name the primary"):
            journal.append(claim, batch("b"), 0)
    finally:
        server.execute("SET GLOBAL read_only = 0")
    assert journal.append(claim, batch("b"), 0).replayed is False


def test_a_server_without_connections_left_is_unavailable_with_the_remedy(server: MysqlService, stores: Any) -> None:
    stores.state()
    server.execute("SET GLOBAL max_connections = 10")
    held: list[Any] = []
    try:
        for _ in range(20):
            try:
                held.append(
                    pymysql.connect(host="127.0.0.1", port=server.port, user=server.user, password=server.password)
                )
            except pymysql.err.OperationalError:
                break
        with pytest.raises(BackendUnavailable, match="raise max_connections or lower pool_max"):
            stores.state()
    finally:
        for connection in held:
            connection.close()
        server.execute("SET GLOBAL max_connections = 300")


def test_a_lazy_log_is_declared_with_the_setting(odd_server: MysqlService, stores_at: Callable[[str], Any]) -> None:
    found = stores_at(odd_server.url).journal().capabilities
    assert (found.durability, found.durability_setting) == (
        Durability.PROCESS,
        "innodb_flush_log_at_trx_commit=2",
    )
    with pytest.raises(StatebookError, match="durability=host"):
        open_journal(odd_server.url, require=[Durability.HOST])


def test_a_batch_that_the_server_could_not_take_is_refused_before_any_effect(
    odd_server: MysqlService, stores_at: Callable[[str], Any], key: ThreadKey, batch: Any
) -> None:
    """Case 25: 5 MB on a server that takes packets of 4 MB."""
    stores = stores_at(odd_server.url)
    journal, state = stores.journal(), stores.state()
    claim = journal.claim(key, "w")
    before = journal.head(key)
    value = b'"' + b"x" * 5_000_000 + b'"'
    with pytest.raises(LimitExceeded) as caught:
        journal.append(claim, batch("big", payload=value), 0)
    assert caught.value.maximum is not None
    assert caught.value.maximum < 4 * 1_024 * 1_024
    with pytest.raises(LimitExceeded):
        state.save(StateKey("u", "s", "k"), value)
    assert journal.head(key) == before
    assert state.exists(StateKey("u", "s", "k").session) is False
    assert journal.append(claim, batch("small"), 0).last_seq == 1


@pytest.mark.parametrize("filler", [b"x", b"'", b"\\\\"])
def test_the_largest_value_that_is_declared_is_taken_whatever_is_in_it(
    odd_server: MysqlService, stores_at: Callable[[str], Any], key: ThreadKey, batch: Any, filler: bytes
) -> None:
    stores = stores_at(odd_server.url)
    journal, state = stores.journal(), stores.state()
    size = journal.capabilities.limits.value_bytes_max
    value = b'"' + (filler * size)[: (size - 2) // 2 * 2] + b'"'
    journal.append(journal.claim(key, "w"), batch("b", payload=value), 0)
    assert journal.read_after(key, 0).events[0].payload == value
    slot = StateKey("u", "s", "k")
    state.save(slot, value)
    found = state.load(slot)
    assert found is not None
    assert found.value == value
    state.replace_list(slot, (value, b"1", value))
    items = state.load_list(slot)
    assert items is not None
    assert items.items == (value, b"1", value)


def test_charset_and_collation_of_the_server_change_nothing(
    odd_server: MysqlService, stores_at: Callable[[str], Any], batch: Any
) -> None:
    """Cases 19 and 22: latin1 and a collation that ignores case, ids that differ in case, accent, width, space."""
    stores = stores_at(odd_server.url)
    journal, state = stores.journal(), stores.state()
    names = ("Alice", "alice", "\u00e9", "e\u0301", "\uff41", "a", "a ", "\U0001f468\u200d\U0001f469\u200d\U0001f467")
    for number, name in enumerate(names):
        thread = ThreadKey(name, name, name, name)
        payload = f'"{name}"'.encode()
        journal.append(journal.claim(thread, name), batch(name, payload=payload), 0)
        cursor = journal.open_cursor(thread, name)
        journal.advance_cursor(cursor, 1)
        state.save(StateKey(name, name, name), b"%d" % number)
        state.append_list(StateKey("u", "s", name), (payload,), expected_length=0)
    for number, name in enumerate(names):
        events = journal.read_after(ThreadKey(name, name, name, name), 0).events
        assert [(event.event_id, event.payload) for event in events] == [(f"{name}.0", f'"{name}"'.encode())]
        found = state.load(StateKey(name, name, name))
        assert found is not None
        assert found.value == b"%d" % number
        assert [session.session_id for session in state.list_sessions(name).sessions] == [name]
    keys = state.list_keys(StateKey("u", "s", "k").session, kind=_list_kind()).keys
    assert sorted(key.key for key in keys) == sorted(names)


def _list_kind() -> Any:
    from statebook.model import SlotKind

    return SlotKind.LIST


FIRST = """
import sys
from statebook import Batch, Event, StateKey, ThreadKey
from statebook.plugins import open_journal, open_state
url, name = sys.argv[1], sys.argv[2]
sys.stdin.readline()
journal, state = open_journal(url), open_state(url)
key = ThreadKey("u", "a", "s", name)
event = Event(event_id="e", type="x", occurred_at=1, payload=b"1")
last = journal.append(journal.claim(key, "w"), Batch("b", (event,)), 0).last_seq
print(last, state.save(StateKey("u", "s", name), b"1"))
"""


def test_sixteen_first_openings_at_once_all_succeed(server: MysqlService, stores: Any, python: Any) -> None:
    """Case 31: a fresh database, opened by 16 processes at the same moment."""
    url = stores.url.with_option("table_prefix", "first_").with_option("read_timeout_s", "60").unredacted()
    processes = [python(FIRST, url, f"t{number}") for number in range(16)]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    outcomes = [process.communicate(timeout=200) for process in processes]
    assert [out for out, _ in outcomes] == ["1 1\n"] * 16, outcomes
    held = server.execute("SELECT COUNT(*) FROM information_schema.tables WHERE table_name LIKE 'first\\_%'")
    assert held.split() == ["9"]
