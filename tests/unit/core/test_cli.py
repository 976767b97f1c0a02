"""The command line: what it shows, what it refuses, how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from inspect import signature
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from statebook import ThreadJournal, ThreadJournalStore, ThreadKey, __version__, installed_backends, open_journal
from statebook.cli import backends as backends_module, group, maintain, root
from statebook.cli.group import COMMANDS, LazyCommand
from statebook.cli.target import shown
from statebook.model import CollectReport, Finding, VerifyReport

URL = "memory://command-line"
KEY = ThreadKey("u", "a", "s", "t")
ODD = ThreadKey("u", "a", "s", "x\n\x1b[31m\u202e[bold]")
NOBODY = ThreadKey(None, "a", "s", "t")
THREAD = ("--user", "u", "--agent", "a", "--session", "s", "--thread", "t")


def run(*arguments: str) -> Result:
    # Click before 8.2 mixes both streams unless it is told not to; later ones know no such word.
    apart: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
    return CliRunner(**apart).invoke(root, arguments)


def ok(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.stderr)
    return result.stdout


@pytest.fixture
def store() -> Iterator[ThreadJournalStore]:
    with_content = open_journal(URL)
    for key in (KEY, ODD, NOBODY):
        with ThreadJournal(with_content, key, clock_ms=lambda: 1_700_000_000_123) as journal:
            journal.claim("w")
            for number in range(5):
                journal.append(journal.event("run/start", {"secret": number}, event_id=f"e{number}"))
            journal.append(journal.event("state/checkpoint", {}, event_id="cp\x1b[2J"))
    yield with_content
    for key in (KEY, ODD, NOBODY):
        with_content.delete(key)
    with_content.close()


def test_the_version_is_the_distributions() -> None:
    assert ok("--version").split() == ["statebook,", "version", __version__]


def test_help_lists_every_command_and_imports_none() -> None:
    text = ok("--help")
    for name, lazy in COMMANDS.items():
        assert name in text
        assert lazy.summary in text


@pytest.mark.parametrize("name", ["backends", "collect", "inspect", "verify"])
def test_each_command_explains_itself(name: str) -> None:
    assert "--json" in ok(name, "--help")


def test_backends_are_listed_one_a_line() -> None:
    lines = ok("backends").splitlines()
    assert [line.split()[0] for line in lines] == list(installed_backends())
    memory = next(line for line in lines if line.startswith("memory"))
    assert memory.split() == ["memory", "statebook", __version__, "ready"]
    loaded = json.loads(ok("backends", "--json"))
    assert [entry["scheme"] for entry in loaded] == list(installed_backends())


def test_a_missing_driver_shows_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = (
        "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\nProvides-Extra: tls\nProvides-Extra: rocket\n"
        "Requires-Dist: click\nRequires-Dist: no-such-driver>=2,<3; extra == 'rocket'\n"
        'Requires-Dist: pluggy>=1; extra == "rocket"\nRequires-Dist: no-such-tls; extra == "tls"\n'
    )

    class Acme(backends_module.Distribution):
        def read_text(self, filename: str) -> str | None:
            return metadata if filename == "METADATA" else None

        def locate_file(self, path: object) -> object:  # type: ignore[override]
            return path

    point = EntryPoint("acme", "acme_things.rocket.plugin", "statebook.backends")
    vars(point)["dist"] = Acme()
    monkeypatch.setattr(backends_module, "entry_points", lambda group: EntryPoints((point,)))
    assert ok("backends") == 'acme  acme 1.0  driver missing, run: pip install "acme[rocket]"\n'
    (entry,) = json.loads(ok("backends", "--json"))
    assert entry["missing"] == ["no-such-driver"]


def test_threads_of_a_scope_are_listed_and_of_no_other(store: ThreadJournalStore) -> None:
    lines = ok("inspect", URL, "--user", "u").splitlines()
    assert "u / a / s / t" in lines
    assert lines[-1] == "2 threads"
    assert ok("inspect", URL).splitlines() == ["- / a / s / t", "1 threads"]
    assert ok("inspect", URL, "--user", "somebody").splitlines() == ["0 threads"]
    listed = json.loads(ok("inspect", URL, "--user", "u", "--agent", "a", "--json"))
    assert {entry["thread_id"] for entry in listed["threads"]} == {"t", ODD.thread_id}
    assert listed["has_more"] is False
    assert json.loads(ok("inspect", URL, "--user", "u", "--limit", "1", "--json"))["has_more"] is True
    assert "there are more" in ok("inspect", URL, "--user", "u", "--limit", "1")


def test_a_thread_is_shown_with_head_and_last_events_and_no_payload(store: ThreadJournalStore) -> None:
    text = ok("inspect", URL, *THREAD, "--last", "2")
    head = store.head(KEY)
    assert head is not None
    for expected in (head.journal_id, "u / a / s / t", "run/start", "state/checkpoint", "2023-11-14T"):
        assert expected in text
    assert "secret" not in text
    shown_json = json.loads(ok("inspect", URL, *THREAD, "--last", "2", "--json"))
    assert shown_json["head"]["last_seq"] == 6
    assert shown_json["head"]["checkpoint_seq"] == 6
    assert shown_json["head"]["writer_id"] is None
    assert [(event["seq"], event["type"], event["bytes"]) for event in shown_json["events"]] == [
        (5, "run/start", 12),
        (6, "state/checkpoint", 2),
    ]
    assert json.loads(ok("inspect", URL, *THREAD, "--last", "0", "--json"))["events"] == []
    assert len(json.loads(ok("inspect", URL, *THREAD, "--json"))["events"]) == 6


def test_inspecting_changes_nothing(store: ThreadJournalStore) -> None:
    before = store.head(KEY)
    ok("inspect", URL, *THREAD)
    ok("verify", URL, "--user", "u", "--deep")
    assert store.head(KEY) == before


def test_nothing_that_a_terminal_would_obey_is_written(store: ThreadJournalStore) -> None:
    odd = ("--user", "u", "--agent", "a", "--session", "s", "--thread", ODD.thread_id)
    for arguments in (("inspect", URL, "--user", "u"), ("inspect", URL, *odd), ("verify", URL, *odd)):
        text = ok(*arguments)
        assert not {"\x1b", "\u202e"} & set(text)
        assert "[bold]" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        (None, "-"),
        ("-", '"-"'),
        (" x", '" x"'),
        ("a\nb", '"a\\nb"'),
        ("é", "é"),
        ("\x1b", '"\\x1b"'),
    ],
)
def test_ids_are_shown_so_that_they_can_be_told_apart(text: str | None, expected: str) -> None:
    assert shown(text) == expected


def test_verifying_sound_journals_ends_with_0(store: ThreadJournalStore) -> None:
    lines = ok("verify", URL, "--user", "u", "--deep").splitlines()
    assert lines[-1] == "2 journals, 0 findings"
    assert all(line.startswith("ok") for line in lines[:-1])
    report = json.loads(ok("verify", URL, *THREAD, "--deep", "--json"))
    assert (report["findings"], report["batches"], report["events"]) == ([], 6, 6)


class Damaged:
    """A view of a store that finds damage and leftovers."""

    def __init__(self, inner: ThreadJournalStore) -> None:
        self.inner = inner
        self.list_threads, self.head, self.close = inner.list_threads, inner.head, inner.close

    def verify(self, key: ThreadKey, *, deep: bool) -> VerifyReport:
        return VerifyReport(key, (Finding("segment", "bad \x1b digest", 3), Finding("head", "odd")), 2, 3)

    def collect(self, key: ThreadKey) -> CollectReport:
        return CollectReport(2, 1)


def test_findings_are_all_shown_and_end_with_1(store: ThreadJournalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "open_journal", lambda url: Damaged(open_journal(url)))
    result = run("verify", URL, *THREAD)
    assert result.exit_code == 1
    assert "DAMAGED  u / a / s / t: 2 batches, 3 events checked" in result.stdout
    assert 'segment at seq 3: "bad \\x1b digest"' in result.stdout
    assert "head: odd" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 journals, 2 findings"
    result = run("verify", URL, *THREAD, "--json")
    assert result.exit_code == 1
    assert [finding["what"] for finding in json.loads(result.stdout)["findings"]] == ["segment", "head"]
    assert ok("collect", URL, "--user", "u") == "2 journals: 4 leftovers deleted, 2 kept for a later run\n"
    assert json.loads(ok("collect", URL, "--user", "u", "--json")) == {"journals": 2, "deleted": 4, "kept": 2}


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_thread_without_a_journal_ends_with_1(store: ThreadJournalStore, command: str) -> None:
    result = run(command, URL, "--user", "u", "--agent", "a", "--session", "s", "--thread", "no")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("statebook: JournalNotFound: there is no journal")


@pytest.mark.parametrize("command", ["inspect", "verify", "collect"])
@pytest.mark.parametrize(
    "options",
    [("--session", "s"), ("--thread", "t"), ("--agent", "a", "--thread", "t"), ("--thread", "t", "--session", "s")],
)
def test_a_narrower_option_needs_the_wider_ones(command: str, options: tuple[str, ...]) -> None:
    result = run(command, URL, *options)
    assert result.exit_code == 2
    assert "needs" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("inspect", "nonsense"), 2, "InvalidConfiguration"),
        (("inspect", "sqlit:///x"), 2, "UnknownBackend"),
        (("verify", "memory://?junk=1"), 2, "InvalidConfiguration"),
        (("collect", "acme://user:hunter2@h/x?token=hunter2"), 2, "UnknownBackend"),
        (("collect", "acme://user:hunter2/x@h"), 2, "InvalidConfiguration"),
        (("inspect", URL, "--user", ""), 1, "InvalidKey"),
    ],
)
def test_an_error_is_one_line_without_a_traceback_or_a_secret(
    arguments: tuple[str, ...], code: int, error: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"statebook: {error}")
    assert "hunter2" not in result.stderr


def test_debug_gives_the_error_itself() -> None:
    result = run("--debug", "inspect", "nonsense")
    assert type(result.exception).__name__ == "InvalidConfiguration"


def test_an_unknown_command_is_a_usage_error() -> None:
    result = run("inspekt")
    assert result.exit_code == 2
    assert "No such command" in result.stderr


def use(monkeypatch: pytest.MonkeyPatch, **commands: LazyCommand) -> None:
    monkeypatch.setattr(group, "COMMANDS", commands)


def test_a_command_whose_extra_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statebook_conformance.cli", None)
    result = run("conformance", "list")
    assert result.exit_code == 2
    assert 'pip install "statebook[conformance]"' in result.stderr
    assert len(result.stderr.splitlines()) == 1
    use(monkeypatch, other=LazyCommand("no_such_package.cli", "group", "Other.", "other"))
    result = run("other")
    assert 'pip install "statebook[other]"' in result.stderr
    assert "no_such_package" in result.stderr


def test_a_command_of_another_package_is_mounted_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.group("other")
    def other() -> None:
        """Other things."""

    @other.command()
    def hello() -> None:
        click.echo("hello")

    module = type(sys)("other_package")
    module.group = other  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "other_package", module)
    use(monkeypatch, other=LazyCommand("other_package", "group", "Other.", "other"))
    assert ok("other", "hello") == "hello\n"
    assert "Other." in ok("--help")


def test_a_module_that_has_no_command_is_a_broken_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, other=LazyCommand("json", "loads", "Other."))
    result = run("other")
    assert result.exit_code == 2
    assert "installation is broken" in result.stderr
