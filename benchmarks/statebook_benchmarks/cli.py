"""The command `statebook bench`: figures beside the raw engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from statebook import StoreUrl
from statebook.ids import new_nonce

EXIT_INVALID: Final = 1
"""A trial lost or doubled something, or a store failed."""


@click.group("bench")
def group() -> None:
    r"""Measure a backend, compare runs, and size lanes and pools.

    \b
    statebook bench figures URL...       appends, groups, reads beside the raw engine in the same run
    """


@contextmanager
def targets(urls: Sequence[str], services: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Give the URLs, and those of services that are started for as long as they are measured.

    Args:
        urls: Store URLs.
        services: Names of services that the conformance suite can start.

    Yields:
        All URLs.

    Raises:
        BadParameter: A URL is none, or a service is not known.
    """
    for url in urls:
        StoreUrl.parse(url)
    with ExitStack() as stack:
        started = []
        for service in services:
            provide = import_module("statebook_conformance.services.provide").provide
            try:
                started.append(str(stack.enter_context(provide(service)).url))
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint="--service") from error
        yield (*urls, *started)


def shown_command(urls: Sequence[str]) -> str:
    """The command that repeats this run, without secrets."""
    words = [StoreUrl.parse(word).redacted() if word in urls else word for word in sys.argv[1:]]
    return " ".join(("statebook", *(f"'{word}'" if set(word) & set(" ?&*") else word for word in words)))


def fresh_name() -> str:
    """A fresh name for a namespace, a table or a key."""
    return f"bench-{new_nonce()[:12]}"


@group.command()
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--service", "services", multiple=True, metavar="NAME", help="Start this server, and measure it too.")
@click.option("--case", "cases", multiple=True, help="Only this case; repeatable: append, group, writers, read, load.")
@click.option("--rounds", type=click.IntRange(3, 1_000), default=15, show_default=True, help="Interleaved rounds.")
@click.option("--round-ms", type=click.IntRange(5, 60_000), default=150, show_default=True, help="Length of a round.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the results here.")
def figures(
    *,
    urls: tuple[str, ...],
    services: tuple[str, ...],
    cases: tuple[str, ...],
    rounds: int,
    round_ms: int,
    json_file: Path | None,
) -> None:
    """Print the figures of each URL beside the raw engine in the same run: time an operation, and the ratio.

    Exits with 1 where a journal that was read back does not hold exactly what was acknowledged.
    """
    from statebook_benchmarks.figures import CASES, Effort
    from statebook_benchmarks.figures_table import print_figures, run_figures

    known = tuple(case.name for case in CASES)
    wrong = [case for case in cases if case not in known]
    if wrong:
        raise click.BadParameter(f"there is no case {wrong[0]!r}; there are {', '.join(known)}", param_hint="--case")
    if not urls and not services:
        raise click.UsageError("give at least one URL or --service")
    console = Console()
    with targets(urls, services) as all_urls:
        result = run_figures(
            all_urls,
            cases or known,
            Effort(rounds, round_ms / 1_000),
            command=shown_command(urls),
            fresh_name=fresh_name,
            console=console,
        )
    print_figures(console, result)
    if json_file is not None:
        result.write(json_file)
    if result.findings:
        raise click.exceptions.Exit(EXIT_INVALID)
