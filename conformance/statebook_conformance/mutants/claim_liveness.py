"""Mutants of liveness: a call that is beaten by others gives up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from statebook.contention import Contention
from statebook_conformance.mutants.core_copy import changed_core
from statebook_conformance.mutants.mutant import Mutant


class _Hasty(Contention):
    """Lets a call have two attempts."""

    def attempts(self, *, eager: bool = False) -> Iterator[int]:
        del eager
        yield from range(2)


GIVES_UP_WHEN_BEATEN: Final = Mutant(
    "gives-up-when-beaten",
    "a call that loses two compare-and-sets is told that the storage is unavailable",
    changed_core(Contention=_Hasty),
    base="file://{directory}",
)
