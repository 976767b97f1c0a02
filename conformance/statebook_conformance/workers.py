"""Worker functions that rules run in other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statebook.keys import ThreadKey
from statebook.model import Batch, Event

if TYPE_CHECKING:
    from statebook_conformance.child import ChildContext

THREAD = ThreadKey("user", "agent", "session", "thread")
"""The thread that simple workers write."""


def append_one(child: ChildContext) -> int:
    """Claim the thread, append one event behind what is there, and give the last seq that was there before."""
    journal = child.open_journal()
    claim = journal.claim(THREAD, "other process")
    event = Event(event_id=child.text("event_id"), type="run/start", occurred_at=1, payload=b"{}")
    journal.append(claim, Batch(child.text("event_id"), (event,)), claim.last_seq)
    return claim.last_seq
