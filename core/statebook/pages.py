"""Read a journal page by page, as an iterator. Nothing is held open between pages, so a pause blocks nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from statebook.errors import Trimmed
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import EventPage, RecordedEvent, check_page, check_seq

_CHECKPOINT_READS_MAX: Final = 8


def iterate(store: ThreadJournalStore, key: ThreadKey, after: int, page: int) -> Iterator[RecordedEvent]:
    """Iterate over the events behind a seq, up to the end as it is when the first page is read.

    Guarantees READ-1 and READ-2, page by page. The iteration ends also where a writer never does.

    Args:
        store: An open store.
        key: The thread.
        after: Events with a greater seq are read; 0 for all.
        page: How many events are read at once, 1 to 10,000.

    Returns:
        The events, ascending and contiguous.

    Raises:
        ValueError: `after` or `page` is outside its range.
        JournalRegressed: `after` is behind the end of the journal; raised where the iteration meets it.
        Trimmed: Events to be read have been trimmed away; raised where the iteration meets it.
    """
    check_seq(after, "after")
    check_page(page)
    return _events(store, key, after, page, None)


def iterate_from_checkpoint(store: ThreadJournalStore, key: ThreadKey, page: int) -> Iterator[RecordedEvent]:
    """Iterate over the last checkpoint and what follows it; over everything that is left where there is none.

    Guarantees READ-4: costs what follows the checkpoint, not the length of the journal.

    Args:
        store: An open store.
        key: The thread.
        page: How many events are read at once, 1 to 10,000.

    Returns:
        The events; the first one is the checkpoint where there is one.

    Raises:
        ValueError: `page` is outside its range.
        Trimmed: Trims went on overtaking this call.
    """
    check_page(page)
    overtaken: Trimmed | None = None
    for _ in range(_CHECKPOINT_READS_MAX):
        head = store.head(key)
        if head is None:
            return iter(())
        after = (head.first_seq if head.checkpoint_seq is None else head.checkpoint_seq) - 1
        try:
            return _events(store, key, after, page, store.read_after(key, after, page))
        except Trimmed as error:  # a newer checkpoint let a trim pass this one; the next head has it
            overtaken = error
    raise overtaken or AssertionError("there was at least one attempt")


def _events(
    store: ThreadJournalStore, key: ThreadKey, after: int, limit: int, first: EventPage | None
) -> Iterator[RecordedEvent]:
    page = store.read_after(key, after, limit) if first is None else first
    end = page.last_seq
    while page.events:
        for event in page.events:
            if event.seq > end:
                return
            yield event
        after = page.events[-1].seq
        if after >= end:
            return
        page = store.read_after(key, after, limit)
