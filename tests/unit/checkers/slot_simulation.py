"""Random histories of one state slot, from a simulated store with a seed: good ones, and ones with a fault put in.

Each operation is a call, one atomic effect at some moment in between, and a return; the moments of several clients are
mixed at random. So a history without a fault is linearizable by construction. A fault makes the store itself misbehave
from some operation on; some faulty histories still look good, as the fault may be hidden by what ran beside it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from statebook_conformance.checkers.history import Header, History, Operation, Outcome

FAULTS = (
    "stale read",
    "lost update",
    "version reuse",
    "spurious success",
    "conflict unjustified",
    "torn value and version",
    "conflict but written",
    "version starts again after delete",
)


@dataclass
class Slot:
    """The simulated store."""

    rng: random.Random
    fault: str | None
    floor: int = 0
    version: int | None = None
    value: Any = None
    before: tuple[int, Any] | None = None

    def faulty(self, fault: str) -> bool:
        return self.fault == fault and self.rng.random() < 0.5

    def load(self) -> tuple[str, Any]:
        if self.faulty("stale read") and self.before is not None:
            return "ok", {"version": self.before[0], "value": self.before[1]}
        if self.version is None:
            return "ok", None
        if self.faulty("torn value and version") and self.before is not None:
            return "ok", {"version": self.version, "value": self.before[1]}
        return "ok", {"version": self.version, "value": self.value}

    def _mismatch(self, expected: Any) -> bool:
        return (expected == "absent" and self.version is not None) or (
            isinstance(expected, int) and self.version != expected
        )

    def save(self, value: Any, expected: Any) -> tuple[str, Any]:
        mismatch = self._mismatch(expected)
        if self.faulty("conflict unjustified") and expected != "any" and not mismatch:
            return "conflict", {"current": self.version}
        if mismatch and not self.faulty("spurious success"):
            current = self.version
            if self.faulty("conflict but written"):
                self._write(value)
            return "conflict", {"current": current}
        if self.faulty("lost update"):
            self.floor += 1
            return "ok", {"version": self.floor}
        return "ok", {"version": self._write(value)}

    def _write(self, value: Any) -> int:
        if self.version is not None:
            self.before = (self.version, self.value)
        reuse = self.faulty("version reuse") and self.floor > 0
        self.floor = self.floor if reuse else self.floor + 1
        self.version, self.value = self.floor, value
        return self.floor

    def delete(self, expected: Any) -> tuple[str, Any]:
        if isinstance(expected, int) and self.version != expected:
            return "conflict", {"current": self.version}
        existed = self.version is not None
        if existed:
            self.before = (self.version or 0, self.value)
        self.version = self.value = None
        if self.fault == "version starts again after delete":
            self.floor = 0
        return "ok", {"existed": existed}


@dataclass
class Client:
    """One sequential client and the versions it knows."""

    name: str
    known: list[int] = field(default_factory=list)
    running: dict[str, Any] | None = None


def simulate(
    seed: int,
    *,
    fault: str | None = None,
    clients: int = 3,
    operations: int = 14,
    deletes: bool = True,
    unknown: float = 0.1,
    silent_deletes: float = 0.3,
) -> History:
    """Run random clients against the store and record what they see."""
    rng = random.Random(f"{seed}/{fault}")
    slot = Slot(rng, fault)
    crew = [Client(f"p{number}") for number in range(clients)]
    late: list[dict[str, Any]] = []
    done: list[dict[str, Any]] = []
    started = now = 0
    while started < operations or any(client.running for client in crew):
        now += 1
        if late and rng.random() < 0.3:
            _apply(slot, late.pop(rng.randrange(len(late))))
        client = rng.choice(crew)
        call = client.running
        if call is None:
            if started < operations:
                client.running = _begin(rng, client, started, now, deletes=deletes)
                started += 1
            continue
        if "answer" not in call:
            if call["op"] != "load" and rng.random() < unknown:
                _lose(rng, slot, call, late)
            else:
                _apply(slot, call)
            continue
        _finish(rng, client, call, now, silent_deletes)
        done.append(call)
        client.running = None
    return _history(seed, done)


def _begin(rng: random.Random, client: Client, number: int, now: int, *, deletes: bool) -> dict[str, Any]:
    op = rng.choices(["save", "load", "delete"], [5, 4, 1 if deletes else 0])[0]
    expected: Any = "any"
    if op == "save":
        expected = rng.choice(["any", "absent", *client.known[-2:] * 2])
    if op == "delete" and client.known and rng.random() < 0.3:
        expected = client.known[-1]
    inputs: dict[str, Any] = {} if op == "load" else {"expected": expected}
    if op == "save":
        inputs["value"] = f"v{number}"
    return {"op": op, "input": inputs, "process": client.name, "call": now}


def _apply(slot: Slot, call: dict[str, Any]) -> None:
    if call["op"] == "load":
        call["answer"] = slot.load()
    elif call["op"] == "save":
        call["answer"] = slot.save(call["input"]["value"], call["input"]["expected"])
    else:
        call["answer"] = slot.delete(call["input"]["expected"])


def _lose(rng: random.Random, slot: Slot, call: dict[str, Any], late: list[dict[str, Any]]) -> None:
    """Lose the answer: the call was applied, never will be, or will be later."""
    fate = rng.choice(["applied", "never", "later"])
    if fate == "applied":
        _apply(slot, call)
    if fate == "later":
        late.append({"op": call["op"], "input": call["input"]})
    call["answer"] = ("unknown", None)


def _finish(rng: random.Random, client: Client, call: dict[str, Any], now: int, silent_deletes: float) -> None:
    kind, output = call["answer"]
    if isinstance(output, dict):
        known = output.get("version", output.get("current"))
        if known is not None:
            client.known.append(known)
    if call["op"] == "delete" and kind == "ok" and rng.random() < silent_deletes:
        output = None
    call["answer"] = (kind, output)
    call["return"] = now


def _history(seed: int, done: list[dict[str, Any]]) -> History:
    outcomes = {"ok": Outcome.OK, "conflict": Outcome.REFUSED, "unknown": Outcome.UNKNOWN}
    operations = [
        Operation(
            index=index,
            process=call["process"],
            op=call["op"],
            key="slot",
            input=call["input"],
            call_ns=call["call"],
            return_ns=call["return"],
            outcome=outcomes[call["answer"][0]],
            output=call["answer"][1],
            error="VersionConflict" if call["answer"][0] == "conflict" else None,
        )
        for index, call in enumerate(sorted(done, key=lambda call: call["call"]))
    ]
    return History(header=Header(rule="TEST", seed=seed, checker="versions"), operations=tuple(operations))
