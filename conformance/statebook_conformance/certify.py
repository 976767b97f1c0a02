"""One certification from target to certificate: services, rules, canaries, tables, files."""

from __future__ import annotations

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

from statebook_conformance.certificate import make_certificate, write_certificate
from statebook_conformance.engine import Engine, RuleResult, TargetUnavailable, select
from statebook_conformance.exits import EXIT_FAILED, EXIT_SUITE, EXIT_UNAVAILABLE, EXIT_USAGE
from statebook_conformance.report import ProgressView, chapter_table, level_line
from statebook_conformance.reports.written import write_reports
from statebook_conformance.rule import Rule
from statebook_conformance.rules import all_rules
from statebook_conformance.services.provide import ALL_NAMES, Provided, provide
from statebook_conformance.services.server import ServiceUnavailable
from statebook_conformance.statuses import Status

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
    """

    target: str
    level: int
    seed: int | None
    out: Path | None
    only: tuple[str, ...]
    provider: str
    emulated: bool
    canaries: bool


def certify_target(order: Order, console: Console) -> int:
    """Certify a target, show what came of it, and write the certificate.

    Args:
        order: What and how.
        console: Where it is shown.

    Returns:
        The exit status.

    Raises:
        ValueError: A rule id is unknown.
    """
    try:
        with _provided(order, console) as (target, provided):
            return _certify(target, provided, order, console)
    except ServiceUnavailable as error:
        console.print(f"[bold yellow]UNAVAILABLE[/] {order.target}: {escape(str(error))}", highlight=False)
        return EXIT_UNAVAILABLE
    except TargetUnavailable as error:
        console.print(f"[bold yellow]UNAVAILABLE[/] {escape(str(error))}", highlight=False)
        return EXIT_UNAVAILABLE if error.missing else EXIT_USAGE


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


def _certify(target: str, provided: Provided, order: Order, console: Console) -> int:
    started = time.monotonic()
    level = min(order.level, LEVEL_OF_EMULATORS) if provided.emulated else order.level
    rules = select(all_rules(), level=level, only=order.only)
    patience = PATIENCE_WITH_EMULATORS if provided.emulated else 1.0
    engine = Engine(target, seed=order.seed, out=order.out, patience=patience, server=provided.service)
    capabilities = engine.capabilities
    console.print(
        f"[bold]{escape(engine.target.shown)}[/]  durability={capabilities.durability.value} "
        f"({escape(capabilities.durability_setting)})  sharing={capabilities.sharing.value}  "
        f"provider={escape(provided.provider)}  seed={engine.seed}",
        highlight=False,
        soft_wrap=True,
    )
    with ProgressView(console, capabilities.backend, len(rules)) as view:
        results = engine.run(rules, progress=view)
    canaries = _run_canaries(console, engine) if order.canaries else {}
    console.print(chapter_table(results))
    _print_not_claimed(console, results)
    survived = [name for name, killer in canaries.items() if not killer]
    for name in survived:
        console.print(f"[bold red]canary {name} survived[/]: the suite does not bite on this backend", highlight=False)
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
        )
        _show_level(console, capabilities.backend, certificate, rules)
        if order.out is not None:
            path = write_certificate(certificate, order.out)
            shown = write_reports(certificate, rules, order.out)
            console.print(f"certificate: {path}\nreport: {shown}", highlight=False, soft_wrap=True)
    return _exit_code(results, survived)


def _show_level(console: Console, backend: str, certificate: Mapping[str, object], rules: Sequence[Rule]) -> None:
    console.print(
        f"[bold]{backend}[/]: {level_line(certificate)} ({len(rules)} rules)", highlight=False, soft_wrap=True
    )


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
    table.add_column("rule", no_wrap=True)
    table.add_column("why")
    for result in rows:
        table.add_row(result.rule, result.reason)
    console.print(table)


def _run_canaries(console: Console, engine: Engine) -> dict[str, str]:
    from statebook_conformance.mutants.selfcheck import run_canaries

    with console.status("known-bad variants of this backend, which must fail"):
        return run_canaries(engine)
