"""AtomicJournalStorage over one append-only file a namespace.

Each line is one commit or one delete: a checksum, then JSON. Every call reads what others have written behind its own
position, and answers from memory. Reads take no lock, so that nothing blocks them (CLAIM-7). A commit takes the file's
lock, decides and appends under it, so that decision and write are one step (ATOM-1). A line that a crash has cut is no
commit: readers pass over it, the next writer cuts it off. A whole line with a wrong checksum is damage.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from statebook import (
    COMMIT_CONFLICT,
    AtomicJournalStorage,
    BackendUnavailable,
    Capabilities,
    CommitConflict,
    Durability,
    Feature,
    HeadRecord,
    InvalidConfiguration,
    JournalCorrupt,
    Limits,
    NamePage,
    Sharing,
    StoreClosed,
    encode_id,
    new_nonce,
)
from statebook.model import check_page
from statebook_shelf.options import ShelfOptions


class ShelfAtomicJournalStorage(AtomicJournalStorage):
    """One shelf, shared by all processes of a machine that open the same directory."""

    def __init__(self, options: ShelfOptions) -> None:
        """Open the file, and make it where it is absent.

        Raises:
            InvalidConfiguration: The directory cannot be made or the file cannot be opened.
        """
        self._lock = threading.Lock()
        self._heads: dict[str, HeadRecord] = {}
        self._blobs: dict[str, dict[str, bytes]] = {}
        self._position = 0
        self._file = -1
        path = _path(options)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidConfiguration(
                f"{path.parent} cannot be used: {error.strerror}; name a directory that can be written",
                option="directory",
                backend="shelf",
            ) from error

    @property
    def capabilities(self) -> Capabilities:
        """What a shelf promises: what the file has survives the process, but not a loss of power."""
        return Capabilities(
            backend="shelf",
            durability=Durability.PROCESS,
            durability_setting="one write to the file a commit, no fsync",
            sharing=Sharing.HOST,
            features=frozenset({Feature.PURGE}),
            limits=Limits(value_bytes_max=4 << 20, list_bytes_max=16 << 20, batch_bytes_max=8 << 20),
        )

    def read_head(self, scope: str) -> HeadRecord | None:
        """Answer from memory, after reading what others have written."""
        with self._reading():
            return self._heads.get(scope)

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        """Decide and append under one lock: head and blobs are one line."""
        with self._writing():
            current = self._heads.get(scope)
            if (None if current is None else current.token) != expected:
                return COMMIT_CONFLICT
            new = dict(blobs or {})
            there = self._blobs.get(scope, {})
            if any(there.get(name, data) != data for name, data in new.items()):
                raise JournalCorrupt("a blob of this name has other content", what="blob", key=scope, backend="shelf")
            token = new_nonce()
            self._append(
                {
                    "scope": scope,
                    "token": token,
                    "head": _text(head),
                    "blobs": {name: _text(data) for name, data in new.items()},
                }
            )
            return token

    def read_blob(self, scope: str, name: str) -> bytes | None:
        """Answer from memory, after reading what others have written."""
        with self._reading():
            return self._blobs.get(scope, {}).get(name)

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        """A page of blob names."""
        check_page(limit)
        with self._reading():
            return _page(sorted(self._blobs.get(scope, {})), after, limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        """Append one line that deletes them."""
        with self._writing():
            self._append({"scope": scope, "gone": list(names)})

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        """A page of scopes."""
        check_page(limit)
        with self._reading():
            return _page(sorted(scope for scope in self._heads if scope.startswith(prefix)), after, limit)

    def delete_head(self, scope: str, expected: str) -> bool:
        """Append one line that removes the head."""
        with self._writing():
            current = self._heads.get(scope)
            if current is None or current.token != expected:
                return False
            self._append({"scope": scope, "token": None})
            return True

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Hold the lock among threads, with everything read that is in the file."""
        with self._lock:
            if self._file < 0:
                raise StoreClosed("this shelf is closed", backend="shelf")
            self._catch_up()
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock among processes too, with the file cut behind its last whole line."""
        with self._reading():
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._catch_up()
                if os.fstat(self._file).st_size > self._position:
                    os.ftruncate(self._file, self._position)
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        size = os.fstat(self._file).st_size
        if size < self._position:
            self._heads.clear()
            self._blobs.clear()
            self._position = 0
        data = os.pread(self._file, size - self._position, self._position)
        for line in data.splitlines(keepends=True):
            if line.endswith(b"\n"):
                self._apply(line)
                self._position += len(line)

    def _apply(self, line: bytes) -> None:
        checksum, _, text = line.rstrip(b"\n").partition(b" ")
        if checksum != b"%08x" % zlib.crc32(text):
            raise JournalCorrupt(
                "a line of the shelf is damaged", what="line", key=str(self._position), backend="shelf"
            )
        entry = json.loads(text)
        scope = entry["scope"]
        if "gone" in entry:
            for name in entry["gone"]:
                self._blobs.get(scope, {}).pop(name, None)
        elif entry["token"] is None:
            self._heads.pop(scope, None)
        else:
            self._heads[scope] = HeadRecord(base64.b64decode(entry["head"]), entry["token"])
            self._blobs.setdefault(scope, {}).update(
                {name: base64.b64decode(data) for name, data in entry["blobs"].items()}
            )

    def _append(self, entry: Mapping[str, object]) -> None:
        text = json.dumps(entry, separators=(",", ":")).encode()
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        try:
            if os.pwrite(self._file, line, self._position) != len(line):
                raise OSError("the file could not take the whole line")
        except OSError as error:
            os.ftruncate(self._file, self._position)
            raise BackendUnavailable(f"nothing was written: {error}", backend="shelf") from error
        self._apply(line)
        self._position += len(line)


def destroy(options: ShelfOptions) -> None:
    """Empty the file of a namespace, under its lock."""
    path = _path(options)
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file, 0)
        path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _path(options: ShelfOptions) -> Path:
    return options.directory / f"{encode_id(options.namespace)}.shelf"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _page(names: Sequence[str], after: str | None, limit: int) -> NamePage:
    behind = [name for name in names if after is None or name > after]
    return NamePage(tuple(behind[:limit]), len(behind) > limit)
