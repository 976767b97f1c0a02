"""A writer in another process that holds a claim, and uses it again when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from statebook.errors import StatebookError, WriterFenced
from statebook.model import AppendRequest
from statebook_conformance.scenes import make_batch, thread

if TYPE_CHECKING:
    from statebook_conformance.child import ChildContext


def hold(child: ChildContext) -> None:
    """Claim, append, and then make the call that each order names, with the claim and base from the beginning."""
    journal = child.open_journal()
    claim = journal.claim(thread(), "holder")
    base = journal.append(claim, make_batch("before", 2), claim.last_seq).last_seq
    child.tell("holds", last_seq=base, epoch=claim.epoch)
    calls: dict[str, Callable[[], object]] = {
        "append": lambda: journal.append(claim, make_batch("late"), base),
        "append_many": lambda: journal.append_many([AppendRequest(claim, make_batch("late many"), base)])[0],
        "heartbeat": lambda: journal.heartbeat(claim),
        "release": lambda: journal.release(claim),
    }
    while order := child.hear():
        answer: object
        try:
            answer = calls[str(order["call"])]()
        except StatebookError as error:
            answer = error
        absent = isinstance(answer, WriterFenced) and answer.committed is None
        child.tell("answered", answer=type(answer).__name__, absent=absent)
