"""How long a lost compare-and-set waits before it tries again."""

from __future__ import annotations

import random
import time
from typing import Final

TRIES_MAX: Final = 64
"""How often a call tries to commit before it gives up as `BackendUnavailable`."""

_FREE_TRIES: Final = 4
_PAUSE_S_MAX: Final = 0.05


def jittered_pause(attempt: int) -> None:
    """Wait a little and at random, longer with each attempt, at most 50 ms; the first attempts do not wait.

    Args:
        attempt: How many attempts have been lost, from 0.
    """
    if attempt >= _FREE_TRIES:
        time.sleep(random.uniform(0, min(_PAUSE_S_MAX, 0.001 * 2 ** min(attempt - _FREE_TRIES, 10))))
