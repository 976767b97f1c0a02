"""ThreadInteractions: what a thread waits for somebody to answer, and how its run goes on with the answers (J14)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from statebook.errors import InvalidValue
from statebook.threads.codecs import JournalEventCodecRegistry
from statebook.threads.history import JournalReads
from statebook.threads.position import PendingInteraction
from statebook.threads.projection import JournalProjection


class ContinuationRequests(msgspec.Struct, frozen=True):
    """Open interactions that are to be answered together.

    Attributes:
        run_id: The run that asked: the one to continue.
        turn_id: Its turn.
        step: Its step.
        requests: The interactions, in the order in which they were asked.
        as_of_seq: They are open as of this seq.
    """

    run_id: str | None
    turn_id: str | None
    step: int
    requests: tuple[PendingInteraction, ...]
    as_of_seq: int


class ThreadInteractions:
    """Reads what is open. Claims and changes nothing."""

    def __init__(self, registry: JournalEventCodecRegistry | None = None) -> None:
        """Make a reader.

        Args:
            registry: The event types; None for those of statebook alone.
        """
        self._registry = registry or JournalEventCodecRegistry()

    def pending(self, journal: JournalReads) -> tuple[PendingInteraction, ...]:
        """The interactions without an answer.

        Args:
            journal: The thread's journal; no claim is needed.

        Returns:
            The interactions, in the order in which they were asked.

        Raises:
            JournalCorrupt: A payload does not validate.
        """
        return JournalProjection.read_from_checkpoint(journal, registry=self._registry).pending.interactions

    def continuation_requests(self, journal: JournalReads, selected: Sequence[str]) -> ContinuationRequests:
        """Check a selection of open interactions, and say which run and step asked for them.

        Guarantees J14: nothing that is unknown, answered or asked elsewhere is continued by mistake. Nothing is
        changed; the answers are recorded by the run that continues.

        Args:
            journal: The thread's journal; no claim is needed.
            selected: The ids of the interactions.

        Returns:
            The interactions with their original run and step.

        Raises:
            InvalidValue: The selection is empty, names one twice, names one that is not open, or mixes runs or steps.
            JournalCorrupt: A payload does not validate.
        """
        projection = JournalProjection.read_from_checkpoint(journal, registry=self._registry)
        return check_selection(projection, selected, journal.key.name)


def check_selection(projection: JournalProjection, selected: Sequence[str], key: str | None) -> ContinuationRequests:
    """Check a selection against a projection; see `ThreadInteractions.continuation_requests`.

    Args:
        projection: The projection.
        selected: The ids of the interactions.
        key: The thread, for errors.

    Returns:
        The interactions with their original run and step.

    Raises:
        InvalidValue: The selection is not valid.
    """
    wanted = set(selected)
    if not selected or len(wanted) != len(selected):
        raise InvalidValue("select at least one interaction, and each once", key=key)
    requests = tuple(asked for asked in projection.pending.interactions if asked.interaction_id in wanted)
    unknown = wanted - {asked.interaction_id for asked in requests}
    if unknown:
        raise InvalidValue(f"interaction {min(unknown)!r} is not open in this thread: unknown, or answered", key=key)
    places = {(asked.run_id, asked.step) for asked in requests}
    if len(places) > 1:
        raise InvalidValue("the selected interactions were asked by different runs or steps; continue one", key=key)
    first = requests[0]
    return ContinuationRequests(first.run_id, first.turn_id, first.step, requests, projection.as_of_seq)
