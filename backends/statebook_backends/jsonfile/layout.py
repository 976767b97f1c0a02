"""Where what stands below a root, and how a head file reads. Names only; no I/O.

    <root>/statebook.json                     the marker: this directory is a statebook root, and of which format
    <root>/statebook.locks/00 … 3f            lock files, never removed
    <root>/ns.<namespace>/k-…/k-…/            one directory a component of the scope
        head.json                             the head: one header line, then the bytes that were committed
        blobs/b-<name>                        the blobs, byte for byte
        tmp-<nonce>                           being written, or left by a crash
        pending                               while its owner may write it: the newest change here is perhaps not on
                                              the disk yet
    <root>/<agent>/                           a root of its own, for stores that are opened with agent_id

Components are prefixed, so that no scope meets a name of ours or a device name of Windows. Encoded names hold no dot,
so that no agent meets the other names in a root. All names are lower case.

There are 64 lock files for all scopes of a root, not one for each: a scope's lock is found by a checksum of its name.
Two scopes that share one wait for each other for the length of a commit, which is harmless; a lock file a scope would
never be removable, and would outlive millions of deleted scopes.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import Final

import msgspec

from statebook.atomic_record import SealedRecord
from statebook.codec import digest
from statebook.errors import DataError, InvalidKey, JournalCorrupt, StateCorrupt, UnsupportedFormat
from statebook.keys import encode_id
from statebook.model import FORMAT_VERSION

BACKEND: Final = "file"
"""The URL scheme, for errors."""

MARKER: Final = "statebook.json"
LOCKS: Final = "statebook.locks"
HEAD: Final = "head.json"
BLOBS: Final = "blobs"
COMPONENT: Final = "k-"
BLOB: Final = "b-"
TEMP: Final = "tmp-"
PENDING: Final = "pending"
STRIPES: Final = 64

_PART: Final = re.compile(r"[a-z0-9_-]{1,128}\Z", re.ASCII)
_SCOPE: Final = re.compile(r"[a-z0-9_-]{1,128}(?:/[a-z0-9_-]{1,128})*\Z", re.ASCII)
_SCOPE_CHARS_MAX: Final = 640
_BLOB_NAME: Final = re.compile(r"[a-z0-9-]{1,64}\Z", re.ASCII)
_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])\Z", re.ASCII)
_KIND: Final = "file-head"
_SEALED_KIND: Final = "file-record"
_HEADER_BYTES_MAX: Final = 512


# ------------------------------------------------------------------------------------------------------------- names


def namespace_directory(namespace: str) -> str:
    """The directory of a namespace."""
    return f"ns.{encode_id(namespace)}"


def agent_directory(agent_id: str) -> str:
    """The directory of an agent: its encoded name; an underscore before those that are devices on Windows.

    No encoded name begins with an underscore and a device's name, since two hex digits would have to follow.
    """
    name = encode_id(agent_id)
    return f"_{name}" if _DEVICES.match(name) else name


@lru_cache(maxsize=1_024)
def scope_directories(scope: str) -> tuple[str, ...]:
    """The directories of a scope below its namespace, outermost first.

    Raises:
        InvalidKey: It is no scope that core's encoder makes; nothing outside the root can be reached (ID-2).
    """
    if len(scope) > _SCOPE_CHARS_MAX or not _SCOPE.match(scope):
        raise InvalidKey("a scope is names of [a-z0-9_-] joined by '/', as core's encoder makes them", backend=BACKEND)
    return tuple(COMPONENT + part for part in scope.split("/"))


def scope_part(directory: str) -> str | None:
    """The component that a directory stands for, or None where it is none of ours."""
    part = directory[len(COMPONENT) :]
    return part if directory.startswith(COMPONENT) and _PART.match(part) else None


def blob_name(file: str) -> str | None:
    """The blob that a file holds, or None where it is none of ours."""
    name = file[len(BLOB) :]
    return name if file.startswith(BLOB) and _BLOB_NAME.match(name) else None


def blob_file(name: str) -> str:
    """The file of a blob in its directory.

    Raises:
        InvalidKey: The name is not of `[a-z0-9-]`, or too long.
    """
    if not _BLOB_NAME.match(name):
        raise InvalidKey("a blob's name is 1 to 64 characters of [a-z0-9-]", backend=BACKEND)
    return BLOB + name


def stripe(namespace: str, scope: str) -> int:
    """Which of the lock files guards a scope."""
    return zlib.crc32(f"{namespace}/{scope}".encode()) % STRIPES


# -------------------------------------------------------------------------------------------------------- head files


class HeadHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a head file.

    Attributes:
        statebook: The format version.
        kind: `file-head`; or `file-record` where a sealed record of core's follows.
        generation: Grows by one with each write of this file; starts again where it was removed.
        nonce: Fresh with each write: with the generation it is the token (ATOM-2).
        bytes: How many bytes follow the line.
        sha256: Their digest, in hex; of a sealed record that of its first line, which holds the digest of the rest.
    """

    statebook: int
    kind: str
    generation: int
    nonce: str
    bytes: int
    sha256: str

    @property
    def token(self) -> str:
        """The name of this write (ATOM-2)."""
        return f"{self.generation}-{self.nonce}"


class _Seal(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class _AnyFormat(msgspec.Struct, frozen=True):
    statebook: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HeadHeader)
_seal_decoder = msgspec.json.Decoder(_Seal)
_any_decoder = msgspec.json.Decoder(_AnyFormat)


def encode_head(generation: int, nonce: str, head: bytes) -> tuple[HeadHeader, bytes]:
    """The header and the whole content of a head file."""
    if type(head) is SealedRecord:
        kind, covered = _SEALED_KIND, _first_line(head)
    else:
        kind, covered = _KIND, head
    header = HeadHeader(FORMAT_VERSION, kind, generation, nonce, len(head), digest(covered))
    return header, _encoder.encode(header) + b"\n" + head


def split_head(content: bytes, size: int, scope: str) -> tuple[HeadHeader, int]:
    """Read the header line of a head file, and hold it against the file's size.

    Guarantees FORMAT-1: an empty, cut, glued or foreign file is an error, never an absent head.

    Args:
        content: The file, or its start of at least 512 bytes.
        size: The size of the whole file.
        scope: For errors.

    Returns:
        The header, and where the head begins.

    Raises:
        UnsupportedFormat: It is of another format version.
        DataError: `JournalCorrupt` or `StateCorrupt`, by scope: it is damaged.
    """
    end = content.find(b"\n", 0, _HEADER_BYTES_MAX)
    line = content[: max(end, 0)]
    try:
        header = _decoder.decode(line)
    except msgspec.DecodeError as cause:
        _refuse_other_format(line, scope)
        raise damaged(scope, "a readable header line", repr(content[:40])) from cause
    if header.statebook != FORMAT_VERSION:
        _refuse_other_format(line, scope)
    if header.kind not in (_KIND, _SEALED_KIND):
        raise damaged(scope, _KIND, header.kind)
    if size != end + 1 + header.bytes:
        raise damaged(scope, f"{end + 1 + header.bytes} bytes", f"{size} bytes")
    return header, end + 1


def _refuse_other_format(line: bytes, scope: str) -> None:
    try:
        version = _any_decoder.decode(line).statebook
    except msgspec.DecodeError:
        return
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the head file has format {version}; this release reads format {FORMAT_VERSION}. Use a release that knows "
            "it; nothing was changed",
            what=HEAD,
            expected=str(FORMAT_VERSION),
            found=str(version),
            key=scope,
            backend=BACKEND,
        )


def open_head(content: bytes, scope: str) -> tuple[HeadHeader, bytes]:
    """Read a whole head file (FORMAT-1); raises as `split_head`, and where the digest does not match."""
    header, start = split_head(content, len(content), scope)
    head = content[start:]
    covered = head if header.kind == _KIND else _first_line(head)
    found = digest(covered)
    if found != header.sha256:
        raise damaged(scope, header.sha256, found)
    if header.kind == _SEALED_KIND:
        _check_rest(covered, head[len(covered) :], scope)
    return header, head


def _first_line(head: bytes) -> bytes:
    """The first line of a sealed record, with its line break; all of it where there is none."""
    return head[: head.find(b"\n") + 1] or bytes(head)


def _check_rest(line: bytes, rest: bytes, scope: str) -> None:
    """Hold what follows the first line of a sealed record against that line, which has been verified."""
    try:
        seal = _seal_decoder.decode(line)
    except msgspec.DecodeError as cause:
        raise damaged(scope, "a sealed record", repr(line[:40])) from cause
    found = digest(rest)
    if (seal.bytes, seal.sha256) != (len(rest), found):
        raise damaged(scope, f"{seal.bytes} bytes with digest {seal.sha256}", f"{len(rest)} bytes with {found}")


def damaged(scope: str, expected: str, found: str, what: str = HEAD) -> DataError:
    """The error for a damaged file of a scope: of a state slot, or of a journal or cursor."""
    cls = StateCorrupt if scope.startswith(("d/", "l/")) else JournalCorrupt
    return cls(
        f"the file {what} is damaged or not statebook's; nothing was changed",
        what=what,
        expected=expected,
        found=found,
        key=scope,
        backend=BACKEND,
    )
