"""Runs calls on several threads, where a storage serves several at once and each only waits for its server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


def at_once(width: int, function: Callable[[A], R], items: Sequence[A]) -> list[R]:
    """Call a function with each item, here and on threads that end with this call: nothing is left to close or to fork.

    Args:
        width: On how many threads at most; 1 or fewer calls on this one, one after the other.
        function: The function; called from several threads.
        items: The items.

    Returns:
        What it returned, in the order of the items.

    Raises:
        BaseException: What the function raised for the first of the items for which it did; all calls have ended.
    """
    if width <= 1 or len(items) <= 1:
        return [function(item) for item in items]
    first, *others = items
    with ThreadPoolExecutor(min(width, len(items)) - 1, "statebook-at-once") as pool:
        running = [pool.submit(function, item) for item in others]
        return [function(first), *(call.result() for call in running)]
