"""Walking over, and deleting, all keys of a namespace, on all masters: for tests and operators. Never `KEYS`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from statebook.errors import BackendUnavailable
from statebook_backends.redis.client import Client
from statebook_backends.redis.errors import NotSent, ReplyLost, unavailable
from statebook_backends.redis.options import RedisOptions
from statebook_backends.redis.resp import command

if TYPE_CHECKING:
    from statebook_backends.redis.errors import Reply
    from statebook_backends.redis.store import Node

_SCAN_COUNT: Final = b"1000"
_SCANS_MAX: Final = 10_000_000
_ROUNDS_MAX: Final = 8


def destroy_namespace(options: RedisOptions) -> None:
    """Delete all keys of a namespace. Other namespaces, and keys that are not statebook's, stay.

    Args:
        options: Servers and namespace.

    Raises:
        BackendUnavailable: Perhaps some were deleted; calling again is harmless.
    """
    client = Client(options)
    try:
        for _ in range(_ROUNDS_MAX):  # a cluster may move slots meanwhile
            if not sum(_delete(client, node, keys) for node, keys in pages_of(client)):
                return
        raise BackendUnavailable(
            "keys are written while the namespace is deleted; end its writers and call again", backend=client.backend
        )
    finally:
        client.close()


def _delete(client: Client, node: Node, keys: list[bytes]) -> int:
    # One by one, because the keys of a page are in many slots.
    ask(client, node, b"".join([command(b"UNLINK", key) for key in keys]), len(keys))
    return len(keys)


def pages_of(client: Client) -> Iterator[tuple[Node, list[bytes]]]:
    """The keys of the namespace, page by page, on every master; a key may come twice.

    Raises:
        BackendUnavailable: A server does not answer.
    """
    try:
        nodes = client.servers().masters()
    except NotSent as error:
        raise unavailable(error, None, client.backend) from error
    for node in nodes:
        cursor = b"0"
        for _ in range(_SCANS_MAX):
            scan = command(b"SCAN", cursor, b"MATCH", client.layout.pattern, b"COUNT", _SCAN_COUNT)
            (reply,) = ask(client, node, scan, 1)
            if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[0], bytes):
                raise unavailable(NotSent("an unexpected reply to SCAN"), None, client.backend)
            cursor = reply[0]
            keys = [key for key in reply[1] if isinstance(key, bytes)] if isinstance(reply[1], list) else []
            if keys:
                yield node, keys
            if cursor == b"0":
                break


def ask(client: Client, node: Node, payload: bytes, count: int) -> list[Reply]:
    """Run commands on one server.

    Raises:
        BackendUnavailable: It does not answer.
    """
    try:
        return node.exchange(payload, count)
    except (NotSent, ReplyLost) as error:
        raise unavailable(error, None, client.backend) from error
