"""All mutants, found in the modules of this package, and the function that opens one by name."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from statebook_conformance import mutants
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant, wrap_target


def all_mutants() -> dict[str, Mutant]:
    """Every mutant by name, sorted.

    Raises:
        ValueError: Two mutants have one name.
    """
    found: dict[str, Mutant] = {}
    for module in pkgutil.iter_modules(mutants.__path__):
        for value in vars(import_module(f"{mutants.__name__}.{module.name}")).values():
            if isinstance(value, Mutant):
                if found.get(value.name, value) is not value:
                    raise ValueError(f"two mutants have the name {value.name}")
                found[value.name] = value
    return dict(sorted(found.items()))


def open_mutant(namespace: str, mutant: str, base: str) -> ForwardBackend:
    """Open a mutant: the function of a mutant's target text, in this and in other processes.

    Args:
        namespace: The namespace.
        mutant: The mutant's name.
        base: The target text of the good backend that it is made from.

    Returns:
        The bad backend.

    Raises:
        KeyError: There is no mutant of this name.
    """
    return wrap_target(all_mutants()[mutant], base, namespace)


def open_lenient_mutant(namespace: str, mutant: str, base: str, **options: str) -> ForwardBackend:
    """Open a mutant that takes any option and ignores what it does not know."""
    del options
    return open_mutant(namespace, mutant, base)
