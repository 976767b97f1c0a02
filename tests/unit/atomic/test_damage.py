"""Damage is the right error, and changes nothing (FORMAT-1, FORMAT-2, FORMAT-3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from honest_storage import KEY, HonestStorage, batch

from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.atomic_reader import thread_scope
from statebook.atomic_state import AtomicAgentStateStore
from statebook.errors import DataError, JournalCorrupt, StatebookError, StateCorrupt, UnsupportedFormat
from statebook.index_tree import Shape
from statebook.keys import StateKey, ThreadKey, ThreadScope
from statebook.model import SlotKind, WriterClaim

SCOPE = thread_scope(KEY)
SHAPE = Shape(tail_bytes_max=1_500, references_max=3)
SLOT = StateKey("user", "session", "key")
DATA_ERRORS = (JournalCorrupt, UnsupportedFormat)


@pytest.fixture
def storage() -> HonestStorage:
    return HonestStorage()


@pytest.fixture
def claim(storage: HonestStorage) -> WriterClaim:
    store = journals(storage)
    claim = store.claim(KEY, "writer")
    for number in range(61):
        store.append(claim, batch(f"b{number}"), number)
    store.open_cursor(KEY, "exporter")
    return claim


def journals(storage: HonestStorage) -> AtomicThreadJournalStore:
    return AtomicThreadJournalStore(storage, shape=SHAPE, pause=lambda attempt: None)


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def calls_on_the_head(store: AtomicThreadJournalStore, claim: WriterClaim) -> list[Callable[[], object]]:
    return [
        lambda: store.head(KEY),
        lambda: store.claim(KEY, "other"),
        lambda: store.heartbeat(claim),
        lambda: store.release(claim),
        lambda: store.append(claim, batch("new"), 61),
        lambda: store.settle(claim, "b0", 0),
        lambda: store.read_after(KEY, 0),
        lambda: store.open_cursor(KEY, "exporter"),
        lambda: store.reset_cursor(KEY, "exporter", 0, expected_version=1),
        lambda: store.trim(KEY, 10),
        lambda: store.delete(KEY),
        lambda: store.collect(KEY),
        lambda: store.purge(KEY),
    ]


def test_a_flipped_bit_anywhere_in_a_head_is_an_error_and_changes_nothing(
    storage: HonestStorage, claim: WriterClaim
) -> None:
    head, token = storage.heads[SCOPE]
    places = [*range(140), *range(140, len(head), 41), len(head) - 1]
    for index, at in enumerate(places):
        damaged = flipped(head, at, index % 8)
        storage.heads[SCOPE] = (damaged, token)
        store = journals(storage)
        with pytest.raises(DATA_ERRORS):
            store.read_after(KEY, 0)
        with pytest.raises(DATA_ERRORS):
            store.append(claim, batch("new"), 61)
        assert [finding.what for finding in store.verify(KEY).findings] == ["head"]
        assert storage.heads[SCOPE] == (damaged, token)


@pytest.mark.parametrize("damage", ["cut", "empty", "glued", "later format", "foreign"])
def test_no_call_goes_on_over_a_damaged_head(storage: HonestStorage, claim: WriterClaim, damage: str) -> None:
    head, token = storage.heads[SCOPE]
    records = {
        "cut": head[:-1],
        "empty": b"",
        "glued": head + head,
        "later format": head.replace(b'{"statebook":2', b'{"statebook":3', 1),
        "foreign": b"pickled",
    }
    storage.heads[SCOPE] = (records[damage], token)
    before = dict(storage.heads), dict(storage.blobs)
    for call in calls_on_the_head(journals(storage), claim):
        with pytest.raises(UnsupportedFormat if damage == "later format" else JournalCorrupt):
            call()
    assert (storage.heads, storage.blobs) == before
    assert journals(storage).list_threads(ThreadScope("user")).threads == (KEY,)


def test_a_head_in_another_threads_place_is_an_error(storage: HonestStorage, claim: WriterClaim) -> None:
    elsewhere = ThreadKey("user", "agent", "session", "other")
    storage.heads[thread_scope(elsewhere)] = storage.heads[SCOPE]
    with pytest.raises(JournalCorrupt) as caught:
        journals(storage).read_after(elsewhere, 0)
    assert (caught.value.what, caught.value.found) == ("key", KEY.name)


def test_blobs_without_a_head_are_no_empty_journal_and_refuse_a_new_one(
    storage: HonestStorage, claim: WriterClaim
) -> None:
    del storage.heads[SCOPE]
    blobs = dict(storage.blobs)
    store = journals(storage)
    for call in (lambda: store.claim(KEY, "writer"), lambda: store.head(KEY), lambda: store.read_after(KEY, 0)):
        with pytest.raises(JournalCorrupt):
            call()
    assert store.collect(KEY).deleted == 0
    assert [finding.what for finding in store.verify(KEY).findings] == ["head"]
    assert storage.blobs == blobs
    assert SCOPE not in storage.heads


@pytest.mark.parametrize("damage", ["flip", "cut", "missing"])
def test_each_damaged_blob_is_found_and_stops_whoever_needs_it(
    storage: HonestStorage, claim: WriterClaim, damage: str
) -> None:
    sound = dict(storage.blobs)
    assert len(sound) > 10
    for (scope, name), blob in sound.items():
        storage.blobs = dict(sound)
        storage.blobs[scope, name] = flipped(blob, len(blob) // 2) if damage == "flip" else blob[:-1]
        if damage == "missing":
            del storage.blobs[scope, name]
        before = dict(storage.heads), dict(storage.blobs)
        store = journals(storage)
        with pytest.raises(JournalCorrupt) as caught:
            store.read_after(KEY, 0, 100)
        assert caught.value.expected is not None
        assert store.verify(KEY, deep=True).findings != ()
        assert (storage.heads, storage.blobs) == before


def test_verify_reports_every_finding_of_a_journal_and_its_cursors(storage: HonestStorage, claim: WriterClaim) -> None:
    store = journals(storage)
    assert store.verify(KEY, deep=True).findings == ()
    assert (store.verify(KEY, deep=True).batches, store.verify(KEY, deep=True).events) == (61, 61)
    head = storage.heads[SCOPE][0].decode()
    names = [name for _, name in storage.blobs if name in head][:2]
    for name in names:
        del storage.blobs[SCOPE, name]
    cursor = f"c/{KEY.name}/exporter"
    storage.heads[cursor] = (storage.heads[cursor][0][:-1], "damaged")
    findings = store.verify(KEY, deep=True).findings
    assert sorted(finding.what for finding in findings) == ["cursor", "segment", "segment"]
    assert store.verify(KEY, deep=True).batches < 61


def test_a_damaged_cursor_is_an_error_and_repairs_nothing(storage: HonestStorage, claim: WriterClaim) -> None:
    scope = f"c/{KEY.name}/exporter"
    record, _ = storage.heads[scope]
    store = journals(storage)
    for at in range(0, len(record), 7):
        storage.heads[scope] = (flipped(record, at), "damaged")
        for call in (
            lambda: store.open_cursor(KEY, "exporter"),
            lambda: store.reset_cursor(KEY, "exporter", 0, expected_version=1),
            lambda: store.trim(KEY, 10),
        ):
            with pytest.raises(DATA_ERRORS):
                call()
        assert storage.heads[scope] == (flipped(record, at), "damaged")


def test_a_rewritten_history_under_a_right_seal_is_found_by_the_chain(
    storage: HonestStorage, claim: WriterClaim
) -> None:
    import msgspec

    from statebook.atomic_head import decode_head

    head = decode_head(storage.heads[SCOPE][0], KEY, KEY.name)
    assert head.tail
    line = msgspec.json.decode(head.tail[-1])
    line["body"]["events"][0]["payload"] = {"x": 2}
    forged = msgspec.structs.replace(head, tail=(*head.tail[:-1], msgspec.json.encode(line) + b"\n"))
    storage.heads[SCOPE] = (forged.encode(), "forged")
    findings = journals(storage).verify(KEY, deep=True).findings
    assert [finding.what for finding in findings] == ["batch"]


# ------------------------------------------------------------------------------------------------------ agent state


def states(storage: HonestStorage) -> AtomicAgentStateStore:
    return AtomicAgentStateStore(storage, shape=SHAPE, pause=lambda attempt: None)


def refused(error: type[DataError] | tuple[type[StatebookError], ...], calls: list[Callable[[], object]]) -> None:
    for call in calls:
        with pytest.raises(error):
            call()


def test_a_damaged_document_is_an_error_for_every_call(storage: HonestStorage) -> None:
    store = states(storage)
    store.save(SLOT, b'{"plan":[1,2]}')
    scope = f"d/{SLOT.name}"
    record, token = storage.heads[scope]
    for at in range(0, len(record), 3):
        storage.heads[scope] = (flipped(record, at, at % 8), token)
        refused(
            (StateCorrupt, UnsupportedFormat),
            [
                lambda: store.load(SLOT),
                lambda: store.save(SLOT, b"1"),
                lambda: store.delete(SLOT),
                lambda: store.exists(SLOT.session),
                lambda: store.list_keys(SLOT.session),
                lambda: store.list_sessions("user"),
                lambda: store.delete_session(SLOT.session),
            ],
        )
        assert storage.heads[scope] == (flipped(record, at, at % 8), token)


def test_damaged_and_missing_segments_of_a_list_are_errors(storage: HonestStorage) -> None:
    store = states(storage)
    for length in range(120):
        store.append_list(SLOT, [b"%d" % length * 40], expected_length=length)
    sound = dict(storage.blobs)
    assert len(sound) > 5
    for place, blob in sound.items():
        for damaged in (flipped(blob, len(blob) // 2), blob[:-1], None):
            storage.blobs = dict(sound)
            if damaged is None:
                del storage.blobs[place]
            else:
                storage.blobs[place] = damaged
            refused(StateCorrupt, [lambda: store.load_list(SLOT)])
    storage.blobs = sound
    loaded = store.load_list(SLOT)
    assert loaded is not None
    assert len(loaded.items) == 120


def test_a_list_in_a_documents_place_is_an_error(storage: HonestStorage) -> None:
    store = states(storage)
    store.append_list(SLOT, [b"1"], expected_length=0)
    storage.heads[f"d/{SLOT.name}"] = storage.heads[f"l/{SLOT.name}"]
    refused(StateCorrupt, [lambda: store.load(SLOT)])
    other = StateKey("user", "session", "other")
    storage.heads[f"l/{other.name}"] = storage.heads[f"l/{SLOT.name}"]
    refused(StateCorrupt, [lambda: store.load_list(other), lambda: store.list_keys(SLOT.session, kind=SlotKind.LIST)])
