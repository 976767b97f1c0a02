"""The command `statebook conformance`: certify, verify, compare, differential, replay, matrix, and more."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from statebook_conformance.certificate import CertificateError, profile_note, read_certificate, verify_certificate
from statebook_conformance.differential.command import differential
from statebook_conformance.endings import end_in_order
from statebook_conformance.engine import select
from statebook_conformance.exits import EXIT_FAILED, EXIT_SUITE, EXIT_UNAVAILABLE, EXIT_USAGE
from statebook_conformance.fixtures_command import fixtures
from statebook_conformance.profile import frozen_profiles, profile_of, too_early, write_profile
from statebook_conformance.report import level_line
from statebook_conformance.reports.parts import provisional_sentence
from statebook_conformance.rule import LEVELS, Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.services.provide import ALL_NAMES
from statebook_conformance.waivers import Waiver, WaiverError, make_waiver, read_waivers

LEVEL_DEFAULT: Final = 2
"""The level that is attempted where none is asked for."""


class _UrlGroup(click.Group):
    """A group whose first word may be a target: then it means `certify`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and (":" in args[0] or args[0] in ALL_NAMES):
            return super().resolve_command(ctx, ["certify", *args])
        return super().resolve_command(ctx, args)


_HELP: Final = """Certify a backend against the storage contract.

`statebook conformance URL` is the same as `statebook conformance certify URL`, and so is the name of a service in the
place of the URL.

\b
statebook conformance sqlite:////tmp/x.db --out certificate/
statebook conformance redis --level 3
statebook conformance compare old/certificate.json new/certificate.json
statebook conformance differential memory://a sqlite:////tmp/x.db
"""


@click.group("conformance", cls=_UrlGroup, help=_HELP)
def group() -> None:
    """Certify a backend against the storage contract."""


@group.command(short_help="Certify a backend: a URL, module:function, or a service.")
@click.argument("target")
@click.option("--level", type=click.IntRange(0, len(LEVELS) - 1), default=LEVEL_DEFAULT, show_default=True)
@click.option("--seed", type=click.IntRange(0), help="Seed of everything random; fresh by default.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write certificate and histories here.")
@click.option("--rule", "only", multiple=True, help="Only this rule or contract id; repeatable. No certificate.")
@click.option("--provider", help="Where the server came from, for the certificate.")
@click.option("--emulated", is_flag=True, help="The server is an emulator: no concurrency level is granted.")
@click.option("--no-canaries", is_flag=True, help="Do not run known-bad variants along. No certificate.")
@click.option("--waive", multiple=True, metavar="RULE", help="Accept that this rule fails; needs --reason and --until.")
@click.option("--reason", "reasons", multiple=True, help="Why, for each --waive in order.")
@click.option("--until", multiple=True, metavar="YYYY-MM-DD", help="The last day on which it holds, for each --waive.")
@click.option(
    "--waivers",
    "waiver_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file of waivers: [[waiver]] with rule, reason, expires.",
)
@click.option("--github", is_flag=True, help="Write a job summary and annotations for GitHub; elsewhere the same file.")
@click.option(
    "--effort",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Do so many times the work: more kills, races and histories.",
)
def certify(
    *,
    target: str,
    level: int,
    seed: int | None,
    out: Path | None,
    only: tuple[str, ...],
    provider: str | None,
    emulated: bool,
    no_canaries: bool,
    waive: tuple[str, ...],
    reasons: tuple[str, ...],
    until: tuple[str, ...],
    waiver_file: Path | None,
    github: bool,
    effort: int,
) -> None:
    """Certify TARGET: a store URL, module:function of a function that gives a backend, or the name of a service.

    A service (redis, redis-sentinel, redis-cluster, mysql, s3, moto; optional redis-new, mysql-oracle, redis-container)
    is taken from STATEBOOK_TEST_<NAME>_URL, else it is started here on 127.0.0.1 with a directory of its own, and ended
    afterwards.

    A waived rule that fails is reported as WAIVED and fails no run, but raises no level either.

    Exit status: 0 all passed or waived, 1 a rule failed, 2 wrong command or target, 3 a service or driver is missing,
    4 the suite itself broke.
    """
    from statebook_conformance.certify import Order, certify_target

    end_in_order()
    sys.path.insert(0, str(Path.cwd()))
    try:
        order = Order(
            target=target,
            level=level,
            seed=seed,
            out=out,
            only=only,
            provider=provider or "given by URL",
            emulated=emulated,
            canaries=not no_canaries and not only,
            waivers=_waivers(waive, reasons, until, waiver_file),
            github=github,
            effort=effort,
        )
        code = certify_target(order, Console())
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    raise click.exceptions.Exit(code)


def _waivers(
    rules: Sequence[str], reasons: Sequence[str], until: Sequence[str], file: Path | None
) -> tuple[Waiver, ...]:
    if not len(rules) == len(reasons) == len(until):
        raise WaiverError(
            f"each --waive needs one --reason and one --until: there are {len(rules)}, {len(reasons)} and {len(until)}"
        )
    named = tuple(make_waiver(*words) for words in zip(rules, reasons, until, strict=True))
    return named if file is None else (*read_waivers(file), *named)


@group.command(short_help="Which servers can be had here, and what to install.")
def services() -> None:
    """List the services that can be named as a target: where each would come from here, or what to install.

    Exit status 0 whatever is missing.
    """
    from statebook_conformance.services.overview import overview

    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("service", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("from, or what to install", overflow="fold")
    for found in overview():
        name = f"{found.name} (optional)" if found.optional else found.name
        table.add_row(name, "yes" if found.there else "no", escape(found.source))
    Console().print(table)


@group.command("list", short_help="The rules: level, promise, mutants.")
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


@group.command(short_help="What a rule promises, and what usually breaks it.")
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


@group.command(short_help="Check a certificate.")
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
    console.print(f"  made with {escape(profile_note(content, all_rules()))}", highlight=False, soft_wrap=True)


@group.command("compare", short_help="What got better or worse from one certificate to the next.")
@click.argument("old", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("new", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def compare_certificates(old: Path, new: Path, *, as_json: bool) -> None:
    """Compare two certificates, OLD and NEW: what got worse, got better, appeared or vanished.

    Both are checked first: digest, and level derived from the rules. They may be of different releases: a rule that
    only one rule set has is shown as such.

    Exit status: 0 nothing got worse, 1 something did, 2 a certificate does not hold.
    """
    from statebook_conformance.compare import compare, comparison_json, got_worse, print_comparison

    try:
        first, second = read_certificate(old), read_certificate(new)
    except CertificateError as error:
        raise click.UsageError(f"a certificate does not hold: {error}") from error
    changes = compare(first, second)
    if as_json:
        click.echo(comparison_json(first, second, changes))
    else:
        print_comparison(Console(), changes)
    raise click.exceptions.Exit(EXIT_FAILED if got_worse(changes) else 0)


@group.command("profile", short_help="The exact rule set of this release, and those that are known.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Freeze it: write it to this file.")
@click.option("--name", help="The name to freeze it under, such as 2026.1.")
def profile_command(*, save: Path | None, name: str | None) -> None:
    """Show the profile of this release, which names its exact rule set by digest, and the frozen ones."""
    console = Console()
    current = profile_of(all_rules())
    if (save is None) is not (name is None):
        raise click.UsageError("--save and --name belong together")
    if save is not None and name is not None:
        write_profile(msgspec.structs.replace(current, name=name), save)
        console.print(f"{save}: {name}, digest {current.digest}", highlight=False, soft_wrap=True)
        return
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for column in ("profile", "statebook", "rules by level", "provisional", "digest"):
        table.add_column(column, overflow="fold")
    frozen = frozen_profiles()
    for shown in (current, *(known for known in frozen if known.digest != current.digest)):
        table.add_row(
            f"{shown.name} (this release)" if shown is current else shown.name,
            shown.release,
            ", ".join(f"{level}: {count}" for level, count in enumerate(shown.counts)),
            str(sum(rule.provisional for rule in shown.rules)),
            shown.digest,
        )
    console.print(table)
    for level in current.provisional_levels:
        console.print(provisional_sentence(level), highlight=False)
    for rule_id in too_early(current, frozen):
        console.print(f"[yellow]{rule_id} is new and must be provisional for one minor release[/]", highlight=False)


@group.command(short_help="What several certificates grant, side by side.")
@click.argument("certificates", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the matrix as a page too.")
def matrix(certificates: tuple[Path, ...], html: Path | None) -> None:
    """Print what several CERTIFICATES grant, side by side, as a Markdown table."""
    from statebook_conformance.reports.matrix import matrix_markdown, matrix_page
    from statebook_conformance.reports.parts import parts_of

    try:
        parts = [parts_of(verify_certificate(path, all_rules())) for path in certificates]
    except CertificateError as error:
        raise click.ClickException(str(error)) from error
    click.echo(matrix_markdown(parts), nl=False)
    if html is not None:
        html.write_text(matrix_page(parts), encoding="utf-8")


@group.command(short_help="Judge a saved history again, without a backend.")
@click.argument("history", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay(history: Path) -> None:
    """Replay HISTORY: give the verdict on a saved history again, without a backend."""
    from statebook_conformance.checkers.history import HistoryError, load
    from statebook_conformance.checkers.registry import judge
    from statebook_conformance.checkers.verdict import Answer

    console = Console()
    try:
        loaded = load(history)
        verdict = judge(loaded)
    except (HistoryError, ValueError) as error:
        console.print(f"[bold red]{escape(str(error))}[/]", highlight=False)
        raise click.exceptions.Exit(EXIT_USAGE) from error
    console.print(f"[bold]{verdict.answer.name}[/] by {loaded.header.checker}", highlight=False)
    for fact in verdict.facts:
        console.print(f"  {fact.promise}: {escape(fact.sentence)} (operations {fact.operations})", highlight=False)
    if verdict.reason:
        console.print(f"  {escape(verdict.reason)}", highlight=False)
    raise click.exceptions.Exit(EXIT_FAILED if verdict.answer is Answer.NO else 0)


@group.command("self-check", short_help="Show that each rule can fail: the kill matrix.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--mutant", "only", multiple=True, help="Only this mutant; repeatable.")
def self_check(seed: int, only: tuple[str, ...]) -> None:
    """Show that each rule can fail: run the known-bad backends and print the kill matrix.

    Some are real backends with one line changed, and need the servers that `services` lists.

    Exit status: 0 all killed, 2 wrong command, 3 all killed that could run, and a service is missing, 4 one survived.
    """
    from statebook_conformance.mutants.selfcheck import print_matrix, run_self_check

    end_in_order()
    console = Console()
    try:
        outcome = run_self_check(seed=seed, only=only, console=console)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--mutant") from error
    passed = print_matrix(console, outcome)
    raise click.exceptions.Exit((EXIT_UNAVAILABLE if outcome.missing else 0) if passed else EXIT_SUITE)


group.add_command(fixtures)
group.add_command(differential)
