"""The window of the newest batches, and the bounded cache of windows (APPEND-1)."""

from __future__ import annotations

from hypothesis import given, strategies as st

from statebook.model import Receipt
from statebook.window import WINDOW_BATCHES, Window, WindowCache


def receipt(number: int) -> Receipt:
    return Receipt(f"b{number}", "j", number, number, 1, "d")


def filled(batches: int, chain: str = "c", events: int = 1) -> Window:
    return Window(chain, [(receipt(n), tuple(f"e{n}.{k}" for k in range(events))) for n in range(1, batches + 1)])


@given(st.integers(0, 3 * WINDOW_BATCHES), st.integers(1, 3))
def test_exactly_the_newest_batches_are_remembered(count: int, events: int) -> None:
    window = filled(count, events=events)
    kept = range(max(1, count - WINDOW_BATCHES + 1), count + 1)
    for number in range(1, count + 2):
        assert window.find(f"b{number}") == (receipt(number) if number in kept else None)
        for k in range(events):
            assert window.overlap((f"e{number}.{k}",)) == (f"e{number}.{k}" if number in kept else None)
    assert window.event_count == len(kept) * events


def test_64_batches_are_recognised_at_least() -> None:
    assert WINDOW_BATCHES >= 64


def test_an_overlap_names_the_first_event_that_is_there() -> None:
    window = filled(3)
    assert window.overlap(("new", "e2.0", "e1.0")) == "e2.0"
    assert window.overlap(("new", "newer")) is None
    assert window.overlap(("e3.0",)) == "e3.0"
    assert window.overlap(()) is None


def test_a_push_moves_the_chain() -> None:
    window = Window("c0")
    window.push(receipt(1), ("e1",), "c1")
    assert window.chain == "c1"
    assert filled(3, "end").chain == "end"


def test_a_window_is_good_for_one_chain_only() -> None:
    cache = WindowCache()
    cache.put("j", filled(1, "c1"))
    assert cache.get("j", "c1") is not None
    assert cache.get("j", "c2") is None
    assert cache.get("other", "c1") is None
    cache.drop("j")
    cache.drop("j")
    assert cache.get("j", "c1") is None


def test_the_cache_lets_go_of_the_window_used_longest_ago() -> None:
    cache = WindowCache(journals_max=2)
    cache.put("a", filled(1))
    cache.put("b", filled(1))
    assert cache.get("a", "c") is not None
    cache.put("c", filled(1))
    assert cache.get("b", "c") is None
    assert cache.get("a", "c") is not None
    assert cache.get("c", "c") is not None


def test_the_cache_is_bounded_by_event_ids_and_keeps_one_window() -> None:
    cache = WindowCache(journals_max=10, events_max=25)
    for name in ("a", "b", "c"):
        cache.put(name, filled(10))
    assert [cache.get(name, "c") is not None for name in ("a", "b", "c")] == [False, True, True]
    cache.put("huge", filled(40))
    assert [cache.get(name, "c") is not None for name in ("b", "c", "huge")] == [False, False, True]


def test_a_newer_window_takes_the_place_of_the_older() -> None:
    cache = WindowCache()
    cache.put("j", filled(1, "c1"))
    newer = filled(2, "c2")
    cache.put("j", newer)
    assert cache.get("j", "c2") is newer
