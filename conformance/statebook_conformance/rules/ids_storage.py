"""ID: long identifiers, namespaces, and ids that look like paths, seen in the raw medium too."""

from __future__ import annotations

from statebook.keys import SessionKey, StateKey, ThreadKey, ThreadScope, encode_id
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.walking import all_keys, all_sessions, all_threads, snapshot

_PATHS = ("..", ".", "../x", "../../etc/cron.d/evil", "/abs", "//x", "C:\\x", "a\\..\\b", "CON", "nul.json", "x.", "~")


@rule(
    "ID-4.long-ids",
    level=1,
    hint="a long id is cut to the medium's limit, or its digest is listed in its place; store the full id beside it",
    kills=("long-ids-cut", "digest-listed"),
)
def long_ids(ctx: Context) -> None:
    """Ids too long for the medium stay distinct however late they differ, and are listed as they were given.

    Cases: 17.
    """
    stem = "x" * 511
    names: tuple[str, ...] = (
        stem + "a",
        stem + "b",
        stem,
        "é" * 256,
        "é" * 255 + "ee",
        "😀" * 128,
        "X" * 512,
        "x" * 512,
    )
    names += tuple(encode_id(name) for name in names)
    slots = tuple(
        StateKey(user, session, key) for user, session, key in zip(names, reversed(names), names, strict=True)
    )
    threads = tuple(ThreadKey("user", name, name, name) for name in names)
    for index, slot in enumerate(slots):
        ctx.state.save(slot, b"%d" % index)
        ctx.journal.claim(threads[index], names[index])
    for index, slot in enumerate(slots):
        loaded = ctx.state.load(slot)
        ctx.equal(None if loaded is None else loaded.value, b"%d" % index, f"the slot of user {slot.user_id!r}")
        ctx.equal(all_sessions(ctx.state, slot.user_id), (slot.session,), f"the sessions of user {slot.user_id!r}")
        ctx.equal(all_keys(ctx.state, slot.session), (slot,), f"the keys of session {slot.session_id!r}")
        head = ctx.journal.head(threads[index])
        holder = None if head is None or head.claim is None else head.claim.writer_id
        ctx.equal(holder, names[index], f"the writer of thread {names[index]!r}")
    listed = all_threads(ctx.journal, ThreadScope("user"))
    ctx.equal(listed, tuple(sorted(threads, key=lambda key: key.name)), "the threads listed, ascending by name")


@rule(
    "ID-5.namespaces",
    level=1,
    hint="names are not put below the namespace, or it is matched as a prefix of another one",
    kills=("namespace-ignored",),
)
def namespaces(ctx: Context) -> None:
    """Two namespaces on one server never meet: not in reads, listings, counts or deletes, and not in removal.

    Cases: 16, 20.
    """
    other = ctx.other_namespace()
    slot, thread = StateKey("user", "session", "key"), ThreadKey("user", "agent", "session", "thread")
    session = SessionKey("user", "session")
    ctx.state.save(slot, b"ours")
    ctx.journal.claim(thread, "ours")
    ctx.equal(other.state.load(slot), None, "a slot that only the other namespace has")
    ctx.equal(other.state.exists(session), False, "whether the other namespace's session exists")
    ctx.equal(all_sessions(other.state, "user"), (), "sessions listed in an empty namespace")
    ctx.equal(other.journal.head(thread), None, "a journal that only the other namespace has")
    ctx.equal(all_threads(other.journal, ThreadScope("user")), (), "threads listed in an empty namespace")
    ctx.equal(other.state.delete_session(session), 0, "slots deleted in an empty namespace")
    other.state.save(slot, b"theirs")
    other.journal.claim(thread, "theirs")
    ctx.equal(ctx.state.delete_session(session), 1, "slots deleted in this namespace")
    loaded = other.state.load(slot)
    ctx.equal(None if loaded is None else loaded.value, b"theirs", "the slot of the other namespace")
    ctx.state.save(slot, b"ours")
    other.state.close()
    other.journal.close()
    other.backend.destroy_namespace()
    loaded = ctx.state.load(slot)
    ctx.equal(None if loaded is None else loaded.value, b"ours", "the slot after the other namespace was removed")
    head = ctx.journal.head(thread)
    ctx.check(head is not None and head.last_seq == 0, "the journal is gone after the other namespace was removed")


@rule(
    "ID-5.paths",
    level=1,
    hint="an id becomes a part of a path or key as it is; use core's encoder",
    kills=("path-escape",),
)
def paths(ctx: Context) -> None:
    """What is stored under an id that looks like a path is in the namespace's own records, and goes with it.

    Cases: 17, 20.
    """
    slots = tuple(StateKey("user", name, name) for name in _PATHS)
    for index, slot in enumerate(slots):
        before = _records(ctx)
        ctx.state.save(slot, b'"value-%d"' % index)
        after = _records(ctx)
        ctx.check(
            before is None or before != after,
            f"saving under the id {slot.key!r} changed nothing in the namespace's records: it went elsewhere",
        )
    ctx.equal(len(all_sessions(ctx.state, "user")), len(slots), "sessions listed")
    ctx.state.close()
    removed = ctx.backend.destroy_namespace()
    left = _records(ctx) or {}
    ctx.check(not removed or not left, f"records that are left when the namespace is removed: {sorted(left)[:5]}")
    fresh = ctx.open_state()
    for slot in slots if removed else ():
        ctx.equal(fresh.load(slot), None, f"the slot {slot.key!r} after the namespace was removed")


def _records(ctx: Context) -> dict[str, bytes] | None:
    medium = ctx.open_medium()
    if medium is None:
        ctx.saw("backends that show no medium")
        return None
    try:
        return snapshot(medium)
    finally:
        medium.close()
