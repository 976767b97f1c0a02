"""ThreadCheckpoints: begin, commit, export and fork working states (J11, J12, J21)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import msgspec
from pydantic import ValidationError

from statebook.codec import Json
from statebook.errors import HeadConflict, InvalidValue, JournalNotFound, StatebookError, WriterBusy
from statebook.ids import new_id as fresh_id
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import Event, Receipt
from statebook.patience import PATIENCE, Patience
from statebook.provision import Initialized, fork, initialize
from statebook.thread import ThreadJournal, wall_clock_ms
from statebook.threads.checkpoint_payload import POSITION, PROVENANCE, Checkpoint
from statebook.threads.codecs import JournalEventCodecRegistry, State
from statebook.threads.mirror import MirrorOutcome, MirrorPlace, StateMirror
from statebook.threads.payload import Message, build_event
from statebook.threads.position import AgentExecutionPosition
from statebook.threads.recovery import ThreadRecovery

_IDENTITY: Final = ("user_id", "session_id", "agent_id", "thread_id")


class Snapshot(msgspec.Struct, frozen=True):
    """An exported copy of a thread's state.

    Attributes:
        key: The thread.
        journal_id: Its incarnation.
        state: The state.
        as_of_seq: Everything up to this seq is in it.
    """

    key: ThreadKey
    journal_id: str
    state: State
    as_of_seq: int


class CommittedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint that is in the journal.

    Attributes:
        receipt: Of the batch that holds it.
        mirrored: What became of its mirror; None where none was asked for or it failed.
        mirror_error: Why the mirror failed, or None. The checkpoint is committed all the same: mirror again later.
    """

    receipt: Receipt
    mirrored: MirrorOutcome | None = None
    mirror_error: StatebookError | None = None


class ThreadCheckpoints:
    """The checkpoints of the threads of one store. Blocking; holds nothing between calls."""

    def __init__(
        self,
        store: ThreadJournalStore,
        *,
        registry: JournalEventCodecRegistry | None = None,
        mirror: StateMirror | None = None,
        validate: Callable[[State], object] | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        new_id: Callable[[], str] = fresh_id,
        sleep: Callable[[float], None] = time.sleep,
        patience: Patience = PATIENCE,
    ) -> None:
        """Make the service. No I/O.

        Args:
            store: The open journal store.
            registry: The event types; None for those of statebook alone.
            mirror: Where the main threads' committed checkpoints are mirrored; None for nowhere.
            validate: Checks a state before it is written, such as `AgentState.from_mapping`.
            clock_ms: Unix time in milliseconds, for events.
            new_id: Makes event ids and batch ids.
            sleep: Waits so many seconds before a call is sent again.
            patience: How often and how patiently.
        """
        self._store = store
        self._mirror = mirror
        self._validate = validate
        self._clock_ms = clock_ms
        self._new_id = new_id
        self._sleep = sleep
        self._patience = patience
        self._recovery = ThreadRecovery(registry, validate=validate, clock_ms=clock_ms, new_id=new_id)

    # -------------------------------------------------------------------------------------------------------- commit

    def event(self, state: State, position: AgentExecutionPosition) -> Event:
        """Build a checkpoint event, to be appended last in the batch of the facts that led to it. No I/O.

        Args:
            state: The state.
            position: Where execution stands.

        Returns:
            The event.

        Raises:
            InvalidValue: The state is not valid, or has a member `position` or `provenance`.
        """
        self._check(state)
        checkpoint = Checkpoint(state=cast("Message", dict(state)), position=position)
        return build_event(
            checkpoint,
            event_id=self._new_id(),
            occurred_at=self._clock_ms(),
            run_id=position.run_id,
            turn_id=position.turn_id,
        )

    def commit(
        self, journal: ThreadJournal, events: Sequence[Event], state: State, position: AgentExecutionPosition
    ) -> CommittedCheckpoint:
        """Commit facts and the state behind them in one batch, then mirror the main thread's state.

        Guarantees J12, APPEND-6: a reader and a crash see both or neither. J11: a mirror that fails is reported and
        undoes nothing.

        Args:
            journal: A handle that has claimed the thread.
            events: The facts; may be empty.
            state: The state behind them.
            position: The position behind them.

        Returns:
            The receipt, and what became of the mirror.

        Raises:
            InvalidValue: The state is not valid; nothing was written.
            StatebookError: As `ThreadJournal.append_batch`.
        """
        receipt = journal.append(*events, self.event(state, position), batch_id=self._new_id())
        return self._mirrored(journal.key, state, receipt)

    def _mirrored(self, key: ThreadKey, state: State, receipt: Receipt) -> CommittedCheckpoint:
        if self._mirror is None:
            return CommittedCheckpoint(receipt)
        place = MirrorPlace(receipt.journal_id, receipt.epoch, receipt.last_seq)
        try:
            return CommittedCheckpoint(receipt, self._mirror.write(key, state, place))
        except StatebookError as error:
            return CommittedCheckpoint(receipt, None, error)

    def mirror_again(self, key: ThreadKey) -> MirrorOutcome:
        """Mirror the last committed checkpoint of a main thread, as after a crash between commit and mirror.

        Args:
            key: The thread.

        Returns:
            What became of it.

        Raises:
            ValueError: No mirror was given.
            JournalNotFound: There is no journal, or no checkpoint.
            StatebookError: As `ThreadRecovery.load` and `StateMirror.write`.
        """
        if self._mirror is None:
            raise ValueError("no mirror was given")
        head = self._store.head(key)
        if head is None or head.checkpoint_seq is None:
            raise JournalNotFound("there is no checkpoint to mirror", key=key.name)
        event = self._store.read_after(key, head.checkpoint_seq - 1, 1).events[0]
        checkpoint = self._recovery.checkpoint(event)
        place = MirrorPlace(head.journal_id, head.epoch, event.seq)
        return self._mirror.write(key, cast("State", checkpoint.state), place)

    # ------------------------------------------------------------------------------------------------ begin and export

    def initialize(
        self, key: ThreadKey, writer_id: str, state: State, *, provenance: Mapping[str, Json]
    ) -> Initialized:
        """Begin a thread with a state, in a target that is empty and free; see `statebook.initialize` (LIFE-6).

        Args:
            key: The target.
            writer_id: Who initialises.
            state: The state.
            provenance: Where it comes from.

        Returns:
            What was done, or found done.

        Raises:
            InvalidValue: The state is not valid, or has a member `position` or `provenance`; nothing was written.
            HeadConflict: The target holds something else.
            WriterBusy: Another writer holds the target.
            StatebookError: As `statebook.initialize`.
        """
        self._check(state)
        return initialize(
            self._store,
            key,
            writer_id,
            state,
            provenance=provenance,
            clock_ms=self._clock_ms,
            sleep=self._sleep,
            patience=self._patience,
        )

    def export_snapshot(self, key: ThreadKey) -> Snapshot:
        """Export the state of a thread that nobody writes and in which nothing is unfinished (J21).

        Args:
            key: The thread.

        Returns:
            The state and the seq that it is true at.

        Raises:
            JournalNotFound: There is no journal, or no state in it.
            WriterBusy: A writer holds the thread.
            HeadConflict: Something is unfinished, or the thread moved meanwhile.
            StatebookError: As `ThreadRecovery.load`.
        """
        head = self._store.head(key)
        if head is None:
            raise JournalNotFound("there is no thread to export", key=key.name)
        if head.claim is not None:
            raise WriterBusy(
                f"writer {head.claim.writer_id!r} holds the thread; export it when it is released",
                holder=head.claim,
                key=key.name,
            )
        thread = self._recovery.load(ThreadJournal(self._store, key))
        if thread.position.unfinished:
            raise _unfinished(key, thread.position, thread.as_of_seq)
        if thread.state is None:
            raise JournalNotFound("the thread has no state to export", key=key.name)
        again = self._store.head(key)
        if again is None or (again.journal_id, again.epoch) != (head.journal_id, head.epoch):
            raise HeadConflict("the thread was claimed while it was exported; export it again", key=key.name)
        return Snapshot(key, thread.journal_id, thread.state, thread.as_of_seq)

    def export_state(self, key: ThreadKey) -> State:
        """Export the state alone; see `export_snapshot`.

        Args:
            key: The thread.

        Returns:
            The state.

        Raises:
            StatebookError: As `export_snapshot`.
        """
        return self.export_snapshot(key).state

    def fork(
        self,
        source: ThreadKey,
        target: ThreadKey,
        writer_id: str,
        *,
        target_store: ThreadJournalStore | None = None,
        rewrite: Callable[[State], State] | None = None,
    ) -> Initialized:
        """Begin a thread with the last checkpoint of another one, in which nothing is unfinished (LIFE-6, J21).

        The state's members `user_id`, `session_id`, `agent_id` and `thread_id`, where it has them, become the target's.
        The fork starts with fresh counters.

        Args:
            source: The thread to fork; stays as it is.
            target: The new thread.
            writer_id: Who forks.
            target_store: The store of the target, of any backend; None for the source's.
            rewrite: Changes more of the state; must be deterministic.

        Returns:
            What was done, or found done.

        Raises:
            JournalNotFound: There is no source.
            WriterBusy: A writer holds the source, or another one the target.
            HeadConflict: Something in the source is unfinished, it does not end with a checkpoint, or the target holds
                something else. Nothing was written.
            StatebookError: As `statebook.fork` and `ThreadRecovery.load`.
        """
        head = self._store.head(source)
        if head is not None and head.claim is None:  # a claim is refused below
            thread = self._recovery.load(ThreadJournal(self._store, source))
            if thread.position.unfinished:
                raise _unfinished(source, thread.position, thread.as_of_seq)
        return fork(
            self._store,
            source,
            target,
            writer_id,
            target_store=target_store,
            rewrite=lambda payload: self._rewritten(source, target, payload, rewrite),
            clock_ms=self._clock_ms,
            sleep=self._sleep,
            patience=self._patience,
        )

    def _rewritten(
        self, source: ThreadKey, target: ThreadKey, payload: State, rewrite: Callable[[State], State] | None
    ) -> State:
        """Look at the very checkpoint that is forked, not at one before it, and replace the identity."""
        try:
            checkpoint = Checkpoint.from_json(dict(payload))
        except ValidationError as error:
            raise InvalidValue("the source's checkpoint is not valid", key=source.name) from error
        if checkpoint.position is not None and checkpoint.position.unfinished:
            raise _unfinished(source, checkpoint.position, None)
        state: dict[str, Json] = dict(cast("State", checkpoint.state))
        for name in _IDENTITY:
            if name in state:
                state[name] = getattr(target, name)
        rewritten = state if rewrite is None else rewrite(state)
        self._check(rewritten)
        return rewritten

    def _check(self, state: State) -> None:
        taken = {POSITION, PROVENANCE} & state.keys()
        if taken:
            raise InvalidValue(f"a state has no member {min(taken)!r} of its own; a checkpoint puts it there")
        if self._validate is not None:
            try:
                self._validate(state)
            except (ValueError, StatebookError) as error:
                raise InvalidValue("the state is not valid; nothing was written") from error


def _unfinished(key: ThreadKey, position: AgentExecutionPosition, last_seq: int | None) -> HeadConflict:
    return HeadConflict(
        f"the thread has unfinished work: {position.describe()}; finish or reconcile it first",
        last_seq=last_seq,
        key=key.name,
    )
