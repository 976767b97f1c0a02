"""What a rule is: one function with its contract id, its level, what it needs and which mutants it must kill."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from statebook.capabilities import Durability, Feature, Sharing

if TYPE_CHECKING:
    from statebook_conformance.context import Context

_ID: Final = re.compile(r"(?P<contract>[A-Z]+-[0-9]+)(?:\.[a-z0-9-]+)?\Z")
LEVELS: Final = ("Loads", "Core", "Concurrent", "Fault-tolerant", "Operable")
"""The names of the levels 0 to 4."""

CHAPTERS: Final = (
    *("ID", "VAL", "ERR", "ATOM", "STATE", "HEAD", "CLAIM", "APPEND", "SETTLE", "READ", "CURSOR", "LIFE", "FORMAT"),
    *("LANE", "DUR"),
)
"""The chapters, in the order of the contract."""

Need = Durability | Sharing | Feature


def chapter_place(chapter: str) -> tuple[int, str]:
    """Where a chapter stands: in the order of the contract, unknown ones behind it by name."""
    return (CHAPTERS.index(chapter) if chapter in CHAPTERS else len(CHAPTERS), chapter)


Part: TypeAlias = Literal["atomic"]


class Rule:
    """One rule of the suite.

    Attributes:
        id: The contract id, and a name where several rules prove one: `APPEND-1` or `APPEND-1.any-base`.
        title: The first line of its docstring: the promise.
        text: The whole docstring.
        level: 0 to 4.
        needs: What the backend must declare; else the rule is `NOT_CLAIMED`, after its probe.
        part: A part that not every backend has; where it is missing, the rule is `NOT_CLAIMED`.
        kills: The mutants that it must fail.
        hint: The usual cause of a failure.
        floor: The least counts of evidence; below: `INCONCLUSIVE`.
        provisional: Reported, but blocks no level.
        timeout_s: How long it may run, in seconds, before it counts as hung.
    """

    def __init__(
        self,
        function: Callable[[Context], None],
        rule_id: str,
        *,
        level: int,
        hint: str,
        kills: tuple[str, ...],
        needs: tuple[Need, ...],
        part: Part | None,
        floor: Mapping[str, int],
        probe: Callable[[Context], None] | None,
        provisional: bool,
        timeout_s: float,
    ) -> None:
        """Take a function as a rule; see `rule`.

        Raises:
            ValueError: The id, level or docstring is not as rules have them.
        """
        match = _ID.match(rule_id)
        if match is None or not 0 <= level < len(LEVELS):
            raise ValueError(f"{rule_id!r} at level {level} is no rule id and level")
        self.text = inspect.cleandoc(function.__doc__ or "")
        if not self.text or not hint:
            raise ValueError(f"rule {rule_id} needs a docstring that states the promise, and a hint")
        self.function = function
        self.id = rule_id
        self.contract_id = match["contract"]
        self.title = self.text.partition("\n")[0]
        self.level = level
        self.needs = needs
        self.part = part
        self.kills = kills
        self.hint = hint
        self.floor = dict(floor)
        self.probe = probe
        self.provisional = provisional
        self.timeout_s = timeout_s

    def __call__(self, context: Context) -> None:
        """Run the rule's checks."""
        self.function(context)

    def __repr__(self) -> str:
        """The id, for logs."""
        return f"<Rule {self.id}>"


def repeating(rule_id: str, seed: int, effort: int) -> str:
    """The options with which a rule's run is repeated, such as `--rule APPEND-2 --seed 7`."""
    more = f" --effort {effort}" if effort != 1 else ""
    return f"--rule {rule_id} --seed {seed}{more}"


def rule(
    rule_id: str,
    /,
    *,
    level: int,
    hint: str,
    kills: tuple[str, ...] = (),
    needs: tuple[Need, ...] = (),
    part: Part | None = None,
    floor: Mapping[str, int] | None = None,
    probe: Callable[[Context], None] | None = None,
    provisional: bool = False,
    timeout_s: float = 60.0,
) -> Callable[[Callable[[Context], None]], Rule]:
    """Make a function a rule. It never names a backend; it gets a context with a fresh namespace.

    Args:
        rule_id: The contract id, with `.name` behind it where several rules prove one.
        level: 0 to 4.
        hint: The usual cause of a failure, one sentence.
        kills: The mutants that it must fail.
        needs: What the backend must declare for the rule to apply.
        part: `atomic` for rules of `AtomicJournalStorage`, which a backend with native stores need not have.
        floor: The least counts of evidence that the rule must have seen.
        probe: Run instead where `needs` is not declared: shows that the call refuses and leaves no trace.
        provisional: Reported, but blocks no level.
        timeout_s: How long it may run, in seconds.

    Returns:
        The decorator.
    """

    def decorate(function: Callable[[Context], None]) -> Rule:
        return Rule(
            function,
            rule_id,
            level=level,
            hint=hint,
            kills=kills,
            needs=needs,
            part=part,
            floor=floor or {},
            probe=probe,
            provisional=provisional,
            timeout_s=timeout_s,
        )

    return decorate
