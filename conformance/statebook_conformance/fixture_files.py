"""Fixtures of a format as files: raw records of one namespace, and what a reader must find in them (FORMAT-4)."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from statebook.atomic import AtomicJournalStorage, CommitConflict
from statebook.format_fixtures import StoredRecord
from statebook.model import PAGE_MAX
from statebook_conformance.fixture_scene import Expected

FORM: Final = 1
"""The version of these files."""

_HEAD: Final = "head"
_BLOBS_AT_ONCE: Final = 16


class FixtureError(Exception):
    """A file is no fixture, or one that this release of the suite cannot read."""


class Fixture(msgspec.Struct, frozen=True, kw_only=True):
    """What one release stored.

    Attributes:
        form: `FORM`.
        release: The release that wrote it.
        layout: Whose records these are: the backend's, or those of core over an atomic storage.
        namespace: The namespace that they can be planted into, or None for any.
        expected: What a reader finds, and what a writer holds.
        records: The records.
    """

    form: int
    release: str
    layout: Literal["backend", "core"]
    namespace: str | None
    expected: Expected
    records: tuple[StoredRecord, ...]


def pack(fixture: Fixture) -> bytes:
    """The file of a fixture: JSON under gzip, the same bytes whenever it is made."""
    return gzip.compress(msgspec.json.encode(fixture), mtime=0)


def unpack(data: bytes) -> Fixture:
    """The fixture in a file.

    Raises:
        FixtureError: It is none.
    """
    try:
        fixture = msgspec.json.decode(gzip.decompress(data), type=Fixture)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise FixtureError(f"this is no fixture: {error}") from error
    if fixture.form != FORM:
        raise FixtureError(f"the fixture of {fixture.release} has form {fixture.form}; this suite reads {FORM}")
    return fixture


def take_core(storage: AtomicJournalStorage) -> tuple[StoredRecord, ...]:
    """All heads and blobs of an atomic storage: `scope/head` and `scope/blob-name`.

    Args:
        storage: The storage, with few scopes.

    Returns:
        The records; a head behind the blobs of its scope.
    """
    found: list[StoredRecord] = []
    for scope in storage.list_scopes("", None, PAGE_MAX).names:
        for name in storage.list_blobs(scope, None, PAGE_MAX).names:
            blob = storage.read_blob(scope, name)
            if blob is not None:
                found.append(StoredRecord(f"{scope}/{name}", blob))
        head = storage.read_head(scope)
        if head is not None:
            found.append(StoredRecord(f"{scope}/{_HEAD}", head.data))
    return tuple(found)


def plant_core(storage: AtomicJournalStorage, records: Sequence[StoredRecord]) -> None:
    """Commit the heads and blobs of a fixture in an empty atomic storage.

    Args:
        storage: The storage.
        records: What `take_core` gave.

    Raises:
        FixtureError: The storage is not empty, or a scope has no head.
    """
    blobs: dict[str, dict[str, bytes]] = {}
    heads: dict[str, bytes] = {}
    for record in records:
        scope, _, name = record.name.rpartition("/")
        if name == _HEAD:
            heads[scope] = record.data
        else:
            blobs.setdefault(scope, {})[name] = record.data
    if blobs.keys() - heads.keys():
        raise FixtureError(f"scopes without a head: {sorted(blobs.keys() - heads.keys())}")
    for scope, head in heads.items():
        token: str | None = None
        new = list(blobs.get(scope, {}).items())
        for start in range(0, len(new) + 1, _BLOBS_AT_ONCE):
            answer = storage.commit(scope, token, head, dict(new[start : start + _BLOBS_AT_ONCE]))
            if isinstance(answer, CommitConflict):
                raise FixtureError(f"the storage holds {scope} already, or somebody writes beside the fixture")
            token = answer
