"""Heads as hashes: packing with a seal, and reading with verification (HEAD-1)."""

from __future__ import annotations

from typing import Final

import msgspec

from statebook.codec import digest
from statebook.errors import JournalCorrupt, UnsupportedFormat
from statebook.keys import ThreadKey
from statebook.model import FORMAT_VERSION
from statebook.records import HeadState, JournalState
from statebook_backends.redis.known import KnownHead
from statebook_backends.redis.layout import ThreadKeys
from statebook_backends.redis.resp import bulk, bulks

FIXED: Final = (
    b"format",
    b"key",
    b"journal_id",
    b"epoch",
    b"claim_nonce",
    b"writer_id",
    b"state",
    b"first_seq",
)
"""The fields that appends do not change, in the order of the seal."""

MOVING: Final = (b"generation", b"nonce", b"last_seq", b"checkpoint_seq", b"chain")
"""The fields that appends change, in the order of the seal."""

_NAMES: Final = (*FIXED, *MOVING)
_FIELDS: Final = frozenset({*_NAMES, b"seal"})

_encode = msgspec.json.Encoder().encode


def ids_of(key: ThreadKey) -> bytes:
    """A thread's ids as one line of JSON."""
    return _encode((key.user_id, key.agent_id, key.session_id, key.thread_id))


def _fixed_values(head: HeadState) -> tuple[bytes, ...]:
    return (
        b"%d" % FORMAT_VERSION,
        ids_of(head.key),
        head.journal_id.encode(),
        b"%d" % head.epoch,
        (head.claim_nonce or "").encode(),
        (head.writer_id or "").encode(),
        head.state.value.encode("ascii"),
        b"%d" % head.first_seq,
    )


def pack_moving(head: HeadState) -> bytes:
    """The fields that appends change, as words of a command."""
    checkpoint = head.checkpoint_seq
    return bulks(
        b"%d" % head.generation,
        head.nonce.encode(),
        b"%d" % head.last_seq,
        b"" if checkpoint is None else b"%d" % checkpoint,
        head.chain.encode(),
    )


def seal_of(keys: ThreadKeys, fixed: bytes, moving: bytes) -> bytes:
    """The seal of a head: a digest over the key's name and all fields, in hex."""
    return digest(keys.head + fixed + moving).encode("ascii")


def known_of(keys: ThreadKeys, head: HeadState) -> KnownHead:
    """A head as it will stand when it has been written."""
    fixed = bulks(*_fixed_values(head))
    return KnownHead(keys, fixed, head, seal_of(keys, fixed, pack_moving(head)), None)


def words_of(known: KnownHead) -> tuple[bytes, ...]:
    """All fields of a head, names and values in turn, its seal last."""
    head = known.head
    checkpoint = head.checkpoint_seq
    values = (
        *_fixed_values(head),
        b"%d" % head.generation,
        head.nonce.encode(),
        b"%d" % head.last_seq,
        b"" if checkpoint is None else b"%d" % checkpoint,
        head.chain.encode(),
        known.seal,
    )
    return tuple(word for pair in zip((*_NAMES, b"seal"), values, strict=True) for word in pair)


def expected_by(known: KnownHead) -> bytes:
    """What a script finds in a head that is still this one, as words: seal, nonce, last_seq, epoch, claim_nonce."""
    head = known.head
    return bulk(known.seal) + bulks(
        head.nonce.encode(), b"%d" % head.last_seq, b"%d" % head.epoch, (head.claim_nonce or "").encode()
    )


def head_from(keys: ThreadKeys, key: ThreadKey, fields: dict[bytes, bytes], backend: str) -> KnownHead | None:
    """Verify the fields of a head.

    Args:
        keys: The keys of the thread.
        key: The thread that was asked for.
        fields: What is stored.
        backend: The scheme, for errors.

    Returns:
        The head, a tombstone too, or None where there are no fields.

    Raises:
        JournalCorrupt: They do not match the seal or the thread (FORMAT-1).
        UnsupportedFormat: They are of another format version.
    """
    if not fields:
        return None
    version = fields.get(b"format")
    if version is not None and version != b"%d" % FORMAT_VERSION and version.isdigit():
        raise UnsupportedFormat(
            f"the head has format {version.decode()}; this release reads format {FORMAT_VERSION}. Use a release that "
            "knows it",
            what="head",
            expected=str(FORMAT_VERSION),
            found=version.decode(),
            key=keys.name,
            backend=backend,
        )
    if fields.keys() != _FIELDS:
        odd = sorted(fields.keys() ^ _FIELDS)
        raise damaged_head(keys.name, "the fields of a head", f"{odd!r} missing or of no head", backend)
    fixed = bulks(*[fields[name] for name in FIXED])
    seal = seal_of(keys, fixed, bulks(*[fields[name] for name in MOVING]))
    if seal != fields[b"seal"]:
        raise damaged_head(keys.name, fields[b"seal"].decode(errors="replace"), seal.decode(), backend)
    if fields[b"key"] != ids_of(key):
        raise damaged_head(keys.name, ids_of(key).decode(), fields[b"key"].decode(errors="replace"), backend)
    checkpoint = fields[b"checkpoint_seq"]
    head = HeadState(
        key,
        fields[b"journal_id"].decode(),
        int(fields[b"generation"]),
        fields[b"nonce"].decode(),
        int(fields[b"epoch"]),
        fields[b"claim_nonce"].decode() or None,
        fields[b"writer_id"].decode() or None,
        JournalState(fields[b"state"].decode()),
        int(fields[b"first_seq"]),
        int(fields[b"last_seq"]),
        int(checkpoint) if checkpoint else None,
        fields[b"chain"].decode(),
    )
    return KnownHead(keys, fixed, head, seal, None)


def damaged_head(name: str, expected: str, found: str, backend: str) -> JournalCorrupt:
    """The error for a head that is not as it was written (FORMAT-1)."""
    return JournalCorrupt(
        "the head is damaged or was changed by hand; nothing is written to this journal",
        what="head",
        expected=expected,
        found=found,
        key=name,
        backend=backend,
    )


def lost_head(name: str, backend: str) -> JournalCorrupt:
    """The error for batches or cursors without a head (FORMAT-1)."""
    return damaged_head(name, "the head of a journal that was there", "none", backend)
