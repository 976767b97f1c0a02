"""What a raw engine is: lanes that append ready-made bytes behind a head that only its writer may move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class RawLane(ABC):
    """One connection. Used from one thread at a time."""

    @abstractmethod
    def append(self, thread: int, body: bytes) -> None:
        """Append one batch to one thread, durably, where the fence holds.

        Args:
            thread: The thread's number.
            body: The batch.

        Raises:
            RuntimeError: The fence did not hold, which no benchmark provokes.
        """

    @abstractmethod
    def append_group(self, bodies: Sequence[bytes]) -> None:
        """Append one batch to each of the first threads, in one physical commit where the engine has one.

        Args:
            bodies: The batches of threads 0, 1, 2 and so on.

        Raises:
            RuntimeError: The fence did not hold.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class RawEngine(ABC):
    """One engine with prepared heads."""

    @property
    @abstractmethod
    def work(self) -> str:
        """What one append does, in one line, for the table."""

    @abstractmethod
    def lane(self) -> RawLane:
        """Open a connection of its own."""

    @abstractmethod
    def destroy(self) -> None:
        """Remove everything that it made, and close."""


def refused() -> RuntimeError:
    """The error where the fence did not hold: somebody else wrote into the benchmark's own tables."""
    return RuntimeError("the raw engine's head was moved by somebody else")
