"""The helpers of the state rules: what they walk, record and compare, on the reference backend and on bad ones."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from statebook.keys import SessionKey, StateKey, check_id, encode_id
from statebook.model import ANY, KeyPage, SlotKind
from statebook.plugins import open_state
from statebook.state import AgentStateStore
from statebook_conformance.checkers.history import Header, merge
from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.checkers.registry import judge
from statebook_conformance.checkers.verdict import Answer
from statebook_conformance.context import RuleFailure
from statebook_conformance.identifiers import legal_ids, refused_ids, telling_ids
from statebook_conformance.mutants.forward import ForwardState
from statebook_conformance.mutants.gallery import open_mutant
from statebook_conformance.registers import RegisterClient
from statebook_conformance.state_model import StateModel
from statebook_conformance.walking import all_keys, written

SLOT = StateKey("user", "own session", "key")


@pytest.fixture
def store() -> Iterator[AgentStateStore]:
    opened = open_state(f"memory://state-helpers-{random.getrandbits(64):x}")
    yield opened
    opened.close()


class Endless(ForwardState):
    """Says that there is more, for ever."""

    def list_keys(
        self,
        session: SessionKey,
        *,
        kind: SlotKind = SlotKind.DOCUMENT,
        after: StateKey | None = None,
        limit: int = 1_000,
    ) -> KeyPage:
        page = super().list_keys(session, kind=kind, limit=limit)
        return KeyPage(page.keys, has_more=True)


def test_every_legal_id_is_one_and_has_a_name_of_its_own() -> None:
    ids = legal_ids()
    for value in ids:
        check_id(value, "id")
    assert len({encode_id(value).casefold() for value in ids}) == len(ids) > 120


def test_every_refused_id_is_refused_by_core() -> None:
    for value, _ in refused_ids():
        with pytest.raises(ValueError, match="id"):
            check_id(value, "id")


def test_the_short_choice_of_ids_is_legal_and_distinct() -> None:
    for value in telling_ids():
        check_id(value, "id")
    assert len(set(telling_ids())) == len(telling_ids())


def test_a_listing_without_end_is_a_finding_and_no_hang(store: AgentStateStore) -> None:
    with pytest.raises(RuleFailure, match="says that there is more"):
        all_keys(Endless(store), SLOT.session)
    store.save(SLOT, b"1")
    with pytest.raises(RuleFailure, match="did not end"):
        all_keys(Endless(store), SLOT.session)


def test_only_new_and_changed_records_count_as_written() -> None:
    assert written({"a": b"12", "b": b"3"}, {"a": b"12", "b": b"45", "c": b"678"}) == 5


def run(model: StateModel) -> None:
    """A fixed program with every kind of condition, deletes and empty lists."""
    for number in range(24):
        for kind in SlotKind:
            items = (b"%d" % number,) if kind is SlotKind.DOCUMENT or number % 4 else ()
            model.put(kind, SLOT, items, model.expected(kind, SLOT, number % 12))
            if number % 3 == 2:
                model.delete(kind, SLOT, ANY)
        model.append(SLOT, (b"x",), number % 3)
        model.check(SLOT)


def test_the_model_agrees_with_the_reference_backend(store: AgentStateStore) -> None:
    model = StateModel(store, "own")
    run(model)
    model.delete_session(SLOT.session)
    model.check(SLOT)
    model.clean()
    assert len(model.steps) > 100
    assert store.list_sessions("user").sessions == ()


@pytest.mark.parametrize(
    "mutant", ["version-reused-after-delete", "cas-ignores-condition", "conflict-but-written", "empty-list-ignored"]
)
def test_the_model_notices_a_bad_backend(mutant: str) -> None:
    store = open_mutant(f"model-{mutant}", mutant, "memory://model-mutants").open_state()
    model = StateModel(store, "own")
    with pytest.raises(RuleFailure):
        run(model)
    store.close()


def test_histories_of_one_client_are_judged_and_cover_every_operation(store: AgentStateStore) -> None:
    slots = tuple(StateKey("user", "session", f"k{index}") for index in range(2))
    documents, lists = Recorder(clock=time.monotonic_ns), Recorder(clock=time.monotonic_ns)
    RegisterClient(store, documents, "one", "seed").documents(slots, 120)
    RegisterClient(store, lists, "one", "seed").lists(slots, 60)
    history = merge(Header(rule="STATE-4", seed=1, checker="slot"), [documents.operations()])
    assert judge(history).answer is Answer.YES
    assert {entry.op for entry in history.operations} == {"load", "save", "delete"}
    header = Header(rule="STATE-7", seed=1, checker="linearizable", params={"model": "list"})
    history = merge(header, [lists.operations()])
    assert judge(history).answer is Answer.YES
    assert {entry.op for entry in history.operations} == {"load_list", "append_list", "replace_list", "delete"}
