"""Worker functions of the liveness rules."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from statebook.model import WriterClaim
from statebook_conformance.writing import thread

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue
    from statebook_conformance.child import ChildContext

BEATS_MAX: Final = 200_000
"""How often a process beats at most."""


def beat(child: ChildContext) -> JsonValue:
    """Beat for the claim that holds the journal, as fast as can be, until the rule says stop; tell how often."""
    journal, stop = child.open_journal(), threading.Event()
    head = journal.head(thread())
    if head is None or head.claim is None:
        raise ValueError("nobody holds the journal")
    info = head.claim
    claim = WriterClaim(thread(), info.journal_id, info.writer_id, info.epoch, info.nonce, head.last_seq, None)
    journal.heartbeat(claim)
    child.tell("beating")

    def listen() -> None:
        child.hear()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    beats = 1
    while beats < BEATS_MAX and not stop.is_set():
        journal.heartbeat(claim)
        beats += 1
    return beats
