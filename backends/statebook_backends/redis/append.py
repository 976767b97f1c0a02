"""Appending: one script in one round trip where the head is remembered, else judged against what is read (APPEND)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from statebook.errors import JournalCorrupt, OutcomeUnknown, StatebookError
from statebook.model import AppendOutcome, Receipt, WriterClaim
from statebook.plan import Commit, Done, admits, extended, fenced, plan_append, receipt_of, touched
from statebook.records import FrozenBatch, HeadState, JournalState
from statebook_backends.redis.batches import pack_meta
from statebook_backends.redis.errors import NotSent, ReplyLost, unavailable, unknown
from statebook_backends.redis.heads import expected_by, head_from, lost_head, pack_moving, seal_of, words_of
from statebook_backends.redis.known import KnownHead
from statebook_backends.redis.reading import changing, read_anchor, read_known
from statebook_backends.redis.resp import bulk, bulks, fields_of
from statebook_backends.redis.scripts import Call, script

if TYPE_CHECKING:
    from statebook_backends.redis.client import Client
    from statebook_backends.redis.errors import Reply

_KEYS: Final = 2
_WORDS: Final = 2 + 13


class Planned(msgspec.Struct, frozen=True):
    """An append that may commit: all that its script and its receipt need.

    Attributes:
        known: What it was judged against.
        before: The head then.
        head: The head that it writes.
        seal: That head's seal.
        call: The script's call.
        batch: The batch.
    """

    known: KnownHead
    before: HeadState
    head: HeadState
    seal: bytes
    call: Call
    batch: FrozenBatch


class Request(msgspec.Struct, frozen=True):
    """One append as it was asked for.

    Attributes:
        claim: The writer's claim.
        batch: The frozen batch.
        base_seq: The base.
    """

    claim: WriterClaim
    batch: FrozenBatch
    base_seq: int


class _Ahead:
    """What the requests of one journal that are already in a group leave behind.

    Attributes:
        known: What is remembered of the journal; None where the rest of its requests must be judged one by one.
        head: The head behind them, or None where there are none.
        seal: That head's seal.
    """

    __slots__ = ("_batch_ids", "_event_ids", "head", "known", "seal")

    def __init__(self, known: KnownHead | None) -> None:
        self.known = known
        self.head: HeadState | None = None
        self.seal = b""
        self._batch_ids: set[str] = set()
        self._event_ids: set[str] = set()

    def is_new(self, batch: FrozenBatch) -> bool:
        """Tell whether neither the batch nor an event of it is in the group already."""
        return batch.batch_id not in self._batch_ids and self._event_ids.isdisjoint(batch.event_ids)

    def move(self, planned: Planned) -> None:
        """Take a request into the group."""
        self.head, self.seal = planned.head, planned.seal
        self._batch_ids.add(planned.batch.batch_id)
        self._event_ids.update(planned.batch.event_ids)


class Appender:
    """Judges appends by `plan_append` and has a script commit them. Safe from many threads."""

    def __init__(self, client: Client, new_nonce: Callable[[], str]) -> None:
        """Make an appender.

        Args:
            client: The client.
            new_nonce: Where nonces come from.
        """
        self._client = client
        self._new_nonce = new_nonce
        self._script = script("append", _KEYS)

    def append(self, claim: WriterClaim, batch: FrozenBatch, base_seq: int) -> Receipt:
        """Append one batch: one round trip where the head is remembered and lets it in (APPEND-1 to APPEND-4).

        Raises:
            StatebookError: As the table of the contract says.
        """
        request = Request(claim, batch, base_seq)
        known = self._remembered(claim)
        planned = None if known is None else self._plan(known, request)
        for _ in self._client.contention.attempts(eager=True):
            if planned is None:
                answer = self._judge(request)
                if isinstance(answer, Receipt):
                    return answer
                if answer is None:
                    continue
                planned = answer
            reply = self._client.write(
                planned.known.keys.slot,
                planned.call,
                JournalCorrupt,
                claim.key.name,
                batch_id=batch.batch_id,
                base_seq=base_seq,
            )
            if reply == 1:
                return self._committed(planned)
            known = self._met(planned.known, claim, reply)
            planned = None if known is None else self._plan(known, request)
        raise changing(claim.key.name, self._client.backend)

    def append_many(self, requests: Sequence[Request | StatebookError]) -> tuple[AppendOutcome, ...]:
        """Append many batches: those whose heads are remembered in one round trip a server, the others one by one.

        Guarantees APPEND-5: each has its own answer. APPEND-4: a batch names the head that the one before it of the
        same thread leaves behind, so that none commits behind one that did not.
        """
        outcomes: list[AppendOutcome | None] = [None] * len(requests)
        places: list[int] = []
        group: list[Planned] = []
        ahead: dict[str, _Ahead] = {}
        for place, request in enumerate(requests):
            if isinstance(request, StatebookError):
                outcomes[place] = request
                continue
            planned = self._plan_ahead(request, ahead)
            if planned is not None:
                places.append(place)
                group.append(planned)
        replies = self._client.write_all([(planned.known.keys.slot, planned.call) for planned in group])
        for place, planned, reply in zip(places, group, replies, strict=True):
            request = requests[place]
            if isinstance(request, Request):
                outcomes[place] = self._answered(planned, request, reply)
        return tuple(
            [
                outcome if outcome is not None else self._one(request)
                for outcome, request in zip(outcomes, requests, strict=True)
            ]
        )

    def _one(self, request: Request | StatebookError) -> AppendOutcome:
        if isinstance(request, StatebookError):
            return request
        try:
            return self.append(request.claim, request.batch, request.base_seq)
        except StatebookError as error:
            return error

    def _answered(self, planned: Planned, request: Request, reply: Reply | NotSent | ReplyLost) -> AppendOutcome | None:
        """What a call in a group came to; None where it was certainly not run and is judged by itself."""
        if reply == 1:
            return self._committed(planned)
        if isinstance(reply, ReplyLost):
            made = self._unknown(request, str(reply))
            made.__cause__ = reply
            return made
        if isinstance(reply, NotSent):
            return unavailable(reply, request.claim.key.name, self._client.backend)
        if isinstance(reply, list):
            self._client.heads.drop(request.claim.journal_id)
        return None

    def _unknown(self, request: Request, reason: str) -> OutcomeUnknown:
        return unknown(
            reason,
            request.claim.key.name,
            self._client.backend,
            batch_id=request.batch.batch_id,
            base_seq=request.base_seq,
        )

    # ------------------------------------------------------------------------------------------------------ planning

    def _remembered(self, claim: WriterClaim) -> KnownHead | None:
        known = self._client.heads.get(claim.journal_id)
        if known is None or known.window is None:
            return None
        return known if known.head.key is claim.key or known.head.key == claim.key else None

    def _plan(self, known: KnownHead, request: Request) -> Planned | None:
        """Plan a commit on what is remembered; None where only a fresh look can tell."""
        return self._plan_on(known, known.head, expected_by(known), request)

    def _plan_ahead(self, request: Request, ahead: dict[str, _Ahead]) -> Planned | None:
        """Plan a commit behind those that go before it in the same group.

        None where only a fresh look can tell; then all later requests of the journal wait for that look too.
        """
        journal_id = request.claim.journal_id
        chain = ahead.get(journal_id)
        if chain is None:
            chain = ahead[journal_id] = _Ahead(self._remembered(request.claim))
        known = chain.known
        if known is None or not chain.is_new(request.batch):
            chain.known = None
            return None
        view = known if chain.head is None else KnownHead(known.keys, known.fixed, chain.head, chain.seal, known.window)
        planned = self._plan_on(view, view.head, expected_by(view), request)
        if planned is None or known.head.key != request.claim.key:
            chain.known = None
            return None
        chain.move(planned)
        return msgspec.structs.replace(planned, known=known)

    def _plan_on(self, known: KnownHead, before: HeadState, expected: bytes, request: Request) -> Planned | None:
        batch, window = request.batch, known.window
        if window is None or not window.is_new(batch.batch_id, batch.event_ids):
            return None
        if not admits(before, request.claim, request.base_seq):
            return None
        return self._planned(known, before, extended(before, batch, self._new_nonce()), batch, expected)

    def _planned(
        self, known: KnownHead, before: HeadState, head: HeadState, batch: FrozenBatch, expected: bytes
    ) -> Planned:
        moving = pack_moving(head)
        seal = seal_of(known.keys, known.fixed, moving)
        rest = b"".join((known.keys.packed, expected, moving, bulk(seal), bulks(pack_meta(head, batch), batch.body)))
        return Planned(known, before, head, seal, self._script.packed_call(_WORDS, rest), batch)

    def _judge(self, request: Request) -> Receipt | Planned | None:
        """Read head and evidence, and decide by the table of the contract.

        Returns:
            The receipt of a batch that was there, what may commit, or None where the head has moved before it could be
            confirmed that the batch is where writes wait for it to be.

        Raises:
            StatebookError: The refusal.
        """
        claim, batch, base_seq = request.claim, request.batch, request.base_seq
        client = self._client
        keys = client.layout.thread(claim.key)
        known = read_known(client, keys, claim.key, claim.journal_id)
        if known is None or known.head.state is JournalState.DELETED or known.head.journal_id != claim.journal_id:
            raise fenced(None if known is None else known.head, claim)
        head, window = known.head, known.window
        if window is None:
            raise changing(keys.name, client.backend)
        placed = window.find(batch.batch_id)
        overlap = window.overlap(batch.event_ids)
        if placed is None and overlap is None and base_seq < head.last_seq:
            anchor = read_anchor(client, keys, head, base_seq)
            if anchor is not None:
                if anchor.receipt.batch_id == batch.batch_id:
                    placed = anchor.receipt
                there = frozenset(anchor.event_ids)
                overlap = next((event_id for event_id in batch.event_ids if event_id in there), None)
        client.heads.put(known)
        decision = plan_append(head, claim, batch, base_seq, placed=placed, overlap=overlap, nonce=self._new_nonce())
        if isinstance(decision, Commit):
            return self._planned(known, head, decision.state, batch, expected_by(known))
        landed = isinstance(decision, Done) or getattr(decision.error, "committed", None) is not None
        if landed and client.waits and not barrier(client, known, None, batch.batch_id, base_seq):
            return None  # `WAIT` looks at what its own connection has written, which is nothing
        if isinstance(decision, Done):
            return decision.answer
        raise decision.error

    # ---------------------------------------------------------------------------------------------------- afterwards

    def _committed(self, planned: Planned) -> Receipt:
        receipt = receipt_of(planned.head, planned.batch)
        taken = (receipt, planned.batch.event_ids)
        self._client.heads.advance(planned.known, planned.before, planned.head, planned.seal, taken)
        return receipt

    def _met(self, known: KnownHead, claim: WriterClaim, reply: Reply) -> KnownHead | None:
        """The head that stands there instead, where its window is known; None where it must be read.

        Raises:
            JournalCorrupt: The place behind the head is taken, or the head is gone.
        """
        client, keys = self._client, known.keys
        client.heads.drop(claim.journal_id)
        if reply == [b"place"]:
            raise JournalCorrupt(
                "the place behind the head is taken: a batch stands where none may be",
                what="batch",
                expected=f"no batch behind seq {known.head.last_seq}",
                found="one",
                key=keys.name,
                backend=client.backend,
            )
        found = head_from(keys, claim.key, fields_of(reply), client.backend)
        if found is None or known.window is None or found.head.chain != known.window.chain:
            return None
        found.window = known.window
        client.heads.put(found)
        return found


def barrier(client: Client, known: KnownHead, nonce: str | None, batch_id: str, base_seq: int) -> bool:
    """Write a head once more, changed by generation and nonce only (CLAIM-8, SETTLE-2).

    Args:
        client: The client.
        known: The head that must be there.
        nonce: Fresh; None to write it as it is, only to have it waited for.
        batch_id: The batch that is asked about, for errors.
        base_seq: Its base.

    Returns:
        Whether it was still there.

    Raises:
        OutcomeUnknown: It was perhaps written.
    """
    keys, head = known.keys, known.head if nonce is None else touched(known.head, nonce)
    new = KnownHead(keys, known.fixed, head, seal_of(keys, known.fixed, pack_moving(head)), known.window)
    call = script("head", 4).call(
        4,
        keys.packed + bulks(keys.stubs, keys.cursors),
        known.seal,
        known.head.nonce.encode(),
        b"keep",
        *words_of(new),
    )
    reply = client.write(keys.slot, call, JournalCorrupt, keys.name, batch_id=batch_id, base_seq=base_seq)
    if reply == 1:
        client.heads.put(new)
        return True
    if reply == [b"orphans"]:
        raise lost_head(keys.name, client.backend)
    return False
