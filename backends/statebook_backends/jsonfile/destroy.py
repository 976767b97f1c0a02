"""Removing a namespace with everything in it, and nothing else."""

from __future__ import annotations

import os
from contextlib import ExitStack

from statebook.errors import BackendUnavailable
from statebook_backends.jsonfile.errors import Classified, Planted
from statebook_backends.jsonfile.layout import (
    BACKEND,
    BLOBS,
    HEAD,
    PENDING,
    STRIPES,
    TEMP,
    blob_name,
    namespace_directory,
    scope_part,
)
from statebook_backends.jsonfile.options import JsonFileOptions
from statebook_backends.jsonfile.root import open_root, root_path
from statebook_backends.jsonfile.store import disk_of
from statebook_backends.jsonfile.tree import Directory


def destroy_namespace(options: JsonFileOptions) -> None:
    """Remove the directory of a namespace, while no process writes below the root.

    Args:
        options: Root and namespace.

    Raises:
        InvalidConfiguration: The root cannot be used as it is.
        BackendUnavailable: Something is in the directory that is not statebook's, or the file system refused. What is
            statebook's may be gone; calling again is harmless.
    """
    path = root_path(options, os.environ)
    if not os.path.lexists(path):
        return
    root, locks = open_root(path, options.lock_timeout_s, disk_of(options))
    name = namespace_directory(options.namespace)
    with ExitStack() as held:
        held.enter_context(Classified(name, _nothing_to_poison, None))
        for number in range(STRIPES):
            held.enter_context(locks.held(number, name))
        inner = root.child(name)
        if inner is None:
            return
        _empty(inner)
        if not root.remove_child(name):
            raise BackendUnavailable(
                f"the directory {name!r} holds files that are not statebook's; move them away and call again",
                backend=BACKEND,
            )
        root.sync()


def _nothing_to_poison() -> None:
    """No store is open here."""


def _empty(directory: Directory) -> None:
    """Remove what is ours in a directory; as deep as scopes have components. Links are removed, not followed."""
    for name in directory.names():
        if name == BLOBS or scope_part(name) is not None:
            try:
                inner = directory.child(name)
            except Planted:
                directory.remove(name)
                continue
            if inner is not None:
                _empty(inner)
                directory.remove_child(name)
        elif name in (HEAD, PENDING) or name.startswith(TEMP) or blob_name(name) is not None:
            directory.remove(name)
