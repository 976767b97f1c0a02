"""Lost connections and replies, refusals, restarts, pauses: applied, not applied or unknown (ERR-2, ERR-4, SETTLE)."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from statebook.errors import BackendUnavailable, JournalCorrupt, OutcomeUnknown, StateCorrupt, StoreClosed
from statebook.keys import StateKey, ThreadKey, ThreadScope
from statebook.model import AppendRequest, Batch, Receipt, WriterClaim
from statebook_backends.redis.journal import RedisThreadJournalStore
from statebook_backends.redis.options import options_of
from statebook_conformance.services.redis_service import RedisService, ask

if TYPE_CHECKING:
    from tests.backends.redis.conftest import Proxy, Stores

Start = Callable[..., RedisService]
MakeBatch = Callable[..., Batch]
SLOT = StateKey("user", "session", "key")


def test_connections_killed_between_calls_are_replaced_without_an_error(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch
) -> None:
    """Case 32."""
    server = own_server()
    stores = stores_at(server.url)
    journal, state, atomic = stores.journal(), stores.state(), stores.atomic()
    claim = journal.claim(thread, "writer")
    version, token = state.save(SLOT, b"0"), atomic.commit("d/x", None, b"0")
    for index in range(5):
        ask(server.port, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert journal.append(claim, make_batch(f"b{index}"), index).replayed is False
        version = state.save(SLOT, b"1", expected=version)
        assert isinstance(token, str)
        token = atomic.commit("d/x", token, b"1")
    assert journal.read_after(thread, 0).last_seq == 5


def test_a_reply_lost_during_an_append_is_unknown_and_settles(
    proxy: Proxy, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch
) -> None:
    """Cases 32, 37: stored once, with its receipt."""
    journal = stores_at(proxy.url).journal()
    claim = journal.claim(thread, "writer")
    journal.append(claim, make_batch("b0"), 0)
    proxy.lose_reply.set()
    with pytest.raises(OutcomeUnknown) as unknown:
        journal.append(claim, make_batch("b1"), 1)
    assert (unknown.value.batch_id, unknown.value.base_seq, proxy.lost) == ("b1", 1, 1)
    receipt = journal.append(claim, make_batch("b1"), 1)
    assert (receipt.replayed, receipt.last_seq) == (True, 2)
    settled = journal.settle(claim, "b1", 1)
    assert settled is not None
    assert settled.last_seq == 2
    assert journal.settle(claim, "never", 2) is None
    assert journal.read_after(thread, 0).last_seq == 2


def test_a_claim_whose_reply_is_lost_settles_itself_by_its_nonce(
    proxy: Proxy, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch
) -> None:
    journal = stores_at(proxy.url).journal()
    first = journal.claim(thread, "writer")
    client = journal._client  # type: ignore[attr-defined]
    index = client.index

    def index_then_lose(*arguments: object) -> None:
        """The entry in the index is written right before the head: lose the reply to that."""
        index(*arguments)
        proxy.lose_reply.set()

    client.index = index_then_lose
    claim = journal.claim(thread, "another")
    assert proxy.lost == 1
    assert claim.epoch == first.epoch + 1
    assert journal.append(claim, make_batch("b"), 0).last_seq == 1


def test_a_save_whose_reply_is_lost_is_unknown_and_the_next_call_works(
    proxy: Proxy, stores_at: Callable[[str], Stores]
) -> None:
    state = stores_at(proxy.url).state()
    version = state.save(SLOT, b"0")
    proxy.lose_reply.set()
    with pytest.raises(OutcomeUnknown):
        state.save(SLOT, b"1", expected=version)
    found = state.load(SLOT)
    assert found is not None
    assert (found.value, found.version) == (b"1", version + 1)


def test_a_read_whose_connection_breaks_is_asked_again(
    proxy: Proxy, stores_at: Callable[[str], Stores], thread: ThreadKey
) -> None:
    journal = stores_at(proxy.url).journal()
    journal.claim(thread, "writer")
    proxy.lose_reply.set()
    assert journal.head(thread) is not None
    assert proxy.lost == 1


def test_a_connection_lost_in_a_group_leaves_those_without_replies_unknown(
    proxy: Proxy, stores_at: Callable[[str], Stores], make_batch: MakeBatch
) -> None:
    journal = stores_at(proxy.url).journal()
    claims = [journal.claim(ThreadKey("u", "a", "s", f"t{index}"), "writer") for index in range(8)]
    for claim in claims:
        journal.append(claim, make_batch("b0"), 0)
    proxy.lose_after = 3 * len(b":1\r\n")
    proxy.lose_reply.set()
    outcomes = journal.append_many([AppendRequest(claim, make_batch("b1"), 1) for claim in claims])
    assert [isinstance(outcome, Receipt) for outcome in outcomes] == [True] * 3 + [False] * 5
    for claim, outcome in zip(claims[3:], outcomes[3:], strict=True):
        assert isinstance(outcome, OutcomeUnknown)
        assert (outcome.batch_id, outcome.base_seq) == ("b1", 1)
        assert journal.append(claim, make_batch("b1"), 1).replayed
    assert [journal.read_after(claim.key, 0).last_seq for claim in claims] == [2] * 8


def test_a_server_that_is_paused_is_unknown_within_the_time_out_and_what_lands_late_settles(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch
) -> None:
    """Case 44: never absent and present."""
    server = own_server()
    journal = stores_at(server.url).journal(read_timeout_s=0.5, connect_timeout_s=0.5)
    claim = journal.claim(thread, "writer")
    server.servers[0].pause()
    try:
        started = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            journal.append(claim, make_batch("late"), 0)
        with pytest.raises(BackendUnavailable):
            journal.head(thread)
        assert time.monotonic() - started < 5
    finally:
        server.servers[0].resume()
    settled = journal.settle(claim, "late", 0)
    again = journal.append(claim, make_batch("late"), 0)
    assert again.last_seq == 1
    assert again.replayed is (settled is not None)
    assert journal.read_after(thread, 0).last_seq == 1


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_what_was_acknowledged_outlives_the_server(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch, how: str
) -> None:
    server = own_server()
    stores = stores_at(server.url)
    journal, state = stores.journal(connect_timeout_s=1), stores.state(connect_timeout_s=1)
    claim = journal.claim(thread, "writer")
    for index in range(20):
        journal.append(claim, make_batch(f"b{index}"), index)
    version = state.save(SLOT, b"1")
    if how == "restart":
        server.servers[0].stop()
    else:
        server.servers[0].kill()
    with pytest.raises(BackendUnavailable):
        journal.append(claim, make_batch("b20"), 20)
    with pytest.raises(BackendUnavailable):
        state.save(SLOT, b"2", expected=version)
    server.servers[0].start()
    assert journal.append(claim, make_batch("b20"), 20).replayed is False
    assert journal.verify(thread, deep=True).findings == ()
    assert journal.read_after(thread, 0).last_seq == 21
    assert state.save(SLOT, b"2", expected=version) == version + 1


def test_a_server_without_memory_refuses_before_any_effect(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch
) -> None:
    server = own_server()
    stores = stores_at(server.url)
    journal, state = stores.journal(), stores.state()
    claim = journal.claim(thread, "writer")
    state.append_list(SLOT, (b"1",), expected_length=0)
    ask(server.port, "CONFIG", "SET", "maxmemory", "1")
    for call in (
        lambda: journal.append(claim, make_batch("b0"), 0),
        lambda: journal.claim(thread, "another"),
        lambda: state.append_list(SLOT, (b"2",), expected_length=1),
        lambda: state.save(SLOT, b"2"),
    ):
        with pytest.raises(BackendUnavailable, match="memory"):
            call()
    ask(server.port, "CONFIG", "SET", "maxmemory", "0")
    assert journal.append(claim, make_batch("b0"), 0).replayed is False
    found = state.load_list(SLOT)
    assert found is not None
    assert found.items == (b"1",)


def test_a_master_that_became_a_replica_takes_nothing(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch
) -> None:
    master, server = own_server(), own_server()
    stores = stores_at(server.url)
    journal, state = stores.journal(), stores.state()
    claim, version = journal.claim(thread, "writer"), state.save(SLOT, b"1")
    ask(server.port, "REPLICAOF", "127.0.0.1", str(master.port))
    for call in (
        lambda: journal.append(claim, make_batch("b0"), 0),
        # its data is a master's no longer: what it answers to reads, and to writes that would write nothing, is refused
        lambda: journal.head(thread),
        lambda: journal.read_after(thread, 0),
        lambda: journal.append(claim, make_batch("b0"), 7),
        lambda: journal.list_threads(ThreadScope("user")),
        lambda: state.load(SLOT),
        lambda: state.save(SLOT, b"2", expected=version + 1),
    ):
        with pytest.raises(BackendUnavailable):
            call()
    ask(server.port, "REPLICAOF", "NO", "ONE")


def test_scripts_that_the_server_forgot_are_sent_again(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch
) -> None:
    server = own_server()
    journal = stores_at(server.url).journal()
    claims = [journal.claim(thread, "writer"), journal.claim(ThreadKey("u", "a", "s", "other"), "writer")]
    ask(server.port, "SCRIPT", "FLUSH")
    assert journal.append(claims[0], make_batch("b0"), 0).replayed is False
    ask(server.port, "SCRIPT", "FLUSH")
    outcomes = journal.append_many(
        [AppendRequest(claims[0], make_batch("b1"), 1), AppendRequest(claims[1], make_batch("b0"), 0)]
    )
    assert all(isinstance(outcome, Receipt) and not outcome.replayed for outcome in outcomes)


def test_too_few_replicas_leave_the_outcome_unknown(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey, make_batch: MakeBatch
) -> None:
    master = own_server()
    replica = own_server("--replicaof", "127.0.0.1", str(master.port), "--repl-diskless-sync-delay", "0")
    deadline = time.monotonic() + 30
    while "master_link_status:up" not in ask(replica.port, "INFO", "replication"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stores = stores_at(master.url)
    journal = stores.journal(wait_replicas=1, wait_timeout_ms=300)
    claim = journal.claim(thread, "writer")
    assert "WAIT 1" in journal.capabilities.durability_setting
    assert journal.append(claim, make_batch("b0"), 0).last_seq == 1
    replica.servers[0].pause()
    try:
        for _ in range(2):  # sent again, it is in the journal, but still not where it must be
            with pytest.raises(OutcomeUnknown):
                journal.append(claim, make_batch("b1"), 1)
        (outcome,) = journal.append_many([AppendRequest(claim, make_batch("b1"), 1)])
        assert isinstance(outcome, OutcomeUnknown)
        _replay_beside_heartbeat(stores, claim, make_batch("b1"))
    finally:
        replica.servers[0].resume()
    assert journal.append(claim, make_batch("b1"), 1).replayed
    assert journal.read_after(thread, 0).last_seq == 2


def _replay_beside_heartbeat(stores: Stores, claim: WriterClaim, batch: Batch) -> None:
    """A replay whose head is moved before it is confirmed is confirmed on the newer head, not taken for confirmed."""
    beside, beats = stores.journal(), 0

    def new_nonce() -> str:
        nonlocal beats
        if beats < 3:  # between the look at the head and the write that would be waited for
            beats += 1
            beside.heartbeat(claim)
        return secrets.token_hex(16)

    url = stores.url.with_option("wait_replicas", "1").with_option("wait_timeout_ms", "300")
    again = RedisThreadJournalStore(options_of(url), new_nonce=new_nonce)
    try:
        with pytest.raises(OutcomeUnknown):
            again.append(claim, batch, 1)
    finally:
        again.close()
    assert beats == 3


def test_a_key_of_another_type_is_damage_and_nothing_is_written(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey
) -> None:
    server = own_server()
    stores = stores_at(server.url)
    journal, state = stores.journal(), stores.state()
    journal.claim(thread, "writer")
    state.save(SLOT, b"1")
    keys = [key for key in ask(server.port, "KEYS", "*").split("\r\n") if key.endswith((":head", ":d/key"))]
    assert len(keys) == 2
    for key in keys:
        ask(server.port, "DEL", key)
        ask(server.port, "SET", key, "something else")
    with pytest.raises(JournalCorrupt):
        journal.head(thread)
    with pytest.raises(JournalCorrupt):
        journal.claim(thread, "another")
    with pytest.raises(StateCorrupt):
        state.save(SLOT, b"2")


def test_all_connections_in_use_is_overloaded_within_the_time_out(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey
) -> None:
    server = own_server()
    journal = stores_at(server.url).journal(connections_max=1, pool_timeout_s=0.2)
    journal.claim(thread, "writer")
    node = journal._client.servers().node(0)  # type: ignore[attr-defined]
    held = node.take()
    with pytest.raises(BackendUnavailable, match="connections_max"):
        journal.head(thread)
    node.give(held, sound=True)
    assert journal.head(thread) is not None


def test_a_closed_store_is_closed_and_its_connections_are_gone(
    own_server: Start, stores_at: Callable[[str], Stores], thread: ThreadKey
) -> None:
    server = own_server()
    journal = stores_at(server.url).journal()
    journal.claim(thread, "writer")
    journal.close()
    journal.close()
    with pytest.raises(StoreClosed):
        journal.head(thread)
    deadline = time.monotonic() + 10
    while "connected_clients:1\r\n" not in ask(server.port, "INFO", "clients"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_child_of_a_fork_has_connections_of_its_own(stores: Stores, thread: ThreadKey, make_batch: MakeBatch) -> None:
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    journal.append(claim, make_batch("b0"), 0)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            receipt = journal.append(claim, make_batch("b1"), 1)
            theirs.sendall(b"%d" % receipt.last_seq)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    ours.settimeout(10)
    assert ours.recv(16) == b"2"
    assert journal.append(claim, make_batch("b2"), 2).last_seq == 3
    ours.close()
    theirs.close()
