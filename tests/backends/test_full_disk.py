"""A disk that is really full: what was acknowledged stays, and with space the same store goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from statebook import plugins as statebook
from statebook.errors import BackendUnavailable, LimitExceeded, OutcomeUnknown
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey
from statebook.model import Batch
from statebook_conformance.context import Unavailable
from statebook_conformance.faults.full import SmallDisk, small_tmpfs
from statebook_conformance.scenes import make_batch, thread

KEY = thread()
SLOT, LIST = StateKey("user", "session", "document"), StateKey("user", "session", "list")
SIZE = 6 * 1024 * 1024
REFUSED = (BackendUnavailable, LimitExceeded, OutcomeUnknown)


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    """A small one of its own. Mounting is a right, which no installation brings: without it these are not run."""
    with ExitStack() as mounted:
        try:
            made = mounted.enter_context(small_tmpfs(SIZE))
        except Unavailable as missing:
            pytest.skip(f"UNAVAILABLE: {missing}")
        yield made


@pytest.fixture(params=["file://{path}/root", "sqlite:///{path}/store.db"])
def url(request: pytest.FixtureRequest, disk: SmallDisk) -> str:
    return request.param.format(path=disk.path)


def ids(journal: ThreadJournalStore) -> list[str]:
    found: list[str] = []
    while True:
        page = journal.read_after(KEY, len(found), 1_000)
        found += [event.event_id for event in page.events]
        if not page.has_more:
            return found


def written_until_refused(journal: ThreadJournalStore, first: int = 0) -> tuple[list[str], Batch, str]:
    """Append until a batch is refused: the ids that were acknowledged, that batch, and its error."""
    claim = journal.claim(KEY, "writer")
    acked: list[str] = ids(journal)
    for number in range(first, first + 2_000):
        batch = make_batch(f"b{number}", 2, size=20_000)
        try:
            journal.append(claim, batch, len(acked))
        except REFUSED as error:
            return acked, batch, type(error).__name__
        acked += [event.event_id for event in batch.events]
    raise AssertionError("the disk never was full")


def test_a_journal_on_a_full_disk_keeps_what_it_has_acknowledged_and_goes_on_with_space(
    url: str, disk: SmallDisk
) -> None:
    journal = statebook.open_journal(url)
    claim = journal.claim(KEY, "writer")
    disk.fill(leave=SIZE // 4)
    acked, refused, error = written_until_refused(journal)
    assert len(acked) > 8
    assert disk.free < SIZE // 4
    found = ids(journal)
    assert found[: len(acked)] == acked
    assert found[len(acked) :] in (
        [],
        [event.event_id for event in refused.events] if error == "OutcomeUnknown" else [],
    )
    assert journal.verify(KEY, deep=True).findings == ()
    disk.make_room()
    if error == "OutcomeUnknown":
        journal.close()
        journal = statebook.open_journal(url)
    claim = journal.claim(KEY, "writer")
    journal.append(claim, refused, len(acked))
    assert ids(journal) == [*acked, *(event.event_id for event in refused.events)]
    journal.collect(KEY)
    assert journal.verify(KEY, deep=True).findings == ()
    journal.close()


def test_a_store_is_read_and_opened_on_a_disk_without_one_free_byte(url: str, disk: SmallDisk) -> None:
    journal = statebook.open_journal(url)
    claim = journal.claim(KEY, "writer")
    journal.append(claim, make_batch("kept", 3), 0)
    assert disk.fill() == 0
    assert ids(journal) == ["kept.1", "kept.2", "kept.3"]
    journal.close()
    disk.make_room()
    disk.fill(leave=200_000)  # what a log's index takes
    again = statebook.open_journal(url)
    assert ids(again) == ["kept.1", "kept.2", "kept.3"]
    assert again.verify(KEY, deep=True).findings == ()
    again.close()


def test_documents_and_lists_on_a_full_disk_stay_as_they_were_acknowledged(url: str, disk: SmallDisk) -> None:
    state = statebook.open_state(url)
    version = state.save(SLOT, b'"kept"')
    state.append_list(LIST, (b"1", b"2"), expected_length=0)
    disk.fill(leave=40_000)
    large = b'"' + b"x" * 400_000 + b'"'
    unknown = False
    for call in (
        lambda: state.save(SLOT, large, expected=version),
        lambda: state.append_list(LIST, (large,), expected_length=2),
        lambda: state.replace_list(LIST, (large,)),
        lambda: state.save(StateKey("user", "session", "new"), large),
    ):
        with pytest.raises(REFUSED) as refusal:
            call()
        unknown |= isinstance(refusal.value, OutcomeUnknown)
    if unknown:
        state.close()
        state = statebook.open_state(url)
    saved, items = state.load(SLOT), state.load_list(LIST)
    assert saved is not None
    assert (saved.value, saved.version) == (b'"kept"', version)
    assert items is not None
    assert items.items == (b"1", b"2")
    assert state.load(StateKey("user", "session", "new")) is None
    disk.make_room()
    assert state.save(SLOT, large, expected=version) > version
    state.append_list(LIST, (large,), expected_length=2)
    items = state.load_list(LIST)
    assert items is not None
    assert items.items == (b"1", b"2", large)
    state.close()
