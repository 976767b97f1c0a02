"""A real store, and a look-alike on loopback that can be told to misbehave; boto3 and fsspec talk to both for real."""

import hashlib
import os
import socket
import socketserver
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree as ET

import pytest

from statebook import AtomicJournalStorage, Batch, Event, ThreadJournalStore, ThreadKey, plugins as statebook
from statebook.options import StoreUrl
from statebook_conformance.services.provide import Provided, ServiceUnavailable, provide

Answer = tuple[int, dict[str, str], bytes]
KEYS = "access_key_id=key&secret_access_key=not-to-be-shown"


class Lookalike:
    """An object store in memory with S3's requests.

    Attributes:
        objects: What it holds.
        ignores: Conditions that it ignores: `if-none-match`, `if-match`, `delete`.
        racy_s: How long it waits between testing a condition and writing; 0: it is atomic.
        faults: For the next requests of a method on keys with a part: what to do in their place.
        requests: Methods with the condition that came, and keys.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reset()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def version_string(self) -> str:
                return "look-alike"

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def handle_one(self) -> None:
                owner.handle(self)

        for method in ("GET", "PUT", "DELETE", "POST", "HEAD"):
            setattr(Handler, f"do_{method}", Handler.handle_one)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def reset(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.ignores: set[str] = set()
        self.racy_s = 0.0
        self.page = 1_000
        self.faults: list[tuple[str, str, str]] = []
        self.requests: list[tuple[str, str]] = []
        self.digests: list[tuple[str, str]] = []
        self.after_write: Callable[[str], None] = lambda key: None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def url(self, options: str = "", bucket: str = "bucket") -> str:
        return (
            f"s3://{bucket}/some/prefix?endpoint_url={quote(self.endpoint, safe='')}&{KEYS}"
            f"&connect_timeout_s=2&read_timeout_s=2{options}"
        )

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def counted(self) -> Counter[str]:
        return Counter(method for method, _ in self.requests)

    def heads(self) -> list[str]:
        return sorted(key for key in self.objects if key.endswith("!head"))

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        _, bucket, *rest = unquote(parts.path).split("/", 2)
        key = rest[0] if rest else ""
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in request.headers.items()}
        condition = "".join(f" {name}" for name in ("if-match", "if-none-match") if name in headers)
        self.requests.append((request.command + condition, key))
        self.digests.append((request.command, headers.get("content-md5", "")))
        fault = self.fault(request.command, key)
        if fault == "drop before":
            request.close_connection = True
            return
        if fault.isdecimal():
            answer = self.error(int(fault), {"409": "ConditionalRequestConflict"}.get(fault, ""))
        elif fault.startswith("code "):
            status, code = fault.removeprefix("code ").split(" ")
            answer = self.error(int(status), code)
        else:
            answer = self.applied(request.command, bucket, key, headers, body, parts.query, fault)
        if fault == "silent after":
            time.sleep(2.5)
        if fault in ("drop after", "silent after"):
            request.close_connection = True
            return
        self.answer(request, answer)

    def applied(
        self, method: str, bucket: str, key: str, headers: dict[str, str], body: bytes, text: str, fault: str
    ) -> Answer:
        query = parse_qs(text, keep_blank_values=True)
        if bucket != "bucket":
            return self.error(404, "NoSuchBucket")
        answer = self.perform(method, key, headers, body, query)
        if fault == "send twice":
            answer = self.perform(method, key, headers, body, query)
        if method in ("PUT", "DELETE"):
            self.after_write(key)
        instead = {"500 after": (500, "InternalError"), "409 after": (409, "OperationAborted")}.get(fault)
        return answer if instead is None else self.error(*instead)

    def fault(self, method: str, key: str) -> str:
        with self.lock:
            for found in self.faults:
                if found[0] == method and found[1] in key:
                    self.faults.remove(found)
                    return found[2]
        return ""

    def answer(self, request: BaseHTTPRequestHandler, answer: Answer) -> None:
        status, headers, body = answer
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        if status not in (204, 304):
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD" and status not in (204, 304):
            request.wfile.write(body)

    def error(self, status: int, code: str) -> Answer:
        text = f"<Error><Code>{code}</Code><Message>as told</Message></Error>" if code else ""
        return status, {"Content-Type": "application/xml"}, text.encode()

    def perform(
        self, method: str, key: str, headers: dict[str, str], body: bytes, query: dict[str, list[str]]
    ) -> Answer:
        if method == "GET" and not key:
            return self.listing(query)
        if method == "POST":
            return self.multi_delete(body)
        if method in ("GET", "HEAD"):
            return self.get(key, headers)
        if self.racy_s:
            refused = self.refused(method, key, headers)
            time.sleep(self.racy_s)
            return refused or self.change(method, key, body)
        with self.lock:
            return self.refused(method, key, headers) or self.change(method, key, body)

    def refused(self, method: str, key: str, headers: dict[str, str]) -> Answer | None:
        held = self.objects.get(key)
        if "if-none-match" in headers and "if-none-match" not in self.ignores and held is not None:
            return self.error(412, "PreconditionFailed")
        ignored = "delete" if method == "DELETE" else "if-match"
        if "if-match" in headers and ignored not in self.ignores:
            if held is None:
                return self.error(404, "NoSuchKey")
            if headers["if-match"] != etag(held):
                return self.error(412, "PreconditionFailed")
        return None

    def change(self, method: str, key: str, body: bytes) -> Answer:
        if method == "DELETE":
            self.objects.pop(key, None)
            return 204, {}, b""
        self.objects[key] = body
        return 200, {"ETag": etag(body)}, b""

    def get(self, key: str, headers: dict[str, str]) -> Answer:
        held = self.objects.get(key)
        if held is None:
            return self.error(404, "NoSuchKey")
        if headers.get("if-none-match") == etag(held):
            return 304, {"ETag": etag(held)}, b""
        return 200, {"ETag": etag(held)}, held

    def listing(self, query: dict[str, list[str]]) -> Answer:
        prefix = query.get("prefix", [""])[0]
        after = max(query.get("start-after", [""])[0], query.get("continuation-token", [""])[0])
        with self.lock:
            found = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        page = found[: self.page]
        cut = len(found) > len(page)
        items = "".join(f"<Contents><Key>{quote(key)}</Key><Size>1</Size></Contents>" for key in page)
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if cut else ""
        text = (
            f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{str(cut).lower()}</IsTruncated>"
            f"{token}{items}</ListBucketResult>"
        )
        return 200, {"Content-Type": "application/xml"}, text.encode()

    def multi_delete(self, body: bytes) -> Answer:
        keys = [node.text or "" for node in ET.fromstring(body).iter() if node.tag.endswith("Key")]
        errors = ""
        for key in keys:
            fault = self.fault("POST-KEY", key)
            if fault:
                errors += f"<Error><Key>{key}</Key><Code>{fault}</Code></Error>"
            else:
                self.objects.pop(key, None)
        return 200, {"Content-Type": "application/xml"}, f"<DeleteResult>{errors}</DeleteResult>".encode()


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


class CuttingProxy:
    """Passes connections on to a server, and cuts one off behind the headers of a PUT when it is told to.

    Attributes:
        cuts: How many PUTs are still to be cut off.
    """

    def __init__(self, port: int) -> None:
        self.cuts = 0
        owner = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", port)) as server:
                    back = threading.Thread(target=owner.copy, args=(server, self.request), daemon=True)
                    back.start()
                    while received := self.request.recv(65_536):
                        head, found, _ = received.partition(b"\r\n\r\n")
                        if found and head.startswith(b"PUT ") and owner.cuts > 0:
                            owner.cuts -= 1
                            server.sendall(head + found)
                            server.shutdown(socket.SHUT_RDWR)
                            break
                        server.sendall(received)

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while received := source.recv(65_536):
                target.sendall(received)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def cutting(real: Provided, url: str) -> Iterator[tuple[CuttingProxy, str]]:
    """A proxy before the real store, and the URL of a namespace through it."""
    named = StoreUrl.parse(url)
    endpoint = dict(named.query)["endpoint_url"]
    proxy = CuttingProxy(urlsplit(endpoint).port or 80)
    yield proxy, named.with_option("endpoint_url", proxy.endpoint).unredacted()
    proxy.close()


@pytest.fixture(scope="session")
def standing() -> Iterator[Lookalike]:
    """A look-alike for all tests that do not ask for what happens at the first open: it is probed once."""
    server = Lookalike()
    yield server
    server.close()


@pytest.fixture
def fresh() -> Iterator[Lookalike]:
    """A look-alike that was never opened."""
    server = Lookalike()
    yield server
    server.close()


@pytest.fixture
def lookalike(standing: Lookalike) -> Lookalike:
    standing.reset()
    return standing


@pytest.fixture(params=["signed", "boto3"])
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who sends the commit path's requests: ours where an endpoint is given, boto3 on AWS and through proxies."""
    if request.param == "boto3":
        monkeypatch.setattr("statebook_backends.s3.store.get_environ_proxies", lambda endpoint: {"http": "one"})
    return str(request.param)


@pytest.fixture
def atomic(carrier: str, lookalike: Lookalike) -> Iterator[AtomicJournalStorage]:
    """An open storage on the look-alike, which has been probed; what comes now is the test's."""
    # An option of its own for each carrier, since stores with the same ones share their connections.
    kept = {"signed": 31, "boto3": 30}[carrier]
    store = statebook.open_atomic(lookalike.url(f"&connections_max={kept}"))
    lookalike.requests.clear()
    yield store
    store.close()


@pytest.fixture
def journal(lookalike: Lookalike) -> Iterator[ThreadJournalStore]:
    store = statebook.open_journal(lookalike.url())
    lookalike.requests.clear()
    yield store
    store.close()


@pytest.fixture(scope="session")
def real() -> Iterator[Provided]:
    """A real S3 store; missing, it fails where CI says that it must be there."""
    try:
        with provide("s3") as provided:
            yield provided
    except ServiceUnavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"UNAVAILABLE: {error}")
        pytest.skip(f"UNAVAILABLE: {error}")


@pytest.fixture
def url(real: Provided) -> Iterator[str]:
    """A namespace of its own on the real store, removed afterwards."""
    named = StoreUrl.parse(real.url).with_option("namespace", f"test-{uuid.uuid4().hex}").unredacted()
    yield named
    statebook.load_backend(named).destroy_namespace()


@pytest.fixture
def key() -> ThreadKey:
    return ThreadKey("user", "agent", "session", "thread")


@pytest.fixture
def batch() -> Callable[..., Batch]:
    def make(name: str, events: int = 1, payload: bytes = b"{}") -> Batch:
        made: list[Any] = [
            Event(event_id=f"{name}-{number}", type="run/start", occurred_at=1, payload=payload)
            for number in range(events)
        ]
        return Batch(name, tuple(made))

    return make
