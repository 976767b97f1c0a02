"""Medium: the raw records of one namespace, seen around the store. For conformance, forensics and tests."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Medium(ABC):
    """The raw records in which a namespace is stored, such as files, rows' columns, keys or objects.

    A backend shows its medium so that a suite can damage it without the code under test, and see that deletes leave
    nothing behind. Records that hold no user data (locks, schema versions) are left out. Not for applications: writing
    here goes around every guarantee of the contract. Open stores need not see a change before they are opened again.
    """

    @abstractmethod
    def records(self) -> tuple[str, ...]:
        """The names of all records of the namespace, sorted. One name stands for one independently stored piece."""

    @abstractmethod
    def read(self, record: str) -> bytes:
        """The bytes of a record.

        Args:
            record: One of `records()`.

        Returns:
            Its bytes.

        Raises:
            KeyError: There is none of this name.
        """

    @abstractmethod
    def write(self, record: str, data: bytes) -> None:
        """Put other bytes in the place of a record, or bring a removed one back.

        Args:
            record: The record.
            data: Its new bytes.

        Raises:
            ValueError: The medium itself refuses these bytes, such as a number column that is given text.
        """

    @abstractmethod
    def remove(self, record: str) -> None:
        """Remove a record, as a lost file or row would be.

        Args:
            record: One of `records()`.

        Raises:
            KeyError: There is none of this name.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the medium; a second call is harmless."""
