"""What a lost, doubled or undecided answer comes to: the nonce tells whose write stands there."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from statebook import (
    COMMIT_CONFLICT,
    AtomicJournalStorage,
    BackendUnavailable,
    Batch,
    JournalCorrupt,
    OutcomeUnknown,
    StatebookError,
    ThreadJournalStore,
    ThreadKey,
    plugins as statebook,
)

SCOPE = "t/u/a/s/thread"
HEAD = f"some/prefix/default/heads/{SCOPE}!head"


def committed(atomic: AtomicJournalStorage, expected: str | None, head: bytes, **blobs: bytes) -> str:
    token = atomic.commit(SCOPE, expected, head, blobs)
    assert isinstance(token, str)
    return token


def held(atomic: AtomicJournalStorage) -> tuple[bytes, str] | None:
    found = atomic.read_head(SCOPE)
    return None if found is None else (found.data, found.token)


@pytest.mark.parametrize("fault", ["409", "409 after"])
def test_a_409_is_read_again_and_never_taken_for_a_conflict(lookalike: Any, atomic: Any, fault: str) -> None:
    """Case 45."""
    lookalike.faults = [("PUT", "!head", fault)]
    first = committed(atomic, None, b"created")
    assert held(atomic) == (b"created", first)
    lookalike.faults = [("PUT", "!head", fault), ("PUT", "!head", "409")]
    second = committed(atomic, first, b"replaced")
    assert held(atomic) == (b"replaced", second)


def test_a_409_after_somebody_else_has_written_is_a_conflict(lookalike: Any, atomic: Any) -> None:
    """Case 45."""
    first = committed(atomic, None, b"1")
    other = statebook.open_atomic(lookalike.url())
    second = committed(other, first, b"2")
    lookalike.faults = [("PUT", "!head", "409")]
    assert atomic.commit(SCOPE, first, b"refused") == COMMIT_CONFLICT
    assert held(atomic) == (b"2", second)
    other.close()


def test_an_endless_409_is_unknown_after_a_bounded_number_of_writes(lookalike: Any, atomic: Any) -> None:
    lookalike.faults = [("PUT", "!head", "409")] * 100
    with pytest.raises(OutcomeUnknown):
        atomic.commit(SCOPE, None, b"never")
    assert 1 < lookalike.counted()["PUT if-none-match"] <= 20
    lookalike.faults = []
    committed(atomic, None, b"works")


@pytest.mark.parametrize("fault", ["drop after", "500 after", "silent after"])
def test_a_write_whose_reply_is_lost_is_found_by_its_nonce_and_sent_once(
    lookalike: Any, atomic: Any, fault: str
) -> None:
    """Cases 37, 43."""
    first = committed(atomic, None, b"1")
    lookalike.requests.clear()
    lookalike.faults = [("PUT", "!head", fault)]
    second = committed(atomic, first, b"2")
    assert lookalike.counted()["PUT if-match"] == 1
    assert held(atomic) == (b"2", second)
    committed(atomic, second, b"3")


@pytest.mark.parametrize("fault", ["drop before", "500", "503", "502", "408", "code 400 RequestTimeout"])
def test_a_write_that_may_land_later_is_unknown_and_the_next_call_works(
    lookalike: Any, atomic: Any, fault: str
) -> None:
    """Case 44."""
    first = committed(atomic, None, b"1")
    lookalike.faults = [("PUT", "!head", fault)]
    with pytest.raises(OutcomeUnknown) as raised:
        atomic.commit(SCOPE, first, b"2")
    assert raised.value.__cause__ is not None
    assert held(atomic) == (b"1", first)
    committed(atomic, first, b"2")


@pytest.mark.parametrize(
    "fault", ["code 503 SlowDown", "429", "403", "code 404 NoSuchBucket", "code 400 InvalidArgument", "411"]
)
def test_a_refusal_before_execution_is_unavailable_and_sent_once(lookalike: Any, atomic: Any, fault: str) -> None:
    first = committed(atomic, None, b"1")
    lookalike.requests.clear()
    lookalike.faults = [("PUT", "!head", fault)]
    with pytest.raises(BackendUnavailable):
        atomic.commit(SCOPE, first, b"2")
    assert lookalike.counted() == {"PUT if-match": 1}
    assert held(atomic) == (b"1", first)


def test_a_write_that_was_sent_again_on_its_way_is_no_conflict_with_itself(lookalike: Any, atomic: Any) -> None:
    """Case 37."""
    lookalike.faults = [("PUT", "!head", "send twice")]
    first = committed(atomic, None, b"1")
    lookalike.faults = [("PUT", "!head", "send twice")]
    second = committed(atomic, first, b"2")
    assert held(atomic) == (b"2", second)


@pytest.mark.parametrize("fault", ["drop after", "send twice"])
def test_a_write_that_was_followed_before_its_reply_came_is_known_to_have_landed(
    lookalike: Any, atomic: Any, fault: str
) -> None:
    """Cases 37, 43."""
    first = committed(atomic, None, b"1")
    other = statebook.open_atomic(lookalike.url())

    def follow(_: str) -> None:
        lookalike.after_write = lambda key: None
        found = other.read_head(SCOPE)
        assert found is not None
        committed(other, found.token, b"3")

    lookalike.after_write = follow
    lookalike.faults = [("PUT", "!head", fault)]
    second = committed(atomic, first, b"2")
    found = held(atomic)
    assert found is not None
    assert found[0] == b"3"
    assert atomic.commit(SCOPE, second, b"stale") == COMMIT_CONFLICT
    other.close()


def test_a_lost_reply_after_which_another_write_stands_there_is_a_conflict(lookalike: Any, atomic: Any) -> None:
    first = committed(atomic, None, b"1")
    other = statebook.open_atomic(lookalike.url())
    second = committed(other, first, b"other")
    lookalike.faults = [("PUT", "!head", "drop before")]
    assert atomic.commit(SCOPE, first, b"ours") == COMMIT_CONFLICT
    assert held(atomic) == (b"other", second)
    other.close()


@pytest.mark.parametrize("fault", ["500", "drop before"])
def test_a_lost_reply_that_cannot_be_read_back_is_unknown(lookalike: Any, atomic: Any, fault: str) -> None:
    first = committed(atomic, None, b"1")
    lookalike.faults = [("PUT", "!head", "drop after"), ("GET", "!head", fault), ("GET", "!head", fault)]
    with pytest.raises(OutcomeUnknown):
        atomic.commit(SCOPE, first, b"2")
    lookalike.faults = []
    assert (held(atomic) or (b"",))[0] == b"2"


def test_replacing_a_head_that_is_gone_is_a_conflict(lookalike: Any, atomic: Any) -> None:
    first = committed(atomic, None, b"1")
    del lookalike.objects[HEAD]
    assert atomic.commit(SCOPE, first, b"2") == COMMIT_CONFLICT
    assert atomic.read_head(SCOPE) is None
    assert lookalike.heads() == []


# ------------------------------------------------------------------------------------------------------------- blobs


@pytest.mark.parametrize("fault", ["drop after", "500 after", "409", "409 after", "send twice"])
@pytest.mark.parametrize("content", [b"content", b""])
def test_a_blob_whose_reply_is_lost_is_read_back(lookalike: Any, atomic: Any, fault: str, content: bytes) -> None:
    """Case 43."""
    lookalike.faults = [("PUT", "/blobs/", fault)]
    committed(atomic, None, b"1", blob=content)
    assert atomic.read_blob(SCOPE, "blob") == content


@pytest.mark.parametrize("fault", ["drop before", "500", "code 503 SlowDown", "403"])
def test_a_blob_that_is_not_known_to_be_there_ends_the_commit_before_the_head(
    lookalike: Any, atomic: Any, fault: str
) -> None:
    first = committed(atomic, None, b"1")
    lookalike.requests.clear()
    lookalike.faults = [("PUT", "/blobs/", fault)]
    with pytest.raises(BackendUnavailable):
        atomic.commit(SCOPE, first, b"2", {"blob": b"content"})
    assert lookalike.counted()["PUT if-match"] == 0
    committed(atomic, first, b"2", blob=b"content")


@pytest.mark.parametrize(("there", "brought"), [(b"", b"other"), (b"full", b""), (b"full", b"fuel")])
def test_a_blob_with_other_bytes_is_never_replaced(lookalike: Any, atomic: Any, there: bytes, brought: bytes) -> None:
    """Case 36."""
    first = committed(atomic, None, b"1", blob=there)
    with pytest.raises(JournalCorrupt):
        atomic.commit(SCOPE, first, b"2", {"blob": brought})
    assert atomic.read_blob(SCOPE, "blob") == there
    assert held(atomic) == (b"1", first)


def test_a_delete_tells_which_blobs_stayed(lookalike: Any, atomic: Any) -> None:
    committed(atomic, None, b"1", one=b"1", two=b"2")
    lookalike.faults = [("POST-KEY", "/two", "AccessDenied")]
    with pytest.raises(OutcomeUnknown, match="AccessDenied"):
        atomic.delete_blobs(SCOPE, ("one", "two", "three"))
    assert atomic.list_blobs(SCOPE, None, 10).names == ("two",)
    atomic.delete_blobs(SCOPE, ("one", "two", "three"))
    assert atomic.list_blobs(SCOPE, None, 10).names == ()


@pytest.mark.parametrize("fault", ["500", "drop before"])
def test_a_read_without_an_answer_is_unavailable_and_never_absent(lookalike: Any, atomic: Any, fault: str) -> None:
    committed(atomic, None, b"1", blob=b"content")
    calls: list[tuple[str, Callable[[], object]]] = [
        ("!head", lambda: atomic.read_head(SCOPE)),
        ("/blobs/", lambda: atomic.read_blob(SCOPE, "blob")),
        ("", lambda: atomic.list_blobs(SCOPE, None, 10)),
        ("", lambda: atomic.list_scopes("t/", None, 10)),
    ]
    for part, call in calls:
        lookalike.faults = [("GET", part, fault)] * 2
        with pytest.raises(BackendUnavailable):
            call()
        lookalike.faults = []
        assert call()


def test_a_bucket_that_is_gone_is_unavailable_and_never_absent(lookalike: Any, atomic: Any) -> None:
    lookalike.faults = [("GET", "", "code 404 NoSuchBucket")] * 3
    for call in (lambda: atomic.read_head(SCOPE), lambda: atomic.read_blob(SCOPE, "blob")):
        with pytest.raises(BackendUnavailable, match="bucket"):
            call()


@pytest.mark.parametrize(("fault", "gone"), [("drop after", True), ("drop before", False), ("500", False)])
def test_a_removal_whose_reply_is_lost_is_unknown(lookalike: Any, atomic: Any, fault: str, gone: bool) -> None:
    first = committed(atomic, None, b"1")
    lookalike.faults = [("DELETE", "!head", fault)]
    with pytest.raises(OutcomeUnknown):
        atomic.delete_head(SCOPE, first)
    assert (atomic.read_head(SCOPE) is None) is gone


# ----------------------------------------------------------------------------------------------------------- journal


def test_an_append_whose_reply_is_lost_has_its_receipt_and_is_stored_once(
    lookalike: Any, journal: ThreadJournalStore, key: ThreadKey, batch: Callable[..., Batch]
) -> None:
    """Cases 37, 43."""
    claim = journal.claim(key, "writer")
    lookalike.faults = [("PUT", "!head", "drop after")]
    receipt = journal.append(claim, batch("b1", 3), 0)
    assert (receipt.first_seq, receipt.last_seq) == (1, 3)
    assert [event.seq for event in journal.read_after(key, 0).events] == [1, 2, 3]
    assert journal.append(claim, batch("b1", 3), 0).replayed


def test_an_append_that_may_land_later_settles(
    lookalike: Any, journal: ThreadJournalStore, key: ThreadKey, batch: Callable[..., Batch]
) -> None:
    """Case 44."""
    claim = journal.claim(key, "writer")
    lookalike.faults = [("PUT", "!head", "drop before")]
    with pytest.raises(OutcomeUnknown) as raised:
        journal.append(claim, batch("b1"), 0)
    assert (raised.value.batch_id, raised.value.base_seq) == ("b1", 0)
    assert journal.settle(claim, "b1", 0) is None
    assert journal.append(claim, batch("b1"), 0).last_seq == 1


def test_small_appends_cost_one_put_each_and_no_read(
    lookalike: Any, journal: ThreadJournalStore, key: ThreadKey, batch: Callable[..., Batch]
) -> None:
    """The budget: at most 1.05 PUT an append over 1,000 appends, nothing else."""
    claim = journal.claim(key, "writer")
    lookalike.requests.clear()
    for seq in range(1_000):
        journal.append(claim, batch(f"b{seq}", payload=b'{"text":"' + b"x" * 580 + b'"}'), seq)
    counted = lookalike.counted()
    puts = sum(number for method, number in counted.items() if method.startswith("PUT"))
    assert puts <= 1_050
    assert sum(counted.values()) == puts


def test_polling_an_idle_head_costs_one_conditional_get(
    lookalike: Any, journal: ThreadJournalStore, key: ThreadKey, batch: Callable[..., Batch]
) -> None:
    claim = journal.claim(key, "writer")
    journal.append(claim, batch("b1"), 0)
    lookalike.requests.clear()
    for _ in range(10):
        assert journal.read_after(key, 1).events == ()
    assert lookalike.counted() == {"GET if-none-match": 10}
    other = statebook.open_journal(lookalike.url())
    other.append(claim, batch("b2"), 1)
    assert len(journal.read_after(key, 1).events) == 1
    other.close()


def test_both_carriers_are_what_they_say(carrier: str, atomic: Any) -> None:
    wire = atomic._open().engine.writer._wire
    assert type(wire).__name__ == {"signed": "SignedWire", "boto3": "BotoWire"}[carrier]


def test_every_write_carries_the_digest_of_its_body(lookalike: Any, atomic: Any) -> None:
    lookalike.digests.clear()
    committed(atomic, committed(atomic, None, b"1", blob=b""), b"2")
    assert [method for method, digest in lookalike.digests if digest] == ["PUT"] * 3


def test_no_error_shows_a_secret(lookalike: Any, atomic: Any) -> None:
    first = committed(atomic, None, b"1")
    texts: list[str] = []
    for fault in ("500", "403", "drop before", "code 503 SlowDown"):
        lookalike.faults = [("PUT", "!head", fault)]
        try:
            atomic.commit(SCOPE, first, b"2")
        except StatebookError as error:
            texts.append("".join(traceback.format_exception(error)) + repr(error))
    assert len(texts) == 4
    assert not any("not-to-be-shown" in text for text in texts)
