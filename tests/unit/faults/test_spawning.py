"""Workers are forked from a server that has imported everything, and are processes of their own all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from statebook_conformance.child import ChildContext
from statebook_conformance.processes import Child, ChildError
from statebook_conformance.spawning import FreshProcess, start_process

_HERE = f"{__name__}:"


def own_pid(child: ChildContext) -> dict[str, int | str]:
    """A worker: who it is."""
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "word": child.text("word"),
        "wished": os.environ.get("WISH", ""),
    }


def count(child: ChildContext) -> None:
    """A worker: counts without an end, and says so."""
    child.tell("ready")
    for number in range(1_000_000):
        child.tell("number", number=number)
        time.sleep(0.001)


def fails(_: ChildContext) -> None:
    """A worker: fails."""
    raise ValueError("on purpose")


def _child(worker: str, **params: str) -> Child:
    return Child("memory://x", "space", f"{_HERE}{worker}", params)


def test_a_worker_is_another_process_and_answers_with_its_result() -> None:
    first, second = _child("own_pid", word="a"), _child("own_pid", word="b")
    one, two = first.result(), second.result()
    assert isinstance(one, dict)
    assert isinstance(two, dict)
    assert one["pid"] == first.pid != second.pid == two["pid"]
    assert (one["word"], two["word"]) == ("a", "b")
    assert one["parent"] not in (os.getpid(), first.pid)
    first.end()
    second.end()


def test_the_server_has_opened_a_url_once_before_its_workers_are_forked(tmp_path: Path) -> None:
    place = tmp_path / "warm.db"
    for _ in range(2):
        worker = Child(f"sqlite:///{place}", "space", f"{_HERE}own_pid", {"word": "opens nothing"})
        assert isinstance(worker.result(), dict)
        worker.end()
        assert place.exists()
    place.unlink()
    worker = Child(f"sqlite:///{place}", "space", f"{_HERE}own_pid", {"word": "once is enough"})
    worker.result()
    worker.end()
    assert not place.exists()


def test_a_target_that_does_not_open_is_left_to_its_worker(tmp_path: Path) -> None:
    worker = Child(f"sqlite:///{tmp_path}/no/such/place.db", "space", f"{_HERE}own_pid", {"word": "opens nothing"})
    assert isinstance(worker.result(), dict)
    worker.end()


def test_a_worker_has_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for wish in ("first", "second"):
        monkeypatch.setenv("WISH", wish)
        child = _child("own_pid", word="a")
        result = child.result()
        child.end()
        assert isinstance(result, dict)
        assert result["wished"] == wish


def test_a_killed_worker_is_gone_and_its_pipes_end() -> None:
    child = _child("count")
    child.wait_for("number")
    child.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    with pytest.raises(ChildError, match="ended without"):
        child.wait_for("returned", timeout_s=10.0)
    child.kill()
    child.end()


def test_a_paused_worker_stands_until_it_is_resumed() -> None:
    child = _child("count")
    child.wait_for("number")
    child.pause()
    state = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "T"
    child.resume()
    child.wait_for("number")
    child.end()


def test_a_failing_worker_names_its_error() -> None:
    child = _child("fails")
    with pytest.raises(ChildError, match="ValueError: on purpose"):
        child.result()
    child.end()


def test_a_fresh_interpreter_does_the_same() -> None:
    process = FreshProcess([sys.executable, "-c", "print(input())"])
    process.stdin.write("hello\n")
    process.stdin.flush()
    assert process.stdout.readline() == "hello\n"
    process.wait(10.0)
    assert not process.running()
    process.signal(signal.SIGTERM)
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def test_the_server_ends_with_its_user_and_a_worker_does_not_hold_it() -> None:
    text = (
        "from statebook_conformance.spawning import start_process, _SPAWNER\n"
        "import os\n"
        "worker = start_process()\n"
        "print(_SPAWNER._server._process.pid, worker.pid, flush=True)\n"
        "worker.signal(9); worker.wait(10)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    for pid in done.stdout.split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_waiting_for_a_worker_that_stays_is_bounded() -> None:
    process = start_process()
    with pytest.raises(TimeoutError, match="still there"):
        process.wait(0.05)
    assert process.running()
    process.signal(signal.SIGKILL)
    process.wait(10.0)
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
