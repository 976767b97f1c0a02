"""What a rule works with: stores in a fresh namespace, counted checks, evidence, seeded randomness, histories."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from statebook.atomic import AtomicJournalStorage
from statebook.capabilities import Capabilities, Durability, Feature, Sharing
from statebook.errors import OutcomeUnknown, StatebookError, UnsupportedCapability
from statebook.journal import ThreadJournalStore
from statebook.medium import Medium
from statebook.state import AgentStateStore
from statebook_conformance.checkers.history import Header, History
from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.checkers.verdict import Answer
from statebook_conformance.control import ServerControl
from statebook_conformance.processes import Child
from statebook_conformance.target import Target, TargetBackend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from statebook_conformance.checkers.history import JsonValue
    from statebook_conformance.faults.network import Network
    from statebook_conformance.faults.plans import Source

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
_Store = TypeVar("_Store", AtomicJournalStorage, ThreadJournalStore, AgentStateStore, Medium)

_CLOSE_S: Final = 30.0


class RuleFailure(Exception):
    """The backend broke the contract: the smallest facts that show it."""


class Inconclusive(Exception):
    """The rule could not see enough to say anything."""


class NotClaimed(Exception):
    """The backend does not have the part that the rule is about."""


class Unavailable(Exception):
    """A tool or service that the rule needs is missing; the message says what to install."""


class Context:
    """The world of one run of one rule. Everything that it opens is closed by the engine.

    Attributes:
        target: What is certified.
        namespace: Fresh and random; removed after the rule.
        seed: The seed of this run, shown with a failure.
        random: Randomness from that seed.
        effort: 1 in the first round; doubles in each round that the engine runs for more evidence.
        capabilities: What the backend's journal store declares.
        out: Where histories of failures are kept.
    """

    def __init__(
        self,
        target: Target,
        namespace: str,
        *,
        rule_id: str,
        seed: int,
        effort: int,
        out: Path | None,
        capabilities: Capabilities,
        server: ServerControl | None = None,
    ) -> None:
        """Make the context of one run; the engine does."""
        self.target = target
        self.namespace = namespace
        self.rule_id = rule_id
        self.seed = seed
        self.random = random.Random(f"{seed}:{rule_id}")
        self.effort = effort
        self.out = out
        self.capabilities = capabilities
        self.checks = 0
        self.evidence: Counter[str] = Counter()
        self.histories: list[tuple[str, str]] = []
        self._server = server
        self._networks: list[Network] = []
        self._opened: list[AtomicJournalStorage | ThreadJournalStore | AgentStateStore | Medium] = []
        self._children: list[Child] = []
        self._others: tuple[Context, ...] = ()
        self._lock = Lock()
        self._backend: TargetBackend | None = None
        self._first: dict[str, AtomicJournalStorage | ThreadJournalStore | AgentStateStore] = {}

    # ------------------------------------------------------------------------------------------------------- stores

    @property
    def backend(self) -> TargetBackend:
        """The backend with its options set to this rule's namespace."""
        if self._backend is None:
            self._backend = self.target.backend(self.namespace)
        return self._backend

    def _keep(self, store: _Store) -> _Store:
        with self._lock:
            self._opened.append(store)
        return store

    def open_atomic(self) -> AtomicJournalStorage:
        """Open another handle of the atomic storage."""
        return self._keep(self.backend.open_atomic())

    def open_journal(self) -> ThreadJournalStore:
        """Open another handle of the journal store."""
        return self._keep(self.backend.open_journal())

    def open_state(self) -> AgentStateStore:
        """Open another handle of the state store."""
        return self._keep(self.backend.open_state())

    def open_medium(self) -> Medium | None:
        """Open the raw medium of the namespace, or None where the backend shows none."""
        medium = self.backend.open_medium()
        return None if medium is None else self._keep(medium)

    @property
    def has_atomic(self) -> bool:
        """Whether the backend has an atomic storage; without one its rules are `NOT_CLAIMED`."""
        try:
            self.open_atomic()
        except UnsupportedCapability:
            return False
        return True

    @property
    def atomic(self) -> AtomicJournalStorage:
        """The first handle of the atomic storage."""
        store = self._first.get("atomic")
        if not isinstance(store, AtomicJournalStorage):
            store = self._first["atomic"] = self.open_atomic()
        return store

    @property
    def journal(self) -> ThreadJournalStore:
        """The first handle of the journal store."""
        store = self._first.get("journal")
        if not isinstance(store, ThreadJournalStore):
            store = self._first["journal"] = self.open_journal()
        return store

    @property
    def state(self) -> AgentStateStore:
        """The first handle of the state store."""
        store = self._first.get("state")
        if not isinstance(store, AgentStateStore):
            store = self._first["state"] = self.open_state()
        return store

    def other_namespace(self) -> Context:
        """A context like this one in another fresh namespace, closed and cleaned with this one's `close`."""
        other = Context(
            self.target,
            self.namespace + "-b",
            rule_id=self.rule_id,
            seed=self.seed,
            effort=self.effort,
            out=self.out,
            capabilities=self.capabilities,
            server=self._server,
        )
        self._others = (*self._others, other)
        return other

    def claims(self, item: Durability | Sharing | Feature) -> bool:
        """Whether the backend declares this, or more."""
        return self.capabilities.offers(item)

    # ------------------------------------------------------------------------------------------------------- faults

    def network(self, source: Source | None = None) -> Network:
        """A network that can fail, entered: connections that stores make from now on lead through its proxies.

        Args:
            source: Where requests get their fate from when no plan waits.

        Returns:
            The network; left at the end of the rule, after the stores are closed.
        """
        from statebook_conformance.faults.network import Network

        network = Network(source)
        network.__enter__()
        self._networks.append(network)
        return network

    @property
    def server(self) -> ServerControl:
        """The server behind the store, to be stopped, killed and paused.

        Raises:
            Unavailable: The suite cannot reach it.
        """
        control: object = self._server
        if control is None:
            ask = getattr(self.backend, "server_control", None)
            control = ask() if callable(ask) else None
        if not isinstance(control, ServerControl):
            raise Unavailable(
                "the suite cannot stop this server: name a service, such as `redis`, so that it starts one itself, or "
                "certify a module:function target whose backend has server_control()"
            )
        return control

    # ------------------------------------------------------------------------------------------------------- checks

    def fail(self, fact: str) -> NoReturn:
        """Fail the rule.

        Args:
            fact: One sentence with the smallest facts.

        Raises:
            RuleFailure: Always.
        """
        with self._lock:
            self.checks += 1
        raise RuleFailure(fact)

    def check(self, condition: object, fact: str) -> None:
        """Count a check, and fail the rule where it does not hold.

        Args:
            condition: What must be true.
            fact: What is wrong where it is not, one sentence.

        Raises:
            RuleFailure: It does not hold.
        """
        with self._lock:
            self.checks += 1
        if not condition:
            raise RuleFailure(fact)

    def equal(self, found: object, expected: object, what: str) -> None:
        """Count a check that something is exactly as expected.

        Raises:
            RuleFailure: It is not.
        """
        self.check(
            type(found) is type(expected) and found == expected,
            f"{what}: expected {_short(expected)}, found {_short(found)}",
        )

    def raises(self, error: type[E], call: Callable[[], object], what: str) -> E:
        """Count a check that a call is refused with an error of a class.

        Args:
            error: The class.
            call: The call.
            what: The call in words, for the fact.

        Returns:
            The error, for further checks.

        Raises:
            RuleFailure: It returned, or raised something else.
        """
        try:
            answer = call()
        except error as raised:
            with self._lock:
                self.checks += 1
            return raised
        except Exception as raised:
            raise RuleFailure(f"{what}: expected {error.__name__}, got {type(raised).__name__}: {raised}") from raised
        raise RuleFailure(f"{what}: expected {error.__name__}, but the call returned {_short(answer)}")

    def saw(self, what: str, count: int = 1) -> None:
        """Count evidence, such as conflicts or takeovers; held against the rule's floor."""
        with self._lock:
            self.evidence[what] += count

    # -------------------------------------------------------------------------------------------------- concurrency

    def threads(self, calls: Sequence[Callable[[], T]], *, timeout_s: float = 45.0) -> list[T]:
        """Run calls in one thread each, started together, and give their results in order.

        Args:
            calls: The calls.
            timeout_s: How long they may take together, in seconds.

        Returns:
            Their results.

        Raises:
            RuleFailure: One of them did not come back in time.
            Exception: The first error that one of them raised.
        """
        from statebook_conformance.together import run_together

        return run_together(calls, timeout_s=timeout_s)

    def spawn(self, worker: str, params: Mapping[str, JsonValue] | None = None) -> Child:
        """Start another process that opens the same namespace and runs a worker function.

        Args:
            worker: `module:function` of a function that takes a `ChildContext`.
            params: JSON-able parameters for it.

        Returns:
            The process; killed at the end of the rule where it still runs.
        """
        child = Child(self.target.text, self.namespace, worker, dict(params or {}))
        with self._lock:
            self._children.append(child)
        return child

    def recorder(self) -> Recorder:
        """A recorder of operations on the machine's monotonic clock."""
        return Recorder(clock=time.monotonic_ns)

    def judge(self, history: History, *, decisive: bool = True) -> None:
        """Have the checker that a history names judge it: NO fails the rule, and the history is kept for replay.

        Args:
            history: The history.
            decisive: Whether UNKNOWN makes the rule inconclusive; else it only counts as no check.

        Raises:
            RuleFailure: The checker says no.
            Inconclusive: It says unknown and was to be decisive.
        """
        from statebook_conformance.checkers.registry import judge

        verdict = judge(history)
        checker = history.header.checker
        self.histories.append((checker, history.digest()))
        if verdict.answer is Answer.NO:
            facts = "; ".join(f"{fact.promise}: {fact.sentence}" for fact in verdict.facts[:5])
            raise RuleFailure(f"{facts}{self.keep(history)}")
        if verdict.answer is Answer.UNKNOWN:
            if decisive:
                raise Inconclusive(f"checker {checker}: {verdict.reason}")
            return
        with self._lock:
            self.checks += max(1, len(history.operations))

    def header(self, checker: str, params: Mapping[str, JsonValue] | None = None) -> Header:
        """The header of a history of this rule, with which it can be replayed."""
        return Header(seed=self.seed, rule=self.rule_id, checker=checker, params=dict(params or {}))

    def keep(self, history: History) -> str:
        """Keep a history of a failure for the report and for replay, where there is a place for it.

        Args:
            history: The history.

        Returns:
            What to add to the fact: where it is, and the command that judges it again; empty where it was not kept.
        """
        if self.out is None:
            return ""
        path = self.out / "histories" / f"{self.rule_id}-{self.seed}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        history.dump(path)
        return f" (history: {path}; replay it with: statebook conformance replay {path})"

    # ------------------------------------------------------------------------------------------------------ closing

    def close(self) -> tuple[str, ...]:
        """End children, close stores, remove the namespace. The engine calls it once.

        Returns:
            What went wrong while cleaning up, one sentence each.
        """
        problems: list[str] = []
        for child in self._children:
            child.end()
        for network in self._networks:  # first, so that calls that still wait for an answer end
            network.close()
        for store in reversed(self._opened):
            problems.extend(_closing(store.close))
        problems.extend(problem for other in self._others for problem in other.close())
        try:
            self.backend.destroy_namespace()
        except (StatebookError, OutcomeUnknown) as error:
            problems.append(f"the namespace could not be removed: {error}")
        return tuple(problems)


def _closing(close: Callable[[], None]) -> Iterator[str]:
    """Close a store, and give what was wrong with that."""
    from statebook_conformance.together import HungError, run_together

    try:
        run_together([close], timeout_s=_CLOSE_S)
    except HungError:
        yield f"close() did not come back within {_CLOSE_S:g} s"
    except Exception as error:  # noqa: BLE001 - any error of close() is a finding
        yield f"close() raised {type(error).__name__}: {error}"


def _short(value: object, limit: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
