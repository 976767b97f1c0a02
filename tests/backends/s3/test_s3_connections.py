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


def test_who_loses_again_and_again_against_a_busy_writer_gets_a_turn_and_time_to_come_back() -> None:
    """A writer that never reads does not starve one that must."""
    turns = Turns()
    head = [0]
    done = threading.Event()

    def busy() -> int:
        known, rounds = 0, 0
        while not done.is_set():
            rounds += 1
            with turns.take("head") as turn:
                time.sleep(0.002)
                turn.lost = head[0] != known
                head[0] += not turn.lost
                known = head[0]
        return rounds

    def slow() -> int:
        lost = 0
        for _ in range(5):
            while True:
                time.sleep(0.002)
                known = head[0]
                time.sleep(0.002)
                with turns.take("head") as turn:
                    time.sleep(0.002)
                    turn.lost = head[0] != known
                    head[0] += not turn.lost
                if not turn.lost:
                    break
                lost += 1
        return lost

    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(busy)
        try:
            assert pool.submit(slow).result(60) <= 50
        finally:
            done.set()
        assert other.result(60) > 5
    assert len(turns._kept) <= 1


def test_a_turn_that_is_kept_for_nobody_who_comes_back_is_given_on() -> None:
    now = [0.0]
    turns = Turns(clock=lambda: now[0])
    for _ in range(3):
        with turns.take("a") as turn:
            now[0] += 0.01
            turn.lost = True
    now[0] += 1
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(_takes, turns).result(10)
    for number in range(600):
        for _ in range(2):
            with turns.take(str(number)) as turn:
                turn.lost = True
    assert len(turns._kept) <= 256
    assert len(turns._losses) <= 256


def _takes(turns: Turns) -> bool:
    with turns.take("a"):
        return True


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
