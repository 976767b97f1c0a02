"""What a mutant is: a known-bad backend with a name, made from a good one, and the rules that must fail it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.target import Target, TargetBackend


class Mutant:
    """A known-bad backend.

    Attributes:
        name: Its name, as rules list it in `kills`.
        text: What is wrong with it, one sentence; where it has been seen.
        base: The URL of the good backend that it is made from in the self-check.
        canary: Whether it is also run over the very backend that is certified; then it must be a wrapper of any
        backend.
        wrap: Makes the bad backend from the good one.
    """

    def __init__(
        self,
        name: str,
        text: str,
        wrap: Callable[[TargetBackend], ForwardBackend],
        *,
        base: str = "memory://mutants",
        canary: bool = False,
        opener: str = "open_mutant",
    ) -> None:
        """Describe a mutant.

        Args:
            name: Its name.
            text: What is wrong with it.
            wrap: Makes the bad backend from the good one.
            base: The URL of the good one in the self-check; `{directory}` stands for a fresh directory, `{redis}` and
                other names of services for the URL of one.
            canary: Whether it can be made from any backend at a low price.
            opener: The function of the gallery that opens it.
        """
        self.name = name
        self.text = text
        self.wrap = wrap
        self.base = base
        self.canary = canary
        self.opener = opener

    def target(self, base: str) -> str:
        """The target text of this mutant over a base: opened by other processes too.

        Args:
            base: The target text of the good backend.

        Returns:
            The target text.
        """
        return f"statebook_conformance.mutants.gallery:{self.opener}?" + urlencode({"mutant": self.name, "base": base})


def wrap_target(mutant: Mutant, base: str, namespace: str) -> ForwardBackend:
    """Make a mutant from the target text of a good backend."""
    return mutant.wrap(Target(base).backend(namespace))
