"""statebook itself, and the raw engine as the limit, as peers among peers."""

from __future__ import annotations

from typing import Final

from statebook import StoreUrl, load_backend
from statebook_benchmarks.content import EVENT_BYTES, Batches, thread_key
from statebook_benchmarks.peers.peer import Peer, PeerWriter
from statebook_benchmarks.raw import RawLane, raw_engine
from statebook_benchmarks.results import Parameters
from statebook_benchmarks.workloads.workload import ThreadWriter

THREADS: Final = 64
"""For how many threads the raw engine has room."""


class StatebookPeer(Peer):
    """A journal store, through the handle that people use."""

    promises = (
        "fenced writers (epoch and nonce), idempotent batches, gap-free seqs, digests and a chain verified on read, "
        "export cursors, unknown outcomes settled"
    )

    def __init__(self, medium: str, url: str, name: str) -> None:
        """Open it in a namespace of its own."""
        self.name = f"statebook ({medium})"
        self.medium = medium
        self._backend = load_backend(StoreUrl.parse(url).with_option("namespace", name))
        self._store = self._backend.open_journal()
        self._parameters = Parameters(workload="append", batch_events=1, event_bytes=EVENT_BYTES)

    def writer(self, number: int) -> PeerWriter:
        writer = ThreadWriter(self._store, f"thread-{number}", self._parameters)
        writer.claim()
        return _StatebookWriter(writer)

    def close(self) -> None:
        self._store.close()
        self._backend.destroy_namespace()


class _StatebookWriter(PeerWriter):
    def __init__(self, writer: ThreadWriter) -> None:
        self._writer = writer

    def append(self) -> None:
        self._writer.journal.append_batch(self._writer.batches.next())

    def load(self) -> int:
        return sum(1 for _ in self._writer.journal.read(page=10_000))

    def close(self) -> None:
        """The store is the peer's."""


class RawPeer(Peer):
    """The raw engine: what is left when everything is taken away but the fenced write."""

    promises = "a fenced write, and nothing else: the limit"

    def __init__(self, medium: str, url: str, name: str) -> None:
        """Open it beside the store of statebook."""
        self.name = f"raw ({medium})"
        self.medium = medium
        engine = raw_engine(StoreUrl.parse(url), name, THREADS)
        assert engine is not None
        self._engine = engine

    def writer(self, number: int) -> PeerWriter:
        return _RawWriter(self._engine.lane(), number)

    def close(self) -> None:
        self._engine.destroy()


class _RawWriter(PeerWriter):
    def __init__(self, lane: RawLane, number: int) -> None:
        self._lane = lane
        self._number = number
        self._body = Batches(thread_key(f"raw-{number}").thread_id, events=1, event_bytes=EVENT_BYTES).body()

    def append(self) -> None:
        self._lane.append(self._number, self._body)

    def load(self) -> int:
        return 0

    def close(self) -> None:
        self._lane.close()
