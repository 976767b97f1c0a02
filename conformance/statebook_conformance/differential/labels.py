"""What a backend may choose freely becomes a label that does not depend on the choice; nothing else is touched.

Free are: nonces and journal ids (random), by which numbers versions and cursor epochs grow, and how often the head is
written by a collector, or by a trim, which may collect too. What is promised of them stays visible: that a nonce is
fresh and an id belongs to one incarnation, that versions only grow, and that a head that was written has another
generation and nonce.
"""

from __future__ import annotations

from typing import Final

from statebook.model import JournalHead

TRIMMED: Final = "trimmed"
"""Instead of a number of writes, where events were trimmed meanwhile."""


class Ranks:
    """Numbers that must only grow: each becomes its rank, the first one 1."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self._ranks: dict[int, int] = {}
        self.largest = 0

    def seen(self, value: int) -> int | str:
        """The rank of a number that may be new.

        Args:
            value: The number.

        Returns:
            Its rank; text where it is new and not greater than every number before it, or no positive integer.
        """
        if value in self._ranks:
            return self._ranks[value]
        if type(value) is not int or value <= self.largest:
            return f"not grown: {value!r} after {self.largest}"
        self.largest = value
        self._ranks[value] = len(self._ranks) + 1
        return self._ranks[value]

    def known(self, value: int | None) -> int | str | None:
        """The rank of a number that must have been seen.

        Args:
            value: The number, or None.

        Returns:
            Its rank, or None for None; text where it was never seen.
        """
        return None if value is None else self._ranks.get(value, "never seen")

    def issued(self, value: int) -> int | str:
        """The rank of a number that must be new.

        Args:
            value: The number.

        Returns:
            Its rank; text where it was there before, or is not greater than every number before it.
        """
        return f"issued again: {value!r}" if value in self._ranks else self.seen(value)


class Incarnations:
    """The incarnations of one journal by the order in which claims began them."""

    def __init__(self) -> None:
        """There was none."""
        self._ids: list[str] = []

    def label(self, journal_id: str) -> int:
        """The number of an incarnation, from 1; an unknown id is the next one."""
        if journal_id not in self._ids:
            self._ids.append(journal_id)
        return self._ids.index(journal_id) + 1


class HeadWatch:
    """What one thread's head was when it was last seen."""

    def __init__(self) -> None:
        """It was never seen."""
        self._last: JournalHead | None = None

    def forget(self) -> None:
        """A collector ran: how often it writes the head is free."""
        self._last = None

    def moved(self, head: JournalHead) -> int | str:
        """How many writes there were since the head was last seen.

        Args:
            head: The head.

        Returns:
            The number; text where the nonce says otherwise, where it was not seen before, or where it was trimmed.
        """
        before, self._last = self._last, head
        if before is None:
            return "not seen before"
        writes = head.generation - before.generation
        if (writes == 0) is not (head.nonce == before.nonce):
            return f"{writes} by the generation, but the nonce is {'the same' if writes else 'another'}"
        first = before.first_seq if head.journal_id == before.journal_id else 1
        return TRIMMED if writes and head.first_seq > first else writes
