"""Mutants of lists and listings: edits not noticed, lengths not checked, pages cut, deletes that miss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from statebook.keys import SessionKey, StateKey
from statebook.model import ANY, ExpectedVersion, KeyPage, ListValue, SessionPage, SlotKind, StateValue
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadState, wrapping

_MEDIUM: Final = "sqlite:///{directory}/mutant.db"

# --------------------------------------------------------------------------------------------------------------- lists


class _EmptyIgnored(BadState):
    """Tests the list for truth before it saves it."""

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        found = super().load_list(slot)
        if not items and found is not None:
            return found.version + 1
        return super().replace_list(slot, items, expected=expected)


class _Sampled(BadState):
    """Takes a list of the same length and ends for unchanged."""

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        found = super().load_list(slot)
        alike = found is not None and items and len(found.items) == len(items)
        if found is not None and alike and (found.items[0], found.items[-1]) == (items[0], items[-1]):
            return found.version
        return super().replace_list(slot, items, expected=expected)


class _NeverShrinks(BadState):
    """Writes the items over the old ones, and leaves the rest."""

    def replace_list(self, slot: StateKey, items: Sequence[bytes], *, expected: ExpectedVersion = ANY) -> int:
        found = super().load_list(slot)
        rest = () if found is None or not items else found.items[len(items) :]
        return super().replace_list(slot, (*items, *rest), expected=expected)


class _NoLength(BadState):
    """Appends whatever the length is."""

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        found = super().load_list(slot)
        length = 0 if found is None else len(found.items)
        return super().append_list(slot, items, expected_length=min(length, max(expected_length, length)))


class _NothingIgnored(BadState):
    """Does nothing where nothing is appended."""

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        if items:
            return super().append_list(slot, items, expected_length=expected_length)
        found = super().load_list(slot)
        return 1 if found is None else found.version


class _TextOrder(BadState):
    """Orders items by their index as text, as a sort of file names does."""

    def load_list(self, slot: StateKey) -> ListValue | None:
        found = super().load_list(slot)
        if found is None:
            return None
        order = sorted(range(len(found.items)), key=str)
        return ListValue(tuple(found.items[index] for index in order), found.version)


class _Rewriting(BadState):
    """Appends by loading and replacing the list."""

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        found = super().load_list(slot)
        if found is None or len(found.items) != expected_length:
            return super().append_list(slot, items, expected_length=expected_length)
        return super().replace_list(slot, (*found.items, *items), expected=found.version)


class _Snapshots(BadState):
    """Keeps a copy of the list with every append."""

    def append_list(self, slot: StateKey, items: Sequence[bytes], *, expected_length: int) -> int:
        version = super().append_list(slot, items, expected_length=expected_length)
        found = super().load_list(slot)
        copy = b"" if found is None else b",".join(found.items)
        super().save(StateKey("snapshots", "session", f"version {version}"), copy)
        return version


EMPTY_LIST_IGNORED: Final = Mutant(
    "empty-list-ignored", "an empty list is taken for nothing to save", wrapping(state=_EmptyIgnored), canary=True
)
SAMPLED_FINGERPRINT: Final = Mutant(
    "sampled-fingerprint", "a change is looked for at the ends and in the length only", wrapping(state=_Sampled)
)
SHRINKING_IGNORED: Final = Mutant(
    "shrinking-ignored", "a shorter list leaves the old one's end", wrapping(state=_NeverShrinks)
)
APPEND_IGNORES_LENGTH: Final = Mutant(
    "append-ignores-length", "the expected length is taken and not compared", wrapping(state=_NoLength)
)
APPEND_NOTHING_IGNORED: Final = Mutant(
    "append-nothing-ignored", "appending nothing creates no list and no version", wrapping(state=_NothingIgnored)
)
ITEMS_IN_TEXT_ORDER: Final = Mutant("items-in-text-order", "item 10 comes before item 2", wrapping(state=_TextOrder))
APPEND_REWRITES_LIST: Final = Mutant(
    "append-rewrites-list", "an append writes the whole list again", wrapping(state=_Rewriting), base=_MEDIUM
)
APPEND_KEEPS_SNAPSHOTS: Final = Mutant(
    "append-keeps-snapshots", "every append keeps a copy of the whole list", wrapping(state=_Snapshots), base=_MEDIUM
)


# ------------------------------------------------------------------------------------------------- sessions and deletes


class _Remembers(BadState):
    """Never forgets a session."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        version = super().save(slot, value, expected=expected)
        self.memory.kept[slot.session] = True
        return version

    def exists(self, session: SessionKey) -> bool:
        return super().exists(session) or session in self.memory.kept


class _DocumentsOnly(BadState):
    """Looks for documents alone."""

    def exists(self, session: SessionKey) -> bool:
        return bool(super().list_keys(session, limit=1).keys)


class _PrefixDelete(BadState):
    """Deletes every session whose name starts with this one's."""

    def delete_session(self, session: SessionKey) -> int:
        others = super().list_sessions(session.user_id, limit=10_000).sessions
        named = [other for other in others if other.session_id.startswith(session.session_id)]
        return sum(super(_PrefixDelete, self).delete_session(other) for other in named)


class _KeepsLists(BadState):
    """Deletes documents alone."""

    def delete_session(self, session: SessionKey) -> int:
        return sum(super(_KeepsLists, self).delete(key) for key in super().list_keys(session, limit=10_000).keys)


class _CountsOnce(BadState):
    """Says 1 for a session, however many slots it had."""

    def delete_session(self, session: SessionKey) -> int:
        return min(1, super().delete_session(session))


class _Orphans(BadState):
    """Removes the entries of a session and misses its values."""

    def delete_session(self, session: SessionKey) -> int:
        count = 0
        for kind in SlotKind:
            keys = super().list_keys(session, kind=kind, limit=10_000).keys
            self.memory.kept.update(dict.fromkeys(keys, True))
            count += len(keys)
        return count

    def load(self, slot: StateKey) -> StateValue | None:
        return None if slot in self.memory.kept else super().load(slot)


class _History(BadState):
    """Keeps all earlier values with each save."""

    def save(self, slot: StateKey, value: bytes, *, expected: ExpectedVersion = ANY) -> int:
        version = super().save(slot, value, expected=expected)
        history = self.memory.kept.get(slot, b"") + value
        self.memory.kept[slot] = history
        super().save(StateKey("history", "session", f"version {version}"), history)
        return version


EXISTS_REMEMBERS: Final = Mutant(
    "exists-remembers", "a session exists for ever once it was saved", wrapping(state=_Remembers)
)
EXISTS_DOCUMENTS_ONLY: Final = Mutant(
    "exists-documents-only", "a session that has only lists does not exist", wrapping(state=_DocumentsOnly)
)
DELETE_SESSION_PREFIX: Final = Mutant(
    "delete-session-prefix", "deleting session 'a' deletes 'ab' too", wrapping(state=_PrefixDelete)
)
DELETE_KEEPS_LISTS: Final = Mutant(
    "delete-keeps-lists", "deleting a session leaves its lists", wrapping(state=_KeepsLists)
)
DELETE_COUNT_WRONG: Final = Mutant(
    "delete-count-wrong", "deleting a session counts the session, not its slots", wrapping(state=_CountsOnce)
)
DELETE_LEAVES_ORPHANS: Final = Mutant(
    "delete-leaves-orphans",
    "deleting a session removes its entries and leaves the values in the medium",
    wrapping(state=_Orphans),
    base=_MEDIUM,
)
SAVE_KEEPS_HISTORY: Final = Mutant(
    "save-keeps-history", "every save keeps all values before it", wrapping(state=_History), base=_MEDIUM
)


# ------------------------------------------------------------------------------------------------------------ listings


class _Capped(BadState):
    """Takes the driver's page of 1,000 for everything."""

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        page = super().list_keys(session, kind=kind, after=after, limit=limit)
        return KeyPage(page.keys[:1_000], has_more=len(page.keys) < 1_000 and page.has_more)

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        page = super().list_sessions(user_id, after=after, limit=limit)
        return SessionPage(page.sessions[:1_000], has_more=len(page.sessions) < 1_000 and page.has_more)


class _CappedDelete(BadState):
    """Deletes the first page of a session."""

    def delete_session(self, session: SessionKey) -> int:
        keys = super().list_keys(session, limit=1_000).keys
        return sum(super(_CappedDelete, self).delete(key) for key in keys)


class _Paged(BadState):
    """Lists keys wrongly; a mutant says how."""

    def _all(self, session: SessionKey, kind: SlotKind) -> list[StateKey]:
        return list(super().list_keys(session, kind=kind, limit=10_000).keys)


class _EdgeLost(_Paged):
    """Skips one key at each edge."""

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        page = super().list_keys(session, kind=kind, after=after, limit=limit)
        return page if after is None else KeyPage(page.keys[1:], page.has_more)


class _EdgeRepeated(_Paged):
    """Starts a page with the last key of the page before."""

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        page = super().list_keys(session, kind=kind, after=after, limit=limit)
        if after is None or limit < 2 or not page.keys:
            return page
        return KeyPage((after, *page.keys)[:limit], page.has_more or len(page.keys) == limit)


class _Offset(_Paged):
    """Counts pages from the start of the listing as it was when they were counted."""

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        keys = self._all(session, kind)
        start = 0 if after is None else self.memory.kept.get(after, sum(key.name <= after.name for key in keys))
        page = tuple(keys[start : start + limit])
        for index, key in enumerate(page):
            self.memory.kept[key] = start + index + 1
        return KeyPage(page, has_more=start + limit < len(keys))


class _Unordered(_Paged):
    """Gives each page in an order of its own."""

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        page = super().list_keys(session, kind=kind, after=after, limit=limit)
        if page.has_more:
            return page
        return KeyPage(tuple(sorted(page.keys, key=lambda key: key.key)), page.has_more)


class _HasMoreGuessed(_Paged):
    """Says that there is more where a page is full."""

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        page = super().list_keys(session, kind=kind, after=after, limit=limit)
        return KeyPage(page.keys, has_more=len(page.keys) == limit)


class _Clamped(BadState):
    """Takes any limit and brings it into its range."""

    def list_sessions(self, user_id: str | None, *, after: SessionKey | None = None, limit: int = 1_000) -> SessionPage:
        usable = limit if type(limit) is int and 1 <= limit <= 10_000 else 1_000
        return super().list_sessions(user_id, after=after, limit=usable)


LISTING_STOPS_AT_1000: Final = Mutant(
    "listing-stops-at-1000", "a listing ends with the driver's first page", wrapping(state=_Capped)
)
DELETE_STOPS_AT_1000: Final = Mutant(
    "delete-stops-at-1000", "a session's delete ends with the driver's first page", wrapping(state=_CappedDelete)
)
PAGE_EDGE_LOST: Final = Mutant("key-page-edge-lost", "the first key of a page is skipped", wrapping(state=_EdgeLost))
PAGE_EDGE_REPEATED: Final = Mutant(
    "key-page-edge-repeated", "the last key of a page is the first of the next", wrapping(state=_EdgeRepeated)
)
OFFSET_PAGING: Final = Mutant(
    "offset-paging", "pages are counted by offset, so that deletes shift them", wrapping(state=_Offset)
)
LISTING_UNORDERED: Final = Mutant(
    "listing-unordered", "the last page is in the order of the ids, not of the names", wrapping(state=_Unordered)
)
HAS_MORE_GUESSED: Final = Mutant(
    "has-more-guessed", "a full page is taken for a sign of more", wrapping(state=_HasMoreGuessed)
)
LIMIT_CLAMPED: Final = Mutant("limit-clamped", "limits out of range are brought into it", wrapping(state=_Clamped))
