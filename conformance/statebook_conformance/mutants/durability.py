"""Mutants of durability: what they acknowledge is not there yet."""

from __future__ import annotations

from typing import Final

from statebook.codec import digest, encode_batch
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import Batch, EventPage, JournalHead, Receipt, WriterClaim
from statebook_conformance.mutants.cursor import wrapped
from statebook_conformance.mutants.forward import ForwardJournal
from statebook_conformance.mutants.mutant import Mutant


class _Buffered(ForwardJournal):
    """Keeps the newest batch in the process, and writes it when the next call comes."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        super().__init__(inner)
        self._held: tuple[WriterClaim, Batch, int] | None = None

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        self.flush()
        self._held = claim, batch, base_seq
        last_seq = base_seq + len(batch.events)
        sha256 = digest(encode_batch(batch))
        return Receipt(batch.batch_id, claim.journal_id, base_seq + 1, last_seq, claim.epoch, sha256)

    def head(self, key: ThreadKey) -> JournalHead | None:
        self.flush()
        return super().head(key)

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        self.flush()
        return super().read_after(key, seq, limit)

    def flush(self) -> None:
        """Write what is held."""
        held, self._held = self._held, None
        if held is not None:
            self.inner.append(*held)

    def close(self) -> None:
        self.flush()
        super().close()


class _LostAtClose(_Buffered):
    """Lets go of its buffer at close."""

    def close(self) -> None:
        self._held = None
        super().close()


ACKNOWLEDGED_BEFORE_STORED: Final = Mutant(
    "acknowledged-before-it-is-stored",
    "a batch is acknowledged while it is in a buffer of the process",
    wrapped(_Buffered),
    base="file://{directory}",
)
LOST_AT_CLOSE: Final = Mutant(
    "lost-at-close", "close() drops what was acknowledged last", wrapped(_LostAtClose), base="file://{directory}"
)
