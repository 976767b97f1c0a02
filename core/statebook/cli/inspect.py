"""`statebook inspect`: a scope's threads, or one thread's head and last events. Payloads are not shown."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice

import click
import msgspec

from statebook.cli.target import Target, key_fields, shown, shown_key, target_of, target_options
from statebook.errors import JournalNotFound
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import JournalHead, RecordedEvent
from statebook.plugins import open_journal
from statebook.thread import ThreadJournal
from statebook.threads.projection import JournalProjection


@click.command()
@target_options
@click.option("--last", type=click.IntRange(0, 10_000), default=20, show_default=True, help="How many events.")
@click.option("--runs", is_flag=True, help="Show runs and what is unfinished too; reads the whole journal.")
@click.option("--limit", type=click.IntRange(1), default=1_000, show_default=True, help="How many threads.")
def inspect(
    *,
    url: str,
    user: str | None,
    agent: str | None,
    session: str | None,
    thread: str | None,
    as_json: bool,
    last: int,
    runs: bool,
    limit: int,
) -> None:
    """List the threads of a user, an agent or a session; with --thread, show its head and last events.

    Reading claims, repairs and changes nothing.
    """
    target = target_of(user, agent, session, thread)
    with closing(open_journal(url)) as store:
        if target.key is None:
            _list(store, target, limit, as_json=as_json)
        else:
            _show(store, target.key, last, runs=runs, as_json=as_json)


def _list(store: ThreadJournalStore, target: Target, limit: int, *, as_json: bool) -> None:
    found = list(islice(target.threads(store), limit + 1))
    threads, has_more = found[:limit], len(found) > limit
    if as_json:
        click.echo(json.dumps({"threads": [key_fields(key) for key in threads], "has_more": has_more}))
        return
    for key in threads:
        click.echo(shown_key(key))
    click.echo(f"{len(threads)} threads" + (f"; there are more, raise --limit above {limit}" if has_more else ""))


def _show(store: ThreadJournalStore, key: ThreadKey, last: int, *, runs: bool, as_json: bool) -> None:
    head = store.head(key)
    if head is None:
        raise JournalNotFound("there is no journal of this thread", key=key.name)
    after = max(head.first_seq - 1, head.last_seq - last)
    events = store.read_after(key, after, last).events if last and after < head.last_seq else ()
    projection = JournalProjection.read(ThreadJournal(store, key)) if runs else None
    if as_json:
        shown_fields: dict[str, object] = {"head": _head_fields(head), "events": [_event_fields(e) for e in events]}
        if projection is not None:
            shown_fields["runs"] = [msgspec.to_builtins(run) for run in projection.runs]
            shown_fields["unfinished"] = projection.position.describe() if projection.position.unfinished else None
        click.echo(json.dumps(shown_fields))
        return
    _tables(head, events)
    if projection is not None:
        _print_runs(projection)


def _head_fields(head: JournalHead) -> dict[str, object]:
    claim = head.claim
    return {
        "key": key_fields(head.key),
        "journal_id": head.journal_id,
        "generation": head.generation,
        "epoch": head.epoch,
        "writer_id": None if claim is None else claim.writer_id,
        "first_seq": head.first_seq,
        "last_seq": head.last_seq,
        "checkpoint_seq": head.checkpoint_seq,
        "chain": head.chain,
    }


def _event_fields(event: RecordedEvent) -> dict[str, object]:
    return {
        "seq": event.seq,
        "type": event.type,
        "bytes": len(event.payload),
        "event_id": event.event_id,
        "occurred_at": event.occurred_at,
        "run_id": event.run_id,
        "turn_id": event.turn_id,
        "required": event.required,
    }


def _tables(head: JournalHead, events: tuple[RecordedEvent, ...]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    about = Table(show_header=False, box=None, pad_edge=False)
    about.add_row("thread", Text(shown_key(head.key)))
    for name, value in _head_fields(head).items():
        if name != "key":
            about.add_row(name, Text("none" if value is None else shown(str(value))))
    console.print(about)
    if not events:
        return
    table = Table(title="last events", title_justify="left")
    for column in ("seq", "bytes"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("type", "occurred_at", "event_id", "run_id"):
        table.add_column(column, overflow="fold")
    for event in events:
        table.add_row(
            str(event.seq),
            str(len(event.payload)),
            Text(shown(event.type)),
            _time(event.occurred_at),
            Text(shown(event.event_id)),
            Text("" if event.run_id is None else shown(event.run_id)),
        )
    console.print(table)


def _print_runs(projection: JournalProjection) -> None:
    for run in projection.runs:
        ended = "has not ended" if run.ended_seq is None else f"to {run.ended_seq}, {run.outcome}"
        continues = "" if run.continues is None else f", continues {shown(run.continues)}"
        click.echo(f"run {shown(run.run_id)}: from seq {run.started_seq} {ended}{continues}")
    click.echo(shown(projection.position.describe()))


def _time(occurred_at: int) -> str:
    try:
        return datetime.fromtimestamp(occurred_at / 1_000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(occurred_at)
