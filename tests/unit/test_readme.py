"""What the README shows is run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def _quick_start() -> str:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if "open_journal(" in block)


def test_the_quick_start_of_the_readme_runs_and_meets_its_conflict(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _quick_start()], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        """1 run/start b'{"goal":"book a flight"}'""",
        "somebody was first; the slot is at version 2",
    ]


def test_the_quick_start_has_at_most_20_lines() -> None:
    assert len(_quick_start().strip().splitlines()) <= 20


def test_the_readme_names_exactly_two_commands_of_set_up() -> None:
    commands = re.search(r"## Two commands.*?```\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert commands is not None
    assert [line.partition("#")[0].strip() for line in commands[1].strip().splitlines()] == [
        'pip install "nox[uv]" && nox -s conformance',
        "nox -s tests",
    ]
