"""ThreadJournalStore: fenced, idempotent, gap-free event journals with export cursors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from statebook.capabilities import Capabilities
from statebook.errors import StatebookError, UnsupportedCapability
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import (
    ANY,
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
)


class ThreadJournalStore(ABC):
    """One journal a thread. Flat: every call takes the key, or the claim or cursor that holds it.

    Every call blocks, is safe from many threads, and is applied, not applied, or `OutcomeUnknown` (ERR-2). Every call
    may raise `BackendUnavailable`, `JournalCorrupt` and `UnsupportedFormat` (FORMAT-1) and, on a closed store,
    `StoreClosed`; every writing call may raise `OutcomeUnknown`.
    """

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this store declares (DUR)."""

    # ------------------------------------------------------------------------------------------------------ writers

    @abstractmethod
    def head(self, key: ThreadKey) -> JournalHead | None:
        """Read the head of a journal.

        Guarantees CLAIM-7: reading changes nothing and nothing blocks it. HEAD-1: the head is the only authority.

        Args:
            key: The thread.

        Returns:
            The head, or None where there is no journal: never written, deleted or purged.
        """

    @abstractmethod
    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        """Become the journal's writer, and fence the one before.

        Guarantees CLAIM-1: raises the epoch and stores a fresh nonce; the first claim creates the journal. CLAIM-3: the
        epoch never decreases. CLAIM-6: a lost reply is settled by the nonce before this returns or raises.

        Args:
            key: The thread.
            writer_id: Who claims.
            replacing: `ANY`: whoever holds it. `NONE`: only where nobody does. A `ClaimInfo`: only where exactly that
                claim holds it, as an observer of heartbeats does (CLAIM-5).

        Returns:
            The claim, with the last seq and checkpoint at that moment.

        Raises:
            InvalidKey: `writer_id` is outside ID-1.
            WriterBusy: The condition does not hold; carries the holder.
        """

    @abstractmethod
    def heartbeat(self, claim: WriterClaim) -> None:
        """Change the head so that observers see this writer alive (CLAIM-5).

        Args:
            claim: The writer's claim.

        Raises:
            WriterFenced: The claim is no longer the current one.
        """

    @abstractmethod
    def release(self, claim: WriterClaim) -> None:
        """Give the claim back. Releasing again is harmless while nobody has claimed since.

        Guarantees CLAIM-3: the epoch stays.

        Args:
            claim: The writer's claim.

        Raises:
            WriterFenced: A newer claim exists, or the journal is gone.
        """

    @abstractmethod
    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        """Append a batch behind `base_seq`.

        Guarantees APPEND-1 to APPEND-4 and APPEND-6, by the table of the contract, judged against one head: committed
        whole and once, or refused and never there. CLAIM-2: fenced in the same atomic step as the write.

        Args:
            claim: The writer's claim.
            batch: The batch.
            base_seq: The journal's last seq as the writer knows it.

        Returns:
            The receipt; `replayed` where the batch was there already.

        Raises:
            ValueError: `base_seq` is no integer of at least 0.
            LimitExceeded: Too many events, or too many bytes.
            BatchConflict: The batch id is there with other content, or an event id is.
            WriterFenced: A newer claim exists; carries the receipt of the batch where it had landed.
            HeadConflict: The journal has moved past `base_seq`.
            JournalRegressed: The journal ends before `base_seq`: acknowledged data is gone.
            OutcomeUnknown: Send the same batch again, or settle it.
        """

    def append_many(self, requests: Sequence[AppendRequest]) -> tuple[AppendOutcome, ...]:
        """Append batches of many threads, in one physical commit where the backend can (`Feature.GROUP_COMMIT`).

        Guarantees APPEND-5: each request has its own answer, the same as one by one. APPEND-4: requests of one thread
        are judged in their order; one that stands behind the seq at which a failed one would have ended is not
        committed either.

        Args:
            requests: At most `group_batches_max`.

        Returns:
            For each request, in order, its receipt or its error.

        Raises:
            LimitExceeded: There are too many requests; nothing was written.
        """
        self.capabilities.limits.check("group_batches_max", len(requests))
        outcomes: list[AppendOutcome] = []
        for request in requests:
            try:
                outcomes.append(self.append(request.claim, request.batch, request.base_seq))
            except StatebookError as error:
                outcomes.append(error)
        return tuple(outcomes)

    @abstractmethod
    def settle(self, claim: WriterClaim, batch_id: str, base_seq: int) -> Receipt | None:
        """Find out whether a batch of unknown outcome is in the journal.

        Guarantees SETTLE-2: None is only returned after a successful commit of the head that was made after the last
        attempt, so the batch never lands later. Works for a fenced claim too: it changes no epoch (CLAIM-8).

        Args:
            claim: The claim through which it was sent.
            batch_id: The batch.
            base_seq: Its base.

        Returns:
            Its receipt, or None: not in the journal, and never will be.

        Raises:
            InvalidKey: `batch_id` is outside ID-1.
            ValueError: `base_seq` is no integer of at least 0.
            WriterFenced: The journal is gone, or another incarnation is in its place.
            Trimmed: The place where it would be has been trimmed away.
        """

    # ------------------------------------------------------------------------------------------------------ readers

    @abstractmethod
    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        """Read the events behind a seq.

        Guarantees READ-1: ascending, contiguous, at most `limit`. READ-2: a prefix of one head, byte for byte as
        appended.
        CLAIM-7: reading changes nothing and nothing blocks it.

        Args:
            key: The thread.
            seq: Events with a greater seq are read; 0 for all.
            limit: 1 to 10,000.

        Returns:
            A page; empty where the journal was never written and `seq` is 0.

        Raises:
            ValueError: `seq` or `limit` is outside its range.
            JournalRegressed: `seq` is behind the end of the journal, or there is no journal and `seq` is not 0
            (READ-3).
            Trimmed: `seq` is below `first_seq - 1` (READ-3).
        """

    # ------------------------------------------------------------------------------------------------------ cursors

    @abstractmethod
    def open_cursor(self, key: ThreadKey, exporter: str) -> ExportCursor:
        """Open an export cursor, and fence its earlier opener.

        A new cursor stands before the first event that is there.

        Guarantees CURSOR-2: raises the cursor's epoch. CURSOR-5: nothing repairs itself, nothing starts again at 0.

        Args:
            key: The thread.
            exporter: The exporter's name.

        Returns:
            The cursor.

        Raises:
            InvalidKey: `exporter` is outside ID-1.
            JournalNotFound: There is no journal.
            CursorInvalid: The stored cursor belongs to another incarnation of the journal; see `reset_cursor`.
            JournalRegressed: The stored cursor is ahead of the journal.
            Trimmed: The stored cursor is before `first_seq - 1`.
        """

    @abstractmethod
    def advance_cursor(self, cursor: ExportCursor, to_seq: int) -> ExportCursor:
        """Acknowledge everything up to a seq.

        Guarantees CURSOR-3: only forward, never past the end. Advancing to where it stands is harmless.

        Args:
            cursor: The cursor as it was opened or last advanced.
            to_seq: The highest contiguous acknowledged seq (CURSOR-4).

        Returns:
            The cursor.

        Raises:
            ValueError: `to_seq` is no integer of at least 0.
            CursorFenced: A newer opener or a reset has this cursor.
            CursorRegression: `to_seq` is before the acknowledged seq.
            JournalRegressed: `to_seq` is behind the end of the journal.
            Trimmed: The acknowledged seq is before `first_seq - 1`.
            CursorInvalid: The cursor belongs to another incarnation of the journal.
            JournalNotFound: There is no journal.
        """

    @abstractmethod
    def reset_cursor(self, key: ThreadKey, exporter: str, to_seq: int, *, expected_version: int) -> ExportCursor:
        """Set a cursor on purpose: back, forward, or over to another incarnation. Opens it as well.

        Guarantees CURSOR-3: conditional on the version of the cursor record. CURSOR-2: fences the earlier opener.

        Args:
            key: The thread.
            exporter: The exporter's name.
            to_seq: Everything up to this seq counts as acknowledged; `first_seq - 1` to `last_seq`.
            expected_version: The version of the record as a cursor or an error carried it; 0 where there is none.

        Returns:
            The opened cursor.

        Raises:
            InvalidKey: `exporter` is outside ID-1.
            ValueError: `to_seq` or `expected_version` is no integer of at least 0.
            CursorConflict: The record has another version; carries it.
            JournalRegressed: `to_seq` is behind the end of the journal.
            Trimmed: `to_seq` is before `first_seq - 1`.
            JournalNotFound: There is no journal.
        """

    # -------------------------------------------------------------------------------------------------- maintenance

    @abstractmethod
    def list_threads(self, scope: ThreadScope, *, after: ThreadKey | None = None, limit: int = 1_000) -> ThreadPage:
        """List the threads of a scope that have a journal.

        Guarantees LIFE-1: paged, ascending by name (`ThreadKey.name`), complete, never outside the scope.

        Args:
            scope: A user, one of its agents, or one session.
            after: Only threads behind this one, which need not exist.
            limit: 1 to 10,000.

        Returns:
            A page.

        Raises:
            ValueError: The limit is outside its range, or `after` is outside the scope.
        """

    @abstractmethod
    def trim(self, key: ThreadKey, before_seq: int) -> JournalHead:
        """Remove the events before a seq, as far as that is safe.

        Guarantees LIFE-2: raises `first_seq` only, and passes neither an active cursor nor the checkpoint: it stops
        there, and the head that is returned shows where. LIFE-4: runs beside writers and readers. CLAIM-8: moves no
        epoch.

        Args:
            key: The thread.
            before_seq: The first seq to keep.

        Returns:
            The head after the trim.

        Raises:
            ValueError: `before_seq` is no integer of at least 0.
            JournalNotFound: There is no journal.
        """

    @abstractmethod
    def delete(self, key: ThreadKey) -> bool:
        """Delete a journal, and fence its writer and its cursors.

        Guarantees LIFE-5: leaves a tombstone with epoch and generation; a later claim starts a new incarnation.

        Args:
            key: The thread.

        Returns:
            True where there was a journal, False where there was none.
        """

    def purge(self, key: ThreadKey) -> bool:
        """Remove a tombstone and all that is left of a deleted journal (`Feature.PURGE`).

        Guarantees LIFE-5. Afterwards epochs and versions start again at 1, so that only the nonces tell old claims and
        cursors from new ones: purge when no process that knew the journal is left.

        Args:
            key: The thread.

        Returns:
            True where a tombstone was removed, False where there was nothing.

        Raises:
            UnsupportedCapability: The backend cannot; nothing changed.
            HeadConflict: The journal is open; delete it first.
        """
        self.head(key)
        raise UnsupportedCapability(
            "this backend cannot remove tombstones",
            capability="feature=purge",
            key=key.name,
            backend=self.capabilities.backend,
        )

    @abstractmethod
    def verify(self, key: ThreadKey, *, deep: bool = False) -> VerifyReport:
        """Check a stored journal and its cursors, and report every finding instead of raising (FORMAT-3).

        Args:
            key: The thread.
            deep: Read and check every batch and the chain, not only the head and the newest page.

        Returns:
            The findings; none where all is well or where there is no journal.
        """

    def collect(self, key: ThreadKey) -> CollectReport:
        """Delete what failed commits left behind; nothing to do where nothing is left behind (LIFE-3).

        Guarantees LIFE-4: runs beside writers, readers, trims and other collectors. SETTLE-3: only the collector
        deletes what an unknown attempt wrote.

        Args:
            key: The thread.

        Returns:
            What was done.
        """
        self.head(key)
        return CollectReport(0, 0)

    @abstractmethod
    def close(self) -> None:
        """Close the store; a second call is harmless, any other call afterwards is `StoreClosed` (ERR-5)."""
