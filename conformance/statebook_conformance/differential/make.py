"""Makes a random history from a seed: mostly calls that mean something where they stand, by a look at the model.

Choices follow the model, never a backend, so that one seed makes one history wherever it is played.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, Literal

from statebook.capabilities import Limits
from statebook.keys import SessionKey, StateKey, ThreadKey
from statebook.model import SlotKind
from statebook_conformance.differential import steps as do
from statebook_conformance.differential.model import WINDOW, ModelPlayer, ThreadModel

_THREADS: Final = (
    ThreadKey("user", "agent", "session", "thread"),
    ThreadKey("user", "agent", "session", "Thread"),
    ThreadKey(None, "agent", "session", "thread"),
    ThreadKey("user", "agent", "session/2", "caf\u00e9"),
)
_SLOTS: Final = (
    StateKey("user", "session", "key"),
    StateKey("user", "session", "Key"),
    StateKey("user", "session", "key/2"),
    StateKey("user", "session2", "key"),
    StateKey(None, "session", "key"),
    StateKey("None", "session", "key"),
)
_EXPORTERS: Final = ("sink", "Sink")
_WRITERS: Final = ("writer", "other writer")
_VALUES: Final = (
    "{}",
    "null",
    '"\\u0000"',
    "-0.0",
    "12345678901234567890123",
    '{"caf\u00e9":"\U0001f600"}',
    "[1,[2,[3]]]",
    '""',
)
_LIMITS: Final = (1, 1, 2, 3, 10, 1_000)
_CHECKPOINT: Final = "state/checkpoint"
_RECENT: Final = WINDOW - 8
"""How far back batches are sent again: well inside the window that every backend recognises."""

_WEIGHTS: Final[dict[str, int]] = {
    "claim": 6,
    "append": 22,
    "append_again": 8,
    "append_other": 4,
    "append_many": 5,
    "settle": 5,
    "heartbeat": 3,
    "release": 3,
    "head": 8,
    "read": 9,
    "open_cursor": 4,
    "advance_cursor": 6,
    "reset_cursor": 3,
    "list_threads": 4,
    "trim": 4,
    "delete_journal": 1,
    "verify": 2,
    "collect": 1,
    "save": 10,
    "load": 8,
    "replace_list": 6,
    "append_list": 8,
    "load_list": 6,
    "delete": 5,
    "delete_session": 1,
    "exists": 4,
    "list_keys": 5,
    "list_sessions": 4,
    "reopen": 1,
}


NEEDED: Final[Mapping[str, int]] = {
    "value_bytes_max": 256,
    "list_bytes_max": 64 * 1024,
    "batch_events_max": 4,
    "batch_bytes_max": 4 * 1024,
    "group_batches_max": 4,
}
"""What a history takes for granted of a backend's limits."""


def too_small(limits: Limits) -> tuple[str, ...]:
    """The limits of a backend that are below what a history needs.

    Args:
        limits: The limits.

    Returns:
        A few words for each; none where any history fits.
    """
    declared = {name: int(getattr(limits, name)) for name in NEEDED}
    return tuple(f"{name} is {declared[name]} of {least}" for name, least in NEEDED.items() if declared[name] < least)


def make_history(seed: int, length: int) -> tuple[do.Step, ...]:
    """Make a history.

    Args:
        seed: The seed.
        length: How many steps.

    Returns:
        The steps: `length` random ones, then a look at everything that was written.
    """
    maker = _Maker(seed)
    return (*(maker.next() for _ in range(length)), *maker.looks())


class _Maker:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"differential:{seed}")
        self._model = ModelPlayer()
        self._number = 0
        self._sent: dict[ThreadKey, list[do.Sending]] = {key: [] for key in _THREADS}
        self._got: dict[tuple[StateKey, SlotKind], list[int]] = {}
        self._batches = 0

    def next(self) -> do.Step:
        """The next step; the model has done it."""
        (kind,) = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        makers: dict[str, Callable[[], do.Step | None]] = {
            "claim": self._claim,
            "append": self._append,
            "append_again": self._append_again,
            "append_other": self._append_other,
            "append_many": self._append_many,
            "settle": self._settle,
            "heartbeat": lambda: self._held(lambda claim: do.Heartbeat(**self._common(), claim=claim)),
            "release": lambda: self._held(lambda claim: do.Release(**self._common(), claim=claim)),
            "head": lambda: do.Head(**self._common(), thread=self._thread()),
            "read": self._read,
            "open_cursor": lambda: do.OpenCursor(
                **self._common(), thread=self._thread(), exporter=self._random.choice(_EXPORTERS)
            ),
            "advance_cursor": self._advance,
            "reset_cursor": self._reset,
            "list_threads": self._list_threads,
            "trim": self._trim,
            "delete_journal": lambda: do.DeleteJournal(**self._common(), thread=self._thread()),
            "verify": lambda: do.Verify(**self._common(), thread=self._thread()),
            "collect": lambda: do.Collect(**self._common(), thread=self._thread()),
            "save": self._save,
            "load": lambda: do.Load(**self._common(), slot=self._slot()),
            "replace_list": self._replace,
            "append_list": self._append_list,
            "load_list": lambda: do.LoadList(**self._common(), slot=self._slot()),
            "delete": self._delete,
            "delete_session": lambda: do.DeleteSession(**self._common(), session=self._slot().session),
            "exists": lambda: do.Exists(**self._common(), session=self._slot().session),
            "list_keys": self._list_keys,
            "list_sessions": self._list_sessions,
            "reopen": lambda: do.Reopen(**self._common()),
        }
        return self._done(makers[kind]() or self._claim())

    def looks(self) -> tuple[do.Step, ...]:
        """Steps that look at everything there is."""
        looks: list[do.Step] = []
        for handle in range(do.HANDLES):
            for key in _THREADS:
                journal = self._model.threads[key].journal
                first = journal.first - 1 if journal.alive else 0
                looks.append(do.Head(number=self._fresh(), handle=handle, thread=key))
                looks.append(do.Read(number=self._fresh(), handle=handle, thread=key, seq=first, limit=10_000))
                looks.append(do.Verify(number=self._fresh(), handle=handle, thread=key))
            for slot in _SLOTS:
                looks.append(do.Load(number=self._fresh(), handle=handle, slot=slot))
                looks.append(do.LoadList(number=self._fresh(), handle=handle, slot=slot))
            for user in ("user", None, "None"):
                looks.append(do.ListThreads(number=self._fresh(), handle=handle, user=user, limit=1_000))
                looks.append(do.ListSessions(number=self._fresh(), handle=handle, user=user, limit=1_000))
        return tuple(looks)

    # ------------------------------------------------------------------------------------------------------ choices

    def _fresh(self) -> int:
        self._number += 1
        return self._number

    def _common(self) -> dict[str, int]:
        return {"number": self._fresh(), "handle": self._random.randrange(do.HANDLES)}

    def _done(self, step: do.Step) -> do.Step:
        answer = self._model.play(step)
        if "version" in answer and "error" not in answer and isinstance(step, (do.Save, do.ReplaceList, do.AppendList)):
            kind = SlotKind.DOCUMENT if isinstance(step, do.Save) else SlotKind.LIST
            self._got.setdefault((step.slot, kind), []).append(step.number)
        return step

    def _thread(self) -> ThreadKey:
        return self._random.choices(_THREADS, (5, 2, 2, 1))[0]

    def _slot(self) -> StateKey:
        return self._random.choices(_SLOTS, (5, 2, 2, 2, 2, 1))[0]

    def _held_claim(self, key: ThreadKey) -> int | None:
        """A claim of a thread: mostly the one that holds it."""
        thread = self._model.threads[key]
        if thread.holder is not None and self._random.random() < 0.85:
            return thread.holder
        given = [number for number, got in self._model.got.items() if got.thread == key and got.held is not None]
        return self._random.choice(given[-6:]) if given else None

    def _held(self, make: Callable[[int], do.Step]) -> do.Step | None:
        claim = self._held_claim(self._thread())
        return None if claim is None else make(claim)

    # ------------------------------------------------------------------------------------------------------ writers

    def _claim(self) -> do.Step:
        key = self._thread()
        choice = self._random.random()
        replacing: Literal["any", "none"] | int = "any"
        if choice < 0.2:
            replacing = "none"
        elif choice < 0.5:
            held = self._held_claim(key)
            replacing = "any" if held is None else held
        return do.Claim(**self._common(), thread=key, writer=self._random.choice(_WRITERS), replacing=replacing)

    def _new_batch(self) -> do.BatchText:
        self._batches += 1
        name = f"b{self._batches}"
        size = self._random.choice((1, 1, 1, 2, 3))
        checkpoint = self._random.randrange(size) if self._random.random() < 0.12 else None
        return do.BatchText(name, tuple(self._event(f"{name}.{place}", place == checkpoint) for place in range(size)))

    def _event(self, event_id: str, checkpoint: bool) -> do.EventText:  # noqa: FBT001 - private
        run = self._random.choice((None, None, "run"))
        return do.EventText(
            event_id=event_id,
            type=_CHECKPOINT if checkpoint else self._random.choice(("model/response", "tool/call")),
            payload=self._random.choice(_VALUES),
            occurred_at=self._random.choice((0, 1_000, (1 << 53) - 1)),
            run_id=run,
            turn_id=None if run is None else self._random.choice((None, "turn")),
            required=self._random.random() < 0.2,
        )

    def _base(self, key: ThreadKey) -> int:
        last = self._model.threads[key].journal.last
        return max(0, last + self._random.choices((0, 1, -1, 7), (17, 1, 1, 1))[0])

    def _sending(self, key: ThreadKey) -> do.Sending | None:
        claim = self._held_claim(key)
        if claim is None:
            return None
        sending = do.Sending(claim, self._new_batch(), self._base(key))
        self._sent[key].append(sending)
        return sending

    def _append(self) -> do.Step | None:
        sending = self._sending(self._thread())
        return None if sending is None else do.Append(**self._common(), sending=sending)

    def _recent(self, key: ThreadKey) -> do.Sending | None:
        """What was sent to a thread not long ago: recognised by every backend, if it is there."""
        thread = self._model.threads[key]
        new = {entry.batch.batch_id for entry in thread.journal.placed[-_RECENT:]}
        old = {entry.batch.batch_id for entry in thread.journal.placed} - new
        sent = [sending for sending in self._sent[key][-_RECENT:] if sending.batch.batch_id not in old]
        return self._random.choice(sent) if sent else None

    def _append_again(self) -> do.Step | None:
        key = self._thread()
        sent, claim = self._recent(key), self._held_claim(key)
        if sent is None or claim is None:
            return None
        base = self._random.choice((sent.base, sent.base, self._base(key), 0))
        return do.Append(**self._common(), sending=do.Sending(claim, sent.batch, base))

    def _append_other(self) -> do.Step | None:
        """The same batch id with other content, or a new batch with an event id that is there.

        Never the id of an event that was trimmed: stores that read the window again from the journal have forgotten it,
        and whether they may is not said.
        """
        key = self._thread()
        sent, claim = self._recent(key), self._held_claim(key)
        if sent is None or claim is None:
            return None
        old = self._random.choice(sent.batch.events)
        fresh = self._new_batch()
        if self._random.random() < 0.5 or self._is_trimmed(key, old.event_id):
            changed = do.BatchText(sent.batch.batch_id, fresh.events)
            return do.Append(**self._common(), sending=do.Sending(claim, changed, sent.base))
        overlapping = do.BatchText(fresh.batch_id, (*fresh.events, old))
        return do.Append(**self._common(), sending=do.Sending(claim, overlapping, self._base(key)))

    def _is_trimmed(self, key: ThreadKey, event_id: str) -> bool:
        journal = self._model.threads[key].journal
        ever = {event.event_id for entry in journal.placed for event in entry.batch.events}
        return event_id in ever - {left for _, left, _ in journal.events(0)}

    def _append_many(self) -> do.Step | None:
        sendings = [self._sending(key) for key in self._random.sample(_THREADS, 3)]
        chosen = [sending for sending in sendings if sending is not None]
        if chosen and self._random.random() < 0.5:
            first = self._random.choice(chosen)
            behind = do.Sending(first.claim, self._new_batch(), first.base + len(first.batch.events))
            chosen.append(behind)
        return do.AppendMany(**self._common(), sendings=tuple(chosen)) if chosen else None

    def _settle(self) -> do.Step | None:
        key = self._thread()
        sent, claim = self._recent(key), self._held_claim(key)
        if claim is None:
            return None
        if sent is None or self._random.random() < 0.3:
            return do.Settle(**self._common(), claim=claim, batch_id="never sent", base=self._base(key))
        return do.Settle(**self._common(), claim=claim, batch_id=sent.batch.batch_id, base=sent.base)

    # -------------------------------------------------------------------------------------- readers and maintenance

    def _seq(self, thread: ThreadModel) -> int:
        journal = thread.journal
        low, high = journal.first - 1, journal.last
        return self._random.choice((low, low, high, self._random.randint(low, max(low, high)), high + 1, 0))

    def _read(self) -> do.Step:
        key = self._thread()
        limit = self._random.choice(_LIMITS)
        return do.Read(**self._common(), thread=key, seq=self._seq(self._model.threads[key]), limit=limit)

    def _list_threads(self) -> do.Step:
        key = self._thread()
        depth = self._random.randrange(3)
        after = self._random.choice((None, None, *_THREADS))
        agent, session = (key.agent_id if depth else None), (key.session_id if depth == 2 else None)
        return do.ListThreads(
            **self._common(),
            user=key.user_id,
            agent=agent,
            session=session,
            after=after,
            limit=self._random.choice(_LIMITS),
        )

    def _trim(self) -> do.Step:
        key = self._thread()
        before = self._seq(self._model.threads[key]) + self._random.choice((0, 1))
        return do.Trim(**self._common(), thread=key, before=max(0, before))

    def _cursors(self) -> list[int]:
        return [number for number, got in self._model.got.items() if got.cursor is not None]

    def _advance(self) -> do.Step | None:
        opened = self._cursors()
        if not opened:
            return None
        cursor = self._random.choice(opened[-4:])
        thread = self._model.threads[self._model.got[cursor].thread]
        return do.AdvanceCursor(**self._common(), cursor=cursor, to=max(0, self._seq(thread)))

    def _reset(self) -> do.Step:
        key, exporter = self._thread(), self._random.choice(_EXPORTERS)
        of_place = [
            number
            for number in self._cursors()
            if self._model.got[number].thread == key and self._model.got[number].exporter == exporter
        ]
        version_of = self._random.choice((*of_place[-1:], *of_place[-3:], None)) if of_place else None
        to = max(0, self._seq(self._model.threads[key]))
        return do.ResetCursor(**self._common(), thread=key, exporter=exporter, to=to, version_of=version_of)

    # -------------------------------------------------------------------------------------------------------- state

    def _expected(self, slot: StateKey, kind: SlotKind) -> do.Expected:
        got = self._got.get((slot, kind), [])
        choice = self._random.random()
        if choice < 0.3 or (choice >= 0.5 and not got):
            return "any"
        if choice < 0.45:
            return "absent"
        if choice < 0.5:
            return "never"
        return got[-1] if choice < 0.85 else self._random.choice(got)

    def _save(self) -> do.Step:
        slot = self._slot()
        expected = self._expected(slot, SlotKind.DOCUMENT)
        return do.Save(**self._common(), slot=slot, value=self._random.choice(_VALUES), expected=expected)

    def _items(self) -> tuple[str, ...]:
        return tuple(self._random.choice(_VALUES) for _ in range(self._random.choice((0, 1, 1, 2, 5, 12))))

    def _replace(self) -> do.Step:
        slot = self._slot()
        expected = self._expected(slot, SlotKind.LIST)
        return do.ReplaceList(**self._common(), slot=slot, items=self._items(), expected=expected)

    def _append_list(self) -> do.Step:
        slot = self._slot()
        length = len(self._model.state.live.get((slot, SlotKind.LIST), ((), 0))[0])
        wrong = self._random.choices((0, 1, -1), (8, 1, 1))[0]
        return do.AppendList(**self._common(), slot=slot, items=self._items()[:3], length=max(0, length + wrong))

    def _kind(self) -> SlotKind:
        return self._random.choice(list(SlotKind))

    def _delete(self) -> do.Step:
        slot, kind = self._slot(), self._kind()
        return do.DeleteSlot(**self._common(), slot=slot, kind=kind, expected=self._expected(slot, kind))

    def _list_keys(self) -> do.Step:
        slot = self._slot()
        after = self._random.choice((None, None, slot, *_SLOTS[:2]))
        return do.ListKeys(
            **self._common(),
            session=slot.session,
            kind=self._kind(),
            after=after,
            limit=self._random.choice(_LIMITS),
        )

    def _list_sessions(self) -> do.Step:
        user = self._slot().user_id
        after = self._random.choice((None, None, SessionKey(user, "session"), SessionKey("user", "session")))
        return do.ListSessions(**self._common(), user=user, after=after, limit=self._random.choice(_LIMITS))
