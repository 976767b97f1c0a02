"""Journal services above the contract: recorder, export, events, history, interactions, checkpoints, recovery.

Each works on any `ThreadJournalStore`. Public names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from statebook.threads.recorder import (
        EventDraft as EventDraft,
        InvocationRecorder as InvocationRecorder,
    )

_PUBLIC: Final = {
    "EventDraft": "recorder",
    "InvocationRecorder": "recorder",
}

__all__ = ["EventDraft", "InvocationRecorder"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, sorted."""
    return sorted(__all__)
