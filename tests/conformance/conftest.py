"""The command, and certificates of made-up results."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from statebook_conformance.certificate import make_certificate, write_certificate
from statebook_conformance.cli import group
from statebook_conformance.engine import RuleResult
from statebook_conformance.profile import Profile, profile_of
from statebook_conformance.provenance import Provenance
from statebook_conformance.rule import Rule
from statebook_conformance.waivers import Waiver, apply_waivers

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def command() -> Callable[..., Result]:
    """Runs `statebook conformance …`."""

    def run(*words: object) -> Result:
        return CliRunner().invoke(group, [str(word) for word in words])

    return run


@pytest.fixture
def capabilities() -> Any:
    """What a real store declares."""
    from statebook.plugins import open_journal

    journal = open_journal("memory://declared")
    declared = journal.capabilities
    journal.close()
    return declared


@pytest.fixture
def certificate(capabilities: Any, tmp_path: Path) -> Callable[..., Path]:
    """Writes a certificate of made-up results."""
    counted = iter(range(1_000))

    def make(
        *results: RuleResult,
        rules: tuple[Rule, ...],
        waivers: tuple[Waiver, ...] = (),
        profile: Profile | None = None,
        declared: Any = None,
        canaries: dict[str, str] | None = None,
        emulated: bool = False,
        provenance: Provenance | None = None,
    ) -> Path:
        content = make_certificate(
            shown_target="memory://made",
            capabilities=declared or capabilities,
            rules=rules,
            results=apply_waivers(results, waivers),
            attempted=2,
            seed=7,
            canaries=canaries or {"a-canary": "APPEND-1"},
            provider="a test",
            emulated=emulated,
            issued_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=1.0,
            profile=profile or profile_of(rules, ()),
            waivers=waivers,
            provenance=provenance,
        )
        return write_certificate(content, tmp_path / f"certificate-{next(counted)}")

    return make
