"""statebook beside what people use today: the same payload, the same durability, one run, interleaved rounds."""

from __future__ import annotations

from statebook_benchmarks.peers.sidebyside import PeerFigure, PeersResult, run_peers

__all__ = ["PeerFigure", "PeersResult", "run_peers"]
