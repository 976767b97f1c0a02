"""The same random history has the same answers as in memory; ids of every kind; what SQL users see."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from statebook import (
    ABSENT,
    ANY,
    NONE,
    AgentStateStore,
    AppendRequest,
    AtomicJournalStorage,
    Batch,
    Event,
    SessionKey,
    SlotKind,
    StatebookError,
    StateKey,
    ThreadJournalStore,
    ThreadKey,
    ThreadScope,
)
from statebook.plugins import open_atomic, open_journal, open_state

_RANDOM_FIELDS = ("nonce", "journal_id", "chain")


def _plain(value: object) -> object:
    """An answer without what is random by design."""
    text = repr(value)
    if isinstance(value, StatebookError):
        fields = {name: _plain(field) for name, field in vars(value).items() if name not in ("backend", "key")}
        return type(value).__name__, str(sorted(fields.items()))
    for name in _RANDOM_FIELDS:
        while f"{name}='" in text:
            start = text.index(f"{name}='")
            end = text.index("'", start + len(name) + 2)
            text = text[:start] + f"{name}=*" + text[end + 1 :]
    return text


def _outcome(call: Callable[[], object]) -> object:
    try:
        answer = call()
    except (StatebookError, ValueError) as error:
        answer = error
    return _plain(answer) if not isinstance(answer, tuple) else tuple(_plain(each) for each in answer)


class _History:
    """A random history of one journal store, told by a seed alone."""

    def __init__(self, store: ThreadJournalStore, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.keys = [ThreadKey(user, "a", "s", thread) for user in ("u", None) for thread in ("t", "T")]
        self.claims: list[Any] = []
        self.cursors: list[Any] = []
        self.sent: list[Any] = []

    def batch(self) -> Batch:
        draw = self.random
        if self.sent and draw.random() < 0.25:
            sent: Batch = draw.choice(self.sent)
            return sent
        name = f"b{draw.randrange(400)}"
        kinds = ("x", "x", "x", "state/checkpoint")
        made = Batch(
            name,
            tuple(
                Event(event_id=f"{name}.{draw.randrange(9_999)}", type=draw.choice(kinds), occurred_at=1, payload=b"1")
                for _ in range(draw.randrange(1, 4))
            ),
        )
        self.sent.append(made)
        return made

    def base(self, claim: Any) -> int:
        head = self.store.head(claim.key)
        last = 0 if head is None else head.last_seq
        return last if self.random.random() < 0.8 else self.random.randrange(last + 3)

    def step(self) -> object:
        draw, store = self.random, self.store
        key = draw.choice(self.keys)
        action = draw.randrange(20)
        if action == 0 or not self.claims:
            return self.keep(
                self.claims, lambda: store.claim(key, f"w{draw.randrange(3)}", replacing=draw.choice((ANY, NONE)))
            )
        claim = self.claims[-1] if draw.random() < 0.7 else draw.choice(self.claims)
        if action < 10:
            batch, base = self.batch(), self.base(claim)
            return _outcome(lambda: store.append(claim, batch, base))
        if action == 10:
            requests = [AppendRequest(one, self.batch(), self.base(one)) for one in draw.choices(self.claims, k=3)]
            return _outcome(lambda: store.append_many(requests))
        return self.other(action, key, claim)

    def other(self, action: int, key: ThreadKey, claim: Any) -> object:
        draw, store = self.random, self.store
        number = draw.randrange(30)
        exporter = draw.choice(("x", "y"))
        if action == 11:
            return self.keep(self.cursors, lambda: store.open_cursor(key, exporter))
        if action == 12 and self.cursors:
            cursor = draw.choice(self.cursors)
            return self.keep(self.cursors, lambda: store.advance_cursor(cursor, number))
        if action == 13:
            return self.keep(
                self.cursors, lambda: store.reset_cursor(key, exporter, number, expected_version=number % 4)
            )
        if action == 14:
            return _outcome(lambda: store.trim(key, number))
        if action == 15 and draw.random() < 0.3:
            return _outcome(lambda: store.delete(key)), _outcome(lambda: store.purge(key) if number % 3 == 0 else None)
        if action == 16:
            return _outcome(lambda: store.settle(claim, draw.choice(self.sent).batch_id if self.sent else "x", number))
        if action == 17:
            return _outcome(lambda: store.heartbeat(claim) if number % 2 else store.release(claim))
        if action == 18 and store.head(key) is not None:
            return _outcome(lambda: store.verify(key, deep=True))
        if action == 19:
            return _outcome(lambda: store.list_threads(ThreadScope(key.user_id), limit=1 + number % 2))
        return _outcome(lambda: store.read_after(key, number, 1 + number % 5))

    def keep(self, into: list[Any], call: Callable[[], object]) -> object:
        try:
            answer = call()
        except StatebookError as error:
            return _plain(error)
        into.append(answer)
        return _plain(answer)


@pytest.mark.parametrize("seed", range(12))
def test_a_random_history_of_journals_has_the_answers_of_memory(url: str, seed: int) -> None:
    ours, reference = open_journal(f"{url}?synchronous=normal"), open_journal("memory://")
    mine, other = _History(ours, seed), _History(reference, seed)
    for number in range(400):
        assert mine.step() == other.step(), f"step {number}"
        if number % 100 == 99:
            # What is remembered must not matter.
            mine.store.close()
            mine.store = open_journal(f"{url}?synchronous=normal")
    for key in mine.keys:
        assert _outcome(partial(mine.store.read_after, key, 0)) == _outcome(partial(reference.read_after, key, 0))
    mine.store.close()
    reference.close()


def _slot_call(draw: random.Random, number: int) -> Callable[[AgentStateStore], object]:
    """One random call on slots."""
    slots = [StateKey(user, session, key) for user in ("u", None) for session in ("s", "S") for key in ("k", "l")]
    slot, kind = draw.choice(slots), draw.choice(tuple(SlotKind))
    expected: Any = draw.choice((ANY, ABSENT, 1, 2, 3, 5, 8))
    items = [b"%d" % number] * draw.randrange(3)
    length = draw.randrange(4)
    calls: list[Callable[[AgentStateStore], object]] = [
        lambda s: s.save(slot, b"%d" % number, expected=expected),
        lambda s: s.load(slot),
        lambda s: s.append_list(slot, items, expected_length=length),
        lambda s: s.replace_list(slot, items, expected=expected),
        lambda s: s.load_list(slot),
        lambda s: s.delete(slot, kind=kind, expected=expected),
        lambda s: s.delete_session(slot.session) if length == 0 else None,
        lambda s: s.exists(slot.session),
        lambda s: s.list_keys(slot.session, kind=kind, after=slot if length else None, limit=1 + length),
        lambda s: s.list_sessions(slot.user_id, after=slot.session if length == 1 else None, limit=1 + length),
    ]
    return draw.choice(calls)


@pytest.mark.parametrize("seed", range(6))
def test_a_random_history_of_slots_has_the_answers_of_memory(url: str, seed: int) -> None:
    ours, reference = open_state(f"{url}?synchronous=normal"), open_state("memory://")
    draw = random.Random(seed)
    for number in range(400):
        call = _slot_call(draw, number)
        assert _outcome(partial(call, ours)) == _outcome(partial(call, reference)), f"step {number}"
    ours.close()
    reference.close()


def _scope_call(draw: random.Random, number: int, scope: str) -> Callable[[AtomicJournalStorage, str | None], object]:
    """One random call on scopes; it is given the token that its storage gave out last."""
    blobs = {f"b{draw.randrange(5)}": b"%d" % draw.randrange(2)}
    prefix = draw.choice(("", "t/", "t/a/", "d/"))
    after = draw.choice((None, "t/a"))
    calls: list[Callable[[AtomicJournalStorage, str | None], object]] = [
        lambda s, token: s.commit(scope, token, b"%d" % number, blobs),
        lambda s, token: s.commit(scope, token, b"%d" % number, blobs),
        lambda s, token: s.commit(scope, "stale", b"%d" % number, blobs),
        lambda s, token: s.delete_head(scope, token or "none") if number % 4 == 0 else None,
        lambda s, token: s.delete_blobs(scope, tuple(blobs)),
        lambda s, token: s.read_blob(scope, "b1"),
        lambda s, token: s.list_blobs(scope, None, 2),
        lambda s, token: s.list_scopes(prefix, after, 2),
        lambda s, token: getattr(s.read_head(scope), "data", None),
    ]
    return draw.choice(calls)


@pytest.mark.parametrize("seed", range(4))
def test_a_random_history_of_scopes_has_the_answers_of_memory(url: str, seed: int) -> None:
    storages = open_atomic(f"{url}?synchronous=normal"), open_atomic("memory://")
    draw = random.Random(seed)
    for number in range(400):
        scope = draw.choice(("t/a", "t/a/b", "t/ab", "d/x"))
        call = _scope_call(draw, number, scope)
        heads = [storage.read_head(scope) for storage in storages]
        tokens = [None if head is None else head.token for head in heads]
        answers = []
        for storage, token in zip(storages, tokens, strict=True):
            answer = _outcome(partial(call, storage, token))
            answers.append("token" if isinstance(answer, str) and len(answer) == 34 else answer)
        assert answers[0] == answers[1], f"step {number}"
    for storage in storages:
        storage.close()


# ----------------------------------------------------------------------------------------------------------------- ids


def test_every_legal_id_is_a_key_of_its_own_in_each_place(
    journal: ThreadJournalStore, state: AgentStateStore, ids: tuple[str, ...], batch: Any
) -> None:
    for number, value in enumerate(ids):
        for key in (
            ThreadKey(value, "a", "s", "t"),
            ThreadKey("u", value, "s", "t"),
            ThreadKey("u", "a", value, "t"),
            ThreadKey("u", "a", "s1", value),
        ):
            claim = journal.claim(key, value)
            assert claim.epoch == 1
            assert journal.append(claim, batch(f"{number}"), 0).last_seq == 1
    for value in ids:
        slot = StateKey(value, value, value)
        assert state.save(slot, value.encode("utf-8").hex().encode(), expected=ABSENT) == 1
        assert state.save(StateKey("u", "s", value), b"1", expected=ABSENT) == 1
    for value in ids:
        found = state.load(StateKey(value, value, value))
        assert found is not None
        assert found.value == value.encode().hex().encode()
        assert state.list_sessions(value).sessions[-1].user_id == value
        assert state.exists(SessionKey(value, value))
    assert {key.key for key in state.list_keys(SessionKey("u", "s")).keys} == set(ids)
    listed = journal.list_threads(ThreadScope("u", "a", "s1")).threads
    assert {key.thread_id for key in listed} == set(ids)
    assert [key.name for key in listed] == sorted(key.name for key in listed)


def test_ids_of_cursors_batches_and_events_come_back_as_given(
    journal: ThreadJournalStore, key: ThreadKey, ids: tuple[str, ...]
) -> None:
    claim = journal.claim(key, "w")
    for number, value in enumerate(ids):
        event = Event(event_id=value, type=value, occurred_at=1, payload=b"1", run_id=value, turn_id=value)
        journal.append(claim, Batch(value, (event,)), number)
    for number, found in enumerate(journal.read_after(key, 0).events):
        assert (found.event_id, found.type, found.run_id, found.turn_id) == (ids[number],) * 4
    for value in ids:
        assert journal.settle(claim, value, 0) is not None
        assert journal.open_cursor(key, value).epoch == 1
    for value in ids:
        assert journal.open_cursor(key, value).epoch == 2


def test_namespaces_of_one_file_never_meet(url: str, ids: tuple[str, ...], key: ThreadKey) -> None:
    for value in ids[:40]:
        if len(value) <= 128:
            from urllib.parse import quote

            store = open_journal(f"{url}?synchronous=normal&namespace={quote(value, safe='')}")
            assert store.claim(key, "w").epoch == 1
            assert len(store.list_threads(ThreadScope("user")).threads) == 1
            store.close()


# ----------------------------------------------------------------------------------------------------------------- SQL


def test_the_view_shows_each_event_to_sql_users(
    journal: ThreadJournalStore, key: ThreadKey, raw: Callable[..., list[Any]]
) -> None:
    claim = journal.claim(key, "w")
    events = tuple(
        Event(event_id=f"e{number}", type="note", occurred_at=number, payload=payload, run_id="r", required=True)
        for number, payload in enumerate((b'{"a":[1,2]}', b'"text"', b"null"), 1)
    )
    journal.append(claim, Batch("b", events), 0)
    journal.append(claim, Batch("c", (Event(event_id="e4", type="x", occurred_at=4, payload=b"4"),)), 3)
    rows = raw("SELECT seq, event_id, type, occurred_at, run_id, required, payload, thread_id FROM events ORDER BY seq")
    assert rows == [
        (1, "e1", "note", 1, "r", 1, '{"a":[1,2]}', "thread"),
        (2, "e2", "note", 2, "r", 1, "text", "thread"),
        (3, "e3", "note", 3, "r", 1, None, "thread"),
        (4, "e4", "x", 4, None, 0, 4, "thread"),
    ]
    journal.trim(key, 3)
    assert [row[0] for row in raw("SELECT seq FROM events ORDER BY seq")] == [3, 4]


def test_a_trim_removes_the_events_and_keeps_the_receipts(
    journal: ThreadJournalStore, url: str, key: ThreadKey, batch: Any, raw: Callable[..., list[Any]]
) -> None:
    claim = journal.claim(key, "w")
    for number in range(100):
        journal.append(claim, batch(f"b{number}", payload=b'"secret"'), number)
    assert journal.trim(key, 91).first_seq == 91
    assert raw("SELECT count(*) FROM batch WHERE instr(CAST(body AS TEXT), 'secret')") == [(10,)]
    journal.close()
    store = open_journal(url)
    assert store.append(claim, batch("b5", payload=b'"secret"'), 5).replayed
    assert store.append(claim, batch("b60", payload=b'"secret"'), 60).replayed
    assert store.verify(key, deep=True).findings == ()
    assert [event.seq for event in store.read_after(key, 90).events] == list(range(91, 101))
    store.close()


def test_an_atomic_blob_is_never_replaced_and_the_head_stays(atomic: AtomicJournalStorage) -> None:
    token = atomic.commit("t/a", None, b"one", {"blob": b""})
    assert isinstance(token, str)
    with pytest.raises(StatebookError, match="never replaced"):
        atomic.commit("t/a", token, b"two", {"new": b"1", "blob": b"x"})
    head = atomic.read_head("t/a")
    assert head is not None
    assert head.data == b"one"
    assert atomic.read_blob("t/a", "new") is None
