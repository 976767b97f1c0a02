"""The command `statebook conformance`: certify, list, explain, verify, replay, self-check."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from statebook_conformance.certificate import (
    CertificateError,
    make_certificate,
    verify_certificate,
    write_certificate,
)
from statebook_conformance.engine import Engine, RuleResult, TargetUnavailable, select
from statebook_conformance.report import ProgressView, chapter_table, level_line
from statebook_conformance.rule import LEVELS, Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status

EXIT_FAILED: Final = 1
"""A rule failed."""
EXIT_USAGE: Final = 2
"""The command or the target is wrong."""
EXIT_UNAVAILABLE: Final = 3
"""A service or driver is missing."""
EXIT_SUITE: Final = 4
"""The suite itself broke."""
LEVEL_DEFAULT: Final = 2
"""The level that is attempted where none is asked for."""


class _UrlGroup(click.Group):
    """A group whose first word may be a target: then it means `certify`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and ":" in args[0]:
            return super().resolve_command(ctx, ["certify", *args])
        return super().resolve_command(ctx, args)


@click.group("conformance", cls=_UrlGroup)
def group() -> None:
    r"""Certify a backend against the storage contract.

    \b
    statebook conformance URL            certify (the same as `certify URL`)
    statebook conformance list           the rules
    statebook conformance explain RULE   what a rule promises, and what usually breaks it
    statebook conformance verify FILE    check a certificate
    statebook conformance replay FILE    judge a saved history again, without a backend
    statebook conformance self-check     show that each rule can fail
    """


@group.command()
@click.argument("target")
@click.option("--level", type=click.IntRange(0, len(LEVELS) - 1), default=LEVEL_DEFAULT, show_default=True)
@click.option("--seed", type=click.IntRange(0), help="Seed of everything random; fresh by default.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write certificate and histories here.")
@click.option("--rule", "only", multiple=True, help="Only this rule or contract id; repeatable. No certificate.")
@click.option("--provider", default="given by URL", show_default=True, help="Where the server came from.")
@click.option("--emulated", is_flag=True, help="The server is an emulator: no concurrency level is granted.")
@click.option("--no-canaries", is_flag=True, help="Do not run known-bad variants along. No certificate.")
def certify(
    *,
    target: str,
    level: int,
    seed: int | None,
    out: Path | None,
    only: tuple[str, ...],
    provider: str,
    emulated: bool,
    no_canaries: bool,
) -> None:
    """Certify TARGET: a store URL, or module:function of a function that gives a backend.

    Exit status: 0 all passed, 1 a rule failed, 2 wrong command or target, 3 a service or driver is missing, 4 the suite
    itself broke.
    """
    console = Console()
    started = time.monotonic()
    sys.path.insert(0, str(Path.cwd()))
    try:
        rules = select(all_rules(), level=level, only=only)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    engine = Engine(target, seed=seed, out=out)
    try:
        capabilities = engine.capabilities
        console.print(
            f"[bold]{escape(engine.target.shown)}[/]  durability={capabilities.durability.value} "
            f"({escape(capabilities.durability_setting)})  sharing={capabilities.sharing.value}  seed={engine.seed}",
            highlight=False,
            soft_wrap=True,
        )
        with ProgressView(console, capabilities.backend, len(rules)) as view:
            results = engine.run(rules, progress=view)
        canaries = {} if only or no_canaries else _run_canaries(console, engine)
    except TargetUnavailable as error:
        console.print(f"[bold yellow]UNAVAILABLE[/] {escape(str(error))}", highlight=False)
        raise click.exceptions.Exit(EXIT_UNAVAILABLE if error.missing else EXIT_USAGE) from error
    console.print(chapter_table(results))
    _print_not_claimed(console, results)
    survived = [name for name, killer in canaries.items() if not killer]
    for name in survived:
        console.print(f"[bold red]canary {name} survived[/]: the suite does not bite on this backend", highlight=False)
    if not only and not no_canaries:
        certificate = make_certificate(
            shown_target=engine.target.shown,
            capabilities=capabilities,
            rules=rules,
            results=results,
            attempted=level,
            seed=engine.seed,
            canaries=canaries,
            provider=provider,
            emulated=emulated,
            issued_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.monotonic() - started,
        )
        console.print(f"[bold]{capabilities.backend}[/]: {level_line(certificate)}", highlight=False)
        if out is not None:
            console.print(f"certificate: {write_certificate(certificate, out)}", highlight=False, soft_wrap=True)
    raise click.exceptions.Exit(_exit_code(results, survived))


def _exit_code(results: Sequence[RuleResult], survived: Sequence[str]) -> int:
    bad = {result.status for result in results if not result.status.grants and not result.provisional}
    if bad & {Status.ERROR, Status.VACUOUS} or survived:
        return EXIT_SUITE
    if bad - {Status.UNAVAILABLE}:
        return EXIT_FAILED
    return EXIT_UNAVAILABLE if bad else 0


def _print_not_claimed(console: Console, results: Sequence[RuleResult]) -> None:
    rows = [result for result in results if result.status is Status.NOT_CLAIMED]
    if not rows:
        return
    table = Table(show_edge=False, pad_edge=False, header_style="bold", title="not claimed", title_justify="left")
    table.add_column("rule")
    table.add_column("why")
    for result in rows:
        table.add_row(result.rule, result.reason)
    console.print(table)


def _run_canaries(console: Console, engine: Engine) -> dict[str, str]:
    from statebook_conformance.mutants.selfcheck import run_canaries

    with console.status("known-bad variants of this backend, which must fail"):
        return run_canaries(engine)


@group.command("list")
@click.option("--level", type=click.IntRange(0, len(LEVELS) - 1), default=len(LEVELS) - 1)
def list_rules(level: int) -> None:
    """List the rules with their level, promise and mutants."""
    console = Console()
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for column in ("rule", "level", "promise", "kills"):
        table.add_column(column, overflow="fold")
    for rule in select(all_rules(), level=level):
        table.add_row(rule.id, str(rule.level), escape(rule.title), ", ".join(rule.kills))
    console.print(table)


@group.command()
@click.argument("rule_id", metavar="RULE")
def explain(rule_id: str) -> None:
    """Explain RULE: its promise, its level, what it needs, what usually breaks it."""
    console = Console()
    try:
        chosen = select(all_rules(), level=len(LEVELS) - 1, only=(rule_id,))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="RULE") from error
    for rule in chosen:
        _explain(console, rule)


def _explain(console: Console, rule: Rule) -> None:
    console.print(f"[bold]{rule.id}[/]  level {rule.level} ({LEVELS[rule.level]})", highlight=False)
    console.print(escape(rule.text), highlight=False)
    needs = ", ".join(f"{type(need).__name__.lower()}={need.value}" for need in rule.needs)
    floor = ", ".join(f"{name} >= {least}" for name, least in rule.floor.items())
    for name, value in (
        ("needs", needs),
        ("evidence", floor),
        ("usual cause of a failure", rule.hint),
        ("kills the mutants", ", ".join(rule.kills)),
    ):
        if value:
            console.print(f"  {name}: {escape(value)}", highlight=False)
    console.print()


@group.command()
@click.argument("certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def verify(certificate: Path) -> None:
    """Verify CERTIFICATE: its digest, its rule set, and that its level follows from its rules."""
    console = Console()
    try:
        content = verify_certificate(certificate, all_rules())
    except CertificateError as error:
        console.print(f"[bold red]does not hold[/]: {escape(str(error))}", highlight=False)
        raise click.exceptions.Exit(EXIT_FAILED) from error
    console.print(f"[bold]holds[/]: {level_line(content)}", highlight=False)


@group.command()
@click.argument("history", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay(history: Path) -> None:
    """Replay HISTORY: give the verdict on a saved history again, without a backend."""
    from statebook_conformance.checkers.history import HistoryError, load
    from statebook_conformance.checkers.registry import check
    from statebook_conformance.checkers.verdict import Answer

    console = Console()
    try:
        loaded = load(history)
        verdict = check(loaded.header.checker, loaded)
    except (HistoryError, ValueError) as error:
        console.print(f"[bold red]{escape(str(error))}[/]", highlight=False)
        raise click.exceptions.Exit(EXIT_USAGE) from error
    console.print(f"[bold]{verdict.answer.name}[/] by {loaded.header.checker}", highlight=False)
    for fact in verdict.facts:
        console.print(f"  {fact.promise}: {escape(fact.sentence)} (operations {fact.operations})", highlight=False)
    if verdict.reason:
        console.print(f"  {escape(verdict.reason)}", highlight=False)
    raise click.exceptions.Exit(EXIT_FAILED if verdict.answer is Answer.NO else 0)


@group.command("self-check")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--mutant", "only", multiple=True, help="Only this mutant; repeatable.")
def self_check(seed: int, only: tuple[str, ...]) -> None:
    """Show that each rule can fail: run the known-bad backends and print the kill matrix."""
    from statebook_conformance.mutants.selfcheck import print_matrix, run_self_check

    console = Console()
    outcome = run_self_check(seed=seed, only=only, console=console)
    raise click.exceptions.Exit(0 if print_matrix(console, outcome) else EXIT_SUITE)
