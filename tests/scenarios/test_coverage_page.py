"""docs/coverage.md names what there is: every capability once, and only modules, tests and rules that exist."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import statebook_conformance.rules
from statebook.cli.group import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")


def test_each_capability_has_one_row() -> None:
    rows = re.findall(r"(?m)^\| ([SJ]\d+) \|", PAGE)
    assert rows == [f"S{number}" for number in range(1, 15)] + [f"J{number}" for number in range(1, 25)]


def test_each_row_says_where_how_tested_and_how_to_see_it() -> None:
    for row in re.findall(r"(?m)^\| [SJ]\d+ \|.*$", PAGE):
        cells = [cell.strip() for cell in row.strip("| ").split(" | ")]
        assert len(cells) == 5, row
        assert all(cells), row


def test_each_test_that_is_named_exists() -> None:
    named = re.findall(r"\[((?:test_|Test)\w+)\]\(\.\./(tests/[\w/]+\.py)\)", PAGE)
    assert len(named) > 70
    for name, path in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"(?m)^(?:async )?(?:def |class )?{name}\b", text), f"{name} is not in {path}"


def test_each_module_and_path_that_is_named_exists() -> None:
    for path in re.findall(r"\]\(\.\./([\w/.-]+)\)|pytest ([\w/.-]+)", PAGE):
        assert (ROOT / "".join(path)).is_file(), path


def test_each_rule_and_command_that_is_named_exists() -> None:
    text = ""
    for module in pkgutil.iter_modules(statebook_conformance.rules.__path__):
        source = importlib.import_module(f"statebook_conformance.rules.{module.name}").__file__
        assert source is not None
        text += Path(source).read_text(encoding="utf-8")
    rules = set(re.findall(r"`([A-Z]+-\d+(?:\.[a-z0-9-]+)?)`|--rule ([A-Z]+-\d+(?:\.[a-z0-9-]+)?)", PAGE))
    assert len(rules) > 25
    for rule in map("".join, rules):
        assert f'"{rule}"' in text, rule
    for command in re.findall(r"`statebook (\w+)", PAGE):
        assert command in COMMANDS, command


def test_each_selection_of_tests_selects_something() -> None:
    selections = re.findall(r"`pytest (\S+) -k (\w+)`", PAGE)
    assert selections
    for path, word in selections:
        assert re.search(rf"(?m)^(?:async )?def test_\w*{word}", (ROOT / path).read_text(encoding="utf-8")), (
            path,
            word,
        )
