"""The self-check: each rule kills the mutants that it names, each mutant is killed, the true backends survive."""

from __future__ import annotations

import difflib
import os
import queue
import re
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from statebook_conformance.engine import Engine
from statebook_conformance.mutants.gallery import all_mutants
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.processes import Child, ChildError
from statebook_conformance.rule import Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.services.provide import ALL_NAMES, ServiceUnavailable, provide
from statebook_conformance.statuses import Status
from statebook_conformance.together import run_together

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue
    from statebook_conformance.child import ChildContext

KILLED: Final = frozenset({Status.FAIL, Status.FLAKY})
"""The statuses with which a rule has killed a mutant."""

_JOBS_EACH: Final = 12
"""How many jobs a process runs before it makes place for a fresh one."""
_JOB_S: Final = 900.0
_ALL_S: Final = 7_200.0
_SAY_S: Final = 15.0

SEEDS_MAX: Final = 3
"""With how many seeds a rule may look for a mutant's race: that it can fail is shown by one."""

_TRUE: Final = "(true backend)"

_BASES: Final = re.compile(r"\{([a-z-]+)\}")
"""What a mutant's base can name: a fresh directory, or a service."""


class Cell(msgspec.Struct, frozen=True):
    """One run of one rule: over a mutant, or over the good backend that mutants are made from.

    Attributes:
        mutant: The mutant's name, or `(true backend)` and its URL.
        rule: The rule's id.
        status: What became of it.
        reason: Why.
    """

    mutant: str
    rule: str
    status: str
    reason: str

    @property
    def right(self) -> bool:
        """Whether it is as it must be: a mutant killed, a true backend not."""
        status = Status(self.status)
        return status.grants if self.mutant.startswith(_TRUE) else status in KILLED


class SelfCheck(msgspec.Struct, frozen=True):
    """What a self-check found.

    Attributes:
        cells: All runs.
        unproved: Rules that name no mutant.
        unkillable: Mutants that no rule names.
        unknown: Names in `kills` that are no mutant's.
        missing: Services that cannot be had here, each with what to install: their mutants did not run.
    """

    cells: tuple[Cell, ...]
    unproved: tuple[str, ...]
    unkillable: tuple[str, ...]
    unknown: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything that ran is as it must be."""
        return not (self.unproved or self.unkillable or self.unknown) and all(cell.right for cell in self.cells)


def run_self_check(*, seed: int, only: Sequence[str], console: Console, workers: int | None = None) -> SelfCheck:
    """Run every rule over the mutants that it names, and over the good backends that these are made from.

    Args:
        seed: The seed.
        only: Mutants to run; empty for all.
        console: Where progress is shown.
        workers: How many processes; None for one a core.

    Returns:
        What was found.

    Raises:
        ValueError: `only` names no mutant.
    """
    mutants = all_mutants()
    for name in only:
        if name not in mutants:
            close = ", ".join(difflib.get_close_matches(name, mutants, n=5, cutoff=0.4)) or "none of a name like it"
            raise ValueError(f"there is no mutant {name!r}; near it: {close}; `list` names all of them")
    rules = all_rules()
    chosen = {name: mutant for name, mutant in mutants.items() if not only or name in only}
    jobs = [(name, rule.id) for rule in rules for name in rule.kills if name in chosen]
    bases = sorted({(chosen[name].base, rule_id) for name, rule_id in jobs})
    jobs += [(f"{_TRUE} {base}", rule_id) for base, rule_id in bases]
    named = {name for rule in rules for name in rule.kills}
    with _services(bases) as (urls, missing):
        cells = _run_jobs([job for job in jobs if _can_run(job[0], chosen, missing)], seed, console, workers, urls)
    return SelfCheck(
        cells=cells,
        missing=tuple(sorted(missing.items())),
        unproved=() if only else tuple(rule.id for rule in rules if not rule.kills and rule.level > 0),
        unkillable=tuple(name for name in chosen if name not in named),
        unknown=tuple(sorted(named - mutants.keys())),
    )


@contextmanager
def _services(bases: Iterable[tuple[str, str]]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The URLs of the services that bases name in braces, and what to install for those that cannot be had."""
    names = {name for base, _ in bases for name in _BASES.findall(base)} & set(ALL_NAMES)
    urls: dict[str, str] = {}
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        for name in sorted(names):
            try:
                urls[name] = stack.enter_context(provide(name)).url
            except ServiceUnavailable as error:
                missing[name] = str(error)
        yield urls, missing


def _can_run(name: str, chosen: Mapping[str, Mutant], missing: Container[str]) -> bool:
    base = name if name.startswith(_TRUE) else chosen[name].base
    return not any(service in missing for service in _BASES.findall(base))


def _placed(base: str, directory: str, urls: Mapping[str, str]) -> str:
    """A base with the directory and the URLs of services in it."""
    return _BASES.sub(lambda match: directory if match[1] == "directory" else urls[match[1]], base)


def _run_jobs(
    jobs: Sequence[tuple[str, str]], seed: int, console: Console, workers: int | None, urls: Mapping[str, str]
) -> tuple[Cell, ...]:
    # The longest rules first. Each lane has a process for some jobs, and then a fresh one: a mutant that hangs or
    # leaves something behind harms no other.
    longest = {rule.id: rule.timeout_s for rule in all_rules()}
    ordered = sorted(jobs, key=lambda job: -longest[job[1]])
    waiting: queue.SimpleQueue[tuple[int, tuple[str, str]]] = queue.SimpleQueue()
    for entry in enumerate(ordered):
        waiting.put(entry)
    cells: list[Cell] = []
    bar = Progress(
        TextColumn("[bold]self-check"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    with bar, tempfile.TemporaryDirectory(prefix="statebook-mutants-") as directory:
        task = bar.add_task("", total=len(jobs))
        said = time.monotonic()

        def done(cell: Cell) -> None:
            nonlocal said
            cells.append(cell)
            bar.advance(task)
            if not console.is_terminal and time.monotonic() - said > _SAY_S:
                said = time.monotonic()
                console.print(f"self-check: {len(cells)} of {len(jobs)} runs", highlight=False)

        lanes = [_Lane(waiting, seed, directory, urls, done) for _ in range(workers or (os.cpu_count() or 1) + 1)]
        run_together([lane.run for lane in lanes], timeout_s=_ALL_S)
    return tuple(sorted(cells, key=lambda cell: (cell.mutant, cell.rule)))


class _Lane:
    """Takes jobs as long as there are any, and has them run in a process of its own."""

    def __init__(
        self,
        waiting: queue.SimpleQueue[tuple[int, tuple[str, str]]],
        seed: int,
        directory: str,
        urls: Mapping[str, str],
        done: Callable[[Cell], None],
    ) -> None:
        self._waiting, self._seed, self._directory, self._urls, self._done = waiting, seed, directory, urls, done
        self._worker: Child | None = None
        self._used = 0

    def run(self) -> None:
        """Run until no job waits."""
        try:
            while True:
                try:
                    number, (name, rule_id) = self._waiting.get_nowait()
                except queue.Empty:
                    return
                self._done(self._cell(number, name, rule_id))
        finally:
            self._end()

    def _cell(self, number: int, name: str, rule_id: str) -> Cell:
        if self._used >= _JOBS_EACH:
            self._end()
        if self._worker is None:
            self._worker = Child("memory://self-check", "self-check", f"{__name__}:serve", {"urls": dict(self._urls)})
            self._used = 0
        self._used += 1
        order: dict[str, JsonValue] = {
            "name": name,
            "rule": rule_id,
            "seed": self._seed,
            "directory": f"{self._directory}/{number}",
        }
        try:
            self._worker.tell(order)
            found = self._worker.wait_for("cell", timeout_s=_JOB_S)
        except ChildError as error:
            self._end()
            return Cell(name, rule_id, Status.ERROR.value, str(error))
        return Cell(name, rule_id, str(found["status"]), str(found["reason"]))

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()


def serve(child: ChildContext) -> None:
    """The worker of a lane: runs the jobs that it is told, one after the other."""
    urls = cast("Mapping[str, str]", child.params["urls"])
    while order := child.hear():
        name, rule_id, directory = str(order["name"]), str(order["rule"]), str(order["directory"])
        cell = _run_job(name, rule_id, cast("int", order["seed"]), directory, urls)
        child.tell("cell", status=cell.status, reason=cell.reason)


def _run_job(name: str, rule_id: str, seed: int, directory: str, urls: Mapping[str, str]) -> Cell:
    """One rule over one mutant or good backend, in a process of its own: a hung mutant harms no other."""
    rule = next(rule for rule in all_rules() if rule.id == rule_id)
    Path(directory).mkdir()
    if name.startswith(_TRUE):
        target = _placed(name.removeprefix(_TRUE).strip(), directory, urls)
        return _run_once(name, target, rule, seed)
    mutant = all_mutants()[name]
    target = mutant.target(_placed(mutant.base, directory, urls))
    cell = _run_once(name, target, rule, seed)
    for more in range(1, SEEDS_MAX):
        if cell.right:
            break
        cell = _run_once(name, target, rule, seed + more)
    return cell


def _run_once(name: str, target: str, rule: Rule, seed: int) -> Cell:
    try:
        result = Engine(target, seed=seed, reruns=0).run_rule(rule)
    except Exception as error:  # noqa: BLE001 - a backend that cannot be opened is a finding of its own
        return Cell(name, rule.id, Status.ERROR.value, f"{type(error).__name__}: {error}")
    return Cell(name, rule.id, result.status.value, result.reason)


def run_canaries(engine: Engine) -> dict[str, str]:
    """Run the canaries over the backend that is certified: wrappers that break it, which the suite must notice.

    Args:
        engine: The engine of the certification.

    Returns:
        For each canary that applies, the rule that killed it, or an empty text where none did.
    """
    killers: dict[str, str] = {}
    rules = all_rules()
    for name, mutant in all_mutants().items():
        if not mutant.canary:
            continue
        naming = [rule for rule in rules if name in rule.kills and rule.level <= 2]
        applicable = [rule for rule in naming if all(engine.capabilities.offers(need) for need in rule.needs)]
        if applicable:
            killers[name] = _killer(engine, mutant, applicable)
    return killers


def _killer(engine: Engine, mutant: Mutant, rules: Sequence[Rule]) -> str:
    over = Engine(mutant.target(engine.target.text), seed=engine.seed, reruns=0)
    for rule in rules:
        if over.run_rule(rule).status in KILLED:
            return rule.id
    return ""


def print_matrix(console: Console, outcome: SelfCheck) -> bool:
    """Print the kill matrix: a line a mutant with the rules that must kill it, then what is wrong.

    Args:
        console: Where to.
        outcome: What the self-check found.

    Returns:
        Whether all is as it must be.
    """
    table = Table(show_edge=False, pad_edge=False, header_style="bold", title="kill matrix", title_justify="left")
    table.add_column("mutant")
    table.add_column("killed by", overflow="fold")
    table.add_column("survived", overflow="fold")
    for name in dict.fromkeys(cell.mutant for cell in outcome.cells):
        row = [cell for cell in outcome.cells if cell.mutant == name]
        if name.startswith(_TRUE):
            bad = [f"{cell.rule} {cell.status}" for cell in row if not cell.right]
            table.add_row(
                f"[dim]{name}[/]", f"[dim]survives {len(row) - len(bad)} rules[/]", f"[red]{', '.join(bad)}[/]"
            )
            continue
        killed = ", ".join(cell.rule for cell in row if cell.right)
        lived = ", ".join(f"{cell.rule} {cell.status}" for cell in row if not cell.right)
        table.add_row(name, f"[green]{killed}[/]", f"[bold red]{lived}[/]")
    console.print(table)
    for what, names in (
        ("rules that name no mutant", outcome.unproved),
        ("mutants that no rule names", outcome.unkillable),
        ("names in kills that are no mutant", outcome.unknown),
    ):
        if names:
            console.print(f"[bold red]{what}[/]: {', '.join(names)}", highlight=False)
    for service, remedy in outcome.missing:
        console.print(f"[bold yellow]mutants of {service} did not run[/]: {remedy}", highlight=False, soft_wrap=True)
    mutants = {cell.mutant for cell in outcome.cells if not cell.mutant.startswith(_TRUE)}
    survivors = sorted({cell.mutant for cell in outcome.cells if not cell.right})
    verdict = "[bold green]all killed[/]" if outcome.passed else f"[bold red]not as it must be: {survivors}[/]"
    console.print(f"{len(mutants)} mutants, {len(outcome.cells)} runs: {verdict}", highlight=False)
    return outcome.passed
