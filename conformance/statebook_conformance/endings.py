"""How a command ends when it is told to: in order, so that servers that were started end with it."""

from __future__ import annotations

import signal


def end_in_order() -> None:
    """Have SIGTERM and SIGHUP unwind the command; called from the main thread."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
