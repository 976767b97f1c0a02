"""`statebook verify` and `statebook collect`: look after stored journals."""

from __future__ import annotations

import json
from contextlib import closing

import click

from statebook.cli.group import EXIT_FAILED
from statebook.cli.target import key_fields, shown, shown_key, target_of, target_options
from statebook.errors import JournalNotFound
from statebook.journal import ThreadJournalStore
from statebook.model import VerifyReport
from statebook.plugins import open_journal


@click.command()
@target_options
@click.option("--deep", is_flag=True, help="Read and check every batch and the chain.")
@click.pass_context
def verify(
    ctx: click.Context,
    *,
    url: str,
    user: str | None,
    agent: str | None,
    session: str | None,
    thread: str | None,
    as_json: bool,
    deep: bool,
) -> None:
    """Check one thread's journal, or all in a scope. Exits with 1 where something is found; repairs nothing."""
    target = target_of(user, agent, session, thread)
    found = checked = 0
    with closing(open_journal(url)) as store:
        for key in target.threads(store):
            report = store.verify(key, deep=deep)
            if target.key is not None and report.batches == 0:
                _check_present(store, report)
            _print_report(report, as_json=as_json)
            found += len(report.findings)
            checked += 1
    if not as_json:
        click.echo(f"{checked} journals, {found} findings")
    if found:
        ctx.exit(EXIT_FAILED)


def _check_present(store: ThreadJournalStore, report: VerifyReport) -> None:
    if not report.findings and store.head(report.key) is None:
        raise JournalNotFound("there is no journal of this thread", key=report.key.name)


def _print_report(report: VerifyReport, *, as_json: bool) -> None:
    if as_json:
        findings = [{"what": finding.what, "detail": finding.detail, "seq": finding.seq} for finding in report.findings]
        line = {"key": key_fields(report.key), "batches": report.batches, "events": report.events}
        click.echo(json.dumps({**line, "findings": findings}))
        return
    state = "DAMAGED" if report.findings else "ok"
    click.echo(f"{state:<8} {shown_key(report.key)}: {report.batches} batches, {report.events} events checked")
    for finding in report.findings:
        where = "" if finding.seq is None else f" at seq {finding.seq}"
        click.echo(f"         {finding.what}{where}: {shown(finding.detail)}")


@click.command()
@target_options
def collect(
    *, url: str, user: str | None, agent: str | None, session: str | None, thread: str | None, as_json: bool
) -> None:
    """Delete what failed commits left behind, in one thread or in a scope. Runs beside writers and readers."""
    target = target_of(user, agent, session, thread)
    journals = deleted = kept = 0
    with closing(open_journal(url)) as store:
        for key in target.threads(store):
            report = store.collect(key)
            journals, deleted, kept = journals + 1, deleted + report.deleted, kept + report.kept
    if as_json:
        click.echo(json.dumps({"journals": journals, "deleted": deleted, "kept": kept}))
    else:
        click.echo(f"{journals} journals: {deleted} leftovers deleted, {kept} kept for a later run")
