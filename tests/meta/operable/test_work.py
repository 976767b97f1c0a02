"""Work is counted: calls, memory, files, connections; and what is watched is left as it was."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from statebook_conformance.work import COUNTERS, Allowance, Meter, Work


def work_of(*calls: Callable[[], object]) -> Work:
    with Meter() as meter:
        meter.work_of(*calls)  # what is imported and cached the first time
        return meter.work_of(*calls)


def test_calls_of_python_and_of_c_are_counted() -> None:
    def ten() -> None:
        for _ in range(10):
            abs(1)

    nothing = work_of(lambda: None).calls
    assert work_of(ten).calls == nothing + 10


def test_the_worst_moment_of_memory_is_counted_though_it_is_given_back() -> None:
    assert work_of(lambda: len(bytes(1_000_000))).memory > 1_000_000
    assert work_of(lambda: len(b"")).memory < 100_000


def test_what_a_thread_does_that_was_started_under_the_meter_is_counted() -> None:
    def started() -> None:
        thread = threading.Thread(target=lambda: [abs(number) for number in range(1_000)])
        thread.start()
        thread.join()

    assert work_of(started).calls > 1_000


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="system calls are counted on Linux only")
def test_system_calls_bytes_and_syncs_of_files_are_counted(tmp_path: Path) -> None:
    def write() -> None:
        file = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
        os.write(file, bytes(50_000))
        os.fsync(file)
        os.pread(file, 20_000, 0)
        os.close(file)

    found, nothing = work_of(write), work_of(lambda: None)
    assert found.bytes_written == nothing.bytes_written + 50_000
    assert (found.reads, found.writes) == (nothing.reads + 1, nothing.writes + 1)
    assert 20_000 <= found.bytes_read - nothing.bytes_read < 20_100
    assert found.syncs == 1


def test_a_round_trip_is_an_answer_to_what_was_sent_in_how_many_pieces_ever() -> None:
    with Meter() as meter, socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            with socket.create_connection(server.getsockname()) as client, server.accept()[0] as other:
                for _ in range(3):
                    client.sendall(b"12345")
                    client.sendall(b"67890")
                    assert other.recv_into(bytearray(10)) <= 10
                    other.sendmsg([b"abc", b"de"])
                    client.makefile("rb").read(5)

        work = meter.work_of(talk)
    assert work.connections == 2
    assert work.bytes_sent == 3 * 15
    assert work.bytes_received >= 3 * 10
    assert 3 <= work.round_trips <= 6


def test_what_is_watched_is_left_as_it_was() -> None:
    before = {name: getattr(socket.socket, name) for name in ("send", "sendall", "recv", "recv_into")}
    profiler = sys.getprofile()
    with Meter() as meter:
        assert socket.socket.sendall is not before["sendall"]
        with pytest.raises(ZeroDivisionError):
            meter.measure(lambda: 1 // 0)
        assert sys.getprofile() is profiler
    assert {name: getattr(socket.socket, name) for name in before} == before
    assert sys.getprofile() is profiler
    with Meter(), pytest.raises(RuntimeError, match="another meter"):
        Meter().__enter__()


def test_an_allowance_names_each_counter_that_is_beyond_it() -> None:
    allowed = Allowance(factor=1.5, more=Work(calls=10).times(2))
    short = Work(calls=100, reads=4)
    assert allowed.exceeded(short, Work(calls=170, reads=6)) == ()
    assert allowed.exceeded(short, Work(calls=171, reads=7)) == (
        "calls: 100 on the short one, 171 on the long one",
        "reads: 4 on the short one, 7 on the long one",
    )
    everything = Work(**dict.fromkeys(COUNTERS, 1))
    assert len(allowed.exceeded(Work(), everything)) == len(COUNTERS) - 1


def test_work_adds_up_and_memory_is_the_worst_of_it() -> None:
    total = work_of(*[partial(bytes, size) for size in (1_000_000, 3_000_000, 10)])
    assert 3_000_000 < total.memory < 3_900_000
    assert Work(calls=1, memory=5).times(3) == Work(calls=3, memory=5)
