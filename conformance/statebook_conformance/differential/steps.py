"""The steps of a history, and the file that one is kept in: JSON lines, which any set of targets can repeat.

A step names what it needs from an earlier one by that step's number, such as the claim that it got. Where that step is
left out, or was refused, the step is skipped: so a history stays one when steps are taken out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from statebook.keys import SessionKey, StateKey, ThreadKey
from statebook.model import Batch, Event, SlotKind

HISTORY_VERSION: Final = 1
"""The version of the file's form."""

HANDLES: Final = 2
"""Through how many handles of each store a history goes: what one has done, the other must see."""


class HistoryFileError(Exception):
    """A file is no history of this kind."""


class StepBase(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", omit_defaults=True):
    """What every step has.

    Attributes:
        number: Its number in the history that it was made for; it keeps it when others are taken out.
        handle: Through which handle it goes, from 0.
    """

    number: int
    handle: int = 0


class EventText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event as text.

    Attributes:
        event_id: As in `Event`; so are the others.
        type: The type.
        payload: One JSON document.
        occurred_at: Milliseconds.
        run_id: The run.
        turn_id: The turn.
        required: Whether a reader must know the type.
    """

    event_id: str
    type: str = "model/response"
    payload: str = "{}"
    occurred_at: int = 1_000
    run_id: str | None = None
    turn_id: str | None = None
    required: bool = False


class BatchText(msgspec.Struct, frozen=True):
    """A batch as text.

    Attributes:
        batch_id: Its id.
        events: Its events.
    """

    batch_id: str
    events: tuple[EventText, ...]

    def batch(self) -> Batch:
        """The batch that is appended."""
        return Batch(
            self.batch_id,
            tuple(
                Event(
                    event_id=event.event_id,
                    type=event.type,
                    occurred_at=event.occurred_at,
                    payload=event.payload.encode(),
                    run_id=event.run_id,
                    turn_id=event.turn_id,
                    required=event.required,
                )
                for event in self.events
            ),
        )


class Sending(msgspec.Struct, frozen=True):
    """What an append sends.

    Attributes:
        claim: The step that got the claim.
        batch: The batch.
        base: The base.
    """

    claim: int
    batch: BatchText
    base: int


Expected: TypeAlias = Literal["any", "absent", "never"] | int
"""A condition on a slot: none, absence, a version that was never issued, or the version that a step got."""


class Head(StepBase, frozen=True, tag="head"):
    """Read a head."""

    thread: ThreadKey


class Claim(StepBase, frozen=True, tag="claim"):
    """Claim a journal: from anybody, if it is free, or from the claim that a step got."""

    thread: ThreadKey
    writer: str
    replacing: Literal["any", "none"] | int = "any"


class Heartbeat(StepBase, frozen=True, tag="heartbeat"):
    """Heartbeat of the claim that a step got."""

    claim: int


class Release(StepBase, frozen=True, tag="release"):
    """Release the claim that a step got."""

    claim: int


class Append(StepBase, frozen=True, tag="append"):
    """Append one batch."""

    sending: Sending


class AppendMany(StepBase, frozen=True, tag="append_many"):
    """Append batches of several threads in one call."""

    sendings: tuple[Sending, ...]


class Settle(StepBase, frozen=True, tag="settle"):
    """Settle a batch through the claim that a step got."""

    claim: int
    batch_id: str
    base: int


class Read(StepBase, frozen=True, tag="read_after"):
    """Read a page."""

    thread: ThreadKey
    seq: int
    limit: int


class OpenCursor(StepBase, frozen=True, tag="open_cursor"):
    """Open a cursor."""

    thread: ThreadKey
    exporter: str


class AdvanceCursor(StepBase, frozen=True, tag="advance_cursor"):
    """Advance the cursor that a step got."""

    cursor: int
    to: int


class ResetCursor(StepBase, frozen=True, tag="reset_cursor"):
    """Reset a cursor that is expected at the version which a step got; None: that there is none yet."""

    thread: ThreadKey
    exporter: str
    to: int
    version_of: int | None = None


class ListThreads(StepBase, frozen=True, tag="list_threads"):
    """List threads of a scope."""

    user: str | None
    limit: int
    agent: str | None = None
    session: str | None = None
    after: ThreadKey | None = None


class Trim(StepBase, frozen=True, tag="trim"):
    """Trim a journal."""

    thread: ThreadKey
    before: int


class DeleteJournal(StepBase, frozen=True, tag="delete_journal"):
    """Delete a journal."""

    thread: ThreadKey


class Verify(StepBase, frozen=True, tag="verify"):
    """Verify a journal to its ground."""

    thread: ThreadKey


class Collect(StepBase, frozen=True, tag="collect"):
    """Collect what failed commits left behind."""

    thread: ThreadKey


class Save(StepBase, frozen=True, tag="save"):
    """Save a document."""

    slot: StateKey
    value: str
    expected: Expected = "any"


class Load(StepBase, frozen=True, tag="load"):
    """Load a document."""

    slot: StateKey


class ReplaceList(StepBase, frozen=True, tag="replace_list"):
    """Replace a list."""

    slot: StateKey
    items: tuple[str, ...]
    expected: Expected = "any"


class AppendList(StepBase, frozen=True, tag="append_list"):
    """Append to a list."""

    slot: StateKey
    items: tuple[str, ...]
    length: int


class LoadList(StepBase, frozen=True, tag="load_list"):
    """Load a list."""

    slot: StateKey


class DeleteSlot(StepBase, frozen=True, tag="delete"):
    """Delete a slot."""

    slot: StateKey
    kind: SlotKind
    expected: Expected = "any"


class DeleteSession(StepBase, frozen=True, tag="delete_session"):
    """Delete a session."""

    session: SessionKey


class Exists(StepBase, frozen=True, tag="exists"):
    """Ask whether a session has a live slot."""

    session: SessionKey


class ListKeys(StepBase, frozen=True, tag="list_keys"):
    """List the slots of a session."""

    session: SessionKey
    kind: SlotKind
    limit: int
    after: StateKey | None = None


class ListSessions(StepBase, frozen=True, tag="list_sessions"):
    """List the sessions of a user."""

    user: str | None
    limit: int
    after: SessionKey | None = None


class Reopen(StepBase, frozen=True, tag="reopen"):
    """Close a handle of both stores and open another in its place."""


JournalStep: TypeAlias = (
    Head
    | Claim
    | Heartbeat
    | Release
    | Append
    | AppendMany
    | Settle
    | Read
    | OpenCursor
    | AdvanceCursor
    | ResetCursor
    | ListThreads
    | Trim
    | DeleteJournal
    | Verify
    | Collect
)
StateStep: TypeAlias = (
    Save | Load | ReplaceList | AppendList | LoadList | DeleteSlot | DeleteSession | Exists | ListKeys | ListSessions
)
Step: TypeAlias = JournalStep | StateStep | Reopen


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file: where the history comes from.

    Attributes:
        statebook_differential: The version of the file's form.
        seed: The seed that it was made from.
        made: How many steps were made; fewer may be left.
        target: The target that answered otherwise than the model, without secrets.
        step: The number of the step that got the answer.
        expected: The model's answer, as JSON.
        found: The target's answer, as JSON.
    """

    statebook_differential: int
    seed: int
    made: int
    target: str
    step: int
    expected: str
    found: str


_STEP: Final[msgspec.json.Decoder[Step]] = msgspec.json.Decoder(Step)
_ORIGIN: Final = msgspec.json.Decoder(Origin)


def save_history(path: Path, origin: Origin, steps: Sequence[Step]) -> None:
    """Keep a history: its origin, then a line a step.

    Args:
        path: The file; its folder is created where it is absent.
        origin: Where it comes from.
        steps: The steps.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in (origin, *steps)))


def load_history(path: Path) -> tuple[Origin, tuple[Step, ...]]:
    """Read a history.

    Args:
        path: The file.

    Returns:
        Its origin and its steps.

    Raises:
        HistoryFileError: It is none; names the line.
    """
    number = 0
    try:
        first, *rest = path.read_bytes().splitlines()
        number = 1
        origin = _ORIGIN.decode(first)
        if origin.statebook_differential != HISTORY_VERSION:
            raise HistoryFileError(f"{path} is of version {origin.statebook_differential}, not {HISTORY_VERSION}")
        steps = []
        for number, line in enumerate(rest, 2):  # noqa: B007 - named by the error
            steps.append(_STEP.decode(line))
    except (OSError, ValueError) as error:
        raise HistoryFileError(f"{path}, line {number}: no step of a differential history: {error}") from error
    return origin, tuple(steps)
