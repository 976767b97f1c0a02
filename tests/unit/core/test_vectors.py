"""The public vectors hold, for this implementation and for a second one that is written here from the text alone."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

import pytest

from statebook import InvalidKey, InvalidValue, JournalCorrupt, StatebookError, ThreadKey
from statebook.codec import (
    CHAIN_START,
    canonical_json,
    chain_next,
    decode_events,
    decode_value,
    digest,
    encode_batch,
    encode_value,
    seal,
    unseal,
)
from statebook.keys import check_id, decode_name, encode_id, is_digest_name
from statebook.model import Batch, Event


def load(name: str) -> dict[str, Any]:
    text = files("statebook").joinpath("vectors", name).read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


IDS, VALUES, BATCHES, RECORDS = (load(f"{name}.json") for name in ("ids", "values", "batches", "records"))


def second_name(value: str | None) -> str:
    if value is None:
        return "_n"
    name = re.sub(rb"[^a-z0-9-]", lambda m: b"_%02x" % m[0][0], value.encode()).decode()
    return name if len(name) <= 120 else "_h" + hashlib.sha256(value.encode()).hexdigest()


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def second_body(entry: dict[str, Any]) -> str:
    parts = []
    for event in entry["events"]:
        members = [
            f"{json.dumps(name)}:{event[name] if name == 'payload' else json.dumps(event[name], ensure_ascii=False)}"
            for name in ("event_id", "type", "occurred_at", "payload", "run_id", "turn_id", "required")
            if name in event
        ]
        parts.append("{" + ",".join(members) + "}")
    return f'{{"batch_id":{json.dumps(entry["batch_id"], ensure_ascii=False)},"events":[{",".join(parts)}]}}'


def batch_of(entry: dict[str, Any]) -> Batch:
    events = tuple(Event(**{**event, "payload": event["payload"].encode()}) for event in entry["events"])
    return Batch(entry["batch_id"], events)


def test_each_id_has_its_published_name() -> None:
    assert len(IDS["names"]) > 140
    for entry in IDS["names"]:
        assert encode_id(entry["id"]) == entry["name"] == second_name(entry["id"]), entry


def test_published_names_read_back_unless_they_are_digests() -> None:
    digests = 0
    for entry in IDS["names"]:
        if is_digest_name(entry["name"]):
            digests += 1
            with pytest.raises(InvalidKey):
                decode_name(entry["name"])
        else:
            assert decode_name(entry["name"]) == entry["id"]
    assert digests >= 5


def test_published_names_are_distinct_without_case_too() -> None:
    names = [entry["name"] for entry in IDS["names"]]
    assert len({name.casefold() for name in names}) == len(names)


@pytest.mark.parametrize("place", range(3))
def test_each_refused_id_is_refused_in_every_place_of_a_key(place: int) -> None:
    assert len(IDS["refused"]) >= 9
    for entry in IDS["refused"]:
        bad = json.loads(entry["json"])
        ids = ["a", "b", "c"]
        ids[place] = bad
        with pytest.raises(InvalidKey):
            ThreadKey(None, *ids)
        with pytest.raises(InvalidKey):
            ThreadKey(bad, "a", "b", "c")
        with pytest.raises(InvalidKey):
            check_id(bad, "writer_id")


def test_each_value_is_stored_as_published_and_comes_back() -> None:
    for entry in VALUES["values"]:
        value = json.loads(entry["json"])
        assert encode_value(value) == entry["encoded"].encode()
        back = decode_value(entry["encoded"].encode())
        assert back == value
        assert repr(back) == repr(value)  # types and signs too


def test_each_refused_value_is_refused() -> None:
    for entry in VALUES["refused"]:
        with pytest.raises(InvalidValue):
            encode_value(json.loads(entry["json"]))


def test_canonical_forms_are_the_published_ones() -> None:
    for entry in VALUES["canonical"]:
        assert canonical_json(json.loads(entry["json"])).decode() == entry["canonical"]


def test_batches_have_their_published_bodies_digests_and_chain() -> None:
    chain, last = BATCHES["chain_start"], 0
    assert chain == CHAIN_START == "0" * 64
    for entry in BATCHES["chain"]:
        body = entry["body"].encode()
        assert encode_batch(batch_of(entry)) == body == second_body(entry).encode()
        assert digest(body) == entry["digest"] == sha256(entry["body"])
        first, last = last + 1, last + len(entry["events"])
        assert (entry["first_seq"], entry["last_seq"]) == (first, last)
        expected = sha256(f"{chain}:{entry['digest']}:{first}:{last}:{entry['epoch']}")
        chain = chain_next(chain, entry["digest"], first, last, entry["epoch"])
        assert chain == expected == entry["chain"]


def test_published_bodies_read_back_as_the_events_that_were_given() -> None:
    for entry in BATCHES["chain"]:
        batch_id, events = decode_events(entry["body"].encode(), entry["first_seq"])
        assert batch_id == entry["batch_id"]
        assert [event.seq for event in events] == list(range(entry["first_seq"], entry["last_seq"] + 1))
        for event, given in zip(events, entry["events"], strict=True):
            assert event.payload == given["payload"].encode()
            for name in ("event_id", "type", "occurred_at"):
                assert getattr(event, name) == given[name]
            assert (event.run_id, event.turn_id) == (given.get("run_id"), given.get("turn_id"))
            assert (event.required, event.schema_version) == (given.get("required", False), 2)


def test_records_are_sealed_as_published_and_read_back() -> None:
    for entry in RECORDS["sealed"]:
        body, record = base64.b64decode(entry["body_base64"]), base64.b64decode(entry["record_base64"])
        header = f'{{"statebook":2,"kind":"{entry["kind"]}","bytes":{len(body)},'
        header += f'"sha256":"{hashlib.sha256(body).hexdigest()}"}}'
        assert seal(entry["kind"], body) == record == header.encode() + b"\n" + body
        assert unseal(entry["kind"], record, JournalCorrupt) == body


def test_each_damaged_record_is_the_published_error() -> None:
    assert len(RECORDS["damaged"]) >= 12
    for entry in RECORDS["damaged"]:
        with pytest.raises(StatebookError) as caught:
            unseal(entry["kind"], base64.b64decode(entry["record_base64"]), JournalCorrupt)
        assert type(caught.value).__name__ == entry["error"], entry["what"]
