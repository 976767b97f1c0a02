"""The command `statebook`: look at stores, check them, and reach the suite and the benchmarks.

Nothing is imported before the command that needs it, so that the command line starts fast.
"""

from __future__ import annotations

import click

from statebook import __version__
from statebook.cli.group import StatebookGroup


@click.group("statebook", cls=StatebookGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="statebook")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def root(*, debug: bool) -> None:
    """Storage that one can trust under AI agents.

    Stores are named by URLs, such as sqlite:///file.db; `statebook backends` lists what can be opened.
    """


def main() -> None:
    """Run the command line: the entry point of the distribution."""
    root()
