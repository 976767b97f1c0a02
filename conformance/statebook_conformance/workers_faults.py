"""Victims of the fault rules: loops of writes that are killed, and what a nursery reports of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.errors import BackendUnavailable, LimitExceeded, OutcomeUnknown
from statebook.keys import StateKey
from statebook.model import ABSENT, Batch, ExpectedVersion
from statebook_conformance.faults.crash import VICTIM_S, Answer, CrashingAtomic, CrashPoint, Say, Victim
from statebook_conformance.faults.disk import file_size_limit
from statebook_conformance.scenes import make_batch, thread

if TYPE_CHECKING:
    from statebook_conformance.child import ChildContext

SLOT: Final = StateKey("user", "session", "document")
"""The document that victims save."""
LIST: Final = StateKey("user", "session", "list")
"""The list that victims append to."""
EXPORTER: Final = "exporter"
"""Whose cursor victims move."""
PAGE: Final = 3
"""How many events a victim exports at a time."""
FILE_LIMIT: Final = 1 << 20
"""The size beyond which no file grows while a disk is full."""
POINTS_MAX: Final = 80
"""How many crash points are tried at most."""

_TURNS_MAX: Final = 5_000

Loop: TypeAlias = "Callable[[ChildContext, int, Say], None]"


def killed_batch(round_: int, number: int) -> Batch:
    """The batch that the victim of a round appends as its n-th: three events, of different sizes."""
    return make_batch(f"r{round_}-{number}", 3, size=(0, 2_500, 12_000)[number % 3])


def _append(child: ChildContext, round_: int, say: Say) -> None:
    journal = child.open_journal()
    claim = journal.claim(thread(), f"writer {round_}")
    base = claim.last_seq
    for number in range(1, _TURNS_MAX):
        base = journal.append(claim, killed_batch(round_, number), base).last_seq
        say({"last_seq": base})


def _save(child: ChildContext, _: int, say: Say) -> None:
    state = child.open_state()
    saved, items = state.load(SLOT), state.load_list(LIST)
    number = 0 if saved is None else int(saved.value)
    expected: ExpectedVersion = ABSENT if saved is None else saved.version
    length = 0 if items is None else len(items.items)
    for _turn in range(_TURNS_MAX):
        number += 1
        expected = state.save(SLOT, b"%d" % number, expected=expected)
        say({"number": number, "length": length})
        state.append_list(LIST, (b"%d" % length,), expected_length=length)
        length += 1
        say({"number": number, "length": length})


def _claim(child: ChildContext, round_: int, say: Say) -> None:
    journal = child.open_journal()
    for number in range(1, _TURNS_MAX):
        claim = journal.claim(thread(), f"writer {round_}")
        say({"epoch": claim.epoch, "last_seq": claim.last_seq})
        receipt = journal.append(claim, make_batch(f"r{round_}-{number}"), claim.last_seq)
        say({"epoch": claim.epoch, "last_seq": receipt.last_seq})
        journal.release(claim)


def _trim(child: ChildContext, round_: int, say: Say) -> None:
    journal = child.open_journal()
    claim = journal.claim(thread(), f"writer {round_}")
    base = claim.last_seq
    for number in range(1, _TURNS_MAX):
        base = journal.append(claim, killed_batch(round_, number), base).last_seq
        head = journal.trim(thread(), max(1, base - 5))
        say({"last_seq": base, "first_seq": head.first_seq})


def _export(child: ChildContext, _: int, say: Say) -> None:
    journal = child.open_journal()
    cursor = journal.open_cursor(thread(), EXPORTER)
    for _turn in range(_TURNS_MAX):
        events = journal.read_after(thread(), cursor.acked_seq, PAGE).events
        if not events:
            return
        say({"from": events[0].seq, "delivered": events[-1].seq, "acked": cursor.acked_seq})
        cursor = journal.advance_cursor(cursor, events[-1].seq)
        say({"from": events[0].seq, "delivered": events[-1].seq, "acked": cursor.acked_seq})


def _loops() -> dict[str, Loop]:
    return {"append": _append, "save": _save, "claim": _claim, "trim": _trim, "export": _export}


def nursery(child: ChildContext) -> int:
    """Fork a victim for each order, kill it soon after it has had so many answers, and tell all its answers."""
    loop = _loops()[child.text("loop")]
    child.open_journal().close()  # what a backend imports is there before the first fork
    child.tell("ready")
    kills = 0
    while order := child.hear():
        victim = Victim(partial(_until_killed, loop, child, cast("int", order["round"])))
        try:
            victim.answers(cast("int", order["answers"]))
            time.sleep(cast("int", order["delay_us"]) / 1e6)
        finally:
            answers, killed = victim.kill()
        _check(answers)
        kills += killed
        child.tell("killed", answers=[dict(answer) for answer in answers], killed=killed)
    return kills


def _until_killed(loop: Loop, child: ChildContext, round_: int, say: Say) -> None:
    loop(child, round_, say)
    time.sleep(VICTIM_S)  # nothing is left to do: wait for the kill


def _check(answers: tuple[Answer, ...]) -> None:
    for answer in answers:
        if "failed" in answer:
            raise RuntimeError(f"the victim failed: {answer['failed']}")


def crashes(child: ChildContext) -> int:
    """Run one life of a journal again and again, each killed one step later; tell what each was answered.

    The last one is not killed: it has no further step.
    """
    child.open_atomic().close()
    for number in range(1, POINTS_MAX + 1):
        answers, killed = Victim(partial(_life, child, number)).wait()
        _check(answers)
        last = answers[-1] if answers else {"last_seq": 0, "first_seq": 1, "acked": 0}
        child.tell("crashed", number=number, killed=killed, answer=dict(last))
        if not killed:
            return number
    raise RuntimeError(f"one life of a journal takes more than {POINTS_MAX} steps")


def _life(child: ChildContext, number: int, say: Say) -> None:
    key = thread(f"crash-{number}")
    journal = AtomicThreadJournalStore(CrashingAtomic(child.open_atomic(), CrashPoint(number)))
    claim = journal.claim(key, "writer")
    base = 0
    for batch in crash_batches():
        base = journal.append(claim, batch, base).last_seq
        say({"last_seq": base, "first_seq": 1, "acked": 0})
    cursor = journal.open_cursor(key, EXPORTER)
    journal.advance_cursor(cursor, 6)
    say({"last_seq": base, "first_seq": 1, "acked": 6})
    first = journal.trim(key, 6).first_seq
    say({"last_seq": base, "first_seq": first, "acked": 6})
    journal.collect(key)
    journal.release(claim)


def crash_batches() -> tuple[Batch, ...]:
    """The batches of such a life: enough for blobs."""
    return tuple(make_batch(f"b{number}", 3, size=(0, 12_000, 30_000)[number % 3]) for number in range(4))


def full_batch(number: int) -> Batch:
    """The n-th batch for a full disk: four events, each batch twice as large as the one before."""
    return make_batch(f"f{number}", 4, size=8_192 << number)


def fill_disk(child: ChildContext) -> int:
    """Append ever larger batches while no file can grow beyond a size; then again, when there is space.

    Tells `full`: the last acknowledged seq and number, and the error with which the next batch was refused, or an
    empty text where none was. Then `after`: the answer to the same batch again, through a new handle.
    """
    journal = child.open_journal()
    claim = journal.claim(thread(), "writer")
    base = number = 0
    error = ""
    with file_size_limit(FILE_LIMIT):
        while number < child.number("batches") and not error:
            try:
                base = journal.append(claim, full_batch(number), base).last_seq
                number += 1
            except (BackendUnavailable, LimitExceeded, OutcomeUnknown) as refusal:
                error = type(refusal).__name__
        child.tell("full", last_seq=base, batches=number, error=error)
        child.hear()
    journal.close()
    with closing(child.open_journal()) as again:
        receipt = again.append(claim, full_batch(number), base)
        child.tell("after", last_seq=receipt.last_seq, replayed=receipt.replayed)
    return base
