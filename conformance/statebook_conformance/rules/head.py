"""Level 1: the head of a journal and its chain (HEAD)."""

from __future__ import annotations

from typing import Final

from statebook.capabilities import Feature
from statebook.codec import CHAIN_START, encode_batch
from statebook.errors import JournalRegressed
from statebook.journal import ThreadJournalStore
from statebook.model import AppendRequest, Receipt, WriterClaim
from statebook_conformance.adversary import Adversary, conflict_once
from statebook_conformance.context import Context
from statebook_conformance.rule import rule
from statebook_conformance.writing import Writer, as_read, batch, chained, head_of, read_all, same_events, thread

_BIG: Final = b'"' + b"x" * 24_000 + b'"'
_TAIL_BYTES: Final = 64 * 1024
_REFERENCES: Final = 64
_HEAD_SLACK_BYTES: Final = 64 * 1024


@rule(
    "HEAD-1.fields",
    level=1,
    hint="generation or nonce is only written where something else changes, or is not written at all",
    kills=("generation-stays", "head-nonce-stays"),
)
def fields(ctx: Context) -> None:
    """A head tells key, identity, claim, epoch, range and checkpoint; each write moves the generation by one."""
    journal, key = ctx.journal, thread()
    ctx.equal(journal.head(key), None, "the head of a journal that was never written")
    claim = journal.claim(key, "writer ☃")
    head = head_of(ctx, journal, key)
    ctx.equal(head.key, key, "the head's key")
    ctx.equal(head.claim, claim.info, "the claim that the head shows")
    ctx.equal((head.journal_id, head.epoch), (claim.journal_id, claim.epoch), "identity and epoch of the head")
    ctx.equal((head.first_seq, head.last_seq, head.checkpoint_seq), (1, 0, None), "the range of an empty journal")
    ctx.equal(head.chain, CHAIN_START, "the chain of an empty journal")
    ctx.check(head.generation > 0 and bool(head.nonce), "the first head has no generation or no nonce")
    nonces = {head.nonce}
    steps = (
        ("an append", lambda: journal.append(claim, batch("b", 3, checkpoint=1), 0)),
        ("a heartbeat", lambda: journal.heartbeat(claim)),
        ("a settlement of what was never sent", lambda: journal.settle(claim, "never", 3)),
        ("a release", lambda: journal.release(claim)),
        ("a claim", lambda: journal.claim(key, "other")),
    )
    for name, step in steps:
        step()
        newer = head_of(ctx, ctx.open_journal(), key)
        ctx.equal(newer.generation, head.generation + 1, f"the generation after {name}")
        nonces.add(newer.nonce)
        head = newer
    ctx.equal(len(nonces), len(steps) + 1, "how many different nonces the heads had")
    ctx.equal((head.first_seq, head.last_seq, head.checkpoint_seq), (1, 3, 2), "the range at the end")
    ctx.equal(head.epoch, claim.epoch + 1, "the epoch at the end")


@rule(
    "HEAD-1.incarnation",
    level=1,
    hint="the identity is derived from the key, or rows of the deleted journal are found by key alone",
    kills=("journal-id-reused", "receipts-outlive-delete"),
)
def incarnation(ctx: Context) -> None:
    """Every journal, and every new incarnation of one, has its own random identity and nothing of the one before.

    Cases: 58.
    """
    journal, key = ctx.journal, thread()
    first = Writer(journal, key)
    first.fill(3, events=2)
    other = journal.claim(thread("other"), "writer")
    before = head_of(ctx, journal, key)
    ctx.check(journal.delete(key), "delete() of a journal says that there was none")
    ctx.equal(journal.head(key), None, "the head of a deleted journal")
    again = Writer(journal, key)
    identities = {before.journal_id, other.journal_id, again.claim.journal_id}
    ctx.equal(len(identities), 3, "identities of two journals and a new incarnation")
    head = head_of(ctx, journal, key)
    ctx.check(head.generation > before.generation, "the generation of a new incarnation starts again")
    ctx.equal((head.first_seq, head.last_seq, head.chain), (1, 0, CHAIN_START), "a new incarnation's range and chain")
    receipt = again.append(batch("b0", 2))
    ctx.equal(
        (receipt.first_seq, receipt.last_seq, receipt.replayed, receipt.journal_id),
        (1, 2, False, again.claim.journal_id),
        "the receipt of a batch id that the deleted journal had used",
    )
    same_events(ctx, read_all(ctx, journal, key), as_read((batch("b0", 2),)), "what the new incarnation holds")


@rule(
    "HEAD-1.nonce",
    level=1,
    hint="a barrier, heartbeat or claim writes the bytes that were there before; on a content ETag that is no write",
    kills=("no-nonce",),
)
def nonce(ctx: Context) -> None:
    """No two heads that core's journal writes to the backend's storage are the same bytes, so that no token comes back.

    Cases: 46.
    """
    adversary = Adversary(ctx.open_atomic())
    journal = ctx.backend.journal_over(adversary.client())
    key = thread()
    for turn in range(3):
        claim = journal.claim(key, "writer")
        journal.append(claim, batch(f"b{turn}"), claim.last_seq)
        for _ in range(3):
            journal.heartbeat(claim)
            journal.settle(claim, "never", claim.last_seq + 1)
        journal.release(claim)
    scope = f"t/{key.name}"
    tokens: set[str] = set()
    written: set[bytes] = set()
    replayed = Adversary(ctx.open_atomic())
    for request in adversary.sent:
        ctx.check(request.head not in written, "core wrote a head that had been written before, byte for byte")
        written.add(request.head)
        ctx.check(request.expected is None or request.expected not in tokens, "a token was current twice")
        if request.expected is not None:
            tokens.add(request.expected)
    stale = adversary.sent[1]
    ctx.check(
        not isinstance(replayed.apply(stale), str), "the storage took a commit whose token had long been replaced"
    )
    record = replayed.storage.read_head(scope)
    ctx.check(record is not None and record.data == adversary.sent[-1].head, "the newest head is not the one there")


@rule(
    "HEAD-2",
    level=1,
    hint="numbers come from a sequence of the engine, which leaves gaps, or start again after a trim",
    kills=("seq-starts-at-zero",),
)
def contiguous(ctx: Context) -> None:
    """Seqs start at 1, follow each other over batches, writers and trims, and are never used again."""
    journal, key = ctx.journal, thread()
    expected = 0
    batches = []
    for name, sizes in (("a", (1, 3)), ("b", (2,)), ("c", (1, 1, 5))):
        writer = Writer(journal, key, name)
        ctx.equal(writer.base, expected, f"the last seq that the claim of {name} tells")
        for place, size in enumerate(sizes):
            new = batch(f"{name}{place}", size)
            receipt = writer.append(new)
            ctx.equal((receipt.first_seq, receipt.last_seq), (expected + 1, expected + size), f"seqs of {new.batch_id}")
            expected += size
            batches.append(new)
            ctx.equal(head_of(ctx, journal, key).last_seq, expected, "the head's last seq")
    same_events(ctx, read_all(ctx, journal, key), as_read(tuple(batches)), "all events")
    trimmed = journal.trim(key, expected + 1)
    ctx.check(trimmed.last_seq == expected, "a trim moved last_seq")
    last = Writer(ctx.open_journal(), key, "d")
    receipt = last.append(batch("d0", 2))
    ctx.equal((receipt.first_seq, receipt.last_seq), (expected + 1, expected + 2), "seqs after everything was trimmed")


@rule(
    "HEAD-3.chain",
    level=1,
    hint="the chain is computed from the batch alone, or is not carried over a claim",
    kills=("chain-stays", "chain-ignores-epoch"),
)
def chain(ctx: Context) -> None:
    """The chain digest follows from digests, seqs and epochs alone: anybody can compute it from the receipts."""
    journal = ctx.journal
    other = ctx.other_namespace().journal
    chains = []
    for store, key in ((journal, thread("one")), (journal, thread("two")), (other, thread("three", user=None))):
        expected = CHAIN_START
        writer = Writer(store, key, "a")
        for name in ("a", "b"):
            writer = writer if name == "a" else Writer(store, key, name)
            for place in range(3):
                receipt = writer.append(batch(f"{name}{place}", place + 1))
                expected = chained(expected, receipt)
                head = head_of(ctx, store, key)
                ctx.equal(head.chain, expected, f"the chain after batch {receipt.batch_id} of epoch {receipt.epoch}")
        store.heartbeat(writer.claim)
        ctx.equal(head_of(ctx, store, key).chain, expected, "the chain after a heartbeat")
        report = store.verify(key, deep=True)
        ctx.equal(report.findings, (), "findings of a deep verification")
        ctx.equal((report.batches, report.events), (6, 12), "batches and events that it checked")
        chains.append(expected)
    ctx.equal(len(set(chains)), 1, "how many chains three equal histories have")


@rule(
    "HEAD-4",
    level=1,
    hint="blobs of a lost attempt are used again by the next one, though a collector may be about to delete them",
    kills=("blob-name-used-again",),
)
def blob_names(ctx: Context) -> None:
    """A blob's name tells the generation that it was built on; an attempt after a lost one uses new names."""
    adversary = Adversary(ctx.open_atomic())
    key = thread()
    scope = f"t/{key.name}"
    writer = Writer(ctx.backend.journal_over(adversary.client(gate=conflict_once(adversary.storage, scope))), key)
    writer.journal.heartbeat(writer.claim)
    writer.fill(2, payload=_BIG)
    lost = ctx.backend.journal_over(adversary.client(gate=conflict_once(adversary.storage, scope)))
    lost.append(writer.claim, batch("last", payload=_BIG), writer.base)
    attempts = [request.blobs for request in adversary.sent if request.blobs]
    ctx.equal(len(attempts), 2, "how often a commit with blobs was sent after it met a newer head")
    ctx.check(not set(attempts[0]) & set(attempts[1]), f"names were used again: {attempts[0]}, {attempts[1]}")
    ctx.equal(len(read_all(ctx, lost, key)), 3, "events at the end")
    generation = head_of(ctx, lost, key).generation
    for names in attempts:
        for name in names:
            built_on = int(name.partition("-")[0], 16)
            ctx.check(0 < built_on < generation, f"{name} does not begin with the generation it was built on")


def _append_many(ctx: Context, journal: ThreadJournalStore, claim: WriterClaim, sizes: list[int]) -> list[Receipt]:
    """Append batches of the given sizes behind each other, as many at once as one call takes."""
    requests = []
    base = claim.last_seq
    for place, size in enumerate(sizes):
        requests.append(AppendRequest(claim, batch(f"b{place}", size), base))
        base += size
    limit = ctx.capabilities.limits.group_batches_max
    receipts = []
    for start in range(0, len(requests), limit):
        for outcome in journal.append_many(requests[start : start + limit]):
            ctx.check(isinstance(outcome, Receipt), f"a batch of a long journal was refused: {outcome!r}")
            if isinstance(outcome, Receipt):
                receipts.append(outcome)
    return receipts


@rule(
    "HEAD-5.long",
    level=1,
    hint="a page is cut at a segment, a driver's page or a power of two",
    kills=("page-edge-lost", "page-edge-repeated", "cut-at-1000"),
)
def long_journal(ctx: Context) -> None:
    """In a journal of thousands of events any page, at any place, holds exactly the events that belong there.

    Cases: 14.
    """
    journal, key = ctx.journal, thread()
    grouped = Feature.GROUP_COMMIT in ctx.capabilities.features
    sizes = [1] * 3_000 if grouped else [place % 17 + 3 for place in range(250)]
    claim = journal.claim(key, "writer")
    receipts = _append_many(ctx, journal, claim, sizes)
    ctx.equal(len(receipts), len(sizes), "how many batches were appended")
    total = sum(sizes)
    expected = as_read(tuple(batch(f"b{place}", size) for place, size in enumerate(sizes)))
    reader = ctx.open_journal()
    for limit in (64, 65, 1_000, 10_000):
        same_events(ctx, read_all(ctx, reader, key, limit=limit), expected, f"the whole journal in pages of {limit}")
    for limit in (1, 64, 65, 1_000):
        places = {0, 1, 63, 64, 65, 127, 128, 999, 1_000, 1_001, total - limit - 1, total - limit, total - 1, total}
        for after in sorted(place for place in places if 0 <= place <= total):
            page = reader.read_after(key, after, limit)
            same_events(ctx, page.events, expected[after : after + limit], f"the page of {limit} behind {after}")
            ctx.equal(page.has_more, after + limit < total, f"has_more of the page of {limit} behind {after}")
    ctx.raises(JournalRegressed, lambda: reader.read_after(key, total + 1), "reading behind the end")
    ctx.equal(reader.verify(key, deep=True).findings, (), "findings of a deep verification")


@rule(
    "HEAD-5.edges",
    level=1,
    hint="a batch that is larger than the head's tail, or that just fills it, takes another path",
    kills=("page-edge-lost", "tail-edge-lost"),
)
def tail_edges(ctx: Context) -> None:
    """Batches around the size of a head's tail, larger than it, and of 1 and of 1,000 events come back as they were."""
    journal, key = ctx.journal, thread()
    writer = Writer(journal, key)
    overhead = len(encode_batch(batch("b0")))
    sizes = [_TAIL_BYTES + delta - overhead for delta in (-400, -300, -200, -100, -1, 0, 1)]
    sizes += [_TAIL_BYTES // 2 - overhead, _TAIL_BYTES // 2 - overhead, 100_000, 1, 300_000, 1]
    for size in sizes:
        writer.append(batch(f"b{len(writer.batches)}", payload=b'"' + b"y" * size + b'"'))
    for events in (1, 1_000, 1, 999):
        writer.append(batch(f"b{len(writer.batches)}", events, payload=b"[1]"))
    expected = as_read(tuple(writer.batches))
    for reader in (journal, ctx.open_journal()):
        same_events(ctx, read_all(ctx, reader, key), expected, "all events")
        same_events(ctx, read_all(ctx, reader, key, limit=100), expected, "all events in pages of 100")
        for place, receipt in enumerate(writer.receipts):
            page = reader.read_after(key, receipt.first_seq - 1, 1)
            same_events(
                ctx, page.events, expected[receipt.first_seq - 1 : receipt.first_seq], f"the first event of b{place}"
            )
    ctx.equal(journal.verify(key, deep=True).findings, (), "findings of a deep verification")


@rule(
    "HEAD-5.bounded",
    level=1,
    hint="the index in the head has no second level, or the tail is never moved out of it",
    kills=("head-grows",),
)
def bounded(ctx: Context) -> None:
    """Core's head over the backend's storage stays bounded, and a page costs the index levels and its own segments."""
    adversary = Adversary(ctx.open_atomic())
    key = thread()
    writer = Writer(ctx.backend.journal_over(adversary.client()), key)
    segments = _REFERENCES + 4
    payload = b'"' + b"z" * (_TAIL_BYTES + 1) + b'"'
    writer.fill(segments, payload=payload)
    longest = max(len(request.head) for request in adversary.sent)
    ctx.check(
        longest <= _TAIL_BYTES + _HEAD_SLACK_BYTES,
        f"a head of {segments} segments has {longest} bytes: it is not bounded",
    )
    reader = ctx.backend.journal_over(adversary.client())
    for after in (0, 1, segments // 2, segments - 2):
        adversary.blob_reads = 0
        page = reader.read_after(key, after, 1)
        ctx.equal([event.seq for event in page.events], [after + 1], f"the page behind {after}")
        ctx.check(adversary.blob_reads <= 3, f"a page of one event behind {after} read {adversary.blob_reads} blobs")
    adversary.blob_reads = 0
    reader.head(key)
    ctx.equal(adversary.blob_reads, 0, "how many blobs were read for a head")


@rule(
    "HEAD-6",
    level=1,
    hint="each batch is written as a blob of its own, or the head is read before every append",
    kills=("tail-not-used",),
)
def one_write(ctx: Context) -> None:
    """Through core's journal an append that fits the head's tail is one conditional write, and nothing else."""
    adversary = Adversary(ctx.open_atomic())
    key = thread()
    writer = Writer(ctx.backend.journal_over(adversary.client()), key)
    writer.append(batch("first"))
    adversary.sent.clear()
    adversary.reads = adversary.blob_reads = 0
    writer.fill(20, events=3)
    ctx.equal(len(adversary.sent), 20, "commits of 20 appends")
    ctx.equal(sum(len(request.blobs) for request in adversary.sent), 0, "blobs of 20 small appends")
    ctx.equal((adversary.reads, adversary.blob_reads), (0, 0), "reads of 20 appends by the writer that is alone")
    ctx.equal(len(read_all(ctx, writer.journal, key)), 61, "events at the end")
