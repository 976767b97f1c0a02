"""VAL: values come back as they were given, byte for byte, and everything else is refused before any effect."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from datetime import date
from functools import partial
from typing import Final, cast

from statebook.codec import Json, decode_value, encode_value
from statebook.errors import InvalidValue
from statebook.keys import SessionKey, StateKey, ThreadKey
from statebook.model import Batch, Event, WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.walking import all_sessions

_SLOT: Final = StateKey("user", "session", "key")
_THREAD: Final = ThreadKey("user", "agent", "session", "thread")

_PLANTED: Final[Json] = {"lc": 2, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}}


def hostile_values() -> tuple[Json, ...]:
    """Values that stores have changed: each must come back equal and of the same types (VAL-1)."""
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    texts = ("", " ", "a\0b", "\0", "\n", "\r\n", '"', "\\", "\\u0000", "\x7f", "\ufffd", "\uffff", "\U0010ffff")
    numbers = (0, -1, 2**31, 2**53, 2**53 + 1, 2**63, 2**64 + 1, -(2**63) - 1, 10**30, 10**308, 10**400)
    floats = (0.0, -0.0, 0.1, 1.0, 1e16, 1e22, 5e-324, 1.7976931348623157e308)
    values: tuple[object, ...] = (
        None,
        True,
        False,
        *texts,
        *numbers,
        *floats,
        family,
        {},
        [],
        [[]],
        [{}],
        {"": ""},
        {"a": {}, "b": []},
        [None],
        {"a\0b": family, family: "a\0b"},
        {"n": [2**53 + 1, [-0.0, {"deep": [10**30, 1.0, 1]}]]},
        {"z": 1, "a": 2, "m": 3},
        {"$set": {"x": 1}, "__class__": "x", "__proto__": {}},
        _PLANTED,
        "2024-02-30T25:61:61Z",
        "NaN",
        "null",
    )
    return cast("tuple[Json, ...]", values)


def _same(found: object, expected: object) -> bool:
    """Equal, of the same types, and with the same sign of zero."""
    if type(found) is not type(expected):
        return False
    if isinstance(expected, list):
        items = cast("list[object]", found)
        return len(items) == len(expected) and all(map(_same, items, expected))
    if isinstance(expected, Mapping):
        pairs = cast("Mapping[str, object]", found)
        return list(pairs) == list(expected) and all(_same(pairs[key], expected[key]) for key in expected)
    return found == expected and repr(found) == repr(expected)


def _came_back(ctx: Context, data: bytes | None, expected: Json, what: str) -> None:
    ctx.check(data is not None, f"{what} {expected!r:.80} is absent")
    found = decode_value(data or b"null")
    ctx.check(_same(found, expected), f"{what} {expected!r:.80} came back as {found!r:.80}")
    ctx.equal(data, encode_value(expected), f"the bytes of {what} {expected!r:.80}")


@rule(
    "VAL-1.state",
    level=1,
    hint="a value is parsed and written again by the driver or the column's type; store bytes",
    kills=(
        "float-for-big-int",
        "negative-zero-lost",
        "four-byte-cut",
        "nul-cut",
        "empty-container-lost",
        "keys-sorted",
    ),
)
def state_values(ctx: Context) -> None:
    """Big integers, -0.0, U+0000, 4-byte characters and empty containers come back equal from documents and lists.

    Cases: 22, 23.
    """
    values = hostile_values()
    for index, value in enumerate(values):
        ctx.state.save(StateKey("user", "session", f"k{index}"), encode_value(value))
    for index, value in enumerate(values):
        loaded = ctx.state.load(StateKey("user", "session", f"k{index}"))
        _came_back(ctx, None if loaded is None else loaded.value, value, "the document")
    items = tuple(encode_value(value) for value in values)
    ctx.state.replace_list(_SLOT, items)
    ctx.state.append_list(_SLOT, items, expected_length=len(items))
    found = ctx.state.load_list(_SLOT)
    ctx.equal(None if found is None else len(found.items), 2 * len(items), "items of the list")
    for index, data in enumerate(() if found is None else found.items):
        _came_back(ctx, data, values[index % len(values)], "the item")


@rule(
    "VAL-1.events",
    level=1,
    hint="a payload is parsed and written again on its way; embed its bytes as they are",
    kills=("payload-rewritten",),
)
def event_values(ctx: Context) -> None:
    """Big integers, -0.0, U+0000 and 4-byte characters come back equal from events; what is no JSON is refused.

    Cases: 22, 23.
    """
    values = hostile_values()
    events = tuple(
        Event(event_id=f"e{index}", type="custom/" + "\u00e9\U0001f600", occurred_at=index, payload=encode_value(value))
        for index, value in enumerate(values)
    )
    claim = ctx.journal.claim(_THREAD, "writer")
    _refusals(ctx, claim)
    ctx.journal.append(claim, Batch("batch", events), 0)
    page = ctx.journal.read_after(_THREAD, 0)
    ctx.equal(len(page.events), len(values), "events read back")
    for found, given, value in zip(page.events, events, values, strict=True):
        _came_back(ctx, found.payload, value, "the payload")
        ctx.equal(
            (found.event_id, found.type, found.occurred_at), (given.event_id, given.type, given.occurred_at), "event"
        )


def _refused_values() -> tuple[object, ...]:
    cyclic: list[object] = []
    cyclic.append(cyclic)
    nan, inf = float("nan"), float("inf")
    return (
        *(nan, inf, -inf, [nan], {"a": [1, {"b": inf}]}),
        *("\ud800", "a\udc00", ["\ud800"], {"\ud800": 1}),
        *({1: "a"}, {None: "a"}, {True: "a"}, {"a": {2: 3}}),
        *((1, 2), {1, 2}, b"a", bytearray(b"a"), date(2024, 1, 1), object(), [(1,)], {"a": {1}}),
        cyclic,
    )


def _refusals(ctx: Context, claim: WriterClaim) -> None:
    """What JSON cannot hold or would change is refused by core, before any I/O."""
    for value in _refused_values():
        ctx.raises(InvalidValue, partial(encode_value, cast("Json", value)), f"encoding {value!r:.60}")
    for payload in (
        b"NaN",
        b"-Infinity",
        b"[NaN]",
        b'"\\ud800"',
        b'{"a":"\\udc00"}',
        b"\xff",
        b"",
        b"{",
        b"1 2",
        b" 1",
    ):

        def append(payload: bytes = payload) -> object:
            event = Event(event_id="e", type="run/start", occurred_at=1, payload=payload)
            return ctx.journal.append(claim, Batch("b", (event,)), 0)

        ctx.raises(InvalidValue, append, f"an event whose payload is {payload!r}")
    head = ctx.journal.head(_THREAD)
    ctx.equal(None if head is None else head.last_seq, 0, "the last seq after refused payloads")


@rule(
    "VAL-2.opaque",
    level=1,
    hint="the backend decodes, parses or revives what is opaque to it; use a binary column and store bytes",
    kills=("stored-as-text", "parsed-and-written", "planted-value-revived", "raises-after-commit"),
)
def opaque(ctx: Context) -> None:
    """A value is opaque bytes below core: the same bytes come back, nothing in them is parsed, revived or run.

    Cases: 2, 18, 21.
    """
    planted = encode_value(_PLANTED)
    values = (
        b"",
        b"\0",
        b"\0\0a\0",
        b"\xff\xfe\x80",
        bytes(range(256)),
        b"\xed\xa0\x80",
        b' { "b" : 1 ,\n "a" : 1.00 , "a" : 2 } \n',
        b"NaN",
        b'{"statebook":2,"kind":"state","bytes":0,"sha256":""}\n',
        planted,
        pickle.dumps({"planted": (1, 2)}),
        b"!!python/object/apply:os.system ['true']",
        b"x\r\ny\rz\n",
        b'O:8:"stdClass":0:{}',
        b"\x1f\x8b\x08\x00",
        b"%s %d {0} ${x} $1 ?",
    )
    for index, value in enumerate(values):
        slot = StateKey("user", "session", f"k{index}")
        version = ctx.state.save(slot, value)
        loaded = ctx.state.load(slot)
        ctx.equal(None if loaded is None else (loaded.value, loaded.version), (value, version), f"document {value!r}")
    ctx.state.replace_list(_SLOT, values[: len(values) // 2])
    ctx.state.append_list(_SLOT, values[len(values) // 2 :], expected_length=len(values) // 2)
    found = ctx.state.load_list(_SLOT)
    ctx.equal(None if found is None else found.items, values, "the items of a list of opaque bytes")
    claim = ctx.journal.claim(_THREAD, "writer")
    event = Event(event_id="planted", type="run/start", occurred_at=1, payload=planted)
    ctx.journal.append(claim, Batch("b", (event,)), 0)
    ctx.equal(ctx.journal.read_after(_THREAD, 0).events[0].payload, planted, "a planted payload")


@rule(
    "VAL-2.bytes-only",
    level=1,
    hint="bytearray or str is taken and kept or encoded; check with codec.check_bytes before anything else",
    kills=("takes-bytearray", "items-one-by-one"),
)
def bytes_only(ctx: Context) -> None:
    """A value that is not bytes is InvalidValue, also behind good items of a list, and nothing is written.

    Cases: 9, 24.
    """
    state = ctx.state
    version = state.replace_list(_SLOT, (b"1",))
    bad_values = (bytearray(b"1"), memoryview(b"1"), "1", 1, None, {"a": 1}, [b"1"])
    for bad in bad_values:
        value = cast("bytes", bad)
        kind = type(bad).__name__
        ctx.raises(InvalidValue, partial(state.save, _SLOT, value), f"saving a {kind}")
        items = (b"2", b"3", value)
        ctx.raises(InvalidValue, partial(state.replace_list, _SLOT, items), f"a list with a {kind}")
        ctx.raises(
            InvalidValue,
            partial(state.append_list, _SLOT, items, expected_length=1),
            f"appending good items and a {kind}",
        )
    ctx.equal(state.load(_SLOT), None, "the document after refused saves")
    found = state.load_list(_SLOT)
    ctx.equal(None if found is None else (found.items, found.version), ((b"1",), version), "the list after refusals")
    ctx.equal(all_sessions(state, "user"), (SessionKey("user", "session"),), "sessions after refused saves")
    state.append_list(_SLOT, (b"2",), expected_length=1)


@rule(
    "VAL-3.copies",
    level=1,
    hint="the store keeps, or hands out, the caller's own list",
    kills=("aliasing",),
)
def copies(ctx: Context) -> None:
    """A value is a copy both ways: changing what was given, or the list it was given in, changes nothing stored.

    Cases: 24.
    """
    given = [b"1", b"2", b"3"]
    ctx.state.replace_list(_SLOT, given)
    given[0] = b"changed"
    given.append(b"4")
    found = ctx.state.load_list(_SLOT)
    ctx.equal(None if found is None else found.items, (b"1", b"2", b"3"), "the list after the caller changed its own")
    more = [b"4"]
    ctx.state.append_list(_SLOT, more, expected_length=3)
    more.append(b"5")
    found = ctx.state.load_list(_SLOT)
    ctx.equal(None if found is None else found.items, (b"1", b"2", b"3", b"4"), "the list after an append")
    document: dict[str, object] = {"a": [1]}
    ctx.state.save(_SLOT, encode_value(cast("Json", document)))
    document["a"] = "changed"
    first = ctx.state.load(_SLOT)
    back = decode_value(b"null" if first is None else first.value)
    ctx.equal(back, {"a": [1]}, "the document after the caller changed its own")
    if isinstance(back, dict):
        cast("dict[str, Json]", back)["a"] = "changed"
    ctx.equal(ctx.state.load(_SLOT), first, "the document after the caller changed what it had loaded")
