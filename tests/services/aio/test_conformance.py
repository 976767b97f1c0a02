"""Conformance through the facade: what holds for a store holds for asyncio."""

from __future__ import annotations

import pytest

from statebook import InvalidConfiguration
from statebook_conformance.engine import Engine, select
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status
from statebook_conformance.target import Target
from statebook_conformance.through_aio import open_target

TARGET = "statebook_conformance.through_aio:open_target?base=memory://through-aio"


def test_levels_0_and_1_hold_through_the_facade() -> None:
    results = Engine(TARGET, seed=7, reruns=0).run(select(all_rules(), level=1))
    bad = [(result.rule, result.status, result.reason) for result in results if result.status is not Status.PASS]
    assert [line for line in bad if line[1] is not Status.NOT_CLAIMED] == []
    assert len(results) - len(bad) > 100


def test_the_target_opens_its_base_with_its_options() -> None:
    assert Target(TARGET).backend("n").scheme == "memory"
    with pytest.raises(InvalidConfiguration, match="unknown"):
        open_target("n", "memory://x", unknown="1")
