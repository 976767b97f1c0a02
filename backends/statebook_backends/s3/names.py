"""Where what stands below a bucket and prefix. Names only; no I/O.

    <prefix>/<namespace>/heads/<scope>!head           the head of a scope: one header line, then what was committed
    <prefix>/<namespace>/blobs/<scope>!/<name>        its blobs, byte for byte
    <prefix>/probe!/<nonce>/…                         the probe's, while a store is opened

Encoded names hold no `!`, so that no scope can reach another one's head or blobs, and none is both an object and the
start of others, which stores that keep directories cannot hold. `!` sorts before everything a scope is made of: in
byte order the keys of heads come in the order of their scopes, whatever these are. Blobs stand apart, so that a listing
of scopes does not walk over them.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from statebook.errors import InvalidConfiguration, InvalidKey
from statebook.keys import encode_id

BACKEND: Final = "s3"
"""The URL scheme, for errors."""

KEY_BYTES_MAX: Final = 1_024
"""The longest key that S3 takes."""

SCOPE_CHARS_MAX: Final = 640
BLOB_CHARS_MAX: Final = 64

_HEAD: Final = "!head"
_BLOBS: Final = "!/"
_SCOPE: Final = re.compile(r"[a-z0-9_-]{1,128}(?:/[a-z0-9_-]{1,128})*\Z", re.ASCII)
_BLOB_NAME: Final = re.compile(r"[a-z0-9-]{1,64}\Z", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class Layout(msgspec.Struct, frozen=True):
    """The names of one namespace.

    Attributes:
        base: The bucket, and the prefix in it.
        root: Where the namespace begins; without a `/` at its end.
    """

    base: str
    root: str

    @classmethod
    def below(cls, base: str, namespace: str) -> Layout:
        """Lay a namespace out.

        Args:
            base: A path of the file system: `bucket/prefix`, or any other directory.
            namespace: The namespace.

        Returns:
            The layout.

        Raises:
            InvalidConfiguration: The prefix cannot be part of a key, or leaves no room for the longest one.
        """
        parts = base.removeprefix("/").split("/")
        if any(part in ("", ".", "..") for part in parts) or _CONTROL.search(base):
            raise InvalidConfiguration(
                "a prefix is made of parts joined by '/', none of which is empty, '.' or '..'",
                option="prefix",
                backend=BACKEND,
            )
        try:
            inside = "/".join(parts[1:]).encode()
        except UnicodeEncodeError:
            raise InvalidConfiguration(
                "the prefix holds a lone surrogate, which is no text", option="prefix", backend=BACKEND
            ) from None
        made = cls(base, f"{base}/{encode_id(namespace)}")
        longest = len(inside) + 1 + len(encode_id(namespace)) + len("/blobs/!/") + SCOPE_CHARS_MAX + BLOB_CHARS_MAX
        if longest > KEY_BYTES_MAX:
            raise InvalidConfiguration(
                f"prefix and namespace leave too little room: the longest key would have {longest} bytes, and S3 takes "
                f"{KEY_BYTES_MAX}; shorten the prefix by {longest - KEY_BYTES_MAX}",
                option="prefix",
                backend=BACKEND,
            )
        return made

    @property
    def heads(self) -> str:
        """The directory of all heads, with a `/` at its end."""
        return f"{self.root}/heads/"

    @property
    def probes(self) -> str:
        """The directory of the probe."""
        return f"{self.base}/probe!/"

    def head(self, scope: str) -> str:
        """The object of a scope's head.

        Raises:
            InvalidKey: It is no scope that core's encoder makes (ID-2).
        """
        return f"{self.heads}{_checked(scope)}{_HEAD}"

    def scope(self, path: str) -> str | None:
        """The scope whose head an object is, or None where it is none of ours."""
        name = path.removeprefix(self.heads)
        scope = name.removesuffix(_HEAD)
        return scope if len(name) < len(path) and len(scope) < len(name) and _SCOPE.match(scope) else None

    def blobs(self, scope: str) -> str:
        """The directory of a scope's blobs, with a `/` at its end."""
        return f"{self.root}/blobs/{_checked(scope)}{_BLOBS}"

    def blob(self, scope: str, name: str) -> str:
        """The object of a blob.

        Raises:
            InvalidKey: The name is not of `[a-z0-9-]`, or too long.
        """
        if not _BLOB_NAME.match(name):
            raise InvalidKey("a blob's name is 1 to 64 characters of [a-z0-9-]", backend=BACKEND)
        return self.blobs(scope) + name


def is_blob_name(name: str) -> bool:
    """Tell whether a name below a scope's blobs is one of ours."""
    return _BLOB_NAME.match(name) is not None


def _checked(scope: str) -> str:
    if len(scope) > SCOPE_CHARS_MAX or not _SCOPE.match(scope):
        raise InvalidKey("a scope is names of [a-z0-9_-] joined by '/', as core's encoder makes them", backend=BACKEND)
    return scope
