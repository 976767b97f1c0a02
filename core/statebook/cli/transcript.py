"""`statebook transcript`: the conversation of one thread, complete messages only. This command shows payloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import click

from statebook.cli.target import key_fields, shown, shown_key, target_of, target_options
from statebook.errors import JournalNotFound
from statebook.keys import ThreadKey
from statebook.plugins import open_journal
from statebook.thread import ThreadJournal
from statebook.threads.history import ThreadHistory, Transcript, TranscriptMessage
from statebook.threads.payload import Message


@click.command()
@target_options
@click.option("--after", type=click.IntRange(0), default=0, show_default=True, help="Only messages behind this seq.")
def transcript(
    *,
    url: str,
    user: str | None,
    agent: str | None,
    session: str | None,
    thread: str | None,
    as_json: bool,
    after: int,
) -> None:
    """Print the conversation of a thread: applied inputs, completed model calls, tool results.

    Needs --agent, --session and --thread. Reading claims, repairs and changes nothing.
    """
    key = target_of(user, agent, session, thread).key
    if key is None:
        raise click.UsageError("transcript needs --agent, --session and --thread")
    with closing(open_journal(url)) as store:
        if store.head(key) is None:
            raise JournalNotFound("there is no journal of this thread", key=key.name)
        found = ThreadHistory().transcript(ThreadJournal(store, key), after=after)
    if as_json:
        click.echo(json.dumps(_fields(key, found), ensure_ascii=False))
    else:
        _print(key, found)


def _fields(key: ThreadKey, found: Transcript) -> dict[str, object]:
    messages = [
        {
            "seq": made.seq,
            "event_id": made.event_id,
            "index": made.index,
            "type": made.type,
            "occurred_at": made.occurred_at,
            "run_id": made.run_id,
            "turn_id": made.turn_id,
            "message": made.message,
        }
        for made in found.messages
    ]
    return {"key": key_fields(key), "messages": messages, "as_of_seq": found.as_of_seq}


def _print(key: ThreadKey, found: Transcript) -> None:
    click.echo(f"thread {shown_key(key)}")
    for made in found.messages:
        first, *others = _lines(made.message)
        click.echo(f"{made.seq:>8}  {_role(made):<10} {first}")
        for line in others:
            click.echo(f"{'':>8}  {'':<10} {line}")
    click.echo(f"{len(found.messages)} messages, complete up to seq {found.as_of_seq}")


def _role(made: TranscriptMessage) -> str:
    role = made.message.get("role")
    return shown(role) if isinstance(role, str) else made.type


def _lines(message: Message) -> Iterator[str]:
    """What a message says, safe for a terminal: its `content` where that is text, else all of it as JSON."""
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(message, ensure_ascii=False)
    for line in text.split("\n"):
        yield "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)
