"""Level 4: what each released format stored is read as it was written, or refused by its version (FORMAT-4)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from statebook.atomic_state import AtomicAgentStateStore
from statebook.errors import CursorInvalid, Trimmed, UnsupportedFormat, WriterFenced
from statebook.format_fixtures import CORE, kept_fixture, kept_releases
from statebook.journal import ThreadJournalStore
from statebook.model import ABSENT, SlotKind
from statebook.state import AgentStateStore
from statebook_conformance.context import Context, NotClaimed
from statebook_conformance.fixture_files import Fixture, plant_core, unpack
from statebook_conformance.fixture_scene import Held, HeldJournal, Seen, see
from statebook_conformance.rule import rule
from statebook_conformance.scenes import make_batch
from statebook_conformance.target import TargetBackend

_EXPORTER = "exporter of the suite"


@rule(
    "FORMAT-4",
    level=4,
    hint="the stored format, or what a digest covers, was changed without a new format version and a reader of the old",
    kills=("digest-changed-silently", "old-format-taken-for-empty", "old-claims-forgotten", "old-cursor-starts-again"),
    floor={"fixtures": 1},
    timeout_s=120.0,
)
def backend_fixtures(ctx: Context) -> None:
    """What earlier releases of this backend stored is read exactly, and its writers go on; or it is refused by version.

    The raw records of each kept release are planted in an empty namespace, around the store. Events, heads, documents,
    lists and versions are equal; claims, cursors, receipts and tombstones hold: a batch that was appended then is
    recognised now. A backend without fixtures has no released format to keep, and claims nothing here.
    """
    fixtures = ctx.backend.open_fixtures()
    if fixtures is None:
        raise NotClaimed("the backend keeps no fixtures of released formats (hook statebook_open_fixtures)")
    with ExitStack() as stack:
        stack.callback(fixtures.close)
        releases = fixtures.releases()
        if not releases:
            raise NotClaimed("the backend keeps fixtures, and none of a release yet")
        for number, release in enumerate(releases):
            fixture = unpack(fixtures.load(release))
            namespace = fixture.namespace or f"{ctx.namespace}-{number}"
            _planted(ctx, ctx.target.backend(namespace), fixture)


def _planted(ctx: Context, backend: TargetBackend, fixture: Fixture) -> None:
    """Plant a fixture in a namespace of its own, judge it, and remove the namespace."""
    backend.destroy_namespace()
    with ExitStack() as stack:
        stack.callback(backend.destroy_namespace)
        planter = backend.open_fixtures()
        if planter is None:
            raise NotClaimed("the backend keeps no fixtures in this namespace")
        stack.callback(planter.close)
        planter.plant(fixture.records)
        _judge(ctx, fixture, backend.open_journal, backend.open_state)


@rule(
    "FORMAT-4.core",
    level=4,
    part="atomic",
    hint="the storage changes heads or blobs, or core's records were changed without a new format version",
    kills=("digest-changed-silently", "old-format-taken-for-empty", "old-claims-forgotten", "old-cursor-starts-again"),
    floor={"fixtures": 1},
    timeout_s=120.0,
)
def core_fixtures(ctx: Context) -> None:
    """What core's layout of earlier releases stored is read through this atomic storage, and its writers go on.

    Heads and blobs of each kept release are committed through the storage itself, and judged as in FORMAT-4.
    """
    for number, release in enumerate(kept_releases(CORE)):
        fixture = unpack(kept_fixture(CORE, release))
        backend = ctx.target.backend(f"{ctx.namespace}-{number}")
        with ExitStack() as stack:
            stack.callback(backend.destroy_namespace)
            storage = backend.open_atomic()
            stack.callback(storage.close)
            plant_core(storage, fixture.records)
            _judge(
                ctx,
                fixture,
                partial(_core_journal, backend),
                partial(_core_state, backend),
            )


def _core_journal(backend: TargetBackend) -> ThreadJournalStore:
    return backend.journal_over(backend.open_atomic())


def _core_state(backend: TargetBackend) -> AgentStateStore:
    return AtomicAgentStateStore(backend.open_atomic())


# ------------------------------------------------------------------------------------------------------------- judging


def _judge(
    ctx: Context,
    fixture: Fixture,
    open_journal: Callable[[], ThreadJournalStore],
    open_state: Callable[[], AgentStateStore],
) -> None:
    with ExitStack() as stack:
        journal, state = open_journal(), open_state()
        stack.callback(journal.close)
        stack.callback(state.close)
        ctx.saw("fixtures")
        try:
            seen = see(journal, state)
        except UnsupportedFormat:
            _refused(ctx, fixture, journal)
            return
        _same(ctx, seen, fixture.expected.seen, f"release {fixture.release}")
        held = fixture.expected.held
        for entry in held.journals:
            _writer_goes_on(ctx, journal, entry)
        _cursors_go_on(ctx, journal, held)
        _deleted_stay_deleted(ctx, journal, held)
        _slots_go_on(ctx, state, fixture)
        for thread in seen.threads:
            findings = journal.verify(thread.head.key, deep=True).findings
            ctx.equal(findings, (), f"findings in {thread.head.key.thread_id[:20]!r} of release {fixture.release}")


def _refused(ctx: Context, fixture: Fixture, journal: ThreadJournalStore) -> None:
    """A format that is not read any more is refused by its version by every call, writing ones too."""
    for thread in fixture.expected.seen.threads:
        key = thread.head.key
        ctx.raises(UnsupportedFormat, partial(journal.head, key), "head() of a format that is refused")
        ctx.raises(UnsupportedFormat, partial(journal.claim, key, "next"), "claim() of a format that is refused")
        ctx.raises(UnsupportedFormat, partial(journal.read_after, key, 0), "read_after() of a refused format")
    ctx.saw("refused by version")


def _same(ctx: Context, seen: Seen, expected: Seen, what: str) -> None:
    ctx.equal([t.head.key for t in seen.threads], [t.head.key for t in expected.threads], f"the threads of {what}")
    for found, wanted in zip(seen.threads, expected.threads, strict=True):
        name = f"{wanted.head.key.thread_id[:20]!r} of {what}"
        ctx.equal(found.head, wanted.head, f"the head of {name}")
        ctx.equal(len(found.events), len(wanted.events), f"how many events {name} has")
        for event, stored in zip(found.events, wanted.events, strict=True):
            ctx.equal(event, stored, f"event {stored.seq} of {name}")
        ctx.saw("events read", len(found.events))
    ctx.equal(seen.sessions, expected.sessions, f"the sessions of {what}")
    ctx.equal(seen.documents, expected.documents, f"the documents of {what}")
    ctx.equal(seen.lists, expected.lists, f"the lists of {what}")


def _writer_goes_on(ctx: Context, journal: ThreadJournalStore, held: HeldJournal) -> None:
    claim, receipt = held.claim, held.receipt
    name = f"{claim.key.thread_id[:20]!r}"
    again = journal.append(claim, held.batch, receipt.first_seq - 1)
    ctx.check(again.replayed, f"the last batch of {name}, sent again, is taken for a new one")
    ctx.equal(
        (again.first_seq, again.last_seq, again.epoch, again.digest),
        (receipt.first_seq, receipt.last_seq, receipt.epoch, receipt.digest),
        f"the receipt of the last batch of {name}",
    )
    settled = journal.settle(claim, held.batch.batch_id, receipt.first_seq - 1)
    ctx.equal(None if settled is None else settled.digest, receipt.digest, f"what settle says of a batch of {name}")
    new = journal.append(claim, make_batch("suite-1", 2), receipt.last_seq)
    ctx.equal(new.first_seq, receipt.last_seq + 1, f"where the old writer of {name} goes on")
    after = journal.claim(claim.key, "next writer")
    ctx.check(after.epoch > claim.epoch, f"epoch {after.epoch} of {name} was given out before")
    ctx.equal(after.last_seq, new.last_seq, f"where the next writer of {name} begins")
    ctx.raises(
        WriterFenced,
        lambda: journal.append(claim, make_batch("suite-2"), new.last_seq),
        f"an append through the claim of {name} from before",
    )
    journal.append(after, make_batch("suite-3", checkpoint=True), new.last_seq)
    ctx.saw("writers went on")


def _cursors_go_on(ctx: Context, journal: ThreadJournalStore, held: Held) -> None:
    for cursor in held.cursors:
        moved = journal.advance_cursor(cursor, cursor.acked_seq + 1)
        ctx.equal(moved.acked_seq, cursor.acked_seq + 1, f"where the cursor of {cursor.exporter!r} stands")
        opened = journal.open_cursor(cursor.key, cursor.exporter)
        ctx.equal(opened.acked_seq, cursor.acked_seq + 1, f"where the reopened cursor of {cursor.exporter!r} stands")
        ctx.check(opened.epoch > cursor.epoch, f"epoch {opened.epoch} of cursor {cursor.exporter!r} was given before")
        ctx.saw("cursors went on")
    for key in {cursor.key for cursor in held.cursors}:
        head = journal.head(key)
        if head is not None and head.first_seq > 1:
            ctx.raises(Trimmed, partial(journal.read_after, key, 0), "a read of what the old release trimmed")


def _deleted_stay_deleted(ctx: Context, journal: ThreadJournalStore, held: Held) -> None:
    for claim, cursor in zip(held.deleted, held.lost_cursors, strict=True):
        name = f"the deleted journal {claim.key.thread_id!r}"
        ctx.equal(journal.head(claim.key), None, f"the head of {name}")
        after = journal.claim(claim.key, "next writer")
        ctx.check(after.epoch > claim.epoch, f"epoch {after.epoch} of {name} was given out before")
        ctx.check(after.journal_id != claim.journal_id, f"{name} came back as the same incarnation")
        ctx.equal(after.last_seq, 0, f"where the next incarnation of {name} begins")
        ctx.raises(CursorInvalid, partial(journal.open_cursor, cursor.key, cursor.exporter), f"the cursor of {name}")
        ctx.equal(journal.open_cursor(claim.key, _EXPORTER).acked_seq, 0, f"a new cursor of {name}")
        ctx.saw("tombstones held")


def _slots_go_on(ctx: Context, state: AgentStateStore, fixture: Fixture) -> None:
    for document in fixture.expected.seen.documents:
        version = state.save(document.slot, b'"next"', expected=document.version)
        ctx.check(version > document.version, f"version {version} of {document.slot.key!r} was issued before")
    for entry in fixture.expected.seen.lists:
        version = state.append_list(entry.slot, (b'"next"',), expected_length=len(entry.items))
        ctx.check(version > entry.version, f"version {version} of the list {entry.slot.key!r} was issued before")
        found = state.load_list(entry.slot)
        ctx.equal(None if found is None else found.items, (*entry.items, b'"next"'), f"the list {entry.slot.key!r}")
    for gone in fixture.expected.held.slots:
        if gone.kind is SlotKind.DOCUMENT:
            version = state.save(gone.slot, b"1", expected=ABSENT)
        else:
            version = state.append_list(gone.slot, (b"1",), expected_length=0)
        ctx.check(version > gone.version, f"version {version} of a deleted {gone.kind.value} was issued before")
        ctx.saw("slots went on")
