"""Mutants of group commits, as commit lanes meet them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from statebook.codec import digest, encode_batch
from statebook.errors import BatchConflict, WriterFenced
from statebook.model import AppendOutcome, AppendRequest, Receipt, WriterClaim
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, wrapping

_STORED_MAX: Final = 16


class _Cut(BadJournal):
    """Stores the beginning of a large group, as a pipeline does whose buffer is full, and answers for all of it."""

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        outcomes = list(self.inner.append_many(requests[:_STORED_MAX]))
        for request in requests[_STORED_MAX:]:
            batch, claim = request.batch, request.claim
            last = request.base_seq + len(batch.events)
            body = digest(encode_batch(batch))
            outcomes.append(
                Receipt(batch.batch_id, claim.journal_id, request.base_seq + 1, last, claim.epoch, body, False)
            )
        return tuple(outcomes)


class _ReplayRefused(BadJournal):
    """Takes a batch that comes again in a group for another writer's, as inserts do that meet their own key."""

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        return tuple(
            BatchConflict("duplicate key", batch_id=outcome.batch_id)
            if isinstance(outcome, Receipt) and outcome.replayed
            else outcome
            for outcome in self.inner.append_many(requests)
        )


class _FencedLand(BadJournal):
    """Checks the fence of a group when the claim is made, and never again: what is refused is written nevertheless."""

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        outcomes: list[AppendOutcome] = []
        for request, outcome in zip(requests, self.inner.append_many(requests), strict=True):
            head = self.inner.head(request.claim.key)
            if isinstance(outcome, WriterFenced) and outcome.committed is None and head and head.claim:
                now = head.claim
                claim = WriterClaim(
                    request.claim.key, now.journal_id, now.writer_id, now.epoch, now.nonce, head.last_seq
                )
                outcomes.append(self.inner.append(claim, request.batch, head.last_seq))
            else:
                outcomes.append(outcome)
        return tuple(outcomes)


class _FencedForget(BadJournal):
    """Refuses a fenced writer's group without a look at what had landed."""

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        return tuple(
            WriterFenced("the claim is over", current_epoch=outcome.current_epoch, key=request.claim.key.name)
            if isinstance(outcome, WriterFenced)
            else outcome
            for request, outcome in zip(requests, self.inner.append_many(requests), strict=True)
        )


FENCED_LAND: Final = Mutant(
    "fenced-groups-land", "a group is written although its writer is fenced", wrapping(journal=_FencedLand)
)
FENCED_FORGET: Final = Mutant(
    "fenced-groups-forget", "the refusal of a group does not say what had landed", wrapping(journal=_FencedForget)
)
LARGE_GROUPS_CUT: Final = Mutant(
    "large-groups-cut",
    "only the beginning of a large group is stored, all of it is acknowledged",
    wrapping(journal=_Cut),
)
REPLAY_REFUSED: Final = Mutant(
    "replay-in-a-group-refused", "a batch that is sent again in a group is a conflict", wrapping(journal=_ReplayRefused)
)
