"""Backends found by entry-point name, opened by URL. Listing imports none of them; opening imports one."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias, TypeVar

import pluggy

from statebook import hookspecs
from statebook.atomic import AtomicJournalStorage
from statebook.capabilities import Durability, Feature, Sharing
from statebook.errors import InvalidConfiguration, InvalidKey, MissingDriver, UnknownBackend, UnsupportedCapability
from statebook.format_fixtures import FormatFixtures
from statebook.journal import ThreadJournalStore
from statebook.keys import check_id
from statebook.medium import Medium
from statebook.options import BackendOptions, StoreUrl
from statebook.state import AgentStateStore

Requirement: TypeAlias = Durability | Sharing | Feature

_FOUND: Final[dict[tuple[str, tuple[str, ...]], EntryPoint]] = {}
"""Plugins that were found, by scheme and search path. What was not found is looked for again."""
_FOUND_MAX: Final = 64


def installed_backends() -> tuple[str, ...]:
    """The URL schemes that can be opened, sorted. Imports no backend and no driver."""
    return tuple(sorted({point.name for point in entry_points(group=hookspecs.ENTRY_POINT_GROUP)}))


@contextmanager
def driver(install: str) -> Iterator[None]:
    """Turn a missing client library into an error that says how to get it. For plugins, around the import of a store.

    Args:
        install: The command that installs it, such as `pip install "statebook[redis]"`.

    Yields:
        Nothing.

    Raises:
        MissingDriver: A module that is not statebook's is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "statebook").partition(".")[0].startswith("statebook"):
            raise
        raise MissingDriver(f"the module {error.name!r} is not installed; run: {install}", install=install) from error


class Backend:
    """One loaded plugin with the options of one URL: opens stores of all three kinds.

    Attributes:
        scheme: The URL scheme.
        options: The options.
    """

    def __init__(self, scheme: str, plugin: ModuleType | object, options: BackendOptions | StoreUrl) -> None:
        """Register the plugin's hooks, and have it turn a URL into options.

        Args:
            scheme: The URL scheme.
            plugin: The module or object that implements the hooks.
            options: Ready options, or the URL that the plugin turns into them.

        Raises:
            InvalidConfiguration: The plugin's hooks or the options are wrong.
        """
        self.scheme = scheme
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        try:
            self._manager.register(plugin, name=scheme)
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise InvalidConfiguration(f"backend {scheme!r} has wrong hooks: {error}", backend=scheme) from error
        if isinstance(options, StoreUrl):
            made = self._manager.hook.statebook_options(url=options)
            if not isinstance(made, BackendOptions):
                raise InvalidConfiguration(
                    f"backend {scheme!r} implements no statebook_options hook that returns options", backend=scheme
                )
            options = made
        try:
            check_id(options.namespace, "namespace")
        except InvalidKey as error:
            raise InvalidConfiguration(error.message, option="namespace", backend=scheme) from error
        self.options = options

    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        """Open the atomic storage; see `open_atomic`."""
        storage: AtomicJournalStorage | None = self._manager.hook.statebook_open_atomic(options=self.options)
        if storage is None:
            raise UnsupportedCapability(
                f"backend {self.scheme!r} offers no atomic storage", capability="atomic", backend=self.scheme
            )
        return _required(storage, require)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        """Open the journal store, native or over the atomic storage; see `open_journal`."""
        journal: ThreadJournalStore | None = self._manager.hook.statebook_open_journal(options=self.options)
        if journal is None:
            journal = self.journal_over(self.open_atomic())
        return _required(journal, require)

    @staticmethod
    def journal_over(storage: AtomicJournalStorage) -> ThreadJournalStore:
        """Core's journal over a given storage, whatever journal the backend has itself.

        Args:
            storage: The storage; closed with the journal.

        Returns:
            The journal store.
        """
        from statebook.atomic_journal import AtomicThreadJournalStore

        return AtomicThreadJournalStore(storage)

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        """Open the state store, native or over the atomic storage; see `open_state`."""
        state: AgentStateStore | None = self._manager.hook.statebook_open_state(options=self.options)
        if state is None:
            from statebook.atomic_state import AtomicAgentStateStore

            state = AtomicAgentStateStore(self.open_atomic())
        return _required(state, require)

    def open_medium(self) -> Medium | None:
        """Show the raw records of the namespace, for conformance and forensics.

        Returns:
            The medium, or None where the backend shows none.

        Raises:
            BackendUnavailable: The engine does not answer.
        """
        medium: Medium | None = self._manager.hook.statebook_open_medium(options=self.options)
        return medium

    def open_fixtures(self) -> FormatFixtures | None:
        """Show what earlier releases stored, for conformance (FORMAT-4).

        Returns:
            The fixtures, or None where the backend keeps none.

        Raises:
            BackendUnavailable: The engine does not answer.
        """
        fixtures: FormatFixtures | None = self._manager.hook.statebook_open_fixtures(options=self.options)
        return fixtures

    def destroy_namespace(self) -> bool:
        """Remove everything that is stored in the namespace, tombstones included.

        Returns:
            Whether the backend offers it; False where nothing was done.

        Raises:
            BackendUnavailable: The engine does not answer; calling again is harmless.
        """
        return self._manager.hook.statebook_destroy_namespace(options=self.options) is True


def load_backend(url: str | StoreUrl | BackendOptions) -> Backend:
    """Load the plugin that answers to a URL. Opens nothing.

    Args:
        url: A URL, or ready options.

    Returns:
        The backend.

    Raises:
        UnknownBackend: No installed backend has this scheme; lists those that are.
        InvalidConfiguration: The URL or its options are wrong.
    """
    target = StoreUrl.parse(url) if isinstance(url, str) else url
    scheme = target.scheme
    return Backend(scheme, _entry_point(scheme).load(), target)


def _entry_point(scheme: str) -> EntryPoint:
    """The plugin of a scheme, remembered: to look it up is to read a file of every package that is installed."""
    place = (scheme, tuple(sys.path))
    known = _FOUND.get(place)
    if known is None:
        known = _look_up(scheme)
        if len(_FOUND) >= _FOUND_MAX:
            _FOUND.clear()
        _FOUND[place] = known
    return known


def _look_up(scheme: str) -> EntryPoint:
    found = tuple(entry_points(group=hookspecs.ENTRY_POINT_GROUP, name=scheme))
    if len({point.value for point in found}) > 1:
        raise InvalidConfiguration(
            f"several packages claim the scheme {scheme!r}: {', '.join(point.value for point in found)}; uninstall one",
            backend=scheme,
        )
    if found:
        return found[0]
    names = installed_backends()
    close = difflib.get_close_matches(scheme, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UnknownBackend(
        f"no installed backend answers to {scheme!r}.{hint} Installed: {', '.join(names) or 'none'}. "
        f"Install the package that provides {scheme!r}: one with an entry point of that name in the group "
        f"{hookspecs.ENTRY_POINT_GROUP!r}",
        installed=names,
        option="url",
        backend=scheme,
    )


_S = TypeVar("_S", AtomicJournalStorage, ThreadJournalStore, AgentStateStore)


def _required(store: _S, require: Iterable[Requirement]) -> _S:
    try:
        store.capabilities.require(require)
    except UnsupportedCapability:
        store.close()
        raise
    return store


def open_state(url: str | StoreUrl | BackendOptions, *, require: Iterable[Requirement] = ()) -> AgentStateStore:
    """Open a state store.

    Args:
        url: A URL such as `sqlite:///file.db`, or ready options.
        require: Features, and the least durability and sharing, that the store must declare.

    Returns:
        The open store; close it.

    Raises:
        UnknownBackend: No installed backend has this scheme.
        MissingDriver: The backend's client library is not installed.
        InvalidConfiguration: The URL, an option or the engine's set-up is wrong; names the remedy (ERR-6, ATOM-7).
        UnsupportedCapability: The store declares less than is required.
        BackendUnavailable: The engine does not answer.
    """
    return load_backend(url).open_state(require)


def open_default_state(
    agent_id: str, root: str | Path | None = None, *, require: Iterable[Requirement] = ()
) -> AgentStateStore:
    """Open the state store that an agent has where nothing else is configured: JSON files of its own (S9).

    Args:
        agent_id: The agent; its files are in a directory of its own below the root.
        root: The root; None for the one that the environment variable `STATEBOOK_HOME` names, else
            `~/.statebook/state`.
        require: Features, and the least durability and sharing, that the store must declare.

    Returns:
        The open store; close it.

    Raises:
        InvalidConfiguration: The agent's id is outside ID-1, or the root cannot be used.
        UnsupportedCapability: The store declares less than is required.
        BackendUnavailable: The file system does not answer.
    """
    path = "" if root is None else str(Path(root).expanduser().absolute())
    return open_state(StoreUrl(scheme="file", path=path, query=(("agent_id", agent_id),)), require=require)


def open_journal(url: str | StoreUrl | BackendOptions, *, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
    """Open a journal store.

    Args:
        url: A URL such as `sqlite:///file.db`, or ready options.
        require: Features, and the least durability and sharing, that the store must declare.

    Returns:
        The open store; close it.

    Raises:
        UnknownBackend: No installed backend has this scheme.
        MissingDriver: The backend's client library is not installed.
        InvalidConfiguration: The URL, an option or the engine's set-up is wrong; names the remedy (ERR-6, ATOM-7).
        UnsupportedCapability: The store declares less than is required.
        BackendUnavailable: The engine does not answer.
    """
    return load_backend(url).open_journal(require)


def open_atomic(url: str | StoreUrl | BackendOptions, *, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
    """Open an atomic storage.

    Args:
        url: A URL such as `file:///absolute/dir`, or ready options.
        require: Features, and the least durability and sharing, that the store must declare.

    Returns:
        The open storage; close it.

    Raises:
        UnknownBackend: No installed backend has this scheme.
        MissingDriver: The backend's client library is not installed.
        InvalidConfiguration: The URL, an option or the engine's set-up is wrong; names the remedy (ERR-6, ATOM-7).
        UnsupportedCapability: The store declares less than is required, or the backend has no atomic storage.
        BackendUnavailable: The engine does not answer.
    """
    return load_backend(url).open_atomic(require)
