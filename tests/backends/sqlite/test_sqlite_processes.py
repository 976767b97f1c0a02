"""Several processes on one file: no raw lock error, one creation, nothing acknowledged is lost (DUR, ATOM-1)."""

import signal
import time
from pathlib import Path
from typing import Any

from statebook import ThreadKey
from statebook.plugins import open_journal

WRITE = """
import sys
from statebook import ANY, Batch, Event, StateKey, ThreadKey, VersionConflict
from statebook.plugins import open_journal, open_state
url, name = "sqlite:///" + sys.argv[1] + "?busy_timeout_ms=60000", sys.argv[2]
journal, state = open_journal(url), open_state(url)
claim = journal.claim(ThreadKey("u", "a", "s", name), name)
slot = StateKey("u", "s", "shared")
last = won = 0
for number in range(100):
    event = Event(event_id=f"{number}", type="x", occurred_at=1, payload=b"1")
    last = journal.append(claim, Batch(f"{number}", (event,)), last).last_seq
    while True:
        found = state.load(slot)
        try:
            state.save(slot, b"%d" % (int(found.value) + 1), expected=found.version)
            break
        except VersionConflict:
            continue
print(last)
"""


def test_eight_processes_of_two_hundred_writes_beside_a_held_snapshot_meet_no_lock_error(
    path: Path, url: str, python: Any, raw: Any
) -> None:
    import sqlite3

    from statebook import StateKey
    from statebook.plugins import open_state

    state = open_state(url)
    slot = StateKey("u", "s", "shared")
    state.save(slot, b"0")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM batch").fetchone() == (0,)
    processes = [python(WRITE, str(path), f"p{number}") for number in range(8)]
    outcomes = [process.communicate(timeout=240) for process in processes]
    assert [out for out, _ in outcomes] == ["100\n"] * 8, outcomes
    assert reader.execute("SELECT count(*) FROM batch").fetchone() == (0,)
    reader.close()
    found = state.load(slot)
    assert found is not None
    assert (found.value, found.version) == (b"800", 801)
    state.close()
    assert raw("SELECT count(*), count(DISTINCT jid || ':' || last_seq) FROM batch") == [(800, 800)]


FIRST = """
import sys
from statebook import ThreadKey
from statebook.plugins import open_journal
sys.stdin.readline()
store = open_journal("sqlite:///" + sys.argv[1])
print(store.claim(ThreadKey("u", "a", "s", sys.argv[2]), "w").epoch)
"""


def test_sixteen_first_openings_of_a_new_database_at_once_all_succeed(path: Path, url: str, python: Any) -> None:
    processes = [python(FIRST, str(path), f"t{number}") for number in range(16)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    outcomes = [process.communicate(timeout=120) for process in processes]
    assert [out for out, _ in outcomes] == ["1\n"] * 16, outcomes
    store = open_journal(url)
    assert all(store.head(ThreadKey("u", "a", "s", f"t{number}")) is not None for number in range(16))
    store.close()


LOOP = """
import sys
from statebook import Batch, Event, ThreadKey
from statebook.plugins import open_journal
store = open_journal("sqlite:///" + sys.argv[1])
claim = store.claim(ThreadKey("u", "a", "s", "t"), "w")
last = claim.last_seq
while True:
    name = f"{claim.epoch}-{last}"
    events = tuple(
        Event(event_id=f"{name}.{n}", type="x", occurred_at=1, payload=b'"' + b"x" * (last * 97 % 20_000) + b'"')
        for n in range(1 + last % 4)
    )
    last = store.append(claim, Batch(name, events), last).last_seq
    print(last, flush=True)
"""


def test_kill_in_a_write_loop_loses_nothing_acknowledged_and_leaves_nothing_half_there_twenty_times(
    path: Path, url: str, python: Any
) -> None:
    key = ThreadKey("u", "a", "s", "t")
    store = open_journal(url)
    for round_ in range(20):
        process = python(LOOP, str(path))
        for _ in range(2 + round_ % 5):
            assert process.stdout.readline() != ""
        time.sleep(round_ * 0.0002)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        head = store.head(key)
        assert head is not None
        lines = rest.split()
        assert head.last_seq >= (int(lines[-1]) if lines else 0)
        assert head.epoch == round_ + 1
        assert store.verify(key, deep=True).findings == ()
    store.close()
