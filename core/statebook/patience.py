"""How often and how patiently a call is sent again. Everything is bounded; the waiting itself is the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """A bounded, exponential back-off.

    Attributes:
        resends_max: How often the same call is sent again at most.
        pause_s: The first pause; each further one is twice as long.
        pause_max_s: The longest pause.

    Raises:
        ValueError: A number is negative.
    """

    resends_max: int = 4
    pause_s: float = 0.05
    pause_max_s: float = 2.0

    def __post_init__(self) -> None:
        if self.resends_max < 0 or self.pause_s < 0 or self.pause_max_s < 0:
            raise ValueError("resends and pauses cannot be negative")

    def pauses(self) -> Iterator[float]:
        """Yield the pause before each attempt, in seconds: 0 before the first one."""
        yield 0.0
        pause = self.pause_s
        for _ in range(self.resends_max):
            yield min(pause, self.pause_max_s)
            pause = min(pause * 2, self.pause_max_s)


PATIENCE: Final = Patience()
"""What the handles do where nothing else is asked for: five attempts within a second."""
