"""A small file system is filled to its last byte, freed, and gone at the end; without the right to mount it says so."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from statebook_conformance.context import Unavailable
from statebook_conformance.faults.full import small_tmpfs

SIZE = 1 << 20


def test_a_small_disk_is_filled_to_the_last_byte_and_freed() -> None:
    try:
        with small_tmpfs(SIZE) as disk:
            assert 0 < disk.free <= SIZE
            assert disk.fill(leave=100_000) <= 100_000
            (disk.path / "fits").write_bytes(bytes(50_000))
            assert disk.fill() == 0
            with pytest.raises(OSError, match="No space left") as full, (disk.path / "more").open("wb") as more:
                more.write(b"x")
            assert full.value.errno == errno.ENOSPC
            disk.make_room()
            assert disk.free > SIZE // 2
            held = (disk.path / "fits").open("rb")
            path = disk.path
        assert not path.exists(), "it is gone, though a file on it is open"
        assert len(held.read()) == 50_000
        held.close()
    except Unavailable as missing:
        pytest.skip(f"UNAVAILABLE: {missing}")


def test_without_the_right_to_mount_it_is_unavailable_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(Unavailable, match="run as root on Linux"), small_tmpfs(SIZE):
        pass
    assert list(tmp_path.iterdir()) == []
