"""MySQL and MariaDB: conditional UPDATE, INSERT and COMMIT, three round trips, through PyMySQL."""

from __future__ import annotations

from collections.abc import Sequence

import pymysql  # type: ignore[import-untyped]

from statebook import StoreUrl
from statebook_benchmarks.raw.engine import RawEngine, RawLane, refused


class MysqlEngine(RawEngine):
    """Two tables of its own in the store's database."""

    def __init__(self, url: StoreUrl, name: str, threads: int) -> None:
        self._url = url
        self.head = f"raw_{name.replace('-', '_')}_head"
        self.batch = f"raw_{name.replace('-', '_')}_batch"
        self._connection = self._connect()
        with self._connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE {self.head} (jid BIGINT PRIMARY KEY, epoch BIGINT NOT NULL, nonce VARCHAR(64) NOT NULL, "
                "last_seq BIGINT NOT NULL) ENGINE=InnoDB"
            )
            cursor.execute(
                f"CREATE TABLE {self.batch} (jid BIGINT NOT NULL, last_seq BIGINT NOT NULL, batch_id VARBINARY(512) "
                "NOT NULL, body LONGBLOB NOT NULL, PRIMARY KEY (jid, last_seq), UNIQUE KEY (jid, batch_id)) "
                "ENGINE=InnoDB"
            )
            rows = [(thread,) for thread in range(threads)]
            cursor.executemany(f"INSERT INTO {self.head} VALUES (%s, 1, 'nonce', 0)", rows)  # noqa: S608
        self._connection.commit()

    @property
    def work(self) -> str:
        """What one append does."""
        return "conditional UPDATE, INSERT, COMMIT: three round trips through PyMySQL"

    def lane(self) -> RawLane:
        """A lane with one connection."""
        return _Lane(self, self._connect())

    def destroy(self) -> None:
        """Drop the tables, and close."""
        with self._connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {self.head}, {self.batch}")
        self._connection.close()

    def _connect(self) -> pymysql.connections.Connection:
        host = self._url.hosts[0]
        connection = pymysql.connect(
            host=host.name,
            port=host.port or 3_306,
            user=self._url.username or "",
            password=self._url.password or "",
            database=self._url.path.strip("/"),
            charset="utf8mb4",
            autocommit=False,
        )
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return connection


class _Lane(RawLane):
    def __init__(self, engine: MysqlEngine, connection: pymysql.connections.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._seqs: dict[int, int] = {}
        self._advance = (
            f"UPDATE {engine.head} SET last_seq = %s "  # noqa: S608
            "WHERE jid = %s AND epoch = 1 AND nonce = 'nonce' AND last_seq = %s"
        )
        self._insert = f"INSERT INTO {engine.batch} (jid, last_seq, batch_id, body) VALUES (%s, %s, %s, %s)"  # noqa: S608

    def append(self, thread: int, body: bytes) -> None:
        row = self._move(thread, body)
        self._cursor.execute(self._insert, row)
        self._connection.commit()

    def append_group(self, bodies: Sequence[bytes]) -> None:
        rows = [self._move(thread, body) for thread, body in enumerate(bodies)]
        self._cursor.executemany(self._insert, rows)
        self._connection.commit()

    def _move(self, thread: int, body: bytes) -> tuple[int, int, str, bytes]:
        seq = self._seqs.get(thread, 0)
        if self._cursor.execute(self._advance, (seq + 1, thread, seq)) != 1:
            raise refused()
        self._seqs[thread] = seq + 1
        return thread, seq + 1, f"{thread}-{seq + 1:012d}", body

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
