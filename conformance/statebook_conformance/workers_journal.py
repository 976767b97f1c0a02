"""Writers and readers of journals in other processes. Each opens its first handle when it is told to go."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from statebook.errors import StatebookError, WriterBusy
from statebook.keys import ThreadKey, ThreadScope
from statebook.model import NONE, Receipt
from statebook_conformance.checkers.recorder import Recorder
from statebook_conformance.journal_clients import (
    JournalClient,
    claim_fields,
    claim_of,
    dump,
    make,
    poll,
    share_claim,
    take_turns,
)
from statebook_conformance.walking import all_threads
from statebook_conformance.writing import thread

if TYPE_CHECKING:
    from statebook_conformance.checkers.history import JsonValue
    from statebook_conformance.child import ChildContext

LOCKSTEP_NS = 10_000_000
"""How far apart the moments are at which processes claim new threads together."""

APPENDS_MAX = 200
"""How many batches a writer that is to be paused appends at most in one turn."""


def _start(child: ChildContext, key: ThreadKey) -> tuple[JournalClient, Recorder, random.Random]:
    """Say that the process is up, wait for the moment to go, and open a handle."""
    child.tell("ready")
    starts_ns = int(str(child.hear().get("at_ns", 0)))
    time.sleep(max(0.0, (starts_ns - time.monotonic_ns()) / 1e9))
    recorder = Recorder(clock=time.monotonic_ns)
    client = JournalClient(child.open_journal(), recorder, child.text("name"), key)
    return client, recorder, random.Random(child.text("name") + str(child.number("seed")))


def turns(child: ChildContext) -> JsonValue:
    """Take turns with other writers; give the history and how often which answer came."""
    client, recorder, random_ = _start(child, thread())
    answers = take_turns(client, random_, child.number("turns"))
    return {"operations": dump(recorder), "answers": dict(answers)}


def sharing(child: ChildContext) -> JsonValue:
    """Append through a claim that other processes use too; give the history."""
    client, recorder, random_ = _start(child, thread())
    share_claim(client, claim_of(child.params["claim"]), random_, child.number("appends"))
    return {"operations": dump(recorder)}


def polling(child: ChildContext) -> JsonValue:
    """Read behind the last seq that was seen until the end has been seen; give the history and what was seen."""
    client, recorder, random_ = _start(child, thread())
    seen = poll(client, random_)
    return {"operations": dump(recorder), "seen": [[seq, event] for seq, event in seen]}


def claiming(child: ChildContext) -> JsonValue:
    """Claim a few threads, again and again; give the claims and the history.

    The threads are new, and in the first round all processes claim the same one at the same moment; in the others each
    process goes in its own order as fast as it can.
    """
    client, recorder, _ = _start(child, thread())
    claims: list[JsonValue] = []
    own = child.text("threads").split()
    started_ns = time.monotonic_ns()
    for turn in range(child.number("rounds")):
        for place, name in enumerate(own if turn else sorted(own)):
            if turn == 0:
                next_ns = started_ns - started_ns % LOCKSTEP_NS + (place + 2) * LOCKSTEP_NS
                time.sleep(max(0.0, (next_ns - time.monotonic_ns()) / 1e9))
            client.key = thread(name)
            claims.append(claim_fields(client.held()))
    return {"operations": dump(recorder), "claims": claims}


def racing(child: ChildContext) -> JsonValue:
    """Claim each thread that is named in a message where it is free, or where an observed claim holds it."""
    client, _, _ = _start(child, thread())
    while message := child.hear():
        if message.get("stop"):
            break
        client.key = thread(str(message["thread"]))
        expected = message.get("claim")
        answer = client.claim(NONE if expected is None else claim_of(expected).info)
        held = None if isinstance(answer, StatebookError) else claim_fields(answer)
        holder = answer.holder if isinstance(answer, WriterBusy) else None
        child.tell("answer", claim=held, holder=None if holder is None else holder.nonce)
    return None


def resending(child: ChildContext) -> JsonValue:
    """Send the very same batches through one claim as others do at the same time; give the history."""
    client, recorder, _ = _start(child, thread())
    claim = claim_of(child.params["claim"])
    base = claim.last_seq
    for number in range(child.number("batches")):
        answer = client.append(claim, make(f"same-{number}", 2), base)
        if not isinstance(answer, Receipt):
            raise answer
        base = answer.last_seq
    return {"operations": dump(recorder)}


def own_thread(child: ChildContext) -> JsonValue:
    """Append to a thread of one's own beside other processes; give the history."""
    client, recorder, _ = _start(child, thread(child.text("name")))
    claim = client.held()
    base = claim.last_seq
    for number in range(child.number("appends")):
        answer = client.append(claim, make(f"{client.name}-{number}"), base, submission=number)
        if not isinstance(answer, Receipt):
            raise answer
        base = answer.last_seq
    return {"operations": dump(recorder)}


def stepping(child: ChildContext) -> JsonValue:
    """Append again and again, announce each step, and stop when fenced, until the rule says that it is enough.

    Half of the steps wait between the announcement and the append, so that a pause falls before it; the other half go
    on at once, so that it falls into it.
    """
    client, recorder, random_ = _start(child, thread())
    turn = 0
    while True:
        claim = client.held()
        base = claim.last_seq
        child.tell("claimed", epoch=claim.epoch)
        answer: Receipt | StatebookError | None = None
        for number in range(APPENDS_MAX):
            batch = make(f"{client.name}-{turn}-{number}", random_.choice((1, 2)))
            child.tell("step", number=number)
            if random_.random() < 0.5:
                time.sleep(0.002)
            answer = client.append(claim, batch, base, submission=number)
            if not isinstance(answer, Receipt):
                break
            base = answer.last_seq
        child.tell("stopped", answer=type(answer).__name__)
        turn += 1
        if not child.hear().get("again"):
            return {"operations": dump(recorder)}


def looking(child: ChildContext) -> JsonValue:
    """Answer with what this process sees of the thread each time it is asked."""
    client, _, _ = _start(child, thread())
    while message := child.hear():
        if message.get("stop"):
            break
        head = client.head()
        page = client.read(int(str(message["after"])), 1_000)
        listed = all_threads(client.journal, ThreadScope("user"))
        child.tell(
            "seen",
            last_seq=None if head is None else head.last_seq,
            events=[] if isinstance(page, StatebookError) else [[event.seq, event.event_id] for event in page.events],
            threads=sorted(key.thread_id for key in listed),
        )
    return None
