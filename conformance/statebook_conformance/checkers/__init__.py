"""Judge recorded histories: a pure library, with no need of a backend, of core or of a test runner.

Record with `Recorder`, keep with `History.dump`, read back with `load`, judge with `judge` or with a checker by name.

| module | judges or holds |
| --- | --- |
| `history`, `recorder` | what was called, when, and what came back; JSON lines |
| `verdict`, `evidence` | the three answers with their facts; whether a history is worth judging |
| `versions`, `absence` | a slot with compare-and-set, by the order of its versions |
| `wgl`, `models` | any sequential object, by search |
| `journal`, `views`, `fencing` | batches, readers and epochs of a journal; their words are in `chain` |
| `cursor` | export cursors |
| `registry` | checkers by name |
"""

from statebook_conformance.checkers.evidence import Evidence, EvidenceFloor, collect
from statebook_conformance.checkers.history import (
    Header,
    History,
    HistoryError,
    JsonValue,
    Operation,
    Outcome,
    load,
    merge,
)
from statebook_conformance.checkers.recorder import PendingOperation, Recorder, load_spill
from statebook_conformance.checkers.registry import CHECKERS, judge
from statebook_conformance.checkers.verdict import Answer, Fact, Verdict, combine

__all__ = [
    "CHECKERS",
    "Answer",
    "Evidence",
    "EvidenceFloor",
    "Fact",
    "Header",
    "History",
    "HistoryError",
    "JsonValue",
    "Operation",
    "Outcome",
    "PendingOperation",
    "Recorder",
    "Verdict",
    "collect",
    "combine",
    "judge",
    "load",
    "load_spill",
    "merge",
]
