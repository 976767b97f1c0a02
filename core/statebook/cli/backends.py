"""`statebook backends`: what can be opened. Imports no backend and no driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Final

import click
import msgspec

_GROUP: Final = "statebook.backends"
_REQUIREMENT: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)[^;]*;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


class InstalledBackend(msgspec.Struct, frozen=True):
    """One installed backend.

    Attributes:
        scheme: The URL scheme.
        distribution: Which package provides it, with its version.
        missing: The driver packages that are not installed.
        install: The command that installs them, or None where nothing is missing.
    """

    scheme: str
    distribution: str
    missing: tuple[str, ...]
    install: str | None


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def backends(*, as_json: bool) -> None:
    """List the installed backends, one a line, and whether their drivers are there."""
    found = sorted(installed(), key=lambda backend: backend.scheme)
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    width = max((len(backend.scheme) for backend in found), default=0)
    for backend in found:
        state = "ready" if backend.install is None else f"driver missing, run: {backend.install}"
        click.echo(f"{backend.scheme:<{width}}  {backend.distribution}  {state}")


def installed() -> Iterator[InstalledBackend]:
    """Yield the backends that entry points name. What a driver is, the package's own metadata says: its extra."""
    for point in entry_points(group=_GROUP):
        package = point.dist
        if package is None:
            yield InstalledBackend(point.name, point.value, (), None)
            continue
        extra = _extra(point, package)
        missing = () if extra is None else tuple(name for name in _drivers(package, extra) if not _present(name))
        yield InstalledBackend(
            point.name,
            f"{package.name} {package.version}",
            missing,
            f'pip install "{package.name}[{extra}]"' if missing else None,
        )


def _extra(point: EntryPoint, package: Distribution) -> str | None:
    """The extra with a backend's driver: named like its scheme or like a package on the way to its plugin."""
    extras = package.metadata.get_all("Provides-Extra") or []
    names = {point.name, *point.value.partition(":")[0].split(".")}
    return next((extra for extra in sorted(extras) if extra in names), None)


def _drivers(package: Distribution, extra: str) -> Iterator[str]:
    for requirement in package.requires or ():
        match = _REQUIREMENT.match(requirement)
        if match is not None and match["extra"] == extra:
            yield match["name"]


def _present(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
