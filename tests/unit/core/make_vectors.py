"""Write the public test vectors from their inputs. Run it only to add inputs: a changed output is a new format version.

Usage: python tests/unit/core/make_vectors.py DIRECTORY, with the inputs read from the vectors that are there.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from statebook.codec import (
    CHAIN_START,
    canonical_json,
    chain_next,
    decode_value,
    digest,
    encode_batch,
    encode_value,
    seal,
)
from statebook.keys import encode_id
from statebook.model import Batch, Event


def names(given: dict[str, Any]) -> dict[str, Any]:
    entries = [{"id": entry["id"], "name": encode_id(entry["id"])} for entry in given["names"]]
    return {**given, "names": entries}


def values(given: dict[str, Any]) -> dict[str, Any]:
    encoded = [
        {"json": entry["json"], "encoded": encode_value(decode_value(entry["json"].encode())).decode()}
        for entry in given["values"]
    ]
    canonical = [
        {"json": entry["json"], "canonical": canonical_json(json.loads(entry["json"])).decode()}
        for entry in given["canonical"]
    ]
    return {**given, "values": encoded, "canonical": canonical}


def batches(given: dict[str, Any]) -> dict[str, Any]:
    chain, last, entries = CHAIN_START, 0, []
    for entry in given["chain"]:
        events = tuple(Event(**{**event, "payload": event["payload"].encode()}) for event in entry["events"])
        body = encode_batch(Batch(entry["batch_id"], events))
        first, last = last + 1, last + len(events)
        chain = chain_next(chain, digest(body), first, last, entry["epoch"])
        made = {"body": body.decode(), "digest": digest(body), "first_seq": first, "last_seq": last, "chain": chain}
        entries.append({**entry, **made})
    return {**given, "chain_start": CHAIN_START, "chain": entries}


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "one bit of the body": ("JournalCorrupt", lambda r: r[:-1] + bytes([r[-1] ^ 1])),
    "one bit of the digest": ("JournalCorrupt", lambda r: r.replace(b'"sha256":"', b'"sha256":"0', 1)),
    "cut by one byte": ("JournalCorrupt", lambda r: r[:-1]),
    "cut after the header line": ("JournalCorrupt", lambda r: r.partition(b"\n")[0] + b"\n"),
    "empty": ("JournalCorrupt", lambda r: b""),
    "glued to the next record": ("JournalCorrupt", lambda r: r + r),
    "another kind": ("JournalCorrupt", lambda r: r.replace(b"journal-head", b"journal-haed")),
    "no format": ("JournalCorrupt", lambda r: r.replace(b'"statebook":2,', b"")),
    "a member too many": ("JournalCorrupt", lambda r: r.replace(b'"kind"', b'"x":1,"kind"')),
    "no statebook record": ("JournalCorrupt", lambda r: b"hello\n" + r),
    "format 1": ("UnsupportedFormat", lambda r: r.replace(b'"statebook":2', b'"statebook":1')),
    "format 3 with other members": ("UnsupportedFormat", lambda r: b'{"statebook":3,"seal":"x"}\nbody'),
}


def records(given: dict[str, Any]) -> dict[str, Any]:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    sealed = []
    for entry in given["sealed"]:
        record = seal(entry["kind"], base64.b64decode(entry["body_base64"]))
        sealed.append({**entry, "record_base64": text(record)})
    record = seal("journal-head", b'{"last_seq":7}')
    damaged = [
        {"what": what, "kind": "journal-head", "record_base64": text(damage(record)), "error": error}
        for what, (error, damage) in DAMAGE.items()
    ]
    return {**given, "sealed": sealed, "damaged": damaged}


MAKERS = {"ids.json": names, "values.json": values, "batches.json": batches, "records.json": records}


def make(name: str, given: dict[str, Any]) -> str:
    """The text of one file of vectors."""
    return json.dumps(MAKERS[name](given), indent=1, ensure_ascii=True) + "\n"


def main(directory: Path) -> None:
    for name in MAKERS:
        path = directory / name
        path.write_text(make(name, json.loads(path.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
