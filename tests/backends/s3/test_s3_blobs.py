"""Pages do not ask for the same blob again, and whoever looks for damage still meets it (READ-4, FORMAT-1)."""

from collections.abc import Callable
from typing import Any

import pytest

from statebook import Batch, JournalCorrupt, ThreadJournalStore, ThreadKey, Trimmed, plugins as statebook
from statebook_backends.s3.blobs import BlobMemory

PAYLOAD = b'{"text":"' + b"x" * 6_000 + b'"}'


@pytest.fixture
def long(lookalike: Any, journal: ThreadJournalStore, key: ThreadKey, batch: Callable[..., Batch]) -> list[str]:
    """Sixty batches, most of them in segments; gives the keys of the blobs."""
    claim = journal.claim(key, "writer")
    for seq in range(60):
        journal.append(claim, batch(f"b{seq}", payload=PAYLOAD), seq)
    lookalike.requests.clear()
    blobs = [name for name in lookalike.objects if "!head" not in name and "/probe" not in name]
    assert len(blobs) > 3
    return blobs


def seqs(store: ThreadJournalStore, key: ThreadKey, seq: int, limit: int) -> list[int]:
    return [event.seq for event in store.read_after(key, seq, limit).events]


def test_a_page_of_blobs_that_were_read_costs_one_conditional_get(
    lookalike: Any, journal: ThreadJournalStore, key: ThreadKey, long: list[str]
) -> None:
    assert seqs(journal, key, 0, 15) == list(range(1, 16))
    first = lookalike.counted()
    assert first["GET if-none-match"] == 1
    assert sum(first.values()) > 1
    lookalike.requests.clear()
    for _ in range(3):
        assert seqs(journal, key, 0, 15) == list(range(1, 16))
        assert seqs(journal, key, 4, 3) == [5, 6, 7]
    assert lookalike.counted() == {"GET if-none-match": 6}
    assert seqs(journal, key, 0, 60) == list(range(1, 61))
    lookalike.requests.clear()
    assert seqs(journal, key, 20, 40) == list(range(21, 61))
    assert lookalike.counted() == {"GET if-none-match": 1}


def test_what_is_remembered_is_no_longer_read_once_the_head_has_trimmed_it(
    lookalike: Any, journal: ThreadJournalStore, key: ThreadKey, long: list[str]
) -> None:
    assert seqs(journal, key, 0, 60) == list(range(1, 61))
    other = statebook.open_journal(lookalike.url())
    first_seq = other.trim(key, 41).first_seq
    with pytest.raises(Trimmed):
        journal.read_after(key, 0, 10)
    assert seqs(journal, key, first_seq - 1, 60) == list(range(first_seq, 61))
    other.delete(key)
    assert journal.read_after(key, 0, 10).events == ()
    other.close()


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_damage_behind_a_page_that_was_read_is_found_by_verify_and_by_every_new_handle(
    lookalike: Any, journal: ThreadJournalStore, key: ThreadKey, long: list[str], harm: str
) -> None:
    assert seqs(journal, key, 0, 60) == list(range(1, 61))
    for name in long:
        if harm == "gone":
            del lookalike.objects[name]
        else:
            lookalike.objects[name] = lookalike.objects[name].replace(b"xxx", b"xyx", 1)
    assert seqs(journal, key, 0, 60) == list(range(1, 61))
    assert journal.verify(key, deep=True).findings != ()
    fresh = statebook.open_journal(lookalike.url())
    with pytest.raises(JournalCorrupt):
        fresh.read_after(key, 0, 10)
    fresh.close()


def test_a_damaged_blob_is_not_remembered(
    lookalike: Any, journal: ThreadJournalStore, key: ThreadKey, long: list[str]
) -> None:
    whole = dict(lookalike.objects)
    for name in long:
        lookalike.objects[name] = lookalike.objects[name].replace(b"xxx", b"xyx", 1)
    for _ in range(2):
        with pytest.raises(JournalCorrupt):
            journal.read_after(key, 0, 10)
    lookalike.objects.update(whole)
    assert seqs(journal, key, 0, 10) == list(range(1, 11))


def test_the_memory_keeps_its_bound_and_what_was_read_last() -> None:
    memory = BlobMemory(bytes_max=100)
    for number in range(5):
        memory.keep(f"d{number}", bytes([number]) * 30)
        assert memory.get("d0" if number < 3 else "d2") is not None
    assert [memory.get(f"d{number}") is not None for number in range(5)] == [False, False, True, True, True]
    memory.keep("d4", b"x" * 30)
    assert memory.get("d4") == bytes([4]) * 30
    memory.keep("large", b"x" * 101)
    assert memory.get("large") is None
    assert memory.get("d4") is not None
