"""Fresh randomness: nonces, journal ids, event ids. Stores take these functions as arguments."""

from __future__ import annotations

import os
from typing import Final

import uuid_utils

_BUFFERED: Final = 64
_NONCE_BYTES: Final = 16
_buffer: list[str] = []


def new_nonce() -> str:
    """128 random bits in hex: fresh for each write of a head, claim or opening (HEAD-1).

    Asked of the system one by one, where a buffer would be faster: copies of a running virtual machine would take the
    same ones out of it, and each could take the other's write to a server for its own.
    """
    return os.urandom(_NONCE_BYTES).hex()


def new_local_nonce() -> str:
    """The same out of a buffer: for writes to what is copied together with this process, its memory and local disk.

    To ask the system lets other threads go first, which costs a busy process more than all else of an append in memory.
    A forked child has a buffer of its own.
    """
    try:
        return _buffer.pop()
    except IndexError:
        digits = os.urandom(_NONCE_BYTES * _BUFFERED).hex()
        width = 2 * _NONCE_BYTES
        _buffer.extend([digits[at : at + width] for at in range(width, len(digits), width)])
        return digits[:width]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_buffer.clear)


def new_id() -> str:
    """A UUIDv7 (RFC 9562): unique, and sorted by time of creation. For event, batch and run ids."""
    return str(uuid_utils.uuid7())
