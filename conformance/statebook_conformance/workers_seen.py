"""A writer whose flushes take long, and a reader beside it that tells what it sees meanwhile."""

from __future__ import annotations

import os
import traceback
from contextlib import closing
from typing import Final

from statebook.journal import ThreadJournalStore
from statebook.state import AgentStateStore
from statebook_conformance.faults.trace import burn
from statebook_conformance.scenes import fill, make_batch, thread
from statebook_conformance.target import TargetBackend
from statebook_conformance.workers_trace import LARGE, LIST, SLOT, LifeContext

ROUNDS: Final = 2
"""How often the writer writes in each way."""
_LOOKS_MAX: Final = 100_000


def sight(journal: ThreadJournalStore, state: AgentStateStore) -> dict[str, int]:
    """What a reader sees, as numbers that only grow: events, epoch, the saved number, items.

    Args:
        journal: An open store; nothing is written through it.
        state: The same for state.

    Returns:
        The numbers; 0 for what is not there.
    """
    head, saved, items = journal.head(thread()), state.load(SLOT), state.load_list(LIST)
    return {
        "events": 0 if head is None else len(journal.read_after(thread(), 0).events),
        "epoch": 0 if head is None else head.epoch,
        "saved": 0 if saved is None else int(saved.value),
        "items": 0 if items is None else len(items.items),
    }


def _write(backend: TargetBackend) -> None:
    with closing(backend.open_journal()) as journal, closing(backend.open_state()) as state:
        for number in range(1, ROUNDS + 1):
            claim = journal.claim(thread(), f"writer {number}")
            base = claim.last_seq
            for size in (0, LARGE):
                base = journal.append(claim, make_batch(f"b{number}-{size}", 2, size=size), base).last_seq
            state.save(SLOT, b"%d" % number)
            state.append_list(LIST, (b"%d" % number,), expected_length=number - 1)


def read_beside_a_slow_flush(life: LifeContext) -> None:
    """Fork a writer with one slow flush, read until it has ended, and tell each new sight behind the reads."""
    with closing(life.backend.open_journal()) as journal:
        fill(journal, thread(), [])
    start, go = os.pipe()
    writer = os.fork()
    if writer == 0:
        _be_the_writer(life, start)
    with closing(life.backend.open_journal()) as journal, closing(life.backend.open_state()) as state:
        last = sight(journal, state)
        os.writev(go, (b"g",))
        for _ in range(_LOOKS_MAX):
            ended, status = os.waitpid(writer, os.WNOHANG)
            seen = sight(journal, state)
            if seen != last:
                life.tell(seen=seen)
                last = seen
            if ended:
                life.tell(ended=os.waitstatus_to_exitcode(status))
                return
    raise RuntimeError("the writer has not ended")


def _be_the_writer(life: LifeContext, start: int) -> None:
    """Write once told to, and leave without the exit handlers of the process that was forked."""
    code = 1
    try:
        os.read(start, 1)
        burn({name: life.params[name] for name in ("fsync", "fdatasync") if name in life.params})
        _write(life.backend)
        code = 0
    except Exception:  # noqa: BLE001 - told by the status of the process
        traceback.print_exc()
    finally:
        os._exit(code)
