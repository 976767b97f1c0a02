"""A real backend that plays a history: each step is one call, its answer written down with labels."""

from __future__ import annotations

import secrets
from collections import defaultdict
from functools import partial
from typing import Final, assert_never

from statebook.errors import (
    CursorConflict,
    CursorFenced,
    CursorInvalid,
    InvalidConfiguration,
    StatebookError,
    VersionConflict,
    WriterBusy,
    WriterFenced,
)
from statebook.journal import ThreadJournalStore
from statebook.keys import StateKey, ThreadKey, ThreadScope
from statebook.model import (
    ABSENT,
    ANY,
    NONE,
    AppendRequest,
    ClaimInfo,
    ExpectedVersion,
    ExportCursor,
    JournalHead,
    Receipt,
    SlotKind,
    WriterClaim,
)
from statebook.state import AgentStateStore
from statebook_conformance.differential import steps as do
from statebook_conformance.differential.answers import (
    Answer,
    Skipped,
    answer_of,
    event_fields,
    key_fields,
    shown,
)
from statebook_conformance.differential.labels import HeadWatch, Incarnations, Ranks
from statebook_conformance.differential.make import too_small
from statebook_conformance.differential.patient import PatientCaller
from statebook_conformance.target import Target

TIMEOUT_S: Final = 60.0
"""How long a step may take, in seconds, before it counts as hung."""

_NEVER: Final = 1_000_003


class StorePlayer:
    """Plays a history on a backend, in a fresh namespace that is removed at the end.

    Attributes:
        shown: The target without secrets.
    """

    def __init__(self, target: Target, *, timeout_s: float = TIMEOUT_S) -> None:
        """Open the handles of both stores.

        Args:
            target: The backend.
            timeout_s: How long a step may take, in seconds, before it counts as hung.

        Raises:
            InvalidConfiguration: Its limits are below what a history needs.
            StatebookError: It cannot be opened.
        """
        self.shown = target.shown
        self._backend = target.backend(f"differential-{secrets.token_hex(8)}")
        self._journals = [self._backend.open_journal() for _ in range(do.HANDLES)]
        self._states = [self._backend.open_state() for _ in range(do.HANDLES)]
        small = too_small(self._journals[0].capabilities.limits)
        if small:
            self._close()
            raise InvalidConfiguration(f"{self.shown}: a history needs larger limits: {', '.join(small)}")
        self._journal = JournalPlayer()
        self._state = StatePlayer()
        self._caller = PatientCaller(timeout_s)

    def play(self, step: do.Step) -> Answer:
        """Do one step.

        Args:
            step: The step.

        Returns:
            Its answer, with labels; what did not come back in time says so.
        """
        return self._caller.call(lambda: self._play(step))

    def _play(self, step: do.Step) -> Answer:
        if isinstance(step, do.Reopen):
            return answer_of(lambda: self._reopen(step.handle), lambda _: {})
        if isinstance(step, do.StateStep):
            return self._state.play(step, self._states[step.handle])
        return self._journal.play(step, self._journals[step.handle])

    def _reopen(self, handle: int) -> Answer:
        self._journals[handle].close()
        self._states[handle].close()
        self._journals[handle] = self._backend.open_journal()
        self._states[handle] = self._backend.open_state()
        return {"reopened": handle}

    def close(self) -> None:
        """Close the stores and remove the namespace. A store of which a call hangs is left as it is.

        Raises:
            StatebookError: The namespace cannot be removed.
        """
        self._caller.call(self._close)
        self._caller.end()

    def _close(self) -> Answer:
        for journal in self._journals:
            journal.close()
        for state in self._states:
            state.close()
        return {"removed": self._backend.destroy_namespace()}


class JournalPlayer:
    """The journal's side, with what earlier steps have got."""

    def __init__(self) -> None:
        """Nothing was got."""
        self._claims: dict[int, WriterClaim] = {}
        self._cursors: dict[int, ExportCursor] = {}
        self._incarnations: dict[ThreadKey, Incarnations] = defaultdict(Incarnations)
        self._heads: dict[ThreadKey, HeadWatch] = defaultdict(HeadWatch)
        self._epochs: dict[tuple[ThreadKey, str], Ranks] = defaultdict(Ranks)
        self._versions: dict[tuple[ThreadKey, str], Ranks] = defaultdict(Ranks)
        self._nonces: dict[str, int] = {}

    def play(self, step: do.JournalStep, store: ThreadJournalStore) -> Answer:
        """Do one step through a handle."""
        return answer_of(lambda: self._call(step, store), lambda error: self._fields(error, step))

    def _call(self, step: do.JournalStep, store: ThreadJournalStore) -> Answer:
        match step:
            case do.Head():
                return self._head(step.thread, store.head(step.thread))
            case do.Claim():
                return self._claimed(step, store)
            case do.Heartbeat():
                store.heartbeat(self._claim(step.claim))
                return {"done": "heartbeat"}
            case do.Release():
                store.release(self._claim(step.claim))
                return {"done": "release"}
            case do.Append():
                request = self._request(step.sending)
                return self._receipt(request.claim.key, store.append(request.claim, request.batch, request.base_seq))
            case do.AppendMany():
                return self._appended(step, store)
            case do.Settle():
                claim = self._claim(step.claim)
                settled = store.settle(claim, step.batch_id, step.base)
                return {"settled": None if settled is None else self._receipt(claim.key, settled)}
            case do.Verify():
                report = store.verify(step.thread, deep=True)
                return {"findings": [[finding.what, finding.seq] for finding in report.findings]}
            case do.Collect():
                store.collect(step.thread)
                self._heads[step.thread].forget()
                return {"done": "collect"}
            case do.Trim():
                return self._head(step.thread, store.trim(step.thread, step.before))
            case do.DeleteJournal():
                return {"deleted": store.delete(step.thread)}
            case do.Read() | do.ListThreads():
                return self._read(step, store)
            case do.OpenCursor() | do.AdvanceCursor() | do.ResetCursor():
                return self._moved(step, store)
            case _:
                assert_never(step)

    def _read(self, step: do.Read | do.ListThreads, store: ThreadJournalStore) -> Answer:
        if isinstance(step, do.Read):
            page = store.read_after(step.thread, step.seq, step.limit)
            events = [event_fields(event.seq, event) for event in page.events]
            return {"events": events, "has_more": page.has_more, "last_seq": page.last_seq}
        scope = ThreadScope(step.user, step.agent, step.session)
        threads = store.list_threads(scope, after=step.after, limit=step.limit)
        return {"threads": [key_fields(key) for key in threads.threads], "has_more": threads.has_more}

    # ------------------------------------------------------------------------------------------------------- claims

    def _claim(self, step: int) -> WriterClaim:
        if step not in self._claims:
            raise Skipped(f"step {step} got no claim")
        return self._claims[step]

    def _claimed(self, step: do.Claim, store: ThreadJournalStore) -> Answer:
        if isinstance(step.replacing, int):
            claim = store.claim(step.thread, step.writer, replacing=self._claim(step.replacing).info)
        else:
            claim = store.claim(step.thread, step.writer, replacing=ANY if step.replacing == "any" else NONE)
        first = self._nonces.setdefault(claim.nonce, step.number)
        self._claims[step.number] = claim
        return {
            "key": key_fields(claim.key),
            "incarnation": self._incarnations[step.thread].label(claim.journal_id),
            "writer": claim.writer_id,
            "epoch": claim.epoch,
            "nonce": "fresh" if first == step.number else f"that of step {first}",
            "last_seq": claim.last_seq,
            "checkpoint": claim.checkpoint_seq,
        }

    def _holder(self, info: ClaimInfo | None) -> object:
        """Who holds a journal: the step that got the claim."""
        if info is None:
            return None
        found = [number for number, claim in self._claims.items() if claim.info == info]
        return found[-1] if found else f"a claim that no step got: {info.writer_id!r} of epoch {info.epoch}"

    def _request(self, sending: do.Sending) -> AppendRequest:
        return AppendRequest(self._claim(sending.claim), sending.batch.batch(), sending.base)

    def _appended(self, step: do.AppendMany, store: ThreadJournalStore) -> Answer:
        requests = [self._request(sending) for sending in step.sendings]
        return {
            "outcomes": [
                self._receipt(request.claim.key, outcome)
                if isinstance(outcome, Receipt)
                else answer_of(partial(_raise, outcome), lambda error: self._fields(error, step))
                for request, outcome in zip(requests, store.append_many(requests), strict=True)
            ]
        }

    def _receipt(self, key: ThreadKey, receipt: Receipt) -> dict[str, object]:
        return {
            "batch": receipt.batch_id,
            "incarnation": self._incarnations[key].label(receipt.journal_id),
            "first": receipt.first_seq,
            "last": receipt.last_seq,
            "epoch": receipt.epoch,
            "digest": receipt.digest,
            "replayed": receipt.replayed,
        }

    def _head(self, thread: ThreadKey, head: JournalHead | None) -> Answer:
        if head is None:
            return {"head": None}
        return {
            "key": key_fields(head.key),
            "incarnation": self._incarnations[thread].label(head.journal_id),
            "epoch": head.epoch,
            "holder": self._holder(head.claim),
            "first": head.first_seq,
            "last": head.last_seq,
            "checkpoint": head.checkpoint_seq,
            "chain": head.chain,
            "writes": self._heads[thread].moved(head),
        }

    # ------------------------------------------------------------------------------------------------------ cursors

    def _cursor(self, step: int) -> ExportCursor:
        if step not in self._cursors:
            raise Skipped(f"step {step} got no cursor")
        return self._cursors[step]

    def _moved(self, step: do.OpenCursor | do.AdvanceCursor | do.ResetCursor, store: ThreadJournalStore) -> Answer:
        if isinstance(step, do.OpenCursor):
            cursor = store.open_cursor(step.thread, step.exporter)
        elif isinstance(step, do.AdvanceCursor):
            cursor = store.advance_cursor(self._cursor(step.cursor), step.to)
        else:
            version = 0 if step.version_of is None else self._cursor(step.version_of).version
            cursor = store.reset_cursor(step.thread, step.exporter, step.to, expected_version=version)
        self._cursors[step.number] = cursor
        place = (cursor.key, cursor.exporter)
        return {
            "key": key_fields(cursor.key),
            "exporter": cursor.exporter,
            "incarnation": self._incarnations[cursor.key].label(cursor.journal_id),
            "acked": cursor.acked_seq,
            "epoch": self._epochs[place].seen(cursor.epoch),
            "version": self._versions[place].seen(cursor.version),
            "opened by": self._nonces.setdefault(cursor.nonce, step.number),
        }

    def _place(self, step: do.JournalStep) -> tuple[ThreadKey, str]:
        if isinstance(step, do.AdvanceCursor):
            cursor = self._cursor(step.cursor)
            return cursor.key, cursor.exporter
        if isinstance(step, (do.OpenCursor, do.ResetCursor)):
            return step.thread, step.exporter
        raise Skipped("an error of cursors for a call that is about none")

    # ------------------------------------------------------------------------------------------------------- errors

    def _fields(self, error: StatebookError, step: do.JournalStep) -> Answer:
        match error:
            case WriterBusy():
                return {"holder": self._holder(error.holder)}
            case WriterFenced():
                key = self._fenced_key(error, step)
                landed = None if error.committed is None or key is None else self._receipt(key, error.committed)
                return {"epoch": error.current_epoch, "landed": landed}
            case CursorFenced():
                return {"epoch": self._epochs[self._place(step)].known(error.current_epoch)}
            case CursorConflict(current_version=version) | CursorInvalid(version=version):
                return {"version": 0 if version == 0 else self._versions[self._place(step)].known(version)}
            case _:
                return {"no error of journals": type(error).__name__}

    def _fenced_key(self, error: WriterFenced, step: do.JournalStep) -> ThreadKey | None:
        claims = [self._claims[n] for n in _claims_of(step) if n in self._claims]
        return next((claim.key for claim in claims if error.key in (None, claim.key.name)), None)


def _claims_of(step: do.JournalStep) -> tuple[int, ...]:
    match step:
        case do.Append():
            return (step.sending.claim,)
        case do.AppendMany():
            return tuple(sending.claim for sending in step.sendings)
        case do.Settle() | do.Heartbeat() | do.Release():
            return (step.claim,)
        case _:
            return ()


def _raise(error: StatebookError) -> Answer:
    raise error


class StatePlayer:
    """The state's side, with what earlier steps have got."""

    def __init__(self) -> None:
        """Nothing was got."""
        self._ranks: dict[tuple[StateKey, SlotKind], Ranks] = defaultdict(Ranks)
        self._got: dict[int, int] = {}

    def play(self, step: do.StateStep, store: AgentStateStore) -> Answer:
        """Do one step through a handle."""
        return answer_of(lambda: self._call(step, store), lambda error: self._fields(error, step))

    def _call(self, step: do.StateStep, store: AgentStateStore) -> Answer:
        match step:
            case do.Save() | do.ReplaceList() | do.AppendList():
                return self._written(step, store)
            case do.Load():
                value = store.load(step.slot)
                if value is None:
                    return {"value": None}
                version = self._ranks[step.slot, SlotKind.DOCUMENT].known(value.version)
                return {"value": shown(value.value), "version": version}
            case do.LoadList():
                items = store.load_list(step.slot)
                if items is None:
                    return {"items": None}
                version = self._ranks[step.slot, SlotKind.LIST].known(items.version)
                return {"items": [shown(item) for item in items.items], "version": version}
            case do.DeleteSlot():
                expected = self._expected(step.slot, step.kind, step.expected)
                return {"deleted": store.delete(step.slot, kind=step.kind, expected=expected)}
            case do.DeleteSession():
                return {"deleted": store.delete_session(step.session)}
            case do.Exists():
                return {"exists": store.exists(step.session)}
            case do.ListKeys():
                keys = store.list_keys(step.session, kind=step.kind, after=step.after, limit=step.limit)
                return {"keys": [key_fields(key) for key in keys.keys], "has_more": keys.has_more}
            case do.ListSessions():
                found = store.list_sessions(step.user, after=step.after, limit=step.limit)
                return {"sessions": [key_fields(key) for key in found.sessions], "has_more": found.has_more}
            case _:
                assert_never(step)

    def _written(self, step: do.Save | do.ReplaceList | do.AppendList, store: AgentStateStore) -> Answer:
        kind = SlotKind.DOCUMENT if isinstance(step, do.Save) else SlotKind.LIST
        if isinstance(step, do.Save):
            expected = self._expected(step.slot, kind, step.expected)
            version = store.save(step.slot, step.value.encode(), expected=expected)
        elif isinstance(step, do.ReplaceList):
            expected = self._expected(step.slot, kind, step.expected)
            version = store.replace_list(step.slot, [item.encode() for item in step.items], expected=expected)
        else:
            items = [item.encode() for item in step.items]
            version = store.append_list(step.slot, items, expected_length=step.length)
        self._got[step.number] = version
        return {"version": self._ranks[step.slot, kind].issued(version)}

    def _expected(self, slot: StateKey, kind: SlotKind, expected: do.Expected) -> ExpectedVersion:
        if isinstance(expected, int):
            if expected not in self._got:
                raise Skipped(f"step {expected} got no version")
            return self._got[expected]
        if expected == "never":
            return self._ranks[slot, kind].largest + _NEVER
        return ANY if expected == "any" else ABSENT

    def _fields(self, error: StatebookError, step: do.StateStep) -> Answer:
        if not isinstance(error, VersionConflict):
            return {"no error of state": type(error).__name__}
        match step:
            case do.Save():
                place = (step.slot, SlotKind.DOCUMENT)
            case do.ReplaceList() | do.AppendList():
                place = (step.slot, SlotKind.LIST)
            case do.DeleteSlot():
                place = (step.slot, step.kind)
            case _:
                return {"a conflict of a call that has no condition": type(step).__name__}
        return {"version": self._ranks[place].known(error.current_version), "length": error.current_length}
