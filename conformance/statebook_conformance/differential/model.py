"""The model that plays a history: the contract in plain Python, one caller at a time. Knows no backend.

It answers each step in the same words as a real backend does, see `answers`. Journals are `JournalModel`'s, state is
`StateModelPlayer`'s; here are cursors, listings, and what an error carries.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, assert_never

import msgspec

from statebook.codec import CHAIN_START, chain_next, digest, encode_batch
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import Batch
from statebook_conformance.differential import steps as do
from statebook_conformance.differential.answers import Answer, Skipped, error_answer, event_fields, key_fields
from statebook_conformance.differential.labels import TRIMMED
from statebook_conformance.differential.model_state import StateModelPlayer, page_of
from statebook_conformance.journal_model import Held, JournalModel, Placed

WINDOW: Final = 64
"""How many batches back a batch or event id is recognised whatever the base (APPEND-1)."""


class CursorModel(msgspec.Struct, frozen=True):
    """A cursor's record.

    Attributes:
        incarnation: The incarnation that it exports.
        acked: Everything up to this seq is acknowledged.
        epoch: How often it was opened.
        version: How often the record was changed.
        opener: The step that opened it last.
    """

    incarnation: int
    acked: int
    epoch: int
    version: int
    opener: int


class Got(msgspec.Struct, frozen=True):
    """A claim or a cursor that a step got.

    Attributes:
        thread: Of which thread.
        held: The claim, or None.
        exporter: The cursor's exporter.
        cursor: The cursor as it was then, or None.
    """

    thread: ThreadKey
    held: Held | None = None
    exporter: str = ""
    cursor: CursorModel | None = None


class ThreadModel:
    """One thread: its journal, how often its head was written, its cursors.

    Attributes:
        journal: The journal.
        writes: How often the head was written since it was last seen, or None where it was not seen.
        seen_first: The first seq when the head of this incarnation was last seen, or 1.
        chain: The running chain digest.
        holders: Which step got a claim.
        cursors: The records by exporter.
    """

    def __init__(self) -> None:
        """A thread that was never written."""
        self.journal = JournalModel()
        self.writes: int | None = None
        self.seen_first = 1
        self.chain = CHAIN_START
        self.holders: dict[Held, int] = {}
        self.cursors: dict[str, CursorModel] = {}

    def wrote(self) -> None:
        """Count one write of the head."""
        if self.writes is not None:
            self.writes += 1

    @property
    def holder(self) -> int | None:
        """The step that got the claim which holds the journal."""
        held = self.journal.holder
        return None if held is None else self.holders[held]


class ModelPlayer:
    """Plays a history on the model.

    Attributes:
        shown: `model`.
        threads: The threads, by key.
        got: What steps have got.
        state: The state's side.
    """

    def __init__(self) -> None:
        """Begin where nothing was written."""
        self.shown = "model"
        self.threads: dict[ThreadKey, ThreadModel] = defaultdict(ThreadModel)
        self.got: dict[int, Got] = {}
        self.state = StateModelPlayer()

    def play(self, step: do.Step) -> Answer:
        """Do one step.

        Args:
            step: The step.

        Returns:
            What the contract wants to be answered.
        """
        try:
            if isinstance(step, do.Reopen):
                return {"reopened": step.handle}
            if isinstance(step, do.StateStep):
                return self.state.play(step)
            return self._journal(step)
        except Skipped as missing:
            return {"skipped": str(missing)}

    def close(self) -> None:
        """Nothing to close."""

    def _journal(self, step: do.JournalStep) -> Answer:
        match step:
            case do.Head():
                return self._head(step.thread)
            case do.Claim():
                return self._claim(step)
            case do.Heartbeat() | do.Release():
                return self._held_call(step)
            case do.Append():
                return self._append(step.sending)
            case do.AppendMany():
                return self._append_many(step)
            case do.Settle():
                return self._settle(step)
            case do.Read():
                return self._read(step)
            case do.OpenCursor() | do.AdvanceCursor() | do.ResetCursor():
                return self._cursor(step)
            case do.ListThreads():
                return self._threads(step)
            case do.Trim():
                return self._trim(step)
            case do.DeleteJournal():
                return self._delete(step)
            case do.Verify():
                return {"findings": []}
            case do.Collect():
                self.threads[step.thread].writes = None
                return {"done": "collect"}
            case _:
                assert_never(step)

    # ------------------------------------------------------------------------------------------------------- claims

    def _held(self, step: int) -> tuple[ThreadKey, Held]:
        got = self.got.get(step)
        if got is None or got.held is None:
            raise Skipped(f"step {step} got no claim")
        return got.thread, got.held

    def _claim(self, step: do.Claim) -> Answer:
        thread = self.threads[step.thread]
        journal = thread.journal
        replacing: Held | str = (
            self._held(step.replacing)[1] if isinstance(step.replacing, int) else str(step.replacing)
        )
        holder, was_alive = thread.holder, journal.alive
        if isinstance(step.replacing, int) and self._held(step.replacing)[0] != step.thread:
            return error_answer("WriterBusy", holder=holder)
        held = journal.claim(replacing)
        if isinstance(held, str):
            return error_answer(held, holder=holder)
        if not was_alive:
            thread.chain = CHAIN_START
            thread.seen_first = 1
        thread.wrote()
        thread.holders[held] = step.number
        self.got[step.number] = Got(step.thread, held)
        return {
            "key": key_fields(step.thread),
            "incarnation": journal.incarnation,
            "writer": step.writer,
            "epoch": held.epoch,
            "nonce": "fresh",
            "last_seq": journal.last,
            "checkpoint": journal.checkpoint,
        }

    def _held_call(self, step: do.Heartbeat | do.Release) -> Answer:
        key, held = self._held(step.claim)
        thread = self.threads[key]
        if isinstance(step, do.Heartbeat):
            name, said = "heartbeat", thread.journal.heartbeat(held)
        else:
            name, said = "release", thread.journal.release(held)
        if said == "WriterFenced":
            return self._fenced(thread)
        if said == "ok":
            thread.wrote()
        return {"done": name}

    def _fenced(self, thread: ThreadModel, landed: Answer | None = None) -> Answer:
        return error_answer("WriterFenced", epoch=thread.journal.epoch, landed=landed)

    # ------------------------------------------------------------------------------------------------------ batches

    def _receipt(self, thread: ThreadModel, place: Placed, *, replayed: bool) -> dict[str, object]:
        return {
            "batch": place.batch.batch_id,
            "incarnation": thread.journal.incarnation,
            "first": place.first,
            "last": place.last,
            "epoch": place.epoch,
            "digest": digest(encode_batch(place.batch)),
            "replayed": replayed,
        }

    def _append(self, sending: do.Sending) -> Answer:
        key, held = self._held(sending.claim)
        thread, batch = self.threads[key], sending.batch.batch()
        journal = thread.journal
        overlap = self._overlap(journal, held, batch)
        if overlap is not None:
            return error_answer("BatchConflict", batch_id=batch.batch_id, event_id=overlap)
        said, place = journal.append(held, batch, sending.base)
        match said:
            case "committed" | "replayed":
                assert place is not None
                receipt = self._receipt(thread, place, replayed=said == "replayed")
                if said == "committed":
                    thread.wrote()
                    thread.chain = chain_next(
                        thread.chain, str(receipt["digest"]), place.first, place.last, place.epoch
                    )
                return receipt
            case "BatchConflict":
                return error_answer("BatchConflict", batch_id=batch.batch_id, event_id=None)
            case "WriterFenced":
                return self._fenced(thread, None if place is None else self._receipt(thread, place, replayed=True))
            case "HeadConflict":
                return error_answer("HeadConflict", last_seq=journal.last, base_seq=sending.base)
            case _:
                return error_answer(said, last_seq=journal.last, seen_seq=sending.base)

    def _overlap(self, journal: JournalModel, held: Held, batch: Batch) -> str | None:
        """The first event id of a new batch that the window has; trimmed events are in the window too."""
        if journal.is_gone(held) or journal.find(batch.batch_id) is not None:
            return None
        there = {event.event_id for entry in journal.placed[-WINDOW:] for event in entry.batch.events}
        return next((event.event_id for event in batch.events if event.event_id in there), None)

    def _append_many(self, step: do.AppendMany) -> Answer:
        for sending in step.sendings:
            self._held(sending.claim)
        return {"outcomes": [self._append(sending) for sending in step.sendings]}

    def _settle(self, step: do.Settle) -> Answer:
        key, held = self._held(step.claim)
        thread = self.threads[key]
        said, place = thread.journal.settle(held, step.batch_id, step.base)
        if place is not None:
            return {"settled": self._receipt(thread, place, replayed=True)}
        if said == "WriterFenced":
            return self._fenced(thread)
        if said == "Trimmed":
            return error_answer("Trimmed", first_seq=thread.journal.first)
        thread.wrote()
        return {"settled": None}

    # ------------------------------------------------------------------------------------------------------ readers

    def _head(self, key: ThreadKey) -> Answer:
        thread = self.threads[key]
        journal = thread.journal
        if not journal.alive:
            return {"head": None}
        writes: int | str | None = thread.writes
        if writes is not None and journal.first > thread.seen_first:
            writes = TRIMMED
        thread.writes, thread.seen_first = 0, journal.first
        return {
            "key": key_fields(key),
            "incarnation": journal.incarnation,
            "epoch": journal.epoch,
            "holder": thread.holder,
            "first": journal.first,
            "last": journal.last,
            "checkpoint": journal.checkpoint,
            "chain": thread.chain,
            "writes": "not seen before" if writes is None else writes,
        }

    def _read(self, step: do.Read) -> Answer:
        journal = self.threads[step.thread].journal
        if step.seq < 0 or not 1 <= step.limit <= 10_000:
            return error_answer("ValueError")
        last = journal.last if journal.alive else 0
        said = journal.read(step.seq)
        if said == "JournalRegressed":
            return error_answer(said, last_seq=last, seen_seq=step.seq)
        if said == "Trimmed":
            return error_answer(said, first_seq=journal.first)
        there = self._events(journal, step.seq) if journal.alive else []
        return {"events": there[: step.limit], "has_more": len(there) > step.limit, "last_seq": last}

    def _events(self, journal: JournalModel, after: int) -> list[list[object]]:
        return [
            event_fields(entry.first + offset, event)
            for entry in journal.placed
            for offset, event in enumerate(entry.batch.events)
            if entry.first + offset > max(after, journal.first - 1)
        ]

    def _threads(self, step: do.ListThreads) -> Answer:
        scope = ThreadScope(step.user, step.agent, step.session)
        if step.after is not None and not scope.covers(step.after):
            return error_answer("ValueError")
        live = [key for key, thread in self.threads.items() if thread.journal.alive and scope.covers(key)]
        chosen, more = page_of(live, step.after, step.limit)
        return {"threads": chosen, "has_more": more}

    # -------------------------------------------------------------------------------------------------- maintenance

    def _trim(self, step: do.Trim) -> Answer:
        thread = self.threads[step.thread]
        journal = thread.journal
        acked = [cursor.acked for cursor in thread.cursors.values() if cursor.incarnation == journal.incarnation]
        said = journal.trim(min([step.before, *(seq + 1 for seq in acked)]))
        if said == "JournalNotFound":
            return error_answer(said)
        if said == "moved":
            thread.wrote()
        return self._head(step.thread)

    def _delete(self, step: do.DeleteJournal) -> Answer:
        thread = self.threads[step.thread]
        was = thread.journal.delete()
        if was:
            thread.wrote()
        return {"deleted": was}

    # ------------------------------------------------------------------------------------------------------ cursors

    def _cursor(self, step: do.OpenCursor | do.AdvanceCursor | do.ResetCursor) -> Answer:
        if isinstance(step, do.OpenCursor):
            place = Got(step.thread, exporter=step.exporter)
            changed = self._open(step, self.threads[step.thread])
        elif isinstance(step, do.AdvanceCursor):
            place = self._opened(step.cursor)
            changed = self._advance(step.to, place, self.threads[place.thread])
        else:
            place = Got(step.thread, exporter=step.exporter)
            version = None if step.version_of is None else self._opened(step.version_of).cursor
            changed = self._reset(step, 0 if version is None else version.version, self.threads[step.thread])
        if not isinstance(changed, CursorModel):
            return changed
        self.threads[place.thread].cursors[place.exporter] = changed
        self.got[step.number] = msgspec.structs.replace(place, cursor=changed)
        return {
            "key": key_fields(place.thread),
            "exporter": place.exporter,
            "incarnation": changed.incarnation,
            "acked": changed.acked,
            "epoch": changed.epoch,
            "version": changed.version,
            "opened by": changed.opener,
        }

    def _opened(self, step: int) -> Got:
        got = self.got.get(step)
        if got is None or got.cursor is None:
            raise Skipped(f"step {step} got no cursor")
        return got

    def _wrong_place(self, journal: JournalModel, seq: int) -> Answer | None:
        if not journal.alive:
            return error_answer("JournalNotFound")
        if seq > journal.last:
            return error_answer("JournalRegressed", last_seq=journal.last, seen_seq=seq)
        return error_answer("Trimmed", first_seq=journal.first) if seq < journal.first - 1 else None

    def _open(self, step: do.OpenCursor, thread: ThreadModel) -> Answer | CursorModel:
        journal, record = thread.journal, thread.cursors.get(step.exporter)
        if not journal.alive:
            return error_answer("JournalNotFound")
        if record is None:
            return CursorModel(journal.incarnation, journal.first - 1, 1, 1, step.number)
        if record.incarnation != journal.incarnation:
            return error_answer("CursorInvalid", version=record.version)
        wrong = self._wrong_place(journal, record.acked)
        if wrong is not None:
            return wrong
        return CursorModel(record.incarnation, record.acked, record.epoch + 1, record.version + 1, step.number)

    def _advance(self, to: int, place: Got, thread: ThreadModel) -> Answer | CursorModel:
        journal, record, held = thread.journal, thread.cursors.get(place.exporter), place.cursor
        assert held is not None
        assert record is not None
        if not journal.alive:
            return error_answer("JournalNotFound")
        if journal.incarnation != held.incarnation or record.incarnation != journal.incarnation:
            return error_answer("CursorInvalid", version=record.version)
        if record.opener != held.opener:
            return error_answer("CursorFenced", epoch=record.epoch)
        wrong = self._wrong_place(journal, record.acked)
        if wrong is not None:
            return wrong
        if to < record.acked:
            return error_answer("CursorRegression")
        if to > journal.last:
            return error_answer("JournalRegressed", last_seq=journal.last, seen_seq=to)
        moved = record.version + (to != record.acked)
        return msgspec.structs.replace(record, acked=to, version=moved)

    def _reset(self, step: do.ResetCursor, expected: int, thread: ThreadModel) -> Answer | CursorModel:
        journal, record = thread.journal, thread.cursors.get(step.exporter)
        wrong = self._wrong_place(journal, step.to)
        if wrong is not None:
            return wrong
        version = 0 if record is None else record.version
        if version != expected:
            return error_answer("CursorConflict", version=version)
        epoch = 0 if record is None else record.epoch
        return CursorModel(journal.incarnation, step.to, epoch + 1, version + 1, step.number)
