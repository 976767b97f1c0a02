"""What a backend plugin implements. One plugin answers to one URL scheme.

A plugin is a module named by an entry point of the group `statebook.backends`; the entry point's name is the scheme. It
implements `statebook_options` and `statebook_open_atomic`, and gets the state store and the journal from core; it
implements `statebook_open_journal` and `statebook_open_state` where its engine does better. The module must import
without its driver, so that listing and configuring backends needs none.
"""

from __future__ import annotations

from typing import Final

import pluggy

from statebook.atomic import AtomicJournalStorage
from statebook.format_fixtures import FormatFixtures
from statebook.journal import ThreadJournalStore
from statebook.medium import Medium
from statebook.options import BackendOptions, StoreUrl
from statebook.state import AgentStateStore

PROJECT: Final = "statebook"
"""The name under which hooks are marked."""

ENTRY_POINT_GROUP: Final = "statebook.backends"
"""The entry-point group in which backends are found."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""The decorator for a plugin's hooks."""


@hookspec(firstresult=True)
def statebook_options(url: StoreUrl) -> BackendOptions:
    """Turn a URL of this scheme into options. No I/O.

    Args:
        url: The parsed URL.

    Returns:
        The options.

    Raises:
        InvalidConfiguration: Something in it is unknown or wrong (ERR-6).
    """
    raise AssertionError("a specification is not called")


@hookspec(firstresult=True)
def statebook_open_atomic(options: BackendOptions) -> AtomicJournalStorage | None:
    """Open the atomic storage.

    Guarantees ATOM-7: what can be missing is verified here, and refused or declared as less.

    Args:
        options: What `statebook_options` returned.

    Returns:
        The open storage, or None where the backend has none.

    Raises:
        InvalidConfiguration: It cannot be opened as asked.
        BackendUnavailable: The engine does not answer.
    """
    raise AssertionError("a specification is not called")


@hookspec(firstresult=True)
def statebook_open_journal(options: BackendOptions) -> ThreadJournalStore | None:
    """Open a native journal store; leave it out to get core's over the atomic storage.

    Args:
        options: What `statebook_options` returned.

    Returns:
        The open store, or None.

    Raises:
        InvalidConfiguration: It cannot be opened as asked.
        BackendUnavailable: The engine does not answer.
    """
    raise AssertionError("a specification is not called")


@hookspec(firstresult=True)
def statebook_open_state(options: BackendOptions) -> AgentStateStore | None:
    """Open a native state store; leave it out to get core's over the atomic storage.

    Args:
        options: What `statebook_options` returned.

    Returns:
        The open store, or None.

    Raises:
        InvalidConfiguration: It cannot be opened as asked.
        BackendUnavailable: The engine does not answer.
    """
    raise AssertionError("a specification is not called")


@hookspec(firstresult=True)
def statebook_destroy_namespace(options: BackendOptions) -> bool | None:
    """Remove everything that is stored in the namespace of the options, tombstones included. For tests and operators.

    Args:
        options: What `statebook_options` returned.

    Returns:
        True when it is done; None where the backend does not offer it.

    Raises:
        BackendUnavailable: The engine does not answer; calling again is harmless.
    """
    raise AssertionError("a specification is not called")


@hookspec(firstresult=True)
def statebook_open_medium(options: BackendOptions) -> Medium | None:
    """Show the raw records of the namespace of the options, for conformance and forensics.

    Args:
        options: What `statebook_options` returned.

    Returns:
        The medium, or None where nothing is stored outside of the process.

    Raises:
        BackendUnavailable: The engine does not answer.
    """
    raise AssertionError("a specification is not called")


@hookspec(firstresult=True)
def statebook_open_fixtures(options: BackendOptions) -> FormatFixtures | None:
    """Show what earlier releases stored, and plant it into the namespace of the options, for conformance (FORMAT-4).

    Args:
        options: What `statebook_options` returned.

    Returns:
        The fixtures, or None where none are kept.

    Raises:
        BackendUnavailable: The engine does not answer.
    """
    raise AssertionError("a specification is not called")
