"""STATE-4, -5 under races: of saves with one expected version exactly one wins, and histories are linearizable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from statebook.capabilities import Sharing
from statebook.errors import VersionConflict
from statebook.keys import StateKey
from statebook.model import ABSENT, ExpectedVersion
from statebook.state import AgentStateStore
from statebook_conformance.checkers.evidence import collect
from statebook_conformance.checkers.history import Header, JsonValue, Operation, canonical, merge, parse_operation
from statebook_conformance.context import Context
from statebook_conformance.registers import RegisterClient, quick_switches
from statebook_conformance.rule import rule
from statebook_conformance.walking import all_sessions
from statebook_conformance.workers_state import SLOT, slots

_THREADS: Final = 6
_ROUNDS: Final = 200
_CHECK_THEN_ACT: Final = "the version is compared before the write, not in it; use one conditional write"


def _contend(state: AgentStateStore, slot: StateKey, name: str, expected: ExpectedVersion) -> int | None:
    """Save under a version that others expect too: the new version, or None for a conflict."""
    try:
        return state.save(slot, b'"%s"' % name.encode(), expected=expected)
    except VersionConflict:
        return None


def _one_winner(ctx: Context, slot: StateKey, answers: Sequence[int | None], what: str) -> int:
    """Exactly one contender has a version, and the slot holds that contender's value at that version."""
    winners = [(index, version) for index, version in enumerate(answers) if version is not None]
    ctx.check(len(winners) == 1, f"{what}: {len(winners)} of {len(answers)} racing saves say that they succeeded")
    index, version = winners[0]
    loaded = ctx.state.load(slot)
    found = None if loaded is None else (loaded.value, loaded.version)
    ctx.equal(found, (b'"c%d"' % index, version), f"{what}: value and version after contender {index} has won")
    ctx.saw("conflicts", len(answers) - 1)
    return version


@rule(
    "STATE-4.one-winner",
    level=2,
    hint=_CHECK_THEN_ACT,
    kills=("cas-check-then-act", "own-success-is-conflict"),
    floor={"conflicts": 600},
    timeout_s=90,
)
def one_winner(ctx: Context) -> None:
    """Of saves that race with one expected version, over threads and handles, exactly one succeeds, 200 times.

    Cases: 1, 6.
    """
    handles = tuple(ctx.open_state() for _ in range(3))
    version = ctx.state.save(SLOT, b"0")
    with quick_switches():
        for number in range(_ROUNDS):
            calls = [partial(_contend, handles[index % len(handles)], SLOT, f"c{index}", version) for index in range(4)]
            answers = ctx.threads(calls)
            version = _one_winner(ctx, SLOT, answers, f"round {number}, everybody expecting {version}")


@rule(
    "STATE-4.one-creator",
    level=2,
    hint="absence is looked for before the insert, not in it",
    kills=("create-check-then-act",),
    floor={"conflicts": 150},
)
def one_creator(ctx: Context) -> None:
    """Of saves that race to create one slot, new or deleted, exactly one succeeds.

    Cases: 1, 31, 40.
    """
    handles = tuple(ctx.open_state() for _ in range(4))
    with quick_switches():
        for number in range(60):
            slot = StateKey("user", f"session {number // 2}", "key")
            calls = [partial(_contend, handle, slot, f"c{index}", ABSENT) for index, handle in enumerate(handles)]
            _one_winner(ctx, slot, ctx.threads(calls), f"creation {number}")
            ctx.state.delete(slot)


@rule(
    "STATE-4.one-winner-of-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="the condition is kept by a lock of one process; " + _CHECK_THEN_ACT,
    kills=("cas-check-then-act-on-disk",),
    floor={"conflicts": 200},
    timeout_s=120,
)
def one_winner_of_processes(ctx: Context) -> None:
    """Of saves that race with one expected version from several processes exactly one succeeds, 200 times.

    Cases: 1, 5.
    """
    worker = "statebook_conformance.workers_state:contend"
    children = tuple(ctx.spawn(worker, {"name": f"c{index}"}) for index in range(2))
    for child in children:
        child.wait_for("ready", timeout_s=60)
    version = 0
    for number in range(_ROUNDS):
        for child in children:
            child.tell({"expected": version})
        answers = [child.wait_for("saved")["version"] for child in children]
        numbers = [None if answer is None else int(cast("int", answer)) for answer in answers]
        version = _one_winner(ctx, SLOT, numbers, f"round {number}, both processes expecting {version or 'absence'}")
    for child in children:
        child.tell({})
        ctx.equal(child.result(), _ROUNDS, "rounds of a process")


# ----------------------------------------------------------------------------------------------------------- histories


def _judge(ctx: Context, parts: Sequence[Sequence[Operation]], *headers: Header) -> None:
    """Judge one history by several checkers, and count what was in it."""
    histories = [merge(header, parts) for header in headers]
    for history in histories:
        ctx.judge(history, decisive=False)
    evidence = collect(histories[0])
    ctx.saw("conflicts", evidence.conflicts)
    ctx.saw("overlapping", evidence.overlapping)
    ctx.saw("operations", evidence.operations)


def _clients(ctx: Context, run: Callable[[RegisterClient], None], label: str) -> list[tuple[Operation, ...]]:
    """Run six clients over three handles, each in its thread."""
    recorder = ctx.recorder()
    handles = tuple(ctx.open_state() for _ in range(3))
    clients = [
        RegisterClient(handles[index % 3], recorder, f"{label}-{index}", f"{ctx.seed}:{label}:{index}")
        for index in range(_THREADS)
    ]
    with quick_switches():
        ctx.threads([partial(run, client) for client in clients])
    for handle in handles:
        handle.close()
    return [recorder.operations()]


@rule(
    "STATE-4.histories",
    level=2,
    hint=_CHECK_THEN_ACT + ", and answer every call from the primary",
    kills=("cas-check-then-act", "spurious-conflict", "own-success-is-conflict", "torn-value-version", "lost-write"),
    floor={"conflicts": 20, "overlapping": 10},
)
def histories(ctx: Context) -> None:
    """Histories of loads, saves and deletes by racing clients are linearizable, by version order and by search.

    Cases: 1, 3, 5.
    """
    for number in range(2 * ctx.effort):
        few = tuple(StateKey("user", f"session {number}", f"slot {index}") for index in range(2))
        parts = _clients(ctx, partial(RegisterClient.documents, slots=few, steps=40), f"many {number}")
        _judge(ctx, parts, ctx.header("slot"))
        small = tuple(StateKey("user", f"small {number}", f"slot {index}") for index in range(3))
        parts = _clients(ctx, partial(RegisterClient.documents, slots=small, steps=10), f"few {number}")
        _judge(ctx, parts, ctx.header("versions"), ctx.header("linearizable", {"model": "document"}))


@rule(
    "STATE-4.histories-of-processes",
    level=2,
    needs=(Sharing.HOST,),
    hint="the condition is kept by a lock of one process; " + _CHECK_THEN_ACT,
    kills=("cas-check-then-act-on-disk",),
    floor={"conflicts": 10, "overlapping": 10},
    timeout_s=120,
)
def histories_of_processes(ctx: Context) -> None:
    """Histories of clients in several processes are linearizable together.

    Cases: 1, 3, 5.
    """
    worker = "statebook_conformance.workers_state:register"
    children = [
        ctx.spawn(
            worker,
            {"name": f"process {index}", "seed": f"{ctx.seed}:{index}", "slots": 2, "steps": 60 * ctx.effort},
        )
        for index in range(2)
    ]
    for child in children:
        child.wait_for("ready", timeout_s=60)
    for child in children:
        child.tell({"go": True})
    recorder = ctx.recorder()
    client = RegisterClient(ctx.state, recorder, "here", f"{ctx.seed}:here")
    client.documents(slots(2), 60 * ctx.effort)
    parts: list[Sequence[Operation]] = [recorder.operations()]
    for child in children:
        lines = cast("Sequence[JsonValue]", child.result(timeout_s=90))
        parts.append([parse_operation(canonical(line).encode("ascii"), where="a worker's history") for line in lines])
    _judge(ctx, parts, ctx.header("slot"))


@rule(
    "STATE-7.histories",
    level=2,
    hint="the length is read before the append, not compared in it",
    kills=("append-check-then-act",),
    floor={"conflicts": 20, "overlapping": 10},
)
def list_histories(ctx: Context) -> None:
    """Histories of appends, replacements, loads and deletes of lists by racing clients are linearizable.

    Cases: 7, 8.
    """
    for number in range(3 * ctx.effort):
        some = tuple(StateKey("user", f"session {number}", f"list {index}") for index in range(3))
        parts = _clients(ctx, partial(RegisterClient.lists, slots=some, steps=12), f"lists {number}")
        _judge(ctx, parts, ctx.header("linearizable", {"model": "list"}))


# --------------------------------------------------------------------------------------------------------------- races


@rule(
    "STATE-5.stale-save-race",
    level=2,
    hint="an update of a missing row becomes an insert where a delete came in between",
    kills=("stale-save-race",),
    floor={"saved first": 1, "deleted first": 1},
)
def stale_save_race(ctx: Context) -> None:
    """A save based on a version and a delete that race leave the slot absent, in whichever order they come.

    Cases: 40.
    """
    saver, deleter = ctx.open_state(), ctx.open_state()
    with quick_switches():
        for number in range(60 * ctx.effort):
            slot = StateKey("user", f"session {number % 10}", "key")
            version = ctx.state.save(slot, b'"live"')
            remove = partial(deleter.delete_session, slot.session) if number % 2 else partial(deleter.delete, slot)
            save: Callable[[], object] = partial(_contend, saver, slot, "stale", version)
            calls = (save, remove) if number % 3 else (remove, save)
            answers = ctx.threads(calls)
            saved = answers[calls.index(save)]
            ctx.saw("deleted first" if saved is None else "saved first")
            ctx.equal(ctx.state.load(slot), None, f"the slot after a stale save (answer: {saved}) and a delete raced")
            ctx.equal(ctx.state.exists(slot.session), False, "whether the session exists after the race")
            if saved is not None:
                ctx.check(cast("int", saved) > version, f"a save over version {version} got version {saved}")
            again = ctx.state.save(slot, b'"again"', expected=ABSENT)
            ctx.check(again > version, f"a slot of version {version} was created again with version {again}")
            ctx.state.delete(slot)
    ctx.equal(all_sessions(ctx.state, "user"), (), "sessions at the end")
