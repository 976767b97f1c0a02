"""Other fsspec file systems: one with a conditional writer carries journals, one without is refused by name."""

from pathlib import Path
from typing import Any

import pytest

from statebook import InvalidConfiguration
from statebook_backends.s3.objects import FsspecObjects
from statebook_backends.s3.opening import open_object_storage
from statebook_backends.s3.writers import ConditionalWriters, Found, Lost, ObjectEngine, Unchanged
from statebook_conformance.engine import Engine, select
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status


@pytest.mark.parametrize("protocol", ["gcs", "abfs", "memory", "local"])
def test_a_file_system_without_a_conditional_writer_is_refused_by_name(protocol: str) -> None:
    """Case 36."""
    with pytest.raises(InvalidConfiguration, match=f"'{protocol}' has no conditional writer.* s3"):
        open_object_storage(protocol, "/somewhere")


def test_s3_is_registered_and_registering_changes_no_registry() -> None:
    installed = ConditionalWriters.installed()
    assert "s3" in installed.protocols
    more = installed.adding("memory", lambda filesystem: ObjectEngine(Blind({}), FsspecObjects(filesystem)))
    assert set(more.protocols) == {*installed.protocols, "memory"}
    assert "memory" not in installed.protocols


class Blind:
    """A writer that does not look at conditions."""

    def __init__(self, held: dict[str, bytes]) -> None:
        self._held = held

    def read(self, path: str, known: str | None = None) -> Found | Unchanged | None:
        return Found(self._held[path], str(hash(self._held[path]))) if path in self._held else None

    def write(self, path: str, data: bytes, expected: str | None) -> str | Lost:
        self._held[path] = data
        return str(hash(data))

    def remove(self, path: str, expected: str) -> bool:
        return self._held.pop(path, None) is not None


def test_a_writer_that_ignores_conditions_is_refused_by_the_probe() -> None:
    """Case 36."""
    blind = ConditionalWriters({}).adding(
        "memory", lambda filesystem: ObjectEngine(Blind({}), FsspecObjects(filesystem))
    )
    with pytest.raises(InvalidConfiguration, match="If-None-Match"):
        open_object_storage("memory", "/blind", writers=blind)


def test_a_writer_for_another_file_system_is_certified_at_level_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    engine = Engine("memory_target:open_backend", seed=11, out=None)
    results: Any = engine.run(select(all_rules(), level=1, only=()))
    wrong = {result.rule: result.reason for result in results if result.status not in (Status.PASS, Status.NOT_CLAIMED)}
    assert wrong == {}
    assert sum(result.status is Status.PASS for result in results) > 80
