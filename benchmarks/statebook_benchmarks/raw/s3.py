"""S3: one conditional PUT an append through boto3, on the ETag of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import boto3
from botocore.config import Config

from statebook import StoreUrl
from statebook_benchmarks.raw.engine import RawEngine, RawLane

_POOL: Final = 32


class S3Engine(RawEngine):
    """Objects of its own below the store's prefix."""

    def __init__(self, url: StoreUrl, name: str, threads: int) -> None:
        options = dict(url.query)
        self.bucket = url.hosts[0].name
        self.prefix = f"{url.path.strip('/')}/raw-{name}".lstrip("/")
        self._threads = threads
        endpoint = options.get("endpoint_url")
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=options.get("access_key_id"),
            aws_secret_access_key=options.get("secret_access_key"),
            aws_session_token=options.get("session_token"),
            region_name=options.get("region") or ("us-east-1" if endpoint else None),
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                max_pool_connections=_POOL * 2,
                s3={"addressing_style": "path" if endpoint else "auto"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    @property
    def work(self) -> str:
        """What one append does."""
        return "one PUT with If-Match through boto3"

    def key(self, thread: int) -> str:
        """The object of a thread."""
        return f"{self.prefix}/{thread}"

    def lane(self) -> RawLane:
        """A lane; boto3 keeps the connections."""
        return _Lane(self)

    def destroy(self) -> None:
        """Delete the objects, and close."""
        for thread in range(self._threads):
            self.client.delete_object(Bucket=self.bucket, Key=self.key(thread))
        self.client.close()


class _Lane(RawLane):
    def __init__(self, engine: S3Engine) -> None:
        self._engine = engine
        self._etags: dict[int, str] = {}
        self._pool = ThreadPoolExecutor(_POOL)

    def append(self, thread: int, body: bytes) -> None:
        engine = self._engine
        etag = self._etags.get(thread)
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        answer = engine.client.put_object(Bucket=engine.bucket, Key=engine.key(thread), Body=body, **condition)
        self._etags[thread] = str(answer["ETag"])

    def append_group(self, bodies: Sequence[bytes]) -> None:
        for done in [self._pool.submit(self.append, thread, body) for thread, body in enumerate(bodies)]:
            done.result()

    def close(self) -> None:
        """End the pool."""
        self._pool.shutdown()
