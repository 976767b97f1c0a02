"""The pages about the suite name commands, options and statuses that there are."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from statebook_conformance.cli import group
from statebook_conformance.rule import LEVELS
from statebook_conformance.services.provide import ALL_NAMES
from statebook_conformance.statuses import Status

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("conformance.md", "certify-in-ci.md")


def commands(text: str) -> list[str]:
    found = re.findall(r"`(statebook conformance [^`]+)`", text)
    return [*found, *re.findall(r"^(statebook conformance .+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_one_with_options_that_it_has(page: str) -> None:
    written = commands((DOCS / page).read_text(encoding="utf-8"))
    assert len(written) > 5
    for line in written:
        words = line.split()[2:]
        name = words[0] if words[0] in group.commands else "certify"
        assert name != "certify" or ":" in words[0] or words[0] in (*ALL_NAMES, "URL", "certify"), line
        command = group.commands[name]
        options = {option for parameter in command.params for option in parameter.opts}
        given = {word for word in words if word.startswith("--")}
        assert given <= options, line
        assert isinstance(command, click.Command)


def test_the_page_names_every_status_level_and_command() -> None:
    text = (DOCS / "conformance.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE) == [status.name for status in Status]
    assert [name for _, name in re.findall(r"^\| (\d) \| ([\w-]+) \|", text, re.MULTILINE)] == list(LEVELS)
