"""Mutants of the network: clients that misread lost, late and cut answers, and a server that forgets."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable
from typing import ClassVar, Final, cast

from statebook.atomic import AtomicJournalStorage
from statebook.atomic_state import AtomicAgentStateStore
from statebook.errors import BackendUnavailable
from statebook.journal import ThreadJournalStore
from statebook.plugins import Requirement
from statebook.state import AgentStateStore
from statebook_conformance.control import ServerControl
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.remote import AnswerLost, Line, NotSent, RemoteAtomic, RemoteBackend, RemoteServer
from statebook_conformance.target import TargetBackend

_BASE: Final = "statebook_conformance.mutants.remote:open_backend?directory={directory}"
_FOREVER_S: Final = 10_000.0


class _Networked(ForwardBackend):
    """The honest backend with another client, or with another hand on its server."""

    def __init__(
        self,
        inner: TargetBackend,
        client: type[RemoteAtomic],
        control: Callable[[RemoteServer], ServerControl] | None,
    ) -> None:
        super().__init__(inner)
        self._client, self._control = client, control

    def open_atomic(self, require: Iterable[Requirement] = ()) -> AtomicJournalStorage:
        del require
        return cast("RemoteBackend", self.inner).client_of(self._client)

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        return self.journal_over(self.open_atomic(require))

    def open_state(self, require: Iterable[Requirement] = ()) -> AgentStateStore:
        return AtomicAgentStateStore(self.open_atomic(require))

    def server_control(self) -> ServerControl | None:
        server = cast("RemoteBackend", self.inner).server_control()
        return server if server is None or self._control is None else self._control(server)


def _mutant(
    name: str,
    text: str,
    client: type[RemoteAtomic] = RemoteAtomic,
    control: Callable[[RemoteServer], ServerControl] | None = None,
) -> Mutant:
    return Mutant(name, text, lambda inner: _Networked(inner, client, control), base=_BASE)


def _with_line(changed: type[Line]) -> type[RemoteAtomic]:
    class _Client(RemoteAtomic):
        line: ClassVar[type[Line]] = changed

    return _Client


# ------------------------------------------------------------------------------------------------- misread outcomes


class _LostIsRefused(RemoteAtomic):
    def lost(self, error: AnswerLost) -> Exception:
        return BackendUnavailable(f"no answer: {error}", backend="remote")


LOST_REPLY_IS_A_REFUSAL = _mutant(
    "lost-reply-is-a-refusal", "A write without an answer is reported as certainly not applied.", _LostIsRefused
)


class _LostIsDone(Line):
    def exchange(self, body: bytes, call: str) -> object:
        try:
            return super().exchange(body, call)
        except AnswerLost:
            if call == "commit":
                return "committed"
            raise


IGNORES_A_LOST_REQUEST = _mutant(
    "ignores-a-lost-request", "A commit whose request was cut counts as done.", _with_line(_LostIsDone)
)


class _CutIsEmpty(Line):
    def reply(self, connection: http.client.HTTPConnection) -> object:
        try:
            return super().reply(connection)
        except (http.client.HTTPException, ValueError):
            self.broken()
            return None


CUT_REPLY_IS_EMPTY = _mutant(
    "cut-reply-is-empty", "An answer that was cut counts as: nothing is stored.", _with_line(_CutIsEmpty)
)


class _SendsAgain(Line):
    def exchange(self, body: bytes, call: str) -> object:
        try:
            return super().exchange(body, call)
        except AnswerLost:
            return super().exchange(body, call)


DRIVER_SENDS_AGAIN = _mutant(
    "driver-sends-a-lost-request-again",
    "The driver sends a request again by itself when its answer is lost.",
    _with_line(_SendsAgain),
)


class _AnyAnswer(Line):
    def reply(self, connection: http.client.HTTPConnection) -> object:
        response = connection.getresponse()
        data = response.read()
        return json.loads(data) if response.status == 200 else "committed"


ANY_ANSWER_IS_SUCCESS = _mutant(
    "any-answer-is-success", "The status of an answer is not looked at.", _with_line(_AnyAnswer)
)


# ------------------------------------------------------------------------------------------- connections and time-outs


class _KeepsBroken(Line):
    def exchange(self, body: bytes, call: str) -> object:
        connection = self.connection()
        try:
            connection.request("POST", "/", body)
            return self.reply(connection)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AnswerLost(str(error)) from error

    def ended(self, connection: http.client.HTTPConnection) -> bool:
        del connection
        return False


KEEPS_A_BROKEN_CONNECTION = _mutant(
    "keeps-a-broken-connection", "A connection on which a call failed is used for the next.", _with_line(_KeepsBroken)
)


class _NotChecked(Line):
    def ended(self, connection: http.client.HTTPConnection) -> bool:
        return connection.sock is None


IDLE_CONNECTION_NOT_CHECKED = _mutant(
    "idle-connection-not-checked",
    "A connection that ended while it was idle is found out by the next call, which fails.",
    _with_line(_NotChecked),
)


class _NoTimeout(Line):
    def timeout_s(self) -> float:
        return _FOREVER_S


NO_TIME_OUT = _mutant("no-time-out", "An answer is waited for without an end.", _with_line(_NoTimeout))


class _ShortReads(Line):
    def reply(self, connection: http.client.HTTPConnection) -> object:
        head, _, body = connection.sock.recv(1 << 20).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise ValueError("no answer")
        connection.close()
        return json.loads(body)


SHORT_READS = _mutant("short-reads", "One read of the socket counts as the whole answer.", _with_line(_ShortReads))


class _LateReplies(Line):
    """Keeps a connection on which it has waited in vain: the next answer there is that of the call before."""

    def exchange(self, body: bytes, call: str) -> object:
        del call
        connection = self.connection()
        try:
            connection.sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            response = http.client.HTTPResponse(connection.sock)
            response.begin()
            return json.loads(response.read())
        except TimeoutError as error:
            raise AnswerLost(str(error)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.broken()
            raise AnswerLost(str(error)) from error

    def ended(self, connection: http.client.HTTPConnection) -> bool:
        return connection.sock is None


LATE_REPLY_ANSWERS_THE_NEXT = _mutant(
    "late-reply-answers-the-next",
    "A connection is kept after a time-out; the late answer is taken for that of the next call.",
    _with_line(_LateReplies),
)


# ------------------------------------------------------------------------------------------------ the server's end


class _GivesUp(Line):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._refused = False

    def connection(self) -> http.client.HTTPConnection:
        try:
            if self._refused:
                raise NotSent("the server did not listen once")
            return super().connection()
        except NotSent:
            self._refused = True
            raise


GIVES_UP_AFTER_A_RESTART = _mutant(
    "gives-up-after-a-restart", "A server that did not listen once is never asked again.", _with_line(_GivesUp)
)


class _Forgetful:
    """Kills the server, and takes the newest write of each scope with it."""

    def __init__(self, server: RemoteServer) -> None:
        self._server = server
        self.recover, self.shut_down = server.recover, server.shut_down
        self.pause, self.resume = server.pause, server.resume

    def kill(self) -> None:
        self._server.kill()
        self._server.forget_the_newest()


SERVER_FORGETS_THE_NEWEST = _mutant(
    "server-forgets-the-newest", "The server acknowledges what a kill -9 takes back.", control=_Forgetful
)
