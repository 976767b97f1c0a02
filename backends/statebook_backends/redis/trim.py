"""Trimming: first the head, conditional on the cursors, then the batches that nobody can read any more (LIFE-2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from statebook.contention import TRIES_MAX, jittered_pause
from statebook.errors import JournalCorrupt, JournalNotFound
from statebook.keys import ThreadKey
from statebook.model import JournalHead
from statebook.plan import Done, Refuse
from statebook.plan_cursors import plan_trim
from statebook.records import HeadState
from statebook.window import WINDOW_BATCHES
from statebook_backends.redis.batches import StoredBatch, entries_of, stub_of
from statebook_backends.redis.heads import head_from, known_of, words_of
from statebook_backends.redis.layout import ThreadKeys
from statebook_backends.redis.reading import Thread, changing, read_thread
from statebook_backends.redis.resp import bulk, bulks, fields_of
from statebook_backends.redis.scripts import script

if TYPE_CHECKING:
    from statebook_backends.redis.client import Client

_ENOUGH_BYTES: Final = b"16777216"


def trim_journal(client: Client, key: ThreadKey, before_seq: int, new_nonce: Callable[[], str]) -> JournalHead:
    """Raise `first_seq` as far as cursors and checkpoint let it, and remove what is before it.

    A crash between the two leaves batches that no reader reaches; the next trim removes them.

    Args:
        client: The client.
        key: The thread.
        before_seq: The first seq to keep.
        new_nonce: Where nonces come from.

    Returns:
        The head after the trim.

    Raises:
        JournalNotFound: There is no journal.
    """
    keys = client.layout.thread(key)
    thread = read_thread(client, keys, key)
    for attempt in range(TRIES_MAX):
        records = thread.records(keys, key)
        decision = plan_trim(thread.head, key, before_seq, records, nonce=new_nonce())
        if isinstance(decision, Refuse):
            raise decision.error
        if isinstance(decision, Done):
            if thread.head is not None and thread.head.first_seq > 1:
                _drop(client, keys, thread.head)
            return decision.answer
        known = thread.known
        head = decision.state
        public = head.public()
        if known is None or public is None:
            raise JournalNotFound("there is no journal to trim", key=key.name)
        call = script("trim", 2).call(
            2,
            bulks(keys.head, keys.cursors),
            known.seal,
            known.head.nonce.encode(),
            b"%d" % len(thread.cursors),
            *words_of(known_of(keys, head)),
            *(word for pair in thread.cursors.items() for word in pair),
        )
        reply = client.write(keys.slot, call, JournalCorrupt, keys.name)
        if reply == 1:
            _drop(client, keys, head)
            return public
        if not isinstance(reply, list) or len(reply) != 2:
            raise changing(keys.name, client.backend)
        thread = Thread(head_from(keys, key, fields_of(reply[0]), client.backend), fields_of(reply[1]))
        jittered_pause(attempt)
    raise changing(keys.name, client.backend)


def _drop(client: Client, keys: ThreadKeys, head: HeadState) -> None:
    """Remove the batches before `first_seq`; of those in the window the event ids stay as stubs (APPEND-1).

    Each step is harmless by itself and beside others: what leaves is immutable, and later appends only make the window
    need less of it.
    """
    newest: list[StoredBatch] = []
    start = b"+"
    while len(newest) < WINDOW_BATCHES:
        wanted = b"%d" % (WINDOW_BATCHES - len(newest))
        packed = keys.packed + bulk(keys.stubs)
        call = script("newest", 3).call(3, packed, start, wanted, _ENOUGH_BYTES)
        reply = client.read(keys.slot, call, JournalCorrupt, keys.name)
        if not isinstance(reply, list) or len(reply) != 3:
            raise changing(keys.name, client.backend)
        if fields_of(reply[0]).get(b"journal_id") != head.journal_id.encode():
            return
        more = list(entries_of(head, reply[1], reply[2]))
        if not more:
            break
        newest += more
        start = b"(%d-0" % newest[-1].last_seq
    leaving = [batch for batch in reversed(newest) if batch.last_seq < head.first_seq and not batch.is_stub]
    stubs = [word for batch in leaving for word in stub_of(batch, head)]
    oldest = b"%d-0" % (newest[-1].last_seq if newest else 0)
    call = script("drop", 3).call(
        3, keys.packed + bulk(keys.stubs), head.journal_id.encode(), b"%d-0" % head.first_seq, oldest, *stubs
    )
    client.write(keys.slot, call, JournalCorrupt, keys.name)
