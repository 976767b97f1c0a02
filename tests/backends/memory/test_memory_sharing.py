"""Who sees what: names, namespaces, private stores, destroying, closing, forking."""

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

import statebook
from statebook.errors import StoreClosed
from statebook.keys import StateKey, ThreadKey
from statebook.model import SlotKind
from statebook.plugins import load_backend
from statebook_backends.memory.registry import Registry
from statebook_backends.memory.store import Slot

SLOT = StateKey(None, "session", "key")
NAME = "memory://sharing-test"


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    for namespace in ("default", "other"):
        load_backend(f"{NAME}?namespace={namespace}").destroy_namespace()


def test_a_named_store_keeps_what_it_holds_when_it_is_closed() -> None:
    with_first = statebook.open_state(NAME)
    with_first.save(SLOT, b"1")
    with_first.close()
    again = statebook.open_state(NAME)
    found = again.load(SLOT)
    assert found is not None
    assert found.value == b"1"
    again.close()


def test_two_open_stores_of_one_name_are_one_store() -> None:
    one, two = statebook.open_state(NAME), statebook.open_state(NAME)
    version = one.save(SLOT, b"1")
    assert two.save(SLOT, b"2", expected=version) > version
    with pytest.raises(statebook.VersionConflict):
        one.save(SLOT, b"3", expected=version)
    one.close()
    two.close()


def test_namespaces_never_meet() -> None:
    one, two = statebook.open_state(NAME), statebook.open_state(f"{NAME}?namespace=other")
    one.save(SLOT, b"1")
    assert two.load(SLOT) is None
    assert not two.exists(SLOT.session)
    assert two.list_sessions(None).sessions == ()
    one.close()
    two.close()


def test_a_store_without_a_name_is_private() -> None:
    one, two = statebook.open_state("memory://"), statebook.open_state("memory://")
    one.save(SLOT, b"1")
    assert two.load(SLOT) is None
    assert load_backend("memory://").destroy_namespace()
    assert one.load(SLOT) is not None
    one.close()
    two.close()


def test_destroying_a_namespace_empties_open_stores_too_and_leaves_the_others() -> None:
    one, two = statebook.open_state(NAME), statebook.open_state(f"{NAME}?namespace=other")
    journal, atomic = statebook.open_journal(NAME), statebook.open_atomic(NAME)
    one.save(SLOT, b"1")
    two.save(SLOT, b"2")
    thread = ThreadKey(None, "a", "s", "t")
    journal.claim(thread, "w")
    atomic.commit("t/x", None, b"head", {"b": b"1"})
    assert load_backend(NAME).destroy_namespace()
    assert one.load(SLOT) is None
    assert one.list_sessions(None).sessions == ()
    assert journal.head(thread) is None
    assert atomic.read_head("t/x") is None
    assert atomic.read_blob("t/x", "b") is None
    assert two.load(SLOT) is not None
    assert one.save(SLOT, b"3") == 1
    again = statebook.open_state(NAME)
    assert again.load(SLOT) is not None
    for store in (one, two, journal, atomic, again):
        store.close()


def test_the_registry_holds_nothing_of_stores_that_are_empty_and_closed() -> None:
    registry = Registry()
    first = registry.enter("n", "default")
    registry.leave("n", "default")
    second = registry.enter("n", "default")
    assert second is not first
    second.slots[SlotKind.DOCUMENT][SLOT] = Slot()
    registry.leave("n", "default")
    assert registry.enter("n", "default") is second
    registry.leave("n", "default")
    registry.forget("n", "default")
    assert registry.enter("n", "default") is not second


def test_every_call_on_a_closed_store_says_so_and_closing_twice_is_harmless() -> None:
    state, journal, atomic = statebook.open_state(NAME), statebook.open_journal(NAME), statebook.open_atomic(NAME)
    thread = ThreadKey(None, "a", "s", "t")
    claim = journal.claim(thread, "w")
    for store in (state, journal, atomic):
        store.close()
        store.close()
    calls: list[Callable[[], object]] = [
        lambda: state.load(SLOT),
        lambda: state.save(SLOT, b"1"),
        lambda: state.append_list(SLOT, [b"1"], expected_length=0),
        lambda: state.delete(SLOT),
        lambda: state.delete_session(SLOT.session),
        lambda: state.exists(SLOT.session),
        lambda: state.list_keys(SLOT.session),
        lambda: state.list_sessions(None),
        lambda: journal.head(thread),
        lambda: journal.claim(thread, "w"),
        lambda: journal.release(claim),
        lambda: journal.read_after(thread, 0),
        lambda: journal.append_many([]),
        lambda: journal.open_cursor(thread, "e"),
        lambda: journal.verify(thread),
        lambda: atomic.read_head("t/x"),
        lambda: atomic.commit("t/x", None, b""),
        lambda: atomic.list_scopes("", None, 1),
    ]
    for call in calls:
        with pytest.raises(StoreClosed):
            call()


def test_a_forked_child_has_a_whole_copy_of_its_own_while_threads_write() -> None:
    program = textwrap.dedent(
        """
        import os, threading, warnings
        warnings.simplefilter("ignore")
        import statebook
        from statebook import Batch, Event, ThreadKey

        journal = statebook.open_journal("memory://fork")
        key = ThreadKey(None, "a", "s", "t")
        claim = journal.claim(key, "w")
        stop = threading.Event()

        def write():
            base = 0
            while not stop.is_set() and base < 200_000:
                base = journal.append(claim, Batch(str(base), (Event(event_id=str(base), type="x", occurred_at=1,
                                                                     payload=b"1"),)), base).last_seq

        thread = threading.Thread(target=write)
        thread.start()
        failures = 0
        for _ in range(20):
            child = os.fork()
            if child == 0:
                report = journal.verify(key, deep=True)
                last = journal.head(key).last_seq
                journal.append(claim, Batch("child", (Event(event_id="child", type="x", occurred_at=1,
                                                            payload=b"1"),)), last)
                os._exit(0 if not report.findings and journal.head(key).last_seq == last + 1 else 1)
            failures += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        stop.set()
        thread.join()
        assert failures == 0, failures
        assert not journal.verify(key, deep=True).findings
        assert journal.append(claim, Batch("child", (Event(event_id="c", type="x", occurred_at=1, payload=b"1"),)),
                              journal.head(key).last_seq).replayed is False
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
