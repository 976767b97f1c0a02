"""Which services can be had here, and what to install for the others; starts none of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

import msgspec

from statebook_conformance.services.container_service import instead_of
from statebook_conformance.services.provide import ALL_NAMES, OPTIONAL_NAMES, make_service, variable
from statebook_conformance.services.server import ServerFailed, ServiceUnavailable
from statebook_conformance.services.service import Service


class Availability(msgspec.Struct, frozen=True):
    """Whether one service can be had here.

    Attributes:
        name: The service.
        optional: Whether a certification of all backends goes on without it.
        there: Whether it can be had.
        source: Where it would come from; where it cannot be had, what to install, in one line.
    """

    name: str
    optional: bool
    there: bool
    source: str


def overview(environment: Mapping[str, str] | None = None) -> tuple[Availability, ...]:
    """Look for every service: a variable that names one, then a local binary, then a container engine.

    Args:
        environment: The environment; None for this process's.

    Returns:
        What is there and what is not, the optional ones last. Nothing is started, and nothing stays behind.
    """
    given = os.environ if environment is None else environment
    return tuple(_look(name, given) for name in ALL_NAMES)


def _look(name: str, environment: Mapping[str, str]) -> Availability:
    optional = name in OPTIONAL_NAMES
    if environment.get(variable(name)):
        return Availability(name, optional, there=True, source=f"given by {variable(name)}")
    try:
        return Availability(name, optional, there=True, source=_source(name))
    except (ServiceUnavailable, ServerFailed) as error:
        return Availability(name, optional, there=False, source=" ".join(str(error).split()))


def _source(name: str) -> str:
    """Where a service would come from, in the order in which `provide` looks."""
    try:
        return _described(make_service(name))
    except ServiceUnavailable as local:
        return _described(instead_of(name, local))


def _described(service: Service) -> str:
    try:
        return service.provider
    finally:
        shutil.rmtree(service.directory, ignore_errors=True)
