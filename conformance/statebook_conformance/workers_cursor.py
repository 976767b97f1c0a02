"""Worker functions of the cursor rules."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.exporters import Exporter, race
from statebook_conformance.journal_clients import dump
from statebook_conformance.scenes import thread

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue
    from statebook_conformance.child import ChildContext


def race_for_cursor(child: ChildContext) -> JsonValue:
    """Race for the cursor `x`, and give what was recorded."""
    name = child.text("name")
    recorder = Recorder(clock=time.monotonic_ns)
    exporter = Exporter(child.open_journal(), thread(), "x", recorder, name)
    child.tell("ready")
    child.hear()
    race(exporter, random.Random(f"{child.number('seed')}:{name}"), child.number("rounds"))
    return dump(recorder)
