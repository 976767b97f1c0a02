"""What a backend declares: durability, sharing, features, limits, facts about its server (DUR)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import total_ordering
from typing import Final

import msgspec

from statebook.errors import LimitExceeded, UnsupportedCapability


@total_ordering
class _Ladder(Enum):
    """An enumeration whose members are ordered as they are written."""

    def __lt__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        members = list(type(self))
        return members.index(self) < members.index(other)


class Durability(_Ladder):
    """What an acknowledged write survives (DUR).

    `NONE`: not even the store's close. `PROCESS`: the end of this process, kill -9 included. `HOST`: a loss of power of
    one machine. `REPLICATED`: the loss of one machine.
    """

    NONE = "none"
    PROCESS = "process"
    HOST = "host"
    REPLICATED = "replicated"


class Sharing(_Ladder):
    """Over which distance two open stores are one store (DUR, ATOM-1).

    `PROCESS`: handles of one process. `HOST`: processes of one machine. `NETWORK`: processes of many machines.
    """

    PROCESS = "process"
    HOST = "host"
    NETWORK = "network"


class Feature(Enum):
    """What a backend may offer beyond the required core.

    `PURGE`: a tombstone can be removed (LIFE-5). `GROUP_COMMIT`: `append_many` is one physical commit (APPEND-5).
    `RECEIPTS_KEPT`: a batch is recognised for ever whatever its base (APPEND-1). `COLLECT`: failed commits leave
    blobs behind, which `collect` removes (LIFE-3).
    """

    PURGE = "purge"
    GROUP_COMMIT = "group_commit"
    RECEIPTS_KEPT = "receipts_kept"
    COLLECT = "collect"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The finite limits of a backend (VAL-4). Beyond one of them: `LimitExceeded`, before any effect.

    Attributes:
        value_bytes_max: One document, one list item, one event payload.
        list_bytes_max: All items of one list together.
        batch_events_max: Events of one batch.
        batch_bytes_max: The encoded body of one batch.
        group_batches_max: Requests of one `append_many`.
    """

    value_bytes_max: int = 16 * 1024 * 1024
    list_bytes_max: int = 64 * 1024 * 1024
    batch_events_max: int = 10_000
    batch_bytes_max: int = 32 * 1024 * 1024
    group_batches_max: int = 1_024

    def check(self, limit: str, actual: int, key: str | None = None) -> None:
        """Refuse what is beyond a limit.

        Args:
            limit: The name of the limit: one of the attributes.
            actual: What was given.
            key: What the call is about.

        Raises:
            LimitExceeded: `actual` is larger (VAL-4).
        """
        maximum = getattr(self, limit)
        if actual > maximum:
            raise LimitExceeded(
                f"{limit} is {maximum}, but {actual} was given; store less at once",
                limit=limit,
                maximum=maximum,
                actual=actual,
                key=key,
            )


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store promises. Claiming less is fine; a claim that a probe disproves fails conformance (DUR).

    Attributes:
        backend: The URL scheme.
        durability: What an acknowledged write survives.
        durability_setting: The setting that gives it, such as `synchronous=FULL`.
        sharing: Over which distance handles see each other.
        features: What is offered beyond the required core.
        limits: The limits.
        server: Facts about the engine, as sorted pairs, such as `("sqlite", "3.45.1")`. Never credentials.
    """

    backend: str
    durability: Durability
    durability_setting: str
    sharing: Sharing
    features: frozenset[Feature] = frozenset()
    limits: Limits = Limits()
    server: tuple[tuple[str, str], ...] = ()

    def require(self, wanted: Iterable[Durability | Sharing | Feature]) -> None:
        """Refuse a store that declares less than is wanted.

        Args:
            wanted: Features, and the least durability and sharing.

        Raises:
            UnsupportedCapability: Something is not declared; the message names all of it.
        """
        missing = [item for item in wanted if not self.offers(item)]
        if missing:
            names = ", ".join(f"{type(item).__name__.lower()}={item.value}" for item in missing)
            raise UnsupportedCapability(
                f"{self.backend} does not declare {names} (it declares durability={self.durability.value}, "
                f"sharing={self.sharing.value}); choose another backend or ask for less",
                capability=names,
                backend=self.backend,
            )

    def offers(self, item: Durability | Sharing | Feature) -> bool:
        """Tell whether a feature, or at least this durability or sharing, is declared."""
        if isinstance(item, Durability):
            return self.durability >= item
        if isinstance(item, Sharing):
            return self.sharing >= item
        return item in self.features


DISTRIBUTED: Final = (Durability.HOST, Sharing.NETWORK)
"""What a deployment of several machines must require."""
