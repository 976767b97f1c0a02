"""Random histories of one journal, from a simulated store with a seed: good ones, and ones with a fault put in.

Writers claim, append, retry, settle, release and take over; readers page; answers get lost, and lost requests may land
later if what they were built on still stands. Each operation takes effect at one moment between call and return.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from history_builder import history

from statebook_conformance.checkers import History, Operation, Outcome

JOURNAL_FAULTS = (
    "acknowledged and lost",
    "batch stored twice",
    "batch stored in two parts",
    "batch re-ordered",
    "refused but written",
    "stale view",
    "settled by a read",
    "dedupe forgets",
    "event lost from a page",
)
FENCING_FAULTS = ("fence checked at claim only", "epoch reused", "late request ignores the fence", "spurious fence")

Answer = tuple[Outcome, str | None, Any]


@dataclass
class Store:
    """The simulated journal."""

    rng: random.Random
    fault: str | None
    events: list[str] = field(default_factory=list)
    receipts: dict[str, tuple[int, int, tuple[str, ...]]] = field(default_factory=dict)
    epoch: int = 0
    held: bool = False
    generation: int = 0
    old: int = 0
    late: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def faulty(self, fault: str, chance: float = 0.4) -> bool:
        return self.fault == fault and self.rng.random() < chance

    def apply(self, op: str, given: dict[str, Any]) -> Answer:
        if op == "claim":
            return self.claim()
        if op == "append":
            return self.append(given)
        if op == "settle":
            return self.settle(given)
        if op == "release":
            return self.release(given)
        if op == "head":
            return Outcome.OK, None, {"last_seq": len(self.events), "epoch": self.epoch}
        return self.read(given)

    def claim(self) -> Answer:
        if not self.faulty("epoch reused") or self.epoch == 0:
            self.epoch += 1
        self.generation += 1
        self.held = True
        return Outcome.OK, None, {"epoch": self.epoch, "last_seq": len(self.events)}

    def release(self, given: dict[str, Any]) -> Answer:
        if given["epoch"] != self.epoch:
            return Outcome.REFUSED, "WriterFenced", {"committed": None}
        self.held = False
        self.generation += 1
        return Outcome.OK, None, None

    def append(self, given: dict[str, Any]) -> Answer:
        known = self.receipts.get(given["batch"])
        fenced = given["epoch"] != self.epoch or not self.held or self.faulty("spurious fence", 0.05)
        if self.fault == "fence checked at claim only":
            fenced = False
        receipt = None if known is None else {"first": known[0], "last": known[1], "replayed": True}
        if receipt is not None and self.faulty("dedupe forgets"):
            return Outcome.REFUSED, "HeadConflict", {"head": len(self.events)}
        if receipt is not None and self.faulty("batch stored twice"):
            return self._commit(given)
        if receipt is not None:
            return (Outcome.REFUSED, "WriterFenced", {"committed": receipt}) if fenced else (Outcome.OK, None, receipt)
        if fenced:
            return Outcome.REFUSED, "WriterFenced", {"committed": None}
        if given["base_seq"] < len(self.events):
            if self.faulty("refused but written"):
                head = len(self.events)
                self._commit(given)
                return Outcome.REFUSED, "HeadConflict", {"head": head}
            return Outcome.REFUSED, "HeadConflict", {"head": len(self.events)}
        return self._commit(given)

    def _commit(self, given: dict[str, Any]) -> Answer:
        first = len(self.events) + 1
        events = tuple(given["events"])
        self.generation += 1
        if len(self.events) and self.rng.random() < 0.5:
            self.old = len(self.events)
        if self.faulty("acknowledged and lost", 0.2):
            return Outcome.OK, None, {"first": first, "last": first + len(events) - 1, "replayed": False}
        stored = list(events)
        if self.faulty("batch re-ordered"):
            stored.reverse()
        if self.faulty("batch stored in two parts") and len(stored) > 1:
            stored.insert(1, f"part of nothing {len(self.events)}")
            stored = stored[:1] if self.rng.random() < 0.5 else stored
        self.events.extend(stored)
        self.receipts[given["batch"]] = (first, first + len(events) - 1, events)
        return Outcome.OK, None, {"first": first, "last": first + len(events) - 1, "replayed": False}

    def settle(self, given: dict[str, Any]) -> Answer:
        known = self.receipts.get(given["batch"])
        if known is not None:
            return Outcome.OK, None, {"first": known[0], "last": known[1], "replayed": True}
        if self.fault != "settled by a read":
            self.generation += 1
        return Outcome.OK, None, None

    def read(self, given: dict[str, Any]) -> Answer:
        end = self.old if self.faulty("stale view") else len(self.events)
        page = [[seq, self.events[seq - 1]] for seq in range(given["after"] + 1, end + 1)][: given["limit"]]
        last = page[-1][0] if page else given["after"]
        if len(page) > 2 and self.faulty("event lost from a page"):
            del page[1]
        if given["after"] > end:
            return Outcome.REFUSED, "JournalRegressed", {"last_seq": end}
        return Outcome.OK, None, {"events": page, "has_more": last < end}

    def land_late(self) -> None:
        """Let one lost request arrive: it is conditional on what it was built on, unless the fault says otherwise."""
        if not self.late:
            return
        generation, given = self.late.pop(self.rng.randrange(len(self.late)))
        unfenced = self.fault == "late request ignores the fence" and given["batch"] not in self.receipts
        if unfenced or generation == self.generation:
            self._commit(given)


@dataclass
class Party:
    """A writer or a reader and what it knows."""

    name: str
    reader: bool
    epoch: int | None = None
    last: int = 0
    number: int = 0
    pending: dict[str, Any] | None = None
    committed: list[dict[str, Any]] = field(default_factory=list)
    running: dict[str, Any] | None = None


def simulate_journal(seed: int, *, fault: str | None = None, steps: int = 160) -> History:
    """Run two writers and a reader against the store, then read everything."""
    rng = random.Random(f"{seed}/{fault}")
    store = Store(rng, fault)
    crew = [Party("writer-a", reader=False), Party("writer-b", reader=False), Party("reader", reader=True)]
    done: list[Operation] = []
    now = 0
    while now < steps or any(party.running for party in crew):
        now += 1
        if rng.random() < 0.15:
            store.land_late()
        party = rng.choices(crew, [2, 2, 1])[0]
        running = party.running
        if running is None:
            if now < steps:
                op, given = _choose(rng, party)
                party.running = {"op": op, "given": given, "call": now}
        elif "answer" not in running:
            _take_effect(rng, store, running)
        else:
            done.append(_operation(party, running, now))
            _learn(rng, party, running)
            party.running = None
    store.late.clear()
    events = [[seq, event] for seq, event in enumerate(store.events, start=1)]
    final = {"op": "final", "given": {}, "call": now + 1, "answer": (Outcome.OK, None, {"events": events})}
    done.append(_operation(Party("final", reader=True), final, now + 2))
    return history(*done, checker="journal")


def _choose(rng: random.Random, party: Party) -> tuple[str, dict[str, Any]]:
    if party.reader:
        if rng.random() < 0.3:
            return "head", {}
        return "read", {"after": rng.choice([0, party.last]), "limit": rng.choice([3, 100])}
    if party.epoch is None:
        return "claim", {"writer": party.name}
    if party.pending is not None:
        if rng.random() < 0.5:
            return "append", {**party.pending, "epoch": party.epoch}
        return "settle", {"batch": party.pending["batch"], "base_seq": party.pending["base_seq"]}
    if rng.random() < 0.05:
        return "release", {"epoch": party.epoch}
    if party.committed and rng.random() < 0.2:
        return "append", {**rng.choice(party.committed[-3:]), "epoch": party.epoch}
    party.number += 1
    batch = f"{party.name}/{party.number}"
    events = [f"{batch}.{i}" for i in range(rng.randint(1, 3))]
    base = max(0, party.last - 1) if rng.random() < 0.1 else party.last
    return "append", {"batch": batch, "events": events, "base_seq": base, "epoch": party.epoch}


def _take_effect(rng: random.Random, store: Store, running: dict[str, Any]) -> None:
    if running["op"] != "append" or rng.random() > 0.2:
        running["answer"] = store.apply(running["op"], running["given"])
        return
    about_late = store.fault in ("settled by a read", "late request ignores the fence")
    fate = "later" if about_late else rng.choice(["applied", "never", "later"])
    given = running["given"]
    if fate == "applied":
        store.apply("append", given)
    admissible = store.held and given["epoch"] == store.epoch and given["base_seq"] == len(store.events)
    if fate == "later" and admissible and given["batch"] not in store.receipts:
        store.late.append((store.generation, given))
    running["answer"] = (Outcome.UNKNOWN, "OutcomeUnknown", None)


def _learn(rng: random.Random, party: Party, running: dict[str, Any]) -> None:
    outcome, error, output = running["answer"]
    op, given = running["op"], running["given"]
    if op == "claim":
        party.epoch, party.last = output["epoch"], output["last_seq"]
    elif op == "release":
        party.epoch = party.pending = None
    elif op in ("append", "settle"):
        _learn_batch(rng, party, given, outcome, error, output)
    elif op == "read" and outcome is Outcome.OK and output["events"]:
        party.last = output["events"][-1][0]


def _learn_batch(
    rng: random.Random, party: Party, given: dict[str, Any], outcome: Outcome, error: str | None, output: Any
) -> None:
    own = party.pending is not None and party.pending["batch"] == given["batch"]
    if outcome is Outcome.UNKNOWN:
        party.pending = party.pending or {name: given[name] for name in ("batch", "events", "base_seq")}
        return
    if outcome is Outcome.OK and output is not None:
        party.last = max(party.last, output["last"])
        kept = party.pending if own else given
        if kept is not None and "events" in kept:
            party.committed.append({name: kept[name] for name in ("batch", "events", "base_seq")})
    if own or outcome is Outcome.REFUSED:
        party.pending = None
    if error in ("WriterFenced", "HeadConflict") or (error is None and output is None and rng.random() < 0.5):
        party.epoch = None


def _operation(party: Party, running: dict[str, Any], now: int) -> Operation:
    outcome, error, output = running["answer"]
    return Operation(
        index=0,
        process=party.name,
        op=running["op"],
        key="journal",
        input=running["given"],
        call_ns=running["call"],
        return_ns=now,
        outcome=outcome,
        output=output,
        error=error,
    )
