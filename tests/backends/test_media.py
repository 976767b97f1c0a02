"""The raw media of the embedded backends: what is stored can be seen, damaged and put back, one namespace at a time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from statebook import Batch, DataError, Event, StateKey, ThreadKey
from statebook.medium import Medium
from statebook.plugins import Backend, load_backend

KEY = ThreadKey("user", "agent", "session", "thread")
SLOT = StateKey("user", "session", "key")

OpenBackend = Callable[[str], Backend]


@pytest.fixture(params=["file", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> OpenBackend:
    base = f"file://{tmp_path}/root" if request.param == "file" else f"sqlite:///{tmp_path}/store.db"
    return lambda namespace: load_backend(f"{base}?namespace={namespace}")


def store_something(backend: Backend) -> None:
    journal, state = backend.open_journal(), backend.open_state()
    claim = journal.claim(KEY, "writer")
    for number in range(3):
        payload = b'{"text":"%s"}' % (b"seen-%d " % number * 4_000)
        event = Event(event_id=f"e{number}", type="run/step", occurred_at=1, payload=payload)
        journal.append(claim, Batch(f"b{number}", (event,)), number)
    journal.advance_cursor(journal.open_cursor(KEY, "exporter"), 2)
    state.save(SLOT, b'"a document"')
    state.append_list(SLOT, (b'"an item"',), expected_length=0)
    journal.close()
    state.close()


def medium_of(backend: Backend) -> Medium:
    medium = backend.open_medium()
    assert medium is not None
    return medium


def everything(medium: Medium) -> dict[str, bytes]:
    return {record: medium.read(record) for record in medium.records()}


def test_what_is_stored_is_in_the_records_as_text(backend: OpenBackend) -> None:
    store_something(backend("a"))
    medium = medium_of(backend("a"))
    content = b"\n".join(everything(medium).values())
    for text in (b"seen-0 seen-0", b"seen-2 seen-2", b"a document", b"an item", b"exporter", b"writer"):
        assert text in content
    assert list(medium.records()) == sorted(set(medium.records()))
    medium.close()
    medium.close()


def test_another_namespace_is_not_shown(backend: OpenBackend) -> None:
    store_something(backend("a"))
    other = medium_of(backend("b"))
    assert other.records() == ()
    store_something(backend("b"))
    before = everything(other)
    assert backend("a").destroy_namespace()
    assert everything(other) == before
    other.close()


def test_a_namespace_that_was_never_opened_has_no_records_and_is_not_made(backend: OpenBackend) -> None:
    medium = medium_of(backend("never"))
    assert medium.records() == ()
    with pytest.raises(KeyError):
        medium.read("nothing")
    with pytest.raises(KeyError):
        medium.remove("nothing")
    medium.close()


def test_each_record_can_be_removed_and_brought_back(backend: OpenBackend) -> None:
    store_something(backend("a"))
    medium = medium_of(backend("a"))
    whole = everything(medium)
    for record, data in whole.items():
        medium.remove(record)
        assert record not in medium.records()
        with pytest.raises(KeyError):
            medium.read(record)
        medium.write(record, data)
        assert everything(medium) == whole
    medium.close()
    journal = backend("a").open_journal()
    assert len(journal.read_after(KEY, 0, 10).events) == 3
    assert journal.verify(KEY, deep=True).findings == ()
    journal.close()


def test_other_bytes_in_a_record_are_met_by_a_store_that_is_opened_anew(backend: OpenBackend) -> None:
    store_something(backend("a"))
    medium = medium_of(backend("a"))
    record, data = next((name, data) for name, data in everything(medium).items() if b"seen-1 seen-1" in data)
    medium.write(record, data.replace(b"seen-1 seen-1", b"seen-1 SEEN-1", 1))
    assert b"SEEN-1" in medium.read(record)
    journal = backend("a").open_journal()
    with pytest.raises(DataError):
        journal.read_after(KEY, 0, 10)
    journal.close()
    medium.write(record, data)
    journal = backend("a").open_journal()
    assert len(journal.read_after(KEY, 0, 10).events) == 3
    journal.close()
    medium.close()


def test_no_record_leads_out_of_the_namespace(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    backend = load_backend(f"file://{tmp_path}/root?namespace=a")
    store_something(backend)
    medium = medium_of(backend)
    for record in ("../../secret", "../statebook.json", "/etc/hostname", "", "k-t//head.json", "."):
        with pytest.raises(KeyError):
            medium.read(record)
        with pytest.raises(KeyError):
            medium.remove(record)
        with pytest.raises(KeyError):
            medium.write(record, b"planted")
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_links_are_no_records(tmp_path: Path) -> None:
    backend = load_backend(f"file://{tmp_path}/root?namespace=a")
    store_something(backend)
    medium = medium_of(backend)
    before = medium.records()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "root" / "ns.a" / "link").symlink_to(tmp_path / "secret")
    assert medium.records() == before


def test_a_column_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    backend = load_backend(f"sqlite:///{tmp_path}/store.db?namespace=a")
    store_something(backend)
    medium = medium_of(backend)
    before = everything(medium)
    number = next(record for record in before if record.endswith("/last_seq"))
    text = next(record for record in before if record.endswith("/chain"))
    for record, data in ((number, b"many"), (number, b""), (number, b"9" * 30), (text, b"\xff\xfe")):
        with pytest.raises(ValueError, match=record):
            medium.write(record, data)
    with pytest.raises(ValueError, match="gone"):
        medium.write(f"journal/999/{number.rpartition('/')[2]}", b"1")
    with pytest.raises(KeyError):
        medium.read("sqlite_master/1/sql")
    assert everything(medium) == before
    medium.close()


def test_a_store_in_memory_shows_no_medium() -> None:
    assert load_backend("memory://media-test").open_medium() is None
