"""Fresh randomness: nonces, journal ids, event ids. Stores take these functions as arguments."""

from __future__ import annotations

import os

import uuid_utils


def new_nonce() -> str:
    """128 random bits in hex: fresh for each write of a head, claim or opening (HEAD-1).

    Asked of the system one by one, though a buffer would be faster: copies of a running virtual machine would take the
    same ones out of it, and each would take the other's write for its own.
    """
    return os.urandom(16).hex()


def new_id() -> str:
    """A UUIDv7 (RFC 9562): unique, and sorted by time of creation. For event, batch and run ids."""
    return str(uuid_utils.uuid7())
