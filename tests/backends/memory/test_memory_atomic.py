"""The atomic storage in memory."""

from threading import Thread

import pytest

from statebook import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, JournalCorrupt


def test_a_token_names_a_write_and_never_a_content(atomic: AtomicJournalStorage) -> None:
    tokens: list[str] = []
    token = None
    for content in (b"a", b"b", b"a", b"a"):
        made = atomic.commit("t/x", token, content)
        assert isinstance(made, str)
        token = made
        tokens.append(made)
    assert atomic.commit("t/x", tokens[0], b"c") is COMMIT_CONFLICT
    assert atomic.commit("t/x", None, b"c") is COMMIT_CONFLICT
    head = atomic.read_head("t/x")
    assert head is not None
    assert (head.data, head.token) == (b"a", tokens[-1])
    assert not atomic.delete_head("t/x", tokens[0])
    assert atomic.delete_head("t/x", tokens[-1])
    again = atomic.commit("t/x", None, b"a")
    assert again not in tokens
    assert len(set(tokens)) == 4


def test_blobs_are_immutable_and_a_conflict_writes_none(atomic: AtomicJournalStorage) -> None:
    assert atomic.commit("t/x", "no", b"h", {"a": b"1"}) is COMMIT_CONFLICT
    assert atomic.read_blob("t/x", "a") is None
    token = atomic.commit("t/x", None, b"h", {"a": b"1", "empty": b""})
    assert isinstance(token, str)
    with pytest.raises(JournalCorrupt):
        atomic.commit("t/x", token, b"h2", {"new": b"1", "empty": b"x"})
    head = atomic.read_head("t/x")
    assert head is not None
    assert head.data == b"h"
    assert isinstance(atomic.commit("t/x", token, b"h2", {"a": b"1", "empty": b""}), str)
    assert atomic.list_blobs("t/x", None, 10).names == ("a", "empty")
    assert atomic.list_blobs("t/x", "a", 10).names == ("empty",)
    atomic.delete_blobs("t/x", ["a", "none"])
    assert atomic.list_blobs("t/x", None, 10).names == ("empty",)


def test_scopes_are_listed_in_the_order_of_their_whole_names(atomic: AtomicJournalStorage) -> None:
    scopes = ["a/b", "a-b/c", "a0/c", "a_20/c", "a/c", "a/b-c", "ab/c"]
    for scope in scopes:
        atomic.commit(scope, None, b"")
    assert list(atomic.list_scopes("", None, 100).names) == sorted(scopes)
    assert atomic.list_scopes("a/", None, 100).names == ("a/b", "a/b-c", "a/c")
    page = atomic.list_scopes("a/", "a/b", 1)
    assert (page.names, page.has_more) == (("a/b-c",), True)


def test_of_racing_commits_with_one_token_exactly_one_succeeds(atomic: AtomicJournalStorage) -> None:
    won: list[str] = []

    def race() -> None:
        made = atomic.commit("t/x", None, b"h")
        if not isinstance(made, CommitConflict):
            won.append(made)

    threads = [Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
