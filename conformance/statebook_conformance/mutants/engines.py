"""Real backends with one line changed, as a hurried change would: a fence that moved, a driver's default, a counter.

Each changes a module of the backend as long as a store of the mutant is open, in this process and in its workers. Where
the line is not there any more, the mutant fails to open: then it has to be written again.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from importlib import import_module
from typing import Any, Literal, cast

import msgspec

from statebook.capabilities import Capabilities
from statebook.codec import digest, encode_batch
from statebook.errors import WriterFenced
from statebook.journal import ThreadJournalStore
from statebook.keys import ThreadKey
from statebook.model import (
    ANY,
    Batch,
    ClaimInfo,
    Event,
    EventPage,
    Expect,
    JournalHead,
    Receipt,
    RecordedEvent,
    WriterClaim,
)
from statebook.plugins import Requirement
from statebook.state import AgentStateStore
from statebook_conformance.mutants.forward import ForwardBackend, ForwardJournal
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.target import TargetBackend

Change = Callable[[], Mapping[tuple[object, str], object]]


class _Changed(ForwardBackend):
    """Changes attributes of modules or classes when a store is opened, and puts them back when the namespace goes."""

    def __init__(self, inner: TargetBackend, change: Change) -> None:
        super().__init__(inner)
        self._change = change
        self._before: dict[tuple[object, str], object] = {}

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        self._apply()
        return super().open_journal(require)

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        self._apply()
        return super().open_state(require)

    def destroy_namespace(self) -> bool:
        for (owner, name), value in self._before.items():
            setattr(owner, name, value)
        self._before.clear()
        return super().destroy_namespace()

    def _apply(self) -> None:
        if not self._before:
            changes = self._change()
            self._before = {(owner, name): getattr(owner, name) for owner, name in changes}
            for (owner, name), value in changes.items():
                setattr(owner, name, value)


def _in_text(module: str, name: str, old: str, new: str) -> Change:
    """Another piece in a text of a module.

    Raises:
        ValueError: The piece is not there once.
    """

    def change() -> Mapping[tuple[object, str], object]:
        owner = import_module(module)
        text = cast("str", getattr(owner, name))
        if text.count(old) != 1:
            raise ValueError(f"{module}.{name} does not have {old!r} once any more: write this mutant again")
        return {(owner, name): text.replace(old, new)}

    return change


# ------------------------------------------------------------------------------------ the fence before the transaction

# The columns of fence and seal are still given, and no longer compared: what was looked at before has to do.
FENCE_BEFORE_THE_TRANSACTION = Mutant(
    "fence-before-the-transaction",
    "The claim is compared with the head that is remembered, before the transaction, and no longer in it.",
    lambda inner: _Changed(
        inner,
        _in_text(
            "statebook_backends.sqlite.append",
            "_ADVANCE",
            "AND seal = ? AND nonce = ? AND generation = ? AND last_seq = ? AND epoch = ? AND claim_nonce = ?",
            "AND ? <> '' AND ? <> '' AND ? > 0 AND last_seq = ? AND ? > 0 AND ? <> ''",
        ),
    ),
    base="sqlite:///{directory}/mutant.db",
)


# ---------------------------------------------------------------------------------------------- the driver's defaults


def _with_default_retries() -> Mapping[tuple[object, str], object]:
    """Send and receive under the retry object that redis-py's client has by default."""
    redis = import_module("redis")
    errors = import_module("statebook_backends.redis.errors")
    node = import_module("statebook_backends.redis.store").Node
    retry = deepcopy(inspect.signature(redis.Redis.__init__).parameters["retry"].default)
    retry.update_supported_errors([errors.ReplyLost, errors.NotSent])
    exchange = node.exchange

    def again(self: object, payload: bytes, count: int = 1) -> Any:  # noqa: ANN401 - whatever the server replies
        return retry.call_with_retry(lambda: exchange(self, payload, count), lambda _: None)

    return {(node, "exchange"): again}


DRIVER_DEFAULT_RETRIES = Mutant(
    "driver-default-retries",
    "Writes go through the retries that redis-py has by default: a lost reply is answered by sending again.",
    lambda inner: _Changed(inner, _with_default_retries),
    base="{redis}",
)


# --------------------------------------------------------------------------------------------- seq from AUTO_INCREMENT


class _CountedByTheEngine(ForwardJournal):
    """Keeps events in a table of its own for each thread, whose AUTO_INCREMENT column is the seq.

    The fence is looked at before. Two transactions that are open at once get seqs in one order and commit in another.
    """

    def __init__(self, inner: ThreadJournalStore, options: Any) -> None:  # noqa: ANN401 - the backend's own
        super().__init__(inner)
        self._options = options

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def claim(
        self, key: ThreadKey, writer_id: str, *, replacing: ClaimInfo | Literal[Expect.ANY, Expect.NONE] = ANY
    ) -> WriterClaim:
        claim = super().claim(key, writer_id, replacing=replacing)
        head = self.head(key)
        return claim if head is None else msgspec.structs.replace(claim, last_seq=head.last_seq)

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        del base_seq
        head = super().head(claim.key)
        if head is None or head.epoch != claim.epoch:
            raise WriterFenced("fenced", committed=None, key=claim.key.name)
        rows = [(msgspec.json.encode(event),) for event in batch.events]
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute(self._table(claim.key))
            connection.begin()
            for row in rows:
                cursor.execute(f"INSERT INTO {self._name(claim.key)} (event) VALUES (%s)", row)  # noqa: S608
            last_seq = int(cursor.lastrowid)
            connection.commit()
        sha256 = digest(encode_batch(batch))
        return Receipt(batch.batch_id, claim.journal_id, last_seq - len(rows) + 1, last_seq, claim.epoch, sha256)

    def head(self, key: ThreadKey) -> JournalHead | None:
        head = super().head(key)
        if head is None:
            return None
        found = self._rows(key, "SELECT COALESCE(MAX(seq), 0), '' FROM {} WHERE seq > %s", 0)
        return msgspec.structs.replace(head, last_seq=found[0][0])

    def read_after(self, key: ThreadKey, seq: int, limit: int = 1_000) -> EventPage:
        head = self.head(key)
        if head is None:
            return super().read_after(key, seq, limit)
        rows = self._rows(key, "SELECT seq, event FROM {} WHERE seq > %s ORDER BY seq LIMIT %s", seq, limit)
        events = tuple(_recorded(number, msgspec.json.decode(event, type=Event)) for number, event in rows)
        return msgspec.structs.replace(super().read_after(key, 0, 1), events=events, has_more=len(rows) == limit)

    def _rows(self, key: ThreadKey, query: str, *words: int) -> list[tuple[int, bytes]]:
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute(self._table(key))
            cursor.execute(query.format(self._name(key)), words)
            return list(cursor.fetchall())

    def _connection(self) -> Any:  # noqa: ANN401 - the driver is imported only here
        options = self._options
        words = {name: getattr(options, name) for name in ("host", "port", "user", "password", "database")}
        return import_module("pymysql").connect(**words, autocommit=True)

    def _table(self, key: ThreadKey) -> str:
        columns = "(seq BIGINT AUTO_INCREMENT PRIMARY KEY, event LONGBLOB NOT NULL)"
        return f"CREATE TABLE IF NOT EXISTS {self._name(key)} {columns} ENGINE=InnoDB"

    def _name(self, key: ThreadKey) -> str:
        return "mutant_" + hashlib.sha256(f"{self._options.namespace} {key.name}".encode()).hexdigest()[:24]


def _recorded(seq: int, event: Event) -> RecordedEvent:
    return RecordedEvent(
        seq=seq, **{name: getattr(event, name) for name in RecordedEvent.__struct_fields__ if name != "seq"}
    )


class _Counted(ForwardBackend):
    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        options = cast("Any", self.inner).options
        return _CountedByTheEngine(super().open_journal(require), options)


SEQ_FROM_AUTO_INCREMENT = Mutant(
    "seq-from-auto-increment",
    "The seq is an AUTO_INCREMENT column: transactions that overlap become visible out of order.",
    _Counted,
    base="{mysql}",
)
