"""How a head object reads: one header line of this backend, then the bytes that were committed.

An object store names a version by a digest of its content, so that equal bytes have equal names. The header holds a
fresh nonce and a growing count, so that no two writes are equal and a version names a write (ATOM-2).
"""

from __future__ import annotations

from typing import Final

import msgspec

from statebook.codec import digest
from statebook.errors import DataError, JournalCorrupt, StateCorrupt, UnsupportedFormat
from statebook.model import FORMAT_VERSION
from statebook_backends.s3.names import BACKEND

_KIND: Final = "object-head"
_HEADER_BYTES_MAX: Final = 1_024


class HeadHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a head object.

    Attributes:
        statebook: The format version.
        kind: `object-head`.
        count: Grows by one with each write; starts again where the head was removed.
        nonce: Fresh with each write.
        previous: The nonce of the write that this one replaced, or empty: tells a writer whose reply was lost that its
            write landed, even when it has been followed already.
        sha256: The digest of all that and of the bytes behind the line.
    """

    statebook: int
    kind: str
    count: int
    nonce: str
    previous: str
    sha256: str


class Token(msgspec.Struct, frozen=True):
    """The name of a write of a head (ATOM-2), with what it takes to replace it.

    Attributes:
        count: The head's count.
        nonce: The head's nonce.
        version: The store's own name for that version of the object, such as its ETag; empty where it is not known.
    """

    count: int
    nonce: str
    version: str

    @property
    def text(self) -> str:
        """The token as core keeps it."""
        return f"{self.count}:{self.nonce}:{self.version}"

    @classmethod
    def parse(cls, text: str) -> Token | None:
        """Read a token; None where it is none of ours, which then names no write at all."""
        count, _, rest = text.partition(":")
        nonce, colon, version = rest.partition(":")
        return cls(int(count), nonce, version) if count.isdecimal() and nonce and colon else None


class StoredHead(msgspec.Struct, frozen=True):
    """A head as it was read: its header, its token and its bytes."""

    header: HeadHeader
    token: Token
    data: bytes


class _AnyFormat(msgspec.Struct, frozen=True):
    statebook: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HeadHeader)
_any_decoder = msgspec.json.Decoder(_AnyFormat)


def encode_head(basis: Token | None, nonce: str, head: bytes) -> tuple[HeadHeader, bytes]:
    """The header and the whole content of a head object.

    Args:
        basis: The head that it is to replace, or None.
        nonce: Fresh randomness.
        head: The bytes to commit.

    Returns:
        Both.
    """
    count, previous = (1, "") if basis is None else (basis.count + 1, basis.nonce)
    header = HeadHeader(FORMAT_VERSION, _KIND, count, nonce, previous, _digest(count, nonce, previous, head))
    return header, b"".join([_encoder.encode(header), b"\n", head])


def decode_head(content: bytes, version: str, scope: str) -> StoredHead:
    """Read a head object.

    Guarantees FORMAT-1: an empty, cut, changed or foreign object is an error, never an absent head.

    Args:
        content: The object.
        version: The store's name for this version of it.
        scope: For errors.

    Returns:
        What it holds.

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
        raise damaged(scope, "head", "a readable header line", repr(content[:40])) from cause
    if header.statebook != FORMAT_VERSION:
        _refuse_other_format(line, scope)
    if header.kind != _KIND:
        raise damaged(scope, "head", _KIND, header.kind)
    head = content[end + 1 :]
    found = _digest(header.count, header.nonce, header.previous, head)
    if found != header.sha256:
        raise damaged(scope, "head", header.sha256, found)
    return StoredHead(header, Token(header.count, header.nonce, version), head)


def damaged(scope: str, what: str, expected: str, found: str) -> DataError:
    """The error for a damaged object of a scope: of a state slot, or of a journal or cursor."""
    cls = StateCorrupt if scope.startswith(("d/", "l/")) else JournalCorrupt
    return cls(
        f"the object of a {what} is damaged or not statebook's; nothing was changed",
        what=what,
        expected=expected,
        found=found,
        key=scope,
        backend=BACKEND,
    )


def _digest(count: int, nonce: str, previous: str, head: bytes) -> str:
    return digest(b"".join([f"{count}:{nonce}:{previous}\n".encode(), head]))


def _refuse_other_format(line: bytes, scope: str) -> None:
    try:
        version = _any_decoder.decode(line).statebook
    except msgspec.DecodeError:
        return
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the head object has format {version}; this release reads format {FORMAT_VERSION}. Use a release that "
            "knows it; nothing was changed",
            what="head",
            expected=str(FORMAT_VERSION),
            found=str(version),
            key=scope,
            backend=BACKEND,
        )
