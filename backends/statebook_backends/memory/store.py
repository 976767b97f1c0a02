"""What a memory store holds: plain dictionaries under one lock. The three stores of this backend work on it."""

from __future__ import annotations

from threading import Lock
from typing import Final

import msgspec

from statebook.atomic import HeadRecord
from statebook.capabilities import Capabilities, Durability, Feature, Sharing
from statebook.errors import StoreClosed
from statebook.keys import SessionKey, StateKey, ThreadKey
from statebook.model import Receipt, SlotKind
from statebook.plan import receipt_of
from statebook.records import CursorState, FrozenBatch, HeadState
from statebook.window import Window
from statebook_backends.memory.names import NameIndex

CAPABILITIES: Final = Capabilities(
    backend="memory",
    durability=Durability.NONE,
    durability_setting="memory of this process",
    sharing=Sharing.PROCESS,
    features=frozenset({Feature.GROUP_COMMIT, Feature.PURGE, Feature.RECEIPTS_KEPT}),
)
"""What every memory store declares (DUR)."""


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """One batch as it is held.

    Attributes:
        body: The encoded batch.
        receipt: Its receipt.
        chain: The chain digest behind it.
    """

    body: bytes
    receipt: Receipt
    chain: str


class Journal:
    """One journal, or the tombstone of one.

    Attributes:
        head: The head.
        batches: The batches that have not been trimmed away, in order.
        lasts: The last seq of each of them, for look-up by seq.
        receipts: The receipts of all batches of this incarnation, trimmed ones too (APPEND-1).
        window: The event ids of the newest batches.
    """

    __slots__ = ("batches", "head", "lasts", "receipts", "window")

    def __init__(self, head: HeadState) -> None:
        """Start an incarnation without batches."""
        self.head = head
        self.batches: list[StoredBatch] = []
        self.lasts: list[int] = []
        self.receipts: dict[str, Receipt] = {}
        self.window = Window(head.chain)

    def take_up(self, batch: FrozenBatch, head: HeadState) -> Receipt:
        """Commit a batch under the head that was decided; under the lock.

        Returns:
            Its receipt.
        """
        receipt = receipt_of(head, batch)
        self.batches.append(StoredBatch(batch.body, receipt, head.chain))
        self.lasts.append(head.last_seq)
        self.receipts[batch.batch_id] = receipt
        self.window.push(receipt, batch.event_ids, head.chain)
        self.head = head
        return receipt


class Slot:
    """One slot of agent state; a list's items are kept in `items`, a document is the only item.

    Attributes:
        version: The newest version given out; stays when the slot is deleted (STATE-2).
        live: Whether there is a value.
        items: The value.
        size: The bytes of all items.
    """

    __slots__ = ("items", "live", "size", "version")

    def __init__(self) -> None:
        """Start a slot that was never saved."""
        self.version = 0
        self.live = False
        self.items: list[bytes] = []
        self.size = 0


class MemoryData:
    """Everything of one namespace.

    Attributes:
        lock: Held for every look at, and every change of, anything below.
        journals: Journals and tombstones.
        threads: The threads that have a journal, by name.
        cursors: The cursor records of each thread, by exporter.
        slots: The slots of each kind, deleted ones too.
        keys: The live slots of each kind, by name.
        live: How many live slots a session has.
        sessions: The sessions that have one, by name.
        heads: The atomic storage's heads.
        scopes: The scopes that have one.
        blobs: The atomic storage's blobs, by scope and name.
    """

    def __init__(self) -> None:
        """Make an empty namespace."""
        self.lock = Lock()
        self.wipe()

    def wipe(self) -> None:
        """Drop everything. Called under the lock, or before anybody else has this object."""
        self.journals: dict[ThreadKey, Journal] = {}
        self.threads: NameIndex[ThreadKey] = NameIndex()
        self.cursors: dict[ThreadKey, dict[str, CursorState]] = {}
        self.slots: dict[SlotKind, dict[StateKey, Slot]] = {kind: {} for kind in SlotKind}
        self.keys: dict[SlotKind, NameIndex[StateKey]] = {kind: NameIndex() for kind in SlotKind}
        self.live: dict[SessionKey, int] = {}
        self.sessions: NameIndex[SessionKey] = NameIndex()
        self.heads: dict[str, HeadRecord] = {}
        self.scopes: NameIndex[str] = NameIndex()
        self.blobs: dict[str, dict[str, bytes]] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is held, not even a tombstone."""
        return not (self.journals or self.cursors or any(self.slots.values()) or self.heads or self.blobs)


def closed() -> StoreClosed:
    """The error of a call on a closed store (ERR-5)."""
    return StoreClosed("this memory store is closed; open it again", backend=CAPABILITIES.backend)
