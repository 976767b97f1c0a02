"""Values, batch bodies and sealed records as bytes, with their digests. Damage is an error, never a default.

Everything is JSON text, so that stored data can be read without statebook. A *record* is one header line (canonical
JSON: format version, kind, length and SHA-256 of the body) and the body. A *batch body* is one line of JSON that embeds
each payload byte for byte; its SHA-256 identifies the batch's content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

import msgspec

from statebook.errors import DataError, InvalidValue, JournalCorrupt, LimitExceeded, UnsupportedFormat
from statebook.model import EVENT_SCHEMA_VERSION, FORMAT_VERSION, Batch, RecordedEvent

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What `encode_value` takes: exactly `None`, `bool`, `int`, `float`, `str`, `list` and `dict` with string keys."""

CHAIN_START: Final = "0" * 64
"""The chain digest of a journal without batches (HEAD-3)."""

_INTEGER_DIGITS_MAX: Final = 4_300

_fresh_sha256 = hashlib.sha256().copy
# A copy of a hash that has seen nothing: OpenSSL 3 looks an algorithm up by its name for each hash that is made anew,
# which takes about as long as hashing a small batch.


# ----------------------------------------------------------------------------------------------------------- values


def encode_value(value: Json) -> bytes:
    """Turn a value into one JSON document in UTF-8, or refuse it.

    Guarantees VAL-1: `decode_value` gives an equal value of the same types. Key order is kept.

    Args:
        value: None, booleans, integers, floats, strings, lists and dictionaries with string keys, nested.

    Returns:
        The document, without line breaks or outer white space.

    Raises:
        InvalidValue: It holds what JSON cannot hold or would change: NaN, infinities, lone surrogates, keys that are no
            strings, tuples, sets, bytes, dates, itself; the message names the place.
        LimitExceeded: It holds an integer of more than 4,300 digits.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = text.encode()
        if _same(value, json.loads(text)):
            return data
    except (TypeError, ValueError, RecursionError) as error:
        _explain(value, "$", 0)
        raise InvalidValue("the value is nested too deeply or contains itself") from error
    _explain(value, "$", 0)
    raise InvalidValue("the value does not come back equal from JSON; use plain dicts, lists, strings and numbers")


def _same(given: object, back: object) -> bool:
    """Tell whether a value came back equal and of the same types; recursion is bounded by the encoder's own."""
    kind = type(given)
    if kind is dict:
        mapping, other = cast("dict[object, object]", given), cast("dict[object, object]", back)
        return len(mapping) == len(other) and all(
            type(key) is str and key in other and _same(item, other[key]) for key, item in mapping.items()
        )
    if kind is list:
        items, others = cast("list[object]", given), cast("list[object]", back)
        return len(items) == len(others) and all(map(_same, items, others))
    return kind is type(back) and given == back


def _explain(value: object, path: str, depth: int) -> None:
    """Raise an error that names the first place that is at fault."""
    if depth > 500:
        raise InvalidValue("the value is nested too deeply or contains itself")
    kind = type(value)
    if value is None or kind is bool:
        return
    if kind is str:
        _explain_text(cast(str, value), path)
    elif kind is int:
        if abs(cast(int, value)) >= 10**_INTEGER_DIGITS_MAX:
            raise LimitExceeded(f"{path} has more than {_INTEGER_DIGITS_MAX} digits", limit="integer_digits_max")
    elif kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidValue(f"{path} is {value!r}, which JSON does not have; store None or a string")
    elif kind is list:
        for index, item in enumerate(cast("list[object]", value)):
            _explain(item, f"{path}[{index}]", depth + 1)
    elif kind is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str:
                raise InvalidValue(f"{path} has the key {key!r} of type {type(key).__name__}; keys must be strings")
            _explain_text(key, f"a key of {path}")
            _explain(item, f"{path}.{key}", depth + 1)
    else:
        raise InvalidValue(
            f"{path} is a {kind.__name__}, which JSON would refuse or change; convert it to a plain value first"
        )


def _explain_text(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{path} holds a lone surrogate, which is no text") from error


def decode_value(data: bytes) -> Json:
    """Turn a stored JSON document back into plain values. Nothing is revived, imported or run (VAL-2).

    Args:
        data: What `encode_value` returned.

    Returns:
        The value.

    Raises:
        InvalidValue: It is not one JSON document.
    """
    try:
        return cast(Json, json.loads(data, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise InvalidValue("the bytes are not one JSON document in UTF-8") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def check_bytes(value: object, what: str) -> None:
    """Refuse a value that is not bytes (VAL-2).

    Raises:
        InvalidValue: It is not.
    """
    if type(value) is not bytes:
        raise InvalidValue(f"{what} must be bytes, not {type(value).__name__}; make it with encode_value(...)")


# ---------------------------------------------------------------------------------------------------------- batches


class _WireEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    event_id: str
    type: str
    occurred_at: int
    payload: msgspec.Raw
    run_id: str | None = None
    turn_id: str | None = None
    required: bool = False
    schema_version: int = EVENT_SCHEMA_VERSION


class _WireBatch(msgspec.Struct, frozen=True, gc=False):
    batch_id: str
    events: list[_WireEvent]


class _WireIds(msgspec.Struct, frozen=True, gc=False):
    event_id: str


class _WireBatchIds(msgspec.Struct, frozen=True, gc=False):
    batch_id: str
    events: list[_WireIds]


_encoder = msgspec.json.Encoder()
_encode = _encoder.encode
_batch_decoder = msgspec.json.Decoder(_WireBatch)
_batch_ids_decoder = msgspec.json.Decoder(_WireBatchIds)


def encode_batch(batch: Batch) -> bytes:
    """Turn a batch into its body: one line of JSON, frozen once before the first attempt (VAL-2).

    Args:
        batch: The batch.

    Returns:
        The body. Equal batches have equal bodies.
    """
    raw = msgspec.Raw
    return _encode(
        _WireBatch(
            batch.batch_id,
            [
                _WireEvent(
                    event.event_id,
                    event.type,
                    event.occurred_at,
                    raw(event.payload),
                    event.run_id,
                    event.turn_id,
                    event.required,
                    event.schema_version,
                )
                for event in batch.events
            ],
        )
    )


def digest(data: bytes) -> str:
    """The SHA-256 of bytes, in hex: the identity of a batch's content and of a segment (HEAD-3)."""
    hashed = _fresh_sha256()
    hashed.update(data)
    return hashed.hexdigest()


def chain_next(chain: str, body_digest: str, first_seq: int, last_seq: int, epoch: int) -> str:
    """The chain digest behind a batch: `chain_n = H(chain_{n-1}, digest, first, last, epoch)` (HEAD-3).

    Args:
        chain: The chain digest before it, in hex.
        body_digest: The digest of the batch's body, in hex.
        first_seq: The seq of its first event.
        last_seq: The seq of its last event.
        epoch: The epoch that it is committed under.

    Returns:
        The chain digest, in hex.
    """
    return digest(f"{chain}:{body_digest}:{first_seq}:{last_seq}:{epoch}".encode())


def decode_events(body: bytes, first_seq: int) -> tuple[str, list[RecordedEvent]]:
    """Turn a batch body back into its id and its events.

    Args:
        body: The body, verified against its digest.
        first_seq: The seq of its first event.

    Returns:
        The batch id and the events.

    Raises:
        JournalCorrupt: It is no batch body.
    """
    wire = _decode_batch(body)
    return wire.batch_id, _recorded(wire.events, first_seq)


def decode_wanted(body: bytes, first_seq: int, low: int, high: int) -> tuple[str, int, list[RecordedEvent]]:
    """Turn a batch body back into its id and those of its events that a page asks for.

    Args:
        body: The body, verified against its digest.
        first_seq: The seq of its first event.
        low: The first seq that is wanted.
        high: The last seq that is wanted.

    Returns:
        The batch id, how many events there are, and the wanted ones.

    Raises:
        JournalCorrupt: It is no batch body.
    """
    wire = _decode_batch(body)
    events = wire.events
    count = len(events)
    if low <= first_seq and first_seq + count - 1 <= high:
        return wire.batch_id, count, _recorded(events, first_seq)
    start = max(low - first_seq, 0)
    return wire.batch_id, count, _recorded(events[start : max(high - first_seq + 1, 0)], first_seq + start)


def _decode_batch(body: bytes) -> _WireBatch:
    try:
        return _batch_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise JournalCorrupt("a batch's body cannot be read", what="batch") from error


def _recorded(events: list[_WireEvent], first_seq: int) -> list[RecordedEvent]:
    recorded, copied = RecordedEvent, bytes
    return [
        recorded(
            seq, e.event_id, e.type, e.occurred_at, copied(e.payload), e.run_id, e.turn_id, e.required, e.schema_version
        )
        for seq, e in enumerate(events, first_seq)
    ]


def decode_event_ids(body: bytes) -> tuple[str, tuple[str, ...]]:
    """Read only the batch id and the event ids of a batch body.

    Args:
        body: The body, verified against its digest.

    Returns:
        The batch id and the event ids, in order.

    Raises:
        JournalCorrupt: It is no batch body.
    """
    try:
        wire = _batch_ids_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise JournalCorrupt("a batch's body cannot be read", what="batch") from error
    return wire.batch_id, tuple(event.event_id for event in wire.events)


# ---------------------------------------------------------------------------------------------------------- records


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    statebook: int
    kind: str
    bytes: int
    sha256: str


class _AnyFormat(msgspec.Struct, frozen=True):
    statebook: int


_header_decoder = msgspec.json.Decoder(_Header)
_any_format_decoder = msgspec.json.Decoder(_AnyFormat)


def seal(kind: str, body: bytes) -> bytes:
    """Put a body under a header line with format version, kind, length and digest (HEAD-1, FORMAT-1).

    Args:
        kind: What it is, such as `journal-head`.
        body: Any bytes.

    Returns:
        The record.
    """
    return _encoder.encode(_Header(FORMAT_VERSION, kind, len(body), digest(body))) + b"\n" + body


def unseal(kind: str, record: bytes, error: type[DataError], key: str | None = None) -> bytes:
    """Check a record's header line and give its body.

    Guarantees FORMAT-1: a missing or unknown format, another kind, length or digest is an error.

    Args:
        kind: The kind that is expected.
        record: What was stored.
        error: The class for damage: `JournalCorrupt` or `StateCorrupt`.
        key: What the record belongs to, for the error.

    Returns:
        The body.

    Raises:
        UnsupportedFormat: It is a record of another format version.
        DataError: As `error`: it is damaged.
    """
    line, _, body = record.partition(b"\n")
    try:
        header = _header_decoder.decode(line)
    except msgspec.DecodeError as cause:
        _check_format(line, kind, key)
        raise error(
            f"the {kind} record has no readable header; it is damaged or not statebook's",
            what=kind,
            expected="a header line",
            found=repr(line[:40]),
            key=key,
        ) from cause
    if header.statebook != FORMAT_VERSION:
        _check_format(line, kind, key)
    if header.kind != kind:
        raise error("a record stands in another's place", what=kind, expected=kind, found=header.kind, key=key)
    if header.bytes != len(body):
        raise error(
            f"the {kind} record is cut or glued",
            what=kind,
            expected=f"{header.bytes} bytes",
            found=f"{len(body)} bytes",
            key=key,
        )
    found = digest(body)
    if header.sha256 != found:
        raise error(f"the {kind} record is damaged", what=kind, expected=header.sha256, found=found, key=key)
    return body


def _check_format(line: bytes, kind: str, key: str | None) -> None:
    try:
        version = _any_format_decoder.decode(line).statebook
    except msgspec.DecodeError:
        return
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the {kind} record has format {version}; this release reads format {FORMAT_VERSION}. Use a release that "
            "knows it; nothing was changed",
            what=kind,
            expected=str(FORMAT_VERSION),
            found=str(version),
            key=key,
        )


def canonical_json(value: object) -> bytes:
    """Canonical JSON after RFC 8785 for plain values whose numbers are integers below 2**53 or finite floats.

    Keys are sorted by UTF-16 code units; used for digests of certificates and vectors, not for users' values.

    Args:
        value: None, booleans, numbers, strings, lists, tuples and dictionaries with string keys.

    Returns:
        The bytes.

    Raises:
        InvalidValue: It holds something else.
    """
    try:
        return _canonical(value).encode()
    except UnicodeEncodeError as error:
        raise InvalidValue("a lone surrogate has no canonical JSON") from error


def _canonical(value: object) -> str:
    if value is None or isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and abs(value) < 1 << 53:
        return str(value)
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return _ecmascript(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_canonical(item) for item in cast("Sequence[object]", value)) + "]"
    if isinstance(value, dict):
        mapping = cast("dict[object, object]", value)
        if all(isinstance(key, str) for key in mapping):
            keys = sorted(cast("dict[str, object]", mapping), key=lambda key: key.encode("utf-16-be"))
            return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_canonical(mapping[k])}" for k in keys) + "}"
    raise InvalidValue(f"{type(value).__name__} has no canonical JSON here")


def _ecmascript(value: float) -> str:
    """ECMAScript's notation of a finite float: the shortest digits that read back equal (RFC 8785, section 3.2.2.3)."""
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)  # the value is 0.digits times 10 to this power
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1:+d}"
