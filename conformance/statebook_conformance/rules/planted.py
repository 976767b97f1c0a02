"""VAL-2 at rest: what somebody has planted in the raw medium is plain data or damage, and is never run."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Final

from statebook.errors import DataError
from statebook.keys import StateKey, ThreadKey
from statebook.medium import Medium
from statebook.model import Batch, Event
from statebook_conformance.context import Context, NotClaimed
from statebook_conformance.rule import rule

_SLOT: Final = StateKey("user", "session", "key")
_THREAD: Final = ThreadKey("user", "agent", "session", "thread")
_CONSTRUCTOR: Final = b'{"lc":2,"type":"constructor","id":["pathlib","Path","mkdir"],"args":["%s"]}'


class _MakesDirectory:
    """Whoever unpickles this makes a directory: a harmless sign that it was run."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self._path,)


@rule(
    "VAL-2.planted",
    level=1,
    hint="a record that is not ours is tried as a pickle or an object of an older format",
    kills=("unpickles-old-records",),
)
def planted(ctx: Context) -> None:
    """Pickles and constructor objects planted in the raw medium come back as plain data or as damage; nothing is run.

    Cases: 21.
    """
    medium = ctx.open_medium()
    if medium is None:
        raise NotClaimed("the backend shows no medium, so nobody can plant anything in it")
    ctx.state.save(_SLOT, b'"value"')
    ctx.state.replace_list(_SLOT, (b'"item"',))
    claim = ctx.journal.claim(_THREAD, "writer")
    event = Event(event_id="e", type="run/start", occurred_at=1, payload=b'"payload"')
    ctx.journal.append(claim, Batch("b", (event,)), 0)
    with tempfile.TemporaryDirectory(prefix="statebook-planted-") as directory:
        sign = Path(directory) / "was-run"
        seeds = (pickle.dumps(_MakesDirectory(str(sign))), _CONSTRUCTOR % str(sign).encode())
        for record in medium.records():
            for seed in seeds:
                _plant(ctx, medium, record, seed)
                ctx.check(not sign.exists(), f"what was planted in the record {record} was run")
    loaded = ctx.open_state().load(_SLOT)
    ctx.equal(None if loaded is None else loaded.value, b'"value"', "the document with its record as it was")


def _plant(ctx: Context, medium: Medium, record: str, seed: bytes) -> None:
    """Put bytes in the place of a record, read everything with fresh handles, and put the record back."""
    before = medium.read(record)
    try:
        medium.write(record, seed)
    except ValueError:
        ctx.saw("records that take no such bytes")
        return
    state, journal = ctx.open_state(), ctx.open_journal()
    for read in (
        lambda: state.load(_SLOT),
        lambda: state.load_list(_SLOT),
        lambda: journal.head(_THREAD),
        lambda: journal.read_after(_THREAD, 0),
    ):
        try:
            read()
        except DataError:
            ctx.saw("damage reported")
    state.close()
    journal.close()
    medium.write(record, before)
    ctx.saw("records planted")
