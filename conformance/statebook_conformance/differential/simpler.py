"""Histories that do less than a given one and may still show the same difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from statebook.keys import ThreadKey
from statebook_conformance.differential import steps as do

History = tuple[do.Step, ...]


def simpler(history: Sequence[do.Step], place: int) -> Iterator[History]:
    """Histories in which one step is simpler, or is left out together with what it had moved.

    Args:
        history: The history.
        place: Which step, from 0.

    Yields:
        Histories to try, at most as long; the ones that do the least come first.
    """
    step = history[place]
    before, behind = tuple(history[:place]), tuple(history[place + 1 :])
    if isinstance(step, do.Append):
        yield (*before, *_moved_back(behind, step.sending, history))
        for fewer in _fewer_events(step.sending):
            yield (*before, msgspec.structs.replace(step, sending=fewer), *behind)
    if isinstance(step, do.AppendMany):
        for sending in step.sendings:
            rest = tuple(other for other in step.sendings if other is not sending)
            if rest:
                yield (*before, msgspec.structs.replace(step, sendings=rest), *behind)
                smaller = msgspec.structs.replace(step, sendings=rest)
                yield (*before, smaller, *_moved_back(behind, sending, history))
        if len(step.sendings) == 1:
            yield (*before, *_moved_back(behind, step.sendings[0], history))
            single = do.Append(number=step.number, handle=step.handle, sending=step.sendings[0])
            yield (*before, single, *behind)
    if isinstance(step, do.AdvanceCursor):
        origin = next((earlier for earlier in before if earlier.number == step.cursor), None)
        if isinstance(origin, do.AdvanceCursor):
            yield (*before, msgspec.structs.replace(step, cursor=origin.cursor), *behind)


def _fewer_events(sending: do.Sending) -> Iterator[do.Sending]:
    events = sending.batch.events
    for place in range(len(events)):
        rest = (*events[:place], *events[place + 1 :])
        if rest:
            yield msgspec.structs.replace(sending, batch=do.BatchText(sending.batch.batch_id, rest))


def _moved_back(behind: Sequence[do.Step], gone: do.Sending, history: Sequence[do.Step]) -> Iterator[do.Step]:
    """The steps behind a batch that is left out, as if its events had never taken a seq."""
    threads = {
        step.number: step.thread for step in history if isinstance(step, (do.Claim, do.OpenCursor, do.ResetCursor))
    }
    for step in history:
        if isinstance(step, do.AdvanceCursor) and step.cursor in threads:
            threads[step.number] = threads[step.cursor]
    thread, count = threads.get(gone.claim), len(gone.batch.events)
    for step in behind:
        yield step if thread is None else _less(step, thread, count, threads)


def _less(step: do.Step, thread: ThreadKey, count: int, threads: dict[int, ThreadKey]) -> do.Step:
    def back(seq: int) -> int:
        return max(0, seq - count)

    def sent(sending: do.Sending) -> do.Sending:
        own = threads.get(sending.claim) == thread
        return msgspec.structs.replace(sending, base=back(sending.base)) if own else sending

    match step:
        case do.Append():
            return msgspec.structs.replace(step, sending=sent(step.sending))
        case do.AppendMany():
            return msgspec.structs.replace(step, sendings=tuple(sent(sending) for sending in step.sendings))
        case do.Settle() if threads.get(step.claim) == thread:
            return msgspec.structs.replace(step, base=back(step.base))
        case do.Read() if step.thread == thread:
            return msgspec.structs.replace(step, seq=back(step.seq))
        case do.Trim() if step.thread == thread:
            return msgspec.structs.replace(step, before=back(step.before))
        case do.AdvanceCursor() if threads.get(step.cursor) == thread:
            return msgspec.structs.replace(step, to=back(step.to))
        case do.ResetCursor() if step.thread == thread:
            return msgspec.structs.replace(step, to=back(step.to))
        case _:
            return step
