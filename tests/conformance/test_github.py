"""What GitHub is told, and the action and workflow that tell it: their shell is run here as a runner would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result
from made_results import BROKEN, RULES, TOMORROW, made_rule, result_of

from statebook_conformance.certificate import read_certificate
from statebook_conformance.cli import certify
from statebook_conformance.github import ANNOTATIONS_MAX, Told, annotation_lines, summary, tell_github
from statebook_conformance.reports.parts import parts_of
from statebook_conformance.services.provide import SERVICE_NAMES
from statebook_conformance.statuses import Status

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "conformance" / "action.yml"
WORKFLOW = ROOT / ".github" / "workflows" / "conformance.yml"
STEPS = ("Install", "Certify", "Compare")


# ---------------------------------------------------------------------------------------------- summary, annotations


def test_what_a_failure_is_repeated_with_names_the_effort_where_it_was_more() -> None:
    failed = result_of(RULES[1], Status.FAIL, "two winners")
    assert failed.again == "--rule APPEND-2.second --seed 7"
    assert msgspec.structs.replace(failed, effort=4).again == "--rule APPEND-2.second --seed 7 --effort 4"


def test_a_failed_rule_is_an_error_and_a_provisional_or_waived_one_a_warning() -> None:
    provisional = made_rule("APPEND-5.soon", 2, provisional=True)
    told = Told(
        target="memory://x",
        code=1,
        results=(
            result_of(RULES[0]),
            result_of(RULES[1], Status.FAIL, "two\nwinners: 100%"),
            result_of(RULES[2], Status.WAIVED, "known"),
            result_of(provisional, Status.FAIL, "later"),
        ),
    )
    error, *warnings = annotation_lines(told)
    assert error.startswith("::error title=FAIL APPEND-2.second::A promise.%0Atwo%0Awinners: 100%25")
    assert error.endswith("%0Arepeat with: --rule APPEND-2.second --seed 7")
    assert [line.partition("::A promise")[0] for line in warnings] == [
        "::warning title=WAIVED APPEND-3.third",
        "::warning title=FAIL APPEND-5.soon (provisional)",
    ]
    text = summary(told)
    failed, waived, rest = (text.index(f"### {name}") for name in ("Failed", "Waived", "Provisional"))
    assert failed < text.index("two winners: 100%") < waived < text.index("known") < rest < text.index("later")


def test_no_text_of_a_backend_becomes_a_command_or_markup() -> None:
    nasty = "a | b `c` <script>*x*\n::set-output name=level::4\r\n::stop-commands::x"
    told = Told(target="x", code=1, results=(result_of(RULES[0], Status.FAIL, nasty),))
    lines = annotation_lines(told)
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert "\r" not in lines[0]
    text = summary(told)
    assert "<script>" not in text
    (row,) = [line for line in text.splitlines() if "APPEND-1.first" in line]
    assert len(re.findall(r"(?<!\\)\|", row)) == 6


def test_what_is_more_than_github_shows_is_in_the_summary() -> None:
    results = tuple(result_of(made_rule(f"APPEND-{n}", 1), Status.FAIL, f"why {n}") for n in range(1, 31))
    told = Told(target="x", code=1, results=results)
    assert len(annotation_lines(told)) == ANNOTATIONS_MAX
    assert all(f"why {n}" in summary(told) for n in range(1, 31))


def test_a_certificate_is_summed_up_with_level_profile_and_digest(certificate: Callable[..., Path]) -> None:
    results = tuple(map(result_of, RULES))
    parts = parts_of(read_certificate(certificate(*results, rules=RULES, canaries={"a-canary": ""})))
    told = Told(target="x", code=4, results=results, parts=parts)
    text = summary(told)
    assert "**no level** (attempted up to 2)" in text
    assert parts.sha256 in text
    assert "canary a-canary survived" in text
    assert any(line.startswith("::error title=canary a-canary::survived") for line in annotation_lines(told))


def test_github_appends_to_its_files_and_elsewhere_there_is_one_of_ours(tmp_path: Path) -> None:
    told = Told(target="x", code=3, reason="redis-server is missing")
    files = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "GITHUB_OUTPUT": str(tmp_path / "output")}
    (tmp_path / "summary").write_text("before\n", encoding="utf-8")
    _, lines = tell_github(told, tmp_path, files)
    assert lines == (
        "::warning title=statebook conformance x::a service, tool or driver is missing: redis-server is missing",
    )
    assert (tmp_path / "summary").read_text(encoding="utf-8") == "before\n" + summary(told)
    assert (tmp_path / "output").read_text(encoding="utf-8") == "level=none\nstatus=3\n"
    for _ in range(2):
        path, _ = tell_github(told, tmp_path / "out", {})
    assert path == tmp_path / "out" / "github-summary.md"
    assert path.read_text(encoding="utf-8") == summary(told)


@pytest.mark.parametrize(
    ("target", "more", "code", "said"),
    [
        ("memory://fine", (), 0, "5 of 5 rules"),
        (BROKEN, (), 1, "::error title=FAIL ERR-5"),
        (BROKEN, ("--waive", "ERR-5", "--reason", "known", "--until", TOMORROW), 0, "::warning title=WAIVED ERR-5"),
        ("nothing", (), 2, "neither a store URL"),
        ("nowhere://x", (), 2, "::error title=statebook conformance nowhere"),
        ("redis://user:geheim@127.0.0.1:1/0", (), 3, "::warning title=statebook conformance redis"),
    ],
)
def test_exit_statuses_tell_apart_what_went_wrong(
    command: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    target: str,
    more: tuple[object, ...],
    code: int,
    said: str,
) -> None:
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    done = command("certify", target, "--level", 0, "--github", "--no-canaries", "--out", tmp_path, *more)
    assert done.exit_code == code, done.output
    text = done.output + "".join(file.read_text(encoding="utf-8") for file in tmp_path.glob("*.md"))
    assert said in text
    assert "geheim" not in text


def test_a_suite_that_breaks_has_a_status_of_its_own(
    command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "statebook_conformance.certify.all_rules", lambda: (made_rule("ERR-5", 0),)
    )  # a rule that checks nothing
    assert command("memory://x", "--level", 0, "--no-canaries").exit_code == 4


# ------------------------------------------------------------------------------------------------ action and workflow


def loaded(path: Path) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def steps_of(path: Path) -> dict[str, dict[str, Any]]:
    content = loaded(path)
    steps = content["runs"]["steps"] if "runs" in content else content["jobs"]["certify"]["steps"]
    return {step["name"]: step for step in steps if "name" in step}


def inputs_of(path: Path) -> dict[str, dict[str, Any]]:
    content = loaded(path)
    # YAML 1.1 reads the key `on` as true.
    found: dict[str, dict[str, Any]] = (
        content["inputs"] if "inputs" in content else content[True]["workflow_call"]["inputs"]
    )
    return found


def test_action_and_workflow_have_the_same_inputs_and_run_the_same_shell() -> None:
    action, workflow = inputs_of(ACTION), inputs_of(WORKFLOW)
    assert action.keys() - workflow.keys() == {"out"}
    assert workflow.keys() - action.keys() == {"timeout-minutes"}
    for name in action.keys() & workflow.keys() - {"target"}:
        assert action[name]["default"] == workflow[name]["default"], name
        assert action[name]["description"] == workflow[name]["description"], name
    assert steps_of(ACTION).keys() == steps_of(WORKFLOW).keys() == set(STEPS)
    for name in STEPS:
        assert steps_of(ACTION)[name]["run"] == steps_of(WORKFLOW)[name]["run"]
        assert steps_of(ACTION)[name]["env"].keys() == steps_of(WORKFLOW)[name]["env"].keys()


@pytest.mark.parametrize("path", [ACTION, WORKFLOW])
def test_every_input_is_used_and_every_used_one_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    used = set(re.findall(r"inputs\.([a-z-]+)", text))
    assert used == set(inputs_of(path))
    for step in steps_of(path).values():
        assert "${{" not in step["run"], "an expression in a script lets an input run commands"
        assert set(re.findall(r"\$\{?([A-Z]+)", step["run"])) == set(step["env"])


def test_every_option_that_the_action_gives_is_one_of_the_command() -> None:
    options = {name for parameter in certify.params for name in parameter.opts}
    given = set(re.findall(r"(--[a-z-]+)", steps_of(ACTION)["Certify"]["run"]))
    assert given == {"--level", "--out", "--github", "--seed", "--waivers"}
    assert given <= options


def test_every_service_can_be_asked_for() -> None:
    script = steps_of(ACTION)["Install"]["run"]
    assert all(re.search(rf"^\s+(\S+ \| )*{name}( \| \S+)*\)", script, re.MULTILINE) for name in SERVICE_NAMES)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """A fresh environment as setup-python leaves one, which finds what is installed here: nothing is downloaded."""
    place = tmp_path_factory.mktemp("runner")
    venv.create(place / "env", with_pip=True)
    (packages,) = (place / "env" / "lib").glob("python*/site-packages")
    here = [entry for entry in sys.path if entry and Path(entry).is_dir()]
    (packages / "here.pth").write_text("\n".join(here), encoding="utf-8")
    path = [str(place / "env" / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {"PATH": os.pathsep.join(path), "HOME": str(place), "PIP_NO_INDEX": "1", "PYTHONPATH": os.pathsep.join(here)}


def run_step(name: str, runner: Mapping[str, str], folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step's shell as a runner does, with its variables filled from the inputs."""
    step = steps_of(ACTION)[name]
    values = {key: str(entry.get("default", "")) for key, entry in inputs_of(ACTION).items()} | inputs
    environment = {
        key: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: values[found[1]], str(text))
        for key, text in step["env"].items()
    }
    files = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_OUTPUT": str(folder / "output")}
    script = folder / "step.sh"
    script.write_text(step["run"], encoding="utf-8")
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        env={**runner, **environment, **files},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_install_step_installs_the_suite(runner: Mapping[str, str], tmp_path: Path) -> None:
    done = run_step("Install", runner, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Requirement already satisfied: statebook[conformance]" in done.stdout


def test_the_install_step_names_a_service_that_is_none(runner: Mapping[str, str], tmp_path: Path) -> None:
    done = run_step("Install", runner, tmp_path, services="postgres")
    assert done.returncode == 2
    assert "::error title=statebook conformance::there is no service postgres" in done.stdout


def test_the_certify_step_leaves_certificate_summary_and_outputs(runner: Mapping[str, str], tmp_path: Path) -> None:
    done = run_step(
        "Certify", runner, tmp_path, target="memory://action", level="0", seed="7", args="--provider runner"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    content = read_certificate(tmp_path / "statebook-conformance" / "certificate.json")
    assert content["seed"] == 7
    assert content["environment"]["provider"] == "runner"  # type: ignore[index]
    assert "**level 0" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert (tmp_path / "output").read_text(encoding="utf-8") == "level=0\nstatus=0\n"


def test_the_certify_step_fails_with_the_commands_own_status(runner: Mapping[str, str], tmp_path: Path) -> None:
    done = run_step("Certify", runner, tmp_path, target=BROKEN, level="0")
    assert done.returncode == 1
    assert "::error title=FAIL ERR-5" in done.stdout
    assert (tmp_path / "output").read_text(encoding="utf-8") == "level=none\nstatus=1\n"
    waivers = tmp_path / "waivers.toml"
    waivers.write_text(f'[[waiver]]\nrule = "ERR-5"\nreason = "known"\nexpires = {TOMORROW}\n', encoding="utf-8")
    assert run_step("Certify", runner, tmp_path, target=BROKEN, level="0", waivers="waivers.toml").returncode == 0
    assert run_step("Certify", runner, tmp_path, target="nothing", level="0").returncode == 2
    missing = run_step("Certify", runner, tmp_path, target="redis://127.0.0.1:1/0", level="0")
    assert missing.returncode == 3
    assert "nothing is said of the backend" in missing.stdout


def test_the_compare_step_fails_where_a_certificate_got_worse(
    runner: Mapping[str, str], tmp_path: Path, certificate: Callable[..., Path]
) -> None:
    good = certificate(*map(result_of, RULES), rules=RULES)
    bad = certificate(result_of(RULES[0]), result_of(RULES[1], Status.FAIL, "x"), result_of(RULES[2]), rules=RULES)
    assert run_step("Compare", runner, tmp_path, baseline=str(good), out=str(bad.parent)).returncode == 1
    assert run_step("Compare", runner, tmp_path, baseline=str(bad), out=str(good.parent)).returncode == 0


def test_this_repository_uses_both_with_inputs_that_they_have() -> None:
    jobs = loaded(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    (used,) = [step for step in jobs["action"]["steps"] if str(step["uses"]).startswith("./")]
    assert ROOT / used["uses"] / "action.yml" == ACTION
    assert set(used["with"]) <= set(inputs_of(ACTION))
    assert ROOT / jobs["workflow"]["uses"] == WORKFLOW
    assert set(jobs["workflow"]["with"]) <= set(inputs_of(WORKFLOW))


def test_the_page_names_every_input_and_no_other() -> None:
    page = (ROOT / "docs" / "certify-in-ci.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE))
    assert rows == set(inputs_of(ACTION)) - {"out"}
