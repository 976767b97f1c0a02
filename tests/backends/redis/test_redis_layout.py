"""Keys: one slot a thread and a session whatever the ids, namespaces apart, listings complete on all masters (ID-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from statebook.errors import JournalCorrupt
from statebook.keys import SessionKey, StateKey, ThreadKey, ThreadScope
from statebook.model import Batch, SlotKind
from statebook_backends.redis.layout import Layout, member_of, name_of, slot_of
from statebook_conformance.services.redis_service import RedisClusterService, RedisService, ask

if TYPE_CHECKING:
    from tests.backends.redis.conftest import Stores

BRACED = ("{x}", "{}", "}{", "{", "a{b}c", "{user}", "plain", "x" * 512)


def test_no_id_moves_a_hash_tag() -> None:
    """Case 34: braces in ids, and ids that look like tags, stay inside the encoded name."""
    layout = Layout("{name}")
    for name in BRACED:
        keys = layout.thread(ThreadKey(name, name, name, name))
        for key in (keys.head, keys.batches, keys.stubs, keys.cursors):
            assert key.count(b"{") == key.count(b"}") == 1
            assert slot_of(key[key.index(b"{") + 1 : key.index(b"}")]) == keys.slot
        session = SessionKey(name, name)
        slots = {layout.state(StateKey(name, name, other), kind).slot for other in BRACED for kind in SlotKind}
        assert slots == {layout.live(session).slot}


def test_the_server_sees_one_slot_where_the_layout_does(cluster: RedisClusterService) -> None:
    for name in BRACED:
        keys = Layout("default").thread(ThreadKey(None, name, "s", "t"))
        for key in (keys.head, keys.batches, keys.stubs, keys.cursors):
            answer = ask(cluster.ports[0], "CLUSTER", "KEYSLOT", key.decode())
            assert answer.strip() == f":{keys.slot}"


def test_a_cluster_lists_threads_sessions_and_scopes_of_all_masters(
    cluster: RedisClusterService, stores_at: Callable[[str], Stores], make_batch: Callable[..., Batch]
) -> None:
    """Case 34: nothing is cut where what is listed is spread over all masters."""
    stores = stores_at(cluster.url)
    journal, state, atomic = stores.journal(), stores.state(), stores.atomic()
    threads = [ThreadKey("user", f"{{agent {index % 3}}}", "s", f"{{{index}}}") for index in range(60)]
    for thread in threads:
        claim = journal.claim(thread, "writer")
        journal.append(claim, make_batch("b"), 0)
        state.save(StateKey("user", thread.thread_id, "{key}"), b"1")
        atomic.commit(f"d/{thread.name}", None, b"head")
    layout = Layout(stores.namespace)
    assert len({cluster.owner(layout.thread(thread).head.decode()).port for thread in threads}) == 3
    listed = journal.list_threads(ThreadScope("user"))
    assert listed.threads == tuple(sorted(threads, key=lambda key: key.name))
    assert len(state.list_sessions("user").sessions) == 60
    assert len(atomic.list_scopes("d/", None, 1_000).names) == 60
    assert stores.backend().destroy_namespace()
    assert journal.list_threads(ThreadScope("user")).threads == ()
    medium = stores.backend().open_medium()
    assert medium is not None
    assert medium.records() == ()
    medium.close()


def test_a_member_of_an_index_shows_where_it_was_changed() -> None:
    member = member_of("agent/session/thread")
    assert name_of(member) == "agent/session/thread"
    for place in range(len(member)):
        for bit in range(8):
            changed = member[:place] + bytes([member[place] ^ 1 << bit]) + member[place + 1 :]
            assert name_of(changed) is None


def test_members_sort_as_their_names_do() -> None:
    names = ["a", "a-", "a0", "a/", "a/b", "a_20", "ab", "a-b/c"]
    assert sorted(names) == [str(name_of(member)) for member in sorted(map(member_of, names))]


def test_a_listing_with_a_lost_entry_is_an_error_and_a_claim_puts_it_back(stores: Stores, server: RedisService) -> None:
    journal = stores.journal()
    threads = [ThreadKey("user", "agent", "session", name) for name in ("a", "b", "c")]
    for thread in threads:
        journal.claim(thread, "writer")
    index = Layout(stores.namespace).threads("user")
    ask(server.port, "ZREM", index.members.decode(), member_of("agent/session/b").decode())
    with pytest.raises(JournalCorrupt):
        journal.list_threads(ThreadScope("user"))
    journal.claim(threads[1], "writer")
    assert journal.list_threads(ThreadScope("user")).threads == tuple(threads)


def test_namespaces_and_other_keys_of_a_server_are_left_alone(
    server: RedisService, stores_at: Callable[[str], Stores], thread: ThreadKey
) -> None:
    first, second = stores_at(server.url), stores_at(server.url)
    first.journal().claim(thread, "first")
    second.journal().claim(thread, "second")
    ask(server.port, "SET", f"other:{first.namespace}", "kept")
    first.backend().destroy_namespace()
    assert first.journal().head(thread) is None
    assert second.journal().head(thread) is not None
    assert ask(server.port, "GET", f"other:{first.namespace}").endswith("kept\r\n")


def test_a_deleted_and_purged_thread_leaves_no_key(
    stores: Stores, thread: ThreadKey, make_batch: Callable[..., Batch]
) -> None:
    """Case 20: the raw medium holds no leftover."""
    journal = stores.journal()
    claim = journal.claim(thread, "writer")
    for index in range(5):
        journal.append(claim, make_batch(f"b{index}"), index)
    journal.open_cursor(thread, "exporter")
    journal.trim(thread, 3)
    assert journal.delete(thread)
    assert journal.purge(thread)
    medium = stores.backend().open_medium()
    assert medium is not None
    assert medium.records() == ()
    medium.close()
