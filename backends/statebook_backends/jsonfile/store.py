"""AtomicJournalStorage in a directory."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from threading import Lock
from typing import Final

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities, Durability, Feature, Limits, Sharing
from statebook.errors import BackendUnavailable, JournalCorrupt, OutcomeUnknown, StoreClosed
from statebook.ids import new_local_nonce
from statebook.model import check_page
from statebook_backends.jsonfile.errors import Classified, Planted, Unsettled
from statebook_backends.jsonfile.layout import (
    BACKEND,
    BLOB,
    BLOBS,
    HEAD,
    PENDING,
    TEMP,
    HeadHeader,
    blob_file,
    blob_name,
    encode_head,
    namespace_directory,
    open_head,
    scope_directories,
    split_head,
    stripe,
)
from statebook_backends.jsonfile.listing import scopes_in
from statebook_backends.jsonfile.locks import StripeLocks
from statebook_backends.jsonfile.options import JsonFileOptions
from statebook_backends.jsonfile.root import open_root, root_path
from statebook_backends.jsonfile.tree import Directory, Disk, File

_LIMITS: Final = Limits()
_RECORD_BYTES_MAX: Final = _LIMITS.list_bytes_max
_HEADER_READ: Final = 512
_DIRECTORIES_MAX: Final = 128
"""How many directories of scopes are kept open."""
_HEADS_MAX: Final = 64
"""How many heads that were written here, and marks beside them, are kept open."""
_COMMITS_AT_ONCE: Final = 8
_WALKS_MAX: Final = 64
"""How often a walk begins again because another process removed an empty directory under it."""


def _capabilities(durability: str) -> Capabilities:
    flushed = durability == "host"
    return Capabilities(
        backend=BACKEND,
        durability=Durability.HOST if flushed else Durability.PROCESS,
        durability_setting="fsync" if flushed else "no fsync",
        sharing=Sharing.HOST,
        features=frozenset({Feature.PURGE}),
        limits=_LIMITS,
    )


class _Opened:
    """What belongs to one process: descriptors and locks. A forked child makes its own.

    Attributes:
        scopes: The directories that were used last.
        heads: The heads that were written last in those of `scopes`, each with its header.
    """

    def __init__(self, root: Directory, locks: StripeLocks) -> None:
        self.pid = os.getpid()
        self.root = root
        self.locks = locks
        self.lock = Lock()
        self.scopes: OrderedDict[str, Directory] = OrderedDict()
        self.heads: OrderedDict[str, tuple[File, HeadHeader]] = OrderedDict()

    def get(self, scope: str) -> Directory | None:
        with self.lock:
            found = self.scopes.get(scope)
            if found is not None:
                self.scopes.move_to_end(scope)
            return found

    def put(self, scope: str, directory: Directory) -> None:
        with self.lock:
            self.scopes[scope] = directory
            self.scopes.move_to_end(scope)
            while len(self.scopes) > _DIRECTORIES_MAX:
                gone, _ = self.scopes.popitem(last=False)
                self.heads.pop(gone, None)

    def drop(self, scope: str) -> None:
        with self.lock:
            self.scopes.pop(scope, None)
            self.heads.pop(scope, None)

    def keep(self, scope: str, head: File, header: HeadHeader) -> None:
        with self.lock:
            if scope not in self.scopes:
                return
            self.heads[scope] = head, header
            if len(self.heads) > _HEADS_MAX:
                gone, _ = self.heads.popitem(last=False)
                self.scopes[gone].forget_marks()

    def take(self, scope: str) -> tuple[File, HeadHeader] | None:
        """The head that was written here last, no longer kept, with its header; called under the scope's lock."""
        return self.heads.pop(scope, None)


class JsonFileAtomicJournalStorage(AtomicJournalStorage):
    """One directory a scope; the head is replaced by a rename, under a lock between processes (ATOM-1, ATOM-5)."""

    def __init__(
        self, options: JsonFileOptions, *, new_nonce: Callable[[], str] = new_local_nonce, disk: Disk | None = None
    ) -> None:
        """Open the storage; make the root where there is none.

        Args:
            options: Root, namespace, durability.
            new_nonce: Where tokens and temporary names come from.
            disk: How writes reach the disk; None: as the options say.

        Raises:
            InvalidConfiguration: The root cannot be used as it is.
            UnsupportedFormat: The root is of another format version.
            BackendUnavailable: The file system refused for now.
        """
        self._options = options
        self._new_nonce = new_nonce
        self._disk = disk or disk_of(options)
        self._capabilities = _capabilities(options.durability)
        self._path = root_path(options, os.environ)
        self._namespace = namespace_directory(options.namespace)
        self._closed = False
        self._poisoned = False
        self._opened: _Opened | None = self._open()

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def commits_at_once(self) -> int:
        """Commits that wait for the disk at once share its flushes; without flushes there is nothing to wait for."""
        return 1 if self._disk.fsync is None else _COMMITS_AT_ONCE

    # ------------------------------------------------------------------------------------------------------- reading

    def read_head(self, scope: str) -> HeadRecord | None:
        directories = scope_directories(scope)
        with self._call(scope) as opened:
            directory, content = self._read(opened, scope, directories, HEAD)
            if directory is not None:
                self._settle(directory)
            if content is None:
                return None
            header, head = open_head(content, scope)
            return HeadRecord(head, header.token)

    def read_blob(self, scope: str, name: str) -> bytes | None:
        directories, file = (*scope_directories(scope), BLOBS), blob_file(name)
        with self._call(scope) as opened:
            # Nothing is to be settled: a blob was flushed before any head that names it was seen (ATOM-3).
            return self._read(opened, _blobs_place(scope), directories, file)[1]

    def _read(
        self, opened: _Opened, place: str, directories: Sequence[str], file: str
    ) -> tuple[Directory | None, bytes | None]:
        """Read a file, first in the directory that is kept open.

        Where it is not there, the directory may have been removed and made anew since: then it is walked to again.
        Only empty directories are ever removed, so what is found in a kept one is what is there (ATOM-5).

        Returns:
            The directory and the file's content, each None where it is not there.
        """
        directory = opened.get(place)
        found = None if directory is None else directory.read(file)
        if directory is None or found is None:
            directory = self._walk(opened, directories)
            if directory is None:
                opened.drop(place)
                return None, None
            opened.put(place, directory)
            found = directory.read(file)
        return directory, None if found is None else found[0]

    def _settle(self, directory: Directory) -> None:
        """See to it that what was just read is durable (DUR): a crash must not take back what a reader has seen.

        A change is seen as soon as it is renamed, and durable only when the directory is flushed. In between a mark
        says so; a reader that meets it, or the one of a writer that was killed, flushes the directory itself.
        """
        if self._disk.fsync is not None and directory.has_mark(PENDING):
            try:
                directory.sync()
            except Unsettled as error:
                raise BackendUnavailable(
                    "the newest change cannot be flushed to the disk, so it cannot be shown; try again", backend=BACKEND
                ) from error.__cause__

    def _walk(self, opened: _Opened, directories: Sequence[str]) -> Directory | None:
        at: Directory | None = opened.root.child(self._namespace)
        for name in directories:
            if at is None:
                return None
            at = at.child(name)
        return at

    # ------------------------------------------------------------------------------------------------------- writing

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        directories = scope_directories(scope)
        files = {blob_file(name): content for name, content in blobs.items()} if blobs else None
        for record in (head, *files.values()) if files else (head,):
            if len(record) > _RECORD_BYTES_MAX:
                _LIMITS.check("list_bytes_max", len(record), scope)
        with self._call(scope) as opened, self._locked(opened, scope):
            directory, current, is_mine = opened.get(scope), None, False
            # Open as long as this call lasts: what it takes to free the file is not done by the rename, under the lock.
            written = opened.take(scope)
            if directory is not None:
                is_mine = written is not None and directory.holds(HEAD, written[0])
                current = written[1] if written is not None and is_mine else _header(directory, scope)
            if directory is None or current is None:
                directory = self._make(opened, directories) if expected is None else self._walk(opened, directories)
                if directory is None:
                    return COMMIT_CONFLICT
                opened.put(scope, directory)
                opened.drop(_blobs_place(scope))
                current = _header(directory, scope)
            if not directory.prepared:
                _sweep(directory)
                directory.prepared = True
            if (None if current is None else current.token) != expected:
                return COMMIT_CONFLICT
            if files:
                self._write_blobs(opened, directory, scope, files)
            header, content = encode_head(1 if current is None else current.generation + 1, self._new_nonce(), head)
            temporary = TEMP + header.nonce
            self._announce(directory, is_mine=is_mine)
            file = directory.write_new(temporary, content)
            directory.rename(temporary, HEAD)
            directory.sync()
            self._settled(directory)
            if file is not None:
                opened.keep(scope, file, header)
            return header.token

    def _announce(self, directory: Directory, *, is_mine: bool = False) -> None:
        """Say that the head is about to change: until it is flushed, readers can tell that (see `_settle`).

        Where the change fails, the mark stays: it does no harm, and an earlier writer may have left it.

        Args:
            directory: The directory of the scope.
            is_mine: Whether the head is the one that was written here last. Then the mark is still there as well: it is
                removed only where the head was removed or replaced.
        """
        if self._disk.fsync is not None:
            directory.set_mark(PENDING, is_there=is_mine)

    def _settled(self, directory: Directory) -> None:
        if self._disk.fsync is not None:
            try:
                directory.clear_mark(PENDING)
            except (OSError, Unsettled):
                return

    def _make(self, opened: _Opened, directories: Sequence[str]) -> Directory:
        for _ in range(_WALKS_MAX):
            try:
                at = opened.root.make_child(self._namespace)
                for name in directories:
                    at = at.make_child(name)
            except FileNotFoundError:
                continue
            return at
        raise BackendUnavailable(
            "other processes kept removing the directories of this scope; nothing was applied, try again",
            backend=BACKEND,
        )

    def _write_blobs(self, opened: _Opened, directory: Directory, scope: str, files: Mapping[str, bytes]) -> None:
        """Write blobs, durable before the head that names them is (ATOM-3, ATOM-4)."""
        inner = opened.get(_blobs_place(scope))
        if inner is None or not inner.prepared:
            inner = directory.make_child(BLOBS)
            _sweep(inner)
            inner.prepared = True
            opened.put(_blobs_place(scope), inner)
        for file, content in files.items():
            there = inner.read(file)
            if there is None:
                temporary = TEMP + self._new_nonce()
                inner.write_new(temporary, content)
                inner.rename(temporary, file)
            elif there[0] != content:
                raise JournalCorrupt(
                    f"blob {file[len(BLOB) :]!r} is there with other content; blobs are never replaced",
                    what="blob",
                    key=scope,
                    backend=BACKEND,
                )
        inner.sync()

    def delete_head(self, scope: str, expected: str) -> bool:
        directories = scope_directories(scope)
        with self._call(scope) as opened, self._locked(opened, scope):
            directory = self._walk(opened, directories)
            current = None if directory is None else _header(directory, scope)
            if directory is None or current is None or current.token != expected:
                return False
            self._announce(directory)
            directory.remove(HEAD)
            directory.sync()
            with suppress(OSError, Unsettled):
                directory.remove_mark(PENDING)
            opened.drop(scope)
            opened.drop(_blobs_place(scope))
            _sweep(directory)
            with suppress(OSError, Planted):
                self._prune(opened, directories)
            return True

    def _prune(self, opened: _Opened, directories: Sequence[str]) -> None:
        """Remove the directories of a scope that are empty now, so that a purge leaves no ids behind."""
        path = [opened.root.child(self._namespace)]
        for name in directories:
            last = path[-1]
            path.append(None if last is None else last.child(name))
        leaf = path.pop()
        if leaf is not None:
            leaf.remove_child(BLOBS)
        for parent, name in zip(reversed(path), reversed(directories), strict=True):
            if parent is None or not parent.remove_child(name):
                return

    # ------------------------------------------------------------------------------------------------------- listing

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        directories = (*scope_directories(scope), BLOBS)
        with self._call(scope) as opened:
            directory = self._walk(opened, directories)
            found = [] if directory is None else directory.names()
        names = sorted(name for file in found if (name := blob_name(file)) is not None)
        later = [name for name in names if after is None or name > after]
        return NamePage(tuple(later[:limit]), len(later) > limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        directories = (*scope_directories(scope), BLOBS)
        files = [blob_file(name) for name in names]
        with self._call(scope) as opened, self._locked(opened, scope):
            directory = self._walk(opened, directories)
            if directory is None:
                return
            _sweep(directory)
            deleted = 0
            try:
                for file in files:
                    deleted += directory.remove(file)
            except OSError as error:
                if deleted == 0:
                    raise
                raise OutcomeUnknown(
                    f"{deleted} of {len(files)} blobs were deleted, then the file system refused "
                    f"({error.strerror or error}); calling again is harmless",
                    key=scope,
                    backend=BACKEND,
                ) from error
            directory.sync()

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        if prefix and not prefix.endswith("/"):
            raise ValueError(f"a prefix of scopes is empty or ends with '/', unlike {prefix!r}")
        directories = scope_directories(prefix[:-1]) if prefix else ()
        with self._call(prefix or None) as opened:
            return NamePage(*scopes_in(self._walk(opened, directories), prefix, after, limit))

    # ------------------------------------------------------------------------------------------------------- opening

    def close(self) -> None:
        self._closed = True
        opened, self._opened = self._opened, None
        if opened is not None:
            with opened.lock:
                opened.scopes.clear()

    def _open(self) -> _Opened:
        return _Opened(*open_root(self._path, self._options.lock_timeout_s, self._disk))

    def _call(self, about: str | None) -> Classified[_Opened]:
        """Begin a call: refuse a closed or poisoned store, leave a parent's descriptors alone, classify errors."""
        opened = self._opened
        if self._closed or opened is None:
            raise StoreClosed("this file store is closed; open it again", backend=BACKEND)
        if self._poisoned:
            raise BackendUnavailable(
                "an earlier write failed so that nobody knows what is on the disk; reopen the store and read again",
                key=about,
                backend=BACKEND,
            )
        if opened.pid != os.getpid():
            opened = self._opened = self._open()
        return Classified(about or self._namespace, self._poison, opened)

    def _locked(self, opened: _Opened, scope: str) -> AbstractContextManager[None]:
        return opened.locks.held(stripe(self._namespace, scope), scope)

    def _poison(self) -> None:
        self._poisoned = True


def disk_of(options: JsonFileOptions) -> Disk:
    """How writes reach the disk by the options."""
    return Disk() if options.durability == "host" else Disk(fsync=None)


def _header(directory: Directory, scope: str) -> HeadHeader | None:
    """The header of the head file, or None where there is none; the head itself is not read."""
    found = directory.read(HEAD, _HEADER_READ)
    return None if found is None else split_head(found[0], found[1], scope)[0]


def _blobs_place(scope: str) -> str:
    """Under which name the directory of a scope's blobs is kept open; no scope ends like this."""
    return f"{scope}/{BLOBS}/"


def _sweep(directory: Directory) -> None:
    """Remove what crashed writers left in a directory; called under the scope's lock.

    Nobody else writes there as long as the lock is held, so every temporary file is a leftover.
    """
    for name in directory.names():
        if name.startswith(TEMP):
            directory.remove(name)
