"""All backends answer one random history alike, and as the model does: the embedded ones, and every server there is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statebook_conformance.differential.make import make_history
from statebook_conformance.differential.run import play
from statebook_conformance.services.provide import SERVICE_NAMES, ServiceUnavailable, provide
from statebook_conformance.target import Target

LOOKS = 60
"""How many steps look at everything at the end of a history."""


def test_the_embedded_backends_answer_ten_histories_alike(tmp_path: Path) -> None:
    targets = [
        Target(url) for url in ("memory://differential", f"file://{tmp_path}/store", f"sqlite:///{tmp_path}/store.db")
    ]
    for seed in range(10):
        history = make_history(seed, 400)
        played = play(history, targets)
        assert played.differences == (), f"seed {seed}"
        assert played.skipped == 0
        assert played.compared == (400 + LOOKS) * len(targets)


@pytest.mark.parametrize("name", SERVICE_NAMES)
def test_a_server_answers_two_histories_as_memory_does(name: str) -> None:
    try:
        with provide(name) as provided:
            targets = [Target("memory://differential"), Target(provided.url)]
            for seed in (1, 2):
                played = play(make_history(seed, 300), targets)
                assert played.differences == (), f"seed {seed}"
                assert played.compared == (300 + LOOKS) * len(targets)
    except ServiceUnavailable as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
