"""Fixtures of released formats: kept, never changed, complete, and made by one command."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from statebook.errors import StatebookError
from statebook.format_fixtures import (
    CORE,
    FormatFixtures,
    StoredRecord,
    kept_fixture,
    kept_releases,
    pack_row,
    unpack_row,
)
from statebook.plugins import load_backend
from statebook_conformance.engine import Engine, RuleResult, select
from statebook_conformance.fixture_files import Fixture, FixtureError, pack, unpack
from statebook_conformance.fixtures_command import fixtures, make_fixture
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.rules import all_rules
from statebook_conformance.statuses import Status
from statebook_conformance.target import Target, TargetBackend

PACKAGES = (CORE, *(f"statebook_backends.{name}" for name in ("jsonfile", "mysql", "redis", "s3", "sqlite")))

DIGESTS = {
    (CORE, "0.1.0"): "752c9e26def1e6fcb65af89cbed5c7e644acde20a1fc2cc074638aa721cda857",
    ("statebook_backends.jsonfile", "0.1.0"): "f7979976e464a80adf97978d573f7d9c852b5d1d2b28c96cd4cde87f37d4e76d",
    ("statebook_backends.mysql", "0.1.0"): "9225c69548ce10dd77f311c8923237274d129bff11dee39ffd356bba2db034f6",
    ("statebook_backends.redis", "0.1.0"): "464a59a0a446d4a69bb248215d0b94a049ffd5b41f2ba97ee0eb25a330afc586",
    ("statebook_backends.s3", "0.1.0"): "aa6b6dae3ff4367a19a49e2961c214985610db23960fec4d5fffb09bed0ffb37",
    ("statebook_backends.sqlite", "0.1.0"): "1dc316ca99c9639305f96a6c2d0d057316faa1c8c40e8122c90092445dd7b778",
}
"""A fixture is written once. Where one of these differs, data that users have is no longer what is tested."""


def kept() -> list[tuple[str, str]]:
    return [(package, release) for package in PACKAGES for release in kept_releases(package)]


def test_no_fixture_has_changed_or_gone_since_it_was_written() -> None:
    found = {at: hashlib.sha256(kept_fixture(*at)).hexdigest() for at in kept()}
    assert found == DIGESTS


@pytest.mark.parametrize(("package", "release"), kept())
def test_each_fixture_says_what_it_is_and_holds_all_kinds_of_data(package: str, release: str) -> None:
    fixture = unpack(kept_fixture(package, release))
    assert fixture.release == release
    assert fixture.layout == ("core" if package == CORE else "backend")
    assert gzip.decompress(pack(fixture)) == gzip.decompress(kept_fixture(package, release))
    seen, held = fixture.expected.seen, fixture.expected.held
    assert len(seen.threads) == 6
    assert max(len(thread.events) for thread in seen.threads) == 70
    assert any(thread.head.first_seq > 1 for thread in seen.threads)
    assert any(thread.head.claim is None for thread in seen.threads)
    assert len(seen.documents) > 8
    assert len(seen.lists) == 3
    assert (len(held.journals), len(held.cursors), len(held.deleted), len(held.slots)) == (5, 3, 1, 3)


def test_what_is_no_fixture_is_refused_and_named() -> None:
    with pytest.raises(KeyError):
        kept_fixture(CORE, "0.0.0")
    for data in (b"", b"junk", gzip.compress(b"{}")):
        with pytest.raises(FixtureError, match="no fixture"):
            unpack(data)
    newer = msgspec.structs.replace(unpack(kept_fixture(CORE, "0.1.0")), form=2)
    with pytest.raises(FixtureError, match="form 2"):
        unpack(pack(newer))


def test_a_row_comes_back_with_text_bytes_numbers_and_nulls_apart() -> None:
    row = {"a": "é", "b": b"\x00\xff", "c": 1 << 62, "d": None, "e": b""}
    assert unpack_row(pack_row(row)) == row


def test_the_command_writes_a_fixture_that_the_rule_then_reads(tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/store.db"
    answer = CliRunner().invoke(fixtures, [target, "--out", str(tmp_path / "kept"), "--release", "9.9"])
    assert answer.exit_code == 0, answer.output
    (file,) = (tmp_path / "kept").iterdir()
    assert file.name == "9.9.json.gz"
    made = unpack(file.read_bytes())
    result = run_rule(Keeping(f"sqlite:///{tmp_path}/other.db", made))
    assert (result.status, dict(result.evidence)["fixtures"]) == (Status.PASS, 1)


@pytest.mark.parametrize("target", ["memory://nothing-kept", "memory://"])
def test_a_backend_that_keeps_nothing_has_no_fixture_and_claims_nothing(target: str, tmp_path: Path) -> None:
    answer = CliRunner().invoke(fixtures, [target, "--out", str(tmp_path)])
    assert answer.exit_code == 2
    assert "keeps no fixtures" in answer.output
    assert run_rule(Target(target)).status is Status.NOT_CLAIMED


def test_a_format_that_is_refused_by_its_version_is_accepted(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/root"
    old = make_fixture(Target(url), "0.0.1", "backend")
    records = tuple(
        StoredRecord(record.name, record.data.replace(b'"statebook":2,', b'"statebook":1,')) for record in old.records
    )
    result = run_rule(Keeping(url, msgspec.structs.replace(old, records=records)))
    assert (result.status, dict(result.evidence).get("refused by version")) == (Status.PASS, 1)


def test_a_fixture_that_is_not_read_as_it_was_written_fails(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/root"
    old = make_fixture(Target(url), "0.0.1", "backend")
    result = run_rule(Keeping(url, msgspec.structs.replace(old, records=old.records[:-1])))
    assert result.status is Status.FAIL


def test_what_is_no_record_of_a_table_is_refused_and_nothing_is_planted(tmp_path: Path) -> None:
    backend = load_backend(f"sqlite:///{tmp_path}/store.db?namespace=planted")
    planter = backend.open_fixtures()
    assert planter is not None
    good = StoredRecord("thread/0", pack_row({"jid": 1 << 41, "namespace": "planted", "name": "n"}))
    for bad in (
        StoredRecord("sqlite_schema/0", pack_row({"name": "thread"})),
        StoredRecord("thread/1", pack_row({"jid = 1; --": 1})),
        StoredRecord("thread/1", b"no row"),
    ):
        with pytest.raises(ValueError, match=r"record|JSON"):
            planter.plant((good, bad))
    assert planter.take() == ()
    planter.plant((good,))
    other = StoredRecord("thread/1", pack_row({"jid": 1 << 42, "namespace": "planted", "name": "other"}))
    with pytest.raises(StatebookError):
        planter.plant((other, good))
    assert [record.data for record in planter.take()] == [good.data]
    planter.close()


def run_rule(target: Target) -> RuleResult:
    (rule,) = (rule for rule in select(all_rules(), level=4) if rule.id == "FORMAT-4")
    return Engine(target, seed=1, reruns=0).run_rule(rule)


class Keeping(Target):
    """A backend that keeps one given fixture instead of its own."""

    def __init__(self, text: str, fixture: Fixture) -> None:
        super().__init__(text)
        self.fixture = fixture

    def backend(self, namespace: str) -> TargetBackend:
        return KeepingBackend(load_backend(self.text + f"?namespace={namespace}"), self.fixture)


class KeepingBackend(ForwardBackend):
    def __init__(self, inner: TargetBackend, fixture: Fixture) -> None:
        super().__init__(inner)
        self.fixture = fixture

    def open_fixtures(self) -> FormatFixtures | None:
        fixtures = self.inner.open_fixtures()
        return None if fixtures is None else Kept(fixtures, self.fixture)


class Kept(FormatFixtures):
    def __init__(self, inner: FormatFixtures, fixture: Fixture) -> None:
        super().__init__(inner.package)
        self.inner, self.fixture = inner, fixture

    def releases(self) -> tuple[str, ...]:
        return (self.fixture.release,)

    def load(self, release: str) -> bytes:
        return pack(self.fixture)

    def take(self) -> tuple[StoredRecord, ...]:
        return self.inner.take()

    def plant(self, records: Iterable[StoredRecord]) -> None:
        self.inner.plant(tuple(records))

    def close(self) -> None:
        self.inner.close()
