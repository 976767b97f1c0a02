"""STATE-6, -8, -9: which sessions exist, what deleting one takes along, and listings that are complete and in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, cast

from statebook.keys import SessionKey, StateKey
from statebook.model import SlotKind
from statebook_conformance.context import Context
from statebook_conformance.identifiers import telling_ids
from statebook_conformance.rule import rule
from statebook_conformance.walking import all_keys, all_sessions, snapshot

_USER: Final = "user"
_BEYOND: Final = 1_050
_SLACK: Final = 96 * 1024


@rule(
    "STATE-6.exists",
    level=1,
    hint="the session has a row of its own that nobody removes, or only documents are counted",
    kills=("exists-remembers", "exists-documents-only"),
)
def exists(ctx: Context) -> None:
    """A session exists exactly while it has a live slot of either kind; the listing of sessions agrees."""
    state = ctx.state
    first, second = StateKey(_USER, "session", "a"), StateKey(_USER, "session", "b")
    session = first.session

    def agree(expected: bool, what: str) -> None:  # noqa: FBT001 - a fact
        ctx.equal(state.exists(session), expected, f"whether the session exists {what}")
        ctx.equal(all_sessions(state, _USER), (session,) if expected else (), f"sessions listed {what}")

    agree(False, "before anything was saved")
    state.save(first, b"1")
    agree(True, "with one document")
    state.replace_list(second, ())
    state.delete(first)
    agree(True, "with one empty list alone")
    state.delete(second)
    agree(True, "after a delete of the wrong kind")
    state.delete(second, kind=SlotKind.LIST)
    agree(False, "after its last slot was deleted")
    state.append_list(first, (b"1",), expected_length=0)
    agree(True, "again, with a list")
    state.save(first, b"1")
    state.delete_session(session)
    agree(False, "after it was deleted")
    state.delete(first)
    agree(False, "after a delete of nothing")


@rule(
    "STATE-8.delete-session",
    level=1,
    hint="lists are forgotten, or the session's name is matched as a prefix",
    kills=("delete-session-prefix", "delete-keeps-lists", "delete-count-wrong"),
)
def delete_session(ctx: Context) -> None:
    """Deleting a session takes its live slots of both kinds and nothing else, and says how many there were.

    Cases: 16, 20.
    """
    state = ctx.state
    users = (_USER, None, "user2", "use")
    names = telling_ids()
    for user in users:
        for name in names[:8]:
            state.save(StateKey(user, name, "document"), b"1")
            state.replace_list(StateKey(user, name, "list"), (b"1",))
    session = SessionKey(_USER, "a")
    for key in names:
        state.save(StateKey(_USER, "a", key), b"1")
    state.replace_list(StateKey(_USER, "a", "document"), ())
    state.save(StateKey(_USER, "a", "gone"), b"1")
    state.delete(StateKey(_USER, "a", "gone"))
    ctx.equal(state.delete_session(session), len(names) + 3, "the count of deleted slots")
    ctx.equal(state.delete_session(session), 0, "the count when it is deleted again")
    for kind in SlotKind:
        ctx.equal(all_keys(state, session, kind=kind), (), f"{kind.value}s that are left of the session")
    ctx.equal(state.load_list(StateKey(_USER, "a", "list")), None, "a list of the deleted session")
    for user in users:
        for name in names[:8]:
            if (user, name) == (_USER, "a"):
                continue
            loaded = state.load(StateKey(user, name, "document"))
            ctx.equal(None if loaded is None else loaded.value, b"1", f"a document of session {name!r} of {user!r}")
            found = state.load_list(StateKey(user, name, "list"))
            ctx.equal(None if found is None else found.items, (b"1",), f"a list of session {name!r} of {user!r}")
    ctx.equal(state.delete_session(SessionKey(_USER, "never")), 0, "the count for a session that never was")


@rule(
    "STATE-8.no-leftovers",
    level=1,
    hint="the delete names other records than the save; or every save keeps the values before it",
    kills=("delete-leaves-orphans", "save-keeps-history"),
)
def no_leftovers(ctx: Context) -> None:
    """Saving again and again stores no more than was saved, and a deleted session's values are gone from the medium.

    Cases: 20, 41.
    """
    state, medium = ctx.state, ctx.open_medium()
    marker = b"value-that-is-deleted"
    large = b'"%s %s"' % (marker, b"v" * 200_000)
    slots = tuple(StateKey(_USER, "session", name) for name in ("key", "{key}", "{}", "a:b", "x" * 512))
    for index in range(60):
        state.save(slots[0], b'"%s %06d %s"' % (marker, index, b"v" * 2_000))
        state.replace_list(slots[0], (b'"%s"' % marker,) * (index % 7))
    for slot in slots[1:]:
        state.save(slot, large)
        state.append_list(slot, (b'"%s"' % marker, large), expected_length=0)
    loaded = state.load(slots[0])
    ctx.check(loaded is not None and b"000059" in loaded.value, "the document is not the one that was saved last")
    given = 60 * 2_200 + 8 * len(large)
    stored = 0 if medium is None else sum(map(len, snapshot(medium).values()))
    ctx.check(stored <= 2 * given + _SLACK, f"about {given} bytes were saved, {stored} bytes are stored")
    ctx.equal(state.delete_session(SessionKey(_USER, "session")), 10, "the count of deleted slots")
    if medium is None:
        ctx.saw("backends that show no medium")
        return
    left = sorted(record for record, data in snapshot(medium).items() if marker in data)
    ctx.check(not left, f"{len(left)} records still hold a value after its session was deleted: {left[:3]}")


# ------------------------------------------------------------------------------------------------------------ listings


@rule(
    "STATE-9.limits",
    level=1,
    hint="the limit goes to the driver as it is, where -1 or None means everything and more is cut",
    kills=("limit-clamped",),
)
def limits(ctx: Context) -> None:
    """A page's limit is 1 to 10,000, everything else is ValueError; after must be of what is listed.

    Cases: 14.
    """
    state = ctx.state
    slot = StateKey(_USER, "session", "key")
    state.save(slot, b"1")
    for bad in (0, -1, 10_001, None, True, 1.0, "1", 1 << 40):
        limit = cast("int", bad)
        ctx.raises(ValueError, partial(state.list_keys, slot.session, limit=limit), f"list_keys with limit {bad!r}")
        ctx.raises(ValueError, partial(state.list_sessions, _USER, limit=limit), f"list_sessions with limit {bad!r}")
    for good in (1, 2, 1_000, 10_000):
        ctx.equal(state.list_keys(slot.session, limit=good).keys, (slot,), f"list_keys with limit {good}")
        ctx.equal(state.list_sessions(_USER, limit=good).sessions, (slot.session,), f"list_sessions, limit {good}")
    foreign = (StateKey(_USER, "other", "key"), StateKey("other", "session", "key"), StateKey(None, "session", "key"))
    for after in foreign:
        ctx.raises(ValueError, partial(state.list_keys, slot.session, after=after), f"list_keys after {after.name}")
    for user in ("other", None):
        after_session = SessionKey(user, "session")
        ctx.raises(
            ValueError, partial(state.list_sessions, _USER, after=after_session), f"list_sessions after one of {user!r}"
        )


@rule(
    "STATE-9.paging",
    level=1,
    hint="pages are counted from the start, or the edge is compared with the wrong sign",
    kills=("key-page-edge-lost", "key-page-edge-repeated", "offset-paging", "listing-unordered", "has-more-guessed"),
)
def paging(ctx: Context) -> None:
    """Pages of any length give each key and session once, ascending by name, also while others are deleted.

    Cases: 14, 15, 16.
    """
    state = ctx.state
    names = sorted(telling_ids(), reverse=True)
    for name in names:
        state.save(StateKey(_USER, "session", name), b"1")
        state.replace_list(StateKey(_USER, name, "list"), (b"1",))
    session = SessionKey(_USER, "session")
    keys = tuple(sorted((StateKey(_USER, "session", name) for name in names), key=lambda key: key.name))
    sessions = tuple(sorted((SessionKey(_USER, name) for name in (*names, "session")), key=lambda key: key.name))
    for limit in (1, 2, 3, len(keys) - 1, len(keys), len(keys) + 1, len(sessions), 10_000):
        ctx.equal(all_keys(state, session, limit=limit), keys, f"keys in pages of {limit}")
        ctx.equal(all_sessions(state, _USER, limit=limit), sessions, f"sessions in pages of {limit}")
        page = state.list_keys(session, limit=limit)
        ctx.equal((len(page.keys), page.has_more), (min(limit, len(keys)), limit < len(keys)), "length and has_more")
    for index, key in enumerate(keys):
        page = state.list_keys(session, after=key, limit=2)
        ctx.equal((page.keys, page.has_more), (keys[index + 1 : index + 3], index + 3 < len(keys)), "a page in between")
    absent = StateKey(_USER, "session", "b-absent")
    rest = tuple(key for key in keys if key.name > absent.name)
    ctx.equal(state.list_keys(session, after=absent).keys, rest, "keys behind one that was never there")
    first = state.list_keys(session, limit=4)
    state.delete(first.keys[0])
    state.delete(first.keys[-1])
    state.save(StateKey(_USER, "session", "zzz"), b"1")
    second = state.list_keys(session, after=first.keys[-1], limit=10_000)
    last = (*keys[4:], StateKey(_USER, "session", "zzz"))
    expected = tuple(sorted(last, key=lambda key: key.name))
    ctx.equal(second.keys, expected, "the second page after keys of the first were deleted")
    shown = state.list_sessions(_USER, limit=4)
    state.delete_session(shown.sessions[1])
    ctx.equal(
        state.list_sessions(_USER, after=shown.sessions[-1]).sessions, sessions[4:], "sessions of the second page"
    )


def _fill(ctx: Context, saves: list[Callable[[], object]]) -> None:
    """Do many saves from a few threads."""

    def some(part: int) -> Callable[[], None]:
        def run() -> None:
            for save in saves[part::4]:
                save()

        return run

    ctx.threads(tuple(some(part) for part in range(4)), timeout_s=120)


@rule(
    "STATE-9.keys-beyond-a-page",
    level=1,
    hint="the driver's page of 1,000, or a SCAN's, is taken for everything",
    kills=("listing-stops-at-1000", "delete-stops-at-1000"),
    timeout_s=150,
)
def keys_beyond_a_page(ctx: Context) -> None:
    """1,050 keys of one session are listed and deleted to the last one, beyond any driver's page.

    Cases: 14, 20.
    """
    state = ctx.state
    session = SessionKey(_USER, "session")
    slots = [StateKey(_USER, "session", f"Key {index}") for index in range(_BEYOND)]
    _fill(ctx, [partial(state.save, slot, b"1") for slot in slots])
    expected = tuple(sorted(slots, key=lambda slot: slot.name))
    page = state.list_keys(session)
    ctx.equal((page.keys, page.has_more), (expected[:1_000], True), "the first page of 1,050 keys")
    ctx.equal(all_keys(state, session), expected, "1,050 keys in pages of 1,000")
    ctx.equal(all_keys(state, session, limit=10_000), expected, "1,050 keys in one page")
    ctx.equal(state.list_keys(session, limit=10_000).has_more, False, "has_more of a page of 10,000")
    ctx.equal(state.delete_session(session), _BEYOND, "the count of deleted slots")
    ctx.equal(state.list_keys(session).keys, (), "keys that are left")
    ctx.equal(state.exists(session), False, "whether the session exists")


@rule(
    "STATE-9.sessions-beyond-a-page",
    level=1,
    hint="the driver's page of 1,000, or a SCAN's, is taken for everything",
    kills=("listing-stops-at-1000",),
    timeout_s=150,
)
def sessions_beyond_a_page(ctx: Context) -> None:
    """1,050 sessions of one user are listed to the last one, with the names that were given.

    Cases: 14.
    """
    state = ctx.state
    slots = [StateKey(None, f"Session/{index}", "key") for index in range(_BEYOND)]
    _fill(ctx, [partial(state.save, slot, b"1") for slot in slots])
    state.save(StateKey("someone", "session", "key"), b"1")
    expected = tuple(sorted((slot.session for slot in slots), key=lambda session: session.name))
    page = state.list_sessions(None)
    ctx.equal((page.sessions, page.has_more), (expected[:1_000], True), "the first page of 1,050 sessions")
    ctx.equal(all_sessions(state, None), expected, "1,050 sessions in pages of 1,000")
    ctx.equal(all_sessions(state, None, limit=10_000), expected, "1,050 sessions in one page")
