"""Trimming: first the head, conditional on the cursors, then the batches that nobody can read any more (LIFE-2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from statebook.errors import JournalCorrupt, JournalNotFound
from statebook.keys import ThreadKey
from statebook.model import JournalHead
from statebook.plan import Done, Refuse
from statebook.plan_cursors import plan_trim
from statebook.records import HeadState
from statebook.window import WINDOW_BATCHES
from statebook_backends.redis.batches import StoredBatch, entries_of, stub_of
from statebook_backends.redis.heads import known_of, words_of
from statebook_backends.redis.layout import ThreadKeys
from statebook_backends.redis.reading import changing, read_thread
from statebook_backends.redis.resp import bulk, bulks
from statebook_backends.redis.scripts import script

if TYPE_CHECKING:
    from statebook_backends.redis.client import Client

_ENOUGH_BYTES: Final = b"16777216"


def trim_journal(client: Client, key: ThreadKey, before_seq: int, new_nonce: Callable[[], str]) -> JournalHead:
    """Raise `first_seq` as far as cursors and checkpoint let it, and remove what is before it, in one step.

    Args:
        client: The client.
        key: The thread.
        before_seq: The first seq to keep.
        new_nonce: Where nonces come from.

    Returns:
        The head after the trim.

    Raises:
        JournalNotFound: There is no journal.
        JournalCorrupt: A batch that would leave a stub is damaged; nothing was removed.
    """
    keys, rests = client.layout.thread(key), client.heads.rests
    leaving: _Leaving | None = None
    for _ in client.contention.attempts():
        begun = rests.wait(keys.name)
        thread = read_thread(client, keys, key)
        decision = plan_trim(thread.head, key, before_seq, thread.records(keys, key), nonce=new_nonce())
        if isinstance(decision, Refuse):
            raise decision.error
        if isinstance(decision, Done):
            return decision.answer
        known, head = thread.known, decision.state
        public = head.public()
        if known is None or public is None:
            raise JournalNotFound("there is no journal to trim", key=key.name)
        if leaving is None or (leaving.journal_id, leaving.first_seq) != (head.journal_id, head.first_seq):
            # Batches never change, and later appends make the window need fewer of them: read once for all tries.
            leaving = _leaving(client, keys, head)
        call = script("trim", 4).call(
            4,
            keys.packed + bulks(keys.stubs, keys.cursors),
            known.seal,
            known.head.nonce.encode(),
            b"%d-0" % head.first_seq,
            leaving.oldest,
            b"%d" % len(thread.cursors),
            *words_of(known_of(keys, head)),
            *(word for pair in thread.cursors.items() for word in pair),
            *leaving.stubs,
        )
        reply = client.write(keys.slot, call, JournalCorrupt, keys.name)
        if reply == 1:
            rests.wrote(keys.name, begun)
            return public
    raise changing(keys.name, client.backend)


class _Leaving(msgspec.Struct, frozen=True):
    """What a trim makes of the newest batches.

    Attributes:
        journal_id: The journal.
        first_seq: The first seq that stays.
        oldest: The id of the oldest batch in the window.
        stubs: Id, meta and event ids of each batch in the window that leaves, ascending.
    """

    journal_id: str
    first_seq: int
    oldest: bytes
    stubs: tuple[bytes, ...]


def _leaving(client: Client, keys: ThreadKeys, head: HeadState) -> _Leaving:
    """Read the newest batches, and make stubs of those that are before `first_seq`.

    Raises:
        JournalCorrupt: One of those is damaged.
    """
    newest: list[StoredBatch] = []
    start = b"+"
    while len(newest) < WINDOW_BATCHES:
        wanted = b"%d" % (WINDOW_BATCHES - len(newest))
        call = script("newest", 3).call(3, keys.packed + bulk(keys.stubs), start, wanted, _ENOUGH_BYTES)
        reply = client.read(keys.slot, call, JournalCorrupt, keys.name)
        if not isinstance(reply, list) or len(reply) != 3:
            raise changing(keys.name, client.backend)
        more = list(entries_of(head, reply[1], reply[2]))
        if not more:
            break
        newest += more
        start = b"(%d-0" % newest[-1].last_seq
    gone = [batch for batch in reversed(newest) if batch.last_seq < head.first_seq and not batch.is_stub]
    stubs = tuple([word for batch in gone for word in stub_of(batch, head)])
    oldest = b"%d-0" % (newest[-1].last_seq if newest else 0)
    return _Leaving(head.journal_id, head.first_seq, oldest, stubs)
