"""Trims journals, and passes no cursor on the way (LIFE-2).

Cursors are records of their own, so no single commit sees them all. A trim therefore announces itself in the head,
reads the cursors after that, and then commits the new `first_seq`. Whoever has just put a cursor to an earlier place
reads the head after that: it finds the announcement and takes it back, which ends the trim's commit; or the trim has
seen the cursor; or the trim is over, and the cursor's owner is told.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from statebook.atomic_cursors import CursorRecords
from statebook.atomic_head import StoredHead, shortened
from statebook.atomic_moves import Decision, JournalHeads, Write
from statebook.contention import Contention
from statebook.errors import BackendUnavailable, OutcomeUnknown
from statebook.keys import ThreadKey
from statebook.model import JournalHead
from statebook.plan import Commit, Done, Refuse, touched
from statebook.plan_cursors import plan_trim
from statebook.records import HeadState


class Trimmer:
    """Trims journals over a storage."""

    def __init__(
        self,
        heads: JournalHeads,
        cursors: CursorRecords,
        new_nonce: Callable[[], str],
        contention: Contention,
    ) -> None:
        """Trim journals.

        Args:
            heads: Moves heads.
            cursors: Reads cursor records.
            new_nonce: Fresh randomness.
            contention: Bounds lost attempts.
        """
        self._heads = heads
        self._cursors = cursors
        self._new_nonce = new_nonce
        self._contention = contention

    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        """Raise `first_seq` as far as checkpoint and cursors allow (LIFE-2).

        Args:
            key: The thread.
            before_seq: The first seq to keep.

        Returns:
            The head after it.

        Raises:
            JournalNotFound: There is no journal.
            BackendUnavailable: Cursors were put to earlier places all the time.
        """

        def announce(head: StoredHead | None, _: OutcomeUnknown | None) -> Decision[JournalHead | None]:
            decision = self._plan(head, key, before_seq)
            if not isinstance(decision, Commit):
                return decision if isinstance(decision, Refuse) else Done(decision.answer)
            assert head is not None
            first_seq = decision.state.first_seq
            if head.trimming is not None and head.trimming >= first_seq:
                return Done(None)
            state = touched(head.state, self._new_nonce())
            return Write(msgspec.structs.replace(head, state=state, trimming=first_seq), None)

        def finish(head: StoredHead | None, _: OutcomeUnknown | None) -> Decision[JournalHead | None]:
            decision = self._plan(head, key, before_seq)
            if not isinstance(decision, Commit):
                return decision if isinstance(decision, Refuse) else Done(decision.answer)
            assert head is not None
            if head.trimming is None or head.trimming < decision.state.first_seq:
                return Done(None)
            return Write(shortened(head, decision.state), decision.state.public())

        rests = self._heads.memory.rests
        for _ in self._contention.attempts():
            begun = rests.wait(key.name)
            with self._heads.memory.hold(key.name) as slot:
                for judge in (announce, finish):
                    trimmed = self._heads.move(slot, key, judge)
                    if trimmed is not None:
                        rests.wrote(key.name, begun)
                        return trimmed
        raise BackendUnavailable("cursors go back faster than the journal can be trimmed", key=key.name)

    def _plan(
        self, head: StoredHead | None, key: ThreadKey, before_seq: int
    ) -> Commit[HeadState] | Done[JournalHead] | Refuse:
        state = None if head is None else head.state
        cursors = () if state is None else (cursor.state for cursor in self._cursors.all(key))
        return plan_trim(state, key, before_seq, cursors, nonce=self._new_nonce())
