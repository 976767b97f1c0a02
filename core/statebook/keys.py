"""Keys, scopes, and the one encoder that turns ids into storage names.

Names are `[a-z0-9-]` and `_`: lower-case letters, digits and `-` stand for themselves, every other byte of the id's
UTF-8 is `_` and two hex digits. An id whose name would be longer than `NAME_CHARS_MAX` becomes `_h` and the hex SHA-256
of the id; the full id is then stored beside it and compared on read. `None` is `_n`. Since `_` is otherwise always
followed by two hex digits, no id can reach the name of another, of a digest (but by a collision of SHA-256) or of
`None`. The encoding knows no case, no separator and no reserved file name, and sorts the same everywhere.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

import msgspec

from statebook.errors import InvalidKey

ID_BYTES_MAX: Final = 512
"""The longest identifier, in bytes of UTF-8 (ID-1)."""

NAME_CHARS_MAX: Final = 120
"""The longest name of one id, in ASCII characters (ID-4)."""

NONE_NAME: Final = "_n"
"""The name of `user_id=None` (ID-3)."""

_NAMES_REMEMBERED: Final = 4_096
_DIGEST_PREFIX: Final = "_h"
_PLAIN: Final = re.compile(r"[a-z0-9-]+\Z", re.ASCII)
_NAME: Final = re.compile(r"(?:[a-z0-9-]|_[0-9a-f]{2})+\Z", re.ASCII)
_ESCAPE: Final = re.compile(rb"_([0-9a-f]{2})")
_ESCAPED: Final = tuple(
    chr(byte) if re.match(r"[a-z0-9-]", chr(byte), re.ASCII) else f"_{byte:02x}" for byte in range(256)
)


def check_id(value: object, what: str) -> None:
    """Refuse what is no identifier.

    Guarantees ID-1: an id is a string of 1 to 512 UTF-8 bytes without U+0000 and without lone surrogates; every other
    string is legal.

    Args:
        value: The candidate.
        what: Its name in the error, such as `session_id`.

    Raises:
        InvalidKey: It is not such a string.
    """
    if not isinstance(value, str):
        raise InvalidKey(f"{what} must be a string, not {type(value).__name__}")
    if value.isascii():
        size = len(value)
    else:
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise InvalidKey(f"{what} holds a lone surrogate, which is no text") from error
    if not 0 < size <= ID_BYTES_MAX:
        raise InvalidKey(f"{what} must have 1 to {ID_BYTES_MAX} bytes of UTF-8, not {size}")
    if "\0" in value:
        raise InvalidKey(f"{what} holds U+0000; remove it")


def encode_id(value: str | None) -> str:
    """Turn an id into its storage name.

    Guarantees ID-4: distinct ids have distinct names, which differ by more than case; a name has at most
    `NAME_CHARS_MAX` characters of `[a-z0-9_-]` and is reversible unless it is a digest.

    Args:
        value: A checked id, or None for the absent user.

    Returns:
        The name.
    """
    if value is None:
        return NONE_NAME
    if len(value) <= NAME_CHARS_MAX and _PLAIN.match(value):
        return value
    data = value.encode()
    name = "".join([_ESCAPED[byte] for byte in data])
    if len(name) > NAME_CHARS_MAX:
        return _DIGEST_PREFIX + hashlib.sha256(data).hexdigest()
    return name


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _joined(*ids: str | None) -> str:
    """The names of ids joined by `/`; the same ones are asked for with each call of a store."""
    return "/".join([encode_id(value) for value in ids])


def is_digest_name(name: str) -> bool:
    """Tell whether a name stands for an id too long to be read back from it (ID-4)."""
    return name.startswith(_DIGEST_PREFIX)


def decode_name(name: str) -> str | None:
    """Turn a name back into its id.

    Args:
        name: What `encode_id` returned, and no digest name.

    Returns:
        The id, or None for the absent user.

    Raises:
        InvalidKey: It is no name, or a digest name: read the id from the record instead.
    """
    if name == NONE_NAME:
        return None
    if not _NAME.match(name):
        raise InvalidKey(f"{name!r} is not the name of an id")
    try:
        value = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), name.encode("ascii")).decode()
    except UnicodeDecodeError as error:
        raise InvalidKey(f"{name!r} is not the name of an id") from error
    if encode_id(value) != name:
        raise InvalidKey(f"{name!r} is not the name of an id: {value!r} has another")
    return value


def _check_user(user_id: str | None) -> None:
    if user_id is not None:
        check_id(user_id, "user_id")


class SessionKey(msgspec.Struct, frozen=True):
    """One session of one user.

    Attributes:
        user_id: The user, or None: the absent user, which differs from every string (ID-3).
        session_id: The session.

    Raises:
        InvalidKey: An id is outside ID-1.
    """

    user_id: str | None
    session_id: str

    def __post_init__(self) -> None:
        _check_user(self.user_id)
        check_id(self.session_id, "session_id")

    @property
    def name(self) -> str:
        """The storage name: two id names joined by `/`."""
        return _joined(self.user_id, self.session_id)


class StateKey(msgspec.Struct, frozen=True):
    """One slot of agent state. Documents and lists have separate namespaces under the same key (STATE).

    Attributes:
        user_id: The user, or None (ID-3).
        session_id: The session.
        key: The state key.

    Raises:
        InvalidKey: An id is outside ID-1.
    """

    user_id: str | None
    session_id: str
    key: str

    def __post_init__(self) -> None:
        _check_user(self.user_id)
        check_id(self.session_id, "session_id")
        check_id(self.key, "key")

    @property
    def session(self) -> SessionKey:
        """The session that this slot belongs to."""
        return SessionKey(self.user_id, self.session_id)

    @property
    def name(self) -> str:
        """The storage name: three id names joined by `/`."""
        return _joined(self.user_id, self.session_id, self.key)


class ThreadKey(msgspec.Struct, frozen=True):
    """One thread: the address of one journal.

    Attributes:
        user_id: The user, or None (ID-3).
        agent_id: The agent.
        session_id: The session.
        thread_id: The thread.

    Raises:
        InvalidKey: An id is outside ID-1.
    """

    user_id: str | None
    agent_id: str
    session_id: str
    thread_id: str

    def __post_init__(self) -> None:
        _check_user(self.user_id)
        check_id(self.agent_id, "agent_id")
        check_id(self.session_id, "session_id")
        check_id(self.thread_id, "thread_id")

    @property
    def name(self) -> str:
        """The storage name: four id names joined by `/`."""
        return _joined(self.user_id, self.agent_id, self.session_id, self.thread_id)


class ThreadScope(msgspec.Struct, frozen=True):
    """What `list_threads` is asked for: all threads of a user, of one of its agents, or of one session (LIFE-1).

    Attributes:
        user_id: The user, or None: the absent user, not "all users" (ID-3).
        agent_id: Only this agent's threads, or None for all.
        session_id: Only this session's threads, or None for all; needs `agent_id`.

    Raises:
        InvalidKey: An id is outside ID-1, or `session_id` is given without `agent_id`.
    """

    user_id: str | None
    agent_id: str | None = None
    session_id: str | None = None

    def __post_init__(self) -> None:
        _check_user(self.user_id)
        if self.agent_id is not None:
            check_id(self.agent_id, "agent_id")
        if self.session_id is not None:
            check_id(self.session_id, "session_id")
            if self.agent_id is None:
                raise InvalidKey("a scope with a session_id needs its agent_id too")

    @property
    def prefix(self) -> str:
        """The names in this scope are exactly those that start with this text; it ends with `/`."""
        parts = [encode_id(self.user_id)]
        if self.agent_id is not None:
            parts.append(encode_id(self.agent_id))
        if self.session_id is not None:
            parts.append(encode_id(self.session_id))
        return "/".join(parts) + "/"

    def covers(self, key: ThreadKey) -> bool:
        """Tell whether a thread is inside this scope."""
        return (
            key.user_id == self.user_id
            and (self.agent_id is None or key.agent_id == self.agent_id)
            and (self.session_id is None or key.session_id == self.session_id)
        )
