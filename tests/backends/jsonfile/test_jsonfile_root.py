"""Opening a root: made where there is none, refused and left alone where it is not ours."""

import errno
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pytest

import statebook
from statebook.errors import BackendUnavailable, InvalidConfiguration, UnsupportedFormat
from statebook_backends.jsonfile import locks
from statebook_backends.jsonfile.options import JsonFileOptions
from statebook_backends.jsonfile.store import JsonFileAtomicJournalStorage
from statebook_backends.jsonfile.tree import Disk


class Python(Protocol):
    def __call__(self, program: str, *arguments: str) -> "subprocess.Popen[str]": ...


def open_at(path: Path, query: str = "") -> None:
    store = statebook.open_atomic(f"file://{path}{query}")
    store.commit("d/_n/s/k", None, b"head")
    store.close()


def contents(path: Path) -> list[tuple[str, bytes]]:
    return sorted((str(file), file.read_bytes()) for file in path.rglob("*") if file.is_file())


def test_a_root_is_made_with_the_directories_above_it_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    open_at(path)
    assert (path / "statebook.json").read_text() == '{"statebook":2,"kind":"file-store"}\n'
    store = statebook.open_atomic(f"file://{path}")
    head = store.read_head("d/_n/s/k")
    assert head is not None
    assert head.data == b"head"
    store.close()


def test_opening_for_reading_makes_nothing_of_a_namespace(root: Path) -> None:
    store = statebook.open_atomic(f"file://{root}?namespace=mine")
    assert store.read_head("t/a/b") is None
    assert store.list_scopes("", None, 10).names == ()
    assert store.list_blobs("t/a/b", None, 10).names == ()
    store.delete_blobs("t/a/b", ["x"])
    assert not store.delete_head("t/a/b", "1-x")
    assert isinstance(store.commit("t/a/b", "1-x", b""), statebook.CommitConflict)
    store.close()
    assert sorted(os.listdir(root)) == ["statebook.json", "statebook.locks"]


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("notes.txt", b"mine", InvalidConfiguration),
        ("statebook.json", b'{"statebook":3,"kind":"file-store"}\n', UnsupportedFormat),
        ("statebook.json", b'{"statebook":2,"kind":"other-store"}\n', UnsupportedFormat),
        ("statebook.json", b"", InvalidConfiguration),
        ("statebook.json", b"{", InvalidConfiguration),
        ("statebook.json", b"\xff\xfe", InvalidConfiguration),
        ("sub/deep/file", b"mine", InvalidConfiguration),
    ],
)
def test_a_directory_that_is_not_ours_is_refused_and_not_changed(
    root: Path, name: str, content: bytes, error: type[Exception]
) -> None:
    (root / name).parent.mkdir(parents=True)
    (root / name).write_bytes(content)
    before = contents(root), sorted(root.rglob("*"))
    with pytest.raises(error):
        open_at(root)
    with pytest.raises(error):
        statebook.load_backend(f"file://{root}").destroy_namespace()
    assert (contents(root), sorted(root.rglob("*"))) == before


def test_the_root_of_agents_can_become_a_root_itself(root: Path) -> None:
    open_at(root, "?agent_id=one")
    open_at(root, "?agent_id=default")
    open_at(root / "one")
    open_at(root)
    assert sorted(os.listdir(root)) == ["default", "ns.default", "one", "statebook.json", "statebook.locks"]
    agent = statebook.open_atomic(f"file://{root}?agent_id=default")
    agent.commit("d/_n/s/only-here", None, b"")
    plain = statebook.open_atomic(f"file://{root}")
    assert plain.list_scopes("", None, 10).names == ("d/_n/s/k",)
    agent.close()
    plain.close()


def test_a_link_in_the_place_of_the_root_or_of_what_is_in_it_is_refused(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root.symlink_to(outside)
    with pytest.raises(InvalidConfiguration, match="outside"):
        open_at(root)
    root.unlink()
    open_at(root)
    for name in ("statebook.locks", "statebook.json", "agent"):
        place = root / name
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        place.symlink_to(outside)
        with pytest.raises(InvalidConfiguration):
            open_at(root, "?agent_id=agent" if name == "agent" else "")
        place.unlink()
        if name == "statebook.json":
            place.write_text('{"statebook":2,"kind":"file-store"}\n')
    assert list(outside.iterdir()) == []


def test_directories_above_the_root_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    open_at(tmp_path / "link" / "root")
    assert (tmp_path / "real" / "root" / "statebook.json").is_file()


def test_a_path_below_a_file_or_a_name_too_long_is_bad_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    for path in (tmp_path / "file" / "root", tmp_path / "file", tmp_path / ("x" * 300)):
        with pytest.raises(InvalidConfiguration):
            open_at(path)
    assert (tmp_path / "file").read_bytes() == b"mine"


DROPPED = """
import os, sys
import statebook
import statebook_backends.jsonfile.store
backend = statebook.load_backend("file://" + sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    backend.open_atomic()
except statebook.InvalidConfiguration as error:
    print("refused", error)
"""


def test_a_directory_that_this_user_may_not_write_is_bad_configuration(python: Python) -> None:
    with TemporaryDirectory() as name:
        base = Path(name)
        closed, empty = base / "closed", base / "empty"
        open_at(closed)
        empty.mkdir()
        for path in (*closed.rglob("*"), closed, empty, base):
            path.chmod(0o755 if path == base else 0o555 if path.is_dir() else 0o444)
        for path in (closed, empty, empty / "below"):
            out, problem = python(DROPPED, str(path)).communicate(timeout=60)
            assert out.startswith("refused"), problem
        assert list(empty.iterdir()) == []
        for path in (base, closed, empty, *closed.rglob("*")):
            path.chmod(0o755)


OPENER = """
import sys
import statebook
print("ready", flush=True)
sys.stdin.readline()
for store in range(3):
    store = statebook.open_atomic("file://" + sys.argv[1])
    store.commit("t/a/b/c/" + sys.argv[2], None, b"h")
    store.close()
print("done")
"""


def test_sixteen_processes_open_a_fresh_root_at_once(root: Path, python: Python) -> None:
    processes = [python(OPENER, str(root / "new"), f"p{number}") for number in range(16)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, problem = process.communicate(timeout=120)
        assert out == "done\n", problem
    store = statebook.open_atomic(f"file://{root / 'new'}")
    assert len(store.list_scopes("t/", None, 100).names) == 16
    store.close()


def test_locks_that_keep_no_second_opening_out_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As on network file systems, where a lock belongs to the process: there is none to test on everywhere.
    monkeypatch.setattr(locks, "try_lock", lambda fd: True)
    with pytest.raises(InvalidConfiguration, match="local disk"):
        open_at(root)


def test_a_disk_that_fails_while_a_root_is_opened_is_unavailable(root: Path) -> None:
    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(BackendUnavailable):
        JsonFileAtomicJournalStorage(JsonFileOptions(path=str(root)), disk=Disk(fsync=fsync))
    open_at(root)
