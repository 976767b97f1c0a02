"""Writers of one process that write one object take turns. That is no promise: the store's condition decides.

A store may let racing writes wait for each other by the second (SeaweedFS does), where one after the other they take
milliseconds. Who has waited for long goes ahead all the same, so that a store that does not answer delays nobody twice.
And who has lost again and again has the next turn kept for the time that it takes to read and to come back: else a
writer that never reads would win every time against one that must.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Lock, get_ident
from time import monotonic
from typing import Final

_PATIENCE_S: Final = 1.0
_KEPT_S_MAX: Final = 0.25
_KEPT_TIMES: Final = 4
_LOSSES: Final = 2
_NAMES_MAX: Final = 256


class Taken:
    """A turn that somebody has.

    Attributes:
        lost: To be set where the write lost its race.
    """

    __slots__ = ("lost",)

    def __init__(self) -> None:
        self.lost = False


class _Turn:
    """Whether somebody has it, who waits for it in which order, and how many know of it."""

    __slots__ = ("busy", "queue", "ready", "users")

    def __init__(self, lock: Lock) -> None:
        self.ready = Condition(lock)
        self.busy = False
        self.queue: list[Taken] = []
        self.users = 0


class Turns:
    """Turns by name, which exist while somebody wants them."""

    def __init__(self, patience_s: float = _PATIENCE_S, clock: Callable[[], float] = monotonic) -> None:
        """Make an empty one.

        Args:
            patience_s: How long to wait for a turn before going ahead without one.
            clock: Tells the time; no promise depends on it.
        """
        self._patience_s = patience_s
        self._clock = clock
        self._lock = Lock()
        self._turns: dict[str, _Turn] = {}
        self._losses: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._kept: OrderedDict[str, tuple[int, float]] = OrderedDict()

    @contextmanager
    def take(self, name: str) -> Iterator[Taken]:
        """Wait for a turn, not for ever, and have it for a block.

        Args:
            name: The object.

        Yields:
            The turn.
        """
        taken = Taken()
        with self._lock:
            turn = self._turns.setdefault(name, _Turn(self._lock))
            turn.users += 1
            turn.queue.append(taken)
            held = self._wait(name, turn, taken)
            turn.queue.remove(taken)
        began = self._clock()
        try:
            yield taken
        finally:
            with self._lock:
                self._remember(name, taken, began)
                if held:
                    turn.busy = False
                    turn.ready.notify_all()
                turn.users -= 1
                if not turn.users:
                    del self._turns[name]

    def _wait(self, name: str, turn: _Turn, taken: Taken) -> bool:
        deadline = self._clock() + self._patience_s
        while True:
            now = self._clock()
            whose, until = self._kept.get(name, (0, 0.0))
            mine = whose == get_ident() if now < until else turn.queue[0] is taken
            if not turn.busy and mine:
                self._kept.pop(name, None)
                turn.busy = True
                return True
            if now >= deadline:
                turn.ready.notify_all()
                return False
            # What is kept ends without a word; all else that can change is told.
            turn.ready.wait((min(deadline, until) if now < until else deadline) - now)

    def _remember(self, name: str, taken: Taken, began: float) -> None:
        """Keep the next turn for somebody who has lost repeatedly."""
        mine = (name, get_ident())
        losses = self._losses.pop(mine, 0) + 1
        if not taken.lost:
            return
        self._losses[mine] = losses
        if losses >= _LOSSES:
            now = self._clock()
            self._kept[name] = (get_ident(), now + min(_KEPT_S_MAX, _KEPT_TIMES * (now - began)))
        for bounded in (self._losses, self._kept):
            while len(bounded) > _NAMES_MAX:
                bounded.popitem(last=False)
