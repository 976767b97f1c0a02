"""Values as JSON documents: equal when they come back, or refused with the place (VAL-1)."""

from __future__ import annotations

import math
from collections import OrderedDict
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from statebook import InvalidValue, LimitExceeded
from statebook.codec import (
    canonical_json,
    check_bytes,
    decode_events,
    decode_value,
    decode_wanted,
    encode_batch,
    encode_value,
)
from statebook.errors import JournalCorrupt
from statebook.model import Batch, Event


class Colour(IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


class Number(float):
    __slots__ = ()


plain_text = st.text(st.characters(exclude_categories=("Cs",)))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | plain_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain_text, inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@given(json_values)
def test_every_json_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    data = encode_value(value)
    assert repr(decode_value(data)) == repr(value)
    assert b"\n" not in data
    assert b"\r" not in data
    assert data == data.strip()


@given(st.integers(min_value=-(10**4299), max_value=10**4299))
def test_integers_of_any_size_come_back(value: int) -> None:
    assert decode_value(encode_value([value])) == [value]


@pytest.mark.parametrize("value", [-0.0, "\0", "a\0b", "\U0010ffff", [], {}, "", {"": []}, 2**53 + 1, 2**63, 10**30])
def test_what_stores_often_break_comes_back_equal(value: Any) -> None:
    back = decode_value(encode_value(value))
    assert back == value
    assert repr(back) == repr(value)


def test_the_sign_of_zero_is_kept() -> None:
    back = decode_value(encode_value(-0.0))
    assert isinstance(back, float)
    assert math.copysign(1, back) == -1


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$ is nan"),
        (float("inf"), "$ is inf"),
        ({"a": [1, {"b": float("-inf")}]}, "$.a[1].b is -inf"),
        ([[float("nan")]], "$[0][0] is nan"),
        ("\ud800", "$ holds a lone surrogate"),
        (["x", "a\udfff"], "$[1] holds a lone surrogate"),
        ({"\ud83d": 1}, "a key of $ holds a lone surrogate"),
        ((1, 2), "$ is a tuple"),
        ({"a": (1,)}, "$.a is a tuple"),
        ([{1, 2}], "$[0] is a set"),
        (frozenset(), "$ is a frozenset"),
        (b"x", "$ is a bytes"),
        (bytearray(b"x"), "$ is a bytearray"),
        ({"at": datetime(2024, 1, 1, tzinfo=UTC)}, "$.at is a datetime"),
        (date(2024, 1, 1), "$ is a date"),
        (Decimal("1.5"), "$ is a Decimal"),
        (Fraction(1, 2), "$ is a Fraction"),
        (1j, "$ is a complex"),
        (UUID(int=0), "$ is a UUID"),
        (object(), "$ is a object"),
        (Colour.RED, "$ is a Colour"),
        (Text("x"), "$ is a Text"),
        ([Number(1.5)], "$[0] is a Number"),
        (OrderedDict(a=1), "$ is a OrderedDict"),
        ({1: "a"}, "$ has the key 1 of type int"),
        ({"x": {None: 1}}, "$.x has the key None of type NoneType"),
        ({True: 1}, "$ has the key True of type bool"),
        ({1.5: 1}, "$ has the key 1.5 of type float"),
        ({Text("k"): 1}, "of type Text"),
        ({("a",): 1}, "of type tuple"),
    ],
)
def test_what_json_would_refuse_or_change_is_refused_with_its_place(value: Any, path: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        encode_value(value)
    assert path in str(caught.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    ring: dict[str, Any] = {}
    ring["x"] = {"y": [ring]}
    for value in (loop, ring):
        with pytest.raises(InvalidValue, match="deeply or contains itself"):
            encode_value(value)


def test_too_deep_a_value_is_refused_and_a_deep_one_comes_back() -> None:
    with pytest.raises(InvalidValue, match="deeply"):
        encode_value(nested(100_000))
    assert decode_value(encode_value(nested(100))) == nested(100)


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert decode_value(encode_value([shared, shared])) == [[1], [1]]


def test_an_integer_beyond_the_limit_names_the_limit() -> None:
    with pytest.raises(LimitExceeded) as caught:
        encode_value({"a": [10**4300]})
    assert caught.value.limit == "integer_digits_max"
    assert "$.a[0]" in str(caught.value)


def test_key_order_is_kept() -> None:
    assert encode_value({"b": 1, "a": 2}) == b'{"b":1,"a":2}'


@pytest.mark.parametrize(
    "data", [b"", b"x", b"{", b"[1,]", b"1 2", b"NaN", b"[Infinity]", b"-Infinity", b"\xff", b'"\xc3"', b"[" * 100_000]
)
def test_what_is_no_json_document_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidValue):
        decode_value(data)


def test_nothing_that_looks_like_an_object_is_revived() -> None:
    data = b'{"lc":2,"type":"constructor","id":["os","system"],"py/object":"os.system"}'
    assert decode_value(data) == {
        "lc": 2,
        "type": "constructor",
        "id": ["os", "system"],
        "py/object": "os.system",
    }


@pytest.mark.parametrize("value", ["x", bytearray(b"1"), memoryview(b"1"), None, 1, {"a": 1}])
def test_only_bytes_are_values_below_core(value: object) -> None:
    with pytest.raises(InvalidValue, match="encode_value"):
        check_bytes(value, "value")
    check_bytes(b"1", "value")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"batch_id":"b","events":[{}]}', b'{"batch_id":1,"events":[]}'])
def test_what_is_no_batch_body_is_damage(body: bytes) -> None:
    with pytest.raises(JournalCorrupt):
        decode_events(body, 1)
    with pytest.raises(JournalCorrupt):
        decode_wanted(body, 1, 1, 9)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 12), st.integers(0, 12))
def test_of_a_batch_exactly_the_wanted_events_are_given(count: int, first: int, low: int, high: int) -> None:
    made = [
        Event(event_id=f"e{n}", type="x/y", occurred_at=n, payload=b'"%d"' % n, run_id="r", required=n % 2 == 0)
        for n in range(count)
    ]
    body = encode_batch(Batch("b", tuple(made)))
    _, events = decode_events(body, first)
    assert [event.seq for event in events] == list(range(first, first + count))
    wanted = [event for event in events if low <= event.seq <= high]
    assert decode_wanted(body, first, low, high) == ("b", count, wanted)


# RFC 8785, appendix B: floats by their bits.
RFC_8785_NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "text"), RFC_8785_NUMBERS)
def test_canonical_numbers_are_those_of_the_rfc(bits: str, text: str) -> None:
    import struct

    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(value).decode() == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_canonical_numbers_read_back_equal(value: float) -> None:
    assert float(canonical_json(value)) == value


def test_canonical_objects_are_sorted_by_utf_16() -> None:
    assert canonical_json({"\ufb33": 1, "\U0001f600": 2, "a": (True, None)}) == (
        '{"a":[true,null],"\U0001f600":2,"\ufb33":1}'.encode()
    )


@pytest.mark.parametrize("value", [2**53, -(2**53), float("nan"), float("inf"), b"x", {1: 2}, {"a": {1}}, "\ud800"])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue):
        canonical_json(value)
