"""What the commands share: the arguments that name a store and its threads, and text that is safe to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import click
import msgspec

from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import PAGE_MAX

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Target(msgspec.Struct, frozen=True):
    """One thread, or a scope of threads.

    Attributes:
        scope: The scope.
        key: The thread in it, or None for all.
    """

    scope: ThreadScope
    key: ThreadKey | None

    def threads(self, store: ThreadJournalStore) -> Iterator[ThreadKey]:
        """Yield the thread, or all threads of the scope that have a journal, page by page (LIFE-1)."""
        if self.key is not None:
            yield self.key
            return
        after: ThreadKey | None = None
        while True:
            page = store.list_threads(self.scope, after=after, limit=PAGE_MAX)
            yield from page.threads
            if not page.has_more or not page.threads:
                return
            after = page.threads[-1]


def target_options(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add URL, `--user`, `--agent`, `--session`, `--thread` and `--json` to a command."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Write JSON."),
        click.option("--thread", metavar="ID", help="One thread; needs --session."),
        click.option("--session", metavar="ID", help="One session's threads; needs --agent."),
        click.option("--agent", metavar="ID", help="One agent's threads."),
        click.option("--user", metavar="ID", help="The user; left out: the absent user, not everybody."),
        click.argument("url"),
    ):
        command = option(command)
    return command


def target_of(user: str | None, agent: str | None, session: str | None, thread: str | None) -> Target:
    """Turn the options into a target.

    Raises:
        UsageError: A narrower option is given without a wider one.
        InvalidKey: An id is outside ID-1.
    """
    if session is not None and agent is None:
        raise click.UsageError("--session needs --agent")
    if thread is None:
        return Target(ThreadScope(user, agent, session), None)
    if agent is None or session is None:
        raise click.UsageError("--thread needs --agent and --session")
    return Target(ThreadScope(user, agent, session), ThreadKey(user, agent, session, thread))


def shown(text: str | None) -> str:
    """An id as it can be shown on a terminal: nothing invisible, no control characters; `-` for the absent user."""
    if text is None:
        return "-"
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return f'"{plain}"' if plain != text or plain != plain.strip() or plain == "-" else plain


def shown_key(key: ThreadKey) -> str:
    """A thread as it can be shown on a terminal."""
    return f"{shown(key.user_id)} / {shown(key.agent_id)} / {shown(key.session_id)} / {shown(key.thread_id)}"


def key_fields(key: ThreadKey) -> dict[str, str | None]:
    """A thread as a JSON object."""
    return {
        "user_id": key.user_id,
        "agent_id": key.agent_id,
        "session_id": key.session_id,
        "thread_id": key.thread_id,
    }
