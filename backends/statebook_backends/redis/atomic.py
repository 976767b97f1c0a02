"""AtomicJournalStorage on Redis: head and blobs of a scope in one slot, one script a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from statebook.atomic import COMMIT_CONFLICT, AtomicJournalStorage, CommitConflict, HeadRecord, NamePage
from statebook.capabilities import Capabilities
from statebook.errors import BackendUnavailable, JournalCorrupt, OutcomeUnknown, StoreClosed
from statebook.ids import new_nonce
from statebook.model import check_page
from statebook_backends.redis.client import Client
from statebook_backends.redis.errors import Reply
from statebook_backends.redis.layout import ScopeKeys, member_of, name_of
from statebook_backends.redis.options import RedisOptions
from statebook_backends.redis.resp import bulk, bulks, text
from statebook_backends.redis.scripts import script

_BEHIND_ALL: Final = b"+"


class RedisAtomicJournalStorage(AtomicJournalStorage):
    """A hash for the head and one for the blobs; a commit judges the token and writes in one script (ATOM-1, ATOM-3).

    The first commit of a scope takes one script more: the scope is put into the index before.
    """

    def __init__(self, options: RedisOptions, *, new_nonce: Callable[[], str] = new_nonce) -> None:
        """Open the storage.

        Args:
            options: What to open.
            new_nonce: Where tokens come from.

        Raises:
            InvalidConfiguration: The servers are not what the options say, or unfit for a journal (ERR-6, ATOM-7).
            BackendUnavailable: A server does not answer.
        """
        self._client = Client(options)
        self._new_nonce = new_nonce
        self._limits = self._client.capabilities.limits
        self._index = self._client.layout.scopes()

    @property
    def capabilities(self) -> Capabilities:
        return self._client.capabilities

    def read_head(self, scope: str) -> HeadRecord | None:
        keys = self._client.layout.scope(scope)
        reply = self._read(keys, "pair", bulk(keys.head), b"token", b"data")
        token, data = reply if isinstance(reply, list) and len(reply) == 2 else (None, None)
        if token is None and data is None:
            return None
        if not isinstance(token, bytes) or not isinstance(data, bytes):
            raise JournalCorrupt(
                "half of a head is missing",
                what="head",
                expected="token and data",
                found="one of them",
                key=scope,
                backend=self._client.backend,
            )
        return HeadRecord(data, token.decode("ascii", "backslashreplace"))

    def commit(
        self, scope: str, expected: str | None, head: bytes, blobs: Mapping[str, bytes] | None = None
    ) -> str | CommitConflict:
        new = {} if blobs is None else {name: bytes(content) for name, content in blobs.items()}
        data = bytes(head)
        for record in (data, *new.values()):
            self._limits.check("list_bytes_max", len(record), scope)
        client = self._client
        client.servers()
        keys = client.layout.scope(scope)
        if expected is None:
            if self.read_head(scope) is not None:
                return COMMIT_CONFLICT
            client.index(self._index, b"add", member_of(scope), JournalCorrupt, scope)
        token = self._new_nonce()
        words = [word for name, content in new.items() for word in (name.encode("ascii"), content)]
        call = script("commit", 2).call(
            2, bulks(keys.head, keys.blobs), (expected or "").encode(), token.encode(), data, *words
        )
        reply = client.write(keys.slot, call, JournalCorrupt, scope)
        if reply == 1:
            return token
        if isinstance(reply, list) and reply:
            raise JournalCorrupt(
                f"blob {text(reply[0])!r} is there with other content; blobs are never replaced",
                what="blob",
                key=scope,
                backend=client.backend,
            )
        return COMMIT_CONFLICT

    def read_blob(self, scope: str, name: str) -> bytes | None:
        keys = self._client.layout.scope(scope)
        reply = self._read(keys, "pair", bulk(keys.blobs), name.encode(), name.encode())
        blob = reply[0] if isinstance(reply, list) and reply else None
        return blob if isinstance(blob, bytes) else None

    def list_blobs(self, scope: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        keys = self._client.layout.scope(scope)
        reply = self._read(keys, "names", bulk(keys.blobs))
        there = sorted(text(name) for name in reply) if isinstance(reply, list) else []
        names = [name for name in there if after is None or name > after]
        return NamePage(tuple(names[:limit]), len(names) > limit)

    def delete_blobs(self, scope: str, names: Sequence[str]) -> None:
        client = self._client
        client.servers()
        keys = client.layout.scope(scope)
        given = [name.encode() for name in names]
        if given:
            client.write(keys.slot, script("forget", 1).call(1, bulk(keys.blobs), *given), JournalCorrupt, scope)

    def list_scopes(self, prefix: str, after: str | None, limit: int) -> NamePage:
        check_page(limit)
        client = self._client
        # `0` follows `/`, so the names that start with `x/` are those between `x/` and `x0`.
        end = b"(" + prefix[:-1].encode("ascii") + b"0" if prefix else _BEHIND_ALL
        start = b"[" + prefix.encode("ascii") if prefix else b"-"
        if after is not None and after >= prefix:
            start = b"(" + member_of(after)
        scopes: list[str] = []
        wanted = limit + 1
        while True:
            members = client.page(self._index, start, end, wanted, JournalCorrupt, prefix)
            names = [self._name(member) for member in members]
            calls = [
                (keys.slot, script("pair", 1).call(1, bulk(keys.head), b"token", b"token"))
                for keys in map(client.layout.scope, names)
            ]
            replies = client.read_all(calls, JournalCorrupt)
            scopes += [
                name
                for name, reply in zip(names, replies, strict=True)
                if isinstance(reply, list) and reply and reply[0] is not None
            ]
            if len(scopes) > limit or len(members) < wanted:
                return NamePage(tuple(scopes[:limit]), len(scopes) > limit)
            start = b"(" + members[-1]

    def _name(self, member: bytes) -> str:
        name = name_of(member)
        if name is None:
            raise JournalCorrupt(
                "an entry of the listing was changed by hand",
                what="index",
                expected="a name and its check",
                found=repr(member),
                backend=self._client.backend,
            )
        return name

    def delete_head(self, scope: str, expected: str) -> bool:
        client = self._client
        client.servers()
        keys = client.layout.scope(scope)
        call = script("remove", 1).call(1, bulk(keys.head), expected.encode())
        if client.write(keys.slot, call, JournalCorrupt, scope) != 1:
            return False
        try:
            client.index(self._index, b"remove", member_of(scope), JournalCorrupt, scope)
            if self.read_head(scope) is not None:
                client.index(self._index, b"add", member_of(scope), JournalCorrupt, scope)
        except (BackendUnavailable, StoreClosed) as error:
            raise OutcomeUnknown(
                "the head was removed, but its entry in the listing was not; listings skip it",
                key=scope,
                backend=client.backend,
            ) from error
        return True

    def close(self) -> None:
        self._client.close()

    def _read(self, keys: ScopeKeys, name: str, packed: bytes, *arguments: bytes) -> Reply:
        call = script(name, 1).call(1, packed, *arguments)
        return self._client.read(keys.slot, call, JournalCorrupt, None)
