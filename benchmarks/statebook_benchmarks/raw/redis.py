"""Redis: one EVALSHA that compares the fence, adds one stream entry and moves the head, through redis-py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from statebook import StoreUrl
from statebook_benchmarks.raw.engine import RawEngine, RawLane, refused

_APPEND: Final = """
local head = redis.call('HMGET', KEYS[1], 'epoch', 'nonce', 'last_seq')
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] or head[3] ~= ARGV[3] then return 0 end
redis.call('XADD', KEYS[2], ARGV[4] .. '-0', 'body', ARGV[5])
redis.call('HSET', KEYS[1], 'last_seq', ARGV[4])
return 1
"""


class RedisEngine(RawEngine):
    """Keys of its own on the store's server."""

    def __init__(self, url: StoreUrl, name: str, threads: int) -> None:
        self._url = url
        self._client = self._connect()
        self.name = name
        self._threads = threads
        self.sha = str(self._client.script_load(_APPEND))
        for thread in range(threads):
            self._client.hset(self.keys(thread)[0], mapping={"epoch": 1, "nonce": "nonce", "last_seq": 0})

    @property
    def work(self) -> str:
        """What one append does."""
        return "one EVALSHA through redis-py: compare the fence, XADD, HSET"

    def keys(self, thread: int) -> tuple[str, str]:
        """The keys of a thread: its head and its stream."""
        return f"{self.name}:{{{thread}}}:h", f"{self.name}:{{{thread}}}:b"

    def lane(self) -> RawLane:
        """A lane with one connection."""
        return _Lane(self, self._connect())

    def destroy(self) -> None:
        """Delete the keys, and close."""
        for thread in range(self._threads):
            self._client.delete(*self.keys(thread))
        self._client.close()

    def _connect(self) -> redis.Redis:
        host = self._url.hosts[0]
        return redis.Redis(
            host=host.name,
            port=host.port or 6_379,
            db=int(self._url.path.strip("/") or 0),
            username=self._url.username,
            password=self._url.password,
            retry=Retry(NoBackoff(), 0),
        )


class _Lane(RawLane):
    def __init__(self, engine: RedisEngine, client: redis.Redis) -> None:
        self._engine = engine
        self._client = client
        self._seqs: dict[int, int] = {}

    def append(self, thread: int, body: bytes) -> None:
        if self._client.evalsha(self._engine.sha, 2, *self._arguments(thread, body)) != 1:
            raise refused()

    def append_group(self, bodies: Sequence[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for thread, body in enumerate(bodies):
            pipeline.evalsha(self._engine.sha, 2, *self._arguments(thread, body))
        if any(answer != 1 for answer in pipeline.execute()):
            raise refused()

    def _arguments(self, thread: int, body: bytes) -> tuple[str | bytes | int, ...]:
        seq = self._seqs.get(thread, 0)
        self._seqs[thread] = seq + 1
        return (*self._engine.keys(thread), 1, "nonce", seq, seq + 1, body)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
