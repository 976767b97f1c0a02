"""Opening a root: where it is, that it is ours, and that the file system can do what the store promises (ATOM-7)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from statebook.errors import InvalidConfiguration, UnsupportedFormat
from statebook.ids import new_nonce
from statebook.model import FORMAT_VERSION
from statebook_backends.jsonfile.errors import Planted, opening
from statebook_backends.jsonfile.layout import BACKEND, LOCKS, MARKER, TEMP, agent_directory
from statebook_backends.jsonfile.locks import StripeLocks, exclusive_between_files
from statebook_backends.jsonfile.options import HOME_VARIABLE, JsonFileOptions
from statebook_backends.jsonfile.tree import Directory, Disk

_PATH_BYTES_MAX: Final = 2_048
_KIND: Final = "file-store"


class _Marker(msgspec.Struct, frozen=True):
    statebook: int
    kind: str


def root_path(options: JsonFileOptions, environ: Mapping[str, str]) -> str:
    """The root that options name: the URL's path, else `STATEBOOK_HOME`, else `~/.statebook/state`.

    Args:
        options: The options.
        environ: The environment.

    Returns:
        An absolute path without `.` and `..`, the agent's directory included. Nothing was looked at on the disk.

    Raises:
        InvalidConfiguration: It is not absolute, too long, or no path.
    """
    home = os.path.expanduser(os.path.join("~", ".statebook", "state"))
    path, source = options.path or environ.get(HOME_VARIABLE) or home, "path"
    if not options.path and environ.get(HOME_VARIABLE):
        source = HOME_VARIABLE
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidConfiguration(
            f"{source} must be an absolute path, not {path!r}; write file:///absolute/dir",
            option=source,
            backend=BACKEND,
        )
    path = os.path.normpath(path)
    if options.agent_id is not None:
        path = os.path.join(path, agent_directory(options.agent_id))
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        raise InvalidConfiguration(
            f"the path of the root is longer than {_PATH_BYTES_MAX} bytes; choose a shorter one",
            option=source,
            backend=BACKEND,
        )
    return path


def open_root(path: str, lock_timeout_s: float, disk: Disk) -> tuple[Directory, StripeLocks]:
    """Open a root; make it where there is none.

    Guarantees FORMAT-1: a directory that is not ours, or of another format, is refused and not changed. ATOM-7: a file
    system whose locks keep nobody out is refused. Many processes may do this at once.

    Args:
        path: The root.
        lock_timeout_s: How long to wait for a lock.
        disk: How writes reach the disk.

    Returns:
        The directory, and its locks.

    Raises:
        InvalidConfiguration: It cannot be used as it is.
        UnsupportedFormat: It was written by a release with another format.
        BackendUnavailable: The file system refused for now.
    """
    with opening(path):
        if os.path.islink(path):
            raise InvalidConfiguration(
                f"the root {path!r} is a symbolic link; give the real path: {os.path.realpath(path)!r}",
                option="path",
                backend=BACKEND,
            )
        _make_directories(path, disk)
        root = Directory(path, disk)
        marked = _check_marker(root, path)
        if not marked:
            _check_empty(root, path)
        directory = root.make_child(LOCKS)
        locks = StripeLocks(directory, lock_timeout_s, disk)
        if not marked:
            _write_marker(root, path, locks)
        probe = TEMP + new_nonce()
        if os.name != "nt" and not exclusive_between_files(directory, probe):
            raise InvalidConfiguration(
                f"locks on the file system of {path!r} keep no second opening out, as on network file systems; give a "
                "directory on a local disk",
                option="path",
                backend=BACKEND,
            )
        return root, locks


def _make_directories(path: str, disk: Disk) -> None:
    """Make a directory and those above it, each durable in the one above."""
    missing: list[str] = []
    above = path
    while not os.path.lexists(above) and os.path.dirname(above) != above:
        missing.append(above)
        above = os.path.dirname(above)
    for directory in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
    for directory in {os.path.dirname(made) for made in (*missing, path)}:
        # Another user's directory may be passable and not readable; then who made it has flushed it, or nobody can.
        with suppress(PermissionError):
            Directory(os.path.realpath(directory), disk).sync()


def _check_marker(root: Directory, path: str) -> bool:
    """Tell whether there is a marker of this format; refuse any other."""
    found = root.read(MARKER)
    if found is None:
        return False
    try:
        marker = msgspec.json.decode(found[0], type=_Marker)
    except msgspec.DecodeError as error:
        raise InvalidConfiguration(
            f"{MARKER} in {path!r} cannot be read: the directory is damaged or not statebook's; nothing was changed. "
            "Restore the file from a backup, or give another directory",
            option="path",
            backend=BACKEND,
        ) from error
    if (marker.statebook, marker.kind) != (FORMAT_VERSION, _KIND):
        raise UnsupportedFormat(
            f"the directory {path!r} has format {marker.kind} {marker.statebook}; this release reads {_KIND} "
            f"{FORMAT_VERSION}. Use a release that knows it; nothing was changed",
            what=MARKER,
            expected=f"{_KIND} {FORMAT_VERSION}",
            found=f"{marker.kind} {marker.statebook}",
            backend=BACKEND,
        )
    return True


def _check_empty(root: Directory, path: str) -> None:
    """Refuse a directory that holds what is not ours. Roots of agents may be in it before it is a root itself."""
    for name in root.names():
        if name in (MARKER, LOCKS) or name.startswith(TEMP) or _is_root(root, name):
            continue
        if root.has_file(MARKER):
            return
        raise InvalidConfiguration(
            f"the directory {path!r} holds {name!r} and no {MARKER}, so it is not statebook's; nothing was changed. "
            "Give an empty directory, or one that is not there yet",
            option="path",
            backend=BACKEND,
        )


def _is_root(root: Directory, name: str) -> bool:
    """Tell whether a directory is the root of an agent, or just about to become one."""
    try:
        inner = root.child(name)
        return inner is not None and _is_root_content(inner.names())
    except (OSError, Planted):
        return False


def _is_root_content(names: Iterable[str]) -> bool:
    held = set(names)
    return MARKER in held or all(name == LOCKS or name.startswith(TEMP) for name in held)


def _write_marker(root: Directory, path: str, locks: StripeLocks) -> None:
    with locks.held(0, MARKER):
        if _check_marker(root, path):
            return
        for name in root.names():
            if name.startswith(TEMP):
                root.remove(name)
        temporary = TEMP + new_nonce()
        root.write_new(temporary, msgspec.json.encode(_Marker(FORMAT_VERSION, _KIND)) + b"\n")
        root.rename(temporary, MARKER)
        root.sync()
