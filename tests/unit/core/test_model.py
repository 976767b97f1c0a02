"""Value types: everything wrong is refused at construction, before any I/O."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from statebook import model
from statebook.capabilities import DISTRIBUTED, Capabilities, Durability, Feature, Limits, Sharing
from statebook.errors import InvalidBatch, InvalidKey, InvalidValue, LimitExceeded, UnsupportedCapability
from statebook.keys import ThreadKey
from statebook.model import PAGE_MAX, Batch, Event, WriterClaim, check_page, check_seq
from statebook.records import freeze

KEY = ThreadKey("u", "a", "s", "t")


def event(**changes: Any) -> Event:
    return Event(**{"event_id": "e", "type": "run/start", "occurred_at": 1, "payload": b"{}", **changes})


@pytest.mark.parametrize("bad", ["", "a\0", "x" * 513, "\ud800", 1, b"x"])
@pytest.mark.parametrize("name", ["event_id", "type", "run_id", "turn_id"])
def test_an_event_takes_only_ids(name: str, bad: object) -> None:
    with pytest.raises(InvalidKey, match=name):
        event(**{name: bad})


@pytest.mark.parametrize("name", ["event_id", "type"])
def test_what_every_event_has_is_not_none(name: str) -> None:
    with pytest.raises(InvalidKey):
        event(**{name: None})


@pytest.mark.parametrize("bad", [-1, 1 << 53, 1.0, True, "1", None])
def test_a_time_is_whole_milliseconds(bad: object) -> None:
    with pytest.raises(InvalidValue, match="occurred_at"):
        event(occurred_at=bad)


@pytest.mark.parametrize("good", [0, (1 << 53) - 1])
def test_a_time_may_be_any_that_json_numbers_keep(good: int) -> None:
    assert event(occurred_at=good).occurred_at == good


@pytest.mark.parametrize("bad", [1, 0, None, "true"])
def test_required_is_a_truth_value(bad: object) -> None:
    with pytest.raises(InvalidValue, match="required"):
        event(required=bad)


@pytest.mark.parametrize("bad", [0, 1, 3])
def test_another_envelope_version_is_refused(bad: int) -> None:
    with pytest.raises(InvalidBatch, match="schema version"):
        event(schema_version=bad)


@pytest.mark.parametrize(
    "bad",
    [
        "{}",
        bytearray(b"{}"),
        None,
        {"a": 1},
        b"",
        b" ",
        b"{",
        b"{} ",
        b" {}",
        b"{}\n",
        b'{"a":\n1}',
        b"[1,\r2]",
        b"\t1",
        b"1 2",
        b"NaN",
        b"[Infinity]",
        b"'x'",
        b'{"a":1,}',
        b"01",
        b"\xff",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"a\x00b"',
        b"\xef\xbb\xbf{}",
        b'"\\ud800"',
        b'{"\\udc00":1}',
        b'["\\ud83d\\u0041"]',
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_a_payload_is_one_line_of_one_json_document(bad: object) -> None:
    with pytest.raises(InvalidValue, match="payload"):
        event(payload=bad)


@pytest.mark.parametrize(
    "good",
    [
        b"null",
        b"0",
        b'""',
        b"[]",
        b'{"a":1}',
        b'"\\ud83d\\ude00"',
        b'"\\\\ud800"',
        '"é\u2028😀"'.encode(),
        b'"a\\u0000b"',
    ],
)
def test_any_json_document_is_a_payload_and_stays_as_it_is(good: bytes) -> None:
    assert event(payload=good).payload == good


def test_a_batch_holds_events_in_a_tuple_each_id_once() -> None:
    for bad in ((), [event()], (event(), "x"), None):
        with pytest.raises(InvalidBatch):
            Batch("b", bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidBatch, match="twice"):
        Batch("b", (event(), event(type="other")))
    for bad_id in ("", "a\0", None):
        with pytest.raises(InvalidKey):
            Batch(bad_id, (event(),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("types", "offset"),
    [
        (("x",), None),
        (("state/checkpoint",), 0),
        (("x", "state/initialized", "x"), 1),
        (("state/checkpoint", "x", "state/checkpoint"), 2),
    ],
)
def test_a_batch_knows_its_last_checkpoint(types: tuple[str, ...], offset: int | None) -> None:
    events = tuple(event(event_id=f"e{n}", type=type_) for n, type_ in enumerate(types))
    assert Batch("b", events).checkpoint_offset == offset


def test_the_values_are_frozen() -> None:
    structs = [v for v in vars(model).values() if isinstance(v, type) and issubclass(v, msgspec.Struct)]
    assert len(structs) > 15
    for cls in structs:
        if cls is not msgspec.Struct:
            assert cls.__struct_config__.frozen, cls
            for field in msgspec.structs.fields(cls):
                assert "list" not in str(field.type).lower() or "ListValue" in str(field.type), (cls, field.name)


def test_a_claim_shows_observers_all_but_the_right_to_write() -> None:
    claim = WriterClaim(KEY, "j", "w", 3, "n", 7, 5)
    assert claim.info == model.ClaimInfo("j", "w", 3, "n")


@pytest.mark.parametrize("bad", [0, -1, PAGE_MAX + 1, None, 1.0, "1", True])
def test_a_page_size_outside_1_to_10000_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="limit"):
        check_page(bad)
    check_page(1)
    check_page(PAGE_MAX)


@pytest.mark.parametrize("bad", [-1, None, 1.0, "1", True])
def test_a_seq_below_0_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="base_seq"):
        check_seq(bad, "base_seq")
    check_seq(0)


def test_a_batch_beyond_a_limit_is_refused_by_name() -> None:
    batch = Batch("b", tuple(event(event_id=f"e{n}", payload=b'"xxxxxxxx"') for n in range(3)))
    freeze(batch, Limits(), KEY)
    for name, maximum in (("batch_events_max", 2), ("value_bytes_max", 9), ("batch_bytes_max", 100)):
        with pytest.raises(LimitExceeded) as caught:
            freeze(batch, Limits(**{name: maximum}), KEY)
        assert (caught.value.limit, caught.value.maximum) == (name, maximum)
        assert (caught.value.actual or 0) > maximum
        assert caught.value.key == KEY.name


def test_a_batch_is_frozen_once_with_its_digest() -> None:
    import hashlib

    frozen = freeze(Batch("b", (event(event_id="e1"), event(event_id="e2", type="state/checkpoint"))), Limits(), KEY)
    assert frozen.digest == hashlib.sha256(frozen.body).hexdigest()
    assert (frozen.event_ids, frozen.checkpoint_offset, frozen.batch_id) == (("e1", "e2"), 1, "b")


def capabilities(durability: Durability, sharing: Sharing, *features: Feature) -> Capabilities:
    return Capabilities(
        backend="x", durability=durability, durability_setting="y", sharing=sharing, features=frozenset(features)
    )


@pytest.mark.parametrize("ladder", [Durability, Sharing])
def test_more_is_declared_than_all_that_is_less(ladder: type[Durability | Sharing]) -> None:
    members = list(ladder)
    for one in range(len(members)):
        for other in range(len(members)):
            assert (members[one] < members[other]) == (one < other)
            assert (members[one] >= members[other]) == (one >= other)


def test_durability_and_sharing_are_not_compared_with_each_other() -> None:
    with pytest.raises(TypeError):
        assert Durability.HOST < Sharing.HOST  # type: ignore[operator]


def test_what_is_required_and_not_declared_is_named_all_at_once() -> None:
    weak = capabilities(Durability.PROCESS, Sharing.HOST, Feature.PURGE)
    weak.require((Durability.NONE, Durability.PROCESS, Sharing.HOST, Feature.PURGE))
    with pytest.raises(UnsupportedCapability) as caught:
        weak.require((*DISTRIBUTED, Feature.GROUP_COMMIT, Feature.PURGE))
    assert caught.value.capability == "durability=host, sharing=network, feature=group_commit"
    assert caught.value.backend == "x"
    capabilities(Durability.REPLICATED, Sharing.NETWORK).require(DISTRIBUTED)
