"""A state store that fails on demand, over a real one: before the effect, after it, or slowly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import Literal

from statebook import ANY, AgentStateStore, BackendUnavailable, OutcomeUnknown, StateKey, StateValue, VersionConflict
from statebook.model import ExpectedVersion

Fault = Literal["after", "before", "late", "unavailable", "fine"]


class Gate:
    """Holds a call until it is let go; tells when the call has come."""

    def __init__(self) -> None:
        self.reached = Event()
        self.open = Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self.open.wait(30)


class FaultyState:
    """Counts loads and saves; the next saves meet the planned faults, in order.

    `after`: executes, then the reply is lost. `before`: the request is lost. `late`: it arrives when
    `land` is called. `unavailable`: certainly not applied.
    """

    def __init__(self, store: AgentStateStore) -> None:
        self.real = store
        self.faults: deque[Fault | Gate] = deque()
        self.load_gates: deque[Gate] = deque()
        self.loads = self.saves = 0
        self.on_their_way: deque[tuple[StateKey, bytes, ExpectedVersion]] = deque()
        self.after_unknown: Callable[[], None] = lambda: None

    @property
    def capabilities(self) -> object:
        return self.real.capabilities

    def load(self, slot: StateKey) -> StateValue | None:
        self.loads += 1
        if self.load_gates:
            self.load_gates.popleft().pass_through()
        return self.real.load(slot)

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        self.saves += 1
        fault = self.faults.popleft() if self.faults else "fine"
        if isinstance(fault, Gate):
            fault.pass_through()
            fault = "fine"
        if fault == "unavailable":
            raise BackendUnavailable("refused")
        if fault == "before":
            self.after_unknown()
            raise OutcomeUnknown("the request was lost")
        if fault == "late":
            self.on_their_way.append((slot, value, expected))
            raise OutcomeUnknown("the request is on its way")
        version = self.real.save(slot, value, expected=expected)
        if fault == "after":
            self.after_unknown()
            raise OutcomeUnknown("the reply was lost")
        return version

    def land(self) -> None:
        """The oldest request on its way arrives."""
        slot, value, expected = self.on_their_way.popleft()
        with suppress(VersionConflict):
            self.real.save(slot, value, expected=expected)
