"""Damage as disks do it, files that cannot grow, and processes that die at a numbered point."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from statebook.plugins import load_backend
from statebook_conformance.damage import take
from statebook_conformance.faults import CrashPoint, Victim, bit_flips, old_copy, stale_records, truncations
from statebook_conformance.faults.crash import Say
from statebook_conformance.scenes import fill, make_batch, thread


def test_a_record_is_cut_at_each_byte_and_flipped_at_different_places() -> None:
    snapshot = {"record": b"0123456789"}
    assert [each.after for each in truncations(snapshot, "record")] == [b"0123456789"[:size] for size in range(10)]
    flips = [each.after for each in bit_flips(snapshot, "record", random.Random(1), count=30)]
    assert len(set(flips)) == 30
    for after in flips:
        assert after is not None
        different = [a ^ b for a, b in zip(after, snapshot["record"], strict=True) if a != b]
        assert [bits.bit_count() for bits in different] == [1]


def test_an_old_copy_is_there_for_a_while_and_the_present_record_comes_back(tmp_path: Path) -> None:
    backend = load_backend(f"file://{tmp_path}")
    medium = backend.open_medium()
    assert medium is not None
    journal = backend.open_journal()
    claim = fill(journal, thread(), [make_batch("a")])
    old = take(medium)
    journal.append(claim, make_batch("b"), 1)
    journal.close()
    now = take(medium)
    (record,) = stale_records(old, now)
    with old_copy(medium, record, old) as taken:
        assert taken
        reader = backend.open_journal()
        head = reader.head(thread())
        assert head is not None
        assert head.last_seq == 1
        reader.close()
    assert take(medium) == now
    medium.close()


def test_under_a_file_size_limit_a_process_cannot_make_a_file_grow_and_can_afterwards(tmp_path: Path) -> None:
    program = """
import sys
from statebook_conformance.faults import file_size_limit
with file_size_limit(4096):
    try:
        with open(sys.argv[1], "wb", buffering=0) as file:
            file.write(b"x" * 4096)
            file.write(b"x")
    except OSError as error:
        print(error.errno)
with open(sys.argv[1], "ab") as file:
    file.write(b"y" * 4096)
"""
    path = tmp_path / "file"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(27)
    assert path.stat().st_size == 8192


FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def _count(point: CrashPoint, say: Say) -> None:
    for number in range(1, 6):
        point.reach()
        say({"number": number})


@FORKS
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_victim_dies_at_its_crash_point_and_what_it_said_before_is_known(number: int) -> None:
    answers, killed = Victim(partial(_count, CrashPoint(number))).wait()
    assert killed is (number > 0)
    assert [answer["number"] for answer in answers] == list(range(1, number or 6))


@FORKS
def test_a_victim_that_fails_says_why_and_one_that_hangs_is_killed() -> None:
    def fail(_: Say) -> None:
        raise ValueError("no such luck")

    def hang(say: Say) -> None:
        say({"up": True})
        os.read(reading, 1)

    answers, killed = Victim(fail).wait()
    assert (answers, killed) == (({"failed": "ValueError: no such luck"},), False)
    reading, writing = os.pipe()
    victim = Victim(hang)
    assert victim.answers(1) == ({"up": True},)
    with pytest.raises(TimeoutError):
        victim.wait(timeout_s=0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(victim.pid, 0)
    os.close(reading)
    os.close(writing)
