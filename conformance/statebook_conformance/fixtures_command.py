"""Make a fixture of the format that this release writes: what an author keeps with each release (FORMAT-4)."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, TypeAlias

import click

from statebook.atomic_state import AtomicAgentStateStore
from statebook.errors import StatebookError
from statebook.format_fixtures import SUFFIX, StoredRecord
from statebook.journal import ThreadJournalStore
from statebook.state import AgentStateStore
from statebook_conformance.exits import EXIT_FAILED, EXIT_UNAVAILABLE, EXIT_USAGE
from statebook_conformance.fixture_files import FORM, Fixture, FixtureError, pack, take_core
from statebook_conformance.fixture_scene import Expected, see, write_scene
from statebook_conformance.services.provide import ALL_NAMES, ServiceUnavailable, provide
from statebook_conformance.target import Target, TargetBackend

Layout: TypeAlias = Literal["backend", "core"]
DISTRIBUTION: Final = "statebook"


def make_fixture(target: Target, release: str, layout: Layout) -> Fixture:
    """Write the scene into a fresh namespace, and take its records; the namespace is removed again.

    Args:
        target: The backend.
        release: The release that its code is of.
        layout: Whose records are taken: the backend's, or core's over its atomic storage.

    Returns:
        The fixture.

    Raises:
        FixtureError: The backend keeps no fixtures, or what was taken is not complete.
        StatebookError: What the backend raised.
    """
    namespace = f"fixture-{release}-{secrets.token_hex(4)}"
    backend = target.backend(namespace)
    try:
        return _backend(backend, release, namespace) if layout == "backend" else _core(backend, release)
    finally:
        backend.destroy_namespace()


def _backend(backend: TargetBackend, release: str, namespace: str) -> Fixture:
    fixtures = backend.open_fixtures()
    if fixtures is None:
        raise FixtureError("the backend keeps no fixtures: it has no statebook_open_fixtures hook, or it gives None")
    with ExitStack() as stack:
        stack.callback(fixtures.close)
        fixtures.prepare()
        expected = _expected(backend.open_journal(), backend.open_state())
        records = fixtures.take()
        bound = namespace if fixtures.bound else None
        return _made(release, "backend", bound, expected, records)


def _core(backend: TargetBackend, release: str) -> Fixture:
    storage = backend.open_atomic()
    with ExitStack() as stack:
        stack.callback(storage.close)
        journal = backend.journal_over(backend.open_atomic())
        expected = _expected(journal, AtomicAgentStateStore(backend.open_atomic()))
        return _made(release, "core", None, expected, take_core(storage))


def _expected(journal: ThreadJournalStore, state: AgentStateStore) -> Expected:
    with ExitStack() as stack:
        stack.callback(journal.close)
        stack.callback(state.close)
        held = write_scene(journal, state)
        return Expected(see(journal, state), held)


def _made(
    release: str, layout: Layout, namespace: str | None, expected: Expected, records: tuple[StoredRecord, ...]
) -> Fixture:
    if not records:
        raise FixtureError("nothing was stored: this backend keeps nothing outside of its process")
    return Fixture(form=FORM, release=release, layout=layout, namespace=namespace, expected=expected, records=records)


@click.command()
@click.argument("target")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The directory.")
@click.option("--release", help="What the file is called; the installed version of statebook by default.")
@click.option("--layout", type=click.Choice(["backend", "core"]), default="backend", show_default=True)
def fixtures(*, target: str, out: Path, release: str | None, layout: Layout) -> None:
    """Write what TARGET stores as a fixture of its format, to be kept with the release and never changed.

    The backend must implement the hook `statebook_open_fixtures`. Put the file into the directory `fixtures` of its
    package: from then on the rule FORMAT-4 plants it and reads it, with every later release. TARGET is a store URL,
    module:function, or the name of a service that is started here.
    """
    named = release or version(DISTRIBUTION)
    with ExitStack() as stack:
        try:
            url = stack.enter_context(provide(target)).url if target in ALL_NAMES else target
            fixture = make_fixture(Target(url), named, layout)
        except ServiceUnavailable as error:
            click.echo(f"UNAVAILABLE {target}: {error}", err=True)
            raise click.exceptions.Exit(EXIT_UNAVAILABLE) from error
        except FixtureError as error:
            click.echo(f"{target}: {error}", err=True)
            raise click.exceptions.Exit(EXIT_USAGE) from error
        except StatebookError as error:
            click.echo(f"{target}: {type(error).__name__}: {error}", err=True)
            raise click.exceptions.Exit(EXIT_FAILED) from error
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{named}{SUFFIX}"
    path.write_bytes(pack(fixture))
    click.echo(f"{path}: {len(fixture.records)} records of release {named}")
