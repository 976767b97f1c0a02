"""What core/README.md says holds: its example runs, its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import statebook
from statebook.errors import StatebookError

README = (Path(__file__).parents[3] / "core" / "README.md").read_text("utf-8")


def test_the_example_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code.replace("sqlite:///agents.db", "memory://readme"), "README", "exec"), {})
    assert capsys.readouterr().out == '3 state/checkpoint b\'{"messages":["hello","hi"]}\'\n'


def test_every_error_that_is_raised_has_its_advice() -> None:
    table = README.partition("## Errors")[2].partition("## Words")[0]
    for name in statebook.__all__:
        value = getattr(statebook, name)
        if isinstance(value, type) and issubclass(value, StatebookError) and not value.__subclasses__():
            assert f"`{name}`" in table, name


def test_every_file_of_vectors_is_described() -> None:
    table = README.partition("## Test vectors")[2]
    files = sorted((Path(statebook.__file__).parent / "vectors").glob("*.json"))
    assert files
    for file in files:
        assert f"`{file.name}`" in table
