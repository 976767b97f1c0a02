"""The root group: commands found by name when they are called, errors as one line."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import Final

import click
import msgspec

from statebook.errors import InvalidConfiguration, MissingDriver, StatebookError

EXIT_FAILED: Final = 1
"""The store said no, or a check found something."""
EXIT_CONFIGURATION: Final = 2
"""The URL, an option or the installation is wrong."""


class LazyCommand(msgspec.Struct, frozen=True):
    """Where a command lives.

    Attributes:
        module: The module that is imported when the command is called.
        name: The name of the command in it.
        summary: One line for the list of commands.
        extra: The extra of the distribution that has what the command needs, or None.
    """

    module: str
    name: str
    summary: str
    extra: str | None = None


COMMANDS: Final = MappingProxyType(
    {
        "backends": LazyCommand("statebook.cli.backends", "backends", "List the installed backends."),
        "bench": LazyCommand("statebook_benchmarks.cli", "group", "Measure a backend and compare.", "bench"),
        "collect": LazyCommand("statebook.cli.maintain", "collect", "Delete what failed commits left behind."),
        "conformance": LazyCommand(
            "statebook_conformance.cli", "group", "Certify a backend against the contract.", "conformance"
        ),
        "inspect": LazyCommand("statebook.cli.inspect", "inspect", "List threads, or show one thread's journal."),
        "transcript": LazyCommand("statebook.cli.transcript", "transcript", "Print the conversation of one thread."),
        "verify": LazyCommand("statebook.cli.maintain", "verify", "Check stored journals, and report every finding."),
    }
)
"""The commands, by name."""


class StatebookGroup(click.Group):
    """A group that imports a command when it is called, and shows an error of ours as one line (ERR-1)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands, sorted. Imports none."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command.

        Raises:
            MissingDriver: What the command needs is not installed; the message has the command that installs it.
        """
        lazy = COMMANDS.get(cmd_name)
        return None if lazy is None else _load(cmd_name, lazy)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands. Imports none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in sorted(COMMANDS.items())])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; an error of ours is one line on stderr, unless `--debug` asks for more."""
        try:
            return super().invoke(ctx)
        except StatebookError as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"statebook: {type(error).__name__}: {' '.join(str(error).split())}", err=True)
            ctx.exit(EXIT_CONFIGURATION if isinstance(error, InvalidConfiguration) else EXIT_FAILED)


def _load(name: str, lazy: LazyCommand) -> click.Command:
    try:
        command: object = getattr(import_module(lazy.module), lazy.name)
    except ModuleNotFoundError as error:
        package = lazy.module.partition(".")[0]
        ours = (error.name or package).partition(".")[0]
        if lazy.extra is None or (ours == package and error.name not in (package, lazy.module)):
            raise
        install = f'pip install "statebook[{lazy.extra}]"'
        raise MissingDriver(
            f"`statebook {name}` needs the module {error.name!r}, which is not installed; run: {install}",
            install=install,
        ) from error
    if not isinstance(command, click.Command):
        raise InvalidConfiguration(f"{lazy.module}.{lazy.name} is no command; the installation is broken")
    return command
