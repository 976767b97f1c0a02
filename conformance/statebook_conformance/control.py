"""How the suite stops, kills and pauses the server behind a store, where it can."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class ServerControl(Protocol):
    """The server behind a store, as rules of level 3 need it.

    Services that the suite starts have it. The author of a backend gives it by a method `server_control()` of the
    target's backend, which returns one, or None where the server cannot be reached from here.
    """

    def kill(self) -> None:
        """End all its processes as `kill -9` does, with whatever was under way, and wait until they are gone."""
        ...

    def recover(self) -> None:
        """Start what was killed or shut down again, on the same addresses and data, and wait until it serves."""
        ...

    def shut_down(self) -> None:
        """Ask it to end, as an operator does, and wait until it is gone."""
        ...

    def pause(self) -> None:
        """Stop all its processes with SIGSTOP: connections stay, nothing answers."""
        ...

    def resume(self) -> None:
        """Let it go on after `pause`; what arrived meanwhile is served."""
        ...


__all__ = ["ServerControl"]
