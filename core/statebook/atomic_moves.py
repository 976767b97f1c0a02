"""Moves journal heads: judge a head, commit conditionally, and judge again where somebody else was first (ATOM-1).

Heads that this store has written or read last are remembered, so that an append needs one conditional commit and no
read. A remembered head answers nothing: before anything but a commit is decided on it, it is read again (ATOM-5).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from threading import Lock
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from statebook.atomic import AtomicJournalStorage, CommitConflict
from statebook.atomic_head import StoredHead, decode_head
from statebook.atomic_reader import thread_scope
from statebook.contention import Contention, Rests
from statebook.errors import BackendUnavailable, JournalCorrupt, OutcomeUnknown, StatebookError
from statebook.index_tree import BlobMissing, lost
from statebook.keys import ThreadKey
from statebook.plan import Done, Refuse
from statebook.window import WindowCache

T = TypeVar("T")

_DECODED_MAX: Final = 32


class Write(msgspec.Struct, Generic[T], frozen=True):
    """Commit this head with these blobs, conditional on the head that was judged; then answer."""

    head: StoredHead
    answer: T
    blobs: Mapping[str, bytes] | None = None


Decision: TypeAlias = "Write[T] | Done[T] | Refuse"
Judge: TypeAlias = "Callable[[StoredHead | None, OutcomeUnknown | None], Decision[T]]"
"""Decides on a head; also given the error of an earlier attempt of the same call that may have landed, or None."""


class HeadSlot:
    """What a store remembers of one journal, under a lock.

    Attributes:
        lock: Held through one call, so that calls on one journal from one store do not race each other.
        users: How many calls have it in hand; such a slot is not let go.
        head: The head that was read or written last, or None.
        token: Its token, or None.
    """

    __slots__ = ("head", "lock", "token", "users")

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.head: StoredHead | None = None
        self.token: str | None = None

    def keep(self, head: StoredHead | None, token: str | None) -> None:
        """Remember a head."""
        self.head = head
        self.token = token

    def forget(self) -> None:
        """Remember nothing, as after a lost race or an unknown outcome."""
        self.keep(None, None)


class Memory:
    """The slots and windows of one store in one process; a forked child starts with an empty one.

    Attributes:
        pid: The process that it belongs to.
        windows: The windows of the journals that were written last.
        rests: When upkeep may write a head again.
        decoded: Records that were decoded last, by the names of their threads, with the heads that they hold.
    """

    def __init__(self, slots_max: int = 1_024) -> None:
        """Make an empty memory.

        Args:
            slots_max: How many journals are remembered at most.
        """
        self.pid = os.getpid()
        self.windows = WindowCache(slots_max)
        self.rests = Rests()
        self.decoded: dict[str, tuple[bytes, StoredHead]] = {}
        self._slots_max = slots_max
        self._slots: OrderedDict[str, HeadSlot] = OrderedDict()
        self._lock = Lock()

    def hold(self, name: str) -> AbstractContextManager[HeadSlot]:
        """Hold the slot of a journal, from the beginning to the end of a `with`."""
        return _Hold(self, name)

    def take(self, name: str) -> HeadSlot:
        """Wait for the slot of a journal, and take it; to be given back."""
        with self._lock:
            slot = self._slots.get(name)
            if slot is None:
                slot = self._slots[name] = HeadSlot()
                self._let_go()
            else:
                self._slots.move_to_end(name)
            slot.users += 1
        try:
            slot.lock.acquire()
        except BaseException:
            self._leave(slot)
            raise
        return slot

    def give_back(self, slot: HeadSlot) -> None:
        """Let the next call have a slot."""
        slot.lock.release()
        self._leave(slot)

    def _leave(self, slot: HeadSlot) -> None:
        with self._lock:
            slot.users -= 1

    def _let_go(self) -> None:
        excess = len(self._slots) - self._slots_max
        if excess > 0:
            idle = (name for name, slot in list(self._slots.items())[:-1] if not slot.users)
            for _, name in zip(range(excess), idle, strict=False):
                del self._slots[name]


class _Hold:
    """A slot, from the beginning to the end of a `with`."""

    __slots__ = ("_memory", "_name", "_slot")

    def __init__(self, memory: Memory, name: str) -> None:
        self._memory = memory
        self._name = name

    def __enter__(self) -> HeadSlot:
        """Take it."""
        slot = self._slot = self._memory.take(self._name)
        return slot

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Give it back."""
        self._memory.give_back(self._slot)


class JournalHeads:
    """Reads and moves the heads of journals over a storage."""

    def __init__(self, storage: AtomicJournalStorage, contention: Contention) -> None:
        """Work over a storage.

        Args:
            storage: The storage.
            contention: Bounds lost attempts.
        """
        self._storage = storage
        self._contention = contention
        self._memory = Memory()

    @property
    def memory(self) -> Memory:
        """This process's memory: locks of a parent process are never waited for."""
        if self._memory.pid != os.getpid():
            self._memory = Memory()
        return self._memory

    def read(self, key: ThreadKey) -> tuple[StoredHead | None, str | None]:
        """Read a head and its token (ATOM-5); a tombstone is a head.

        Raises:
            JournalCorrupt: It is damaged or another key's.
            UnsupportedFormat: It is of another format version.
        """
        record = self._storage.read_head(thread_scope(key))
        if record is None:
            return None, None
        decoded, name = self.memory.decoded, key.name
        known = decoded.get(name)
        if known is not None and known[0] == record.data:  # the very bytes that were verified
            return known[1], record.token
        head = decode_head(record.data, key, name)
        if len(decoded) >= _DECODED_MAX:
            decoded.clear()
        decoded[name] = (record.data, head)
        return head, record.token

    def consistently(self, key: ThreadKey, read: Callable[[StoredHead | None, str | None], T]) -> T:
        """Read through a head; where a trim took a blob away meanwhile, read again through the newer one (LIFE-4).

        Args:
            key: The thread.
            read: Reads what is wanted, given the head and its token; may raise `BlobMissing`.

        Returns:
            What `read` returned.

        Raises:
            JournalCorrupt: A blob is missing that the newest head still refers to.
        """
        missing: BlobMissing | None = None
        for _ in self._contention.attempts():
            head, token = self.read(key)
            try:
                return read(head, token)
            except BlobMissing as error:
                if missing is not None and missing.reference.name == error.reference.name:
                    raise lost(error, JournalCorrupt, key.name) from error
                missing = error
        raise BackendUnavailable("the journal is trimmed faster than it can be read", key=key.name)

    def move(
        self,
        slot: HeadSlot,
        key: ThreadKey,
        judge: Judge[T],
        *,
        remembered: bool = False,
        eager: bool = False,
        resends: int = 0,
    ) -> T:
        """Judge the head and commit what is decided, until it is decided.

        Guarantees ERR-2: returns or refuses only what is certain. A conditional commit whose outcome is unknown is
        certain again when the head carries its nonce (it landed) or another token (it never will, or has been
        followed by others: then `judge` is given the doubt).

        Args:
            slot: The journal's slot, held.
            key: The thread.
            judge: Decides.
            remembered: Whether a remembered head is good enough to commit on.
            eager: Whether a lost attempt is followed by the next one at once, as an append's is.
            resends: How often a write of unknown outcome is sent again where the head has not moved: only for writes
                that are harmless twice.

        Returns:
            The answer.

        Raises:
            BackendUnavailable: Somebody else was first for longer than patience lasts; nothing was applied.
            OutcomeUnknown: Perhaps applied.
            StatebookError: What `judge` refuses with.
        """
        fresh = False
        doubt: OutcomeUnknown | None = None
        missing: BlobMissing | None = None
        for _ in self._contention.attempts(eager=eager):
            if not fresh and (slot.token is None or not remembered):
                slot.keep(*self.read(key))
                fresh = True
            try:
                decision = judge(slot.head, doubt)
            except BlobMissing as error:
                if missing is not None and missing.reference.name == error.reference.name:
                    raise lost(error, JournalCorrupt, key.name) from error
                missing = error
                slot.forget()
                fresh = False
                continue
            if isinstance(decision, Write):
                expected = slot.token
                try:
                    if self._commit(slot, key, decision):
                        return decision.answer
                    fresh = False
                except OutcomeUnknown as error:
                    self._reread(slot, key, error)
                    if slot.head is not None and slot.head.state.nonce == decision.head.state.nonce:
                        return decision.answer
                    if slot.token == expected:
                        if resends == 0:
                            raise
                        resends -= 1
                    fresh, doubt = True, error
            elif fresh:
                return _answer(decision)
            else:
                slot.forget()
        return self._give_up(slot, key, judge, doubt)

    def _commit(self, slot: HeadSlot, key: ThreadKey, write: Write[T]) -> bool:
        expected = slot.token
        slot.token = None
        token = self._storage.commit(thread_scope(key), expected, write.head.encode(), write.blobs or None)
        if isinstance(token, CommitConflict):
            slot.forget()
            return False
        slot.keep(write.head, token)
        return True

    def _reread(self, slot: HeadSlot, key: ThreadKey, unknown: OutcomeUnknown) -> None:
        slot.forget()
        try:
            slot.keep(*self.read(key))
        except StatebookError:
            raise unknown from unknown.__cause__

    def _give_up(self, slot: HeadSlot, key: ThreadKey, judge: Judge[T], doubt: OutcomeUnknown | None) -> T:
        slot.keep(*self.read(key))
        try:
            decision = judge(slot.head, doubt)
        except BlobMissing as error:
            raise lost(error, JournalCorrupt, key.name) from error
        if isinstance(decision, Write):
            if doubt:
                raise doubt
            raise BackendUnavailable(
                "too much contention: every attempt met a newer head; try again later", key=key.name
            )
        return _answer(decision)


def _answer(decision: Done[T] | Refuse) -> T:
    if isinstance(decision, Refuse):
        raise decision.error
    return decision.answer
