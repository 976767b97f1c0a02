"""STATE-3, -7, -9 under concurrency: readers see whole commits, appends make a union, listings stay complete."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from statebook.errors import VersionConflict
from statebook.keys import SessionKey, StateKey
from statebook.model import ListValue, SlotKind
from statebook.state import AgentStateStore
from statebook_conformance.context import Context
from statebook_conformance.registers import quick_switches
from statebook_conformance.rule import rule
from statebook_conformance.walking import all_keys

_SLOT: Final = StateKey("user", "session", "key")
_READS: Final = 1_000
_WRITES: Final = 60
_ATTEMPTS_MAX: Final = 100_000


class _Ledger:
    """What writers have written at which version; readers are held against it at the end."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.written: dict[int, bytes] = {}
        self.seen: list[tuple[int, bytes]] = []
        self.stop = threading.Event()
        self.conflicts = 0

    def note(self, version: int, value: bytes) -> None:
        with self.lock:
            self.written[version] = value

    def judge(self, ctx: Context) -> None:
        """Every value that was seen is the one that was written at its version."""
        for version, value in self.seen:
            parts = set(value.strip(b'"').split(b",")) - {b""}
            ctx.check(len(parts) == 1, f"a reader saw a value made of {len(parts)} different ones at version {version}")
            ctx.check(
                self.written.get(version) == value,
                f"a reader saw version {version} with the value of another version: {value[:24]!r}…",
            )
        ctx.saw("values seen", len({version for version, _ in self.seen}))
        ctx.saw("conflicts", self.conflicts)


def _write_documents(state: AgentStateStore, ledger: _Ledger) -> None:
    """Save values that repeat the version that they are based on, until the readers are done."""
    for _ in range(_ATTEMPTS_MAX):
        if ledger.stop.is_set():
            return
        time.sleep(0)
        found = state.load(_SLOT)
        if found is None:
            return
        value = b'"%s"' % (b"%d," % found.version * (50 + found.version % 800))
        try:
            ledger.note(state.save(_SLOT, value, expected=found.version), value)
        except VersionConflict:
            ledger.conflicts += 1


def _read_documents(state: AgentStateStore, ledger: _Ledger) -> None:
    try:
        for number in range(_ATTEMPTS_MAX):
            if number >= _READS // 2 and len(ledger.written) >= _WRITES:
                return
            time.sleep(0)  # lets writers in, also where calls are short
            found = state.load(_SLOT)
            if found is not None:
                ledger.seen.append((found.version, found.value))
    finally:
        ledger.stop.set()


@rule(
    "STATE-3.whole",
    level=2,
    hint="value and version are read by two commands, or a writer's file is read while it is written",
    kills=("torn-value-version", "torn-value"),
    floor={"values seen": 10},
    timeout_s=90,
)
def whole(ctx: Context) -> None:
    """Beside writers whose values repeat a version, 1,000 loads each show one value whole, with its own version.

    Cases: 3, 29.
    """
    ledger = _Ledger()
    first = ctx.state.save(_SLOT, b'"0,"')
    ledger.note(first, b'"0,"')
    calls = [partial(_write_documents, ctx.open_state(), ledger) for _ in range(2)]
    calls += [partial(_read_documents, ctx.open_state(), ledger) for _ in range(2)]
    with quick_switches():
        ctx.threads(calls, timeout_s=80)
    ctx.check(len(ledger.seen) > _READS // 2, f"only {len(ledger.seen)} loads found the document")
    ledger.judge(ctx)


def _replace_lists(state: AgentStateStore, ledger: _Ledger) -> None:
    """Replace the list by items that all say the same, of changing number; append one more of them now and then."""
    for number in range(1, _ATTEMPTS_MAX):
        if ledger.stop.is_set():
            return
        time.sleep(0)
        item = b"%d" % number
        version = state.replace_list(_SLOT, (item,) * (1 + number % 40))
        ledger.note(version, b"%d" % (1 + number % 40))
        if number % 3 == 0:
            length = 1 + number % 40
            ledger.note(state.append_list(_SLOT, (item, item), expected_length=length), b"%d" % (length + 2))


def _read_lists(state: AgentStateStore, ledger: _Ledger, found: list[ListValue]) -> None:
    try:
        for number in range(_ATTEMPTS_MAX):
            if number >= _READS // 2 and len(ledger.written) >= _WRITES:
                return
            time.sleep(0)
            value = state.load_list(_SLOT)
            if value is not None:
                found.append(value)
    finally:
        ledger.stop.set()


@rule(
    "STATE-3.whole-lists",
    level=2,
    hint="the items are read one by one, or their count and their rows by two commands",
    kills=("torn-list",),
    floor={"versions seen": 10},
    timeout_s=90,
)
def whole_lists(ctx: Context) -> None:
    """Beside a writer that replaces and appends, every load of a list shows the items of one version, all of them.

    Cases: 3, 8.
    """
    ledger = _Ledger()
    found: list[ListValue] = []
    ledger.note(ctx.state.replace_list(_SLOT, (b"0",)), b"1")
    calls = [partial(_replace_lists, ctx.open_state(), ledger)]
    calls += [partial(_read_lists, ctx.open_state(), ledger, found) for _ in range(2)]
    with quick_switches():
        ctx.threads(calls, timeout_s=80)
    for value in found:
        ctx.check(len(set(value.items)) == 1, f"a list of version {value.version} mixes items of several versions")
        length = ledger.written.get(value.version)
        ctx.check(
            length == b"%d" % len(value.items),
            f"version {value.version} was written with {length!r} items, and loaded with {len(value.items)}",
        )
    ctx.saw("versions seen", len({value.version for value in found}))


def _append_all(state: AgentStateStore, name: int, count: int) -> int:
    """Append batches that nobody else appends, each until it is in; give the number of conflicts."""
    conflicts, length, done = 0, 0, 0
    for _ in range(_ATTEMPTS_MAX):
        if done == count:
            break
        try:
            items = tuple(b'"%d:%d:%d"' % (name, done, part) for part in range(2))
            state.append_list(_SLOT, items, expected_length=length)
        except VersionConflict as conflict:
            conflicts += 1
            length = conflict.current_length or 0
        else:
            done += 1
            length += 2
            time.sleep(0)  # lets another thread in, also where calls are short
    return conflicts


@rule(
    "STATE-7.union",
    level=2,
    hint="a list is read, extended and written back",
    kills=("append-check-then-act",),
    floor={"conflicts": 20},
    timeout_s=90,
)
def union(ctx: Context) -> None:
    """What threads append to one list, over several handles, is all there, once, and in each one's order.

    Cases: 7.
    """
    handles = [ctx.open_state() for _ in range(3)]
    count = 30 * ctx.effort
    with quick_switches():
        conflicts = ctx.threads([partial(_append_all, handles[index % 3], index, count) for index in range(6)])
    found = ctx.state.load_list(_SLOT)
    items = () if found is None else found.items
    ctx.equal(len(items), 6 * count * 2, "items after all appends")
    ctx.equal(len(set(items)), len(items), "different items after all appends")
    for index in range(6):
        own = tuple(item for item in items if item.startswith(b'"%d:' % index))
        expected = tuple(b'"%d:%d:%d"' % (index, done, part) for done in range(count) for part in range(2))
        ctx.equal(own, expected, f"the items of thread {index}, in order")
    batches = zip(items[::2], items[1::2], strict=True)
    ctx.check(all(one[:-2] == two[:-2] for one, two in batches), "the items of one append do not stand together")
    ctx.saw("conflicts", sum(conflicts))


@rule(
    "STATE-9.beside-writers",
    level=2,
    hint="pages are counted by offset, or a listing holds a lock or transaction between its pages",
    kills=("offset-paging", "listing-blocks-writers"),
    floor={"writes beside listings": 100},
)
def beside_writers(ctx: Context) -> None:
    """Beside saves and deletes, a listing shows each slot that stays once and in order, and blocks nobody.

    Cases: 15.
    """
    session = SessionKey("user", "session")
    stays = tuple(StateKey("user", "session", f"m{index:02d}") for index in range(40))
    comes = tuple(StateKey("user", "session", f"{letter}{index}") for letter in "az" for index in range(10))
    for slot in stays:
        ctx.state.save(slot, b"1")
    writer = ctx.open_state()
    stop = threading.Event()
    writes: list[int] = []

    def write() -> None:
        try:
            for number in range(_ATTEMPTS_MAX):
                if stop.is_set():
                    return
                some = comes[number % 4 :: 4]
                writes.extend([writer.save(slot, b"1") for slot in some])
                time.sleep(0)
                for slot in some:
                    writer.delete(slot)
        finally:
            stop.set()

    def read() -> None:
        try:
            for number in range(_ATTEMPTS_MAX):
                if number >= 20 and len(writes) >= 200:
                    return
                listed = all_keys(ctx.state, session, limit=3)
                ctx.check(list(listed) == sorted(set(listed), key=lambda key: key.name), "keys out of order, or twice")
                missing = [slot.key for slot in stays if slot not in listed]
                ctx.check(not missing, f"a listing beside writers lost the keys {missing}")
        finally:
            stop.set()

    with quick_switches():
        ctx.threads((write, read), timeout_s=40)
    _paused(ctx, session, writer, comes[0])
    ctx.saw("writes beside listings", len(writes))


def _paused(ctx: Context, session: SessionKey, writer: AgentStateStore, slot: StateKey) -> None:
    """After one page of a listing, other calls go on: nothing is held."""
    page = ctx.state.list_keys(session, limit=2)
    ctx.check(page.has_more, "a page of 2 of 40 keys says that there is no more")
    calls: tuple[Callable[[], object], ...] = (
        partial(writer.save, slot, b"2"),
        partial(writer.append_list, slot, (b"1",), expected_length=0),
        partial(ctx.state.save, slot, b"3"),
        partial(writer.delete, slot, kind=SlotKind.LIST),
    )
    for call in calls:
        ctx.threads((call,), timeout_s=10)
    loaded = writer.load(slot)
    ctx.equal(None if loaded is None else loaded.value, b"3", "what was saved beside a paused listing")
