"""A conditional writer for fsspec's `memory` file system, and the backend that it makes: what an author would write."""

import threading
import uuid
from typing import Any, ClassVar

from statebook import AtomicJournalStorage, hookimpl
from statebook.options import BackendOptions
from statebook.plugins import Backend
from statebook_backends.s3.objects import FileSystem, FsspecObjects
from statebook_backends.s3.opening import open_object_storage
from statebook_backends.s3.writers import (
    LOST,
    UNCHANGED,
    ConditionalWriters,
    Found,
    Lost,
    ObjectEngine,
    Unchanged,
)

_LOCK = threading.Lock()
_VERSIONS: dict[str, str] = {}


class MemoryWriter:
    """Versions beside the objects, under one lock: all handles of this process share the file system's store."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    def read(self, path: str, known: str | None = None) -> Found | Unchanged | None:
        with _LOCK:
            version = self._version(path)
            if version is None:
                return None
            return UNCHANGED if version == known else Found(self._filesystem.cat_file(path), version)

    def write(self, path: str, data: bytes, expected: str | None) -> str | Lost:
        with _LOCK:
            if self._version(path) != expected:
                return LOST
            self._filesystem.pipe_file(path, data)
            _VERSIONS[path] = uuid.uuid4().hex
            return _VERSIONS[path]

    def remove(self, path: str, expected: str) -> bool:
        with _LOCK:
            if self._version(path) != expected:
                return False
            self._filesystem.rm_file(path)
            del _VERSIONS[path]
            return True

    def _version(self, path: str) -> str | None:
        """Objects that were deleted through fsspec have none any more."""
        store: Any = self._filesystem
        if not store.exists(path):
            _VERSIONS.pop(path, None)
        return _VERSIONS.get(path)


def memory_engine(filesystem: FileSystem) -> ObjectEngine:
    return ObjectEngine(MemoryWriter(filesystem), FsspecObjects(filesystem))


WRITERS = ConditionalWriters.installed().adding("memory", memory_engine)


class MemoryObjectOptions(BackendOptions):
    scheme: ClassVar[str] = "objects"


class Plugin:
    """The plugin's hooks."""

    @hookimpl
    def statebook_open_atomic(self, options: BackendOptions) -> AtomicJournalStorage:
        return open_object_storage("memory", "/statebook", namespace=options.namespace, writers=WRITERS)

    @hookimpl
    def statebook_destroy_namespace(self, options: BackendOptions) -> bool:
        import fsspec

        filesystem = fsspec.filesystem("memory")
        directory = f"/statebook/{options.namespace}"
        if filesystem.exists(directory):
            filesystem.rm(directory, recursive=True)
        return True


def open_backend(namespace: str) -> Backend:
    return Backend("objects", Plugin(), MemoryObjectOptions(namespace=namespace))
