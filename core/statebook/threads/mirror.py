"""StateMirror: a copy of the main thread's committed checkpoints in the session's `agent_state` slot (J11).

The journal is the authority; the mirror is for whoever reads states without journals. It is written after a commit, so
it may lag behind, and never gets ahead. A second slot, `agent_state_mirror`, holds the place that the mirror has
reached: journal, epoch and seq. It is raised *before* the state is written, and the state is written by compare-and-set
on the version that was loaded *before* the place was looked at. So a slower mirror of an older checkpoint either sees
the newer place and stops, or meets the newer version, looks again, and stops then: it never overwrites a newer one. A
mirror that died in between is completed by the next one for the same checkpoint.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, cast

import msgspec

from statebook.codec import Json, decode_value, encode_value
from statebook.errors import InvalidValue, StateCorrupt, VersionConflict
from statebook.keys import StateKey, ThreadKey
from statebook.model import ABSENT, ExpectedVersion
from statebook.state import AgentStateStore
from statebook.threads.codecs import State

MAIN_THREAD: Final = "main"
"""The thread id of a session's main thread."""
MIRROR_KEY: Final = "agent_state"
"""The state key of the mirror."""
MIRROR_PLACE_KEY: Final = "agent_state_mirror"
"""The state key of the place that the mirror has reached."""
_TRIES_MAX: Final = 16


class MirrorOutcome(Enum):
    """What became of a mirror's write.

    `WRITTEN`: the slot holds this checkpoint. `CURRENT`: it held an equal state already. `NEWER`: it holds a newer
    checkpoint, and was left alone. `OTHER_THREAD`: this is not the main thread.
    """

    WRITTEN = "written"
    CURRENT = "current"
    NEWER = "newer"
    OTHER_THREAD = "other_thread"


class MirrorPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which checkpoint the mirror has reached, ordered by epoch over incarnations and by seq within one.

    Attributes:
        journal_id: The incarnation.
        epoch: The epoch of the writer that mirrored it.
        as_of_seq: The seq of the checkpoint.
    """

    journal_id: str
    epoch: int
    as_of_seq: int

    def behind(self, other: MirrorPlace) -> bool:
        """Whether the other place is newer."""
        if self.journal_id == other.journal_id:
            return self.as_of_seq < other.as_of_seq
        return self.epoch < other.epoch


class StateMirror:
    """Mirrors committed checkpoints of main threads. Blocking; safe from many threads and processes."""

    def __init__(self, store: AgentStateStore, *, main_thread_id: str = MAIN_THREAD) -> None:
        """Make a mirror. No I/O.

        Args:
            store: The state store.
            main_thread_id: The thread id of a session's main thread.
        """
        self._store = store
        self._main = main_thread_id

    def write(self, key: ThreadKey, state: State, place: MirrorPlace) -> MirrorOutcome:
        """Mirror a committed checkpoint.

        Guarantees J11: a newer checkpoint in the mirror is never overwritten, whichever process is slow. Whoever else
        wrote the slot is overwritten: the journal is the authority. After a `purge` epochs begin again, so that the
        session's slots are to be deleted with it.

        Args:
            key: The thread.
            state: The state of the checkpoint.
            place: Which checkpoint it is.

        Returns:
            What became of it.

        Raises:
            InvalidValue: The state holds what JSON cannot hold.
            StateCorrupt: The mirror's place cannot be read.
            VersionConflict: Others wrote each time; mirror again.
            OutcomeUnknown: Perhaps written; mirror again.
            BackendUnavailable: Not written; mirror again.
        """
        if key.thread_id != self._main:
            return MirrorOutcome.OTHER_THREAD
        slot = StateKey(key.user_id, key.session_id, MIRROR_KEY)
        data = encode_value(dict(state))
        conflict: VersionConflict | None = None
        for _ in range(_TRIES_MAX):
            stored = self._store.load(slot)
            try:
                if not self._raise_place(key, place):
                    return MirrorOutcome.NEWER
                if stored is not None and stored.value == data:
                    return MirrorOutcome.CURRENT
                expected: ExpectedVersion = ABSENT if stored is None else stored.version
                self._store.save(slot, data, expected=expected)
            except VersionConflict as error:
                conflict = error
            else:
                return MirrorOutcome.WRITTEN
        raise conflict or AssertionError("there was at least one try")

    def place(self, key: ThreadKey) -> MirrorPlace | None:
        """Which checkpoint the mirror of a session has reached, or None where there is none.

        Args:
            key: The main thread.

        Returns:
            The place.

        Raises:
            StateCorrupt: It cannot be read.
        """
        return self._load_place(key)[0]

    def _raise_place(self, key: ThreadKey, place: MirrorPlace) -> bool:
        """Raise the stored place to this one; False where it is newer already."""
        found, version = self._load_place(key)
        if found is not None and place.behind(found):
            return False
        if found is None or found.behind(place):
            slot = StateKey(key.user_id, key.session_id, MIRROR_PLACE_KEY)
            value = cast("dict[str, Json]", msgspec.to_builtins(place))
            self._store.save(slot, encode_value(value), expected=ABSENT if version is None else version)
        return True

    def _load_place(self, key: ThreadKey) -> tuple[MirrorPlace | None, int | None]:
        stored = self._store.load(StateKey(key.user_id, key.session_id, MIRROR_PLACE_KEY))
        if stored is None:
            return None, None
        try:
            return msgspec.convert(decode_value(stored.value), MirrorPlace), stored.version
        except (InvalidValue, msgspec.ValidationError) as error:
            raise StateCorrupt("the place of the mirror cannot be read", what="mirror", key=key.name) from error
