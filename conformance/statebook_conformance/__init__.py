"""The suite that certifies any backend: rules, checkers, mutants, certificates.

An author of a backend needs one name of it::

    from statebook_conformance import Suite

    suite = Suite("acme://127.0.0.1:7777")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statebook_conformance.suite import Suite as Suite

__all__ = ["Suite"]


def __getattr__(name: str) -> object:
    """Import the suite, and with it pytest, only when it is asked for: the command needs neither."""
    if name == "Suite":
        try:
            from statebook_conformance.suite import Suite
        except ModuleNotFoundError as error:
            if error.name != "pytest":
                raise
            raise ImportError(
                "Suite runs under pytest, which is not installed; run: pip install 'statebook[conformance]'"
            ) from error
        return Suite
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
