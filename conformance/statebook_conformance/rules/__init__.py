"""The rules, one function each, in modules by chapter of the contract. None of them names a backend."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from statebook_conformance.rule import Rule, chapter_place


def all_rules() -> tuple[Rule, ...]:
    """Every rule of the suite, by level, then in the order of the contract.

    Raises:
        ValueError: Two rules have one id.
    """
    found: dict[str, Rule] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda entry: entry.name):
        for value in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Rule):
                if found.get(value.id, value) is not value:
                    raise ValueError(f"two rules have the id {value.id}")
                found[value.id] = value
    return tuple(sorted(found.values(), key=lambda entry: (entry.level, _place(entry.id))))


def _place(rule_id: str) -> tuple[int, str, int, str]:
    contract, _, name = rule_id.partition(".")
    chapter, _, number = contract.partition("-")
    return (*chapter_place(chapter), int(number), name)
