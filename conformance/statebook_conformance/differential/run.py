"""Plays one history on the model and on several backends side by side, and shortens it where one answers otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from statebook_conformance.differential import steps as do
from statebook_conformance.differential.answers import text_of
from statebook_conformance.differential.model import ModelPlayer
from statebook_conformance.differential.simpler import simpler
from statebook_conformance.differential.store import TIMEOUT_S, StorePlayer
from statebook_conformance.target import Target

SHRINK_S: Final = 60.0
"""How long a history is shortened at most, in seconds."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that is not the model's.

    Attributes:
        target: Which target, without secrets.
        position: The place of its target in the order given, from 0.
        step: The step.
        expected: The model's answer, as JSON.
        found: The target's answer, as JSON.
    """

    target: str
    position: int
    step: do.Step
    expected: str
    found: str


def differing(difference: Difference) -> str:
    """What differs, in words: only the fields that do.

    Args:
        difference: The difference.

    Returns:
        One line.
    """
    expected = msgspec.json.decode(difference.expected, type=dict[str, object])
    found = msgspec.json.decode(difference.found, type=dict[str, object])
    names = [name for name in dict.fromkeys((*expected, *found)) if _differs(expected, found, name)]
    return "; ".join(
        f"{name}: the model has {_field(expected, name)}, the target {_field(found, name)}" for name in sorted(names)
    )


def _differs(expected: dict[str, object], found: dict[str, object], name: str) -> bool:
    return _field(expected, name) != _field(found, name)


def _field(answer: dict[str, object], name: str) -> str:
    return msgspec.json.encode(answer[name]).decode() if name in answer else "nothing"


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a history.

    Attributes:
        differences: The targets that answered the same step otherwise than the model, at the first such step.
        compared: How many answers were compared, one for each step and target.
        skipped: How many steps were skipped, because what they need was refused or left out.
    """

    differences: tuple[Difference, ...]
    compared: int
    skipped: int


def play(
    history: Sequence[do.Step],
    targets: Sequence[Target],
    *,
    timeout_s: float = TIMEOUT_S,
    progress: Callable[[], None] | None = None,
) -> Played:
    """Play a history up to the first answer that differs.

    Args:
        history: The steps.
        targets: The backends; each gets a fresh namespace, which is removed afterwards.
        timeout_s: How long a step may take, in seconds, before it counts as hung: an answer that differs.
        progress: Called after each step.

    Returns:
        What came of it.

    Raises:
        StatebookError: A backend cannot be opened or cleaned up.
    """
    compared = skipped = 0
    with ExitStack() as stack:
        model = ModelPlayer()
        players = []
        for target in targets:
            player = StorePlayer(target, timeout_s=timeout_s)
            stack.callback(player.close)
            players.append(player)
        for step in history:
            answer = model.play(step)
            skipped += "skipped" in answer
            expected = text_of(answer)
            found = [text_of(player.play(step)) for player in players]
            compared += len(found)
            differences = tuple(
                Difference(target=players[n].shown, position=n, step=step, expected=expected, found=answer)
                for n, answer in enumerate(found)
                if answer != expected
            )
            if progress is not None:
                progress()
            if differences:
                return Played(differences=differences, compared=compared, skipped=skipped)
    return Played(differences=(), compared=compared, skipped=skipped)


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """A history that was shortened.

    Attributes:
        steps: The steps that are left; the last one gets the answer that differs.
        difference: The difference that they show.
        trials: How many histories were played.
        finished: Whether no single step can be left out; else time was up.
    """

    steps: tuple[do.Step, ...]
    difference: Difference
    trials: int
    finished: bool


def shrink(
    history: Sequence[do.Step],
    target: Target,
    difference: Difference,
    *,
    seconds: float = SHRINK_S,
    timeout_s: float = TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[int], None] | None = None,
) -> Shrunk:
    """Leave out steps while the target still answers otherwise than the model: delta debugging, then smaller steps.

    Args:
        history: The history that showed a difference.
        target: The target that showed it.
        difference: The difference.
        seconds: How long at most.
        timeout_s: How long a step may take, in seconds.
        clock: A monotonic clock, in seconds.
        progress: Called with the number of steps that are left.

    Returns:
        The shortest history that was found. Its difference may be another one than the first: it is one all the same.

    Raises:
        StatebookError: The backend cannot be opened or cleaned up.
    """
    deadline = clock() + seconds
    first = _until(history, difference.step)
    search = _Search(
        first,
        difference,
        lambda steps: play(steps, [target], timeout_s=timeout_s).differences,
        lambda: clock() > deadline,
        progress or (lambda _: None),
    )
    chunk = max(1, len(first) // 2)
    while not search.late():
        better = search.without_chunks(chunk) or (chunk == 1 and search.with_simpler_steps())
        if chunk == 1 and not better:
            break
        chunk = max(1, min(chunk // 2, len(search.steps) // 2))
    return Shrunk(steps=search.steps, difference=search.difference, trials=search.trials, finished=not search.late())


class _Search:
    """The shortest history so far."""

    def __init__(
        self,
        steps: tuple[do.Step, ...],
        difference: Difference,
        trial: Callable[[Sequence[do.Step]], tuple[Difference, ...]],
        late: Callable[[], bool],
        progress: Callable[[int], None],
    ) -> None:
        self.steps = steps
        self.difference = difference
        self.trials = 0
        self.late = late
        self._trial = trial
        self._progress = progress

    def without_chunks(self, chunk: int) -> bool:
        """Try to leave out each run of `chunk` steps, from the end; whether any could be."""
        before = len(self.steps)
        start = before - chunk
        while start > -chunk and not self.late():
            low = max(0, start)
            self._try((*self.steps[:low], *self.steps[low + chunk :]))
            start = min(start, len(self.steps)) - chunk
        return len(self.steps) < before

    def with_simpler_steps(self) -> bool:
        """Try to put a simpler step in the place of each; whether any could be."""
        found = False
        place = 0
        while place < len(self.steps) and not self.late():
            if any(self._try(tuple(shorter)) for shorter in simpler(self.steps, place)):
                found = True
            else:
                place += 1
        return found

    def _try(self, steps: tuple[do.Step, ...]) -> bool:
        if not steps:
            return False
        self.trials += 1
        found = self._trial(steps)
        if found:
            self.difference = msgspec.structs.replace(found[0], position=self.difference.position)
            self.steps = _until(steps, found[0].step)
        self._progress(len(self.steps))
        return bool(found)


def _until(history: Sequence[do.Step], last: do.Step) -> tuple[do.Step, ...]:
    return tuple(history[: history.index(last) + 1])
