"""Runs rules against a target and says what became of each.

Imports no pytest: the suite object and the command use it alike.
"""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from statebook.capabilities import Capabilities
from statebook.errors import BackendUnavailable, InvalidConfiguration, MissingDriver, StatebookError
from statebook_conformance.context import Context, Inconclusive, NotClaimed, RuleFailure, Unavailable
from statebook_conformance.control import ServerControl
from statebook_conformance.processes import ChildError
from statebook_conformance.rule import Rule, repeating
from statebook_conformance.statuses import Status
from statebook_conformance.target import Target
from statebook_conformance.together import HungError, run_together

ROUNDS_MAX: Final = 6
"""How many rounds, of doubling effort, a rule gets to reach its evidence floor."""

RERUNS: Final = 2
"""How many times a failed rule is run again with the same seed, to tell FAIL from FLAKY."""


class RuleResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one rule.

    Attributes:
        rule: The rule's id.
        level: Its level.
        title: Its promise.
        status: The status.
        checks: How many checks were counted.
        evidence: What was seen, sorted.
        reason: Why it is not PASS, or an empty text.
        hint: The usual cause, where it failed.
        seed: The seed of the run.
        seconds: How long it took.
        histories: Checker and digest of each judged history.
        provisional: Whether it blocks no level.
        effort: How many times the work of an ordinary run it did.
    """

    rule: str
    level: int
    title: str
    status: Status
    checks: int
    evidence: tuple[tuple[str, int], ...]
    reason: str
    hint: str
    seed: int
    seconds: float
    histories: tuple[tuple[str, str], ...] = ()
    provisional: bool = False
    effort: int = 1

    @property
    def again(self) -> str:
        """The options with which this run is repeated, such as `--rule APPEND-2 --seed 7`."""
        return repeating(self.rule, self.seed, self.effort)


class TargetUnavailable(Exception):
    """The target cannot be opened at all: no rule could run.

    Attributes:
        missing: True where a service or driver is missing, False where the target refused.
    """

    def __init__(self, message: str, *, missing: bool) -> None:
        """Keep the reason and its kind."""
        super().__init__(message)
        self.missing = missing


class Engine:
    """Runs rules against one target.

    Attributes:
        target: What is certified.
        seed: The seed of everything random.
        out: Where histories of failures are kept, or None.
    """

    def __init__(
        self,
        target: str | Target,
        *,
        seed: int | None = None,
        out: Path | None = None,
        reruns: int = RERUNS,
        rounds: int = ROUNDS_MAX,
        effort: int = 1,
        patience: float = 1.0,
        server: ServerControl | None = None,
    ) -> None:
        """Take a target; opens nothing.

        Args:
            target: A URL, `module:function`, or a ready target.
            seed: The seed; fresh where None.
            out: The directory for histories of failures.
            reruns: How often a failed rule is run again, to tell FAIL from FLAKY.
            rounds: How many rounds a rule gets to reach its evidence floor.
            effort: How many times the work of an ordinary run each rule does: more kills, races and histories.
            patience: By what a rule's time-out is multiplied, for a target that is known to be slow.
            server: The server behind the target, where the suite may stop, kill and pause it.

        Raises:
            InvalidConfiguration: The target's name is wrong.
        """
        self.target = target if isinstance(target, Target) else Target(target)
        self.seed = secrets.randbelow(1 << 31) if seed is None else seed
        self.out = out
        self._reruns = reruns
        self._rounds = rounds
        self._effort = effort
        self._patience = patience
        self._server = server
        self._capabilities: Capabilities | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What the target's journal store declares; opened once.

        Raises:
            TargetUnavailable: It cannot be opened.
        """
        if self._capabilities is not None:
            return self._capabilities
        try:
            backend = self.target.backend(_namespace())
            journal = backend.open_journal()
        except (MissingDriver, BackendUnavailable) as error:
            raise TargetUnavailable(str(error), missing=True) from error
        except InvalidConfiguration as error:
            raise TargetUnavailable(str(error), missing=False) from error
        declared = journal.capabilities
        journal.close()
        backend.destroy_namespace()
        self._capabilities = declared
        return declared

    def run(
        self, rules: Sequence[Rule], *, progress: Callable[[Rule, RuleResult | None], None] | None = None
    ) -> tuple[RuleResult, ...]:
        """Run rules one after the other.

        Args:
            rules: The rules.
            progress: Called before each rule with None and after it with its result.

        Returns:
            Their results, in order.

        Raises:
            TargetUnavailable: The target cannot be opened at all.
        """
        results = []
        for rule in rules:
            if progress is not None:
                progress(rule, None)
            result = self.run_rule(rule)
            results.append(result)
            if progress is not None:
                progress(rule, result)
        return tuple(results)

    def run_rule(self, rule: Rule) -> RuleResult:
        """Run one rule to its status: rounds until its floor is reached, again where it failed.

        Args:
            rule: The rule.

        Returns:
            Its result.

        Raises:
            TargetUnavailable: The target cannot be opened at all.
        """
        started = time.monotonic()
        claimed = all(self.capabilities.offers(need) for need in rule.needs)
        effort = self._effort
        result = self._once(rule, effort, claimed)
        while result.status is Status.INCONCLUSIVE and effort < self._effort << (self._rounds - 1):
            effort *= 2
            result = self._once(rule, effort, claimed)
        if result.status is Status.FAIL:
            for _ in range(self._reruns):
                if self._once(rule, effort, claimed).status in (Status.PASS, Status.NOT_CLAIMED):
                    result = msgspec.structs.replace(
                        result, status=Status.FLAKY, reason=f"failed, then passed with the same seed: {result.reason}"
                    )
                    break
        return msgspec.structs.replace(result, seconds=round(time.monotonic() - started, 3))

    def _once(self, rule: Rule, effort: int, claimed: bool) -> RuleResult:  # noqa: FBT001 - private
        context = Context(
            self.target,
            _namespace(),
            rule_id=rule.id,
            seed=self.seed,
            effort=effort,
            out=self.out,
            capabilities=self.capabilities,
            server=self._server,
        )
        body = _body(rule) if claimed else rule.probe or _nothing
        status, reason = self._attempt(rule, body, context)
        problems = context.close()
        if status in (Status.PASS, Status.NOT_CLAIMED) and problems:
            status, reason = Status.FAIL, "; ".join(problems)
        if status is Status.PASS:
            status, reason = _sum_up(rule, context, claimed=claimed)
        return RuleResult(
            rule=rule.id,
            level=rule.level,
            title=rule.title,
            status=status,
            checks=context.checks,
            evidence=tuple(sorted(context.evidence.items())),
            reason=reason,
            hint=rule.hint if status in (Status.FAIL, Status.FLAKY) else "",
            seed=self.seed,
            seconds=0.0,
            histories=tuple(context.histories),
            provisional=rule.provisional,
            effort=self._effort,
        )

    def _attempt(self, rule: Rule, body: Callable[[Context], None], context: Context) -> tuple[Status, str]:
        try:
            run_together([lambda: body(context)], timeout_s=rule.timeout_s * context.effort * self._patience)
        except RuleFailure as failure:
            return Status.FAIL, str(failure)
        except Inconclusive as doubt:
            return Status.INCONCLUSIVE, str(doubt)
        except NotClaimed as missing:
            return Status.NOT_CLAIMED, str(missing)
        except Unavailable as missing:
            return Status.UNAVAILABLE, str(missing)
        except HungError as hung:
            return Status.FAIL, f"hung: {hung}"
        except ChildError as error:
            return Status.FAIL, str(error)
        except StatebookError as error:
            return Status.FAIL, f"unexpected {type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is a finding
            ours = _innermost(error).startswith("statebook_conformance.") and not _innermost(error).startswith(
                "statebook_conformance.mutants"
            )
            trace = "".join(traceback.format_exception(error)[-3:]).strip()
            if ours:
                return Status.ERROR, f"the rule itself broke: {trace}"
            return Status.FAIL, f"the backend raised {type(error).__name__}, which is no error of the contract: {trace}"
        return Status.PASS, ""


def _body(rule: Rule) -> Callable[[Context], None]:
    """The rule's function, behind a look whether its part is there."""
    if rule.part is None:
        return rule.function

    def with_part(context: Context) -> None:
        if not context.has_atomic:
            raise NotClaimed("the backend has no atomic storage; its stores are native")
        rule.function(context)

    return with_part


def _innermost(error: BaseException) -> str:
    """The module in which an error was raised."""
    frame = error.__traceback__
    name = ""
    while frame is not None:
        name = str(frame.tb_frame.f_globals.get("__name__", ""))
        frame = frame.tb_next
    return name


def _sum_up(rule: Rule, context: Context, *, claimed: bool) -> tuple[Status, str]:
    if not claimed:
        missing = ", ".join(
            f"{type(need).__name__.lower()}={need.value}" for need in rule.needs if not context.claims(need)
        )
        return Status.NOT_CLAIMED, f"the backend does not declare {missing}"
    if context.checks == 0:
        return Status.VACUOUS, "the rule ran no check"
    short = [
        f"{name}: {context.evidence[name]} of {least}"
        for name, least in rule.floor.items()
        if context.evidence[name] < least
    ]
    if short:
        return Status.INCONCLUSIVE, "too little evidence: " + ", ".join(short)
    return Status.PASS, ""


def _nothing(_: Context) -> None:
    """The probe of a rule that needs none: what is not declared cannot be called."""


def _namespace() -> str:
    return f"conformance-{secrets.token_hex(8)}"


def select(rules: Iterable[Rule], *, level: int, only: Sequence[str] = ()) -> tuple[Rule, ...]:
    """Choose rules.

    Args:
        rules: All rules.
        level: The highest level.
        only: Rule or contract ids; empty for all.

    Returns:
        The rules, in their order.

    Raises:
        ValueError: An id in `only` names no rule.
    """
    chosen = tuple(rules)
    if only:
        known = {name for rule in chosen for name in (rule.id, rule.contract_id)}
        for name in only:
            if name not in known:
                raise ValueError(f"there is no rule {name!r}; see `statebook conformance list`")
        return tuple(rule for rule in chosen if rule.id in only or rule.contract_id in only)
    return tuple(rule for rule in chosen if rule.level <= level)
