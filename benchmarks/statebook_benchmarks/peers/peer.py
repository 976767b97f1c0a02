"""What a peer is: something that people store agents' events in today, driven in the way that favours it most."""

from __future__ import annotations

from abc import ABC, abstractmethod


class PeerWriter(ABC):
    """The writer of one thread. Used from one thread at a time."""

    @abstractmethod
    def append(self) -> None:
        """Store one more event, durably as far as the peer is."""

    @abstractmethod
    def load(self) -> int:
        """Read the whole thread back, decoded, and give the number of events."""

    @abstractmethod
    def close(self) -> None:
        """Close what it opened."""


class Peer(ABC):
    """One peer with one fresh store.

    Attributes:
        name: How it is called in tables.
        medium: `memory` or `sqlite`: only peers of one medium and durability are compared.
        promises: What it promises beside its figure.
    """

    name: str
    medium: str
    promises: str

    @abstractmethod
    def writer(self, number: int) -> PeerWriter:
        """Open the writer of a thread of its own."""

    @abstractmethod
    def close(self) -> None:
        """Close it, and remove what it stored."""
