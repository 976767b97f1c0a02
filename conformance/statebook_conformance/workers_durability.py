"""Worker functions of the durability rules: they write, say what was acknowledged, and wait to be killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from statebook.keys import StateKey
from statebook_conformance.scenes import make_batch, thread

if TYPE_CHECKING:
    from statebook_conformance.child import ChildContext

_SLOT: Final = StateKey("user", "session", "document")
_BATCHES_MAX: Final = 100_000


def write_and_wait(child: ChildContext) -> int:
    """Append batches and save a document, tell the last seq, and wait."""
    journal, state = child.open_journal(), child.open_state()
    claim = journal.claim(thread(), "writer")
    base = claim.last_seq
    for number in range(1, child.number("batches") + 1):
        base = journal.append(claim, make_batch(f"b{number}"), base).last_seq
    state.save(_SLOT, b'"saved"')
    child.tell("written", last_seq=base)
    child.hear()
    return base


def write_for_ever(child: ChildContext) -> int:
    """Once told to go: claim, and append batches of three events until this process is killed."""
    number = child.number("round")
    child.tell("ready")
    child.hear()
    journal = child.open_journal()
    claim = journal.claim(thread(), f"writer {number}")
    base = claim.last_seq
    for count in range(1, _BATCHES_MAX):
        batch = make_batch(f"r{number}-{count}", 3, size=2_500 * (count % 3))
        base = journal.append(claim, batch, base).last_seq
        child.tell("acked", last_seq=base)
    return base
