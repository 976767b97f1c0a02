"""STATE-7: a list comes back as given, however it changed; appending is conditional and costs what is appended."""

from __future__ import annotations

from functools import partial
from typing import Final

from statebook.errors import VersionConflict
from statebook.keys import StateKey
from statebook.model import ABSENT, SlotKind
from statebook_conformance.context import Context, NotClaimed
from statebook_conformance.rule import rule
from statebook_conformance.walking import snapshot, written

_SLOT: Final = StateKey("user", "session", "key")
_SLACK: Final = 96 * 1024


def _items(*values: object) -> tuple[bytes, ...]:
    return tuple(str(value).encode() for value in values)


def _found(ctx: Context) -> tuple[bytes, ...] | None:
    found = ctx.state.load_list(_SLOT)
    return None if found is None else found.items


@rule(
    "STATE-7.as-given",
    level=1,
    hint="the store saves only what a fingerprint, a length or a truth test takes for a change",
    kills=("empty-list-ignored", "sampled-fingerprint", "shrinking-ignored"),
)
def as_given(ctx: Context) -> None:
    """A list that was replaced comes back as given: edited in the middle, shorter, re-ordered, empty, doubled.

    Cases: 8.
    """
    twenty = [b"%d" % index for index in range(20)]
    edited = [*twenty[:7], b'"edited"', *twenty[8:]]
    swapped = [*edited[:3], edited[4], edited[3], *edited[5:]]
    steps: tuple[list[bytes], ...] = (
        twenty,
        edited,
        swapped,
        swapped[::-1],
        [b"1", b"2", b"3"],
        [b"1"],
        [],
        [b"1"],
        [b"1"] * 50,
        [b"1"] * 49,
        [],
        [b""],
        [b"[]", b"null"],
        [b"x" * 100_000, b"y"],
        [b"y", b"x" * 100_000],
    )
    versions: list[int] = []
    for step in steps:
        versions.append(ctx.state.replace_list(_SLOT, step))
        ctx.equal(_found(ctx), tuple(step), "the list after it was replaced")
    ctx.check(sorted(set(versions)) == versions, f"versions over replacements do not grow: {versions}")
    for step in reversed(steps):
        ctx.state.replace_list(_SLOT, tuple(step), expected=versions[-1])
        found = ctx.state.load_list(_SLOT)
        ctx.equal(None if found is None else found.items, tuple(step), "the list after a conditional replacement")
        versions.append(0 if found is None else found.version)


@rule(
    "STATE-7.append",
    level=1,
    hint="append_list reads the length first and appends without it, or takes it for a hint",
    kills=("append-ignores-length", "append-nothing-ignored"),
)
def append(ctx: Context) -> None:
    """An append is applied iff the list has the expected length; appending nothing is a save like any other.

    Cases: 7, 8.
    """
    state = ctx.state
    for length in (1, 2, 1_000):
        call = partial(state.append_list, _SLOT, _items(1), expected_length=length)
        error = ctx.raises(VersionConflict, call, f"appending to an absent list, expecting {length} items")
        ctx.equal((error.current_version, error.current_length), (None, 0), "version and length of an absent list")
    ctx.equal(_found(ctx), None, "the list after refused appends")
    versions = [state.append_list(_SLOT, (), expected_length=0)]
    ctx.equal(_found(ctx), (), "the list after nothing was appended to an absent one")
    versions.append(state.append_list(_SLOT, _items(1, 2), expected_length=0))
    versions.append(state.append_list(_SLOT, [b"3"], expected_length=2))
    versions.append(state.append_list(_SLOT, (), expected_length=3))
    for length in (0, 1, 2, 4, 5):
        call = partial(state.append_list, _SLOT, _items("refused"), expected_length=length)
        error = ctx.raises(VersionConflict, call, f"appending to 3 items, expecting {length}")
        ctx.equal((error.current_version, error.current_length), (versions[-1], 3), "version and length of a conflict")
    found = state.load_list(_SLOT)
    whole = None if found is None else (found.items, found.version)
    ctx.equal(whole, (_items(1, 2, 3), versions[-1]), "the list after appends")
    ctx.check(sorted(set(versions)) == versions, f"versions over appends do not grow: {versions}")
    state.delete(_SLOT, kind=SlotKind.LIST)
    stale = partial(state.append_list, _SLOT, _items(4), expected_length=3)
    ctx.raises(VersionConflict, stale, "appending to a list that was deleted")
    versions.append(state.append_list(_SLOT, _items(9), expected_length=0))
    ctx.check(versions[-1] > versions[-2], "the version of a list that was created again does not grow")
    versions.append(state.replace_list(_SLOT, _items(5, 6), expected=versions[-1]))
    state.append_list(_SLOT, _items(7), expected_length=2)
    ctx.equal(_found(ctx), _items(5, 6, 7), "the list after it was deleted, created, replaced and appended to")
    ctx.raises(VersionConflict, partial(state.replace_list, _SLOT, (), expected=ABSENT), "creating a present list")


@rule(
    "STATE-7.order",
    level=1,
    hint="items are ordered by a time, a text or nothing at all",
    kills=("items-in-text-order",),
)
def order(ctx: Context) -> None:
    """Items come back in the order in which they were appended, beyond any driver's page.

    Cases: 12, 14.
    """
    length = 0
    for size in (1, 9, 90, 900, 1, 500):
        items = _items(*range(length, length + size))
        ctx.state.append_list(_SLOT, items, expected_length=length)
        length += size
    ctx.equal(_found(ctx), _items(*range(length)), "1,501 items in the order of their appends")


@rule(
    "STATE-7.cost",
    level=1,
    hint="an append writes the whole list again, or keeps a copy of it",
    kills=("append-rewrites-list", "append-keeps-snapshots"),
)
def cost(ctx: Context) -> None:
    """An append writes what is appended, not the list: bytes written and bytes stored are linear in the appends.

    Cases: 41.
    """
    state, medium = ctx.state, ctx.open_medium()
    if medium is None:
        raise NotClaimed("the backend shows no medium, so nobody can see what an append writes")
    item = b'"%s"' % (b"i" * 1_022)
    length = 0

    def grow(to: int, step: int) -> None:
        nonlocal length
        while length < to:
            state.append_list(_SLOT, (item,) * step, expected_length=length)
            length += step

    def few() -> int:
        """Bytes of new or changed records over 5 appends."""
        before = snapshot(medium)
        grow(length + 5, 1)
        return written(before, snapshot(medium))

    grow(200, 10)
    early = few()
    grow(1_200, 10)
    late = few()
    ctx.equal(len(_found(ctx) or ()), length, "the items of the list")
    ctx.check(
        late <= 2 * early + _SLACK,
        f"5 appends of 1 KiB to a list of 1,200 items wrote {late} bytes, to one of 200 items {early}",
    )
    stored = sum(map(len, snapshot(medium).values()))
    given = length * len(item)
    ctx.check(stored <= 3 * given + _SLACK, f"{given} bytes were appended, {stored} bytes are stored")
