"""Measure peers side by side: appends of one writer, of sixteen, and loading a long thread."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec

from statebook_benchmarks.contenders import Together
from statebook_benchmarks.environment import Environment, environment, load
from statebook_benchmarks.interleave import Contender, Spent, Timing, Watch, interleave
from statebook_benchmarks.peers.others import PEERS
from statebook_benchmarks.peers.ours import RawPeer, StatebookPeer
from statebook_benchmarks.peers.peer import Peer, PeerWriter
from statebook_benchmarks.stats import Interval, bootstrap, paired_ratio

WRITERS: Final = 16
"""Writers at once in the case `writers`."""
CASES: Final = ("append", "writers", "load")
"""The cases: one writer, sixteen writers in one process, loading a thread."""
PACKAGES: Final = (
    "eventsourcing",
    "google-adk",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "openai-agents",
)
"""The packages of the peers, for the versions beside the figures."""


class PeerFigure(msgspec.Struct, frozen=True):
    """One peer in one case.

    Attributes:
        medium: `memory` or `sqlite`.
        case: The case.
        name: The peer.
        promises: What it promises.
        timing: Its rounds.
        microseconds: Microseconds an event.
        ratio: The speed of statebook as a multiple of this one's; None for statebook itself.
        cpu_ratio: The same by processor time.
    """

    medium: str
    case: str
    name: str
    promises: str
    timing: Timing
    microseconds: Interval
    ratio: Interval | None
    cpu_ratio: Interval | None


class PeersResult(msgspec.Struct, frozen=True):
    """Peers side by side.

    Attributes:
        command: The command that repeats it.
        environment: Where it ran.
        versions: The versions of the peers' packages.
        figures: The figures.
        missing: Peers that are not installed or cannot be opened, with the reason.
        format: The version of this layout.
        kind: `peers`.
    """

    command: str
    environment: Environment
    versions: tuple[tuple[str, str], ...]
    figures: tuple[PeerFigure, ...]
    missing: tuple[tuple[str, str], ...]
    format: int = 1
    kind: str = "peers"

    def write(self, file: Path) -> None:
        """Write the result as indented JSON."""
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


class PeersOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        media: `memory`, `sqlite`, or both.
        cases: Some of `CASES`.
        rounds: Interleaved rounds.
        round_s: Seconds of one contender in a round, about.
        events: Events of the thread that is loaded.
        directory: Where all of them store: one file system for all.
        command: The command that repeats it.
    """

    media: tuple[str, ...]
    cases: tuple[str, ...]
    rounds: int
    round_s: float
    events: int
    directory: Path
    command: str


def run_peers(
    order: PeersOrder, fresh_name: Callable[[], str], progress: Callable[[str, int, int], None]
) -> PeersResult:
    """Measure.

    Args:
        order: What.
        fresh_name: Gives fresh names.
        progress: Called with what runs, the runs done and the runs in all.

    Returns:
        The result; peers that are not installed are named in it.

    Raises:
        RuntimeError: A peer gave back another number of events than were stored.
    """
    where = environment()
    figures: list[PeerFigure] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="statebook-peers-", dir=order.directory) as name:
        directory = Path(name).resolve()
        for medium in order.media:
            for case in order.cases:
                with ExitStack() as stack:
                    peers = _open(medium, directory, fresh_name, stack, missing)
                    figures.extend(_measure(case, peers, order, stack, progress))
    return PeersResult(
        command=order.command,
        environment=msgspec.structs.replace(where, load_after=load()),
        versions=tuple(_versions()),
        figures=tuple(figures),
        missing=tuple(missing.items()),
    )


def _versions() -> list[tuple[str, str]]:
    found = []
    for package in PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return found


def _open(
    medium: str, directory: Path, fresh_name: Callable[[], str], stack: ExitStack, missing: dict[str, str]
) -> list[Peer]:
    """Open statebook, the raw engine, and every peer of a medium that is installed."""
    name = fresh_name()
    url = f"memory://{name}" if medium == "memory" else f"sqlite:///{directory}/{name}.db"
    peers: list[Peer] = [StatebookPeer(medium, url, name)]
    stack.callback(peers[0].close)
    peers.append(RawPeer(medium, url, name))
    stack.callback(peers[1].close)
    for made in PEERS:
        if made.medium != medium:
            continue
        try:
            peer = made(directory)
        except ModuleNotFoundError as error:
            missing[made.name] = f"no module {error.name!r}"
            continue
        except Exception as error:  # noqa: BLE001 - the code of others: whatever keeps it from opening is its figure
            missing[made.name] = f"it cannot be opened ({type(error).__name__}: {error})"
            continue
        stack.callback(peer.close)
        peers.append(peer)
    return peers


def _measure(
    case: str, peers: Sequence[Peer], order: PeersOrder, stack: ExitStack, progress: Callable[[str, int, int], None]
) -> list[PeerFigure]:
    contenders: list[Contender] = []
    shown: list[Peer] = []
    for peer in peers:
        if case == "load" and isinstance(peer, RawPeer):
            continue
        writers = [peer.writer(number) for number in range(WRITERS if case == "writers" else 1)]
        for writer in writers:
            stack.callback(writer.close)
        contenders.append(_contender(case, peer.name, writers, order.events))
        shown.append(peer)
    runs, done = len(contenders) * (order.rounds + 1), 0

    def count() -> None:
        nonlocal done
        done += 1
        progress(f"{shown[0].medium} {case}", done, runs)

    timings = interleave(contenders, rounds=order.rounds, round_s=order.round_s, progress=count)
    each = order.events if case == "load" else 1
    return [
        PeerFigure(
            medium=peer.medium,
            case=case,
            name=peer.name,
            promises=peer.promises,
            timing=timing,
            microseconds=bootstrap([seconds / each * 1e6 for seconds in timing.seconds_per_op]),
            ratio=None if place == 0 else paired_ratio(timing.seconds_per_op, timings[0].seconds_per_op),
            cpu_ratio=None if place == 0 else paired_ratio(timing.cpu_s_per_op, timings[0].cpu_s_per_op),
        )
        for place, (peer, timing) in enumerate(zip(shown, timings, strict=True))
    ]


def _contender(case: str, name: str, writers: Sequence[PeerWriter], events: int) -> Contender:
    if case == "load":
        for _ in range(events):
            writers[0].append()
        return _Load(name, writers[0], events)
    return (
        _Append(name, writers[0]) if case == "append" else Together([_Append(name, writer) for writer in writers], name)
    )


class _Append:
    def __init__(self, name: str, writer: PeerWriter) -> None:
        self.name = name
        self._append = writer.append

    def run(self, operations: int) -> Spent:
        append = self._append
        watch = Watch()
        for _ in range(operations):
            append()
        return watch.spent()


class _Load:
    def __init__(self, name: str, writer: PeerWriter, events: int) -> None:
        self.name = name
        self._writer = writer
        self._events = events

    def run(self, operations: int) -> Spent:
        watch = Watch()
        for _ in range(operations):
            found = self._writer.load()
            if found != self._events:
                raise RuntimeError(f"{self.name} gave back {found} of {self._events} events")
        return watch.spent()
