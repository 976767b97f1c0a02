"""Recording clients write what happened in the words of the checkers, and their loops end."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator

import pytest

from statebook.errors import HeadConflict, StoreClosed, WriterBusy, WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import NONE, Batch, Event, EventPage, Receipt, RecordedEvent
from statebook.plugins import load_backend
from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.journal_clients import (
    END,
    JournalClient,
    claim_fields,
    claim_of,
    dump,
    fine_switching,
    make,
    poll,
    share_claim,
    shown,
    take_turns,
    undump,
)
from statebook_conformance.mutants.forward import ForwardJournal

KEY = ThreadKey("user", "agent", "session", "thread")


@pytest.fixture
def journal(request: pytest.FixtureRequest) -> Iterator[ThreadJournalStore]:
    store = load_backend(f"memory://clients?namespace={abs(hash(request.node.name))}").open_journal()
    yield store
    store.close()


@pytest.fixture
def client(journal: ThreadJournalStore) -> JournalClient:
    ticks = iter(range(1_000_000))
    return JournalClient(journal, Recorder(clock=lambda: next(ticks)), "w", KEY)


def outcomes(client: JournalClient) -> list[tuple[str, str, str | None]]:
    return [(item.op, item.outcome.value, item.error) for item in client.recorder.operations()]


def test_refusals_of_the_contract_are_answers_and_are_recorded_with_what_they_carry(client: JournalClient) -> None:
    old = client.held()
    receipt = client.append(old, make("a", 2), 0)
    claim = client.held()
    assert isinstance(receipt, Receipt)
    assert isinstance(client.append(old, make("a", 2), 0), WriterFenced)
    assert isinstance(client.append(claim, make("b"), 1), HeadConflict)
    assert isinstance(client.claim(NONE), WriterBusy)
    assert not client.release(old)
    assert not client.heartbeat(old)
    appends = [item for item in client.recorder.operations() if item.op == "append"]
    assert appends[1].output == {"committed": {"first": 1, "last": 2, "replayed": True, "epoch": old.epoch}}
    assert appends[2].output == {"head": 2}
    assert [error for _, outcome, error in outcomes(client) if outcome == "refused"] == [
        "WriterFenced",
        "HeadConflict",
        "WriterBusy",
        "WriterFenced",
        "WriterFenced",
    ]


def test_what_is_no_answer_of_the_contract_is_raised_and_recorded_as_unknown(client: JournalClient) -> None:
    client.held()
    client.journal.close()
    with pytest.raises(StoreClosed):
        client.head()
    assert outcomes(client)[-1] == ("head", "unknown", "StoreClosed")


def test_a_payload_that_is_not_the_one_that_was_sent_shows_in_the_history(client: JournalClient) -> None:
    claim = client.held()
    strange = Event(event_id="e.0", type="run/step", occurred_at=1, payload=b'{"id":"other"}')
    client.journal.append(claim, Batch("e", (strange,)), 0)
    client.journal.append(claim, make("f"), 1)
    page = client.journal.read_after(KEY, 0)
    assert shown(page.events) == [[1, "e.0 with another payload"], [2, "f.0"]]


def test_names_and_payloads_of_made_events_are_json_and_differ() -> None:
    events = make("b", 3).events
    assert [json.loads(event.payload) for event in events] == [{"id": event.event_id} for event in events]
    assert len({event.event_id for event in events}) == 3


def test_claims_and_histories_come_back_from_another_process_as_they_were(client: JournalClient) -> None:
    claim = client.held()
    client.append(claim, make("a"), 0)
    through = json.loads(json.dumps({"claim": claim_fields(claim), "operations": dump(client.recorder)}))
    assert claim_of(through["claim"]) == claim
    assert undump(through["operations"]) == client.recorder.operations()


def test_a_writer_alone_that_takes_turns_gets_receipts_only_and_a_poller_sees_all_of_it(client: JournalClient) -> None:
    answers = take_turns(client, random.Random(1), 5)
    claim = client.held()
    client.append(claim, make(END), claim.last_seq)
    seen = poll(client, random.Random(1), timeout_s=5.0)
    assert set(answers) == {"Receipt"}
    assert [seq for seq, _ in seen] == list(range(1, claim.last_seq + 2))
    assert seen[-1][1].startswith(END)


def test_writers_of_one_claim_find_their_place_behind_others(client: JournalClient) -> None:
    claim = client.held()
    client.journal.append(claim, make("before", 3), 0)
    assert share_claim(client, claim, random.Random(1), 4) == 1
    head = client.head()
    assert head is not None
    assert head.last_seq > 3 + 3


def test_a_poller_gives_up_where_the_end_never_comes(client: JournalClient) -> None:
    claim = client.held()
    client.append(claim, make("a"), 0)
    assert poll(client, random.Random(1), timeout_s=0.0) == [(1, "a.0")]


def test_pages_that_disagree_with_their_own_end_are_noted(client: JournalClient) -> None:
    class Wrong(ForwardJournal):
        def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
            page = self.inner.read_after(key, seq, limit)
            return EventPage(page.events, has_more=False, last_seq=page.last_seq + 1)

    claim = client.held()
    client.append(claim, make("a"), 0)
    client.read(0, 10)
    assert client.odd == []
    client.journal = Wrong(client.journal)
    client.read(0, 10)
    assert client.odd == ["a page that ends at 1 says last_seq 2 and has_more False"]


def test_the_interval_between_switches_is_put_back() -> None:
    before = sys.getswitchinterval()
    inside: list[float] = []

    def fail() -> None:
        with fine_switching():
            inside.append(sys.getswitchinterval())
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    assert inside[0] < before
    assert sys.getswitchinterval() == before


def test_recorded_events_keep_their_order() -> None:
    event = RecordedEvent(7, "x.0", "run/step", 1, b'{"id":"x.0"}', None, None, False, 2)
    assert shown((event,)) == [[7, "x.0"]]
