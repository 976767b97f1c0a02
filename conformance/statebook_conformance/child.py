"""The process side of a worker: opens the target, runs one function, answers in JSON lines."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

from statebook.atomic import AtomicJournalStorage
from statebook.journal import ThreadJournalStore
from statebook.state import AgentStateStore
from statebook_conformance.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from statebook_conformance.checkers.history import JsonValue


class ChildContext:
    """What a worker function gets.

    Attributes:
        params: The parameters that the rule gave.
    """

    def __init__(self, target: Target, namespace: str, params: Mapping[str, JsonValue]) -> None:
        """Make the context; opens nothing."""
        self.params = params
        self._backend = target.backend(namespace)
        self._opened: list[AtomicJournalStorage | ThreadJournalStore | AgentStateStore] = []

    def open_atomic(self) -> AtomicJournalStorage:
        """Open a handle of the atomic storage."""
        store = self._backend.open_atomic()
        self._opened.append(store)
        return store

    def open_journal(self) -> ThreadJournalStore:
        """Open a handle of the journal store."""
        store = self._backend.open_journal()
        self._opened.append(store)
        return store

    def open_state(self) -> AgentStateStore:
        """Open a handle of the state store."""
        store = self._backend.open_state()
        self._opened.append(store)
        return store

    def text(self, name: str) -> str:
        """A parameter that is a string."""
        return str(self.params[name])

    def number(self, name: str) -> int:
        """A parameter that is an integer."""
        return int(cast("int", self.params[name]))

    def tell(self, event: str, **fields: JsonValue) -> None:
        """Send an event to the rule."""
        sys.stdout.write(json.dumps({**fields, "event": event}) + "\n")
        sys.stdout.flush()

    def hear(self) -> Mapping[str, JsonValue]:
        """Wait for a message of the rule; an empty one where the rule is gone."""
        line = sys.stdin.readline()
        return cast("Mapping[str, JsonValue]", json.loads(line)) if line else {}

    def close(self) -> None:
        """Close what was opened."""
        for store in self._opened:
            store.close()


def main() -> int:
    """Read the order from standard input, run the worker, send its result."""
    order = json.loads(sys.stdin.readline())
    module, _, name = str(order["worker"]).partition(":")
    context = ChildContext(Target(order["target"]), order["namespace"], order["params"])
    try:
        worker = cast("Callable[[ChildContext], JsonValue]", getattr(import_module(module), name))
        value = worker(context)
        context.tell("returned", value=value)
        context.close()
    except Exception as error:  # noqa: BLE001 - reported to the rule, which decides
        context.tell("failed", error=f"{type(error).__name__}: {error}")
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
