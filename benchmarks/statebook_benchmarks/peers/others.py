"""The peers: each through its own library, imported only when it is measured."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import tempfile
from abc import abstractmethod
from collections.abc import Coroutine
from importlib import import_module
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

from statebook_benchmarks.content import EVENT_BYTES, payload_of
from statebook_benchmarks.peers.peer import Peer, PeerWriter

_T = TypeVar("_T")


class _InDirectory(Peer):
    """A peer with a directory of its own, beside the store of statebook: on the same file system."""

    def __init__(self, beside: Path) -> None:
        """Make the directory, and open the peer."""
        self.directory = Path(tempfile.mkdtemp(prefix="peer-", dir=beside))
        try:
            self.open()
        except BaseException:
            shutil.rmtree(self.directory)
            raise

    @abstractmethod
    def open(self) -> None:
        """Import the library, and open what all writers share."""

    def close(self) -> None:
        shutil.rmtree(self.directory)


class _LangGraph(_InDirectory):
    promises = "the newest checkpoint wins; no fence against a second writer; each put replaces or adds a row"

    def open(self) -> None:
        self._saver: object = import_module("langgraph.checkpoint.memory").InMemorySaver()

    def writer(self, number: int) -> PeerWriter:
        return _LangGraphWriter(self._saver, number)


class LangGraphMemory(_LangGraph):
    """LangGraph's `InMemorySaver`."""

    name = "LangGraph InMemorySaver"
    medium = "memory"


class LangGraphSqlite(_LangGraph):
    """LangGraph's `SqliteSaver` on a file, with SQLite's default `synchronous=FULL`."""

    name = "LangGraph SqliteSaver"
    medium = "sqlite"

    def open(self) -> None:
        module = import_module("langgraph.checkpoint.sqlite")
        self._connection = sqlite3.connect(self.directory / "peer.db", check_same_thread=False)
        saver = module.SqliteSaver(self._connection)
        saver.setup()
        self._saver = saver

    def close(self) -> None:
        self._connection.close()
        super().close()


class _LangGraphWriter(PeerWriter):
    """One checkpoint an event, with that event alone in it: the least that a saver can be asked to store."""

    def __init__(self, saver: object, number: int) -> None:
        self._saver = saver
        self._thread = {"configurable": {"thread_id": str(number), "checkpoint_ns": ""}}
        self._config: object = self._thread
        self._empty = import_module("langgraph.checkpoint.base").empty_checkpoint
        self._message: str = json.loads(payload_of(EVENT_BYTES))
        self._step = 0

    def append(self) -> None:
        self._step += 1
        checkpoint = self._empty()
        checkpoint["channel_values"] = {"message": self._message}
        versions = {"message": self._step}
        checkpoint["channel_versions"] = versions
        put = getattr(self._saver, "put")  # noqa: B009 - the library is not there when types are checked
        self._config = put(self._config, checkpoint, {"source": "loop", "step": self._step}, versions)

    def load(self) -> int:
        listed = getattr(self._saver, "list")  # noqa: B009
        return sum(1 for _ in listed(self._thread))

    def close(self) -> None:
        """The saver is the peer's."""


class _EventSourcing(_InDirectory):
    promises = "unique (id, version): a second writer at one version is refused; a global notification order"

    def writer(self, number: int) -> PeerWriter:
        return _EventSourcingWriter(self._recorder)

    def open(self) -> None:
        self._recorder: object = import_module("eventsourcing.popo").POPOApplicationRecorder()


class EventSourcingMemory(_EventSourcing):
    """`eventsourcing` with its plain-object recorder."""

    name = "eventsourcing POPO"
    medium = "memory"


class EventSourcingSqlite(_EventSourcing):
    """`eventsourcing` with its SQLite recorder: WAL, `synchronous=FULL` by default."""

    name = "eventsourcing SQLite"
    medium = "sqlite"

    def open(self) -> None:
        module = import_module("eventsourcing.sqlite")
        self._datastore = module.SQLiteDatastore(str(self.directory / "peer.db"), pool_size=20, lock_timeout=60)
        recorder = module.SQLiteApplicationRecorder(self._datastore)
        recorder.create_table()
        self._recorder = recorder

    def close(self) -> None:
        self._datastore.close()
        super().close()


class _EventSourcingWriter(PeerWriter):
    def __init__(self, recorder: object) -> None:
        self._insert = getattr(recorder, "insert_events")  # noqa: B009
        self._select = getattr(recorder, "select_events")  # noqa: B009
        self._stored = import_module("eventsourcing.persistence").StoredEvent
        self._id: UUID = uuid4()
        self._payload = payload_of(EVENT_BYTES)
        self._version = 0

    def append(self) -> None:
        self._version += 1
        event = self._stored(
            originator_id=self._id, originator_version=self._version, topic="message/text", state=self._payload
        )
        self._insert([event])

    def load(self) -> int:
        return sum(1 for event in self._select(self._id) if json.loads(event.state))

    def close(self) -> None:
        """The recorder is the peer's."""


class _AsyncWriter(PeerWriter):
    """A writer over an asyncio library, with a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def wait(self, awaitable: Coroutine[object, object, _T]) -> _T:
        """Run until it is done."""
        return self._loop.run_until_complete(awaitable)

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class OpenAiSqlite(_InDirectory):
    """OpenAI Agents' `SQLiteSession` on a file: WAL, `synchronous=FULL` by default, one lock a file and process."""

    name = "OpenAI Agents SQLiteSession"
    medium = "sqlite"
    promises = "messages of a session in order of arrival; no fence, no idempotency, no versions"

    def open(self) -> None:
        self._session = import_module("agents.memory.sqlite_session").SQLiteSession

    def writer(self, number: int) -> PeerWriter:
        return _OpenAiWriter(self._session(str(number), str(self.directory / "peer.db")))


class _OpenAiWriter(_AsyncWriter):
    def __init__(self, session: object) -> None:
        super().__init__()
        self._add = getattr(session, "add_items")  # noqa: B009
        self._get = getattr(session, "get_items")  # noqa: B009
        self._close = getattr(session, "close")  # noqa: B009
        self._item = {"role": "user", "content": json.loads(payload_of(EVENT_BYTES))}

    def append(self) -> None:
        self.wait(self._add([self._item]))

    def load(self) -> int:
        return len(self.wait(self._get()))

    def close(self) -> None:
        super().close()
        self._close()


class AdkSqlite(_InDirectory):
    """Google ADK's `SqliteSessionService`: a connection a call, rollback journal, `synchronous=FULL` by default."""

    name = "Google ADK SqliteSessionService"
    medium = "sqlite"
    promises = "a stale session is refused by its update time; events and state in one transaction; no fence"

    def open(self) -> None:
        self._service = import_module("google.adk.sessions.sqlite_session_service").SqliteSessionService

    def writer(self, number: int) -> PeerWriter:
        return _AdkWriter(self._service(str(self.directory / "peer.db")), number)


class _AdkWriter(_AsyncWriter):
    def __init__(self, service: object, number: int) -> None:
        super().__init__()
        self._create = getattr(service, "create_session")  # noqa: B009
        self._append = getattr(service, "append_event")  # noqa: B009
        self._get = getattr(service, "get_session")  # noqa: B009
        self._names = {"app_name": "bench", "user_id": "bench", "session_id": str(number)}
        self._session: object = self.wait(self._create(**self._names))
        types = import_module("google.genai.types")
        self._content = types.Content(role="user", parts=[types.Part(text=json.loads(payload_of(EVENT_BYTES)))])
        self._event = import_module("google.adk.events.event").Event

    def append(self) -> None:
        self.wait(self._append(self._session, self._event(author="user", content=self._content)))

    def load(self) -> int:
        return len(self.wait(self._get(**self._names)).events)


PEERS: tuple[type[_InDirectory], ...] = (
    LangGraphMemory,
    EventSourcingMemory,
    LangGraphSqlite,
    EventSourcingSqlite,
    OpenAiSqlite,
    AdkSqlite,
)
