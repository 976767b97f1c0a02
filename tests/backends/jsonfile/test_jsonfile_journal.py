"""The journal over files: core's, with a tail that suits them."""

from pathlib import Path

from statebook import Batch, Event, ThreadKey, open_atomic, open_journal
from statebook.atomic_journal import AtomicThreadJournalStore

KEY = ThreadKey("ada", "assistant", "session-1", "main")


def _batch(number: int) -> Batch:
    event = Event(event_id=f"event-{number}", type="note", occurred_at=number, payload=b'"' + b"x" * 500 + b'"')
    return Batch(f"batch-{number}", (event,))


def test_small_batches_leave_the_head_sooner_and_journals_of_either_bound_go_on_in_each_other(root: Path) -> None:
    url = f"file://{root}?durability=process"
    short, long = open_journal(url), AtomicThreadJournalStore(open_atomic(url))
    claim = short.claim(KEY, "writer")
    sizes: dict[str, list[int]] = {"short": [], "long": []}
    for number in range(300):
        name, store = ("short", short) if number < 100 or number >= 200 else ("long", long)
        store.append(claim, _batch(number), number)
        sizes[name].append(next(root.rglob("head.json")).stat().st_size)
    assert max(sizes["short"]) < 50 * 1024 < max(sizes["long"])
    assert [event.event_id for event in long.read_after(KEY, 0, 1_000).events] == [f"event-{n}" for n in range(300)]
    assert short.verify(KEY, deep=True).findings == ()
    short.close()
    long.close()
