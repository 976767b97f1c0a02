"""Damaged, cut, foreign and linked files are errors; nothing is emptied, followed or replaced."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from statebook.atomic_record import sealed
from statebook.errors import BackendUnavailable, DataError, JournalCorrupt, StateCorrupt, UnsupportedFormat
from statebook_backends.jsonfile.store import JsonFileAtomicJournalStorage


def test_a_head_cut_at_any_byte_is_an_error_and_never_an_absent_head(
    store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path
) -> None:
    token = store.commit(scope, None, b"0123456789\n" * 20)
    assert isinstance(token, str)
    path = scope_path / "head.json"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(JournalCorrupt):
            store.read_head(scope)
        for expected in (None, token):
            with pytest.raises(JournalCorrupt):
                store.commit(scope, expected, b"new")
        with pytest.raises(JournalCorrupt):
            store.delete_head(scope, token)
        assert path.read_bytes() == whole[:length]
    path.write_bytes(whole + b"x")
    with pytest.raises(JournalCorrupt):
        store.read_head(scope)
    path.write_bytes(whole)
    assert store.read_head(scope) is not None


@pytest.mark.parametrize("head", [b"the head", sealed("journal-head", b"the head\n")])
def test_one_flipped_bit_in_any_byte_is_an_error_or_another_token(
    store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path, head: bytes
) -> None:
    token = store.commit(scope, None, head)
    path = scope_path / "head.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            found = store.read_head(scope)
        except DataError:
            continue
        assert found is not None
        assert found.data == head
        assert found.token != token


def test_a_sealed_record_is_hashed_by_its_first_line_and_read_like_any_other(
    store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path
) -> None:
    record = sealed("journal-head", b"one\ntwo\n" * 40)
    token = store.commit(scope, None, record)
    assert isinstance(token, str)
    assert b'"kind":"file-record"' in (scope_path / "head.json").read_bytes()
    found = store.read_head(scope)
    assert found is not None
    assert (found.data, type(found.data), found.token) == (record, bytes, token)
    # Bytes of which nothing is known are hashed whole, whatever they look like.
    wrong = bytes(record).replace(b"two", b"six")
    token = store.commit(scope, token, wrong)
    assert isinstance(token, str)
    found = store.read_head(scope)
    assert found is not None
    assert found.data == wrong


@pytest.mark.parametrize("change", [(b"two", b"six"), (b"two\n", b""), (b"one\ntwo\n", b"two\none\n")])
def test_a_sealed_record_with_another_rest_is_damage_whatever_its_length(
    store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path, change: tuple[bytes, bytes]
) -> None:
    store.commit(scope, None, sealed("journal-head", b"one\ntwo\n" * 40))
    path = scope_path / "head.json"
    header, _, record = path.read_bytes().partition(b"\n")
    changed = record.replace(*change, 1)
    path.write_bytes(header.replace(b'"bytes":%d' % len(record), b'"bytes":%d' % len(changed)) + b"\n" + changed)
    with pytest.raises(JournalCorrupt):
        store.read_head(scope)


@pytest.mark.parametrize("content", [b"\0" * 300, b"garbage", b"{}\n", b"x" * 10_000, b"\x80\x04\x95pickle\n"])
def test_what_is_no_head_file_is_damage_of_its_kind(
    store: JsonFileAtomicJournalStorage, root: Path, content: bytes
) -> None:
    for scope, error in (
        ("t/a", JournalCorrupt),
        ("c/a", JournalCorrupt),
        ("d/a", StateCorrupt),
        ("l/a", StateCorrupt),
    ):
        directory = root / "ns.default" / f"k-{scope[0]}" / "k-a"
        directory.mkdir(parents=True)
        (directory / "head.json").write_bytes(content)
        with pytest.raises(error):
            store.read_head(scope)
        with pytest.raises(error):
            store.commit(scope, None, b"")
        assert (directory / "head.json").read_bytes() == content


def test_a_head_of_another_format_is_refused_by_version(
    store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path
) -> None:
    store.commit(scope, None, b"head")
    path = scope_path / "head.json"
    changed = path.read_bytes().replace(b'{"statebook":2,', b'{"statebook":3,"more":[1],', 1)
    path.write_bytes(changed)
    with pytest.raises(UnsupportedFormat) as caught:
        store.read_head(scope)
    assert (caught.value.expected, caught.value.found) == ("2", "3")
    with pytest.raises(UnsupportedFormat):
        store.commit(scope, None, b"new")
    assert path.read_bytes() == changed


@pytest.mark.parametrize("place", ["ns.default", "k-t", "k-_n", "k-thread", "blobs", "head.json", "b-a"])
def test_a_link_below_the_root_is_refused_and_what_it_leads_to_not_touched(
    store: JsonFileAtomicJournalStorage,
    open_store: Any,
    tmp_path: Path,
    root: Path,
    scope: str,
    scope_path: Path,
    place: str,
) -> None:
    token = store.commit(scope, None, b"head", {"a": b"1"})
    assert isinstance(token, str)
    target = next(path for path in (root, *root.rglob("*")) if path.name == place)
    outside = tmp_path / "outside"
    if target.is_dir():
        shutil.copytree(target, outside)
        shutil.rmtree(target)
    else:
        outside.write_bytes(target.read_bytes())
        target.unlink()
    target.symlink_to(outside)
    before = sorted((path, path.read_bytes()) for path in outside.rglob("*") if path.is_file())
    fresh = open_store()
    blob = place in ("blobs", "b-a")
    with pytest.raises((JournalCorrupt, BackendUnavailable)):
        fresh.read_blob(scope, "a") if blob else fresh.read_head(scope)
    with pytest.raises((JournalCorrupt, BackendUnavailable)):
        fresh.commit(scope, token, b"new", {"a": b"1"})
    with pytest.raises((JournalCorrupt, BackendUnavailable)):
        fresh.commit(scope, None if not blob else token, b"new", {"a": b"1"})
    assert sorted((path, path.read_bytes()) for path in outside.rglob("*") if path.is_file()) == before
    assert target.is_symlink()


def test_a_directory_in_the_place_of_a_head_is_damage(
    store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path
) -> None:
    (scope_path / "head.json").mkdir(parents=True)
    with pytest.raises(JournalCorrupt):
        store.read_head(scope)
    with pytest.raises(JournalCorrupt):
        store.commit(scope, None, b"")
    assert (scope_path / "head.json").is_dir()


def test_a_record_that_is_not_known_to_be_sealed_is_hashed_whole(
    store: JsonFileAtomicJournalStorage, scope: str, scope_path: Path
) -> None:
    record = bytes(sealed("journal-head", b"one\ntwo\n" * 40))
    store.commit(scope, None, record)
    assert b'"kind":"file-head"' in (scope_path / "head.json").read_bytes().partition(b"\n")[0]
    found = store.read_head(scope)
    assert found is not None
    assert found.data == record
