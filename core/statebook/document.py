"""StateDocument: the handle of one document of agent state, as plain values, with a bounded compare-and-set loop."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from statebook.codec import Json, decode_value, encode_value
from statebook.errors import VersionConflict
from statebook.keys import StateKey
from statebook.model import ABSENT, ANY, ExpectedVersion
from statebook.state import AgentStateStore


class DocumentValue(msgspec.Struct, frozen=True):
    """A document as plain values, and its version, from one commit (STATE-3).

    Attributes:
        value: The value; changing it changes nothing that is stored (VAL-3).
        version: A positive integer issued by the store.
    """

    value: Json
    version: int


class StateDocument:
    """One slot's document over any state store. Holds no state of its own; safe from many threads.

    Attributes:
        slot: The slot.
    """

    def __init__(self, store: AgentStateStore, slot: StateKey) -> None:
        """Make a handle. No I/O.

        Args:
            store: An open store.
            slot: The slot.
        """
        self.slot = slot
        self._store = store

    def load(self) -> DocumentValue | None:
        """Load the document.

        Guarantees STATE-3: value and version come from one commit.

        Returns:
            The document, or None where the slot is absent.

        Raises:
            InvalidValue: The stored bytes are not one JSON document.
            StateCorrupt: The record is damaged.
            UnsupportedFormat: The record is of another format version.
        """
        stored = self._store.load(self.slot)
        return None if stored is None else DocumentValue(decode_value(stored.value), stored.version)

    def save(self, value: Json, *, expected: ExpectedVersion = ANY) -> int:
        """Save the document.

        Guarantees VAL-1 for the value, STATE-1 to STATE-5 for the save.

        Args:
            value: Plain values, nested.
            expected: `ANY`, `ABSENT`, or the version that the slot must have.

        Returns:
            The new version.

        Raises:
            InvalidValue: The value holds what JSON would refuse or change.
            VersionConflict: The slot is not as expected; carries the current version.
            LimitExceeded: The document is too large.
            OutcomeUnknown: It may have been saved, or be saved later; load and decide.
        """
        return self._store.save(self.slot, encode_value(value), expected=expected)

    def update(self, change: Callable[[Json], Json], *, default: Json = None, tries: int = 16) -> DocumentValue:
        """Change the document by compare-and-set: load, compute, save if nobody was faster, else again.

        Guarantees STATE-4: no other save is lost. An unknown outcome is reported, not tried again: the change might be
        made twice.

        Args:
            change: Computes the new value from the current one; it may be called several times.
            default: What `change` gets where the slot is absent.
            tries: How often it is tried at most, at least once.

        Returns:
            The saved document.

        Raises:
            ValueError: `tries` is below 1.
            VersionConflict: Others were faster each time.
            InvalidValue: The new value holds what JSON would refuse or change.
            LimitExceeded: The document is too large.
            OutcomeUnknown: It may have been saved, or be saved later; load and decide.
        """
        if tries < 1:
            raise ValueError("tries must be at least 1")
        conflict: VersionConflict | None = None
        for _ in range(tries):
            current = self.load()
            value = change(decode_value(encode_value(default)) if current is None else current.value)
            data = encode_value(value)
            try:
                version = self._store.save(self.slot, data, expected=ABSENT if current is None else current.version)
            except VersionConflict as error:
                conflict = error
            else:
                return DocumentValue(decode_value(data), version)
        raise conflict or AssertionError("there was at least one try")

    def delete(self, *, expected: ExpectedVersion = ANY) -> bool:
        """Delete the document.

        Guarantees STATE-2: versions of a later save are greater.

        Args:
            expected: `ANY`, or the version that the slot must have.

        Returns:
            True where there was a document.

        Raises:
            VersionConflict: A version was expected and the slot has another one or is absent.
            ValueError: `expected` is `ABSENT`.
        """
        return self._store.delete(self.slot, expected=expected)
