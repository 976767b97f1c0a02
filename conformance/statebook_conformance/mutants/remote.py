"""A small storage server over HTTP and an honest client of it: what mutants of the network are made from.

The server keeps everything in memory; where it is killed, that memory stays, as files of a real one would. It lives in
the process that opens the first store in a directory; other processes find its port there.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from statebook import new_nonce
from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.atomic_journal import AtomicThreadJournalStore
from statebook.atomic_state import AtomicAgentStateStore
from statebook.capabilities import Capabilities, Durability, Feature, Limits, Sharing
from statebook.errors import BackendUnavailable, JournalCorrupt, OutcomeUnknown, StoreClosed
from statebook.journal import ThreadJournalStore
from statebook.medium import Medium
from statebook.plugins import Requirement
from statebook.state import AgentStateStore

TIMEOUT_S: Final = 2.0
"""How long the client waits for an answer."""

_PORT_FILE: Final = "port"


class _Scope:
    def __init__(self) -> None:
        self.head: tuple[str, str] | None = None
        self.before: tuple[str, str] | None = None
        self.blobs: dict[str, str] = {}


class RemoteServer:
    """The server: scopes of heads and blobs in memory, behind a lock. Can be killed, paused and started again."""

    def __init__(self) -> None:
        """Keep nothing yet, and start to listen."""
        self.port = 0
        self._scopes: dict[str, _Scope] = {}
        self._lock = threading.Lock()
        self._going = threading.Event()
        self._going.set()
        self._connections: set[socket.socket] = set()
        self._listener: ThreadingHTTPServer | None = None
        self.recover()

    # ------------------------------------------------------------------------------------------------------- control

    def kill(self) -> None:
        """Stop to listen, and end every connection."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown()
            listener.server_close()
        for connection in tuple(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def forget_the_newest(self) -> None:
        """Lose the newest write of each scope."""
        with self._lock:
            for place in self._scopes.values():
                place.head = place.before

    def shut_down(self) -> None:
        """The same: there is nothing to finish."""
        self.kill()

    def recover(self) -> None:
        """Listen again, on the same port."""
        listener = ThreadingHTTPServer(("127.0.0.1", self.port), partial(_Handler, self))
        listener.daemon_threads = True
        listener.block_on_close = False
        self._listener, self.port = listener, listener.server_port
        threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True).start()

    def pause(self) -> None:
        """Answer nothing."""
        self._going.clear()

    def resume(self) -> None:
        """Answer again, also what arrived meanwhile."""
        self._going.set()

    # --------------------------------------------------------------------------------------------------------- calls

    def connected(self, connection: socket.socket) -> None:
        """Note a connection, so that it can be ended."""
        self._connections.add(connection)

    def disconnected(self, connection: socket.socket) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def answer(self, call: str, words: Sequence[Any]) -> object:
        """Answer a call."""
        self._going.wait(60.0)
        with self._lock:
            return getattr(self, f"_on_{call}")(*words)

    def _on_read(self, scope: str) -> object:
        found = self._scopes.get(scope)
        return None if found is None else found.head

    def _on_commit(self, scope: str, expected: str | None, token: str, head: str, blobs: Mapping[str, str]) -> str:
        place = self._scopes.setdefault(scope, _Scope())
        if any(place.blobs.get(name, data) != data for name, data in blobs.items()):
            return "other blob"
        if (None if place.head is None else place.head[1]) != expected:
            return "conflict"
        place.blobs.update(blobs)
        place.before, place.head = place.head, (head, token)
        return "committed"

    def _on_blob(self, scope: str, name: str) -> object:
        place = self._scopes.get(scope)
        return None if place is None else place.blobs.get(name)

    def _on_blobs(self, scope: str) -> list[str]:
        place = self._scopes.get(scope)
        return [] if place is None else sorted(place.blobs)

    def _on_drop(self, scope: str, names: Sequence[str]) -> None:
        place = self._scopes.get(scope, _Scope())
        for name in names:
            place.blobs.pop(name, None)

    def _on_scopes(self, prefix: str) -> list[str]:
        return sorted(name for name, place in self._scopes.items() if place.head and name.startswith(prefix))

    def _on_forget(self, scope: str, expected: str) -> bool:
        place = self._scopes.get(scope)
        if place is None or place.head is None or place.head[1] != expected:
            return False
        place.head = None
        return True

    def _on_destroy(self, prefix: str) -> None:
        for name in [name for name in self._scopes if name.startswith(prefix)]:
            del self._scopes[name]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, store: RemoteServer, *args: Any) -> None:  # noqa: ANN401 - the library's own
        self._store = store
        super().__init__(*args)

    def handle(self) -> None:
        self._store.connected(self.connection)
        try:
            with suppress(OSError):
                super().handle()
        finally:
            self._store.disconnected(self.connection)

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(size)
        if not size or len(body) < size:  # the request was cut
            self.close_connection = True
            return
        call, words = json.loads(body)
        answer = json.dumps(self._store.answer(call, words)).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n"
        with suppress(OSError):
            self.wfile.write(head.encode() + answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the library's own
        del format, args


# ------------------------------------------------------------------------------------------------------------ client


class NotSent(Exception):
    """The request did not reach the server."""


class AnswerLost(Exception):
    """The request may have reached the server; there is no answer."""


class Line:
    """One connection to the server. Its weak spots are methods, for mutants to change."""

    def __init__(self, port: int) -> None:
        """Connect when the first request is sent."""
        self._port = port
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()

    def ask(self, call: str, words: Sequence[object]) -> object:
        """Send a request, and give the answer.

        Raises:
            NotSent: It was not sent.
            AnswerLost: It was perhaps received.
        """
        with self._lock:
            return self.exchange(json.dumps([call, list(words)]).encode(), call)

    def exchange(self, body: bytes, call: str) -> object:
        """One request and its answer, on a connection that is known to be there."""
        del call
        connection = self.connection()
        try:
            connection.request("POST", "/", body)
            return self.reply(connection)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.broken()
            raise AnswerLost(str(error)) from error

    def reply(self, connection: http.client.HTTPConnection) -> object:
        """Read an answer."""
        response = connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise http.client.HTTPException(f"status {response.status}")
        return json.loads(data)

    def timeout_s(self) -> float:
        """How long to wait for an answer."""
        return TIMEOUT_S

    def connection(self) -> http.client.HTTPConnection:
        """The connection, replaced where it has ended.

        Raises:
            NotSent: The server does not listen.
        """
        if self._connection is not None and self.ended(self._connection):
            self.broken()
        if self._connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self.timeout_s())
            try:
                connection.connect()
            except OSError as error:
                raise NotSent(str(error)) from error
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
        return self._connection

    def ended(self, connection: http.client.HTTPConnection) -> bool:
        """Whether an idle connection has ended meanwhile."""
        sock: socket.socket | None = connection.sock
        if sock is None:
            return True
        try:
            sock.setblocking(False)
            return sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            with suppress(OSError):
                sock.settimeout(self.timeout_s())

    def broken(self) -> None:
        """Close what cannot be used any more."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self.broken()


class RemoteAtomic(AtomicJournalStorage):
    """The honest client."""

    line: ClassVar[type[Line]] = Line

    def __init__(self, port: int, namespace: str) -> None:
        """Connect when the first call is made."""
        self._namespace = namespace
        self._closed = False
        self.connection = self.line(port)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            backend="remote",
            durability=Durability.PROCESS,
            durability_setting="kept by the server",
            sharing=Sharing.NETWORK,
            features=frozenset({Feature.PURGE, Feature.COLLECT}),
            limits=Limits(value_bytes_max=4 << 20, list_bytes_max=16 << 20, batch_bytes_max=8 << 20),
        )

    def read(self, call: str, *words: object) -> Any:  # noqa: ANN401 - whatever JSON holds
        """A call that changes nothing: without an answer it is refused.

        Raises:
            BackendUnavailable: There is no answer.
            StoreClosed: The store is closed.
        """
        self._open()
        try:
            return self.connection.ask(call, words)
        except (NotSent, AnswerLost) as error:
            raise BackendUnavailable(f"no answer: {error}", backend="remote") from error

    def write(self, call: str, *words: object) -> Any:  # noqa: ANN401 - whatever JSON holds
        """A call that changes something: without an answer its outcome is unknown.

        Raises:
            BackendUnavailable: It was not sent.
            OutcomeUnknown: There is no answer.
            StoreClosed: The store is closed.
        """
        self._open()
        try:
            return self.connection.ask(call, words)
        except NotSent as error:
            raise BackendUnavailable(f"not sent: {error}", backend="remote") from error
        except AnswerLost as error:
            raise self.lost(error) from error

    def lost(self, error: AnswerLost) -> Exception:
        """What a write without an answer is."""
        return OutcomeUnknown(f"no answer: {error}", backend="remote")

    def read_head(self, scope: str) -> HeadRecord | None:
        found = self.read("read", self._name(scope))
        return None if found is None else HeadRecord(_bytes(found[0]), found[1])

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        token = new_nonce()
        kept = {name: _text(data) for name, data in (blobs or {}).items()}
        answer = self.write("commit", self._name(scope), expected, token, _text(head), kept)
        if answer == "other blob":
            raise JournalCorrupt("a blob of this name has other content", what="blob", key=scope, backend="remote")
        return COMMIT_CONFLICT if answer == "conflict" else token

    def read_blob(self, scope: str, name: str) -> bytes | None:
        found = self.read("blob", self._name(scope), name)
        return None if found is None else _bytes(found)

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        return _page(self.read("blobs", self._name(scope)), after, limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        self.write("drop", self._name(scope), list(names))

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        skipped = len(self._name(""))
        return _page([name[skipped:] for name in self.read("scopes", self._name(prefix))], after, limit)

    def delete_head(self, scope: str, expected: str) -> bool:
        return bool(self.write("forget", self._name(scope), expected))

    def destroy(self) -> None:
        """Forget the namespace."""
        self.write("destroy", self._name(""))

    def close(self) -> None:
        self._closed = True
        self.connection.close()

    def _open(self) -> None:
        if self._closed:
            raise StoreClosed("this store is closed", backend="remote")

    def _name(self, scope: str) -> str:
        return f"{self._namespace}/{scope}"


class RemoteBackend:
    """Core's stores over the client."""

    scheme: ClassVar[str] = "remote"

    def __init__(self, namespace: str, directory: str) -> None:
        """Find the server of a directory, or start it here."""
        self._namespace = namespace
        self._port = _server_of(Path(directory))
        self._directory = directory

    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        del require
        return self.client_of(RemoteAtomic)

    def client_of(self, kind: type[RemoteAtomic]) -> RemoteAtomic:
        """A client of a kind."""
        return kind(self._port, self._namespace)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        return self.journal_over(self.open_atomic(require))

    def journal_over(self, storage: AtomicJournalStorage) -> ThreadJournalStore:
        return AtomicThreadJournalStore(storage)

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        return AtomicAgentStateStore(self.open_atomic(require))

    def open_medium(self) -> Medium | None:
        return None

    def destroy_namespace(self) -> bool:
        storage = RemoteAtomic(self._port, self._namespace)
        storage.destroy()
        storage.close()
        return True

    def server_control(self) -> RemoteServer | None:
        """The server, where it lives in this process."""
        return _SERVERS.get(self._directory)


_SERVERS: Final[dict[str, RemoteServer]] = {}
_STARTING: Final = threading.Lock()


def _server_of(directory: Path) -> int:
    with _STARTING:
        path = directory / _PORT_FILE
        if path.exists():
            return int(path.read_text())
        directory.mkdir(parents=True, exist_ok=True)
        server = _SERVERS[str(directory)] = RemoteServer()
        temporary = directory / f"{_PORT_FILE}.{os.getpid()}"
        temporary.write_text(str(server.port))
        temporary.replace(path)
        return server.port


def open_backend(namespace: str, directory: str) -> RemoteBackend:
    """Open the honest backend: the base of mutants of the network, as a target's function.

    Args:
        namespace: The namespace.
        directory: Where the server is, or will be.

    Returns:
        The backend.
    """
    return RemoteBackend(namespace, directory)


def _text(data: bytes) -> str:
    return base64.b85encode(data).decode() if not data.isascii() else "." + data.decode()


def _bytes(text: str) -> bytes:
    return text[1:].encode() if text.startswith(".") else base64.b85decode(text)


def _page(names: object, after: str | None, limit: int) -> NamePage:
    if not 1 <= limit <= 10_000:
        raise ValueError(f"limit must be 1 to 10,000, not {limit}")
    behind = [name for name in cast("list[str]", names) if after is None or name > after]
    return NamePage(tuple(behind[:limit]), len(behind) > limit)


__all__ = ["AnswerLost", "Line", "NotSent", "RemoteAtomic", "RemoteBackend", "RemoteServer", "open_backend"]
