"""Mutants of liveness: a call that is beaten by others gives up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from statebook.contention import Contention
from statebook_conformance.mutants.core_copy import changed_core
from statebook_conformance.mutants.mutant import Mutant

_ATTEMPTS: Final = 2


class _Hasty(Contention):
    """Bounds the attempts of a call by a small number."""

    def attempts(self, *, eager: bool = False) -> Iterator[int]:
        del eager
        yield from range(_ATTEMPTS)


GIVES_UP_WHEN_BEATEN: Final = Mutant(
    "gives-up-when-beaten",
    "a call that loses two compare-and-sets to others is told that the storage is unavailable",
    changed_core(Contention=_Hasty),
)
