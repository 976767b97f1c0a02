"""SeaweedFS is ready when it takes data: behind a restart its bucket is there before there is a place to write to."""

from __future__ import annotations

import shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

from statebook_conformance.services.s3_service import SeaweedService

_THERE = b"<Error><Code>BucketAlreadyOwnedByYou</Code></Error>"
_NO_PLACE = b"<Error><Code>InternalError</Code></Error>"
_REFUSED = 3


class Restarted(BaseHTTPRequestHandler):
    """A store that knows its bucket, and has no place for data at first."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.rstrip("/").count("/") == 1:
            return self.answer(409, _THERE)
        sizes = cast("Any", self.server).sizes
        sizes.append(int(self.headers["Content-Length"]))
        return self.answer(500, _NO_PLACE) if len(sizes) <= _REFUSED else self.answer(200, b"")

    def do_DELETE(self) -> None:
        self.answer(204, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_a_bucket_that_is_there_already_does_not_make_a_store_ready() -> None:
    service = SeaweedService()
    service.servers.append(cast("Any", SimpleNamespace(pid=1, start=lambda: None)))
    store: Any = ThreadingHTTPServer(("127.0.0.1", service.port), Restarted)
    store.sizes = []
    thread = Thread(target=store.serve_forever)
    thread.start()
    try:
        service.recover()
    finally:
        store.shutdown()
        thread.join()
        store.server_close()
        shutil.rmtree(service.directory, ignore_errors=True)
    assert len(store.sizes) == _REFUSED + 1
    assert min(store.sizes) >= 100_000
