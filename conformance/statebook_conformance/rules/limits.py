"""VAL-4: sizes up to each limit are stored, beyond it they are refused before any effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from statebook.errors import LimitExceeded
from statebook.keys import StateKey, ThreadKey
from statebook.model import AppendRequest, Batch, Event
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.walking import all_sessions

_SLOT: Final = StateKey("user", "session", "key")
_THREAD: Final = ThreadKey("user", "agent", "session", "thread")
_LARGE: Final = 5 * 1024 * 1024
_PRACTICAL: Final = 64 * 1024 * 1024
_SIZES: Final = (1, 2, 255, 256, 65_535, 65_536, 65_537, 1 << 20, _LARGE)


def _text(size: int, seed: int) -> bytes:
    """One JSON string of exactly this many bytes, without long repetitions at the edges; a digit for one byte."""
    if size < 2:
        return b"7" * size
    body = (b"%07d-" % seed) * (size // 8 + 1)
    return b'"' + body[: size - 2] + b'"'


@rule(
    "VAL-4.sizes",
    level=1,
    hint="a column, packet or buffer is smaller than the declared limit; raise it at open, or declare less",
    kills=("cut-at-64k",),
)
def sizes(ctx: Context) -> None:
    """Values of one byte to several megabytes, up to the declared limit, come back whole.

    Cases: 25.
    """
    limits = ctx.state.capabilities.limits
    usable = [size for size in _SIZES if size <= limits.value_bytes_max]
    for seed, size in enumerate(usable):
        slot = StateKey("user", "session", f"k{size}")
        value = _text(size, seed)
        ctx.state.save(slot, value)
        ctx.state.append_list(slot, (b"1", value), expected_length=0)
        loaded, items = ctx.state.load(slot), ctx.state.load_list(slot)
        ctx.check(loaded is not None and loaded.value == value, f"a document of {size} bytes came back changed")
        ctx.check(items is not None and items.items == (b"1", value), f"an item of {size} bytes came back changed")
    claim = ctx.journal.claim(_THREAD, "writer")
    declared = ctx.journal.capabilities.limits
    largest = min(declared.value_bytes_max, declared.batch_bytes_max - 1_024)
    for base, size in enumerate(size for size in _SIZES if size <= largest):
        event = Event(event_id=f"e{size}", type="run/start", occurred_at=1, payload=_text(size, base))
        ctx.journal.append(claim, Batch(f"b{size}", (event,)), base)
        found = ctx.journal.read_after(_THREAD, base).events
        ctx.check(len(found) == 1 and found[0].payload == event.payload, f"a payload of {size} bytes came back changed")


def _refused(ctx: Context, limit: str, maximum: int, actual: int, call: Callable[[], object], what: str) -> None:
    error = ctx.raises(LimitExceeded, call, what)
    ctx.equal((error.limit, error.maximum), (limit, maximum), f"limit and maximum of the error of {what}")
    ctx.check(error.actual == actual, f"the error of {what} says that {error.actual} was given, not {actual}")


@rule(
    "VAL-4.state-limits",
    level=1,
    hint="the limit is declared but not checked, or checked after a part has been written",
    kills=("limit-not-checked", "limit-after-effect"),
)
def state_limits(ctx: Context) -> None:
    """A document, item or list beyond its limit is LimitExceeded, before any effect; at the limit it is stored.

    Cases: 25.
    """
    state, limits = ctx.state, ctx.state.capabilities.limits
    most, whole = limits.value_bytes_max, limits.list_bytes_max
    if most <= _PRACTICAL:
        beyond = _text(most + 1, 1)
        name = "value_bytes_max"
        _refused(ctx, name, most, most + 1, lambda: state.save(_SLOT, beyond), "a document beyond the limit")
        _refused(ctx, name, most, most + 1, lambda: state.replace_list(_SLOT, (b"1", beyond)), "an item beyond it")
        _refused(
            ctx,
            name,
            most,
            most + 1,
            lambda: state.append_list(_SLOT, (b"1", beyond), expected_length=0),
            "appending an item beyond it",
        )
        ctx.saw("limits tried")
    if whole <= _PRACTICAL:
        piece = _text(min(most, whole), 2)
        items = (piece,) * (whole // len(piece)) + (_text(whole % len(piece) + 1, 3),)
        size = sum(map(len, items))
        name = "list_bytes_max"
        _refused(ctx, name, whole, size, lambda: state.replace_list(_SLOT, items), "a list beyond the limit")
        _refused(
            ctx, name, whole, size, lambda: state.append_list(_SLOT, items, expected_length=0), "appending beyond it"
        )
        ctx.saw("limits tried")
    ctx.equal(state.load(_SLOT), None, "the document after refused calls")
    ctx.equal(state.load_list(_SLOT), None, "the list after refused calls")
    ctx.equal(all_sessions(state, "user"), (), "sessions after refused calls")
    largest = _text(min(most, _LARGE if most > _PRACTICAL else most), 4)
    state.save(_SLOT, largest)
    loaded = state.load(_SLOT)
    ctx.check(loaded is not None and loaded.value == largest, "a document at the limit came back changed")


@rule(
    "VAL-4.growing-list",
    level=1,
    hint="append_list checks what is appended, but not what the list becomes",
    kills=("list-limit-not-summed",),
)
def growing_list(ctx: Context) -> None:
    """A list that an append would bring beyond its limit is LimitExceeded, and stays as it was.

    Cases: 25, 41.
    """
    state, limits = ctx.state, ctx.state.capabilities.limits
    if limits.list_bytes_max > _PRACTICAL:
        ctx.check(limits.list_bytes_max >= limits.value_bytes_max, "a list may hold less than one of its items")
        return
    piece = _text(min(limits.value_bytes_max, limits.list_bytes_max), 1)
    count = limits.list_bytes_max // len(piece)
    state.replace_list(_SLOT, (piece,) * count)
    rest = limits.list_bytes_max - count * len(piece)
    beyond = _text(rest + 1, 2)
    _refused(
        ctx,
        "list_bytes_max",
        limits.list_bytes_max,
        limits.list_bytes_max + 1,
        lambda: state.append_list(_SLOT, (beyond,), expected_length=count),
        "the append that goes beyond the limit",
    )
    found = state.load_list(_SLOT)
    ctx.check(found is not None and found.items == (piece,) * count, "the list after the refused append")


@rule(
    "VAL-4.journal-limits",
    level=1,
    hint="the limit is declared but not checked, or checked after a part has been written",
    kills=("batch-limit-not-checked",),
)
def journal_limits(ctx: Context) -> None:
    """A payload, a batch or a group beyond its limit is LimitExceeded, before any effect.

    Cases: 9, 25.
    """
    journal, limits = ctx.journal, ctx.journal.capabilities.limits
    claim = journal.claim(_THREAD, "writer")

    def append(events: tuple[Event, ...]) -> object:
        return journal.append(claim, Batch("b", events), 0)

    if limits.value_bytes_max <= _PRACTICAL:
        large = (_event(0, b"1"), _event(1, _text(limits.value_bytes_max + 1, 1)))
        ctx.raises(LimitExceeded, lambda: append(large), "a payload beyond the limit")
        ctx.saw("limits tried")
    if limits.batch_events_max <= 100_000:
        many = tuple(_event(index, b"1") for index in range(limits.batch_events_max + 1))
        error = ctx.raises(LimitExceeded, lambda: append(many), "a batch of too many events")
        found = (error.limit, error.maximum, error.actual)
        ctx.equal(found, ("batch_events_max", limits.batch_events_max, len(many)), "limit, maximum and actual")
        ctx.saw("limits tried")
    if limits.batch_bytes_max <= _PRACTICAL:
        piece = _text(min(limits.value_bytes_max, limits.batch_bytes_max), 2)
        heavy = tuple(_event(index, piece) for index in range(limits.batch_bytes_max // len(piece) + 1))
        error = ctx.raises(LimitExceeded, lambda: append(heavy), "a batch of too many bytes")
        ctx.equal(error.limit, "batch_bytes_max", "the limit that the error names")
        ctx.saw("limits tried")
    if limits.group_batches_max <= 100_000:
        request = AppendRequest(claim, Batch("b", (_event(0, b"1"),)), 0)
        group = (request,) * (limits.group_batches_max + 1)
        ctx.raises(LimitExceeded, lambda: journal.append_many(group), "a group of too many batches")
        ctx.saw("limits tried")
    head = journal.head(_THREAD)
    ctx.equal(None if head is None else head.last_seq, 0, "the last seq after refused batches")
    journal.append(claim, Batch("b", (_event(0, b"1"),)), 0)


def _event(index: int, payload: bytes) -> Event:
    return Event(event_id=f"e{index}", type="run/start", occurred_at=1, payload=payload)
