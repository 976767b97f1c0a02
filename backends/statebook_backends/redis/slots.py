"""Slots of agent state: what scripts are given, and what their replies mean (STATE)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from statebook.errors import BackendUnavailable, StatebookError, StateCorrupt, UnsupportedFormat, VersionConflict
from statebook.keys import StateKey
from statebook.model import ABSENT, ANY, FORMAT_VERSION, ExpectedVersion, SlotKind
from statebook_backends.redis.resp import text

if TYPE_CHECKING:
    from statebook_backends.redis.errors import Reply

_encode = msgspec.json.Encoder().encode
_sha1 = hashlib.sha1

NEEDS_INDEX: Final = [b"index"]
"""The reply that asks for the session to be put into its user's index first; nothing was written."""

IS_ABSENT: Final = [b"absent"]
"""The reply that there is no live slot."""


def ids_of(slot: StateKey) -> bytes:
    """A slot's ids as one line of JSON."""
    return _encode((slot.user_id, slot.session_id, slot.key))


def value_digest(value: bytes) -> bytes:
    """The digest of a document. SHA-1 is the one that a script can compute; it guards against damage, not attack."""
    return _sha1(value, usedforsecurity=False).hexdigest().encode("ascii")


def items_digest(items: Sequence[bytes]) -> bytes:
    """The running digest of a list, as `items.lua` computes it."""
    running = b""
    for item in items:
        running = _sha1(b"%b:%d:%b" % (running, len(item), item), usedforsecurity=False).hexdigest().encode("ascii")
    return running


def condition(expected: ExpectedVersion) -> tuple[bytes, bytes]:
    """What a script takes for an expected version."""
    if expected is ANY:
        return b"any", b""
    return (b"absent", b"") if expected is ABSENT else (b"version", b"%d" % expected)


def refused(reply: Reply, slot: str, kind: SlotKind, wanted: str, backend: str) -> StatebookError:
    """What a script's array means, where it is no answer of its own.

    Args:
        reply: The array.
        slot: The slot's name.
        kind: The kind of the slot.
        wanted: What was expected of it.
        backend: The scheme.

    Returns:
        The error.
    """
    words = [text(word) for word in reply] if isinstance(reply, list) else []
    if len(words) == 4 and words[0] == "conflict":
        return _conflict(words, slot, kind, wanted, backend)
    if len(words) == 2 and words[0] == "format":
        return UnsupportedFormat(
            f"the slot has format {words[1]}; this release reads format {FORMAT_VERSION}. Use a release that knows it",
            what="slot",
            expected=str(FORMAT_VERSION),
            found=words[1],
            key=slot,
            backend=backend,
        )
    if len(words) == 3 and words[0] == "damaged":
        return damaged(slot, words[1], words[2], backend)
    return BackendUnavailable("the server gave an unexpected reply; nothing was applied", key=slot, backend=backend)


def _conflict(words: list[str], slot: str, kind: SlotKind, wanted: str, backend: str) -> VersionConflict:
    live = words[1] == "live"
    found = f"has version {words[2]}" if live else "is absent"
    length = f" and {words[3]} items" if live and kind is SlotKind.LIST else ""
    return VersionConflict(
        f"the {kind.value} {found}{length}, but {wanted} was expected; load it and decide again",
        current_version=int(words[2]) if live else None,
        current_length=None if kind is SlotKind.DOCUMENT else int(words[3]),
        key=slot,
        backend=backend,
    )


def damaged(slot: str, expected: str, found: str, backend: str) -> StateCorrupt:
    """The error for a slot that is not as it was written (FORMAT-1)."""
    return StateCorrupt(
        "the slot is damaged or was changed by hand; nothing is written to it",
        what="slot",
        expected=expected,
        found=found,
        key=slot,
        backend=backend,
    )
