"""S3's drivers: signed requests of our own or boto3's for the commit path, fsspec's file system for everything else.

fsspec's file system is not used for conditional writes: it sends them again, maps 412, 409 and 503 to the same error
numbers, and creates over an existing object where the content is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import boto3
import fsspec
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError
from botocore.handlers import add_expect_header
from botocore.utils import get_environ_proxies

from statebook.errors import BackendUnavailable, OutcomeUnknown
from statebook_backends.s3.errors import Refused, driver_errors, is_absent, judge_write, unavailable
from statebook_backends.s3.http import NoAnswer
from statebook_backends.s3.names import BACKEND
from statebook_backends.s3.objects import FileSystem
from statebook_backends.s3.options import S3Options
from statebook_backends.s3.signed import SignedWire
from statebook_backends.s3.wire import Reply, Wire, content_md5
from statebook_backends.s3.writers import (
    LOST,
    UNCHANGED,
    ConditionalWriters,
    Found,
    Lost,
    ObjectEngine,
    Unchanged,
    Unsure,
)

_DELETE_MAX: Final = 1_000
_PAGES_MAX: Final = 100_000


def connect(options: S3Options) -> ObjectEngine:
    """Make an engine for options, through the registry of conditional writers. No I/O.

    Args:
        options: The options.

    Returns:
        The engine.
    """
    return ConditionalWriters.installed().find(BACKEND)(filesystem_of(BACKEND, options.storage_options()))


def filesystem_of(protocol: str, storage_options: Mapping[str, object]) -> FileSystem:
    """Make a file system of its own, with all caches off. No I/O.

    Args:
        protocol: The fsspec protocol.
        storage_options: The file system's options.

    Returns:
        The file system.
    """
    uncached = {"use_listings_cache": False, "skip_instance_cache": True}
    return cast("FileSystem", fsspec.filesystem(protocol, **{**uncached, **storage_options}))


def s3_engine(filesystem: FileSystem) -> ObjectEngine:
    """The conditional writer of fsspec's `s3`, with the client options that the file system was made with. No I/O.

    Args:
        filesystem: An `s3fs.S3FileSystem`.

    Returns:
        The engine.
    """
    driver: Any = filesystem
    # Read requests of this file system are tried once too: a dead endpoint is told within one time-out (ERR-4).
    driver.retries = 1
    given: Mapping[str, Any] = driver.storage_options
    session = boto3.Session(
        aws_access_key_id=given.get("key"),
        aws_secret_access_key=given.get("secret"),
        aws_session_token=given.get("token"),
        profile_name=given.get("profile"),
    )
    config = {**given.get("config_kwargs", {}), "retries": {"total_max_attempts": 1, "mode": "standard"}}
    about = given.get("client_kwargs", {})
    endpoint = given.get("endpoint_url")
    client = session.client(BACKEND, endpoint_url=endpoint, config=Config(**config), **about)
    wire: Wire = BotoWire(client)
    if endpoint and not get_environ_proxies(endpoint):
        wire = SignedWire(
            client,
            session.get_credentials(),
            verify=about.get("verify", True),
            connect_timeout_s=config.get("connect_timeout", 5.0),
            read_timeout_s=config.get("read_timeout", 10.0),
            connections_max=config.get("max_pool_connections", 10),
        )
    writer = S3ConditionalWriter(wire)
    return ObjectEngine(writer, S3Objects(filesystem), lambda: writer.server, writer.close)


class BotoWire:
    """Requests through a boto3 client, which must be set to one attempt (ERR-3)."""

    def __init__(self, client: BaseClient) -> None:
        """Use a client; it is closed with this."""
        self._client: Any = client
        # Waiting for "100 Continue" costs a round trip a PUT, and spares nothing: heads are small.
        self._client.meta.events.unregister("before-call.s3.PutObject", add_expect_header)

    def get(self, bucket: str, key: str, if_none_match: str | None) -> Reply:
        condition = {} if if_none_match is None else {"IfNoneMatch": if_none_match}
        return self._sent(lambda: self._client.get_object(Bucket=bucket, Key=key, **condition))

    def put(self, bucket: str, key: str, body: bytes, if_match: str | None) -> Reply:
        condition = {"IfNoneMatch": "*"} if if_match is None else {"IfMatch": if_match}
        digest = content_md5(body)
        return self._sent(
            lambda: self._client.put_object(Bucket=bucket, Key=key, Body=body, ContentMD5=digest, **condition)
        )

    def delete(self, bucket: str, key: str, if_match: str) -> Reply:
        return self._sent(lambda: self._client.delete_object(Bucket=bucket, Key=key, IfMatch=if_match))

    def close(self) -> None:
        self._client.close()

    def _sent(self, request: Callable[[], Mapping[str, Any]]) -> Reply:
        try:
            answer = request()
        except ClientError as error:
            about = error.response.get("ResponseMetadata", {})
            headers = about.get("HTTPHeaders", {})
            code = str(error.response.get("Error", {}).get("Code", ""))
            return Reply(
                about.get("HTTPStatusCode", 0),
                "" if code.isdecimal() else code,
                headers.get("etag", ""),
                headers.get("server", ""),
            )
        body = answer.get("Body")
        about = answer["ResponseMetadata"]
        return Reply(
            about["HTTPStatusCode"],
            "",
            answer.get("ETag", ""),
            about["HTTPHeaders"].get("server", ""),
            b"" if body is None else body.read(),
        )


class S3ConditionalWriter:
    """Conditional requests of S3; versions are ETags.

    Attributes:
        server: What the endpoint called itself in its last answer.
    """

    def __init__(self, wire: Wire) -> None:
        """Send requests over a wire; it is closed with this."""
        self._wire = wire
        self.server = ""

    def read(self, path: str, known: str | None = None) -> Found | Unchanged | None:
        bucket, _, key = path.partition("/")
        try:
            reply = self._get(path, bucket, key, known)
        except BackendUnavailable as error:
            # The endpoint closed a kept connection just as it was used: a read is harmless twice.
            cause = error.__cause__
            if not isinstance(cause, ConnectionClosedError) and not (isinstance(cause, NoAnswer) and cause.closed):
                raise
            reply = self._get(path, bucket, key, known)
        if reply.status == 200:
            return Found(reply.body, reply.etag)
        if reply.status == 304 and known is not None:
            return UNCHANGED
        refused = Refused(reply.status, reply.code, "")
        if is_absent(refused):
            return None
        raise unavailable(path, reply.status, reply.code) from refused

    def _get(self, path: str, bucket: str, key: str, known: str | None) -> Reply:
        with driver_errors(path, writes=False):
            reply = self._wire.get(bucket, key, known)
        self.server = reply.server or self.server
        return reply

    def write(self, path: str, data: bytes, expected: str | None) -> str | Lost:
        bucket, _, key = path.partition("/")
        if expected == "":
            return LOST  # the version of a write that was followed before its reply came: no current one
        with driver_errors(path, writes=True):
            reply = self._wire.put(bucket, key, data, expected)
        if reply.status == 200:
            if not reply.etag:
                raise Unsure("the answer to the write holds no ETag")
            return reply.etag
        return judge_write(path, reply.status, reply.code, Refused(reply.status, reply.code, ""))

    def remove(self, path: str, expected: str) -> bool:
        bucket, _, key = path.partition("/")
        if expected == "":
            return False
        with driver_errors(path, writes=True):
            reply = self._wire.delete(bucket, key, expected)
        if reply.status in (200, 204):
            return True
        judge_write(path, reply.status, reply.code, Refused(reply.status, reply.code, ""))
        return False

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()


class S3Objects:
    """Objects through fsspec's S3 file system: pages of its listing, deletes that tell which keys failed."""

    def __init__(self, filesystem: FileSystem) -> None:
        """Work on a file system, which must not cache."""
        self._filesystem: Any = filesystem

    def read(self, path: str) -> bytes | None:
        try:
            return cast("bytes", self._filesystem.cat_file(path))
        except Exception as error:
            if is_absent(error):
                return None
            with driver_errors(path, writes=False):
                raise

    def put(self, path: str, data: bytes) -> None:
        with driver_errors(path, writes=False):
            self._filesystem.pipe_file(path, data)

    def pages(self, directory: str, after: str | None = None) -> Iterator[Sequence[str]]:
        bucket, _, prefix = directory.partition("/")
        position: dict[str, str] = {}
        if after is not None:
            position["StartAfter"] = after.partition("/")[2]
        for _ in range(_PAGES_MAX):
            with driver_errors(directory, writes=False):
                page = self._filesystem.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **position)
            yield tuple(f"{bucket}/{found['Key']}" for found in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                return
            position = {"ContinuationToken": page["NextContinuationToken"]}
        raise BackendUnavailable(
            f"the listing did not end within {_PAGES_MAX} pages; use a namespace of fewer objects",
            key=directory,
            backend=BACKEND,
        )

    def delete(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), _DELETE_MAX):
            self._delete(paths[start : start + _DELETE_MAX], started=start > 0)

    def _delete(self, paths: Sequence[str], *, started: bool) -> None:
        bucket = paths[0].partition("/")[0]
        keys = [{"Key": path.partition("/")[2]} for path in paths]
        try:
            with driver_errors(paths[0], writes=True):
                answer = self._filesystem.call_s3(
                    "delete_objects", Bucket=bucket, Delete={"Objects": keys, "Quiet": True}
                )
        except Unsure as error:
            raise OutcomeUnknown(
                f"some of {len(paths)} objects may have been deleted ({error}); calling again is harmless",
                key=paths[0],
                backend=BACKEND,
            ) from error.__cause__
        except BackendUnavailable as error:
            if not started:
                raise
            raise OutcomeUnknown(
                f"some objects were deleted: {error.message}", key=paths[0], backend=BACKEND
            ) from error
        failed = [found for found in answer.get("Errors", ()) if found.get("Code") != "NoSuchKey"]
        if failed:
            codes = ", ".join(sorted({str(found.get("Code")) for found in failed}))
            raise OutcomeUnknown(
                f"{len(failed)} of {len(paths)} objects were not deleted ({codes}); calling again is harmless",
                key=f"{bucket}/{failed[0].get('Key')}",
                backend=BACKEND,
            )
