"""The command `statebook bench`: figures beside the raw engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
from rich.console import Console

from statebook import StoreUrl
from statebook.ids import new_nonce

if TYPE_CHECKING:
    from statebook_benchmarks.results import RunResult

T = TypeVar("T")

EXIT_INVALID: Final = 1
"""A trial lost or doubled something, or a store failed."""
SLO_DEFAULT: Final = "p99=50ms"
"""The objective where none is given."""
WORKLOAD_NAMES: Final = (
    "append",
    "turn",
    "stream",
    "cas_hot",
    "cas_spread",
    "resume",
    "export",
    "takeover",
    "soak",
)
"""The workloads, without importing them."""


@click.group("bench")
def group() -> None:
    r"""Measure a backend, compare runs, and size lanes and pools.

    \b
    statebook bench figures URL...       appends, groups, reads beside the raw engine in the same run
    statebook bench run URL              one workload: its capacity, a rate, or a sweep of parameters
    statebook bench quick URL...         every workload for a moment: valid, not fast
    statebook bench peers                beside what people use today, in one run
    statebook bench compare A B          better, worse, same or unknown, with intervals
    statebook bench report FILE...       one page with the plots
    statebook bench advise FILE...       lanes, queue, batch and pool sizes
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
@click.option("--case", "cases", multiple=True, help="Only this: append, group, writers, aio, read, page, turns, load.")
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


@group.command()
@click.argument("url", required=False)
@click.option("--service", metavar="NAME", help="Start this server, and measure it.")
@click.option("--workload", type=click.Choice(WORKLOAD_NAMES), default="append", show_default=True)
@click.option("--slo", metavar="P=TIME", help="Search for the capacity at this objective, such as p99=20ms.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="One open-loop trial at so many operations/s.")
@click.option("--closed", is_flag=True, help="A closed loop: each lane waits for its answer. Labelled as such.")
@click.option("--sweep", "sweeps", multiple=True, metavar="NAME=A,B,…", help="Sweep a parameter; repeatable.")
@click.option("--lanes", type=int, default=8, show_default=True, help="Workers of the generator.")
@click.option("--threads", type=int, default=64, show_default=True, help="Threads that operations go round.")
@click.option("--batch-events", type=int, default=1, show_default=True, help="Events a batch.")
@click.option("--event-bytes", type=int, default=600, show_default=True, help="Bytes of a payload.")
@click.option("--journal-len", type=int, default=0, show_default=True, help="Events that journals begin with.")
@click.option(
    "--seconds", type=float, default=5.0, show_default=True, help="Length of a trial; a soak takes 600 or more."
)
@click.option("--via", type=click.Choice(("store", "lanes")), default="store", show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write the results into this directory.")
def run(
    *,
    url: str | None,
    service: str | None,
    slo: str | None,
    rate: float | None,
    closed: bool,
    sweeps: tuple[str, ...],
    workload: str,
    lanes: int,
    threads: int,
    batch_events: int,
    event_bytes: int,
    journal_len: int,
    seconds: float,
    via: str,
    seed: int,
    out: Path | None,
) -> None:
    """Run one workload on URL: its capacity at an objective, one rate, or a sweep in a closed loop.

    Exits with 1 where a trial is INVALID: something acknowledged was lost, doubled or moved.
    """
    from statebook_benchmarks.capacity import Objective
    from statebook_benchmarks.results import Parameters
    from statebook_benchmarks.runner import RunOrder, run as run_order
    from statebook_benchmarks.summary import RunProgress, print_run

    if (url is None) == (service is None):
        raise click.UsageError("give a URL or --service, not both")
    if sum((slo is not None and rate is None, rate is not None, closed)) > 1:
        raise click.UsageError("give one of --slo, --rate and --closed; --slo may go with --rate")
    if slo is None and rate is None and not closed and not sweeps:
        slo = SLO_DEFAULT
    try:
        objective = None if slo is None else Objective.parse(slo)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--slo") from error
    parameters = Parameters(
        workload=workload,
        lanes=lanes,
        threads=threads,
        batch_events=batch_events,
        event_bytes=event_bytes,
        journal_len=journal_len,
        seconds=seconds,
        via=via,
        seed=seed,
    )
    console = Console()
    with targets(() if url is None else (url,), () if service is None else (service,)) as (target,):
        order = RunOrder(
            url=target,
            parameters=parameters,
            sweep=tuple(parse_sweep(text) for text in sweeps),
            objective=objective,
            rate=rate,
            name=fresh_name(),
            command=shown_command((target,)),
        )
        with RunProgress(console) as progress:
            result = run_order(order, progress)
    print_run(console, result)
    if out is not None:
        file = out / f"{result.subject.backend}-{parameters.workload}-{order.name}.json"
        result.write(file)
        console.print(f"results: {file}", highlight=False)
    if not result.valid:
        raise click.exceptions.Exit(EXIT_INVALID)


@group.command()
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--service", "services", multiple=True, metavar="NAME", help="Start this server, and run on it too.")
@click.option("--seconds", type=float, default=0.3, show_default=True, help="Length of a trial.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write results and a report here.")
def quick(*, urls: tuple[str, ...], services: tuple[str, ...], seconds: float, out: Path | None) -> None:
    """Run every workload for a moment on each URL: is it valid? The times mean little.

    Exits with 1 where a trial is INVALID. Nothing depends on how fast it was.
    """
    from statebook_benchmarks.quick import print_quick, run_quick
    from statebook_benchmarks.report import Prices, render

    if not urls and not services:
        raise click.UsageError("give at least one URL or --service")
    console = Console()
    with targets(urls, services) as all_urls:
        results = run_quick(all_urls, seconds, shown_command(urls), fresh_name, console)
    print_quick(console, results)
    if out is not None:
        for result in results:
            result.write(out / f"{result.subject.backend}-{result.points[0].parameters.workload}.json")
        (out / "report.html").write_text(render(results, Prices()), encoding="utf-8")
        console.print(f"report: {out / 'report.html'}", highlight=False)
    if not all(result.valid for result in results):
        raise click.exceptions.Exit(EXIT_INVALID)


@group.command()
@click.option("--medium", "media", multiple=True, type=click.Choice(("memory", "sqlite")), help="Only this one.")
@click.option("--case", "cases", multiple=True, type=click.Choice(("append", "writers", "load")), help="Only this one.")
@click.option("--rounds", type=click.IntRange(3, 1_000), default=15, show_default=True, help="Interleaved rounds.")
@click.option("--round-ms", type=click.IntRange(5, 60_000), default=150, show_default=True, help="Length of a round.")
@click.option("--events", type=click.IntRange(1, 100_000), default=2_000, show_default=True, help="Events to load.")
@click.option("--directory", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path())
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the results here.")
def peers(
    *,
    media: tuple[str, ...],
    cases: tuple[str, ...],
    rounds: int,
    round_ms: int,
    events: int,
    directory: Path,
    json_file: Path | None,
) -> None:
    """Measure statebook beside what people use today: same payload, same durability, interleaved in one run.

    Peers that are not installed are left out and named. All of them store below --directory, on one file system.
    """
    from statebook_benchmarks.peers.sidebyside import CASES, PeersOrder, run_peers
    from statebook_benchmarks.peers_table import print_peers

    console = Console()
    order = PeersOrder(
        media=media or ("memory", "sqlite"),
        cases=cases or CASES,
        rounds=rounds,
        round_s=round_ms / 1_000,
        events=events,
        directory=directory,
        command=shown_command(()),
    )
    with console.status("opening") as status:
        result = run_peers(order, fresh_name, lambda what, done, of: status.update(f"{what}: {done} of {of} runs"))
    print_peers(console, result)
    if json_file is not None:
        result.write(json_file)


def parse_sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """Read `name=a,b,c`.

    Raises:
        BadParameter: It is no such text.
    """
    name, equals, values = text.partition("=")
    found = tuple(value.strip() for value in values.split(","))
    if not equals or not all(found):
        raise click.BadParameter(f"{text!r} is no sweep; write lanes=1,2,4", param_hint="--sweep")
    return name.strip().replace("-", "_"), found


@group.command()
@click.argument("before", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def compare(*, before: Path, after: Path) -> None:
    """Compare run AFTER with run BEFORE: better, worse, same or unknown, with 95 % intervals.

    A difference below 5 % is none. Runs of different durability are never ranked.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from statebook_benchmarks.compare import cautions, compare_runs
    from statebook_benchmarks.figures_table import ratio_text

    first, second = load_run(before), load_run(after)
    console = Console()
    for caution in cautions(first, second):
        console.print(Text(caution, style="yellow"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("point", "measure", "before", "after", "times better", "verdict", "by"):
        table.add_column(column, overflow="fold")
    for row in compare_runs(first, second):
        table.add_row(
            row.point,
            row.measure,
            "" if row.before is None else f"{row.before:,.2f}",
            "" if row.after is None else f"{row.after:,.2f}",
            "" if row.ratio is None else ratio_text(row.ratio),
            row.verdict.value,
            row.why,
        )
    console.print(table)


@group.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def advise(*, file: Path) -> None:
    """Advise on lanes, queue, batch and pool sizes from the run in FILE."""
    from statebook_benchmarks.advise import advise as advise_on

    result = load_run(file)
    try:
        found = advise_on(result)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    console = Console()
    for advice in found:
        console.print(f"{advice.what}: {advice.value}  ({advice.why})", highlight=False, markup=False)
    if not found:
        console.print("nothing follows from one point; sweep lanes or batch_events, or search with --slo")


@group.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--html", "page", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The page.")
@click.option("--price-hour", type=click.FloatRange(0), help="What the store costs an hour, in your currency.")
@click.option("--price-million", type=click.FloatRange(0), help="What a million write requests cost.")
def report(*, files: tuple[Path, ...], page: Path, price_hour: float | None, price_million: float | None) -> None:
    """Write one self-contained page with the plots of the runs in FILES, and with what `figures` and `peers` found."""
    from statebook_benchmarks.figures_table import FiguresResult
    from statebook_benchmarks.peers.sidebyside import PeersResult
    from statebook_benchmarks.report import Prices, render
    from statebook_benchmarks.results import RunResult

    kinds: dict[str, type[RunResult | FiguresResult | PeersResult]]
    kinds = {"run": RunResult, "figures": FiguresResult, "peers": PeersResult}
    results = tuple([load_result(file, kinds) for file in files])
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(results, Prices(price_hour, price_million)), encoding="utf-8")
    click.echo(f"report: {page}")


def load_run(file: Path) -> RunResult:
    """Read a run; raises as `load_result`."""
    from statebook_benchmarks.results import RunResult

    return load_result(file, {"run": RunResult})


def load_result(file: Path, types: Mapping[str, type[T]]) -> T:
    """Read results of one of some kinds.

    Raises:
        ClickException: The file holds none of these.
    """
    from statebook_benchmarks.results import ResultsError, read_result

    try:
        return read_result(file, types)
    except ResultsError as error:
        raise click.ClickException(str(error)) from error
