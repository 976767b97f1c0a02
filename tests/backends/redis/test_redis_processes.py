"""Two processes on one server: they resume each other's sessions and threads, and a takeover fences (CLAIM-2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from statebook.errors import WriterFenced
from statebook.keys import StateKey, ThreadKey
from statebook.model import Batch

if TYPE_CHECKING:
    from tests.backends.redis.conftest import Python, Stores

_RESUME = """
    import sys
    from statebook.keys import StateKey, ThreadKey
    from statebook.model import Batch, Event
    from statebook.plugins import open_journal, open_state

    journal, state = open_journal(sys.argv[1]), open_state(sys.argv[1])
    thread, slot = ThreadKey("user", "agent", "session", "thread"), StateKey("user", "session", "key")
    claim = journal.claim(thread, "child")
    event = Event(event_id="child", type="run/step", occurred_at=1, payload=b"{}")
    journal.append(claim, Batch("child", (event,)), claim.last_seq)
    found = state.load(slot)
    state.save(slot, found.value + b"0", expected=found.version)
    state.append_list(slot, (b"2",), expected_length=len(state.load_list(slot).items))
    print(claim.epoch, claim.last_seq, flush=True)
"""


def test_processes_resume_each_others_work_and_a_takeover_fences(
    stores: Stores, thread: ThreadKey, make_batch: Callable[..., Batch], python: Python
) -> None:
    """Cases 4, 35, 57."""
    journal, state, slot = stores.journal(), stores.state(), StateKey("user", "session", "key")
    claim = journal.claim(thread, "parent")
    journal.append(claim, make_batch("b0", 3), 0)
    version = state.save(slot, b"1")
    state.append_list(slot, (b"1",), expected_length=0)
    output, errors = python(_RESUME, stores.url.unredacted()).communicate(timeout=60)
    assert output.split() == ["2", "3"], errors
    with pytest.raises(WriterFenced) as fenced:
        journal.append(claim, make_batch("b1"), 3)
    assert (fenced.value.committed, fenced.value.current_epoch) == (None, 2)
    found, items = state.load(slot), state.load_list(slot)
    assert found is not None
    assert items is not None
    assert (found.value, found.version, items.items) == (b"10", version + 1, (b"1", b"2"))
    again = journal.claim(thread, "parent")
    assert (again.epoch, again.last_seq) == (3, 4)
    assert [event.event_id for event in journal.read_after(thread, 3).events] == ["child"]
    assert journal.append(again, make_batch("b1"), 4).last_seq == 5


def test_many_writers_of_one_slot_lose_no_update(stores: Stores, python: Python) -> None:
    """Cases 1, 3: a counter in a document, raised by three processes."""
    program = """
        import sys
        from statebook.errors import VersionConflict
        from statebook.keys import StateKey
        from statebook.plugins import open_state

        state, slot, done = open_state(sys.argv[1]), StateKey("user", "session", "counter"), 0
        while done < 100:
            found = state.load(slot)
            try:
                state.save(slot, b"%d" % (int(found.value) + 1), expected=found.version)
                done += 1
            except VersionConflict:
                continue
    """
    state, slot = stores.state(), StateKey("user", "session", "counter")
    state.save(slot, b"0")
    children = [python(program, stores.url.unredacted()) for _ in range(3)]
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
    found = state.load(slot)
    assert found is not None
    assert (found.value, found.version) == (b"300", 301)
