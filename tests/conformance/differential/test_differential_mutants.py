"""The differential test bites: it finds known-bad backends, shortens what shows them, and repeats it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from statebook.keys import SessionKey
from statebook_conformance.cli import group
from statebook_conformance.differential import steps as do
from statebook_conformance.differential.make import make_history
from statebook_conformance.differential.run import Difference, differing, play, shrink
from statebook_conformance.mutants.gallery import all_mutants
from statebook_conformance.target import Target

GOOD = "memory://good"
SEEDS = range(3)
STEPS = 400

FOUND = [
    "absent-is-empty",
    "aliasing",
    "append-nothing-ignored",
    "base-ignored",
    "batch-reordered",
    "cached-head",
    "cas-ignores-condition",
    "case-folding",
    "chain-ignores-epoch",
    "checkpoint-first-of-batch",
    "conflict-but-written",
    "cursor-goes-back",
    "cursor-not-fenced",
    "cursor-repairs-itself",
    "delete-keeps-receipts",
    "delete-session-prefix",
    "empty-list-ignored",
    "epoch-reused-after-delete",
    "fenced-receipt-lost",
    "float-for-big-int",
    "has-more-guessed",
    "head-nonce-stays",
    "journal-id-reused",
    "listing-prefix-bleed",
    "stale-read",
    "version-reused-after-delete",
]
STEPS_MAX = 8


def mutant(name: str) -> str:
    return all_mutants()[name].target("memory://base")


@pytest.mark.parametrize("name", FOUND)
def test_a_known_bad_backend_is_found_and_shown_in_a_few_steps(name: str) -> None:
    good, bad = Target(GOOD), Target(mutant(name))
    for seed in SEEDS:
        history = make_history(seed, STEPS)
        played = play(history, [good, bad], timeout_s=20)
        if played.differences:
            break
    (difference,) = played.differences
    assert difference.position == 1
    shorter = shrink(history, bad, difference, seconds=60, timeout_s=20)
    assert shorter.finished
    assert len(shorter.steps) <= STEPS_MAX
    assert shorter.steps[-1] == shorter.difference.step
    assert shorter.difference.expected != shorter.difference.found
    (again,) = play(shorter.steps, [bad], timeout_s=20).differences
    assert again.step == shorter.difference.step
    assert not play(shorter.steps, [good]).differences
    for place in range(len(shorter.steps)):
        left = (*shorter.steps[:place], *shorter.steps[place + 1 :])
        assert not play(left, [bad], timeout_s=20).differences, "one step more could be left out"


def test_what_differs_is_said_field_by_field() -> None:
    step = do.Exists(number=1, session=SessionKey("user", "session"))
    expected, found = '{"a":1,"same":[1],"gone":null}', '{"a":2,"same":[1],"new":"x"}'
    difference = Difference(target="t", position=0, step=step, expected=expected, found=found)
    assert differing(difference) == (
        "a: the model has 1, the target 2; gone: the model has null, the target nothing; "
        'new: the model has nothing, the target "x"'
    )


def test_the_command_keeps_what_differs_and_repeats_it(tmp_path: Path) -> None:
    runner, bad = CliRunner(), mutant("cursor-goes-back")
    words = ["differential", GOOD, bad, "--seed", "1", "--out", str(tmp_path)]
    done = runner.invoke(group, words)
    assert done.exit_code == 1, done.output
    (file,) = tmp_path.iterdir()
    origin, steps = do.load_history(file)
    assert (origin.seed, origin.target) == (1, bad)
    assert len(steps) <= STEPS_MAX
    for step in steps:
        assert f'"number":{step.number}' in done.output
    again = runner.invoke(group, ["differential", "--replay", str(file), GOOD, bad])
    assert again.exit_code == 1
    assert f"at step {origin.step} of seed 1" in again.output
    assert origin.found in "".join(again.output.split("\n"))
    assert runner.invoke(group, ["differential", "--replay", str(file), GOOD]).exit_code == 0


def test_a_hung_call_is_a_difference_and_holds_nothing_up() -> None:
    bad = Target(mutant("lock-kept-after-conflict"))
    differences = [
        difference for seed in SEEDS for difference in play(make_history(seed, 100), [bad], timeout_s=0.5).differences
    ]
    assert any("no answer within 0.5 s" in difference.found for difference in differences)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nothing"], 2, "neither a store URL"),
        (["nowhere://x"], 2, "nowhere"),
        (["redis://127.0.0.1:1/0"], 3, "UNAVAILABLE"),
        (["--replay", __file__, GOOD], 2, "no step of a differential history"),
        ([], 2, "TARGETS"),
    ],
)
def test_a_wrong_command_and_a_missing_server_are_told_apart(words: list[str], code: int, said: str) -> None:
    done = CliRunner().invoke(group, ["differential", *words])
    assert done.exit_code == code, done.output
    assert said in " ".join(done.output.split())
