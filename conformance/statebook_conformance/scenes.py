"""What many rules begin with: keys, events, batches, and journals that hold something."""

from __future__ import annotations

from collections.abc import Sequence

from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import Batch, Event, JournalHead, RecordedEvent, WriterClaim
from statebook_conformance.context import Context

PAGES_MAX = 20_000
"""How many pages are read at most before a read counts as endless."""


def thread(thread_id: str = "thread", *, user_id: str | None = "user", session_id: str = "session") -> ThreadKey:
    """The key of a thread of the one agent that these scenes know."""
    return ThreadKey(user_id, "agent", session_id, thread_id)


def make_batch(name: str, events: int = 1, *, size: int = 0, checkpoint: bool = False) -> Batch:
    """A batch whose events are named after it.

    Args:
        name: The batch id; event ids are `<name>.1`, `<name>.2` and so on.
        events: How many events.
        size: How many characters of filling each payload has; the filling begins with the event's id.
        checkpoint: Whether the last event is a checkpoint.

    Returns:
        The batch.
    """
    made: list[Event] = []
    for number in range(1, events + 1):
        event_id = f"{name}.{number}"
        filling = (f"{event_id} " * (size // (len(event_id) + 1) + 1))[:size]
        kind = "state/checkpoint" if checkpoint and number == events else "run/step"
        payload = f'{{"n":{number},"text":"{filling}"}}'.encode()
        made.append(Event(event_id=event_id, type=kind, occurred_at=1_700_000_000_000 + number, payload=payload))
    return Batch(name, tuple(made))


def fill(journal: ThreadJournalStore, key: ThreadKey, batches: Sequence[Batch], writer: str = "writer") -> WriterClaim:
    """Claim a journal and append batches behind what is there.

    Args:
        journal: The store.
        key: The thread.
        batches: The batches.
        writer: Who writes.

    Returns:
        The claim, still held.
    """
    claim = journal.claim(key, writer)
    base = claim.last_seq
    for batch in batches:
        base = journal.append(claim, batch, base).last_seq
    return claim


def there(ctx: Context, journal: ThreadJournalStore, key: ThreadKey) -> JournalHead:
    """The head of a journal that must be there."""
    head = journal.head(key)
    if head is None:
        ctx.fail(f"{key.thread_id}: there is no journal, and there should be one")
    return head


def read_all(ctx: Context, journal: ThreadJournalStore, key: ThreadKey, *, after: int = 0) -> tuple[RecordedEvent, ...]:
    """Read a journal page by page, and check that the pages follow each other (READ-1).

    Args:
        ctx: The rule's context.
        journal: The store.
        key: The thread.
        after: Where to begin.

    Returns:
        The events.
    """
    events: list[RecordedEvent] = []
    for _ in range(PAGES_MAX):
        page = journal.read_after(key, after, 1_000)
        events.extend(page.events)
        expected = range(after + 1, after + 1 + len(page.events))
        if [event.seq for event in page.events] != list(expected):
            ctx.fail(f"{key.thread_id}: the page behind seq {after} is not contiguous")
        after += len(page.events)
        if not page.has_more:
            return tuple(events)
        ctx.check(page.events, f"{key.thread_id}: has_more is true behind seq {after}, and the page is empty")
    return ctx.fail(f"{key.thread_id}: after {PAGES_MAX} pages has_more is still true")


def names(events: Sequence[RecordedEvent]) -> list[tuple[int, str]]:
    """Seq and id of events: what most rules compare."""
    return [(event.seq, event.event_id) for event in events]
