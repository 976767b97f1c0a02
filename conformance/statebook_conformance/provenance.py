"""What exactly was certified: the distribution that brings the backend, and the libraries that it has loaded."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from typing import Final

import msgspec

_GROUP: Final = "statebook.backends"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_OURS: Final = "statebook"


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where a backend comes from.

    Attributes:
        distribution: The distribution that brings it, or an empty text where it is installed by none.
        version: Its version, or an empty text.
        libraries: Name and version of each distribution that it needs and has loaded, sorted; the drivers are among
            them.
    """

    distribution: str = ""
    version: str = ""
    libraries: tuple[tuple[str, str], ...] = ()


def provenance_of(target: str) -> Provenance:
    """Find out what brings a target.

    Args:
        target: A store URL, or `module:function`, as it was given. The backend has been opened, so that its libraries
            are loaded.

    Returns:
        Its provenance; empty where no installed distribution brings it.
    """
    scheme, separator, _ = target.partition("://")
    found = _of_scheme(scheme) if separator and "?" not in scheme else _of_module(target.partition(":")[0])
    if found is None:
        return Provenance()
    return Provenance(distribution=found.name, version=found.version, libraries=_libraries(found))


def _of_scheme(scheme: str) -> metadata.Distribution | None:
    return next((entry.dist for entry in metadata.entry_points(group=_GROUP, name=scheme)), None)


def _of_module(module: str) -> metadata.Distribution | None:
    names = metadata.packages_distributions().get(module.partition(".")[0], [])
    return metadata.distribution(names[0]) if names else None


def _libraries(distribution: metadata.Distribution) -> tuple[tuple[str, str], ...]:
    needed = {_canonical(match[0]) for text in distribution.requires or () if (match := _NAME.match(text)) is not None}
    needed.discard(_OURS)
    versions: dict[str, str] = {}
    for module, names in metadata.packages_distributions().items():
        for name in names:
            if module in sys.modules and _canonical(name) in needed:
                versions[name] = metadata.version(name)
    return tuple(sorted(versions.items()))


def _canonical(name: str) -> str:
    """A name of a distribution as names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
