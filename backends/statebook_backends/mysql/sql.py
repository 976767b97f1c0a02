"""Statements as bytes: `?` becomes a literal, `~name` a table. The only place where text becomes SQL.

Literals are escaped for the session that `store` sets up: utf8mb4, backslash escapes on.
"""

from __future__ import annotations

import base64
import re
from typing import Final, TypeAlias

Value: TypeAlias = "str | bytes | int | None"
"""What a column holds and a literal is made of. Texts are for text columns, bytes for binary ones."""

Row: TypeAlias = "tuple[Value, ...]"

BEGIN: Final = b"SET autocommit=0"
"""Begins a transaction with the next statement, and so does every COMMIT and ROLLBACK behind it."""
SINGLE: Final = b"SET autocommit=1"
"""Makes each statement a transaction of its own again."""
COMMIT: Final = b"COMMIT"
ROLLBACK: Final = b"ROLLBACK"
SNAPSHOT: Final = (
    b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    b"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
"""Begins a transaction whose reads are all of one commit, whatever the session's isolation is."""

GROWTH: Final = 1.36
"""The most by which a long literal is longer than its bytes."""

_LONG: Final = 65_536
_TABLE: Final = re.compile(r"~([a-z_]+)")


def literal(value: Value | tuple[Value, ...]) -> bytes:
    """Turn a value into a literal; a tuple into the inside of an IN list.

    Args:
        value: The value.

    Returns:
        The literal. Of bytes it is never more than `GROWTH` times as long where they are many.
    """
    if isinstance(value, str):
        return b"'%b'" % _escaped(value.encode())
    if isinstance(value, bytes):
        escaped = _escaped(value)
        if len(value) > _LONG and len(escaped) > len(value) * GROWTH:
            return b"FROM_BASE64('%b')" % base64.b64encode(value)
        return b"_binary'%b'" % escaped
    if value is None:
        return b"NULL"
    if isinstance(value, int):
        return b"%d" % value
    return b",".join([literal(each) for each in value])


def quoted(text: str | None) -> str:
    """What `literal` makes of a text, as text: for statements that are encoded when they are whole."""
    if text is None:
        return "NULL"
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    return f"""'{text.replace("'", chr(92) + "'")}'""" if "'" in text else f"'{text}'"


def _escaped(data: bytes) -> bytes:
    if b"\\" in data:
        data = data.replace(b"\\", b"\\\\")
    return data.replace(b"'", b"\\'") if b"'" in data else data


class Sql:
    """Renders the statements of one store."""

    def __init__(self, prefix: str) -> None:
        """Keep the prefix.

        Args:
            prefix: The start of all table names: letters, digits and underscores.
        """
        self._prefix = prefix
        self._parts: dict[str, tuple[bytes, ...]] = {}
        self._named: dict[str, bytes] = {}

    def named(self, text: str) -> bytes:
        """A statement with its tables named, to be filled in by the caller with `%d` and literals in `%b`."""
        found = self._named.get(text)
        if found is None:
            found = _TABLE.sub(lambda match: f"`{self._prefix}{match[1]}`", text).encode("ascii")
            self._named[text] = found
        return found

    def __call__(self, text: str, *values: Value | tuple[Value, ...]) -> bytes:
        """Render a statement.

        Args:
            text: One of this package's statements; what was rendered once is remembered.
            values: As many as there are `?` in it.

        Returns:
            The statement.
        """
        parts = self._parts.get(text)
        if parts is None:
            parts = self._parts[text] = tuple(self.named(text).split(b"?"))
        if len(parts) != len(values) + 1:
            raise ValueError(f"{len(values)} values were given for {len(parts) - 1} places of {text!r}")
        pieces = [parts[0]]
        for part, value in zip(parts[1:], values, strict=True):
            pieces.append(literal(value))
            pieces.append(part)
        return b"".join(pieces)
