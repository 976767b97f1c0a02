"""The embedded backends answer one random history alike, and as the model does.

For each server the rule ERR-1.one-caller does the same in its certification.
"""

from __future__ import annotations

from pathlib import Path

from statebook_conformance.differential.make import make_history
from statebook_conformance.differential.run import play
from statebook_conformance.target import Target

LOOKS = 60
"""How many steps look at everything at the end of a history."""


def test_the_embedded_backends_answer_five_histories_alike(tmp_path: Path) -> None:
    targets = [
        Target(url) for url in ("memory://differential", f"file://{tmp_path}/store", f"sqlite:///{tmp_path}/store.db")
    ]
    for seed in range(5):
        history = make_history(seed, 400)
        played = play(history, targets)
        assert played.differences == (), f"seed {seed}"
        assert played.skipped == 0
        assert played.compared == (400 + LOOKS) * len(targets)
