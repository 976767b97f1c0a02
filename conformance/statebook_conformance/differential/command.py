"""The command `statebook conformance differential`: one random history on several targets and on the model."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from statebook.errors import BackendUnavailable, InvalidConfiguration, MissingDriver
from statebook_conformance.differential import steps as do
from statebook_conformance.differential.make import make_history
from statebook_conformance.differential.run import SHRINK_S, Difference, Shrunk, differing, play, shrink
from statebook_conformance.differential.store import TIMEOUT_S
from statebook_conformance.endings import end_in_order
from statebook_conformance.exits import EXIT_FAILED, EXIT_UNAVAILABLE, EXIT_USAGE
from statebook_conformance.services.provide import ALL_NAMES, provide
from statebook_conformance.services.server import ServiceUnavailable
from statebook_conformance.target import Target

STEPS_DEFAULT: Final = 400
"""How many random steps a history has where nothing else is asked for."""

_SHOWN: Final = 400


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be compared, and how.

    Attributes:
        targets: URLs, `module:function`, or names of services.
        seed: The seed.
        steps: How many random steps.
        histories: How many histories, each with the next seed.
        out: Where a history that shows a difference is kept, or None.
        replay: A history to repeat instead, or None.
        timeout_s: How long a step may take, in seconds.
        shrink_s: How long a history is shortened, in seconds.
    """

    targets: tuple[str, ...]
    seed: int
    steps: int
    histories: int
    out: Path | None
    replay: Path | None
    timeout_s: float
    shrink_s: float


@click.command("differential", short_help="One random history on several backends and a model.")
@click.argument("targets", nargs=-1, required=True)
@click.option("--seed", type=click.IntRange(0), help="Seed of the first history; fresh by default.")
@click.option("--steps", type=click.IntRange(1), default=STEPS_DEFAULT, show_default=True, help="Steps of a history.")
@click.option("--histories", type=click.IntRange(1), default=1, show_default=True, help="How many, with seeds in turn.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Keep a history that differs here.")
@click.option(
    "--replay",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Repeat a kept history instead of making one.",
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1), default=TIMEOUT_S, show_default=True)
@click.option("--shrink-seconds", "shrink_s", type=click.FloatRange(0), default=SHRINK_S, show_default=True)
def differential(
    *,
    targets: tuple[str, ...],
    seed: int | None,
    steps: int,
    histories: int,
    out: Path | None,
    replay: Path | None,
    timeout_s: float,
    shrink_s: float,
) -> None:
    """Play one random history on each of TARGETS and on the model, and compare every answer.

    A target is a URL, module:function, or the name of a service, as for `certify`. Each gets a fresh namespace, which
    is removed afterwards. The first answer that is not the model's ends the history; it is shortened until no step can
    be left out, and kept as JSON lines under --out. Nonces, ids of journals and the size of version numbers are free,
    and are compared by their order; everything else must be the same.

    Exit status: 0 all answers are the same, 1 one differs, 2 wrong command or target, 3 a service or driver is missing.
    """
    sys.path.insert(0, str(Path.cwd()))
    end_in_order()
    console = Console()
    wanted = Wanted(
        targets=targets,
        seed=secrets.randbelow(1 << 31) if seed is None else seed,
        steps=steps,
        histories=histories,
        out=out,
        replay=replay,
        timeout_s=timeout_s,
        shrink_s=shrink_s,
    )
    try:
        code = _run(wanted, console)
    except (ServiceUnavailable, MissingDriver, BackendUnavailable) as error:
        console.print(f"[bold yellow]UNAVAILABLE[/] {escape(str(error))}", highlight=False)
        code = EXIT_UNAVAILABLE
    except (InvalidConfiguration, do.HistoryFileError) as error:
        console.print(f"[bold red]{escape(str(error))}[/]", highlight=False)
        code = EXIT_USAGE
    raise click.exceptions.Exit(code)


def _run(wanted: Wanted, console: Console) -> int:
    with ExitStack() as stack:
        targets = []
        for name in wanted.targets:
            if name in ALL_NAMES:
                with console.status(f"starting {name}"):
                    targets.append(Target(stack.enter_context(provide(name)).url))
            else:
                targets.append(Target(name))
        for seed, history in _histories(wanted):
            with _bar(console, f"seed {seed}", len(history)) as advance:
                played = play(history, targets, timeout_s=wanted.timeout_s, progress=advance)
            if played.differences:
                for difference in played.differences:
                    _report(wanted, seed, history, difference, targets[difference.position], console)
                return EXIT_FAILED
            console.print(
                f"seed {seed}: [bold green]the same[/]: {played.compared:,} answers of {len(targets)} targets to "
                f"{len(history)} steps; {played.skipped} skipped",
                highlight=False,
            )
    return 0


def _histories(wanted: Wanted) -> Iterator[tuple[int, tuple[do.Step, ...]]]:
    if wanted.replay is not None:
        origin, steps = do.load_history(wanted.replay)
        yield origin.seed, steps
        return
    for seed in range(wanted.seed, wanted.seed + wanted.histories):
        yield seed, make_history(seed, wanted.steps)


@contextmanager
def _bar(console: Console, title: str, total: int) -> Iterator[Callable[[], None]]:
    bar = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


def _report(
    wanted: Wanted,
    seed: int,
    history: Sequence[do.Step],
    difference: Difference,
    target: Target,
    console: Console,
) -> None:
    say = console.print
    say(
        f"[bold red]DIFFERS[/] {escape(difference.target)} at step {difference.step.number} of seed {seed}",
        highlight=False,
        soft_wrap=True,
    )
    with console.status("shortening the history") as status:
        shorter = shrink(
            history,
            target,
            difference,
            seconds=wanted.shrink_s,
            timeout_s=wanted.timeout_s,
            progress=lambda left: status.update(f"shortening the history: {left} steps are left"),
        )
    _print_shrunk(shorter, console)
    if wanted.out is None:
        return
    name = "".join(c if c.isalnum() else "-" for c in target.shown)[:60].strip("-")
    path = wanted.out / f"differential-{seed}-{difference.position}-{name}.jsonl"
    do.save_history(path, _origin(shorter, seed, len(history)), shorter.steps)
    say(f"kept: {path}", highlight=False, soft_wrap=True)
    say(
        f"repeat it with: statebook conformance differential --replay {path} {escape(shlex.quote(target.shown))}",
        highlight=False,
        soft_wrap=True,
    )


def _origin(shorter: Shrunk, seed: int, made: int) -> do.Origin:
    return do.Origin(
        statebook_differential=do.HISTORY_VERSION,
        seed=seed,
        made=made,
        target=shorter.difference.target,
        step=shorter.difference.step.number,
        expected=shorter.difference.expected,
        found=shorter.difference.found,
    )


def _print_shrunk(shorter: Shrunk, console: Console) -> None:
    end = "none can be left out" if shorter.finished else "time was up"
    console.print(f"{len(shorter.steps)} steps after {shorter.trials} trials, {end}:", highlight=False)
    for step in shorter.steps:
        console.print(f"  {escape(_cut(msgspec.json.encode(step).decode()))}", highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(_cut(differing(shorter.difference)))}[/]", highlight=False, soft_wrap=True)
    console.print(f"the model:  {escape(_cut(shorter.difference.expected))}", highlight=False, soft_wrap=True)
    console.print(f"the target: {escape(_cut(shorter.difference.found))}", highlight=False, soft_wrap=True)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
