"""STATE-1, -2, -3, -5: conditions, versions and what a failed save leaves behind, one caller at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final, cast

from statebook.errors import VersionConflict
from statebook.keys import SessionKey, StateKey
from statebook.model import ABSENT, ANY, ExpectedVersion, SlotKind
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.walking import all_keys, all_sessions, snapshot

_SLOT: Final = StateKey("user", "session", "key")
_SESSION: Final = _SLOT.session
_NEVER: Final = 999_999_999

Save = Callable[[bytes, ExpectedVersion], int]
Load = Callable[[], tuple[bytes, int] | None]


def _kinds(ctx: Context) -> tuple[tuple[str, SlotKind, Save, Load], ...]:
    """Documents and lists behind one shape: a list of one item stands for a value."""
    state = ctx.state

    def load() -> tuple[bytes, int] | None:
        found = state.load(_SLOT)
        return None if found is None else (found.value, found.version)

    def load_list() -> tuple[bytes, int] | None:
        found = state.load_list(_SLOT)
        return None if found is None else (b"".join(found.items), found.version)

    return (
        ("document", SlotKind.DOCUMENT, lambda value, expected: state.save(_SLOT, value, expected=expected), load),
        (
            "list",
            SlotKind.LIST,
            lambda value, expected: state.replace_list(_SLOT, (value,), expected=expected),
            load_list,
        ),
    )


@rule(
    "STATE-1.condition",
    level=1,
    hint="the condition is dropped where the slot is absent or new, or is checked after the write",
    kills=("cas-ignores-condition", "conflict-but-written", "absent-means-any"),
)
def condition(ctx: Context) -> None:
    """A save is applied iff the slot is as expected; else it conflicts with the current version, and changes nothing.

    Cases: 1, 2.
    """
    for name, kind, save, load in _kinds(ctx):

        def conflicts(
            expected: ExpectedVersion, save: Save = save, load: Load = load, name: str = name
        ) -> VersionConflict:
            before = load()
            what = f"saving a {name} that is {before}, expecting {expected}"
            error = ctx.raises(VersionConflict, lambda: save(b'"refused"', expected), what)
            ctx.equal(load(), before, f"the {name} after a conflict")
            ctx.equal(error.current_version, None if before is None else before[1], f"current version, {what}")
            return error

        conflicts(1)
        first = save(b"1", ABSENT)
        conflicts(ABSENT)
        conflicts(first + 1)
        second = save(b"2", first)
        conflicts(first)
        conflicts(ABSENT)
        third = save(b"3", ANY)
        conflicts(second)
        fourth = save(b"3", third)
        conflicts(third)
        ctx.equal(load(), (b"3", fourth), f"the {name} at the end")
        delete = partial(ctx.state.delete, _SLOT, kind=kind)
        ctx.raises(VersionConflict, partial(delete, expected=third), "deleting another version")
        ctx.equal(load(), (b"3", fourth), f"the {name} after a refused delete")
        ctx.equal(delete(expected=fourth), True, f"deleting the {name} as expected")
        conflicts(fourth)
        ctx.raises(VersionConflict, partial(delete, expected=fourth), "deleting an absent slot with a version")
        ctx.equal(delete(), False, f"deleting an absent {name}")
        ctx.check(save(b"5", ABSENT) > fourth, f"the {name} that was created again has an old version")


@rule(
    "STATE-1.expected-values",
    level=1,
    hint="expected is compared with == or tested for truth, so that True is 1 and 0 or None mean anything",
    kills=("true-is-version-one", "zero-means-any"),
)
def expected_values(ctx: Context) -> None:
    """What is neither ANY, ABSENT nor a positive version is ValueError, and a length is an integer of at least 0.

    Cases: 6, 14.
    """
    state = ctx.state
    version = state.save(_SLOT, b"1")
    list_version = state.replace_list(_SLOT, (b"1",))
    for bad in (True, False, 0, -1, 1.0, "1", "any", None, b"1", [1], float(version)):
        expected = cast("int", bad)
        calls: dict[str, Callable[[], object]] = {
            "save": partial(state.save, _SLOT, b"2", expected=expected),
            "replace_list": partial(state.replace_list, _SLOT, (b"2",), expected=expected),
            "delete": partial(state.delete, _SLOT, expected=expected),
            "delete of a list": partial(state.delete, _SLOT, kind=SlotKind.LIST, expected=expected),
        }
        for name, call in calls.items():
            ctx.raises(ValueError, call, f"{name} with expected={bad!r}")
    ctx.raises(ValueError, partial(state.delete, _SLOT, expected=cast("int", ABSENT)), "delete with expected=ABSENT")
    for wrong in (True, False, -1, 1.0, "1", None, ABSENT):
        length = cast("int", wrong)
        ctx.raises(
            ValueError,
            partial(state.append_list, _SLOT, (b"2",), expected_length=length),
            f"append_list with expected_length={wrong!r}",
        )
    loaded, items = state.load(_SLOT), state.load_list(_SLOT)
    ctx.equal(None if loaded is None else (loaded.value, loaded.version), (b"1", version), "the document afterwards")
    ctx.equal(None if items is None else (items.items, items.version), ((b"1",), list_version), "the list afterwards")


@rule(
    "STATE-2.growing",
    level=1,
    hint="the version is kept in the row that delete removes, or is made from the value or the time",
    kills=("version-reused-after-delete", "version-by-value"),
)
def growing(ctx: Context) -> None:
    """Versions are positive integers that grow for the life of the slot, deletes included: none is issued twice.

    Cases: 5, 6.
    """
    state = ctx.state
    for name, kind, save, load in _kinds(ctx):
        versions = [save(value, ANY) for value in (b"a", b"b", b"a", b"a")]
        state.delete(_SLOT, kind=kind)
        versions.append(save(b"a", ABSENT))
        state.delete(_SLOT, kind=kind, expected=versions[-1])
        versions.append(save(b"a", ANY))
        state.delete_session(_SESSION)
        state.delete_session(_SESSION)
        versions.append(save(b"a", ABSENT))
        if kind is SlotKind.LIST:
            versions.append(state.append_list(_SLOT, (b"b",), expected_length=1))
            versions.append(state.append_list(_SLOT, (), expected_length=2))
            state.delete(_SLOT, kind=kind)
            versions.append(state.append_list(_SLOT, (b"a",), expected_length=0))
        for version in versions:
            ctx.check(type(version) is int and version > 0, f"a {name} has the version {version!r}")
        ascending = all(earlier < later for earlier, later in pairwise(versions))
        ctx.check(ascending, f"the versions of a {name} over saves and deletes do not grow: {versions}")
        ctx.equal(load(), (b"a", versions[-1]), f"the {name} at the end")
        for stale in versions[:-1]:
            ctx.raises(VersionConflict, partial(save, b"z", stale), f"saving a {name} over version {stale}")


@rule(
    "STATE-3.absent",
    level=1,
    hint="an absent slot is shown as an empty value, or a document and a list of one key are one slot",
    kills=("kinds-mixed", "absent-is-empty"),
)
def absent(ctx: Context) -> None:
    """An absent slot is None and nothing else; a document and a list under one key are two slots.

    Cases: 18.
    """
    state = ctx.state
    ctx.equal((state.load(_SLOT), state.load_list(_SLOT)), (None, None), "a slot that was never saved")
    ctx.equal(state.delete(_SLOT), False, "deleting a document that was never saved")
    ctx.equal(state.delete(_SLOT, kind=SlotKind.LIST), False, "deleting a list that was never saved")
    ctx.equal(all_sessions(state, "user"), (), "sessions after reads and deletes of nothing")
    state.save(_SLOT, b"null")
    ctx.equal(state.load_list(_SLOT), None, "the list beside a document")
    state.append_list(_SLOT, (), expected_length=0)
    found = state.load_list(_SLOT)
    ctx.equal(None if found is None else found.items, (), "an empty list")
    ctx.equal(state.delete(_SLOT), True, "deleting the document")
    ctx.equal(state.load(_SLOT), None, "the deleted document")
    ctx.check(state.load_list(_SLOT) is not None, "deleting the document took the list of the same key along")
    state.save(_SLOT, b"1")
    ctx.equal(state.delete(_SLOT, kind=SlotKind.LIST), True, "deleting the list")
    loaded = state.load(_SLOT)
    ctx.equal(None if loaded is None else loaded.value, b"1", "the document after the list was deleted")


@rule(
    "STATE-3.fresh",
    level=1,
    hint="the store caches in the client, or reads in a transaction that never ends",
    kills=("stale-read", "stale-listing"),
)
def fresh(ctx: Context) -> None:
    """A handle that has read sees at its next call what another handle has committed meanwhile.

    Cases: 29, 33, 35.
    """
    reader, writer = ctx.open_state(), ctx.open_state()
    for index in range(20):
        slot = StateKey("user", f"session {index % 4}", "key")
        ctx.equal(reader.exists(slot.session), index >= 4, f"whether session {index % 4} exists")
        version = writer.save(slot, b"%d" % index)
        loaded = reader.load(slot)
        found = None if loaded is None else (loaded.value, loaded.version)
        ctx.equal(found, (b"%d" % index, version), f"what a reader sees after save {index} of another handle")
        ctx.equal(reader.exists(slot.session), True, "whether the session exists, asked by the reader")
        ctx.equal(len(all_sessions(reader, "user")), min(index + 1, 4), "sessions that the reader lists")
        length = index // 4
        writer.append_list(slot, (b"%d" % index,), expected_length=length)
        items = reader.load_list(slot)
        ctx.equal(None if items is None else len(items.items), length + 1, "items that the reader sees")
        listed = all_keys(reader, slot.session, kind=SlotKind.LIST)
        ctx.equal(listed, (slot,), "lists that the reader lists")
    writer.delete(StateKey("user", "session 0", "key"))
    ctx.equal(reader.load(StateKey("user", "session 0", "key")), None, "what the reader sees of a deleted document")
    ctx.equal(all_keys(reader, SessionKey("user", "session 0")), (), "keys of the session whose document was deleted")


@rule(
    "STATE-5.no-trace",
    level=1,
    hint="the session or an index entry is written before the condition is judged",
    kills=("phantom-session",),
)
def no_trace(ctx: Context) -> None:
    """A failed save leaves no trace: no phantom session, no key, no changed list, no byte that is counted as a slot."""
    state = ctx.state
    state.load(_SLOT)
    medium = ctx.open_medium()
    before = {} if medium is None else snapshot(medium)
    failed: dict[str, Callable[[], object]] = {
        "save": lambda: state.save(_SLOT, b"1", expected=_NEVER),
        "replace_list": lambda: state.replace_list(_SLOT, (b"1",), expected=_NEVER),
        "append_list": lambda: state.append_list(_SLOT, (b"1",), expected_length=9),
        "delete": lambda: state.delete(_SLOT, expected=_NEVER),
    }
    for name, call in failed.items():
        ctx.raises(VersionConflict, call, f"{name} of an absent slot with a version")
        ctx.equal(state.exists(_SESSION), False, f"whether the session exists after a failed {name}")
        ctx.equal(all_sessions(state, "user"), (), f"sessions after a failed {name}")
        for kind in SlotKind:
            ctx.equal(all_keys(state, _SESSION, kind=kind), (), f"{kind.value}s after a failed {name}")
        ctx.equal(state.delete_session(_SESSION), 0, f"slots deleted after a failed {name}")
    if medium is not None:
        after = snapshot(medium)
        changed = sorted(record for record, data in after.items() if before.get(record) != data)
        ctx.check(not changed, f"failed saves have written the records {changed[:3]}")
    state.save(_SLOT, b"1", expected=ABSENT)
    state.replace_list(_SLOT, (b"1", b"2"))
    for name, call in failed.items():
        ctx.raises(VersionConflict, call, f"{name} with another version")
    found = state.load_list(_SLOT)
    ctx.equal(None if found is None else found.items, (b"1", b"2"), "the list after failed calls")


@rule(
    "STATE-5.stale-save",
    level=1,
    hint="an update of a missing row becomes an insert",
    kills=("stale-save-resurrects",),
)
def stale_save(ctx: Context) -> None:
    """A save based on a deleted version conflicts and brings nothing back; an explicit create has a higher version.

    Cases: 5, 40.
    """
    state = ctx.state
    for name, kind, save, load in _kinds(ctx):
        version = save(b"1", ANY)
        removals: tuple[Callable[[], object], ...] = (
            partial(state.delete, _SLOT, kind=kind),
            partial(state.delete_session, _SESSION),
        )
        for remove in removals:
            remove()
            error = ctx.raises(VersionConflict, partial(save, b"stale", version), f"saving over a deleted {name}")
            ctx.equal(error.current_version, None, "the current version of a deleted slot")
            ctx.equal(load(), None, f"the {name} after a stale save")
            ctx.equal(state.exists(_SESSION), False, "whether the session exists after a stale save")
            ctx.equal(all_sessions(state, "user"), (), "sessions after a stale save")
            again = save(b"2", ABSENT)
            ctx.check(again > version, f"the {name} that was created again has version {again}, not above {version}")
            ctx.raises(VersionConflict, partial(save, b"stale", version), f"saving a {name} over its earlier life")
            version = again
        state.delete(_SLOT, kind=kind)
