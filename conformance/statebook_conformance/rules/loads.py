"""Level 0: the backend is found, opens from its URL, refuses junk, closes, and its claims agree with what it does."""

from __future__ import annotations

from statebook.capabilities import Limits, Sharing
from statebook.errors import InvalidConfiguration, StoreClosed
from statebook.keys import SessionKey, StateKey, ThreadKey, ThreadScope
from statebook.model import Batch, Event
from statebook_conformance.context import Context
from statebook_conformance.rule import rule

_THREAD = ThreadKey("user", "agent", "session", "thread")
_SLOT = StateKey("user", "session", "key")


@rule(
    "ERR-6.opens",
    level=0,
    hint="the plugin's hooks return None, or open a store of another kind",
)
def opens(ctx: Context) -> None:
    """A target opens as journal store and as state store, more than once at a time, and both work at once."""
    first, second = ctx.open_journal(), ctx.open_journal()
    claim = first.claim(_THREAD, "writer")
    event = Event(event_id="e1", type="run/start", occurred_at=1, payload=b"{}")
    receipt = first.append(claim, Batch("b1", (event,)), 0)
    ctx.equal((receipt.first_seq, receipt.last_seq), (1, 1), "seqs of the first batch")
    head = second.head(_THREAD)
    ctx.check(head is not None and head.last_seq == 1, "a second handle does not see what the first has committed")
    state, other = ctx.open_state(), ctx.open_state()
    version = state.save(_SLOT, b"{}")
    loaded = other.load(_SLOT)
    ctx.check(
        loaded is not None and loaded.version == version and loaded.value == b"{}",
        "a second handle does not see what the first has saved",
    )


@rule(
    "ERR-6.junk-options",
    level=0,
    hint="options are read with .get() and the rest is ignored; let the options class forbid unknown names",
    kills=("junk-options-ignored",),
)
def junk_options(ctx: Context) -> None:
    """An option that the backend does not know is InvalidConfiguration that names it, before anything is opened."""

    def open_with_junk() -> object:
        return ctx.target.open_with("no_such_option", "1").open_journal()

    error = ctx.raises(InvalidConfiguration, open_with_junk, "opening with the option no_such_option=1")
    ctx.check("no_such_option" in str(error), f"the error does not name the option: {error}")


@rule(
    "ERR-5",
    level=0,
    hint="close() only drops the connection and the next call quietly makes a new one",
    kills=("works-after-close",),
)
def closed(ctx: Context) -> None:
    """Any call on a closed store is StoreClosed; closing twice is harmless."""
    journal, state = ctx.open_journal(), ctx.open_state()
    claim = journal.claim(_THREAD, "writer")
    cursor = journal.open_cursor(_THREAD, "exporter")
    for store in (journal, state):
        store.close()
        store.close()
    batch = Batch("b1", (Event(event_id="e1", type="run/start", occurred_at=1, payload=b"{}"),))
    session = SessionKey("user", "session")
    calls = {
        "head": lambda: journal.head(_THREAD),
        "claim": lambda: journal.claim(_THREAD, "writer"),
        "heartbeat": lambda: journal.heartbeat(claim),
        "release": lambda: journal.release(claim),
        "append": lambda: journal.append(claim, batch, 0),
        "settle": lambda: journal.settle(claim, "b1", 0),
        "read_after": lambda: journal.read_after(_THREAD, 0),
        "open_cursor": lambda: journal.open_cursor(_THREAD, "exporter"),
        "advance_cursor": lambda: journal.advance_cursor(cursor, 0),
        "reset_cursor": lambda: journal.reset_cursor(_THREAD, "exporter", 0, expected_version=cursor.version),
        "list_threads": lambda: journal.list_threads(ThreadScope("user")),
        "trim": lambda: journal.trim(_THREAD, 0),
        "delete": lambda: journal.delete(_THREAD),
        "verify": lambda: journal.verify(_THREAD),
        "collect": lambda: journal.collect(_THREAD),
        "load": lambda: state.load(_SLOT),
        "save": lambda: state.save(_SLOT, b"{}"),
        "load_list": lambda: state.load_list(_SLOT),
        "append_list": lambda: state.append_list(_SLOT, (b"1",), expected_length=0),
        "replace_list": lambda: state.replace_list(_SLOT, ()),
        "delete slot": lambda: state.delete(_SLOT),
        "delete_session": lambda: state.delete_session(session),
        "exists": lambda: state.exists(session),
        "list_keys": lambda: state.list_keys(session),
        "list_sessions": lambda: state.list_sessions("user"),
    }
    for name, call in calls.items():
        ctx.raises(StoreClosed, call, f"{name} on a closed store")
    head = ctx.open_journal().head(_THREAD)
    ctx.check(head is None or head.last_seq == 0, "a call on a closed store has written")


@rule(
    "VAL-4.declared",
    level=0,
    hint="a limit is left at None or infinity; every medium has one, declare it",
)
def limits_are_finite(ctx: Context) -> None:
    """All limits are declared, positive and finite, and the same on every handle of the target."""
    declared = (ctx.journal.capabilities, ctx.state.capabilities)
    for capabilities in declared:
        for name in Limits.__struct_fields__:
            value = getattr(capabilities.limits, name)
            ctx.check(type(value) is int and 0 < value < 1 << 53, f"limit {name} is {value!r}")
        ctx.check(bool(capabilities.durability_setting), "durability_setting is empty; name the setting that gives it")
    ctx.equal(declared[0].backend, declared[1].backend, "the backend's name on journal and state store")
    ctx.equal(ctx.open_journal().capabilities, declared[0], "capabilities of a second journal store")


@rule(
    "ATOM-5.sharing",
    level=0,
    needs=(Sharing.HOST,),
    hint="the backend keeps data in the process, or flushes it late, and declares host sharing all the same",
    kills=("fork-local-data",),
)
def sharing_holds(ctx: Context) -> None:
    """Where sharing is at least host, another process sees at once what this one has committed, and the reverse."""
    claim = ctx.journal.claim(_THREAD, "writer")
    event = Event(event_id="e1", type="run/start", occurred_at=1, payload=b"{}")
    ctx.journal.append(claim, Batch("b1", (event,)), 0)
    child = ctx.spawn("statebook_conformance.workers:append_one", {"event_id": "e2"})
    ctx.equal(child.result(), 1, "the last seq that another process sees")
    head = ctx.journal.head(_THREAD)
    ctx.equal(None if head is None else head.last_seq, 2, "the last seq after another process has appended")
