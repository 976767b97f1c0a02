"""What is certified: a URL, or a function that gives a backend. Named by text, so that other processes can open it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Protocol, cast
from urllib.parse import parse_qsl

from statebook.atomic import AtomicJournalStorage
from statebook.errors import InvalidConfiguration
from statebook.format_fixtures import FormatFixtures
from statebook.journal import ThreadJournalStore
from statebook.medium import Medium
from statebook.options import StoreUrl
from statebook.plugins import Requirement, load_backend
from statebook.state import AgentStateStore


def is_url(target: str) -> bool:
    """Tell whether a target's text is a store URL, and not `module:function`, whose arguments may be URLs too."""
    return "://" in target.partition("?")[0]


class TargetBackend(Protocol):
    """What a target's function returns; `statebook.plugins.Backend` is one."""

    @property
    def scheme(self) -> str:
        """The backend's name."""
        ...

    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        """Open the atomic storage."""
        ...

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        """Open the journal store."""
        ...

    def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
        """Core's journal over a given storage."""
        ...

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        """Open the state store."""
        ...

    def open_medium(self) -> Medium | None:
        """Open the raw medium, or None where the backend shows none."""
        ...

    def open_fixtures(self) -> FormatFixtures | None:
        """Open what earlier releases stored, or None where the backend keeps none."""
        ...

    def destroy_namespace(self) -> bool:
        """Remove everything in the namespace; False where that is not offered."""
        ...


class Target:
    """A backend to certify.

    Attributes:
        text: The URL or `module:function` as it was given. May hold secrets: show `shown`.
        shown: The same without secrets.
    """

    def __init__(self, text: str) -> None:
        """Take a target's name; opens nothing.

        Args:
            text: A store URL, or `module:function`, optionally with `?name=value&…`: the function is called with the
                namespace and these as keyword arguments, and returns a `TargetBackend`.

        Raises:
            InvalidConfiguration: It is neither.
        """
        self.text = text
        self._function: Callable[..., TargetBackend] | None = None
        self._arguments: dict[str, str] = {}
        if is_url(text):
            self._url = StoreUrl.parse(text)
            self.shown = self._url.redacted()
            return
        path, _, query = text.partition("?")
        module, colon, name = path.partition(":")
        if not colon or not module or not name:
            raise InvalidConfiguration(f"{text!r} is neither a store URL nor module:function", option="target")
        try:
            self._function = cast("Callable[..., TargetBackend]", getattr(import_module(module), name))
        except (ImportError, AttributeError) as error:
            raise InvalidConfiguration(f"{path!r} cannot be imported: {error}", option="target") from error
        self._arguments = dict(parse_qsl(query, keep_blank_values=True))
        self.shown = text

    def backend(self, namespace: str) -> TargetBackend:
        """The backend with its options set to a namespace. Opens nothing yet.

        Args:
            namespace: The namespace.

        Returns:
            The backend.

        Raises:
            InvalidConfiguration: The options are wrong.
        """
        if self._function is not None:
            return self._function(namespace=namespace, **self._arguments)
        return load_backend(self._url.with_option("namespace", namespace))

    def open_with(self, name: str, value: str) -> TargetBackend:
        """The backend with one more option.

        Args:
            name: The option.
            value: Its value.

        Returns:
            The backend.

        Raises:
            InvalidConfiguration: The option is unknown or wrong.
        """
        if self._function is None:
            return load_backend(self._url.with_option(name, value))
        arguments = {"namespace": "options", **self._arguments, name: value}
        try:
            inspect.signature(self._function).bind(**arguments)
        except TypeError as error:
            raise InvalidConfiguration(f"the target's function takes no option {name!r}", option=name) from error
        return self._function(**arguments)
