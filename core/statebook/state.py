"""AgentStateStore: versioned snapshots with compare-and-set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from statebook.capabilities import Capabilities
from statebook.keys import SessionKey, StateKey
from statebook.model import ANY, ExpectedVersion, KeyPage, ListValue, SessionPage, SlotKind, StateValue


class AgentStateStore(ABC):
    """Slots addressed by `(user_id or None, session_id, key)`, each a document or a list.

    Documents and lists have separate namespaces. Values are opaque bytes (VAL-2): make them with `encode_value`. Every
    call blocks, is safe from many threads, and is applied, not applied, or `OutcomeUnknown` (ERR-2). Every call may
    raise `BackendUnavailable` and, on a closed store, `StoreClosed`; every writing call may raise `OutcomeUnknown`.
    """

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this store declares (DUR)."""

    @abstractmethod
    def load(self, slot: StateKey) -> StateValue | None:
        """Load a document.

        Guarantees STATE-3: value and version come from one commit.

        Args:
            slot: The slot.

        Returns:
            The document, or None where the slot is absent.

        Raises:
            StateCorrupt: The record is damaged.
            UnsupportedFormat: The record is of another format version.
        """

    @abstractmethod
    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        """Save a document.

        Guarantees STATE-1: saved iff the slot is as expected. STATE-2: the version is greater than every version this
        slot has had, deletes included. STATE-4: of racing saves with one expected version exactly one succeeds.
        STATE-5: a failed save leaves no trace.

        Args:
            slot: The slot.
            value: One JSON document in UTF-8.
            expected: `ANY`, `ABSENT`, or the version that the slot must have.

        Returns:
            The new version.

        Raises:
            VersionConflict: The slot is not as expected; carries the current version.
            InvalidValue: `value` is not bytes.
            LimitExceeded: `value` is larger than `value_bytes_max`.
            StateCorrupt: The stored record is damaged; nothing changed.
            UnsupportedFormat: The stored record is of another format version; nothing changed.
        """

    @abstractmethod
    def load_list(self, slot: StateKey) -> ListValue | None:
        """Load a list.

        Guarantees STATE-7: it comes back as given, however it changed. STATE-3: items and version are from one commit.

        Args:
            slot: The slot.

        Returns:
            The list, or None where the slot is absent. An empty list is present.

        Raises:
            StateCorrupt: The record is damaged.
            UnsupportedFormat: The record is of another format version.
        """

    @abstractmethod
    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        """Append items to a list.

        Guarantees STATE-7: appended iff the list has `expected_length` items (0: absent or empty), at a cost of what is
        appended. Appending nothing is a save like any other: it creates the list and raises the version.

        Args:
            slot: The slot.
            items: The items, each one JSON document in UTF-8.
            expected_length: The length that the list must have.

        Returns:
            The new version.

        Raises:
            VersionConflict: The list has another length; carries version and length.
            InvalidValue: An item is not bytes.
            LimitExceeded: An item is larger than `value_bytes_max`, or the list would be than `list_bytes_max`.
            StateCorrupt: The stored record is damaged; nothing changed.
            UnsupportedFormat: The stored record is of another format version; nothing changed.
        """

    @abstractmethod
    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        """Replace a list as a whole, also by an empty one.

        Guarantees STATE-1 to STATE-5 and STATE-7, as for `save`.

        Args:
            slot: The slot.
            items: The items, each one JSON document in UTF-8.
            expected: `ANY`, `ABSENT`, or the version that the list must have.

        Returns:
            The new version.

        Raises:
            VersionConflict: The list is not as expected; carries version and length.
            InvalidValue: An item is not bytes.
            LimitExceeded: An item is larger than `value_bytes_max`, or the list than `list_bytes_max`.
            StateCorrupt: The stored record is damaged; nothing changed.
            UnsupportedFormat: The stored record is of another format version; nothing changed.
        """

    @abstractmethod
    def delete(self, slot: StateKey, *, kind: SlotKind = SlotKind.DOCUMENT, expected: ExpectedVersion = ANY) -> bool:
        """Delete a slot.

        Guarantees STATE-2: versions of a later save are greater than the deleted ones. STATE-5: a save based on a
        deleted version conflicts.

        Args:
            slot: The slot.
            kind: Which of the two namespaces.
            expected: `ANY`, or the version that the slot must have. `ABSENT` is refused.

        Returns:
            True where there was a live slot, False where there was none.

        Raises:
            VersionConflict: A version was expected and the slot has another one or is absent.
            ValueError: `expected` is `ABSENT`.
            StateCorrupt: The stored record is damaged; nothing changed.
            UnsupportedFormat: The stored record is of another format version; nothing changed.
        """

    @abstractmethod
    def delete_session(self, session: SessionKey) -> int:
        """Delete all slots of a session.

        Guarantees STATE-8: this session's slots, documents and lists, and nothing else. Each slot is deleted
        atomically; a slot saved meanwhile may remain.

        Args:
            session: The session.

        Returns:
            How many live slots were deleted.

        Raises:
            StateCorrupt: A stored record is damaged.
            UnsupportedFormat: A stored record is of another format version.
        """

    @abstractmethod
    def exists(self, session: SessionKey) -> bool:
        """Tell whether a session has a live slot of either kind (STATE-6).

        Args:
            session: The session.

        Returns:
            Whether it has.

        Raises:
            StateCorrupt: A stored record is damaged.
            UnsupportedFormat: A stored record is of another format version.
        """

    @abstractmethod
    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        """List the live slots of a session.

        Guarantees STATE-9: paged, ascending by name (`StateKey.name`), original ids, complete. ID-5: nothing of another
        session.

        Args:
            session: The session.
            kind: Which of the two namespaces.
            after: Only slots behind this one, which need not exist.
            limit: 1 to 10,000.

        Returns:
            A page.

        Raises:
            ValueError: The limit is outside its range, or `after` is of another session.
            StateCorrupt: A stored record is damaged.
            UnsupportedFormat: A stored record is of another format version.
        """

    @abstractmethod
    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        """List the sessions of a user that have a live slot of either kind.

        Guarantees STATE-9: paged, ascending by name (`SessionKey.name`), original ids, complete. ID-3: None lists the
        absent user's sessions, not everybody's.

        Args:
            user_id: The user, or None.
            after: Only sessions behind this one, which need not exist.
            limit: 1 to 10,000.

        Returns:
            A page.

        Raises:
            InvalidKey: `user_id` is outside ID-1.
            ValueError: The limit is outside its range, or `after` is of another user.
            StateCorrupt: A stored record is damaged.
            UnsupportedFormat: A stored record is of another format version.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the store; a second call is harmless, any other call afterwards is `StoreClosed` (ERR-5)."""
