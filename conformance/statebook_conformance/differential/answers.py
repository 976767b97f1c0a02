"""How answers are written down so that those of different backends can be compared: plain values and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from statebook.errors import (
    BatchConflict,
    CursorConflict,
    CursorFenced,
    CursorInvalid,
    HeadConflict,
    JournalRegressed,
    LimitExceeded,
    StatebookError,
    Trimmed,
    VersionConflict,
    WriterBusy,
    WriterFenced,
)
from statebook.keys import SessionKey, StateKey, ThreadKey
from statebook.model import Event, RecordedEvent

Answer: TypeAlias = Mapping[str, object]
"""What a step was answered: values that JSON can hold."""

PLAIN_FIELDS: Final[Mapping[type[StatebookError], tuple[str, ...]]] = {
    HeadConflict: ("last_seq", "base_seq"),
    BatchConflict: ("batch_id", "event_id"),
    Trimmed: ("first_seq",),
    JournalRegressed: ("last_seq", "seen_seq"),
    LimitExceeded: ("limit", "maximum", "actual"),
}
"""The fields of an error that are compared as they are. Those that need labels: see `LABELLED`."""

LABELLED: Final = (WriterBusy, WriterFenced, VersionConflict, CursorConflict, CursorFenced, CursorInvalid)
"""Errors whose fields need labels."""


class Skipped(Exception):
    """A step needs something that no step has got; the message says what."""


def answer_of(call: Callable[[], Answer], labelled: Callable[[StatebookError], Answer]) -> Answer:
    """Make a call and write its answer down, an error too.

    Args:
        call: The call; gives its answer in plain values.
        labelled: Gives the fields of an error that need labels.

    Returns:
        The answer.
    """
    try:
        return call()
    except Skipped as missing:
        return {"skipped": str(missing)}
    except StatebookError as error:
        fields = {name: getattr(error, name) for name in PLAIN_FIELDS.get(type(error), ())}
        more = labelled(error) if isinstance(error, LABELLED) else {}
        return {"error": type(error).__name__, **fields, **more}
    except ValueError:
        return {"error": "ValueError"}
    except Exception as error:  # noqa: BLE001 - whatever a backend raises is its answer, and differs from the model's
        return {"error": f"{type(error).__module__}.{type(error).__name__}", "text": str(error)[:200]}


def error_answer(name: str, **fields: object) -> Answer:
    """The answer that is an error: its class and what it carries."""
    return {"error": name, **fields}


def text_of(answer: Answer) -> str:
    """An answer as canonical text: two answers are the same where their texts are."""
    return msgspec.json.encode(answer, order="sorted").decode()


def event_fields(seq: int, event: Event | RecordedEvent) -> list[object]:
    """An event at its place in a page; the payload as text where it is UTF-8."""
    return [
        seq,
        event.event_id,
        event.type,
        event.occurred_at,
        shown(event.payload),
        event.run_id,
        event.turn_id,
        event.required,
        event.schema_version,
    ]


def shown(value: bytes) -> str:
    """Bytes as text; those that are no UTF-8 as hex, marked so. What is not bytes is named by its type."""
    if type(value) is not bytes:
        return f"{type(value).__name__}: {value!r}"
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"hex: {value.hex()}"


def key_fields(key: ThreadKey | StateKey | SessionKey) -> list[object]:
    """The ids of a key."""
    return list(msgspec.structs.astuple(key))
