"""The journal over AtomicJournalStorage: what a backend gets that supplies only the atomic primitive.

Every decision is one of `plan`; every write is one conditional commit of a head, with its blobs. The stored form is in
`atomic_head` and `index_tree`, the commit loop in `atomic_moves`, cursors in `atomic_cursors`, trims in `atomic_trim`,
garbage in `collector`, damage reports in `atomic_verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, TypeVar

import msgspec

from statebook.at_once import at_once
from statebook.atomic import AtomicJournalStorage
from statebook.atomic_cursors import CursorRecords
from statebook.atomic_head import StoredHead, decode_head, extended
from statebook.atomic_moves import Decision, JournalHeads, Write
from statebook.atomic_reader import JournalReader, thread_scope, window_mark
from statebook.atomic_trim import Trimmer
from statebook.atomic_verify import Verifier
from statebook.capabilities import Capabilities, Feature, Sharing
from statebook.collector import Collector
from statebook.contention import PATIENCE_S, Contention, jittered_pause
from statebook.errors import (
    DataError,
    InvalidKey,
    JournalCorrupt,
    OutcomeUnknown,
    StatebookError,
    StoreClosed,
)
from statebook.ids import new_local_nonce, new_nonce as fresh_nonce
from statebook.index_tree import SHAPE, Shape
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope, check_id, decode_name, is_digest_name
from statebook.model import (
    ANY,
    PAGE_MAX,
    AppendOutcome,
    AppendRequest,
    Batch,
    ClaimInfo,
    CollectReport,
    EventPage,
    Expect,
    ExportCursor,
    JournalHead,
    Receipt,
    ThreadPage,
    VerifyReport,
    WriterClaim,
    check_page,
    check_seq,
)
from statebook.plan import (
    Commit,
    Done,
    Refuse,
    check_read,
    plan_append,
    plan_claim,
    plan_delete,
    plan_heartbeat,
    plan_release,
    plan_settle,
    receipt_of,
)
from statebook.records import FrozenBatch, HeadState, JournalState, freeze
from statebook.window import Window

T = TypeVar("T")

_CLAIM_RESENDS: Final = 2
_LIST_PAGE: Final = 1_000


class AtomicThreadJournalStore(ThreadJournalStore):
    """Journals over an atomic storage. The store owns the storage: closing the one closes the other."""

    def __init__(
        self,
        storage: AtomicJournalStorage,
        *,
        new_nonce: Callable[[], str] | None = None,
        new_journal_id: Callable[[], str] = fresh_nonce,
        pause: Callable[[int], None] = jittered_pause,
        patience_s: float = PATIENCE_S,
        shape: Shape = SHAPE,
    ) -> None:
        """Keep journals in a storage.

        Args:
            storage: The storage; closed with this store.
            new_nonce: Fresh randomness, at least 16 characters of `[0-9a-f]`; None: the system's, and for appends to
                what only this machine shares, out of a buffer.
            new_journal_id: The identity of a new incarnation.
            pause: Waits between lost attempts; takes how many have been lost.
            patience_s: How long a call tries again, in seconds, before it gives up as `BackendUnavailable`.
            shape: The bounds of a head. Journals of other bounds are read all the same.
        """
        self._storage = storage
        is_local = storage.capabilities.sharing < Sharing.NETWORK
        self._new_nonce = new_nonce or fresh_nonce
        self._new_append_nonce = new_nonce or (new_local_nonce if is_local else fresh_nonce)
        new_nonce = self._new_nonce
        self._new_journal_id = new_journal_id
        self._shape = shape
        self._closed = False
        self._capabilities = _capabilities(storage.capabilities)
        contention = Contention(patience_s=patience_s, pause=pause)
        self._heads = JournalHeads(storage, contention)
        self._cursors = CursorRecords(storage, self._heads, new_nonce, contention)
        self._collector = Collector(storage, self._heads, self._cursors, new_nonce)
        self._trimmer = Trimmer(self._heads, self._cursors, new_nonce, contention)
        self._verifier = Verifier(storage, self._heads, self._cursors)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    # ------------------------------------------------------------------------------------------------------ writers

    def head(self, key: ThreadKey) -> JournalHead | None:
        self._check_open()
        head, _ = self._heads.read(key)
        if head is None:
            self._refuse_orphans(key)
            return None
        return head.state.public()

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        check_id(writer_id, "writer_id")
        self._check_open()
        claim_nonce = self._new_nonce()
        journal_id = self._new_journal_id()

        def judge(head: StoredHead | None, _: OutcomeUnknown | None) -> Decision[WriterClaim]:
            if head is None:
                self._refuse_orphans(key)
            elif head.state.claim_nonce == claim_nonce:
                return Done(head.state.granted())
            decision = plan_claim(
                _state(head),
                key,
                writer_id,
                replacing,
                nonce=self._new_nonce(),
                claim_nonce=claim_nonce,
                journal_id=journal_id,
            )
            if isinstance(decision, Refuse):
                return decision
            state = decision.state
            kept = head is not None and head.state.journal_id == state.journal_id
            return Write(head.moved(state) if head is not None and kept else StoredHead(state), state.granted())

        with self._heads.memory.hold(key.name) as slot:
            return self._heads.move(slot, key, judge, resends=_CLAIM_RESENDS)

    def heartbeat(self, claim: WriterClaim) -> None:
        self._check_open()

        def judge(head: StoredHead | None, _: OutcomeUnknown | None) -> Decision[None]:
            return _moved(head, plan_heartbeat(_state(head), claim, nonce=self._new_nonce()), None)

        rests = self._heads.memory.rests
        begun = rests.wait(claim.key.name)
        with self._heads.memory.hold(claim.key.name) as slot:
            self._heads.move(slot, claim.key, judge, remembered=True)
        rests.wrote(claim.key.name, begun)

    def release(self, claim: WriterClaim) -> None:
        self._check_open()

        def judge(head: StoredHead | None, _: OutcomeUnknown | None) -> Decision[None]:
            decision = plan_release(_state(head), claim, nonce=self._new_nonce())
            return decision if isinstance(decision, Done) else _moved(head, decision, None)

        with self._heads.memory.hold(claim.key.name) as slot:
            self._heads.move(slot, claim.key, judge, remembered=True)

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        check_seq(base_seq, "base_seq")
        frozen = freeze(batch, self._capabilities.limits, claim.key)
        self._check_open()

        used: Window | None = None

        def judge(head: StoredHead | None, doubt: OutcomeUnknown | None) -> Decision[Receipt]:
            nonlocal used
            used = None if head is None or not _is_same(head, claim) else self._window(head)
            decision = self._judge_append(head, used, claim, frozen, base_seq, doubt=doubt)
            if not isinstance(decision, Write):
                used = None
            return decision

        with self._heads.memory.hold(claim.key.name) as slot:
            try:
                receipt = self._heads.move(slot, claim.key, judge, remembered=True, eager=True)
            except OutcomeUnknown as error:
                raise OutcomeUnknown(
                    f"batch {batch.batch_id!r} is perhaps in the journal, or will be; send it again or settle it",
                    batch_id=batch.batch_id,
                    base_seq=base_seq,
                    key=claim.key.name,
                    backend=error.backend,
                ) from (error.__cause__ or error)
            if used is not None and slot.head is not None:
                used.push(receipt, frozen.event_ids, window_mark(slot.head))
            return receipt

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        for request in requests:
            check_seq(request.base_seq, "base_seq")
        self._check_open()
        width = self._storage.commits_at_once
        if width <= 1:
            return super().append_many(requests)
        self._capabilities.limits.check("group_batches_max", len(requests))
        places: dict[ThreadKey, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(request.claim.key, []).append(place)
        outcomes: dict[int, AppendOutcome] = {}

        def append_in_turn(of_thread: list[int]) -> None:
            for place in of_thread:
                request = requests[place]
                try:
                    outcomes[place] = self.append(request.claim, request.batch, request.base_seq)
                except StatebookError as error:
                    outcomes[place] = error

        at_once(width, append_in_turn, tuple(places.values()))
        return tuple([outcomes[place] for place in range(len(requests))])

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        check_id(batch_id, "batch_id")
        check_seq(base_seq, "base_seq")
        self._check_open()

        def judge(head: StoredHead | None, _: OutcomeUnknown | None) -> Decision[Receipt | None]:
            placed = None
            if head is not None and _is_same(head, claim):
                placed = JournalReader(self._storage, claim.key).placed(head, batch_id, base_seq)
            decision = plan_settle(_state(head), claim, base_seq, placed=placed, nonce=self._new_nonce())
            return Done(decision.answer) if isinstance(decision, Done) else _moved(head, decision, None)

        rests = self._heads.memory.rests
        begun = rests.wait(claim.key.name)
        with self._heads.memory.hold(claim.key.name) as slot:
            try:
                answer = self._heads.move(slot, claim.key, judge)
            except OutcomeUnknown as error:
                raise OutcomeUnknown(
                    "the barrier that would settle the batch is itself of unknown outcome; settle again",
                    batch_id=batch_id,
                    base_seq=base_seq,
                    key=claim.key.name,
                    backend=error.backend,
                ) from (error.__cause__ or error)
        if answer is None:
            rests.wrote(claim.key.name, begun)
        return answer

    # ------------------------------------------------------------------------------------------------------ readers

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        check_seq(seq)
        check_page(limit)
        self._check_open()

        def read(head: StoredHead | None, _: str | None) -> EventPage:
            error = check_read(_state(head), key, seq)
            if error is not None:
                raise error
            if head is None:
                self._refuse_orphans(key)
            if head is None or head.state.state is JournalState.DELETED:
                return EventPage((), False, 0)
            return JournalReader(self._storage, key).page(head, seq, limit)

        return self._heads.consistently(key, read)

    # ------------------------------------------------------------------------------------------------------ cursors

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        check_id(exporter, "exporter")
        self._check_open()
        return self._cursors.open(key, exporter)

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        check_seq(to_seq, "to_seq")
        self._check_open()
        return self._cursors.advance(cursor, to_seq)

    def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        check_id(exporter, "exporter")
        check_seq(to_seq, "to_seq")
        check_seq(expected_version, "expected_version")
        self._check_open()
        return self._cursors.reset(key, exporter, to_seq, expected_version)

    # -------------------------------------------------------------------------------------------------- maintenance

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        check_page(limit)
        if after is not None and not scope.covers(after):
            raise ValueError("after is outside the scope")
        self._check_open()
        found: list[ThreadKey] = []
        for key in self._live_threads(scope, after, limit + 1):
            found.append(key)
            if len(found) > limit:
                break
        return ThreadPage(tuple(found[:limit]), len(found) > limit)

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        check_seq(before_seq, "before_seq")
        self._check_open()
        return self._trimmer.trim(key, before_seq)

    def delete(self, key: ThreadKey) -> bool:
        self._check_open()
        judged: set[str] = set()

        def judge(head: StoredHead | None, doubt: OutcomeUnknown | None) -> Decision[bool]:
            decision = plan_delete(_state(head), nonce=self._new_nonce())
            if isinstance(decision, Done):
                if doubt:
                    raise doubt
                return decision
            if doubt and decision.state.journal_id not in judged:
                # Perhaps this call has deleted the journal already: another incarnation is not to follow it.
                raise doubt
            judged.add(decision.state.journal_id)
            return Write(StoredHead(decision.state), True)

        with self._heads.memory.hold(key.name) as slot:
            deleted = self._heads.move(slot, key, judge)
            tombstone = slot.head
        if deleted and tombstone is not None:
            self._collector.sweep(key, tombstone)
        return deleted

    def purge(self, key: ThreadKey) -> bool:
        self._check_open()
        if Feature.PURGE not in self._capabilities.features:
            return super().purge(key)
        return self._collector.purge(key)

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        self._check_open()
        return self._verifier.verify(key, deep=deep)

    def collect(self, key: ThreadKey) -> CollectReport:
        self._check_open()
        return self._collector.collect(key)

    def close(self) -> None:
        self._closed = True
        self._storage.close()

    # ------------------------------------------------------------------------------------------------------- inside

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", backend=self._capabilities.backend)

    def _window(self, head: StoredHead) -> Window:
        windows = self._heads.memory.windows
        window = windows.get(head.state.journal_id, window_mark(head))
        if window is None:
            window = JournalReader(self._storage, head.state.key).window(head)
            windows.put(head.state.journal_id, window)
        return window

    def _judge_append(
        self,
        head: StoredHead | None,
        window: Window | None,
        claim: WriterClaim,
        batch: FrozenBatch,
        base_seq: int,
        *,
        doubt: OutcomeUnknown | None,
    ) -> Decision[Receipt]:
        placed = overlap = None
        if head is not None and window is not None:
            placed, overlap = window.find(batch.batch_id), window.overlap(batch.event_ids)
            if placed is None and base_seq < head.state.last_seq:
                placed, overlap = JournalReader(self._storage, claim.key).at_base(head, batch, base_seq, overlap)
        decision = plan_append(
            _state(head), claim, batch, base_seq, placed=placed, overlap=overlap, nonce=self._new_append_nonce()
        )
        if isinstance(decision, Commit):
            assert head is not None
            grown, blobs = extended(head, decision.state, batch, self._new_append_nonce, self._shape)
            return Write(grown, receipt_of(decision.state, batch), blobs)
        if doubt and isinstance(decision, Done):
            return Done(msgspec.structs.replace(decision.answer, replayed=False))
        if doubt and placed is None and (window is None or head is None or head.state.first_seq > base_seq + 1):
            raise doubt
        return decision

    def _refuse_orphans(self, key: ThreadKey) -> None:
        """Blobs without a head are damage: no empty journal, and none that a new one may hide (FORMAT-1)."""
        page = self._storage.list_blobs(thread_scope(key), None, 1)
        if page.names and self._heads.read(key)[0] is None:
            raise JournalCorrupt(
                "there are blobs of a journal but no head; restore the head, or purge what is left on purpose",
                what="head",
                expected="a head",
                found=page.names[0],
                key=key.name,
            )

    def _live_threads(self, scope: ThreadScope, after: ThreadKey | None, wanted: int) -> Iterator[ThreadKey]:
        last = None if after is None else thread_scope(after)
        more = True
        while more:
            page = self._storage.list_scopes(f"t/{scope.prefix}", last, min(max(wanted, _LIST_PAGE), PAGE_MAX))
            for name in page.names:
                key = self._live_key(name)
                if key is not None:
                    yield key
            more = page.has_more and bool(page.names)
            last = page.names[-1] if page.names else None

    def _live_key(self, scope: str) -> ThreadKey | None:
        """The key of a listed journal, None for a tombstone. A damaged journal is listed where its name can tell."""
        record = self._storage.read_head(scope)
        if record is None:
            return None
        try:
            state = decode_head(record.data, None, scope.removeprefix("t/")).state
        except DataError:
            parts = scope.removeprefix("t/").split("/")
            if any(map(is_digest_name, parts)):
                raise
            return _named_key(parts)
        return None if state.state is JournalState.DELETED else state.key


def _capabilities(storage: Capabilities) -> Capabilities:
    features = frozenset({Feature.COLLECT}) | (storage.features & {Feature.PURGE})
    return msgspec.structs.replace(storage, features=features)


def _named_key(parts: list[str]) -> ThreadKey:
    user_id, agent_id, session_id, thread_id = map(decode_name, parts)
    if agent_id is None or session_id is None or thread_id is None:
        raise InvalidKey("only a user can be absent")
    return ThreadKey(user_id, agent_id, session_id, thread_id)


def _state(head: StoredHead | None) -> HeadState | None:
    return None if head is None else head.state


def _is_same(head: StoredHead, claim: WriterClaim) -> bool:
    """Tell whether a head is of the incarnation that a claim was made on."""
    return head.state.state is JournalState.OPEN and head.state.journal_id == claim.journal_id


def _moved(head: StoredHead | None, decision: Commit[HeadState] | Refuse, answer: T) -> Decision[T]:
    """Write the same batches under a new state."""
    if isinstance(decision, Refuse):
        return decision
    assert head is not None
    return Write(head.moved(decision.state), answer)
