"""What a proxy does to a request or its reply: frozen plans, made by functions with the names of the faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeAlias

import msgspec

DELAY_MAX_S: Final = 60.0
"""The longest wait that a plan may ask for, in seconds."""


class Action(Enum):
    """The kinds of faults."""

    PASS = "pass"  # noqa: S105 - an action, no secret
    CUT_REPLY = "cut reply"
    CUT_REQUEST = "cut request"
    RESET = "reset"
    BLACK_HOLE = "black hole"
    LOST_REPLIES = "lost replies"
    DRIP = "drip"
    DELAY = "delay"
    ANSWER = "answer"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, for one request.

    Attributes:
        action: What happens.
        match: The request that it happens to is the next one that has these bytes; empty for the next one at all.
        size: How many bytes still pass, or how many pass at a time.
        delay_s: How long is waited, in seconds.
        answer: What the proxy answers itself.
        growth: By what each piece of a drip is larger than the one before it.
    """

    action: Action
    match: bytes = b""
    size: int = 0
    delay_s: float = 0.0
    answer: bytes = b""
    growth: int = 1

    def __post_init__(self) -> None:
        """Refuse what would have no bound.

        Raises:
            ValueError: The size or delay is outside its range.
        """
        if self.size < 0 or not 0.0 <= self.delay_s <= DELAY_MAX_S or self.growth < 1:
            raise ValueError(
                f"size must be at least 0, delay_s 0 to {DELAY_MAX_S:g}, growth at least 1: "
                f"{self.size}, {self.delay_s}, {self.growth}"
            )


NO_FAULT: Final = Plan(action=Action.PASS)
"""Nothing happens."""

Source: TypeAlias = Callable[[], Plan]
"""Where a proxy gets the fate of a request from, when no plan waits for it."""


def cut_reply(*, match: bytes = b"", after: int = 0) -> Plan:
    """The request is delivered and its reply arrives at the proxy; the client gets `after` bytes of it, then an end."""
    return Plan(action=Action.CUT_REPLY, match=match, size=after)


def cut_request(*, match: bytes = b"", after: int = 0) -> Plan:
    """The server gets `after` bytes of the request, then both sides see the connection end."""
    return Plan(action=Action.CUT_REQUEST, match=match, size=after)


def reset(*, match: bytes = b"") -> Plan:
    """The request is not delivered, and the client's connection is reset."""
    return Plan(action=Action.RESET, match=match)


def black_hole(*, match: bytes = b"", delivered: bool = False) -> Plan:
    """Nothing comes back any more on this connection, which stays open; the request is delivered or is not."""
    return Plan(action=Action.LOST_REPLIES if delivered else Action.BLACK_HOLE, match=match)


def drip(*, match: bytes = b"", size: int = 1, delay_s: float = 0.01, growth: int = 1) -> Plan:
    """The reply arrives `size` bytes at a time, each time `growth` times as many, with a wait before each."""
    return Plan(action=Action.DRIP, match=match, size=max(1, size), delay_s=delay_s, growth=growth)


def delay(delay_s: float, *, match: bytes = b"") -> Plan:
    """The request is delivered after a wait."""
    return Plan(action=Action.DELAY, match=match, delay_s=delay_s)


def http_answer(status: int, *, match: bytes = b"", body: bytes = b"", content_type: str = "application/xml") -> Plan:
    """The request is not delivered; the proxy answers with an HTTP status and closes, as an overloaded server does."""
    head = (
        f"HTTP/1.1 {status} Fault\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return Plan(action=Action.ANSWER, match=match, answer=head.encode("ascii") + body)


def seeded(rng: random.Random, faults: Sequence[Plan], *, rate: float) -> Source:
    """Draw the fate of each request: the same seed and the same order of requests give the same faults.

    Args:
        rng: The only source of choice.
        faults: What can happen; matches in them are ignored.
        rate: How often something does, 0 to 1.

    Returns:
        The source.

    Raises:
        ValueError: There are no faults, or the rate is outside its range.
    """
    chosen = tuple(msgspec.structs.replace(fault, match=b"") for fault in faults)
    if not chosen or not 0.0 <= rate <= 1.0:
        raise ValueError("there must be faults, and the rate must be 0 to 1")

    def draw() -> Plan:
        return rng.choice(chosen) if rng.random() < rate else NO_FAULT

    return draw
