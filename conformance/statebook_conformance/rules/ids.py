"""ID: every legal identifier is a key of its own, for every kind of id; every other one is refused alike."""

from __future__ import annotations

from collections.abc import Callable

from statebook.errors import InvalidKey
from statebook.keys import SessionKey, StateKey, ThreadKey, ThreadScope
from statebook.model import Batch, Event, SlotKind, WriterClaim
from statebook_conformance.context import Context
from statebook_conformance.identifiers import legal_ids, refused_ids
from statebook_conformance.rule import rule
from statebook_conformance.walking import all_keys, all_sessions, all_threads

_SESSION = SessionKey("user", "session")
_THREAD = ThreadKey("user", "agent", "session", "thread")
_MIXED_UP = "names are joined, folded, cut or matched as patterns; use core's encoder for storage names"


def event(event_id: str, payload: bytes = b"{}") -> Event:
    """An event of no meaning."""
    return Event(event_id=event_id, type="run/start", occurred_at=1, payload=payload)


def _slots_are_apart(ctx: Context, slots: tuple[StateKey, ...], what: str) -> None:
    """Write all slots, then read all, delete one, and read all again."""
    state = ctx.state
    for index, slot in enumerate(slots):
        state.save(slot, b"%d" % index)
    for index, slot in enumerate(slots):
        loaded = state.load(slot)
        ctx.equal(None if loaded is None else loaded.value, b"%d" % index, f"{what} {_id(slot)!r}")
    gone = ctx.random.randrange(len(slots))
    ctx.equal(state.delete(slots[gone]), True, f"deleting {what} {_id(slots[gone])!r}")
    for index, slot in enumerate(slots):
        loaded = state.load(slot)
        expected = None if index == gone else b"%d" % index
        found = None if loaded is None else loaded.value
        ctx.equal(found, expected, f"{what} {_id(slot)!r} after {_id(slots[gone])!r} was deleted")
    state.save(slots[gone], b"again")


def _id(slot: StateKey) -> tuple[str | None, str, str]:
    return (slot.user_id, slot.session_id, slot.key)


@rule("ID-2.state-keys", level=1, hint=_MIXED_UP, kills=("case-folding", "trailing-space-cut", "accent-folding"))
def state_keys(ctx: Context) -> None:
    """Every legal id is a state key of its own, and is listed as it was given.

    Cases: 16, 17, 18, 19, 22.
    """
    slots = tuple(StateKey("user", "session", name) for name in legal_ids())
    _slots_are_apart(ctx, slots, "state key")
    listed = all_keys(ctx.state, _SESSION)
    ctx.equal(listed, tuple(sorted(slots, key=lambda slot: slot.name)), "the keys listed, ascending by name")


@rule("ID-2.list-keys", level=1, hint=_MIXED_UP, kills=("list-key-cut",))
def list_keys(ctx: Context) -> None:
    """Every legal id is the key of a list of its own, beside a document of the same key.

    Cases: 16, 18, 19.
    """
    slots = tuple(StateKey("user", "session", name) for name in legal_ids())
    for index, slot in enumerate(slots):
        ctx.state.replace_list(slot, (b"%d" % index,))
    ctx.equal(all_keys(ctx.state, _SESSION), (), "documents listed where only lists were saved")
    for index, slot in enumerate(slots):
        loaded = ctx.state.load_list(slot)
        ctx.equal(None if loaded is None else loaded.items, (b"%d" % index,), f"the list {slot.key!r}")
    listed = all_keys(ctx.state, _SESSION, kind=SlotKind.LIST)
    ctx.equal(listed, tuple(sorted(slots, key=lambda slot: slot.name)), "the lists listed, ascending by name")


@rule("ID-2.sessions", level=1, hint=_MIXED_UP, kills=("delete-session-pattern", "separator-confusion"))
def sessions(ctx: Context) -> None:
    """Every legal id is a session of its own: deleting every other session leaves the rest whole.

    Cases: 16, 17, 18, 19, 20.
    """
    state = ctx.state
    slots = tuple(StateKey("user", name, "key") for name in legal_ids())
    pairs = (StateKey("user", "a", "b:c"), StateKey("user", "a:b", "c"), StateKey("user", "a/b", "c"))
    _slots_are_apart(ctx, slots + pairs, "session")
    expected = sorted({slot.session for slot in slots}, key=lambda session: session.name)
    ctx.equal(all_sessions(state, "user"), tuple(expected), "the sessions listed, ascending by name")
    sizes = {session: sum(slot.session == session for slot in slots + pairs) for session in expected}
    for session in expected[::2]:
        ctx.equal(state.delete_session(session), sizes[session], f"slots deleted with session {session.session_id!r}")
    for index, session in enumerate(expected):
        ctx.equal(state.exists(session), index % 2 == 1, f"whether session {session.session_id!r} exists")
    ctx.equal(all_sessions(state, "user"), tuple(expected[1::2]), "the sessions that are left")


@rule("ID-2.users", level=1, hint=_MIXED_UP, kills=("case-folding",))
def users(ctx: Context) -> None:
    """Every legal id is a user of its own.

    Cases: 16, 17, 18, 19.
    """
    slots = tuple(StateKey(name, "session", "key") for name in legal_ids())
    _slots_are_apart(ctx, slots, "user")
    for slot in slots:
        ctx.equal(all_sessions(ctx.state, slot.user_id), (slot.session,), f"the sessions of user {slot.user_id!r}")


def _threads_are_apart(ctx: Context, threads: tuple[ThreadKey, ...], what: str) -> None:
    """Claim all threads under writers named as they are; each head shows its own writer and key."""
    names = legal_ids()
    for thread, name in zip(threads, names, strict=True):
        claim = ctx.journal.claim(thread, name)
        ctx.equal(claim.epoch, 1, f"the first epoch of {what} {name!r}")
    for thread, name in zip(threads, names, strict=True):
        head = ctx.journal.head(thread)
        ctx.check(head is not None and head.key == thread, f"{what} {name!r} has no head of its own")
        holder = None if head is None or head.claim is None else head.claim.writer_id
        ctx.equal(holder, name, f"the writer of {what} {name!r}")


def _delete_every_other(ctx: Context, threads: tuple[ThreadKey, ...], what: str) -> None:
    for thread in threads[::2]:
        ctx.equal(ctx.journal.delete(thread), True, f"deleting {what} of {thread.name}")
    for index, thread in enumerate(threads):
        ctx.equal(ctx.journal.head(thread) is None, index % 2 == 0, f"whether {what} of {thread.name} is gone")


@rule("ID-2.threads", level=1, hint=_MIXED_UP, kills=("thread-id-folding",))
def threads(ctx: Context) -> None:
    """Every legal id is a thread of its own, and the name of a writer, and is listed as it was given.

    Cases: 16, 17, 18, 19.
    """
    keys = tuple(ThreadKey("user", "agent", "session", name) for name in legal_ids())
    _threads_are_apart(ctx, keys, "thread")
    expected = tuple(sorted(keys, key=lambda key: key.name))
    ctx.equal(all_threads(ctx.journal, ThreadScope("user", "agent", "session")), expected, "the threads listed")
    _delete_every_other(ctx, expected, "the thread")
    ctx.equal(all_threads(ctx.journal, ThreadScope("user")), expected[1::2], "the threads that are left")


@rule("ID-2.agents-and-sessions", level=1, hint=_MIXED_UP, kills=("thread-scope-prefix",))
def agents_and_sessions(ctx: Context) -> None:
    """Every legal id is an agent, a journal's session and a journal's user of its own: scopes list their own only.

    Cases: 16, 18, 19.
    """
    agents = tuple(ThreadKey("by agent", name, "session", "thread") for name in legal_ids())
    _threads_are_apart(ctx, agents, "agent")
    by_session = tuple(ThreadKey("by session", "agent", name, "thread") for name in legal_ids())
    _threads_are_apart(ctx, by_session, "session")
    by_user = tuple(ThreadKey(name, "agent", "session", "thread") for name in legal_ids())
    _threads_are_apart(ctx, by_user, "user")
    for key in agents:
        found = all_threads(ctx.journal, ThreadScope("by agent", key.agent_id))
        ctx.equal(found, (key,), f"the threads of agent {key.agent_id!r}")
    for key in by_session:
        found = all_threads(ctx.journal, ThreadScope("by session", "agent", key.session_id))
        ctx.equal(found, (key,), f"the threads of session {key.session_id!r}")
    for key in by_user:
        ctx.equal(all_threads(ctx.journal, ThreadScope(key.user_id)), (key,), f"the threads of user {key.user_id!r}")


@rule("ID-2.batches-and-events", level=1, hint=_MIXED_UP, kills=("batch-id-folding",))
def batches_and_events(ctx: Context) -> None:
    """Every legal id is a batch and an event of its own, and comes back as it was given.

    Cases: 16, 18, 19, 22.
    """
    journal = ctx.journal
    claim = journal.claim(_THREAD, "writer")
    names = legal_ids()
    for base, name in enumerate(names):
        receipt = journal.append(claim, Batch(name, (event(name),)), base)
        ctx.equal((receipt.batch_id, receipt.first_seq, receipt.replayed), (name, base + 1, False), f"batch {name!r}")
    found = tuple(entry.event_id for entry in journal.read_after(_THREAD, 0).events)
    ctx.equal(found, names, "the event ids read back")
    for base, name in enumerate(names):
        receipt = journal.append(claim, Batch(name, (event(name),)), base)
        ctx.equal((receipt.first_seq, receipt.replayed), (base + 1, True), f"batch {name!r} sent again")


@rule("ID-2.exporters", level=1, hint=_MIXED_UP, kills=("exporter-folding",))
def exporters(ctx: Context) -> None:
    """Every legal id is an exporter of its own: its cursor is moved by nobody else.

    Cases: 16, 18, 19.
    """
    journal = ctx.journal
    names = legal_ids()
    claim = journal.claim(_THREAD, "writer")
    journal.append(claim, Batch("batch", tuple(event(f"e{index}") for index in range(len(names)))), 0)
    cursors = [journal.open_cursor(_THREAD, name) for name in names]
    for to_seq, cursor in enumerate(cursors, 1):
        journal.advance_cursor(cursor, to_seq)
    for to_seq, name in enumerate(names, 1):
        cursor = journal.open_cursor(_THREAD, name)
        ctx.equal((cursor.exporter, cursor.acked_seq), (name, to_seq), f"the cursor of exporter {name!r}")


def _calls_with(ctx: Context, claim: WriterClaim, bad: str) -> dict[str, Callable[[], object]]:
    """Every call that takes an id, with a bad one."""
    journal, state = ctx.journal, ctx.state
    return {
        "save, user": lambda: state.save(StateKey(bad, "s", "k"), b"1"),
        "save, session": lambda: state.save(StateKey("u", bad, "k"), b"1"),
        "save, key": lambda: state.save(StateKey("u", "s", bad), b"1"),
        "exists": lambda: state.exists(SessionKey("u", bad)),
        "delete_session": lambda: state.delete_session(SessionKey(bad, "s")),
        "list_sessions": lambda: state.list_sessions(bad),
        "list_threads": lambda: journal.list_threads(ThreadScope("u", bad)),
        "claim, user": lambda: journal.claim(ThreadKey(bad, "a", "s", "t"), "w"),
        "claim, agent": lambda: journal.claim(ThreadKey("u", bad, "s", "t"), "w"),
        "claim, session": lambda: journal.claim(ThreadKey("u", "a", bad, "t"), "w"),
        "claim, thread": lambda: journal.claim(ThreadKey("u", "a", "s", bad), "w"),
        "claim, writer": lambda: journal.claim(_THREAD, bad),
        "append, batch": lambda: journal.append(claim, Batch(bad, (event("e"),)), 0),
        "append, event": lambda: journal.append(claim, Batch("b", (event(bad),)), 0),
        "settle": lambda: journal.settle(claim, bad, 0),
        "open_cursor": lambda: journal.open_cursor(_THREAD, bad),
        "reset_cursor": lambda: journal.reset_cursor(_THREAD, bad, 0, expected_version=0),
    }


@rule(
    "ID-1.refused",
    level=1,
    hint="an id is cleaned or cut where core's check_id must refuse it",
    kills=("ids-cleaned",),
)
def refused(ctx: Context) -> None:
    """An empty or longer id, U+0000 and lone surrogates are InvalidKey from every call alike, and nothing is written.

    Cases: 17, 22.
    """
    journal, state = ctx.journal, ctx.state
    claim = journal.claim(_THREAD, "writer")
    head = journal.head(_THREAD)
    for bad, why in refused_ids():
        for name, call in _calls_with(ctx, claim, bad).items():
            ctx.raises(InvalidKey, call, f"{name} with an id that is {why}")
    ctx.equal(journal.head(_THREAD), head, "the head after refused calls")
    ctx.equal(all_sessions(state, "u"), (), "sessions after refused calls")
    ctx.equal(all_threads(journal, ThreadScope("u")), (), "threads after refused calls")


@rule(
    "ID-3.no-user",
    level=1,
    hint="None is stored as a word such as 'None' or '_n', or a listing for None lists everybody",
    kills=("none-is-a-word",),
)
def no_user(ctx: Context) -> None:
    """user_id=None differs from every string, and lists the sessions and threads of nobody else.

    Cases: 18.
    """
    words = ("None", "none", "null", "_n", "_N", "__anon__", "__anone__", "anonymous", "default", "0", "undefined")
    everybody: tuple[str | None, ...] = (None, *words)
    for index, user in enumerate(everybody):
        ctx.state.save(StateKey(user, "session", "key"), b"%d" % index)
        ctx.journal.claim(ThreadKey(user, "agent", "session", "thread"), f"writer {index}")
    for index, user in enumerate(everybody):
        loaded = ctx.state.load(StateKey(user, "session", "key"))
        ctx.equal(None if loaded is None else loaded.value, b"%d" % index, f"the slot of user {user!r}")
        head = ctx.journal.head(ThreadKey(user, "agent", "session", "thread"))
        holder = None if head is None or head.claim is None else head.claim.writer_id
        ctx.equal(holder, f"writer {index}", f"the writer of user {user!r}")
        ctx.equal(all_sessions(ctx.state, user), (SessionKey(user, "session"),), f"sessions of user {user!r}")
        thread = ThreadKey(user, "agent", "session", "thread")
        ctx.equal(all_threads(ctx.journal, ThreadScope(user)), (thread,), f"threads of user {user!r}")
    ctx.equal(ctx.state.delete_session(SessionKey(None, "session")), 1, "slots deleted with the absent user's session")
    for user in words:
        ctx.check(ctx.state.exists(SessionKey(user, "session")), f"user {user!r} lost a session of the absent user")
