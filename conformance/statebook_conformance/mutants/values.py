"""Mutants of values: rewritten, cut, revived, kept by reference; limits that are declared and not kept."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

import msgspec

from statebook.capabilities import Capabilities, Limits
from statebook.errors import DataError, InvalidValue, LimitExceeded
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey, ThreadKey
from statebook.model import ANY, EventPage, ExpectedVersion, ListValue, StateValue
from statebook.plugins import Requirement
from statebook.state import AgentStateStore
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, BadState, JournalMaker, Memory, StateMaker, wrapping
from statebook_conformance.target import TargetBackend

Change = Callable[[bytes], bytes]

# --------------------------------------------------------------------------------------------------- values, changed


class _Changing(BadState):
    """Changes what is loaded, as a lossy column or codec does."""

    def __init__(self, inner: AgentStateStore, memory: Memory, change: Change) -> None:
        super().__init__(inner, memory)
        self._change = change

    def load(self, slot: StateKey) -> StateValue | None:
        found = super().load(slot)
        return None if found is None else StateValue(self._change(found.value), found.version)

    def load_list(self, slot: StateKey) -> ListValue | None:
        found = super().load_list(slot)
        return None if found is None else ListValue(tuple(map(self._change, found.items)), found.version)


class _ChangingPayloads(BadJournal):
    def __init__(self, inner: ThreadJournalStore, memory: Memory, change: Change) -> None:
        super().__init__(inner, memory)
        self._change = change

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        page = super().read_after(key, seq, limit)
        events = tuple(msgspec.structs.replace(entry, payload=self._change(entry.payload)) for entry in page.events)
        return EventPage(events, page.has_more, page.last_seq)


def _state(change: Change) -> StateMaker:
    return lambda inner, memory: _Changing(inner, memory, change)


def _journal(change: Change) -> JournalMaker:
    return lambda inner, memory: _ChangingPayloads(inner, memory, change)


def _floats(data: bytes) -> bytes:
    """Read integers as floats where they do not fit 53 bits, as JavaScript and some drivers do."""

    def as_float(match: re.Match[bytes]) -> bytes:
        number = int(match[0])
        return match[0] if abs(number) < 1 << 53 else repr(float(number) if abs(number) < 10**300 else 0.0).encode()

    return re.sub(rb"(?<![\d.eE\"-])-?\d+(?![\d.eE\"])", as_float, data)


def _parsed(data: bytes) -> bytes:
    """Parse and write again, as a JSON column does; what is no JSON stays."""
    try:
        return json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    except ValueError:
        return data


def _sorted(data: bytes) -> bytes:
    try:
        value = json.loads(data)
    except ValueError:
        return data
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode(errors="replace") if isinstance(value, dict) else data


def _revived(data: bytes) -> bytes:
    return b'"revived"' if b'"type":"constructor"' in data else data


FLOAT_FOR_BIG_INT: Final = Mutant(
    "float-for-big-int", "integers beyond 53 bits come back as floats", wrapping(state=_state(_floats))
)
NEGATIVE_ZERO_LOST: Final = Mutant(
    "negative-zero-lost",
    "-0.0 comes back as 0.0",
    wrapping(state=_state(lambda data: data.replace(b"-0.0", b"0.0"))),
)
FOUR_BYTE_CUT: Final = Mutant(
    "four-byte-cut",
    "a 3-byte character set cuts the text at the first 4-byte character",
    wrapping(state=_state(lambda data: re.split(rb"[\xf0-\xf4]", data)[0] + b'"' if b"\xf0\x9f" in data else data)),
)
NUL_CUT: Final = Mutant(
    "nul-cut",
    "U+0000 ends the text",
    wrapping(state=_state(lambda data: data.replace(b"\\u0000", b""))),
)
EMPTY_CONTAINER_LOST: Final = Mutant(
    "empty-container-lost",
    "an empty container is taken for no value",
    wrapping(state=_state(lambda data: b"null" if data in (b"{}", b"[]") else data)),
)
KEYS_SORTED: Final = Mutant("keys-sorted", "objects come back with their keys sorted", wrapping(state=_state(_sorted)))
STORED_AS_TEXT: Final = Mutant(
    "stored-as-text",
    "bytes are decoded into a text column, and what is no UTF-8 is replaced",
    wrapping(state=_state(lambda data: data.decode(errors="replace").encode())),
)
PARSED_AND_WRITTEN: Final = Mutant(
    "parsed-and-written", "values are parsed and written again by a JSON column", wrapping(state=_state(_parsed))
)
PLANTED_VALUE_REVIVED: Final = Mutant(
    "planted-value-revived",
    "a value that looks like a serialised object is turned into one",
    wrapping(state=_state(_revived)),
)
PAYLOAD_REWRITTEN: Final = Mutant(
    "payload-rewritten",
    "event payloads are parsed into floats and written again",
    wrapping(journal=_journal(_floats)),
)
CUT_AT_64K: Final = Mutant(
    "cut-at-64k",
    "a column of 65,535 bytes cuts longer values without a word",
    wrapping(state=_state(lambda data: data[:65_535]), journal=_journal(lambda data: data[:65_535])),
)


class _ReadsBack(BadState):
    """Saves, then reads the value back as JSON to return it, and raises where that fails."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        version = super().save(slot, value, expected=expected)
        try:
            json.loads(value)
        except ValueError as error:
            raise InvalidValue("the value is no JSON") from error
        return version


RAISES_AFTER_COMMIT: Final = Mutant(
    "raises-after-commit",
    "a save is committed, then raises because it reads the value back through another type",
    wrapping(state=_ReadsBack),
)


# ------------------------------------------------------------------------------------------------------------- copies


class _TakesAnything(BadState):
    """Takes bytearrays, memory views and text for bytes."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        given = cast("object", value)
        return super().save(slot, bytes(value) if isinstance(given, bytearray) else value, expected=expected)


class _OneByOne(BadState):
    """Appends the items of a list one by one."""

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        version = 0
        for index, item in enumerate(items):
            version = super().append_list(slot, (item,), expected_length=expected_length + index)
        return version or super().append_list(slot, (), expected_length=expected_length)


class _Aliasing(BadState):
    """Keeps the caller's own list, and hands it out as it is now."""

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        version = super().replace_list(slot, items, expected=expected)
        self.memory.kept[slot] = items
        return version

    def load_list(self, slot: StateKey) -> ListValue | None:
        found = super().load_list(slot)
        kept = self.memory.kept.get(slot)
        return found if found is None or kept is None else ListValue(tuple(kept), found.version)


TAKES_BYTEARRAY: Final = Mutant(
    "takes-bytearray",
    "a bytearray is taken for bytes, and may change while it is written",
    wrapping(state=_TakesAnything),
)
ITEMS_ONE_BY_ONE: Final = Mutant(
    "items-one-by-one",
    "items are appended one by one, so that a bad third one leaves two behind",
    wrapping(state=_OneByOne),
)
ALIASING: Final = Mutant("aliasing", "the store keeps the list that it was given", wrapping(state=_Aliasing))


# ------------------------------------------------------------------------------------------------------------- limits


class _Narrow(BadState):
    """Declares less than it takes, and does not check it."""

    @property
    def capabilities(self) -> Capabilities:
        declared = super().capabilities
        limits = msgspec.structs.replace(declared.limits, value_bytes_max=100_000)
        return msgspec.structs.replace(declared, limits=limits)


class _NarrowJournal(BadJournal):
    @property
    def capabilities(self) -> Capabilities:
        declared = super().capabilities
        limits = msgspec.structs.replace(declared.limits, batch_events_max=10)
        return msgspec.structs.replace(declared, limits=limits)


class _PartThenError(BadState):
    """Writes what fits, then complains."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        try:
            return super().save(slot, value, expected=expected)
        except LimitExceeded:
            super().save(slot, value[:1_000], expected=expected)
            raise


class _NotSummed(BadState):
    """Checks what is appended against the limit of a list, not what the list becomes."""

    @property
    def capabilities(self) -> Capabilities:
        declared = super().capabilities
        return msgspec.structs.replace(declared, limits=self._limits(declared.limits))

    @staticmethod
    def _limits(limits: Limits) -> Limits:
        return msgspec.structs.replace(limits, value_bytes_max=1_000, list_bytes_max=4_000)

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        self.capabilities.limits.check("list_bytes_max", sum(map(len, items)), slot.name)
        return super().append_list(slot, items, expected_length=expected_length)


LIMIT_NOT_CHECKED: Final = Mutant(
    "limit-not-checked", "a limit on values is declared and not checked", wrapping(state=_Narrow)
)
LIMIT_AFTER_EFFECT: Final = Mutant(
    "limit-after-effect", "what fits is written before the limit is an error", wrapping(state=_PartThenError)
)
LIST_LIMIT_NOT_SUMMED: Final = Mutant(
    "list-limit-not-summed", "a list grows beyond its limit by small appends", wrapping(state=_NotSummed)
)
BATCH_LIMIT_NOT_CHECKED: Final = Mutant(
    "batch-limit-not-checked", "a limit on batches is declared and not checked", wrapping(journal=_NarrowJournal)
)


# ------------------------------------------------------------------------------------------------------------- planted


class _Unpickling(BadState):
    """Tries what it cannot read as a pickle of an older format."""

    def __init__(self, inner: AgentStateStore, backend: TargetBackend) -> None:
        super().__init__(inner, Memory())
        self._backend = backend

    def load(self, slot: StateKey) -> StateValue | None:
        try:
            return super().load(slot)
        except DataError:
            medium = self._backend.open_medium()
            for record in () if medium is None else medium.records():
                data = b"" if medium is None else medium.read(record)
                if data.startswith(b"\x80"):
                    pickle.loads(data)  # noqa: S301 - the mistake that this mutant makes
            raise


class _UnpicklingBackend(ForwardBackend):
    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        return _Unpickling(super().open_state(require), self.inner)


UNPICKLES_OLD_RECORDS: Final = Mutant(
    "unpickles-old-records",
    "a record that cannot be read is tried as a pickle of an older format",
    _UnpicklingBackend,
    base="sqlite:///{directory}/mutant.db",
)
