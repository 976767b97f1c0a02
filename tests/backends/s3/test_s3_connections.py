"""What outlives a store in a process is counted, bounded and not shared with a forked child; writers take turns."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from statebook_backends.s3.connections import Engines, Once
from statebook_backends.s3.envelope import HeadHeader, StoredHead, Token
from statebook_backends.s3.heads import HeadMemory
from statebook_backends.s3.turns import Turns
from statebook_backends.s3.writers import ObjectEngine


class Made:
    """Makes engines that say when they are closed."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.closed: list[str] = []

    def engine(self, name: str) -> ObjectEngine:
        self.made.append(name)
        return ObjectEngine(None, None, close=lambda: self.closed.append(name))  # type: ignore[arg-type]


def test_stores_of_one_endpoint_share_an_engine_and_idle_ones_are_bounded() -> None:
    made, engines = Made(), Engines(idle_max=2)
    first = engines.enter("a", lambda: made.engine("a"))
    assert engines.enter("a", lambda: made.engine("a")) is first
    engines.leave("a")
    for name in "bcde":
        engines.enter(name, lambda name=name: made.engine(name))  # type: ignore[misc]
        engines.leave(name)
    assert made.made == ["a", "b", "c", "d", "e"]
    assert made.closed == ["b", "c"]
    engines.leave("a")
    assert "a" in made.closed
    assert len(made.closed) == 3


def test_an_engine_that_cannot_be_made_is_not_kept() -> None:
    made, engines = Made(), Engines(idle_max=0)

    def fails() -> ObjectEngine:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        engines.enter("a", fails)
    engines.enter("a", lambda: made.engine("a"))
    engines.leave("a")
    engines.leave("a")
    assert made.closed == ["a"]


def test_work_is_done_once_a_name_by_whoever_comes_first_and_failures_are_not_kept() -> None:
    once: Once[int] = Once(names_max=2)
    calls: list[str] = []

    def work() -> int:
        calls.append("work")
        time.sleep(0.05)
        return len(calls)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: once.get("a", work), range(4))) == {1}
    with pytest.raises(ZeroDivisionError):
        once.get("b", lambda: 1 // 0)
    assert once.get("b", lambda: 7) == 7
    assert once.get("c", lambda: 8) == 8
    assert once.get("a", work) == 2


def test_writers_of_one_object_take_turns_and_a_stuck_one_holds_up_nobody_for_ever() -> None:
    turns = Turns(patience_s=0.05)
    inside = threading.Event()
    release = threading.Event()

    def stuck() -> None:
        with turns.take("a"):
            inside.set()
            release.wait(10)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(stuck)
        assert inside.wait(10)
        with turns.take("b"):
            pass
        with turns.take("a"):
            assert not future.done()
        release.set()
        future.result(10)
    assert turns._turns == {}


def test_remembered_heads_are_bounded_in_number_and_bytes() -> None:
    memory = HeadMemory(heads_max=3, bytes_max=100)
    for number in range(5):
        memory.keep(str(number), _head(b"x"))
    assert [memory.get(str(number)) is not None for number in range(5)] == [False, False, True, True, True]
    memory.keep("large", _head(b"x" * 99))
    assert memory.get("large") is not None
    assert memory.get("3") is None
    memory.keep("larger", _head(b"x" * 101))
    assert memory.get("larger") is None
    memory.keep("4", None)
    assert memory._bytes == sum(len(head.data) for head in memory._heads.values())


def _head(data: bytes) -> StoredHead:
    return StoredHead(HeadHeader(2, "object-head", 1, "n", "", ""), Token(1, "n", "v"), data)
