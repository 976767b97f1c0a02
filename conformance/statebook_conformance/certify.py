"""One certification from target to certificate: services, rules, canaries, tables, files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from statebook.errors import InvalidConfiguration
from statebook_conformance.certificate import make_certificate, write_certificate
from statebook_conformance.engine import Engine, RuleResult, TargetUnavailable, select
from statebook_conformance.exits import EXIT_FAILED, EXIT_SUITE, EXIT_UNAVAILABLE, EXIT_USAGE
from statebook_conformance.github import Told, tell_github
from statebook_conformance.profile import profile_of
from statebook_conformance.provenance import provenance_of
from statebook_conformance.report import ProgressView, chapter_table, level_line, provisional_table
from statebook_conformance.reports.parts import parts_of
from statebook_conformance.reports.written import write_reports
from statebook_conformance.rule import Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.services.provide import ALL_NAMES, Provided, provide
from statebook_conformance.services.server import ServiceUnavailable
from statebook_conformance.statuses import Status
from statebook_conformance.target import Target
from statebook_conformance.waivers import Waiver, apply_waivers, check_waivers, unused

LEVEL_OF_EMULATORS: Final = 1
"""The highest level that an emulator can show: it proves nothing about races."""
PATIENCE_WITH_EMULATORS: Final = 5.0
"""By what time-outs of rules are multiplied for an emulator: it shows the shape of an interface, not its speed."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be certified, and how.

    Attributes:
        target: A URL, `module:function`, or the name of a service.
        level: The highest level.
        seed: The seed, or None for a fresh one.
        out: Where certificate and histories go, or None.
        only: Rule or contract ids; empty for all.
        provider: Where the server came from.
        emulated: Whether the server is an emulator.
        canaries: Whether known-bad variants are run along; without them there is no certificate.
        waivers: Failures that are accepted in writing.
        github: Whether a summary and annotations are made for GitHub.
        effort: How many times the work of an ordinary run each rule does.
    """

    target: str
    level: int
    seed: int | None
    out: Path | None
    only: tuple[str, ...]
    provider: str
    emulated: bool
    canaries: bool
    waivers: tuple[Waiver, ...] = ()
    github: bool = False
    effort: int = 1


def certify_target(order: Order, console: Console) -> int:
    """Certify a target, show what came of it, and write the certificate.

    Args:
        order: What and how.
        console: Where it is shown.

    Returns:
        The exit status.

    Raises:
        ValueError: A rule id is unknown, or a waiver is not in order.
    """
    check_waivers(order.waivers, (rule.id for rule in all_rules()), datetime.now(UTC).date())
    try:
        with _provided(order, console) as (target, provided):
            told = _certify(target, provided, order, console)
    except ServiceUnavailable as error:
        told = _nothing_ran(order, console, str(error), EXIT_UNAVAILABLE)
    except TargetUnavailable as error:
        told = _nothing_ran(order, console, str(error), EXIT_UNAVAILABLE if error.missing else EXIT_USAGE)
    except InvalidConfiguration as error:
        told = _nothing_ran(order, console, str(error), EXIT_USAGE)
    if order.github:
        path, annotations = tell_github(told, order.out, os.environ)
        for line in annotations:
            console.out(line, highlight=False)
        console.print(f"summary: {path}", highlight=False, soft_wrap=True)
    return told.code


def _nothing_ran(order: Order, console: Console, reason: str, code: int) -> Told:
    try:
        shown = order.target if order.target in ALL_NAMES else Target(order.target).shown
    except InvalidConfiguration:
        shown = "the target"
    console.print(f"[bold yellow]UNAVAILABLE[/] {escape(shown)}: {escape(reason)}", highlight=False)
    return Told(target=shown, code=code, reason=reason)


@contextmanager
def _provided(order: Order, console: Console) -> Iterator[tuple[str, Provided]]:
    if order.target not in ALL_NAMES:
        yield order.target, Provided(order.target, order.provider, order.emulated)
        return
    with console.status(f"starting {order.target}"):
        context = provide(order.target)
        provided = context.__enter__()
    try:
        yield provided.url, provided
    finally:
        context.__exit__(None, None, None)


def _certify(target: str, provided: Provided, order: Order, console: Console) -> Told:
    started = time.monotonic()
    level = min(order.level, LEVEL_OF_EMULATORS) if provided.emulated else order.level
    rules = select(all_rules(), level=level, only=order.only)
    patience = PATIENCE_WITH_EMULATORS if provided.emulated else 1.0
    engine = Engine(
        target, seed=order.seed, out=order.out, effort=order.effort, patience=patience, server=provided.service
    )
    capabilities = engine.capabilities
    console.print(
        f"[bold]{escape(engine.target.shown)}[/]  durability={capabilities.durability.value} "
        f"({escape(capabilities.durability_setting)})  sharing={capabilities.sharing.value}  "
        f"provider={escape(provided.provider)}  seed={engine.seed}",
        highlight=False,
        soft_wrap=True,
    )
    with ProgressView(console, capabilities.backend, len(rules)) as view:
        ran = engine.run(rules, progress=lambda rule, result: view(rule, _shown(result, order)))
    results = apply_waivers(ran, order.waivers)
    canaries = _run_canaries(console, engine) if order.canaries else {}
    console.print(chapter_table(results))
    _print_not_claimed(console, results)
    apart = provisional_table(results)
    if apart is not None:
        console.print(apart)
    _print_waivers(console, results, order.waivers)
    survived = [name for name, killer in canaries.items() if not killer]
    for name in survived:
        console.print(f"[bold red]canary {name} survived[/]: the suite does not bite on this backend", highlight=False)
    parts = None
    if order.canaries:
        certificate = make_certificate(
            shown_target=engine.target.shown,
            capabilities=capabilities,
            rules=rules,
            results=results,
            attempted=level,
            seed=engine.seed,
            canaries=canaries,
            provider=provided.provider,
            emulated=provided.emulated,
            issued_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.monotonic() - started,
            profile=profile_of(all_rules()),
            waivers=order.waivers,
            provenance=provenance_of(target),
            effort=order.effort,
        )
        parts = parts_of(certificate)
        _show_level(console, capabilities.backend, certificate, rules)
        if order.out is not None:
            path = write_certificate(certificate, order.out)
            shown = write_reports(certificate, rules, order.out)
            console.print(f"certificate: {path}\nreport: {shown}", highlight=False, soft_wrap=True)
    code = _exit_code(results, survived)
    return Told(target=engine.target.shown, code=code, results=results, parts=parts)


def _shown(result: RuleResult | None, order: Order) -> RuleResult | None:
    """A result as it is shown while rules run: what is waived is shown as waived."""
    return None if result is None else apply_waivers((result,), order.waivers)[0]


def _show_level(console: Console, backend: str, certificate: Mapping[str, object], rules: Sequence[Rule]) -> None:
    console.print(
        f"[bold]{backend}[/]: {level_line(certificate)} ({len(rules)} rules)", highlight=False, soft_wrap=True
    )
    for note in parts_of(certificate).notes:
        console.print(f"[dim]{note}[/]", highlight=False, soft_wrap=True)


def _exit_code(results: Sequence[RuleResult], survived: Sequence[str]) -> int:
    counted = {result.status for result in results if not result.provisional}
    bad = {status for status in counted if not status.grants and status is not Status.WAIVED}
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
    table.add_column("rule", no_wrap=True)
    table.add_column("why")
    for result in rows:
        table.add_row(result.rule, result.reason)
    console.print(table)


def _print_waivers(console: Console, results: Sequence[RuleResult], waivers: Sequence[Waiver]) -> None:
    waived = [result for result in results if result.status is Status.WAIVED]
    if waived:
        table = Table(show_edge=False, pad_edge=False, header_style="bold", title="waived", title_justify="left")
        table.add_column("rule", no_wrap=True)
        table.add_column("why")
        for result in waived:
            table.add_row(result.rule, escape(result.reason))
        console.print(table)
        console.print("a waiver raises no level: it is what it would be without", highlight=False)
    for waiver, status in unused(results, waivers):
        console.print(f"[yellow]the waiver of {waiver.rule} was not needed[/]: {status}", highlight=False)


def _run_canaries(console: Console, engine: Engine) -> dict[str, str]:
    from statebook_conformance.mutants.selfcheck import run_canaries

    with console.status("known-bad variants of this backend, which must fail"):
        return run_canaries(engine)
