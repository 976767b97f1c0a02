"""The scripts: read once, named by their digests, and packed together with keys and arguments."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from statebook_backends.redis.resp import bulk, bulks

_SHARED: Final = {"save": "slot.inc", "items": "slot.inc", "bury": "slot.inc", "load": "slot.inc"}


class Call:
    """One call of a script, packed.

    Attributes:
        payload: The call by the script's digest.
    """

    __slots__ = ("_rest", "_script", "_words", "payload")

    def __init__(self, script: Script, words: int, rest: bytes) -> None:
        self._script = script
        self._words = words
        self._rest = rest
        self.payload = b"*%d\r\n%b%b" % (words, script.by_digest, rest)

    def in_full(self) -> bytes:
        """The same call with the script's text, for a server that does not know it yet."""
        return b"*%d\r\n%b%b" % (self._words, self._script.by_text, self._rest)


class Script:
    """One script.

    Attributes:
        by_digest: The first words of a call by its digest.
        by_text: The first words of a call by its text.
    """

    __slots__ = ("by_digest", "by_text")

    def __init__(self, text: bytes, keys: int) -> None:
        """Prepare a script.

        Args:
            text: The script.
            keys: How many keys it takes.
        """
        digest = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode("ascii")
        count = bulk(b"%d" % keys)
        self.by_digest = bulks(b"EVALSHA", digest) + count
        self.by_text = bulks(b"EVAL", text) + count

    def call(self, keys: int, packed: bytes, *arguments: bytes) -> Call:
        """Pack a call.

        Args:
            keys: How many keys.
            packed: The keys as words.
            arguments: The arguments.
        """
        return Call(self, 3 + keys + len(arguments), packed + bulks(*arguments))

    def packed_call(self, words: int, rest: bytes) -> Call:
        """A call whose keys and arguments are packed already: how many words they are, and the words."""
        return Call(self, 3 + words, rest)


@cache
def script(name: str, keys: int) -> Script:
    """A script of this package, by the name of its file.

    Args:
        name: The name without its ending.
        keys: How many keys it takes.
    """
    folder = files("statebook_backends.redis") / "scripts"
    text = folder.joinpath(f"{name}.lua").read_bytes()
    if name in _SHARED:
        text = folder.joinpath(f"{_SHARED[name]}.lua").read_bytes() + text
    return Script(text, keys)
