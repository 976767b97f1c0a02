"""ERR: errors carry what the caller needs and no secrets, and leave nothing behind that stops the next call."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from statebook.errors import (
    BatchConflict,
    CursorConflict,
    CursorFenced,
    HeadConflict,
    InvalidConfiguration,
    JournalRegressed,
    LimitExceeded,
    StatebookError,
    VersionConflict,
    WriterBusy,
    WriterFenced,
)
from statebook.keys import StateKey, ThreadKey, ThreadScope
from statebook.model import ABSENT, NONE, Batch, Event, SlotKind
from statebook.options import StoreUrl
from statebook_conformance.context import Context
from statebook_conformance.rule import rule

_SLOT: Final = StateKey("user", "session", "key")
_THREAD: Final = ThreadKey("user", "agent", "session", "thread")
_MARKER: Final = "payload-that-no-text-may-show"
_PATIENCE_S: Final = 10.0


def _batch(batch_id: str, event_id: str, payload: bytes = b"{}") -> Batch:
    return Batch(batch_id, (Event(event_id=event_id, type="run/start", occurred_at=1, payload=payload),))


def _pickled(ctx: Context, error: StatebookError) -> None:
    """An error goes to another process and says the same there."""
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - made in this very line
    ctx.equal((type(back), str(back), vars(back)), (type(error), str(error), vars(error)), "an error after pickling")


@rule(
    "ERR-1.state",
    level=1,
    hint="the conflict is raised without what was found; fill the keyword fields",
    kills=("bare-conflict",),
)
def state_errors(ctx: Context) -> None:
    """A conflict of a slot carries the slot and its current version, for lists the length too, and can be pickled.

    Cases: 1.
    """
    state = ctx.state
    error = ctx.raises(VersionConflict, lambda: state.save(_SLOT, b"1", expected=7), "saving over an absent slot")
    ctx.equal((error.key, error.current_version), (_SLOT.name, None), "key and version of the conflict")
    version = state.save(_SLOT, b"1")
    calls: dict[str, Callable[[], object]] = {
        "save": lambda: state.save(_SLOT, b"2", expected=version + 1),
        "save absent": lambda: state.save(_SLOT, b"2", expected=ABSENT),
        "delete": lambda: state.delete(_SLOT, expected=version + 1),
    }
    for name, call in calls.items():
        error = ctx.raises(VersionConflict, call, name)
        ctx.equal(
            (error.key, error.current_version), (_SLOT.name, version), f"key and version of the conflict of {name}"
        )
        ctx.equal(error.retry.value, "after_reread", "what may be done after a conflict")
        _pickled(ctx, error)
    version = state.replace_list(_SLOT, (b"1", b"2"))
    calls = {
        "replace_list": lambda: state.replace_list(_SLOT, (), expected=version + 1),
        "append_list": lambda: state.append_list(_SLOT, (b"3",), expected_length=1),
        "delete of a list": lambda: state.delete(_SLOT, kind=SlotKind.LIST, expected=version + 1),
    }
    for name, call in calls.items():
        error = ctx.raises(VersionConflict, call, name)
        found = (error.key, error.current_version, error.current_length)
        ctx.equal(found, (_SLOT.name, version, 2), f"key, version and length of the conflict of {name}")
        _pickled(ctx, error)


@rule(
    "ERR-1.journal",
    level=1,
    hint="the error is raised without what was found; fill the keyword fields",
    kills=("bare-journal-errors",),
)
def journal_errors(ctx: Context) -> None:
    """Refusals of a journal carry the holder, the epoch, the head, the batch or the cursor's version, and pickle.

    Cases: 4, 10.
    """
    journal = ctx.journal
    old = journal.claim(_THREAD, "old")
    busy = ctx.raises(WriterBusy, lambda: journal.claim(_THREAD, "new", replacing=NONE), "claiming a held journal")
    ctx.check(busy.holder is not None and busy.holder.writer_id == "old", f"WriterBusy names {busy.holder} as holder")
    claim = journal.claim(_THREAD, "writer")
    fenced = ctx.raises(WriterFenced, lambda: journal.append(old, _batch("b", "e"), 0), "appending when fenced")
    ctx.equal((fenced.current_epoch, fenced.committed), (claim.epoch, None), "epoch and receipt of WriterFenced")
    journal.append(claim, _batch("b1", "e1"), 0)
    journal.append(claim, _batch("b2", "e2"), 1)
    moved = ctx.raises(HeadConflict, lambda: journal.append(claim, _batch("b3", "e3"), 1), "appending behind the head")
    ctx.equal((moved.last_seq, moved.base_seq), (2, 1), "head and base of HeadConflict")
    ahead = ctx.raises(JournalRegressed, lambda: journal.append(claim, _batch("b3", "e3"), 9), "appending ahead of it")
    ctx.equal((ahead.last_seq, ahead.seen_seq), (2, 9), "head and base of JournalRegressed")
    same = ctx.raises(BatchConflict, lambda: journal.append(claim, _batch("b1", "e9"), 2), "the same id, other content")
    ctx.equal(same.batch_id, "b1", "the batch that BatchConflict names")
    overlap = ctx.raises(BatchConflict, lambda: journal.append(claim, _batch("b3", "e1"), 2), "an event id once more")
    ctx.equal((overlap.batch_id, overlap.event_id), ("b3", "e1"), "batch and event that BatchConflict names")
    first = journal.open_cursor(_THREAD, "exporter")
    second = journal.open_cursor(_THREAD, "exporter")
    late = ctx.raises(CursorFenced, lambda: journal.advance_cursor(first, 1), "advancing a fenced cursor")
    ctx.equal(late.current_epoch, second.epoch, "the epoch that CursorFenced carries")
    reset = ctx.raises(
        CursorConflict,
        lambda: journal.reset_cursor(_THREAD, "exporter", 1, expected_version=second.version + 5),
        "resetting another version of a cursor",
    )
    ctx.equal(reset.current_version, second.version, "the version that CursorConflict carries")
    for error in (busy, fenced, moved, ahead, same, overlap, late, reset):
        ctx.check(error.key, f"{type(error).__name__} does not say what it is about")
        _pickled(ctx, error)


def _quietly(call: Callable[[], object]) -> None:
    """Make a call that is refused."""
    try:
        call()
    except (StatebookError, ValueError):
        return


def _next_call_works(ctx: Context, index: int, what: str) -> None:
    """After a failed call: the same handle, another handle and another thread all go on."""
    state, journal = ctx.state, ctx.journal

    def go_on() -> int:
        slot = StateKey("user", "next", f"k{index}")
        state.save(slot, b"1", expected=ABSENT)
        with_list = state.append_list(slot, (b"1",), expected_length=0)
        state.load(_SLOT)
        claim = journal.claim(ThreadKey("user", "agent", "next", f"t{index}"), "writer")
        journal.append(claim, _batch("b", "e"), 0)
        journal.head(_THREAD)
        return with_list

    ctx.threads((go_on,), timeout_s=_PATIENCE_S)
    slot = StateKey("user", "next", f"k{index}")
    other = ctx.open_state()
    ctx.threads((lambda: other.save(slot, b"2"),), timeout_s=_PATIENCE_S)
    loaded = state.load(slot)
    ctx.equal(None if loaded is None else loaded.value, b"2", f"another handle's save after {what}")
    other.close()


@rule(
    "ERR-4.state",
    level=1,
    hint="a lock, transaction or connection is kept on the way out of a failed call; release it in a finally",
    kills=("lock-kept-after-conflict", "unwound-never"),
)
def state_goes_on(ctx: Context) -> None:
    """After each kind of failed call of the state store the next one works, on this handle and on others.

    Cases: 9.
    """
    state = ctx.state
    state.save(_SLOT, b"1")
    state.replace_list(_SLOT, (b"1",))
    beyond = b"1" * (state.capabilities.limits.value_bytes_max + 1) if _small(ctx) else b"1"
    other = StateKey("user", "other", "key")
    bad = cast("bytes", "text")
    calls: dict[str, Callable[[], object]] = {
        "a conflict of save": lambda: state.save(_SLOT, b"2", expected=99),
        "a conflict of a create": lambda: state.save(_SLOT, b"2", expected=ABSENT),
        "a conflict of append_list": lambda: state.append_list(_SLOT, (b"2",), expected_length=9),
        "a conflict of replace_list": lambda: state.replace_list(_SLOT, (b"2",), expected=99),
        "a conflict of delete": lambda: state.delete(_SLOT, expected=99),
        "a value that is no bytes": lambda: state.save(_SLOT, bad),
        "an item that is no bytes": lambda: state.append_list(_SLOT, (b"2", bad), expected_length=1),
        "a value beyond the limit": lambda: state.save(_SLOT, beyond, expected=99),
        "a bad expected": lambda: state.save(_SLOT, b"2", expected=-1),
        "a bad limit": lambda: state.list_keys(_SLOT.session, limit=0),
        "a foreign after": lambda: state.list_keys(_SLOT.session, after=other),
        "a bad id": lambda: state.list_sessions(""),
    }
    for index, (what, call) in enumerate(calls.items()):
        ctx.threads((partial(_quietly, call),), timeout_s=_PATIENCE_S)
        _next_call_works(ctx, index, what)
    loaded = state.load(_SLOT)
    ctx.equal(None if loaded is None else loaded.value, b"1", "the document after failed calls")


def _small(ctx: Context) -> bool:
    return ctx.state.capabilities.limits.value_bytes_max <= 64 * 1024 * 1024


@rule(
    "ERR-4.journal",
    level=1,
    hint="a lock, transaction or connection is kept on the way out of a failed call; release it in a finally",
    kills=("lock-kept-after-fencing",),
)
def journal_goes_on(ctx: Context) -> None:
    """After each kind of failed call of the journal the next one works, on this handle and on others.

    Cases: 9.
    """
    journal = ctx.journal
    old = journal.claim(_THREAD, "old")
    claim = journal.claim(_THREAD, "writer")
    journal.append(claim, _batch("b1", "e1"), 0)
    absent = ThreadKey("user", "agent", "session", "absent")
    cursor = journal.open_cursor(_THREAD, "exporter")
    calls: dict[str, Callable[[], object]] = {
        "a fenced append": lambda: journal.append(old, _batch("b2", "e2"), 1),
        "a fenced heartbeat": lambda: journal.heartbeat(old),
        "a fenced release": lambda: journal.release(old),
        "a busy claim": lambda: journal.claim(_THREAD, "other", replacing=NONE),
        "a head conflict": lambda: journal.append(claim, _batch("b2", "e2"), 0),
        "a batch conflict": lambda: journal.append(claim, _batch("b1", "e2"), 1),
        "an overlap": lambda: journal.append(claim, _batch("b2", "e1"), 1),
        "a base ahead": lambda: journal.append(claim, _batch("b2", "e2"), 5),
        "a read ahead": lambda: journal.read_after(_THREAD, 9),
        "a bad limit": lambda: journal.read_after(_THREAD, 0, 0),
        "a cursor of no journal": lambda: journal.open_cursor(absent, "exporter"),
        "a cursor ahead": lambda: journal.advance_cursor(cursor, 9),
        "a reset of another version": lambda: journal.reset_cursor(_THREAD, "exporter", 0, expected_version=99),
        "a trim of no journal": lambda: journal.trim(absent, 1),
        "a bad writer id": lambda: journal.claim(_THREAD, ""),
        "a bad listing": lambda: journal.list_threads(ThreadScope("user"), limit=-1),
    }
    for index, (what, call) in enumerate(calls.items()):
        ctx.threads((partial(_quietly, call),), timeout_s=_PATIENCE_S)
        _next_call_works(ctx, index, what)
    receipt = journal.append(claim, _batch("b2", "e2"), 1)
    ctx.equal(receipt.first_seq, 2, "the seq of the writer's next batch after all the failed calls")


def _texts(error: BaseException) -> str:
    """Everything that an error may show: its own text, fields and those of its causes."""
    parts: list[str] = []
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            break
        parts.extend((str(seen), repr(seen), repr(vars(seen))))
        seen = seen.__cause__ or seen.__context__
    return " ".join(parts)


def _secrets(ctx: Context) -> tuple[str, ...]:
    """What must show in no text: the password of the target's URL, where it has one."""
    if "://" not in ctx.target.text.partition("?")[0]:
        return ()
    password = StoreUrl.parse(ctx.target.text).password
    return () if not password else (password,)


@rule(
    "ERR-6.secrets",
    level=1,
    hint="the value, or the URL with its password, is put into the message or is the cause's text",
    kills=("payload-in-error",),
)
def no_secrets(ctx: Context) -> None:
    """No error shows a value, a payload or the password of the URL; neither does what the store says of itself."""
    state, journal = ctx.state, ctx.journal
    marked = b'"%s"' % _MARKER.encode()
    state.save(_SLOT, b'"first"')
    state.replace_list(_SLOT, (marked,))
    claim = journal.claim(_THREAD, "writer")
    journal.append(claim, _batch("b1", "e1", marked), 0)
    secret = b"1" * (state.capabilities.limits.value_bytes_max + 1) if _small(ctx) else b""
    calls: dict[str, Callable[[], object]] = {
        "save": lambda: state.save(_SLOT, marked, expected=99),
        "save of text": lambda: state.save(_SLOT, cast("bytes", _MARKER)),
        "append_list": lambda: state.append_list(_SLOT, (marked,), expected_length=9),
        "replace_list": lambda: state.replace_list(_SLOT, (marked,), expected=99),
        "append of another content": lambda: journal.append(claim, _batch("b1", "e2", marked), 1),
        "append behind the head": lambda: journal.append(claim, _batch("b2", "e2", marked), 0),
        "opening with a wrong option": lambda: ctx.target.open_with("no_such_option", _MARKER).open_journal(),
    }
    hidden = (_MARKER, *_secrets(ctx))
    for name, call in calls.items():
        text = _texts(ctx.raises(StatebookError, call, name))
        for word in hidden:
            ctx.check(word not in text, f"the error of {name} shows a value or a password")
    if secret:
        error = ctx.raises(LimitExceeded, lambda: state.save(_SLOT, secret), "a value beyond the limit")
        ctx.check(len(_texts(error)) < 10_000, "the error of a value beyond the limit shows the value")
    junk = ctx.raises(InvalidConfiguration, calls["opening with a wrong option"], "opening with a wrong option")
    shown = (repr(ctx.backend), repr(state), repr(journal), repr(journal.capabilities), ctx.target.shown, repr(junk))
    for word in _secrets(ctx):
        ctx.check(all(word not in text for text in shown), "a text that shows the store shows its password")
