"""Is there one order, within the real-time order, in which a sequential object would give these very answers?

This is the search of Wing and Gong, "Testing and verifying concurrent objects" (1993), with the memory of visited
configurations of Lowe, "Testing for linearizability" (2017): a configuration is the set of operations placed so far
and the state of the object, and none is explored twice. As in Lowe's work and in Porcupine, calls and returns stand in
one doubly linked list in time order; placing an operation lifts its entries out, and going back puts them in again.
Keys are judged one by one, as linearizability is local (Herlihy and Wing 1990; P-compositionality in Porcupine).

Two things are added. A model may give several next states, because an unknown save may have got any of several
versions. And an operation of unknown outcome has a call but no return: it may be placed at any time after its call, or
never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol, TypeVar

import msgspec

from statebook_conformance.checkers.history import History, Operation, Outcome
from statebook_conformance.checkers.verdict import Answer, Fact, Verdict, combine

DEFAULT_BUDGET = 200_000
"""Explored configurations after which a search gives up: some seconds."""

State = TypeVar("State", bound=Hashable)


class Model(Protocol[State]):
    """A sequential object: what it may answer, one operation after the other.

    States must be hashable and must not change.
    """

    def relevant(self, operation: Operation) -> bool:
        """Tell whether the operation can have had an effect or says anything about the state."""
        ...

    def initial(self) -> State:
        """Give the state before the first operation."""
        ...

    def step(self, state: State, operation: Operation) -> Iterable[State]:
        """Give every state that may follow if the operation happens now with its recorded answer; none if it cannot."""
        ...


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found out about one object.

    `order` is a full linearization if the answer is yes, else the longest prefix found. `blocked` is, for no, the index
    of the first operation, by return time, that no order can explain. `explored` counts configurations.
    """

    answer: Answer
    order: tuple[int, ...]
    blocked: int | None
    explored: int


class _Entry:
    """A call or a return in the time-ordered list. `back` and `next` stay as they were while it is lifted out."""

    __slots__ = ("back", "is_call", "next", "operation", "position", "returned")

    def __init__(self, operation: Operation, position: int, *, is_call: bool) -> None:
        self.operation = operation
        self.position = position
        self.is_call = is_call
        self.returned: _Entry | None = None
        self.back: _Entry | None = None
        self.next: _Entry | None = None

    def unlink(self) -> None:
        if self.back is not None:
            self.back.next = self.next
        if self.next is not None:
            self.next.back = self.back

    def relink(self) -> None:
        if self.back is not None:
            self.back.next = self
        if self.next is not None:
            self.next.back = self


class _Searcher:
    """One search over the operations of one key."""

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations = operations
        self.head = _link(operations)
        self.placed = 0
        self.missing = sum(operation.outcome is not Outcome.UNKNOWN for operation in operations)
        self.order: list[int] = []
        self.longest: tuple[int, ...] = ()
        self.blocked: Operation | None = None

    def lift(self, entry: _Entry) -> None:
        entry.unlink()
        if entry.returned is not None:
            entry.returned.unlink()
            self.missing -= 1
        self.placed |= 1 << entry.position
        self.order.append(entry.operation.index)
        if len(self.order) > len(self.longest):
            self.longest = tuple(self.order)

    def put_back(self, entry: _Entry) -> None:
        if entry.returned is not None:
            entry.returned.relink()
            self.missing += 1
        entry.relink()
        self.placed &= ~(1 << entry.position)
        self.order.pop()

    def note_blocked(self, entry: _Entry) -> None:
        """Keep the latest return that stopped the search; the search is exhaustive, so nothing gets past it."""
        operation = entry.operation
        if self.blocked is None or _return_time(operation) > _return_time(self.blocked):
            self.blocked = operation


def search(operations: tuple[Operation, ...], model: Model[State], *, budget: int = DEFAULT_BUDGET) -> Search:
    """Search a linearization of the operations of one object.

    Args:
        operations: The operations of one key, in call order.
        model: The sequential object.
        budget: How many configurations may be explored.

    Returns:
        The answer: unknown only if the budget was spent.
    """
    searcher = _Searcher(tuple(operation for operation in operations if model.relevant(operation)))
    visited: set[tuple[int, State]] = set()
    state = model.initial()
    stack: list[tuple[_Entry, State, Iterator[State]]] = []
    entry = searcher.head.next
    successors: Iterator[State] | None = None
    while searcher.missing:
        if entry is not None and entry.is_call:
            successors = iter(model.step(state, entry.operation)) if successors is None else successors
            chosen = _first_new(successors, searcher.placed | 1 << entry.position, visited)
            if chosen is None:
                entry, successors = entry.next, None
                continue
            if len(visited) > budget:
                return Search(answer=Answer.UNKNOWN, order=searcher.longest, blocked=None, explored=len(visited))
            stack.append((entry, state, successors))
            searcher.lift(entry)
            state, entry, successors = chosen[0], searcher.head.next, None
            continue
        if entry is not None:
            searcher.note_blocked(entry)
        if not stack:
            blocked = None if searcher.blocked is None else searcher.blocked.index
            return Search(answer=Answer.NO, order=searcher.longest, blocked=blocked, explored=len(visited))
        entry, state, successors = stack.pop()
        searcher.put_back(entry)
    return Search(answer=Answer.YES, order=tuple(searcher.order), blocked=None, explored=len(visited))


def check_linearizable(
    history: History,
    model_of: Callable[[tuple[Operation, ...]], Model[State]],
    *,
    promise: str = "STATE-4",
    budget: int = DEFAULT_BUDGET,
) -> Verdict:
    """Check that each key of a history behaved as one sequential object (STATE-4: histories are linearizable).

    Args:
        history: The history.
        model_of: Makes the model of one key from all its operations.
        promise: The rule id that a violation breaks.
        budget: Explored configurations, for all keys together.

    Returns:
        No with the first operation, by return time, that no order explains; unknown if the budget was spent.

    Raises:
        HistoryError: An operation is not in the words of the model.
    """
    verdicts: list[Verdict] = []
    left = budget
    for key, operations in history.by_key().items():
        found = search(operations, model_of(operations), budget=left)
        left = max(0, left - found.explored)
        verdicts.append(_verdict(key, operations, found, promise))
        if found.answer is Answer.NO:
            break
    return combine(verdicts)


def _verdict(key: str, operations: tuple[Operation, ...], found: Search, promise: str) -> Verdict:
    counts = (
        ("explored", found.explored),
        ("keys", 1),
        ("longest_prefix", len(found.order)),
        ("operations", len(operations)),
    )
    if found.answer is Answer.YES:
        return Verdict(answer=Answer.YES, statistics=counts)
    if found.answer is Answer.UNKNOWN:
        reason = f"key {key!r}: no answer within the budget of explored configurations"
        return Verdict(answer=Answer.UNKNOWN, reason=reason, statistics=counts)
    blocked = next((operation for operation in operations if operation.index == found.blocked), None)
    name = "an operation" if blocked is None else f"{blocked.op} by {blocked.process}"
    sentence = (
        f"key {key!r}: no order explains the answer of operation {found.blocked} ({name}); the operations that were "
        f"answered before it can be ordered, and the longest order found has {len(found.order)} operations"
    )
    involved = () if found.blocked is None else (found.blocked,)
    return Verdict(
        answer=Answer.NO,
        facts=(Fact(promise, (*involved, *found.order[-1:]), sentence),),
        statistics=tuple(sorted((*counts, ("violations", 1)))),
    )


def _first_new(successors: Iterator[State], placed: int, visited: set[tuple[int, State]]) -> tuple[State] | None:
    """Give the next successor that makes a configuration not seen before, in a tuple, as a state may be `None`."""
    for state in successors:
        configuration = (placed, state)
        if configuration not in visited:
            visited.add(configuration)
            return (state,)
    return None


def _link(operations: tuple[Operation, ...]) -> _Entry:
    """Link calls and returns in time order; at equal times calls stand first, so that such operations overlap."""
    timed: list[tuple[int, int, int, _Entry]] = []
    for position, operation in enumerate(operations):
        call = _Entry(operation, position, is_call=True)
        timed.append((operation.call_ns, 0, position, call))
        if operation.outcome is not Outcome.UNKNOWN and operation.return_ns is not None:
            call.returned = _Entry(operation, position, is_call=False)
            timed.append((operation.return_ns, 1, position, call.returned))
    timed.sort(key=lambda item: item[:3])
    head = _Entry(operations[0], -1, is_call=False) if operations else _Entry(_NOTHING, -1, is_call=False)
    last = head
    for _, _, _, entry in timed:
        last.next, entry.back = entry, last
        last = entry
    return head


def _return_time(operation: Operation) -> int:
    return -1 if operation.return_ns is None else operation.return_ns


_NOTHING = Operation(
    index=-1, process="", op="", key="", input={}, call_ns=0, return_ns=0, outcome=Outcome.OK, output=None, error=None
)
