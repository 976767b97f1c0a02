"""A real store that is restarted, killed and paused; other processes; wrong credentials."""

import os
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from statebook import (
    BackendUnavailable,
    Batch,
    InvalidConfiguration,
    OutcomeUnknown,
    StateKey,
    ThreadJournalStore,
    ThreadKey,
    WriterClaim,
    WriterFenced,
    plugins as statebook,
)
from statebook.options import StoreUrl
from statebook_conformance.services.provide import Provided, ServiceUnavailable, make_service
from statebook_conformance.services.service import Service

MakeBatch = Callable[..., Batch]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A store of this module's own, which may be harmed."""
    made = make_service("s3")
    try:
        with made:
            yield made
    except ServiceUnavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"UNAVAILABLE: {error}")
        pytest.skip(f"UNAVAILABLE: {error}")


@pytest.fixture
def harmed(service: Service) -> Iterator[ThreadJournalStore]:
    url = StoreUrl.parse(service.url)
    for name, value in (("namespace", uuid.uuid4().hex), ("read_timeout_s", "3"), ("connect_timeout_s", "2")):
        url = url.with_option(name, value)
    store = statebook.open_journal(url)
    yield store
    store.close()


def appended_surely(store: ThreadJournalStore, claim: WriterClaim, batch: Batch, base: int) -> int:
    """Append as a writer must: what is unknown or unavailable is sent again, until a deadline."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return store.append(claim, batch, base).last_seq
        except (BackendUnavailable, OutcomeUnknown):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def ids(store: ThreadJournalStore, key: ThreadKey) -> list[str]:
    return [event.event_id for event in store.read_after(key, 0, 10_000).events]


def test_connections_that_a_restart_has_closed_are_replaced_without_an_error(
    service: Service, harmed: ThreadJournalStore, key: ThreadKey, batch: MakeBatch
) -> None:
    """Case 32."""
    claim = harmed.claim(key, "writer")
    harmed.append(claim, batch("b1"), 0)
    service.servers[0].restart()
    appended_surely(harmed, claim, batch("b2"), 1)
    harmed.append(claim, batch("b3"), 2)
    assert ids(harmed, key) == ["b1-0", "b2-0", "b3-0"]


def test_every_acknowledged_event_is_there_once_after_a_kill_in_the_middle_of_writes(
    service: Service, harmed: ThreadJournalStore, key: ThreadKey, batch: MakeBatch
) -> None:
    """Cases 26, 32, 37."""
    claim = harmed.claim(key, "writer")
    written = threading.Event()

    def write() -> None:
        for seq in range(120):
            appended_surely(harmed, claim, batch(f"b{seq}"), seq)
            if seq == 20:
                written.set()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        assert written.wait(60)
        service.servers[0].kill()
        service.servers[0].start()
        writer.result(120)
    assert ids(harmed, key) == [f"b{seq}-0" for seq in range(120)]


def test_a_paused_store_is_unknown_in_time_and_settles_when_it_goes_on(
    service: Service, harmed: ThreadJournalStore, key: ThreadKey, batch: MakeBatch
) -> None:
    """Case 44."""
    claim = harmed.claim(key, "writer")
    harmed.append(claim, batch("b1"), 0)
    service.servers[0].pause()
    started = time.monotonic()
    try:
        with pytest.raises(OutcomeUnknown) as raised:
            harmed.append(claim, batch("b2"), 1)
        with pytest.raises(BackendUnavailable):
            harmed.head(key)
    finally:
        service.servers[0].resume()
    assert time.monotonic() - started < 30
    assert raised.value.batch_id == "b2"
    settled = harmed.settle(claim, "b2", 1)
    receipt = harmed.append(claim, batch("b2"), 1)
    assert receipt.last_seq == 2
    assert settled is None or receipt.replayed
    assert ids(harmed, key) == ["b1-0", "b2-0"]


@pytest.mark.parametrize("cut", ["create", "replace"])
def test_a_write_that_ends_behind_its_headers_leaves_no_empty_head(
    carrier: str, cutting: Any, key: ThreadKey, cut: str
) -> None:
    """Case 26: SeaweedFS keeps an empty object where a dying client has sent the headers of a PUT and no body."""
    proxy, url = cutting
    atomic = statebook.open_atomic(url)
    scope = "t/u/a/s/x"
    token = None if cut == "create" else atomic.commit(scope, None, b"before")
    proxy.cuts = 1
    with pytest.raises(OutcomeUnknown):
        atomic.commit(scope, token, b"cut off")
    assert proxy.cuts == 0
    found = atomic.read_head(scope)
    assert (None if found is None else found.data) == (None if token is None else b"before")
    assert isinstance(atomic.commit(scope, token, b"after", {"blob": b"x"}), str)
    atomic.close()


def test_a_forked_child_uses_connections_of_its_own(url: str, key: ThreadKey, batch: MakeBatch) -> None:
    store = statebook.open_journal(url)
    claim = store.claim(key, "writer")
    store.append(claim, batch("b1"), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            store.append(claim, batch("b2"), 1)
            os._exit(0 if ids(store, key) == ["b1-0", "b2-0"] else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.append(claim, batch("b2"), 1).replayed
    store.append(claim, batch("b3"), 2)
    assert ids(store, key) == ["b1-0", "b2-0", "b3-0"]
    store.close()


_OTHER = """
import sys
from statebook import Batch, Event, StateKey, ThreadKey, plugins as statebook
url = sys.stdin.read()
key = ThreadKey("user", "agent", "session", "thread")
journal, state = statebook.open_journal(url), statebook.open_state(url)
slot = StateKey("user", "session", "key")
found = state.load(slot)
state.save(slot, found.value + b" resumed", expected=found.version)
claim = journal.claim(key, "other")
last = journal.head(key).last_seq
journal.append(claim, Batch("other", (Event(event_id="other", type="run/start", occurred_at=1, payload=b"{}"),)), last)
"""


def test_two_processes_resume_each_others_threads_and_sessions(url: str, key: ThreadKey, batch: MakeBatch) -> None:
    """Cases 1, 4."""
    journal, state = statebook.open_journal(url), statebook.open_state(url)
    slot = StateKey("user", "session", "key")
    version = state.save(slot, b'"begun"')
    claim = journal.claim(key, "writer")
    journal.append(claim, batch("b1"), 0)
    subprocess.run([sys.executable, "-c", _OTHER], input=url, text=True, check=True, timeout=120)
    found = state.load(slot)
    assert found is not None
    assert (found.value, found.version) == (b'"begun" resumed', version + 1)
    assert ids(journal, key) == ["b1-0", "other"]
    with pytest.raises(WriterFenced):
        journal.append(claim, batch("b2"), 2)
    claim = journal.claim(key, "writer")
    assert journal.append(claim, batch("b2"), 2).last_seq == 3
    journal.close()
    state.close()


@pytest.mark.parametrize(("name", "value"), [("secret_access_key", "wrong-and-secret"), ("access_key_id", "nobody")])
def test_wrong_credentials_are_refused_at_open_and_not_shown(real: Provided, name: str, value: str) -> None:
    url = StoreUrl.parse(real.url).with_option(name, value)
    with pytest.raises(InvalidConfiguration, match="denies access") as raised:
        statebook.open_journal(url)
    assert raised.value.option == "access_key_id"
    assert "wrong-and-secret" not in f"{raised.value} {raised.value!r} {raised.value.__cause__!r}"


def test_a_bucket_that_does_not_exist_is_refused_and_not_made(real: Provided) -> None:
    missing = StoreUrl.parse(real.url.replace("s3://statebook/", "s3://no-such-bucket/"))
    for _ in range(2):
        with pytest.raises(InvalidConfiguration, match="does not exist") as raised:
            statebook.open_state(missing)
        assert raised.value.option == "url"
