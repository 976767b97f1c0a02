"""ThreadJournalStore on Redis: native keys, one script a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from statebook.capabilities import Capabilities
from statebook.contention import FREE_TRIES
from statebook.errors import BackendUnavailable, JournalCorrupt, OutcomeUnknown, StatebookError, StoreClosed
from statebook.ids import new_nonce
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope, check_id
from statebook.model import (
    ANY,
    AppendOutcome,
    AppendRequest,
    Batch,
    ClaimInfo,
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
    plan_claim,
    plan_delete,
    plan_heartbeat,
    plan_purge,
    plan_release,
    plan_settle,
)
from statebook.plan_cursors import plan_advance_cursor, plan_open_cursor, plan_reset_cursor
from statebook.records import CursorState, HeadState, JournalState, freeze
from statebook.window import Window
from statebook_backends.redis.append import Appender, Request, barrier
from statebook_backends.redis.client import Client
from statebook_backends.redis.cursors import cursor_from, field_of, pack_cursor
from statebook_backends.redis.heads import head_from, known_of, lost_head, words_of
from statebook_backends.redis.known import KnownHead
from statebook_backends.redis.layout import ThreadKeys, member_of
from statebook_backends.redis.options import RedisOptions
from statebook_backends.redis.reading import changing, read_anchor, read_known, read_page, read_thread
from statebook_backends.redis.resp import bulks, fields_of
from statebook_backends.redis.scripts import Call, script
from statebook_backends.redis.threads import list_threads
from statebook_backends.redis.trim import trim_journal
from statebook_backends.redis.verify import verify_journal

if TYPE_CHECKING:
    from statebook_backends.redis.errors import Reply

T = TypeVar("T")

_EMPTY_PAGE: Final = EventPage((), has_more=False, last_seq=0)


class RedisThreadJournalStore(ThreadJournalStore):
    """Journals in hashes and streams; head and batch move in one script (CLAIM-2, APPEND-2).

    Decisions are core's, made on a head that was read or is remembered; the script writes only where that head, by seal
    and nonce, is still the one that is stored.
    """

    def __init__(self, options: RedisOptions, *, new_nonce: Callable[[], str] = new_nonce) -> None:
        """Open the store.

        Args:
            options: What to open.
            new_nonce: Where nonces and journal ids come from.

        Raises:
            InvalidConfiguration: The servers are not what the options say, or unfit for a journal (ERR-6, ATOM-7).
            BackendUnavailable: A server does not answer.
        """
        self._client = Client(options)
        self._new_nonce = new_nonce
        self._limits = self._client.capabilities.limits
        self._appender = Appender(self._client, new_nonce)

    @property
    def capabilities(self) -> Capabilities:
        return self._client.capabilities

    # ------------------------------------------------------------------------------------------------------ writers

    def head(self, key: ThreadKey) -> JournalHead | None:
        head = read_thread(self._client, self._client.layout.thread(key), key).head
        return None if head is None else head.public()

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        check_id(writer_id, "writer_id")
        claim_nonce = self._new_nonce()
        journal_id = self._new_nonce()

        def decide(head: HeadState | None) -> Commit[HeadState] | Refuse:
            return plan_claim(
                head,
                key,
                writer_id,
                replacing,
                nonce=self._new_nonce(),
                claim_nonce=claim_nonce,
                journal_id=journal_id,
            )

        client = self._client
        client.servers()
        keys = client.layout.thread(key)
        try:
            head = self._move(keys, key, None, decide, indexed=True)
        except OutcomeUnknown as unknown:
            head = self._settled_claim(keys, key, claim_nonce)
            if head is None:
                raise unknown
        if head is None:
            raise changing(keys.name, client.backend)
        return head.granted()

    def _settled_claim(self, keys: ThreadKeys, key: ThreadKey, claim_nonce: str) -> HeadState | None:
        """The head that a claim of unknown outcome has written; None where it may yet come, or is not confirmed."""
        try:
            head = read_thread(self._client, keys, key).head
        except StatebookError:
            return None
        landed = head is not None and head.claim_nonce == claim_nonce and not self._client.waits
        return head if landed else None

    def heartbeat(self, claim: WriterClaim) -> None:
        rests, name = self._client.heads.rests, claim.key.name
        begun = rests.wait(name)
        self._move_claimed(claim, lambda head: plan_heartbeat(head, claim, nonce=self._new_nonce()))
        rests.wrote(name, begun)

    def release(self, claim: WriterClaim) -> None:
        self._move_claimed(claim, lambda head: plan_release(head, claim, nonce=self._new_nonce()))

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        check_seq(base_seq, "base_seq")
        return self._appender.append(claim, freeze(batch, self._limits, claim.key), base_seq)

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        given = tuple(requests)
        self._limits.check("group_batches_max", len(given))
        for request in given:
            check_seq(request.base_seq, "base_seq")
        self._client.servers()
        return self._appender.append_many([self._frozen(request) for request in given])

    def _frozen(self, request: AppendRequest) -> Request | StatebookError:
        try:
            frozen = freeze(request.batch, self._limits, request.claim.key)
        except StatebookError as error:
            return error
        return Request(request.claim, frozen, request.base_seq)

    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        check_id(batch_id, "batch_id")
        check_seq(base_seq, "base_seq")
        client = self._client
        client.servers()
        keys, rests = client.layout.thread(claim.key), client.heads.rests
        for _ in client.contention.attempts():
            begun = rests.wait(keys.name)
            known = read_known(client, keys, claim.key, claim.journal_id)
            head = None if known is None else known.head
            placed = None
            if known is not None and known.window is not None and known.head.journal_id == claim.journal_id:
                placed = known.window.find(batch_id)
                if placed is None and base_seq < known.head.last_seq:
                    anchor = read_anchor(client, keys, known.head, base_seq)
                    if anchor is not None and anchor.receipt.batch_id == batch_id:
                        placed = anchor.receipt
            decision = plan_settle(head, claim, base_seq, placed=placed, nonce=self._new_nonce())
            if isinstance(decision, Refuse) or known is None:
                raise decision.error if isinstance(decision, Refuse) else changing(keys.name, client.backend)
            if isinstance(decision, Done) and not client.waits:
                return decision.answer
            nonce = None if isinstance(decision, Done) else self._new_nonce()
            if barrier(client, known, nonce, batch_id, base_seq):
                if isinstance(decision, Done):
                    return decision.answer
                rests.wrote(keys.name, begun)
                return None
        raise changing(keys.name, client.backend)

    # ------------------------------------------------------------------------------------------------------ readers

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        check_seq(seq)
        check_page(limit)
        head, events = read_page(self._client, self._client.layout.thread(key), key, seq, limit)
        if head is None or head.state is JournalState.DELETED:
            return _EMPTY_PAGE
        return EventPage(tuple(events), has_more=seq + len(events) < head.last_seq, last_seq=head.last_seq)

    # ------------------------------------------------------------------------------------------------------ cursors

    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        check_id(exporter, "exporter")
        return self._move_cursor(
            key, exporter, lambda head, record: plan_open_cursor(head, record, key, exporter, nonce=self._new_nonce())
        )

    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        check_seq(to_seq, "to_seq")
        return self._move_cursor(
            cursor.key, cursor.exporter, lambda head, record: plan_advance_cursor(head, record, cursor, to_seq)
        )

    def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        check_id(exporter, "exporter")
        check_seq(to_seq, "to_seq")
        check_seq(expected_version, "expected_version")
        return self._move_cursor(
            key,
            exporter,
            lambda head, record: plan_reset_cursor(
                head, record, key, exporter, to_seq, expected_version, nonce=self._new_nonce()
            ),
        )

    def _move_cursor(
        self,
        key: ThreadKey,
        exporter: str,
        plan: Callable[[HeadState | None, CursorState | None], Commit[CursorState] | Done[ExportCursor] | Refuse],
    ) -> ExportCursor:
        client = self._client
        client.servers()
        keys, field = client.layout.thread(key), field_of(exporter)
        for _ in client.contention.attempts():
            thread = read_thread(client, keys, key)
            head, stored = thread.head, thread.cursors.get(field)
            decision = plan(head, None if stored is None else cursor_from(keys, key, field, stored))
            if isinstance(decision, Refuse):
                raise decision.error
            if isinstance(decision, Done) and not client.waits:
                return decision.answer
            if isinstance(decision, Done) or head is None:
                # what is answered again is written again, to be waited for
                if stored is None or head is None:
                    raise changing(keys.name, client.backend)
                record, acked, answer = stored, 0, decision.answer if isinstance(decision, Done) else None
            else:
                record, acked = pack_cursor(keys, decision.state), decision.state.acked_seq
                answer = decision.state.opened()
            call = script("cursor", 2).call(
                2,
                bulks(keys.head, keys.cursors),
                head.journal_id.encode(),
                head.state.value.encode("ascii"),
                b"%d" % head.first_seq,
                b"%d" % acked,
                field,
                stored or b"",
                record,
            )
            if client.write(keys.slot, call, JournalCorrupt, keys.name) == 1 and answer is not None:
                return answer
        raise changing(keys.name, client.backend)

    # -------------------------------------------------------------------------------------------------- maintenance

    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        check_page(limit)
        if after is not None and not scope.covers(after):
            raise ValueError("after must be a thread inside the scope that is listed")
        return list_threads(self._client, scope, after, limit)

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        check_seq(before_seq, "before_seq")
        self._client.servers()
        return trim_journal(self._client, key, before_seq, self._new_nonce)

    def delete(self, key: ThreadKey) -> bool:
        client = self._client
        client.servers()
        keys = client.layout.thread(key)
        moved = self._move(keys, key, None, lambda head: plan_delete(head, nonce=self._new_nonce()), mode=b"empty")
        return moved is not None

    def purge(self, key: ThreadKey) -> bool:
        client = self._client
        client.servers()
        keys = client.layout.thread(key)
        for _ in client.contention.attempts():
            known = read_thread(client, keys, key).known
            decision = plan_purge(None if known is None else known.head, key)
            if isinstance(decision, Refuse):
                raise decision.error
            if isinstance(decision, Done) or known is None:
                return False
            call = script("head", 4).call(
                4,
                keys.packed + bulks(keys.stubs, keys.cursors),
                known.seal,
                known.head.nonce.encode(),
                b"purge",
            )
            if client.write(keys.slot, call, JournalCorrupt, keys.name) == 1:
                self._unlist(keys, key)
                return True
        raise changing(keys.name, client.backend)

    def _unlist(self, keys: ThreadKeys, key: ThreadKey) -> None:
        """Take a purged thread out of its index, and put it back where it was claimed anew meanwhile (LIFE-1)."""
        client = self._client
        index, member = client.layout.threads(key.user_id), member_of(keys.name.partition("/")[2])
        try:
            client.index(index, b"remove", member, JournalCorrupt, keys.name)
            if read_thread(client, keys, key).known is not None:
                client.index(index, b"add", member, JournalCorrupt, keys.name)
        except (BackendUnavailable, StoreClosed) as error:
            raise OutcomeUnknown(
                "the journal was purged, but its entry in the listing was not removed; listings skip it",
                key=keys.name,
                backend=client.backend,
            ) from error

    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        return verify_journal(self._client, key, deep=deep)

    def close(self) -> None:
        self._client.close()

    # ----------------------------------------------------------------------------------------------------- deciding

    def _move_claimed(
        self, claim: WriterClaim, decide: Callable[[HeadState | None], Commit[HeadState] | Done[None] | Refuse]
    ) -> None:
        client = self._client
        known = client.heads.get(claim.journal_id)
        if known is not None and known.head.key != claim.key:
            known = None
        keys = client.layout.thread(claim.key) if known is None else known.keys
        self._move(keys, claim.key, known, decide)

    def _move(
        self,
        keys: ThreadKeys,
        key: ThreadKey,
        known: KnownHead | None,
        decide: Callable[[HeadState | None], Commit[HeadState] | Done[T] | Refuse],
        *,
        mode: bytes = b"keep",
        indexed: bool = False,
    ) -> HeadState | None:
        """Decide on a head, and write it where the head is still that one; a mismatch brings the head to decide on.

        Args:
            keys: The keys of the thread.
            key: The thread.
            known: What is remembered, to begin with; only a commit is decided by it.
            decide: The decision.
            mode: What happens to the batches.
            indexed: Whether the thread must be in its user's index first.

        Returns:
            The head that was written, or None where there was nothing to do.

        Raises:
            StatebookError: The refusal.
        """
        client = self._client
        fresh = known is None
        if known is None:
            known = read_thread(client, keys, key).known
        for lost in client.contention.attempts():
            if lost > FREE_TRIES:  # there was a pause, so that what was met is old
                known = read_thread(client, keys, key).known
            decision = decide(None if known is None else known.head)
            if not isinstance(decision, Commit):
                if not fresh:
                    known, fresh = read_thread(client, keys, key).known, True
                    continue
                if isinstance(decision, Refuse):
                    raise decision.error
                return None
            if indexed:
                member = member_of(keys.name.partition("/")[2])
                verb = b"add" if known is None else b"keep"
                client.index(client.layout.threads(key.user_id), verb, member, JournalCorrupt, keys.name)
            new = known_of(keys, decision.state)
            reply = client.write(keys.slot, _head_call(keys, known, new, mode), JournalCorrupt, keys.name)
            if reply == 1:
                self._remember(known, new)
                return decision.state
            known, fresh = self._found(keys, key, reply), True  # the client has seen to it that a master said so
        raise changing(keys.name, client.backend)

    def _found(self, keys: ThreadKeys, key: ThreadKey, reply: Reply) -> KnownHead | None:
        if reply == [b"orphans"]:
            raise lost_head(keys.name, self._client.backend)
        return head_from(keys, key, fields_of(reply), self._client.backend)

    def _remember(self, known: KnownHead | None, new: KnownHead) -> None:
        heads = self._client.heads
        if known is not None:
            before = heads.get(known.head.journal_id)
            if known.head.journal_id != new.head.journal_id or new.head.state is JournalState.DELETED:
                heads.drop(known.head.journal_id)
            elif before is not None and before.window is not None and before.window.chain == new.head.chain:
                new.window = before.window
        if new.head.state is JournalState.OPEN and (new.window is not None or new.head.last_seq == 0):
            if new.window is None:
                new.window = Window(new.head.chain)
            heads.put(new)


def _head_call(keys: ThreadKeys, known: KnownHead | None, new: KnownHead, mode: bytes) -> Call:
    seal, nonce = (b"", b"") if known is None else (known.seal, known.head.nonce.encode())
    packed = keys.packed + bulks(keys.stubs, keys.cursors)
    return script("head", 4).call(4, packed, seal, nonce, mode, *words_of(new))
